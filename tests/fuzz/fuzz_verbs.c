// fuzz_verbs.c - any bytes as a script of calls: every verb, with objects that exist and values of any kind
// follows: the ibv_* man pages. Pointers are valid, because a kernel's adapter needs that, too
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "adapter.h"

/* --- the script --- */

static const uint8_t *at;
static size_t left;

static uint64_t word(unsigned bytes)
{
	uint64_t w = 0;

	for (; bytes && left; bytes--, left--)
		w = w << 8 | *at++;
	return w;
}

static uint8_t byte(void)
{
	return (uint8_t)word(1);
}

/* Mostly small, sometimes anything. */
static uint64_t value(void)
{
	uint8_t b = byte();

	return b < 200 ? b : b < 230 ? word(2) : b < 245 ? 1ull << (byte() & 63) : word(8);
}

/* A struct of any bytes. */
static void any_bytes(void *p, size_t n)
{
	memset(p, 0, n);
	for (size_t i = 0; i < n && left && byte() < 250; i++)
		((uint8_t *)p)[word(1) % n] = byte();
}

/* --- the objects --- */

enum { ROOM = 8, MEMORY = 1 << 16 };
#define TABLE(type, name) static type *name[ROOM]
static struct ibv_context *ctx;
static uint8_t *memory;
TABLE(struct ibv_pd, pds);
TABLE(struct ibv_td, tds);
TABLE(struct ibv_mr, mrs);
TABLE(struct ibv_comp_channel, channels);
TABLE(struct ibv_cq, cqs);
TABLE(struct ibv_srq, srqs);
TABLE(struct ibv_ah, ahs);
TABLE(struct ibv_qp, qps);
TABLE(struct ibv_wq, wqs);
TABLE(struct ibv_rwq_ind_table, tables);
static bool extended[ROOM]; /* the CQ of that index */
static union ibv_gid own_gid;
static uint8_t own_index;
static const union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 1}};

#define SOME(table) (table[byte() % ROOM])
/* A new object takes the next free entry of its table; if there is none, it is destroyed again. */
#define KEEP(table, object, destroy)           \
	do {                                   \
		void *made_ = (object);        \
		int i_ = 0;                    \
		while (i_ < ROOM && table[i_]) \
			i_++;                  \
		if (made_ && i_ < ROOM)        \
			table[i_] = made_;     \
		else if (made_)                \
			destroy(made_);        \
	} while (0)
#define DROP(table, destroy)                          \
	do {                                          \
		unsigned i_ = byte() % ROOM;          \
		if (table[i_] && !destroy(table[i_])) \
			table[i_] = NULL;             \
	} while (0)

/* --- making --- */

static void make_domain(void)
{
	struct ibv_td_init_attr td = {.comp_mask = byte() < 200 ? 0 : (uint32_t)value()};
	struct ibv_parent_domain_init_attr parent = {
	        .pd = SOME(pds), .td = SOME(tds), .comp_mask = byte() < 200 ? 0 : (uint32_t)value()};

	switch (byte() % 4) {
	case 0:
		KEEP(tds, ibv_alloc_td(ctx, &td), ibv_dealloc_td);
		break;
	case 1:
		/* allocators of the program would be called */
		parent.comp_mask &= ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
		KEEP(pds, ibv_alloc_parent_domain(ctx, &parent), ibv_dealloc_pd);
		break;
	default:
		KEEP(pds, ibv_alloc_pd(ctx), ibv_dealloc_pd);
	}
}

/* In our memory, or where no program has memory: data must not be written over this program. */
static void make_region(void)
{
	struct ibv_pd *pd = SOME(pds);
	size_t offset = word(2) % MEMORY, length = value() % (MEMORY - offset + 1);
	int access = (int)(byte() < 200 ? byte() & 0x1f : value());

	if (!pd)
		return;
	switch (byte() % 4) {
	case 0:
		KEEP(mrs, ibv_reg_mr(pd, (void *)(uintptr_t)(value() | 1ull << 63), value(), access), ibv_dereg_mr);
		break;
	case 1:
		KEEP(mrs, ibv_reg_mr_iova2(pd, memory + offset, length, value(), (unsigned)access), ibv_dereg_mr);
		break;
	default:
		KEEP(mrs, ibv_reg_mr(pd, memory + offset, length, access), ibv_dereg_mr);
	}
}

