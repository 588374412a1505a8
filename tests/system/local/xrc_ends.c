// xrc_ends.c - the two ends of an XRC connection: the initiator, and what a process does that has an SRQ
// follows: IBA volume 1, annexes A14 (XRC), A19 (FLUSH), A20; ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_create_qp_ex(3)
// SPDX-License-Identifier: MIT
#include "xrc_ends.h"

#include <fcntl.h>

#define PSN 0xfffffeu /* wraps around */

/* The headers of 44.0 do not have these. */
enum { WC_FLUSH = 8, WITH_FLUSH = 1 << 11, ACCESS_FLUSH_GLOBAL = 1 << 8, GLOBAL = 1, RANGE = 0 };

struct later_qp_ex {
	struct ibv_qp_ex ex;
	void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len, uint8_t type,
	                 uint8_t level);
};

/* --- domains and SRQs --- */

int xrc_domain_try(struct ibv_context *ctx, int fd, int oflags, struct ibv_xrcd **x)
{
	struct ibv_xrcd_init_attr a = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};

	errno = 0;
	*x = ibv_open_xrcd(ctx, &a);
	return *x ? 0 : errno;
}

struct ibv_xrcd *xrc_domain(struct ibv_context *ctx, int fd)
{
	struct ibv_xrcd *x;

	SAME(xrc_domain_try(ctx, fd, O_CREAT, &x), 0);
	return x;
}

struct ibv_srq *xrc_srq_make(struct ibv_pd *pd, struct ibv_xrcd *x, struct ibv_cq *cq, uint32_t *number)
{
	struct ibv_srq_init_attr_ex a = {.attr = {256, 2, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                 .srq_type = IBV_SRQT_XRC,
	                                 .pd = pd,
	                                 .xrcd = x,
	                                 .cq = cq};
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &a);

	CHECK(srq && !ibv_get_srq_num(srq, number));
	return srq;
}

void xrc_taker_open(struct xrc_taker *t, struct dev *d, struct ibv_xrcd *x, struct xrc_srq *to)
{
	struct dev of = *d;

	*t = (struct xrc_taker){0};
	CHECK((t->pd = of.pd = ibv_alloc_pd(d->ctx)) && (t->cq = ibv_create_cq(d->ctx, 512, NULL, NULL, 0)));
	t->srq = xrc_srq_make(t->pd, x, t->cq, &to->number);
	mem_make(&t->m, &of, XRC_SIZE);
	to->far = (struct far){(uintptr_t)t->m.p, t->m.mr->rkey, 0};
}

void xrc_taker_close(struct xrc_taker *t)
{
	SAME(ibv_destroy_srq(t->srq), 0);
	SAME(ibv_destroy_cq(t->cq), 0);
	mem_end(&t->m);
	SAME(ibv_dealloc_pd(t->pd), 0);
}

void xrc_post_receive(struct xrc_taker *t, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)t->m.p, XRC_SIZE, t->m.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	SAME(ibv_post_srq_recv(t->srq, &wr, &bad), 0);
}

struct ibv_wc xrc_arrived(struct xrc_taker *t, uint64_t id, uint32_t len)
{
	struct ibv_wc wc = expect(t->cq, id, IBV_WC_SUCCESS);

	SAME(wc.qp_num, t->target); /* also where the target is another process's */
	SAME(wc.src_qp, t->initiator);
	SAME(wc.byte_len, len);
	return wc;
}

/* --- queue pairs --- */

static void initialise(struct ibv_qp *qp, unsigned access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	SAME(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

static void to_rtr(struct ibv_qp *qp, const struct dev *d, const union ibv_gid *gid, uint32_t qpn, int more)
{
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = qpn,
	        .rq_psn = PSN,
	        .max_dest_rd_atomic = 16,
	        .min_rnr_timer = 1,
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .grh = {.dgid = *gid, .sgid_index = (uint8_t)d->gid_index, .hop_limit = 64}}};

	SAME(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | more),
	     0);
}

struct ibv_qp *xrc_target_make(struct ibv_context *ctx, struct ibv_xrcd *x)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = x};
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &a);

	CHECK(qp);
	initialise(qp,
	           IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | ACCESS_FLUSH_GLOBAL);
	return qp;
}

