// control.c - admin commands to a controller
// follows: NVMe over Fabrics 1.1, 3.3 (Connect) and 3.5 (properties); NVM Express Base 1.4, chapter 5 (admin commands)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define LOG_HEAD 1024u
#define LOG_ENTRY 1024u
#define LOG_ENTRIES_MAX 4096u
#define ACCESS_LOG_MAX 65536u /* bytes that are looked at */

/* offsets in Identify Controller and Identify Namespace. Base 1.4, figures 247 and 245 */
enum {
	C_SN = 4,
	C_MN = 24,
	C_FR = 64,
	C_CMIC = 76,
	C_MDTS = 77,
	C_VER = 80,
	C_OAES = 92,
	C_ANATT = 342,
	C_MAXCMD = 514,
	C_ONCS = 520,
	C_VWC = 525,
	C_IOCCSZ = 1792,
	C_ICDOFF = 1800
};
enum {
	N_NSZE = 0,
	N_NSFEAT = 24,
	N_NLBAF = 25,
	N_FLBAS = 26,
	N_DLFEAT = 33,
	N_NPWG = 64,
	N_NSATTR = 99,
	N_NGUID = 104,
	N_EUI64 = 120,
	N_LBAF = 128
};
/* … and in the data for the NVM command set. NVM command set 1.0, 4.1.5.4 */
enum { L_WZSL = 1, L_DMRSL = 4, L_DMSL = 8 };
#define CMIC_ANA 0x08u
#define VERSION_1_2 0x00010200u /* older controllers have a CNS of two bits, and get no other queries */
#define ONCS_COMPARE 0x01u
#define ONCS_DSM 0x04u
#define ONCS_WRITE_ZEROES 0x08u
#define NSFEAT_OPTPERF 0x10u
#define DLFEAT_READS 0x07u /* deallocated blocks read as … */
#define DLFEAT_ZEROES 0x01u
#define DLFEAT_DEAC 0x08u /* Write Zeroes may deallocate */
#define NSATTR_PROTECTED 0x01u
#define DESC_UUID 3u

/* Performs a command, and describes its error. */
static int admin_command(struct vn_link *l, struct vn_queue *q, const char *what, const struct nv_sqe *sqe,
                         enum vn_way way, void *data, uint32_t length, struct nv_cqe *cqe)
{
	int e = vn_command(q, sqe, way, data, length, l->deadline, cqe);

	if (e) {
		vn_say(l->why, "%s: %s", what, q->error && *q->why ? q->why : strerror(-e));
		return e;
	}
	if (cqe->status)
		vn_say(l->why, "%s: the target says: %s", what, nv_status_text(cqe->status));
	return cqe->status ? vn_status_errno(cqe->status) : 0;
}

/* ---- connect ---- */

/* Describes why the target rejected Connect. Fabrics 1.1, figure 21 */
static int connect_refused(struct vn_link *l, const struct nv_cqe *cqe, const char *nqn)
{
	uint16_t at = (uint16_t)cqe->result;
	bool in_data = cqe->result >> 16 & 1;

	switch (cqe->status & NV_STATUS_MASK) {
	case NV_CONNECT_HOST:
		vn_say(l->why, "the target rejects this host");
		return -EACCES;
	case NV_CONNECT_BUSY:
		return -EBUSY;
	case NV_CONNECT_PARAMETER:
		if (in_data && at == NV_CONNECT_AT_SUBNQN) {
			vn_say(l->why, "the target has no subsystem %.80s", nqn);
			return -ENXIO;
		}
		return -EIO;
	default:
		return -EIO;
	}
}

static bool dislikes_attributes(const struct nv_cqe *cqe)
{
	return (cqe->status & NV_STATUS_MASK) == NV_CONNECT_PARAMETER && cqe->result == NV_CONNECT_AT_CATTR;
}

/* Authenticates if the target requires it, or if we require a proof. For a discovery service no proof is required: the
 * subsystem itself has to prove its identity. */
