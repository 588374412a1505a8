// xrc.c - extended reliable connections: an initiator in one process, a target with two SRQs in another
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_create_srq_ex(3), ibv_open_qp(3), ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>

#define SIZE (1u << 20)
#define PSN 0xfffffeu /* wraps around */

/* What the initiator must know. */
struct target_addr {
	uint32_t qpn, srqn[2], srqn_of_other_domain;
	union ibv_gid gid;
	struct far far[2];
};

/* SRQ, CQ, protection domain and memory 0 and 1 belong together. */
struct target {
	struct dev d;
	struct ibv_context *second; /* another context of the process, which opens the domain and the queue pair too */
	struct ibv_pd *pd[2];
	struct ibv_cq *cq[2];
	struct ibv_xrcd *xrcd, *its_xrcd, *other_xrcd;
	struct ibv_srq *srq[2], *srq_of_other_domain;
	struct ibv_qp *qp, *its_qp;
	struct mem m[2];
	uint32_t peer;
};

struct initiator {
	struct dev d;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mem m;
	struct target_addr to;
	uint64_t id;
};

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx, int fd)
{
	struct ibv_xrcd_init_attr a = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = O_CREAT};
	struct ibv_xrcd *x = ibv_open_xrcd(ctx, &a);

	CHECK(x);
	return x;
}

static struct ibv_srq *make_srq(struct target *t, struct ibv_xrcd *x, int i, uint32_t *number)
{
	struct ibv_srq_init_attr_ex a = {.attr = {64, 2, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                 .srq_type = IBV_SRQT_XRC,
	                                 .pd = t->pd[i],
	                                 .xrcd = x,
	                                 .cq = t->cq[i]};
	struct ibv_srq *srq = ibv_create_srq_ex(t->d.ctx, &a);

	CHECK(srq && !ibv_get_srq_num(srq, number));
	return srq;
}

static void initialise(struct ibv_qp *qp, unsigned access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};

	SAME(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
}

static struct ibv_qp_attr way_to(const struct dev *d, const union ibv_gid *gid, uint32_t qpn)
{
	return (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = qpn,
	        .rq_psn = PSN,
	        .max_dest_rd_atomic = 16,
	        .min_rnr_timer = 1,
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .grh = {.dgid = *gid, .sgid_index = (uint8_t)d->gid_index, .hop_limit = 64}}};
}