void xrc_target_connect(struct ibv_qp *qp, const struct dev *d, uint32_t initiator)
{
	to_rtr(qp, d, &d->gid, initiator, IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

void xrc_initiator_open(struct xrc_initiator *i)
{
	struct ibv_qp_init_attr_ex a = {.qp_type = IBV_QPT_XRC_SEND,
	                                .cap = {.max_send_wr = 128, .max_send_sge = 1},
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                .send_ops_flags = WITH_FLUSH};

	i->id = 0;
	dev_open(&i->d);
	mem_make(&i->m, &i->d, XRC_SIZE);
	CHECK((i->cq = ibv_create_cq(i->d.ctx, 512, NULL, NULL, 0)));
	a.send_cq = i->cq;
	a.pd = i->d.pd;
	CHECK((i->qp = ibv_create_qp_ex(i->d.ctx, &a)));
	initialise(i->qp, 0);
}

void xrc_initiator_connect(struct xrc_initiator *i, const union ibv_gid *gid, uint32_t target,
                           const struct ibv_qp_attr *retries)
{
	struct ibv_qp_attr a = *retries;

	to_rtr(i->qp, &i->d, gid, target, 0);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = PSN;
	a.max_rd_atomic = 16;
	SAME(ibv_modify_qp(i->qp, &a,
	                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                           IBV_QP_MAX_QP_RD_ATOMIC),
	     0);
}

void xrc_initiator_close(struct xrc_initiator *i)
{
	SAME(ibv_destroy_qp(i->qp), 0);
	SAME(ibv_destroy_cq(i->cq), 0);
	mem_end(&i->m);
	dev_close(&i->d);
}

uint64_t xrc_request(struct xrc_initiator *i, uint32_t len, struct ibv_send_wr *wr)
{
	struct ibv_sge sge = {(uintptr_t)i->m.p, len, i->m.mr->lkey};
	struct ibv_send_wr *bad;

	wr->wr_id = ++i->id;
	wr->sg_list = &sge;
	wr->num_sge = len ? 1 : 0;
	wr->send_flags |= IBV_SEND_SIGNALED;
	SAME(ibv_post_send(i->qp, wr, &bad), 0);
	return wr->wr_id;
}

uint64_t xrc_flush(struct xrc_initiator *i, const struct xrc_srq *to, uint32_t rkey, size_t len)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(i->qp);

	ibv_wr_start(x);
	x->wr_id = ++i->id;
	x->wr_flags = IBV_SEND_SIGNALED;
	((struct later_qp_ex *)x)->wr_flush(x, rkey, to->far.addr, len, GLOBAL, RANGE);
	ibv_wr_set_xrc_srqn(x, to->number);
	SAME(ibv_wr_complete(x), 0);
	return i->id;
}

/* --- all operations --- */

static const uint32_t lengths[] = {0, 1, 100, 1024, 1025, 5000, 20000, 300000, XRC_SIZE};
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))
#define PLACED 20u /* atomic writes */

void xrc_take_all(int fd, struct xrc_taker *of, unsigned n)
{
	struct xrc_taker *last = &of[n - 1];
	struct ibv_wc wc;

	for (unsigned k = 0; k < LENGTHS; k++) {
		struct xrc_taker *t = &of[k % n];

		xrc_post_receive(t, k);
		xrc_post_receive(t, 100 + k);
		meet_up(fd); /* a SEND, a SEND with immediate */
		wc = xrc_arrived(t, k, lengths[k]);
		CHECK(wc.opcode == IBV_WC_RECV && !(wc.wc_flags & IBV_WC_WITH_IMM));
		wc = xrc_arrived(t, 100 + k, lengths[k]);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x01020304 && holds(t->m.p, lengths[k], k));
		memset(t->m.p, 0, XRC_SIZE);
		meet_up(fd); /* a WRITE, a READ of it */
		meet_up(fd);
		CHECK(holds(t->m.p, lengths[k], k + 50));
		xrc_post_receive(t, 200 + k);
		meet_up(fd); /* a WRITE with immediate */
		wc = xrc_arrived(t, 200 + k, lengths[k]);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == 0x05060708);
		CHECK(holds(t->m.p, lengths[k], k + 70));
	}
	*(uint64_t *)(void *)last->m.p = 40;
	meet_up(fd); /* atomics */
	meet_up(fd);
	SAME(*(uint64_t *)(void *)last->m.p, 99);
	xrc_post_receive(of, 300);
	struct ibv_mr *mr = ibv_reg_mr(of->pd, of->m.p, 4096, ALL_ACCESS);
	CHECK(mr);
	tell(fd, &mr->rkey, sizeof(mr->rkey)); /* a SEND with invalidate */
	wc = xrc_arrived(of, 300, 8);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mr->rkey);
	meet_up(fd);
	SAME(ibv_dereg_mr(mr), 0);
	CHECK((mr = ibv_reg_mr(last->pd, last->m.p, XRC_SIZE, ALL_ACCESS | ACCESS_FLUSH_GLOBAL)));
	tell(fd, &mr->rkey, sizeof(mr->rkey)); /* WRITEs, atomic writes, flushes */
	meet_up(fd);
	for (unsigned k = 0; k < PLACED; k++)
		SAME(((uint64_t *)(void *)last->m.p)[k], 1000 + k);
	CHECK(holds(last->m.p + 4096, 5000, PLACED - 1));
	SAME(ibv_dereg_mr(mr), 0);
}

