// identify.c - Identify data of a controller and its namespaces
// follows: NVM Express Base 1.4, 5.15; NVMe over Fabrics 1.1, 4.1
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/core.h"

#define LENGTH 4096u
/* Offsets in the controller's structure: Base 1.4, figure 247; from 1792 on Fabrics 1.1, figure 28 */
enum ctrl_at {
	C_SN = 4,
	C_MN = 24,
	C_FR = 64,
	C_RAB = 72,
	C_CMIC = 76,
	C_MDTS = 77,
	C_CNTLID = 78,
	C_VER = 80,
	C_OAES = 92,
	C_CTRATT = 96,
	C_CNTRLTYPE = 111,
	C_OACS = 256,
	C_ACL = 258,
	C_AERL = 259,
	C_FRMW = 260,
	C_LPA = 261,
	C_ELPE = 262,
	C_KAS = 320,
	C_ANATT = 342,
	C_ANACAP = 343,
	C_ANAGRPMAX = 344,
	C_NANAGRPID = 348,
	C_SQES = 512,
	C_CQES = 513,
	C_MAXCMD = 514,
	C_NN = 516,
	C_ONCS = 520,
	C_FUSES = 522,
	C_VWC = 525,
	C_AWUN = 526,
	C_AWUPF = 528,
	C_ACWU = 532,
	C_SGLS = 536,
	C_MNAN = 540,
	C_SUBNQN = 768,
	C_IOCCSZ = 1792,
	C_IORCSZ = 1796,
	C_ICDOFF = 1800,
	C_FCATT = 1802,
	C_MSDBD = 1803,
	C_OFCS = 1804,
	C_PSD0 = 2048,
};
/* Offsets in the namespace's structure: figure 245 */
enum ns_at {
	N_NSZE = 0,
	N_NCAP = 8,
	N_NUSE = 16,
	N_NSFEAT = 24,
	N_DLFEAT = 33,
	N_NMIC = 30,
	N_RESCAP = 31,
	N_NACWU = 38,
	N_NOIOB = 46,
	N_NPWG = 64,
	N_NPWA = 66,
	N_NPDG = 68,
	N_NPDA = 70,
	N_NOWS = 72,
	N_ANAGRPID = 92,
	N_NSATTR = 99,
	N_NGUID = 104,
	N_LBAF0 = 128,
};

static void put_text(uint8_t *at, const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	memset(at, ' ', size);
	memcpy(at, text, len);
}

static void controller_common(const struct nt_request *r, uint8_t *d)
{
	const struct nt_controller *c = r->queue->ctrl;
	const struct nt_subsystem *s = c->subsystem;

	put_text(d + C_SN, s->serial, 20);
	put_text(d + C_MN, s->model, 40);
	put_text(d + C_FR, s->target->firmware, 8);
	d[C_MDTS] = NT_MDTS;
	nv_put16(d + C_CNTLID, c->id);
	nv_put32(d + C_VER, NV_VERSION_1_4);
	nv_put32(d + C_CTRATT, 1u | 1u << 6); /* 128-bit host identifier, traffic counts as keep alive */
	d[C_CNTRLTYPE] = s->discovery ? 2 : 1;
	d[C_AERL] = NT_AERS - 1;
	d[C_LPA] = 1u << 2; /* offsets and long lengths */
	nv_put16(d + C_KAS, 10);
	nv_put16(d + C_MAXCMD, NT_IO_ENTRIES_MAX);
	/* SGLs of any alignment; offsets into the capsule, or keyed descriptors. Base 1.4, figure 247 */
	nv_put32(d + C_SGLS, 1u | 1u << 20 | (r->queue->ops->keyed ? 1u << 2 : 1u << 21));
	strcpy((char *)d + C_SUBNQN, s->nqn);
	nv_put32(d + C_IOCCSZ, (NV_SQE_LEN + r->queue->inline_max) / 16);
	nv_put32(d + C_IORCSZ, NV_CQE_LEN / 16);
	d[C_MSDBD] = 1;
	nv_put16(d + C_OFCS, s->discovery ? 0 : 1); /* Disconnect */
}