static int authenticate_queue(struct vn_link *l, struct vn_queue *q, const struct vn_identity *who, const char *nqn,
                              uint64_t authreq)
{
	bool ours = who->controller_secret.length && strcmp(nqn, NV_DISCOVERY_NQN);

	if (!(authreq & (NV_AUTHREQ_ATR | NV_AUTHREQ_ASCR)) && !ours)
		return 0;
	if (authreq & NV_AUTHREQ_ASCR) {
		vn_say(l->why, "the target requires secure channel concatenation, which is not supported");
		return -EACCES;
	}
	if (!who->secret.length) {
		vn_say(l->why, "the target requires authentication, but there is no secret");
		return -EACCES;
	}
#ifdef VN_HAVE_AUTH
	return vn_ctl_authenticate(l, q, who, nqn);
#else
	vn_say(l->why, "the target requires authentication, but this was built without OpenSSL");
	return -EOPNOTSUPP;
#endif
}

int vn_ctl_connect(struct vn_link *l, struct vn_queue *q, const struct vn_identity *who, const char *nqn, uint32_t kato)
{
	uint8_t data[NV_CONNECT_DATA_LEN] = {0};
	struct nv_sqe s = {
	        .opcode = NV_FABRICS, .fctype = NV_FCT_CONNECT, .cdw = {(uint32_t)q->qid << 16, q->depth, kato}};
	/* targets send data without a separate completion only to hosts that do not use SQHD */
	uint8_t cattr = q->transport == &vn_tcp ? NV_CONNECT_NO_SQ_FLOW : 0;
	struct nv_cqe cqe = {0};
	int e;

	memcpy(data + NV_CONNECT_AT_HOSTID, who->host_id, 16);
	nv_put16(data + NV_CONNECT_AT_CNTLID, q->qid ? l->cntlid : NV_CNTLID_DYNAMIC);
	strcpy((char *)data + NV_CONNECT_AT_SUBNQN, nqn);
	strcpy((char *)data + NV_CONNECT_AT_HOSTNQN, who->host_nqn);
	do {
		s.cdw[1] = q->depth | (uint32_t)cattr << 16;
		e = admin_command(l, q, "connect", &s, VN_TO_TARGET, data, sizeof(data), &cqe);
	} while (e && cattr && dislikes_attributes(&cqe) && !(cattr = 0));
	if (e && cqe.status)
		return connect_refused(l, &cqe, nqn);
	if (e)
		return e;
	if (!q->qid)
		l->cntlid = (uint16_t)cqe.result;
	return authenticate_queue(l, q, who, nqn, cqe.result);
}

/* ---- properties ---- */

static int get_property(struct vn_link *l, struct vn_queue *q, enum nv_property p, bool wide, uint64_t *value)
{
	struct nv_sqe s = {.opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_GET, .cdw = {wide, p}};
	struct nv_cqe cqe;
	int e = admin_command(l, q, "reading a property", &s, VN_NO_DATA, NULL, 0, &cqe);

	if (!e)
		*value = wide ? cqe.result : (uint32_t)cqe.result;
	return e;
}

static int set_property(struct vn_link *l, struct vn_queue *q, enum nv_property p, uint32_t value)
{
	struct nv_sqe s = {.opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_SET, .cdw = {0, p, value}};
	struct nv_cqe cqe;

	return admin_command(l, q, "setting a property", &s, VN_NO_DATA, NULL, 0, &cqe);
}

static void pause_ms(int ms)
{
	poll(NULL, 0, ms);
}

static int until_ready(struct vn_link *l, struct vn_queue *admin, uint64_t by)
{
	uint64_t csts;

	for (int ms = 1;; ms = ms < 50 ? 2 * ms : 50) {
		int e = get_property(l, admin, NV_PROP_CSTS, false, &csts);

		if (e || csts & NV_CSTS_RDY)
			return e;
		if (csts & NV_CSTS_CFS || vn_now() >= by || (l->stop && *l->stop)) {
			vn_say(l->why, "the controller does not become ready");
			return -EIO;
		}
		pause_ms(ms);
	}
}

#define CC_SIZES (6u << 16 | 4u << 20) /* sizes of queue entries: 64 and 16 */

int vn_ctl_enable(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim)
{
	uint64_t cap;
	int e = get_property(l, admin, NV_PROP_CAP, true, &cap);

	if (e)
		return e;
	lim->mqes = (uint16_t)cap;
	lim->ready_ms = (uint32_t)(cap >> 24 & 0xff) * 500;
	lim->page = 4096u << (cap >> 48 & 15);
	if (!lim->mqes) {
		vn_say(l->why, "the controller's queues have no room");
		return -EPROTO;
	}
	e = set_property(l, admin, NV_PROP_CC, NV_CC_EN | CC_SIZES);
	return e ? e : until_ready(l, admin, vn_now() + lim->ready_ms + 500);
}