/* What is written, stored by an atomic write, and flushed is there when the flush is done. More than may be outstanding at
 * once. */
static void request_placed(struct xrc_initiator *i, int fd, const struct xrc_srq *to)
{
	uint64_t id = 0;
	uint32_t key;

	hear(fd, &key, sizeof(key));
	for (unsigned k = 0; k < PLACED; k++) {
		uint64_t word = 1000 + k;

		fill(i->m.p, 5000, k);
		uint64_t write =
		        XRC_REQUEST(i, 5000, to, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {to->far.addr + 4096, key});
		expect(i->cq, write, IBV_WC_SUCCESS);
		memcpy(i->m.p, &word, sizeof(word));
		struct ibv_wc wc = expect(
		        i->cq,
		        XRC_REQUEST(i, 8, to, .opcode = IBV_WR_ATOMIC_WRITE, .wr.rdma = {to->far.addr + 8 * k, key}),
		        IBV_WC_SUCCESS);
		SAME(wc.opcode, IBV_WC_ATOMIC_WRITE);
	}
	for (unsigned k = 0; k < PLACED; k++) {
		XRC_REQUEST(i, 8, to, .opcode = IBV_WR_ATOMIC_WRITE, .wr.rdma = {to->far.addr + 8 * (PLACED - 1), key});
		id = xrc_flush(i, to, key, 8192);
	}
	for (unsigned k = 2 * PLACED; k; k--) {
		struct ibv_wc wc = expect(i->cq, id + 1 - k, IBV_WC_SUCCESS);

		SAME(wc.opcode, k % 2 ? WC_FLUSH : IBV_WC_ATOMIC_WRITE);
	}
	meet_up(fd);
}

static void request_one_length(struct xrc_initiator *i, int fd, const struct xrc_srq *to, uint32_t len, unsigned k)
{
	fill(i->m.p, XRC_SIZE, k);
	meet_up(fd);
	expect(i->cq, XRC_REQUEST(i, len, to, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	expect(i->cq, XRC_REQUEST(i, len, to, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 0x01020304), IBV_WC_SUCCESS);
	meet_up(fd);
	fill(i->m.p, XRC_SIZE, k + 50);
	expect(i->cq, XRC_REQUEST(i, len, to, .opcode = IBV_WR_RDMA_WRITE, XRC_REMOTE(to)), IBV_WC_SUCCESS);
	memset(i->m.p, 0, XRC_SIZE);
	expect(i->cq, XRC_REQUEST(i, len, to, .opcode = IBV_WR_RDMA_READ, XRC_REMOTE(to)), IBV_WC_SUCCESS);
	CHECK(holds(i->m.p, len, k + 50));
	meet_up(fd);
	fill(i->m.p, XRC_SIZE, k + 70);
	meet_up(fd);
	expect(i->cq,
	       XRC_REQUEST(i, len, to, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 0x05060708, XRC_REMOTE(to)),
	       IBV_WC_SUCCESS);
}

void xrc_request_all(struct xrc_initiator *i, int fd, const struct xrc_srq *to, unsigned n)
{
	const struct xrc_srq *last = &to[n - 1];
	uint64_t addr = last->far.addr;
	uint32_t key;

	for (unsigned k = 0; k < LENGTHS; k++)
		request_one_length(i, fd, &to[k % n], lengths[k], k);
	meet_up(fd);
	expect(i->cq,
	       XRC_REQUEST(i, 8, last, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	                   .wr.atomic = {.remote_addr = addr, .rkey = last->far.rkey, .compare_add = 2}),
	       IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(void *)i->m.p, 40);
	expect(i->cq,
	       XRC_REQUEST(i, 8, last, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
	                   .wr.atomic = {.remote_addr = addr, .rkey = last->far.rkey, .compare_add = 42, .swap = 99}),
	       IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(void *)i->m.p, 42);
	meet_up(fd);
	hear(fd, &key, sizeof(key));
	expect(i->cq, XRC_REQUEST(i, 8, to, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key), IBV_WC_SUCCESS);
	meet_up(fd);
	request_placed(i, fd, last);
}