static void make_cq(void)
{
	struct ibv_cq_init_attr_ex attr = {
	        .cqe = (uint32_t)value(),
	        .channel = byte() & 1 ? SOME(channels) : NULL,
	        .comp_vector = byte() < 200 ? 0 : (uint32_t)value(),
	        .wc_flags = value() | (byte() & 1 ? IBV_WC_STANDARD_FLAGS : 0),
	        .comp_mask = byte() < 128 ? 0 : (uint32_t)value(),
	        .flags = (uint32_t)value(),
	        .parent_domain = SOME(pds),
	};
	unsigned i = 0;

	while (i < ROOM && cqs[i])
		i++;
	if (i == ROOM || attr.cqe > 1 << 16)
		return;
	extended[i] = byte() & 1;
	cqs[i] = extended[i] ? (struct ibv_cq *)ibv_create_cq_ex(ctx, &attr)
	                     : ibv_create_cq(ctx, (int)attr.cqe, &cqs[i], attr.channel, (int)attr.comp_vector);
}

static void make_channel(void)
{
	struct ibv_comp_channel *c = ibv_create_comp_channel(ctx);

	if (c)
		fcntl(c->fd, F_SETFL, O_NONBLOCK);
	KEEP(channels, c, ibv_destroy_comp_channel);
}

static void make_srq(void)
{
	struct ibv_srq_init_attr_ex attr = {.attr = {(uint32_t)value(), (uint32_t)value(), (uint32_t)value()},
	                                    .comp_mask = IBV_SRQ_INIT_ATTR_PD | (byte() < 200 ? 0 : (uint32_t)value()),
	                                    .srq_type = (enum ibv_srq_type)(byte() < 200 ? 0 : value()),
	                                    .pd = SOME(pds),
	                                    .cq = SOME(cqs)};
	struct ibv_srq_init_attr basic = {.attr = attr.attr};

	if (attr.pd && byte() & 1)
		KEEP(srqs, ibv_create_srq(attr.pd, &basic), ibv_destroy_srq);
	else
		KEEP(srqs, ibv_create_srq_ex(ctx, &attr), ibv_destroy_srq);
}

static void any_address(struct ibv_ah_attr *a)
{
	*a = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = own_gid, .sgid_index = own_index}};
	if (byte() >= 200)
		any_bytes(a, sizeof(*a));
}

static void make_ah(void)
{
	struct ibv_pd *pd = SOME(pds);
	struct ibv_ah_attr attr;

	any_address(&attr);
	if (pd)
		KEEP(ahs, ibv_create_ah(pd, &attr), ibv_destroy_ah);
}

static void make_ah_from_wc(void)
{
	struct ibv_pd *pd = SOME(pds);
	struct ibv_grh grh;
	struct ibv_wc wc;

	any_bytes(&grh, sizeof(grh));
	any_bytes(&wc, sizeof(wc));
	if (pd)
		KEEP(ahs, ibv_create_ah_from_wc(pd, &wc, &grh, (uint8_t)value()), ibv_destroy_ah);
}

static void make_qp(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	uint8_t kind = byte();
	struct ibv_qp_init_attr_ex attr = {
	        .send_cq = SOME(cqs),
	        .recv_cq = SOME(cqs),
	        .srq = byte() & 1 ? SOME(srqs) : NULL,
	        .cap = {(uint32_t)value(), (uint32_t)value(), (uint32_t)value(), (uint32_t)value(), (uint32_t)value()},
	        .qp_type = kind < 230 ? types[kind % 4] : (enum ibv_qp_type)value(),
	        .sq_sig_all = byte() & 1,
	        .comp_mask = IBV_QP_INIT_ATTR_PD | (byte() < 128 ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0) |
	                     (byte() < 230 ? 0 : (uint32_t)value()),
	        .pd = SOME(pds),
	        .create_flags = (uint32_t)value(),
	        .send_ops_flags = value(),
	};

	KEEP(qps, ibv_create_qp_ex(ctx, &attr), ibv_destroy_qp);
}