static void identify_controller(struct nt_request *r, uint8_t *d)
{
	const struct nt_subsystem *s = r->queue->ctrl->subsystem;

	controller_common(r, d);
	if (s->discovery) {
		nv_put32(d + C_OAES, NV_AEC_DISCOVERY_CHANGED);
		return;
	}
	d[C_RAB] = 6;
	d[C_CMIC] = 1u << 1 | 1u << 3; /* several controllers; ANA */
	nv_put32(d + C_OAES, NV_AEC_NS_CHANGED | NV_AEC_ANA_CHANGED);
	d[C_ACL] = 3;
	d[C_FRMW] = 1u << 1 | 1; /* one slot, read only */
	d[C_LPA] |= 1u << 1;     /* commands supported and effects */
	d[C_ELPE] = 15;
	d[C_ANATT] = 10;
	/* all ANA states. A group id may change while attached: to and from those after NT_ANA_GROUPS */
	d[C_ANACAP] = 1 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4;
	nv_put32(d + C_ANAGRPMAX, NT_ANA_LAST);
	nv_put32(d + C_NANAGRPID, NT_ANA_LAST);
	d[C_SQES] = 0x66;
	d[C_CQES] = 0x44;
	nv_put32(d + C_NN, NT_NAMESPACES_MAX);
	nv_put32(d + C_MNAN, NT_NAMESPACES_MAX);
	/* compare, dataset management, write zeroes, reservations, timestamp, verify */
	nv_put16(d + C_ONCS, 1u | 1u << 2 | 1u << 3 | 1u << 5 | 1u << 6 | 1u << 7);
	nv_put16(d + C_FUSES, 1);
	d[C_VWC] = 1 | 2u << 1;     /* a cache; Flush is for one namespace at a time */
	nv_put16(d + C_PSD0, 2500); /* 25 W: one power state is mandatory */
}

static void identify_ns(const struct nt_namespace *ns, uint8_t *d)
{
	const struct nb_backend *b = ns->backend;
	uint64_t blocks = b->size >> ns->block_shift;
	uint16_t page = (uint16_t)(b->block < NV_PAGE ? NV_PAGE / b->block - 1 : 0); /* 0's based */

	nv_put64(d + N_NSZE, blocks);
	nv_put64(d + N_NCAP, blocks);
	nv_put64(d + N_NUSE, blocks);
	d[N_NSFEAT] = 1u << 4; /* NPWG and the following fields are valid */
	nv_put16(d + N_NPWG, page);
	nv_put16(d + N_NPWA, page);
	nv_put16(d + N_NPDG, page);
	nv_put16(d + N_NPDA, page);
	nv_put16(d + N_NOWS, page); /* a multiple of NPWG: hosts would take 0, one block, for the best size */
	d[N_NMIC] = 1;              /* shared by several controllers */
	/* all types, IEKEY as in Base 1.3, and what targets share persists */
	d[N_RESCAP] = b->readonly ? 0 : 0xfe | (b->reservations ? 1 : 0);
	d[N_DLFEAT] = (b->zeros_after_discard ? 1 : 0) | 1u << 3;
	if (b->boundary >> ns->block_shift <= UINT16_MAX)
		nv_put16(d + N_NOIOB, (uint16_t)(b->boundary >> ns->block_shift));
	nv_put32(d + N_ANAGRPID, nt_ana_group(ns));
	d[N_NSATTR] = b->readonly;
	memcpy(d + N_NGUID, ns->nguid, 16);
	d[N_LBAF0 + 2] = ns->block_shift;
}

static void list_ns(const struct nt_subsystem *s, uint32_t after, uint8_t *d)
{
	uint32_t n = 0;

	for (uint32_t i = after + 1; i && i <= NT_NAMESPACES_MAX && n < 1024; i++)
		if (s->ns[i])
			nv_put32(d + 4 * n++, i);
}