void vn_ctl_shutdown(struct vn_queue *admin, uint64_t deadline)
{
	char why[120];
	struct vn_link l = {.deadline = deadline, .why = why};

	set_property(&l, admin, NV_PROP_CC, NV_CC_EN | CC_SIZES | 1u << 14); /* SHN: normal */
}

/* ---- identify ---- */

static int send_identify(struct vn_link *l, struct vn_queue *admin, enum nv_cns cns, uint32_t nsid,
                         uint8_t data[VN_CONTROL_MAX])
{
	struct nv_sqe s = {.opcode = NV_ADMIN_IDENTIFY, .nsid = nsid, .cdw = {cns}};
	struct nv_cqe cqe;

	memset(data, 0, VN_CONTROL_MAX);
	return admin_command(l, admin, "identify", &s, VN_FROM_TARGET, data, VN_CONTROL_MAX, &cqe);
}

/* Copies a text field that is padded with spaces. Unprintable bytes become dots. */
static void copy_text(char *to, const uint8_t *from, size_t len)
{
	while (len && (from[len - 1] == ' ' || !from[len - 1]))
		len--;
	for (size_t i = 0; i < len; i++)
		to[i] = from[i] >= ' ' && from[i] < 0x7f ? (char)from[i] : '.';
	to[len] = 0;
}

/* Zero means no limit, and so does a target that does not support the query. */
static void command_limits(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim)
{
	uint8_t d[VN_CONTROL_MAX];

	if (send_identify(l, admin, NV_CNS_CSI_CTRL, 0, d))
		return;
	uint64_t range = nv_get32(d + L_DMRSL), all = nv_get64(d + L_DMSL);

	if (d[L_WZSL] && d[L_WZSL] < 32)
		lim->zeroes = (uint64_t)lim->page << d[L_WZSL];
	if (range)
		lim->discard = range;
	if (all && all < lim->discard)
		lim->discard = all;
}

int vn_ctl_identify(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim, struct vn_info *info)
{
	uint8_t d[VN_CONTROL_MAX];
	int e = send_identify(l, admin, NV_CNS_CTRL, 0, d);

	if (e)
		return e;
	uint32_t capsule = nv_get32(d + C_IOCCSZ), mdts = d[C_MDTS], shift = 0;
	uint16_t oncs = nv_get16(d + C_ONCS), at_once = nv_get16(d + C_MAXCMD);

	copy_text(info->serial, d + C_SN, 20);
	copy_text(info->model, d + C_MN, 40);
	copy_text(info->firmware, d + C_FR, 8);
	info->compare = oncs & ONCS_COMPARE;
	info->discard = !!(oncs & ONCS_DSM);
	info->write_zeroes = !!(oncs & ONCS_WRITE_ZEROES);
	info->volatile_cache = d[C_VWC] & 1;
	lim->ana = d[C_CMIC] & CMIC_ANA;
	lim->anatt = d[C_ANATT];
	lim->events = nv_get32(d + C_OAES) & (NV_AEC_NS_CHANGED | NV_AEC_ANA_CHANGED | NV_AEC_DISCOVERY_CHANGED);
	if (at_once && at_once < lim->mqes)
		lim->mqes = at_once;
	while (lim->page >> shift > 1)
		shift++;
	lim->transfer = mdts && mdts + shift < 32 ? 1u << (mdts + shift) : UINT32_MAX;
	/* in units of 16 bytes, including the command; with an offset (ICDOFF), data is never sent in capsules */
	lim->inline_max = capsule > 4 && !nv_get16(d + C_ICDOFF)
	                          ? (capsule - 4 < VN_TRANSFER_MAX / 16 ? capsule - 4 : VN_TRANSFER_MAX / 16) * 16
	                          : 0;
	lim->zeroes = lim->discard = UINT64_MAX;
	if (nv_get32(d + C_VER) >= VERSION_1_2 && (info->discard || info->write_zeroes))
		command_limits(l, admin, lim);
	return admin->error ? -admin->error : 0;
}

static int first_namespace(struct vn_link *l, struct vn_queue *admin, uint32_t *nsid)
{
	uint8_t d[VN_CONTROL_MAX];
	int e = send_identify(l, admin, NV_CNS_ACTIVE, 0, d);

	if (e)
		return e;
	*nsid = nv_get32(d);
	if (*nsid && *nsid < NV_NSID_ALL - 1)
		return 0;
	vn_say(l->why, "the subsystem has no namespace");
	return -ENXIO;
}