static void make_wq(void)
{
	struct ibv_wq_init_attr attr = {.wq_type = byte() < 240 ? IBV_WQT_RQ : (enum ibv_wq_type)value(),
	                                .max_wr = byte() < 200 ? 8 : (uint32_t)value(),
	                                .max_sge = byte() < 200 ? 4 : (uint32_t)value(),
	                                .pd = SOME(pds),
	                                .cq = SOME(cqs),
	                                .comp_mask = byte() < 230 ? 0 : (uint32_t)value(),
	                                .create_flags = (uint32_t)value()};

	KEEP(wqs, ibv_create_wq(ctx, &attr), ibv_destroy_wq);
}

static void make_table(void)
{
	struct ibv_wq *entries[4] = {SOME(wqs), SOME(wqs), SOME(wqs), SOME(wqs)};
	struct ibv_rwq_ind_table_init_attr attr = {
	        .log_ind_tbl_size = byte() % 3, .ind_tbl = entries, .comp_mask = byte() < 230 ? 0 : (uint32_t)value()};

	KEEP(tables, ibv_create_rwq_ind_table(ctx, &attr), ibv_destroy_rwq_ind_table);
}

/* With room for the headers of segments. */
static void make_segmenter(void)
{
	struct ibv_qp_init_attr_ex attr = {.qp_type = byte() < 230 ? IBV_QPT_RAW_PACKET : (enum ibv_qp_type)value(),
	                                   .send_cq = SOME(cqs),
	                                   .recv_cq = SOME(cqs),
	                                   .cap = {.max_send_wr = byte(), .max_send_sge = 2},
	                                   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
	                                                IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                   .pd = SOME(pds),
	                                   .max_tso_header = (uint16_t)value(),
	                                   .send_ops_flags = IBV_QP_EX_WITH_TSO};

	KEEP(qps, ibv_create_qp_ex(ctx, &attr), ibv_destroy_qp);
}

/* With a table. Without the right to packet sockets there is none. */
static void make_distributor(void)
{
	static uint8_t key[40];
	struct ibv_qp_init_attr_ex attr = {.qp_type = byte() < 230 ? IBV_QPT_RAW_PACKET : (enum ibv_qp_type)value(),
	                                   .cap = {.max_send_wr = byte() < 230 ? 0 : (uint32_t)value()},
	                                   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
	                                                IBV_QP_INIT_ATTR_RX_HASH,
	                                   .pd = SOME(pds),
	                                   .rwq_ind_tbl = SOME(tables),
	                                   .rx_hash_conf = {byte() < 230 ? 1 : byte(), byte() < 230 ? 40 : byte(), key,
	                                                    byte() < 128 ? 3 : value()}};

	KEEP(qps, ibv_create_qp_ex(ctx, &attr), ibv_destroy_qp);
}

static void destroy_some(void)
{
	switch (byte() % 8) {
	case 0:
		DROP(pds, ibv_dealloc_pd);
		break;
	case 1:
		DROP(tds, ibv_dealloc_td);
		break;
	case 2:
		DROP(mrs, ibv_dereg_mr);
		break;
	case 3:
		DROP(channels, ibv_destroy_comp_channel);
		break;
	case 4:
		DROP(cqs, ibv_destroy_cq);
		break;
	case 5:
		DROP(srqs, ibv_destroy_srq);
		break;
	case 6: /* a request in the queue may name it, so only after the queue pairs */
		for (int i = 0; i < ROOM; i++)
			if (qps[i])
				return;
		DROP(ahs, ibv_destroy_ah);
		break;
	default:
		DROP(qps, ibv_destroy_qp);
	}
}

/* --- changing --- */

static void modify_qp(void)
{
	struct ibv_qp *qp = SOME(qps);
	struct ibv_qp_attr attr = {.port_num = 1, .path_mtu = IBV_MTU_256, .path_mig_state = IBV_MIG_MIGRATED};
	int mask = (int)word(3);

	any_bytes(&attr, sizeof(attr));
	attr.qp_state = (enum ibv_qp_state)(byte() < 230 ? byte() % 7 : value());
	any_address(&attr.ah_attr);
	if (qp)
		ibv_modify_qp(qp, &attr, mask | (byte() & 1));
}