/* In the order of ids, starting at from. */
static void list_controllers(const struct nt_subsystem *s, uint16_t from, uint8_t *d)
{
	uint64_t there[65536 / 64] = {0};
	uint32_t n = 0;

	for (const struct nt_controller *c = s->controllers; c; c = c->next)
		if (!c->dying)
			there[c->id / 64] |= (uint64_t)1 << (c->id % 64);
	for (uint32_t id = from; id < 65536 && n < 2047; id++)
		if (there[id / 64] & (uint64_t)1 << (id % 64))
			nv_put16(d + 2 * ++n, (uint16_t)id);
		else if (!(there[id / 64] >> (id % 64)))
			id |= 63; /* and skip the rest of this word */
	nv_put16(d, (uint16_t)n);
}

static void put_descriptor(uint8_t **at, uint8_t type, const uint8_t *bytes, uint8_t len)
{
	(*at)[0] = type;
	(*at)[1] = len;
	memcpy(*at + 4, bytes, len);
	*at += 4 + len;
}

static void describe_ns(const struct nt_namespace *ns, uint8_t *d)
{
	static const uint8_t nvm = 0;

	put_descriptor(&d, 3, ns->uuid, 16);
	put_descriptor(&d, 2, ns->nguid, 16);
	put_descriptor(&d, 4, &nvm, 1);
}

/* Handles the values of CNS that need an existing namespace. Returns 0, or the status for a missing one. In 1.4 an
 * inactive namespace reads as zeros. */
static uint16_t identify_one(struct nt_request *r, uint8_t cns, const struct nt_namespace *ns)
{
	uint32_t nsid = r->sqe.nsid;

	if (!nsid || nsid > NT_NAMESPACES_MAX)
		return NV_INVALID_NS | NV_DNR;
	if (!ns)
		return cns == NV_CNS_NS || cns == NV_CNS_ALLOCATED_NS ? 0 : NV_INVALID_NS | NV_DNR;
	if (cns == NV_CNS_NS_DESC)
		describe_ns(ns, r->data);
	else if (cns == NV_CNS_NS_CTRLS)
		list_controllers(ns->subsystem, (uint16_t)(r->sqe.cdw[0] >> 16), r->data);
	else if (cns != NV_CNS_CSI_NS) /* NVM: no fields beyond the old structure */
		identify_ns(ns, r->data);
	return 0;
}

uint16_t nt_identify_check(struct nt_request *r)
{
	r->length = LENGTH;
	return 0;
}

static uint16_t run_identify(struct nt_request *r)
{
	const struct nt_subsystem *s = r->queue->ctrl->subsystem;
	uint8_t cns = (uint8_t)r->sqe.cdw[0], csi = (uint8_t)(r->sqe.cdw[1] >> 24);

	if (s->discovery && cns != NV_CNS_CTRL)
		return NT_INVALID(r, NV_SQE_AT_CDW10);
	switch (cns) {
	case NV_CNS_CTRL:
		identify_controller(r, r->data);
		return 0;
	case NV_CNS_CSI_ACTIVE:
	case NV_CNS_ACTIVE:
	case NV_CNS_ALLOCATED:
		if (cns == NV_CNS_CSI_ACTIVE && csi)
			return NT_INVALID(r, NV_SQE_AT_CDW11 + 3);
		if (r->sqe.nsid >= 0xfffffffe)
			return NV_INVALID_NS | NV_DNR;
		list_ns(s, r->sqe.nsid, r->data);
		return 0;
	case NV_CNS_CSI_CTRL: /* NVM: no limits beyond MDTS */
		return csi ? NT_INVALID(r, NV_SQE_AT_CDW11 + 3) : 0;
	case NV_CNS_CTRLS:
		list_controllers(s, (uint16_t)(r->sqe.cdw[0] >> 16), r->data);
		return 0;
	case NV_CNS_CSI_NS:
		if (csi)
			return NT_INVALID(r, NV_SQE_AT_CDW11 + 3);
		/* fallthrough */
	case NV_CNS_NS:
	case NV_CNS_NS_DESC:
	case NV_CNS_ALLOCATED_NS:
	case NV_CNS_NS_CTRLS:
		return identify_one(r, cns, r->sqe.nsid <= NT_NAMESPACES_MAX ? s->ns[r->sqe.nsid] : NULL);
	default:
		return NT_INVALID(r, NV_SQE_AT_CDW10);
	}
}

void nt_identify(struct nt_request *r)
{
	nt_complete(r, run_identify(r));
}