#define TO_RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static void target_open(struct target *t, int fd)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct target_addr me;

	dev_open(&t->d);
	CHECK((t->second = ibv_open_device(t->d.ctx->device)));
	t->xrcd = open_xrcd(t->d.ctx, file);
	t->its_xrcd = open_xrcd(t->second, file);
	t->other_xrcd = open_xrcd(t->d.ctx, -1);
	for (int i = 0; i < 2; i++) {
		struct dev of = t->d;

		CHECK((t->pd[i] = of.pd = ibv_alloc_pd(t->d.ctx)) &&
		      (t->cq[i] = ibv_create_cq(t->d.ctx, 256, NULL, NULL, 0)));
		mem_make(&t->m[i], &of, SIZE);
		me.far[i] = (struct far){(uintptr_t)t->m[i].p, t->m[i].mr->rkey, 0};
		t->srq[i] = make_srq(t, t->xrcd, i, &me.srqn[i]);
	}
	t->srq_of_other_domain = make_srq(t, t->other_xrcd, 0, &me.srqn_of_other_domain);
	struct ibv_qp_init_attr_ex a = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = t->xrcd};
	CHECK((t->qp = ibv_create_qp_ex(t->d.ctx, &a)));
	struct ibv_qp_open_attr oa = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                              .qp_num = t->qp->qp_num,
	                              .xrcd = t->its_xrcd,
	                              .qp_type = IBV_QPT_XRC_RECV};
	CHECK((t->its_qp = ibv_open_qp(t->second, &oa)));
	me.qpn = t->qp->qp_num;
	me.gid = t->d.gid;
	initialise(t->qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	tell(fd, &me, sizeof(me));
	hear(fd, &t->peer, sizeof(t->peer));
	struct ibv_qp_attr q = way_to(&t->d, &t->d.gid, t->peer);
	SAME(ibv_modify_qp(t->qp, &q, TO_RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
	q = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14};
	SAME(ibv_modify_qp(t->its_qp, &q, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT), 0); /* by any handle */
	CHECK(!close(file));
	meet_up(fd);
}

static void target_close(struct target *t)
{
	SAME(ibv_close_xrcd(t->xrcd), EBUSY);
	SAME(ibv_destroy_qp(t->qp), 0);
	SAME(ibv_destroy_qp(t->its_qp), 0);
	SAME(ibv_destroy_srq(t->srq_of_other_domain), 0);
	for (int i = 0; i < 2; i++) {
		SAME(ibv_destroy_srq(t->srq[i]), 0);
		SAME(ibv_destroy_cq(t->cq[i]), 0);
		mem_end(&t->m[i]);
		SAME(ibv_dealloc_pd(t->pd[i]), 0);
	}
	SAME(ibv_close_xrcd(t->its_xrcd), 0);
	SAME(ibv_close_xrcd(t->other_xrcd), 0);
	SAME(ibv_close_xrcd(t->xrcd), 0);
	SAME(ibv_close_device(t->second), 0);
	dev_close(&t->d);
}

static void initiator_open(struct initiator *i, int fd)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_XRC_SEND, .cap = {.max_send_wr = 64, .max_send_sge = 1}};

	i->id = 0;
	dev_open(&i->d);
	mem_make(&i->m, &i->d, SIZE);
	CHECK((i->cq = ibv_create_cq(i->d.ctx, 256, NULL, NULL, 0)));
	a.send_cq = i->cq;
	CHECK((i->qp = ibv_create_qp(i->d.pd, &a)));
	initialise(i->qp, 0);
	hear(fd, &i->to, sizeof(i->to));
	tell(fd, &i->qp->qp_num, sizeof(i->qp->qp_num));
	struct ibv_qp_attr q = way_to(&i->d, &i->to.gid, i->to.qpn);
	SAME(ibv_modify_qp(i->qp, &q, TO_RTR), 0);
	q = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                         .sq_psn = PSN,
	                         .timeout = 20,
	                         .retry_cnt = 7,
	                         .rnr_retry = 7,
	                         .max_rd_atomic = 16};
	SAME(ibv_modify_qp(i->qp, &q,
	                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                           IBV_QP_MAX_QP_RD_ATOMIC),
	     0);
	meet_up(fd);
}

static void initiator_close(struct initiator *i)
{
	SAME(ibv_destroy_qp(i->qp), 0);
	SAME(ibv_destroy_cq(i->cq), 0);
	mem_end(&i->m);
	dev_close(&i->d);
}

/* Posts a request of the first len bytes of the initiator's memory. Returns its id. */
static uint64_t request(struct initiator *i, uint32_t len, struct ibv_send_wr *wr)
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

#define REQUEST(i, len, n, ...) \
	request(i, len, &(struct ibv_send_wr){.qp_type.xrc.remote_srqn = (i)->to.srqn[n], __VA_ARGS__})
#define REMOTE(i, n) .wr.rdma = {(i)->to.far[n].addr, (i)->to.far[n].rkey}

static void post_to_srq(struct target *t, int n, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)t->m[n].p, SIZE, t->m[n].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	SAME(ibv_post_srq_recv(t->srq[n], &wr, &bad), 0);
}

/* A message that arrived: its completion is in the SRQ's queue, and names both queue pairs. */
static struct ibv_wc arrived(struct target *t, int n, uint64_t id, uint32_t len)
{
	struct ibv_wc wc = expect(t->cq[n], id, IBV_WC_SUCCESS);