/* Not every target supports this; then there is no name. */
static void namespace_uuid(struct vn_link *l, struct vn_queue *admin, uint32_t nsid, char uuid[37])
{
	uint8_t d[VN_CONTROL_MAX];

	if (send_identify(l, admin, NV_CNS_NS_DESC, nsid, d))
		return;
	for (size_t at = 0; at + 4 + 16 <= sizeof(d) && d[at + 1]; at += 4u + d[at + 1])
		if (d[at] == DESC_UUID && d[at + 1] == 16)
			nv_uuid_format(d + at + 4, uuid);
}

int vn_ctl_namespace(struct vn_link *l, struct vn_queue *admin, struct vn_limits *lim, struct vn_info *info,
                     struct vn_names *names)
{
	uint8_t d[VN_CONTROL_MAX];
	int e = info->nsid ? 0 : first_namespace(l, admin, &info->nsid);

	if (!e)
		e = send_identify(l, admin, NV_CNS_NS, info->nsid, d);
	if (e)
		return e == -ENODEV ? -ENXIO : e;
	uint64_t blocks = nv_get64(d + N_NSZE);
	unsigned format = d[N_FLBAS] & 15;
	uint32_t lbaf = nv_get32(d + N_LBAF + 4 * format);
	unsigned shift = lbaf >> 16 & 0xff;

	if (!blocks) {
		vn_say(l->why, "the subsystem has no namespace %u", info->nsid);
		return -ENXIO;
	}
	if (lbaf & 0xffff) {
		vn_say(l->why, "the namespace has metadata");
		return -EOPNOTSUPP;
	}
	if (shift < 9 || shift > 20 || blocks > (uint64_t)INT64_MAX >> shift) {
		vn_say(l->why, "the namespace has %llu blocks of 2^%u bytes", (unsigned long long)blocks, shift);
		return -EPROTO;
	}
	info->block_size = 1u << shift;
	info->size = blocks << shift;
	info->readonly = d[N_NSATTR] & NSATTR_PROTECTED;
	if (d[N_NSFEAT] & NSFEAT_OPTPERF)
		info->optimal_io = (nv_get16(d + N_NPWG) + 1u) << shift;
	lim->frees_zeroes = (d[N_DLFEAT] & DLFEAT_READS) == DLFEAT_ZEROES && (d[N_DLFEAT] & DLFEAT_DEAC);
	memcpy(names->nguid, d + N_NGUID, sizeof(names->nguid));
	memcpy(names->eui64, d + N_EUI64, sizeof(names->eui64));
	namespace_uuid(l, admin, info->nsid, info->uuid);
	return admin->error ? -admin->error : 0;
}

/* ---- other commands ---- */

int vn_ctl_queues(struct vn_link *l, struct vn_queue *admin, unsigned want, unsigned *got)
{
	struct nv_sqe s = {.opcode = NV_ADMIN_SET_FEATURES, .cdw = {NV_FEAT_QUEUES, (want - 1) | (want - 1) << 16}};
	struct nv_cqe cqe;
	int e = admin_command(l, admin, "asking for queues", &s, VN_NO_DATA, NULL, 0, &cqe);

	if (e)
		return e;
	unsigned submission = (cqe.result & 0xffff) + 1, completion = (cqe.result >> 16 & 0xffff) + 1;

	*got = submission < completion ? submission : completion;
	if (*got > want)
		*got = want;
	return 0;
}

int vn_ctl_keep_alive(struct vn_queue *admin, uint64_t deadline)
{
	char why[120];
	struct vn_link l = {.deadline = deadline, .why = why};
	struct nv_sqe s = {.opcode = NV_ADMIN_KEEP_ALIVE};
	struct nv_cqe cqe;

	return admin_command(&l, admin, "keep alive", &s, VN_NO_DATA, NULL, 0, &cqe);
}

static int read_log(struct vn_link *l, struct vn_queue *admin, uint8_t log, uint64_t at, uint8_t *data, uint32_t length)
{
	uint32_t dwords = length / 4 - 1;
	struct nv_sqe s = {.opcode = NV_ADMIN_GET_LOG,
	                   .cdw = {log | dwords << 16, dwords >> 16, (uint32_t)at, (uint32_t)(at >> 32)}};
	struct nv_cqe cqe;

	memset(data, 0, length);
	return admin_command(l, admin, log == NV_LOG_DISCOVERY ? "discovery log" : "log of changes", &s, VN_FROM_TARGET,
	                     data, length, &cqe);
}