/* To RTS, or as far as it goes. */
static void connect_qps(void)
{
	struct ibv_qp *qp = SOME(qps), *peer = SOME(qps);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
	                           .port_num = 1,
	                           .qkey = 5,
	                           .qp_access_flags = byte() & 15,
	                           .path_mtu = (enum ibv_mtu)(1 + byte() % 3),
	                           .max_rd_atomic = byte() % 17,
	                           .max_dest_rd_atomic = byte() % 17,
	                           .min_rnr_timer = 1,
	                           .timeout = byte() % 10,
	                           .retry_cnt = byte() & 7,
	                           .rnr_retry = byte() & 3};

	if (!qp || !peer)
		return;
	bool ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;

	attr.dest_qp_num = peer->qp_num;
	attr.ah_attr = (struct ibv_ah_attr){
	        .is_global = 1, .port_num = 1, .grh = {.dgid = own_gid, .sgid_index = own_index, .hop_limit = 1}};
	ibv_modify_qp(qp, &attr,
	              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &attr,
	              IBV_QP_STATE | (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
	                      (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	attr.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(
	        qp, &attr,
	        IBV_QP_STATE | IBV_QP_SQ_PSN |
	                (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

static void change_queue(void)
{
	struct ibv_cq *cq = SOME(cqs);
	struct ibv_srq *srq = SOME(srqs);
	struct ibv_srq_attr attr = {(uint32_t)value(), (uint32_t)value(), (uint32_t)value()};
	struct ibv_modify_cq_attr moderate = {(uint32_t)value(), {(uint16_t)value(), (uint16_t)value()}};
	int size = (int)value();

	switch (byte() % 4) {
	case 0:
		if (cq && size < 1 << 16)
			ibv_resize_cq(cq, size);
		break;
	case 1:
		if (cq)
			ibv_modify_cq(cq, &moderate);
		break;
	case 2:
		if (srq)
			ibv_modify_srq(srq, &attr, (int)value());
		break;
	default:
		if (srq)
			ibv_query_srq(srq, &attr);
	}
}

static void change_region(void)
{
	struct ibv_mr *mr = SOME(mrs);
	size_t offset = word(2) % MEMORY;

	if (mr)
		ibv_rereg_mr(mr, (int)value(), SOME(pds), memory + offset, value() % (MEMORY - offset + 1),
		             (int)value());
}

static void change_group(void)
{
	struct ibv_qp *qp = SOME(qps);
	union ibv_gid gid = group;

	if (byte() > 200)
		any_bytes(&gid, sizeof(gid));
	if (gid.raw[0] == 0xff || (gid.raw[10] == 0xff && gid.raw[12] >= 224))
		gid = group; /* destroy_all detaches from no other */
	if (qp && byte() & 1)
		ibv_attach_mcast(qp, &gid, (uint16_t)value());
	else if (qp)
		ibv_detach_mcast(qp, &gid, (uint16_t)value());
}

/* --- asking --- */

static void ask(void)
{
	struct ibv_qp *qp = SOME(qps);
	struct ibv_cq *cq = SOME(cqs);
	union {
		struct ibv_device_attr device;
		struct ibv_port_attr port;
		struct ibv_qp_attr qp;
		union ibv_gid gid;
		struct ibv_gid_entry entry;
		struct ibv_ece ece;
		__be16 pkey;
	} out;
	struct ibv_qp_init_attr init;

	switch (byte() % 10) {
	case 0:
		ibv_query_device(ctx, &out.device);
		break;
	case 1:
		ibv_query_port(ctx, (uint8_t)value(), &out.port);
		break;
	case 2:
		ibv_query_gid(ctx, (uint8_t)value(), (int)value(), &out.gid);
		break;
	case 3:
		ibv_query_gid_ex(ctx, (uint32_t)value(), (uint32_t)value(), &out.entry, (uint32_t)value());
		break;
	case 4:
		ibv_query_pkey(ctx, (uint8_t)value(), (int)value(), &out.pkey);
		break;
	case 5:
		ibv_get_pkey_index(ctx, (uint8_t)value(), (__be16)value());
		break;
	case 6:
		if (qp)
			ibv_query_qp(qp, &out.qp, (int)value(), &init);
		break;
	case 7:
		if (qp)
			ibv_query_ece(qp, &out.ece);
		break;
	case 8:
		if (cq)
			ibv_req_notify_cq(cq, (int)value());
		break;
	default:
		ibv_wc_status_str((enum ibv_wc_status)value());
		ibv_event_type_str((enum ibv_event_type)value());
		ibv_node_type_str((enum ibv_node_type)value());
		ibv_port_state_str((enum ibv_port_state)value());
		(void)ibv_rate_to_mult((enum ibv_rate)value());
		(void)ibv_rate_to_mbps((enum ibv_rate)value());
		(void)mult_to_ibv_rate((int)value());
		(void)mbps_to_ibv_rate((int)value());
	}
}

/* --- posting --- */

static struct ibv_sge any_piece(bool valid)
{
	struct ibv_mr *mr = SOME(mrs);
	struct ibv_sge sge = {(uintptr_t)memory + word(2) % (MEMORY / 2), (uint32_t)value() % 4096, mr ? mr->lkey : 0};

	if (!valid && byte() >= 220)
		sge = (struct ibv_sge){value(), (uint32_t)value(), mr ? mr->lkey : (uint32_t)value()};
	return sge;
}

static uint32_t any_key(void)
{
	const struct ibv_mr *mr = SOME(mrs);

	return mr && byte() < 230 ? mr->rkey : (uint32_t)word(4);
}

static struct ibv_send_wr any_send(struct ibv_sge *sge, struct ibv_send_wr *next)
{
	unsigned flags = byte() < 230 ? byte() & 31 : (unsigned)value();
	struct ibv_qp *to = SOME(qps);
	struct ibv_send_wr wr = {.wr_id = at ? left : 0,
	                         .next = next,
	                         .sg_list = sge,
	                         .num_sge = byte() < 240 ? byte() % 5 : -1,
	                         .opcode = (enum ibv_wr_opcode)(byte() < 240 ? byte() % 12 : value()),
	                         .send_flags = flags,
	                         .imm_data = any_key()};

	for (int i = 0; i < 4; i++)
		sge[i] = any_piece(flags & IBV_SEND_INLINE);
	if (to && to->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = SOME(ahs);
		wr.wr.ud.remote_qpn = byte() < 230 ? to->qp_num : (uint32_t)word(4);
		wr.wr.ud.remote_qkey = byte() < 230 ? 5 : (uint32_t)word(4);
	} else {
		wr.wr.atomic.remote_addr = byte() < 230 ? (uintptr_t)memory + word(2) : word(8);
		wr.wr.atomic.rkey = any_key();
		wr.wr.atomic.compare_add = value();
	}
	return wr;
}

/* The address handle of a UD request must be one: the others' addresses would be read as a pointer. */
static void post_send(void)
{
	struct ibv_sge sge[2][4];
	struct ibv_send_wr second = any_send(sge[1], NULL), first = any_send(sge[0], byte() & 1 ? &second : NULL), *bad;
	struct ibv_qp *qp = SOME(qps);

	for (struct ibv_send_wr *wr = &first; qp && qp->qp_type == IBV_QPT_UD && wr; wr = wr->next)
		wr->wr.ud.ah = SOME(ahs);
	if (qp)
		ibv_post_send(qp, &first, &bad);
}

static void post_receive(void)
{
	struct ibv_sge sge[4] = {any_piece(false), any_piece(false), any_piece(false), any_piece(false)};
	struct ibv_recv_wr second = {.sg_list = sge, .num_sge = byte() < 240 ? byte() % 5 : -1};
	struct ibv_recv_wr first = {.next = byte() & 1 ? &second : NULL, .sg_list = sge, .num_sge = byte() % 5}, *bad;
	struct ibv_qp *qp = SOME(qps);
	struct ibv_srq *srq = SOME(srqs);

	if (srq && byte() & 1)
		ibv_post_srq_recv(srq, &first, &bad);
	else if (qp)
		ibv_post_recv(qp, &first, &bad);
}

static void change_work_queue(void)
{
	struct ibv_sge sge[4] = {any_piece(false), any_piece(false), any_piece(false), any_piece(false)};
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = byte() < 240 ? byte() % 6 : -1}, *bad;
	struct ibv_wq *wq = SOME(wqs);
	struct ibv_wq_attr attr = {.attr_mask = byte() < 200 ? IBV_WQ_ATTR_STATE : (uint32_t)value(),
	                           .wq_state = (enum ibv_wq_state)(byte() < 230 ? byte() % 3 : value()),
	                           .curr_wq_state = (enum ibv_wq_state)(byte() % 4),
	                           .flags_mask = (uint32_t)value()};

	switch (byte() % 8) {
	case 0:
		make_wq();
		break;
	case 1:
		make_table();
		break;
	case 2:
		if (byte() & 1)
			make_segmenter();
		else
			make_distributor();
		break;
	case 3:
		DROP(wqs, ibv_destroy_wq);
		break;
	case 4:
		DROP(tables, ibv_destroy_rwq_ind_table);
		break;
	case 5:
		if (wq)
			ibv_modify_wq(wq, &attr);
		break;
	default:
		if (wq)
			ibv_post_wq_recv(wq, &wr, &bad);
	}
}

static void build_one(struct ibv_qp_ex *x)
{
	struct ibv_sge sge[40];
	struct ibv_data_buf bufs[2] = {{memory, value() % MEMORY}, {memory, value() % MEMORY}};

	for (int i = 0; i < 40; i++)
		sge[i] = i < 4 ? any_piece(false) : (struct ibv_sge){0};
	x->wr_id = left;
	x->wr_flags = (unsigned)value() & 31;
	switch (byte() % 16) {
	case 0:
		ibv_wr_send(x);
		break;
	case 1:
		ibv_wr_send_imm(x, (__be32)value());
		break;
	case 2:
		ibv_wr_send_inv(x, any_key());
		break;
	case 3:
		ibv_wr_rdma_write(x, any_key(), (uintptr_t)memory + word(2));
		break;
	case 4:
		ibv_wr_rdma_write_imm(x, any_key(), (uintptr_t)memory + word(2), (__be32)value());
		break;
	case 5:
		ibv_wr_rdma_read(x, any_key(), (uintptr_t)memory + word(2));
		break;
	case 6:
		ibv_wr_atomic_fetch_add(x, any_key(), (uintptr_t)memory + word(2), value());
		break;
	case 7:
		ibv_wr_atomic_cmp_swp(x, any_key(), value(), value(), value());
		break;
	case 8:
		ibv_wr_local_inv(x, any_key());
		break;
	case 9:
		ibv_wr_send_tso(x, memory, (uint16_t)value(), (uint16_t)value());
		break;
	case 10:
		ibv_wr_set_ud_addr(x, SOME(ahs), (uint32_t)value(), (uint32_t)value());
		break;
	case 11:
		ibv_wr_set_xrc_srqn(x, (uint32_t)value());
		break;
	case 12:
		ibv_wr_set_inline_data(x, memory, value() % MEMORY);
		break;
	case 13:
		ibv_wr_set_inline_data_list(x, 2, bufs);
		break;
	case 14:
		ibv_wr_set_sge_list(x, byte() % 41, sge);
		break;
	default:
		ibv_wr_set_sge(x, any_key(), sge->addr, sge->length);
	}
}

static void build_some(void)
{
	struct ibv_qp *qp = SOME(qps);
	struct ibv_qp_ex *x = qp ? ibv_qp_to_qp_ex(qp) : NULL;

	if (!x)
		return;
	ibv_wr_start(x);
	for (unsigned n = byte() % 8; n; n--)
		build_one(x);
	if (byte() < 200)
		ibv_wr_complete(x);
	else
		ibv_wr_abort(x);
}

/* --- completions and events --- */

static void poll_extended(struct ibv_cq_ex *ex)
{
	struct ibv_poll_cq_attr attr = {.comp_mask = byte() < 240 ? 0 : (uint32_t)value()};

	if (ibv_start_poll(ex, &attr))
		return;
	for (unsigned n = byte() % 8; n; n--) {
		ibv_wc_read_opcode(ex);
		ibv_wc_read_byte_len(ex);
		ibv_wc_read_wc_flags(ex);
		ibv_wc_read_vendor_err(ex);
		if (ibv_next_poll(ex))
			break;
	}
	ibv_end_poll(ex);
}

static void poll_some(void)
{
	unsigned i = byte() % ROOM;
	struct ibv_wc wc[16];

	if (cqs[i] && extended[i] && byte() & 1)
		poll_extended((struct ibv_cq_ex *)cqs[i]);
	else if (cqs[i])
		ibv_poll_cq(cqs[i], byte() < 240 ? byte() % 17 : -(int)byte(), wc);
}

static void take_events(void)
{
	struct ibv_comp_channel *channel = SOME(channels);
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	if (channel && !ibv_get_cq_event(channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	if (!ibv_get_async_event(ctx, &event))
		ibv_ack_async_event(&event);
}

/* --- all of them --- */

/* A usual start, so that not each script has to find it. */
static void usual_objects(void)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {16, 16, 4, 4, 64}};

	pds[0] = ibv_alloc_pd(ctx);
	cqs[0] = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	extended[0] = false;
	mrs[0] = ibv_reg_mr(pds[0], memory, MEMORY, 15);
	attr.send_cq = attr.recv_cq = cqs[0];
	qps[0] = ibv_create_qp(pds[0], &attr);
	qps[1] = ibv_create_qp(pds[0], &attr);
	assert(pds[0] && cqs[0] && mrs[0] && qps[0] && qps[1]);
}

#define DROP_ALL(table, destroy)                                      \
	for (int i = 0; i < ROOM; i++)                                \
		if (table[i]) {                                       \
			int err = destroy(table[i]);                  \
			assert(!err || (void *)table == (void *)pds); \
			table[i] = err ? table[i] : NULL;             \
		}

static void destroy_all(void)
{
	for (int i = 0; i < ROOM; i++)
		while (qps[i] && !ibv_detach_mcast(qps[i], &group, 0))
			;
	DROP_ALL(qps, ibv_destroy_qp)
	DROP_ALL(ahs, ibv_destroy_ah)
	DROP_ALL(tables, ibv_destroy_rwq_ind_table)
	DROP_ALL(wqs, ibv_destroy_wq)
	DROP_ALL(srqs, ibv_destroy_srq)
	DROP_ALL(cqs, ibv_destroy_cq)
	DROP_ALL(channels, ibv_destroy_comp_channel)
	DROP_ALL(mrs, ibv_dereg_mr)
	for (int round = 0; round < ROOM; round++) /* parent domains first */
		DROP_ALL(pds, ibv_dealloc_pd)
	for (int i = 0; i < ROOM; i++)
		assert(!pds[i]);
	DROP_ALL(tds, ibv_dealloc_td)
}

static void (*const steps[])(void) = {
        make_domain,     make_region,  make_cq,      make_channel, make_srq,    make_ah,
        make_ah_from_wc, make_qp,      destroy_some, modify_qp,    connect_qps, change_queue,
        change_region,   change_group, ask,          post_send,    post_send,   post_receive,
        build_some,      poll_some,    poll_some,    take_events,  connect_qps, change_work_queue,
};

static void find_address(void)
{
	struct ibv_gid_entry entries[128];
	ssize_t n = ibv_query_gid_table(ctx, entries, 128, 0);

	for (ssize_t i = 0; i < n; i++)
		if (entries[i].gid.raw[10] == 0xff && entries[i].gid.raw[12] == 127) {
			own_gid = entries[i].gid;
			own_index = (uint8_t)entries[i].gid_index;
		}
}

static void open_adapter(void)
{
	ctx = open_on_lo();
	find_address();
	memory = mmap(NULL, 2 * MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert(memory != MAP_FAILED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!ctx)
		open_adapter();
	at = data;
	left = size;
	usual_objects();
	while (left)
		steps[byte() % (sizeof(steps) / sizeof(*steps))]();
	destroy_all();
	return 0;
}
