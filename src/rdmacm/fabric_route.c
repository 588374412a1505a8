// fabric_route.c - addresses and paths on an InfiniBand fabric: our port, the destination's GID, the path record
// follows: rdma_resolve_addr(3), rdma_resolve_route(3); IBA volume 1, 15.2.5.16 (PathRecord), 12.7.11 to 12.7.24 (paths in REQ)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "frame/fields.h"
#include "frame/sa.h"
#include "frame/smp.h"
#include "rdmacm/fabric.h"

enum { PKEYS = 64, FULL_MEMBER = 0x8000, SM_WITHOUT_PATHS = EINVAL };

/* --- our port --- */

int rcm_fabric_source(const union rcm_addr *addr, struct rcm_source *out)
{
	struct vb_fabric_address found;
	uint8_t gid[16];

	if (addr->sa.sa_family == AF_IB) {
		rcm_addr_gid(addr, gid);
		return rcm_find_fabric(rcm_addr_loopback(addr) ? NULL : gid, out);
	}
	if (rcm_fabric_look_up(addr, &found) || !found.is_own)
		return EADDRNOTAVAIL;
	return rcm_find_fabric(NULL, out);
}

static bool is_active(const struct rcm_source *source)
{
	struct ibv_port_attr port;

	return !ibv_query_port(source->dev->verbs, source->port, &port) && port.state == IBV_PORT_ACTIVE;
}

uint16_t rcm_fabric_pkey_index(const struct rcm_id *id)
{
	uint16_t want = id->path.pkey ? id->path.pkey : VB_DEFAULT_PKEY;
	__be16 own;

	for (int i = 0; i < PKEYS; i++)
		if (!ibv_query_pkey(id->source.dev->verbs, id->source.port, i, &own) &&
		    !((be16toh(own) ^ want) & ~FULL_MEMBER))
			return (uint16_t)i;
	return 0;
}

/* --- AF_IB --- */

enum vb_port_space rcm_fabric_space(const struct rcm_id *id, union rcm_addr *addr)
{
	static const enum vb_port_space known[] = {VB_PS_IB, VB_PS_TCP, VB_PS_UDP};
	uint64_t mask = be64toh(addr->sib.sib_sid_mask) & ~UINT64_C(0xffff), sid = be64toh(addr->sib.sib_sid) & mask;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		uint64_t service = vb_cm_service_id(known[i], 0);

		if (((int)id->id.ps != (int)known[i] && id->id.ps != RDMA_PS_IB) || sid != (service & mask))
			continue;
		addr->sib.sib_sid = htobe64(service | rcm_addr_port(addr));
		addr->sib.sib_sid_mask |= htobe64(~UINT64_C(0xffff));
		return known[i];
	}
	return 0;
}

/* --- the destination --- */

/* Our address towards the destination. */
static void name_source(const struct rcm_id *id, const union rcm_addr *dst, const uint8_t own[16],
                        struct rcm_found *found)
{
	if (!rcm_addr_any(&id->src)) {
		found->src = id->src;
	} else if (dst->sa.sa_family == AF_IB) {
		found->src = id->src;
		memcpy(found->src.sib.sib_addr.sib_raw, found->source.gid.raw, 16);
		found->src.sib.sib_pkey = dst->sib.sib_pkey;
	} else {
		rcm_addr_from_gid(&found->src, own, 0, 0);
	}
	rcm_addr_set_port(&found->src, rcm_addr_port(&id->src));
}

int rcm_fabric_destination(const struct rcm_id *id, const union rcm_addr *dst, struct rcm_found *found)
{
	static const uint8_t none[16];
	struct vb_fabric_address is = {0};
	int err;

	*found = (struct rcm_found){.dst = *dst, .source = id->source, .pkey = VB_DEFAULT_PKEY};
	if (id->source.dev && !id->source.dev->fabric)
		return EHOSTUNREACH;
	if (dst->sa.sa_family == AF_IB && (be16toh(dst->sib.sib_pkey) & ~FULL_MEMBER))
		found->pkey = be16toh(dst->sib.sib_pkey);
	if (rcm_addr_multicast(dst)) {
		if (dst->sa.sa_family != AF_IB && !id->source.dev)
			return EHOSTUNREACH; /* by the adapter that the routing table names */
		rcm_fabric_group(id, dst, &found->dgid);
	} else if (dst->sa.sa_family == AF_IB) {
		memcpy(found->dgid.raw, dst->sib.sib_addr.sib_raw, 16);
	} else {
		if (rcm_fabric_look_up(dst, &is))
			return id->source.dev ? EADDRNOTAVAIL : EHOSTUNREACH;
		memcpy(found->dgid.raw, is.gid, 16);
		if (rcm_addr_any(&id->src) && !memcmp(is.own, none, sizeof(none)))
			return EADDRNOTAVAIL; /* our adapter has no address of this family */
	}
	err = found->source.dev ? 0 : rcm_find_fabric(NULL, &found->source);
	if (err || !is_active(&found->source))
		return ENODEV;
	name_source(id, dst, is.own, found);
	return 0;
}