	SAME(wc.qp_num, t->qp->qp_num);
	SAME(wc.src_qp, t->peer);
	SAME(wc.byte_len, len);
	return wc;
}

/* --- all operations, in turns to both SRQs --- */

static const uint32_t lengths[] = {0, 1, 100, 1024, 1025, 5000, 20000, 300000, SIZE};
#define LENGTHS (sizeof(lengths) / sizeof(*lengths))

static void takes_all_operations(int fd, void *arg)
{
	struct target t;
	struct ibv_wc wc;

	target_open(&t, fd);
	for (unsigned k = 0; k < LENGTHS; k++) {
		int n = k % 2;

		post_to_srq(&t, n, k);
		post_to_srq(&t, n, 100 + k);
		meet_up(fd); /* a SEND, a SEND with immediate */
		wc = arrived(&t, n, k, lengths[k]);
		CHECK(wc.opcode == IBV_WC_RECV && !(wc.wc_flags & IBV_WC_WITH_IMM));
		wc = arrived(&t, n, 100 + k, lengths[k]);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x01020304 && holds(t.m[n].p, lengths[k], k));
		memset(t.m[n].p, 0, SIZE);
		meet_up(fd); /* a WRITE, a READ of it */
		meet_up(fd);
		CHECK(holds(t.m[n].p, lengths[k], k + 50));
		post_to_srq(&t, n, 200 + k);
		meet_up(fd); /* a WRITE with immediate */
		wc = arrived(&t, n, 200 + k, lengths[k]);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == 0x05060708);
		CHECK(holds(t.m[n].p, lengths[k], k + 70));
	}
	*(uint64_t *)(void *)t.m[1].p = 40;
	meet_up(fd); /* atomics */
	meet_up(fd);
	SAME(*(uint64_t *)(void *)t.m[1].p, 99);
	post_to_srq(&t, 0, 300);
	struct ibv_mr *mr = ibv_reg_mr(t.pd[0], t.m[0].p, 4096, ALL_ACCESS);
	CHECK(mr);
	tell(fd, &mr->rkey, sizeof(mr->rkey)); /* a SEND with invalidate */
	wc = arrived(&t, 0, 300, 8);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mr->rkey);
	meet_up(fd);
	SAME(ibv_dereg_mr(mr), 0);
	target_close(&t);
}