int vn_ctl_want_events(struct vn_link *l, struct vn_queue *admin, uint32_t events)
{
	struct nv_sqe s = {.opcode = NV_ADMIN_SET_FEATURES, .cdw = {NV_FEAT_ASYNC_EVENTS, events}};
	struct nv_cqe cqe;

	return admin_command(l, admin, "asking for events", &s, VN_NO_DATA, NULL, 0, &cqe);
}

int vn_ctl_read_log(struct vn_link *l, struct vn_queue *admin, uint8_t log)
{
	uint8_t d[VN_CONTROL_MAX];

	return read_log(l, admin, log, 0, d, sizeof(d));
}

/* The page is read piece by piece, until the namespace is found. -ENXIO: it is not in there */
static int access_once(struct vn_link *l, struct vn_queue *admin, uint32_t nsid, uint8_t *page, uint8_t *state)
{
	enum vn_found_access f = VN_ACCESS_MORE;

	for (uint32_t n = 0; f == VN_ACCESS_MORE && n < ACCESS_LOG_MAX; n += VN_CONTROL_MAX) {
		int e = read_log(l, admin, NV_LOG_ANA, n, page + n, VN_CONTROL_MAX);

		if (e)
			return e;
		f = vn_access_find(page, n + VN_CONTROL_MAX, nsid, state);
	}
	return f == VN_ACCESS_FOUND ? 0 : f == VN_ACCESS_NONE ? -ENXIO : -EPROTO;
}

int vn_ctl_access(struct vn_link *l, struct vn_queue *admin, uint32_t nsid, uint8_t *state)
{
	uint8_t *page = malloc(ACCESS_LOG_MAX);
	int e = page ? access_once(l, admin, nsid, page, state) : -ENOMEM;

	free(page);
	return e;
}

static void take_entry(const uint8_t *e, struct vn_found *f)
{
	memset(f, 0, sizeof(*f));
	bool tls = e[0] == NV_TRTYPE_TCP && (e[3] & 3) == 1 && e[768] == 2; /* TLS 1.3 is required */

	strcpy(f->transport, tls ? "tls" : e[0] == NV_TRTYPE_TCP ? "tcp" : e[0] == NV_TRTYPE_RDMA ? "rdma" : "");
	f->referral = e[2] == NV_SUBTYPE_REFERRAL;
	f->discovery = e[2] == NV_SUBTYPE_CURRENT;
	f->port_id = nv_get16(e + 4);
	copy_text(f->service, e + 32, 32);
	if (nv_nqn_valid((const char *)e + 256, NV_NQN_SIZE))
		strcpy(f->nqn, (const char *)e + 256);
	copy_text(f->address, e + 512, 256);
}

static int log_once(struct vn_link *l, struct vn_queue *admin, struct vn_found **found, size_t *count, bool *changed)
{
	uint8_t d[VN_CONTROL_MAX];
	int e = read_log(l, admin, NV_LOG_DISCOVERY, 0, d, LOG_HEAD);
	uint64_t generation = nv_get64(d), n = nv_get64(d + 8);

	if (e)
		return e;
	if (n > LOG_ENTRIES_MAX || nv_get16(d + 16)) {
		vn_say(l->why, "the discovery log is invalid");
		return -EPROTO;
	}
	struct vn_found *f = calloc(n ? n : 1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	for (uint64_t i = 0; i < n && !e; i++) {
		e = read_log(l, admin, NV_LOG_DISCOVERY, LOG_HEAD + i * LOG_ENTRY, d, LOG_ENTRY);
		take_entry(d, &f[i]);
	}
	if (!e)
		e = read_log(l, admin, NV_LOG_DISCOVERY, 0, d, LOG_HEAD);
	*changed = !e && nv_get64(d) != generation;
	if (e || *changed) {
		free(f);
		return e;
	}
	*found = f;
	*count = n;
	return 0;
}

int vn_ctl_log(struct vn_link *l, struct vn_queue *admin, struct vn_found **found, size_t *count)
{
	bool changed = true;

	for (int i = 0; i < 5 && changed; i++) {
		int e = log_once(l, admin, found, count, &changed);

		if (e)
			return e;
	}
	if (changed)
		vn_say(l->why, "the discovery log keeps changing");
	return changed ? -EAGAIN : 0;
}