/* --- the path --- */

int rcm_fabric_resolve_route(struct rcm_id *id, int timeout_ms)
{
	uint8_t mad[VB_MAD_LEN];
	struct vb_sa_path want = {.service_id = rcm_service_id(id, &id->dst),
	                          .pkey = id->path.pkey | FULL_MEMBER,
	                          .reversible = true,
	                          .numb_path = 1};
	int err = EINVAL;

	rcm_lock();
	if (id->state == RCM_ADDR_RESOLVED && !id->route_question) {
		memcpy(want.dgid, id->path.dgid.raw, sizeof(want.dgid));
		memcpy(want.sgid, id->source.gid.raw, sizeof(want.sgid));
		id->route_question = rcm_fabric_question();
		vb_sa_path_query(mad, id->route_question,
		                 VB_SA_PATH_SERVICE_ID | VB_SA_PATH_DGID | VB_SA_PATH_SGID | VB_SA_PATH_REVERSIBLE |
		                         VB_SA_PATH_NUMB_PATH | VB_SA_PATH_PKEY,
		                 &want);
		rcm_fabric_ask_sa(mad, timeout_ms > 0 ? (uint32_t)timeout_ms : 1);
		err = rcm_fabric_present() ? 0 : ENODEV;
	}
	rcm_unlock();
	return err;
}

static struct rcm_id *asker(uint32_t question)
{
	struct rcm_id *id = rcm.ids;

	while (id && id->route_question != question)
		id = id->next;
	return id && id->state == RCM_ADDR_RESOLVED ? id : NULL;
}

static void take_path(struct rcm_id *id, const struct vb_sa_path *p)
{
	struct rcm_path *path = &id->path;

	path->dlid = p->dlid;
	path->slid = p->slid;
	path->mtu = p->mtu;
	path->rate = p->rate;
	path->sl = p->sl;
	path->hop_limit = p->hop_limit;
	path->traffic_class = p->traffic_class;
	path->flow_label = p->flow_label;
	path->lifetime = p->lifetime;
}

static bool is_possible(const struct vb_sa_path *p)
{
	return p->dlid && p->dlid < VB_LID_MULTICAST && p->mtu >= IBV_MTU_256 && p->mtu <= IBV_MTU_4096;
}

/* err: 0 or an errno. */
static void conclude_route(struct rcm_id *id, int err, const struct vb_sa_path *path)
{
	id->route_question = 0;
	if (err) {
		rcm_post(id, RDMA_CM_EVENT_ROUTE_ERROR, -err);
		return;
	}
	take_path(id, path);
	if (!rcm_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0))
		id->state = RCM_ROUTE_RESOLVED;
}

static void route_told(struct rcm_id *id, const struct vb_fabric_sa_is *is)
{
	struct vb_sa_path path = {0};
	uint16_t status = 0;
	uint64_t tid;
	bool found = !is->error && vb_sa_path_answer(is->mad, sizeof(is->mad), &tid, &status, &path) && !status &&
	             is_possible(&path);

	conclude_route(id, found ? 0 : is->error ? is->error : SM_WITHOUT_PATHS, &path);
}

/* The transaction's low half is the question; the fabric process has put its own number in the high one. */
void rcm_fabric_told(const struct vb_fabric_sa_is *is)
{
	struct vb_reader r = vb_reader(is->mad, sizeof(is->mad));
	struct vb_mad h;

	vb_mad_decode(&r, &h);
	uint32_t question = (uint32_t)h.tid;

	rcm_lock();
	struct rcm_id *id = rcm.gsi && question ? asker(question) : NULL;

	if (id)
		route_told(id, is);
	else if (rcm.gsi && question)
		rcm_fabric_group_told(question, is);
	rcm_unlock();
}

void rcm_fabric_unanswered(void)
{
	for (struct rcm_id *id = rcm.ids; id; id = id->next) {
		if (id->route_question && id->state == RCM_ADDR_RESOLVED)
			conclude_route(id, ENODEV, NULL);
		rcm_fabric_group_unanswered(id, ENODEV);
	}
}

void rcm_fabric_ah_attr(const struct rcm_id *id, struct ibv_ah_attr *attr)
{
	const struct rcm_path *path = &id->path;

	*attr = (struct ibv_ah_attr){.dlid = path->dlid,
	                             .sl = path->sl,
	                             .src_path_bits = path->slid & 0x7f,
	                             .static_rate = path->rate,
	                             .is_global = path->hop_limit > 1,
	                             .port_num = id->source.port};
	if (attr->is_global)
		attr->grh = (struct ibv_global_route){.dgid = path->dgid,
		                                      .flow_label = path->flow_label,
		                                      .sgid_index = (uint8_t)id->source.gid_index,
		                                      .hop_limit = path->hop_limit,
		                                      .traffic_class = path->traffic_class};
}