static void all_operations(void)
{
	struct peer p = start(takes_all_operations, NULL);
	struct initiator i;
	uint32_t key;

	initiator_open(&i, p.fd);
	for (unsigned k = 0; k < LENGTHS; k++) {
		uint32_t len = lengths[k];
		int n = k % 2;

		fill(i.m.p, SIZE, k);
		meet_up(p.fd);
		expect(i.cq, REQUEST(&i, len, n, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
		expect(i.cq, REQUEST(&i, len, n, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 0x01020304),
		       IBV_WC_SUCCESS);
		meet_up(p.fd);
		fill(i.m.p, SIZE, k + 50);
		expect(i.cq, REQUEST(&i, len, n, .opcode = IBV_WR_RDMA_WRITE, REMOTE(&i, n)), IBV_WC_SUCCESS);
		memset(i.m.p, 0, SIZE);
		expect(i.cq, REQUEST(&i, len, n, .opcode = IBV_WR_RDMA_READ, REMOTE(&i, n)), IBV_WC_SUCCESS);
		CHECK(holds(i.m.p, len, k + 50));
		meet_up(p.fd);
		fill(i.m.p, SIZE, k + 70);
		meet_up(p.fd);
		expect(i.cq,
		       REQUEST(&i, len, n, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = 0x05060708, REMOTE(&i, n)),
		       IBV_WC_SUCCESS);
	}
	meet_up(p.fd);
	expect(i.cq,
	       REQUEST(&i, 8, 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	               .wr.atomic = {.remote_addr = i.to.far[1].addr, .rkey = i.to.far[1].rkey, .compare_add = 2}),
	       IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(void *)i.m.p, 40);
	expect(i.cq,
	       REQUEST(&i, 8, 1, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
	               .wr.atomic = {.remote_addr = i.to.far[1].addr,
	                             .rkey = i.to.far[1].rkey,
	                             .compare_add = 42,
	                             .swap = 99}),
	       IBV_WC_SUCCESS);
	SAME(*(uint64_t *)(void *)i.m.p, 42);
	meet_up(p.fd);
	hear(p.fd, &key, sizeof(key));
	expect(i.cq, REQUEST(&i, 8, 0, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key), IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
	initiator_close(&i);
}

/* --- many requests at once, of which each names an SRQ of its own --- */

#define MANY 60

static void takes_many(int fd, void *arg)
{
	struct target t;

	target_open(&t, fd);
	for (unsigned k = 0; k < MANY; k++)
		post_to_srq(&t, k % 2, k);
	meet_up(fd);
	for (unsigned k = 0; k < MANY; k++)
		arrived(&t, k % 2, k, k * 100);
	meet_up(fd);
	target_close(&t);
}

static void many_at_once(void)
{
	struct peer p = start(takes_many, NULL);
	struct initiator i;

	initiator_open(&i, p.fd);
	fill(i.m.p, SIZE, 3);
	meet_up(p.fd);
	for (unsigned k = 0; k < MANY; k++)
		REQUEST(&i, k * 100, k % 2, .opcode = IBV_WR_SEND);
	for (unsigned k = 1; k <= MANY; k++)
		expect(i.cq, k, IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
	initiator_close(&i);
}

/* --- an SRQ without receives --- */

static void is_late(int fd, void *arg)
{
	struct target t;

	target_open(&t, fd);
	post_to_srq(&t, 0, 1); /* not of the SRQ that the request names */
	meet_up(fd);
	sleep_ms(20);
	post_to_srq(&t, 1, 2);
	arrived(&t, 1, 2, 10);
	expect_none(t.cq[0], 5);
	meet_up(fd);
	target_close(&t);
}

static void waits_for_a_receive(void)
{
	struct peer p = start(is_late, NULL);
	struct initiator i;

	initiator_open(&i, p.fd);
	meet_up(p.fd);
	expect(i.cq, REQUEST(&i, 10, 1, .opcode = IBV_WR_SEND), IBV_WC_SUCCESS);
	meet_up(p.fd);
	finish(&p);
	initiator_close(&i);
}

/* --- errors: one request each --- */

static int event_of(struct ibv_context *ctx)
{
	struct dev d = {.ctx = ctx};
	int event = next_event(&d, PATIENCE);

	return event == IBV_EVENT_COMM_EST ? next_event(&d, PATIENCE) : event;
}

struct wrong {
	const char *what;
	int event;
};

static void refuses(int fd, void *arg)
{
	const struct wrong *w = arg;
	struct target t;
	struct ibv_wc wc;

	target_open(&t, fd);
	post_to_srq(&t, 0, 1);
	fill(t.m[0].p, SIZE, 5);
	fill(t.m[1].p, SIZE, 6);
	meet_up(fd);
	meet_up(fd); /* the request has failed */
	SAME(event_of(t.d.ctx), w->event);
	SAME(event_of(t.second), w->event); /* all openers get it */
	SAME(state_of(t.qp), IBV_QPS_ERR);
	SAME(t.its_qp->state, IBV_QPS_ERR);
	CHECK(holds(t.m[0].p, SIZE, 5) && holds(t.m[1].p, SIZE, 6));
	CHECK(!ibv_poll_cq(t.cq[0], 1, &wc) && !ibv_poll_cq(t.cq[1], 1, &wc));
	target_close(&t);
}

static void one_wrong(const struct wrong *w, enum ibv_wc_status status, uint64_t (*post_wrong)(struct initiator *i))
{
	struct peer p = start(refuses, (void *)w);
	struct initiator i;

	initiator_open(&i, p.fd);
	meet_up(p.fd);
	uint64_t id = post_wrong(&i);
	struct ibv_wc wc = wait_wc(i.cq);

	if (wc.wr_id != id || wc.status != status)
		fail(__FILE__, __LINE__, "%s: request %lu has status %d, not %d", w->what, (unsigned long)wc.wr_id,
		     wc.status, status);
	SAME(state_of(i.qp), IBV_QPS_ERR);
	meet_up(p.fd);
	finish(&p);
	initiator_close(&i);
}

static uint64_t post_unknown_srq(struct initiator *i)
{
	i->to.srqn[0] ^= 1;
	return REQUEST(i, 10, 0, .opcode = IBV_WR_SEND);
}

static uint64_t post_other_domain(struct initiator *i)
{
	i->to.srqn[0] = i->to.srqn_of_other_domain;
	return REQUEST(i, 10, 0, .opcode = IBV_WR_SEND);
}

/* The initiator's process had an SRQ in the target's domain, and has closed it. It does not reach the target by
 * ibv_open_qp: docs/limits.md. */
static uint64_t post_other_process(struct initiator *i)
{
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	struct ibv_xrcd *x = open_xrcd(i->d.ctx, file);
	struct ibv_srq_init_attr_ex a = {.attr = {64, 2, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                 .srq_type = IBV_SRQT_XRC,
	                                 .pd = i->d.pd,
	                                 .xrcd = x,
	                                 .cq = i->cq};
	struct ibv_srq *srq = ibv_create_srq_ex(i->d.ctx, &a);
	struct ibv_qp_open_attr oa = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
	                              .qp_num = i->to.qpn,
	                              .xrcd = x,
	                              .qp_type = IBV_QPT_XRC_RECV};

	CHECK(srq && !ibv_get_srq_num(srq, &i->to.srqn[0]));
	errno = 0;
	CHECK(!ibv_open_qp(i->d.ctx, &oa) && errno == EOPNOTSUPP);
	CHECK(!ibv_destroy_srq(srq) && !ibv_close_xrcd(x) && !close(file));
	return REQUEST(i, 10, 0, .opcode = IBV_WR_SEND);
}

static uint64_t read_by_unknown_srq(struct initiator *i)
{
	i->to.srqn[0] ^= 1;
	return REQUEST(i, 10, 0, .opcode = IBV_WR_RDMA_READ, REMOTE(i, 0));
}

/* The region is in the protection domain of the other SRQ. */
static uint64_t write_in_other_domain(struct initiator *i)
{
	return REQUEST(i, 10, 0, .opcode = IBV_WR_RDMA_WRITE, REMOTE(i, 1));
}

static uint64_t read_in_other_domain(struct initiator *i)
{
	return REQUEST(i, 10, 1, .opcode = IBV_WR_RDMA_READ, REMOTE(i, 0));
}

static uint64_t add_in_other_domain(struct initiator *i)
{
	return REQUEST(i, 8, 0, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
	               .wr.atomic = {.remote_addr = i->to.far[1].addr, .rkey = i->to.far[1].rkey, .compare_add = 2});
}

static void wrong_srqs_are_invalid_requests(void)
{
	static const struct wrong unknown = {"a SEND to an unknown SRQ", IBV_EVENT_QP_REQ_ERR};
	static const struct wrong other = {"a SEND to an SRQ of another domain", IBV_EVENT_QP_REQ_ERR};
	static const struct wrong process = {"a SEND to an SRQ that another process had", IBV_EVENT_QP_REQ_ERR};
	static const struct wrong reads = {"a READ by an unknown SRQ", IBV_EVENT_QP_REQ_ERR};

	one_wrong(&unknown, IBV_WC_REM_INV_REQ_ERR, post_unknown_srq);
	one_wrong(&other, IBV_WC_REM_INV_REQ_ERR, post_other_domain);
	one_wrong(&process, IBV_WC_REM_INV_REQ_ERR, post_other_process);
	one_wrong(&reads, IBV_WC_REM_INV_REQ_ERR, read_by_unknown_srq);
}

static void the_srq_grants_its_protection_domain_only(void)
{
	static const struct wrong writes = {"a WRITE", IBV_EVENT_QP_ACCESS_ERR};
	static const struct wrong reads = {"a READ", IBV_EVENT_QP_ACCESS_ERR};
	static const struct wrong adds = {"an atomic", IBV_EVENT_QP_ACCESS_ERR};

	one_wrong(&writes, IBV_WC_REM_ACCESS_ERR, write_in_other_domain);
	one_wrong(&reads, IBV_WC_REM_ACCESS_ERR, read_in_other_domain);
	one_wrong(&adds, IBV_WC_REM_ACCESS_ERR, add_in_other_domain);
}

/* --- a domain in several processes --- */

static int try_domain(struct ibv_context *ctx, int fd, int oflags, struct ibv_xrcd **x)
{
	struct ibv_xrcd_init_attr a = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags};

	errno = 0;
	*x = ibv_open_xrcd(ctx, &a);
	return *x ? 0 : errno;
}

static int domain_file;

static void knows_the_domain(int fd, void *arg)
{
	struct ibv_xrcd *x, *twice;
	struct dev d;

	dev_open(&d);
	meet_up(fd); /* the other process has opened it */
	SAME(try_domain(d.ctx, domain_file, O_CREAT | O_EXCL, &x), EINVAL);
	SAME(try_domain(d.ctx, domain_file, 0, &x), 0);
	SAME(try_domain(d.ctx, domain_file, 0, &twice), 0);
	meet_up(fd);
	meet_up(fd); /* the other process has closed it */
	SAME(ibv_close_xrcd(twice), 0);
	meet_up(fd);
	meet_up(fd); /* the other process knows that it is still open here */
	if (arg)
		_exit(0); /* without closing it */
	SAME(ibv_close_xrcd(x), 0);
}

static void one_domain_ends(void *dies)
{
	struct ibv_xrcd *x;
	struct peer p;
	struct dev d;

	domain_file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	CHECK(domain_file >= 0);
	p = start(knows_the_domain, dies);
	dev_open(&d);
	SAME(try_domain(d.ctx, domain_file, 0, &x), EAGAIN); /* nobody has made it */
	SAME(try_domain(d.ctx, domain_file, O_CREAT | O_EXCL, &x), 0);
	meet_up(p.fd);
	meet_up(p.fd);
	SAME(ibv_close_xrcd(x), 0);
	meet_up(p.fd);
	meet_up(p.fd);
	SAME(try_domain(d.ctx, domain_file, O_CREAT | O_EXCL, &x), EINVAL);
	meet_up(p.fd);
	finish(&p);
	SAME(try_domain(d.ctx, domain_file, 0, &x), EAGAIN);
	SAME(try_domain(d.ctx, domain_file, O_CREAT | O_EXCL, &x), 0);
	SAME(ibv_close_xrcd(x), 0);
}

static void a_domain_exists_while_any_process_has_it_open(void)
{
	static int dies;

	one_domain_ends(NULL);
	one_domain_ends(&dies);
}

static const struct test tests[] = {
        {"a domain exists while any process has it open", a_domain_exists_while_any_process_has_it_open, 0},
        {"XRC has the operations of RC, and each completes at the SRQ that it names", all_operations, 0},
        {"many XRC requests at once arrive at their SRQs in order", many_at_once, 0},
        {"an XRC request waits for a receive of its own SRQ", waits_for_a_receive, 0},
        {"a wrong SRQ number is an invalid request, which all openers learn of", wrong_srqs_are_invalid_requests, 0},
        {"the SRQ that an XRC request names decides about its access to memory",
         the_srq_grants_its_protection_domain_only, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
