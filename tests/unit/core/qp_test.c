// qp_test.c - queue pairs: creation, transitions, errors
// follows: IBA volume 1, 10.3, 11.2.5; ibv_create_qp(3), ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <fcntl.h>
#include <malloc.h>

#include "core/qp.h"
#include "core/rq.h"
#include "core/sq.h"

static struct objects o;
static char buf[64];

static int post_send(struct ibv_qp *qp, uint64_t id, unsigned flags)
{
	struct ibv_sge sge = {(uintptr_t)buf, 8, 1};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = flags},
	                   *bad;

	return vb_post_send(qp, &wr, &bad);
}

static int post_recv(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)buf, 8, 1};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return vb_post_recv(qp, &wr, &bad);
}

static int change(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state};

	return vb_modify_qp(qp, &a, IBV_QP_STATE);
}

static void expect_flushed(uint64_t id)
{
	struct ibv_wc wc;

	CHECK(vb_poll_cq(o.cq, 1, &wc) == 1 && wc.wr_id == id && wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(wc.opcode == (id >= 100 ? IBV_WC_RECV : IBV_WC_SEND));
}

static void expect_nothing(void)
{
	struct ibv_wc wc;

	CHECK(!vb_poll_cq(o.cq, 1, &wc));
}

static void the_state_says_error_before_a_completion_does(void)
{
	static const struct {
		enum ibv_qp_type type;
		enum ibv_qp_state state;
	} ends[] = {{IBV_QPT_RC, IBV_QPS_ERR}, {IBV_QPT_UC, IBV_QPS_SQE}};

	for (int i = 0; i < 2; i++) {
		struct ibv_qp *ibqp = make_qp(&o, ends[i].type, NULL);
		struct vb_qp *qp = vb_qp(ibqp);
		struct ibv_send_wr wr = {.wr_id = 5, .opcode = IBV_WR_SEND}, *bad;
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr a;
		struct ibv_wc wc;

		to_state(ibqp, IBV_QPS_RTS);
		CHECK(!vb_post_send(ibqp, &wr, &bad));
		vb_lock(&qp->sq_lock); /* as an engine, in ibv_post_send: it has not taken progress yet */
		vb_sq_tell(qp, vb_sq_at(qp, 0), IBV_WC_LOC_PROT_ERR);
		vb_sq_retire(qp);
		vb_unlock(&qp->sq_lock);
		CHECK(vb_poll_cq(o.cq, 1, &wc) == 1 && wc.wr_id == 5 && wc.status == IBV_WC_LOC_PROT_ERR);
		CHECK(!vb_query_qp(ibqp, &a, IBV_QP_STATE, &init) && a.qp_state == ends[i].state);
		CHECK(ibqp->state == ends[i].state);
		CHECK(!vb_destroy_qp(ibqp));
	}
}

static struct ibv_qp *try_make(struct ibv_qp_cap cap, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr a = {.send_cq = o.cq, .recv_cq = o.cq, .cap = cap, .qp_type = type};
	struct ibv_qp *qp = vb_create_qp(o.pd, &a);

	if (qp) {
		CHECK(a.cap.max_send_wr >= cap.max_send_wr && a.cap.max_recv_wr >= cap.max_recv_wr &&
		      a.cap.max_inline_data >= cap.max_inline_data);
		CHECK(a.cap.max_send_sge >= cap.max_send_sge && a.cap.max_recv_sge >= cap.max_recv_sge);
	}
	return qp;
}

static void capabilities_are_rounded_up_or_refused(void)
{
	static const struct ibv_qp_cap bad[] = {
	        {VB_MAX_QP_WR + 1, 1, 1, 1, 0}, {1, VB_MAX_QP_WR + 1, 1, 1, 0},  {1, 1, VB_MAX_SGE + 1, 1, 0},
	        {1, 1, 1, VB_MAX_SGE + 1, 0},   {1, 1, 1, 1, VB_MAX_INLINE + 1}, {~0u, ~0u, ~0u, ~0u, ~0u},
	};
	static const struct ibv_qp_cap ok[] = {{0},
	                                       {1, 1, 1, 1, 1},
	                                       {100, 0, 3, 0, 237},
	                                       {VB_MAX_QP_WR, VB_MAX_QP_WR, VB_MAX_SGE, VB_MAX_SGE, VB_MAX_INLINE}};

	for (int i = 0; i < 6; i++)
		CHECK(!try_make(bad[i], IBV_QPT_RC) && errno == EINVAL);
	for (int i = 0; i < 4; i++)
		CHECK(!vb_destroy_qp(try_make(ok[i], IBV_QPT_UD)));
	fake.raw_error = EPERM; /* without the right to a packet socket */
	CHECK(!try_make(ok[1], IBV_QPT_RAW_PACKET) && errno == EPERM);
	fake.raw_error = 0;
	CHECK(!vb_destroy_qp(try_make(ok[1], IBV_QPT_RAW_PACKET)));
	CHECK(!try_make(ok[1], IBV_QPT_DRIVER) && errno == EOPNOTSUPP);
}

/* Each number appears once before any is repeated, in an unpredictable order. */
static void numbers_are_of_our_lane_and_not_used_again_soon(void)
{
	static bool used[VB_LANE_QPS];
	struct ibv_qp_cap cap = {1, 1, 1, 1, 0};
	uint32_t last = 0, near = 0;

	fake_node.qp_key[0] = 0x243f6a8885a308d3;
	for (uint32_t i = 0; i < VB_LANE_QPS - 2; i++) {
		struct ibv_qp *qp = try_make(cap, IBV_QPT_RC);

		CHECK(VB_QP_LANE(qp->qp_num) == 7 && qp->qp_num != last && qp->qp_num != o.qp->qp_num);
		CHECK(!used[VB_QP_INDEX(qp->qp_num)]);
		used[VB_QP_INDEX(qp->qp_num)] = true;
		near += qp->qp_num - last < 16;
		CHECK(atomic_load(&fake_node.qps[VB_QP_INDEX(qp->qp_num)]) == vb_qp(qp));
		last = qp->qp_num;
		CHECK(!vb_destroy_qp(qp) && fake.quiesced_qpn == last &&
		      !atomic_load(&fake_node.qps[VB_QP_INDEX(last)]));
	}
	CHECK(near < 100); /* 16 by chance */
}

static void a_queue_pair_of_128_costs_less_than_18_kilobytes(void)
{
	struct ibv_qp *qp = try_make((struct ibv_qp_cap){128, 128, 1, 1, 0}, IBV_QPT_RC);

	CHECK(malloc_usable_size(qp) < 18 * 1024);
	CHECK(!vb_destroy_qp(qp));
}

static void a_queue_pair_holds_what_it_is_made_of(void)
{
	CHECK(vb_dealloc_pd(o.pd) == EBUSY && vb_destroy_cq(o.cq) == EBUSY);
}

static void the_way_to_rts_publishes_what_peers_need(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
	struct vb_qp_shared *s = vb_qp(qp)->shared;
	uint32_t gen = atomic_load(&s->gen);

	CHECK(!(gen & 1) && qp->state == IBV_QPS_RESET);
	to_state(qp, IBV_QPS_INIT);
	CHECK(atomic_load(&s->gen) == gen && qp->state == IBV_QPS_INIT &&
	      atomic_load(&s->access) == IBV_ACCESS_REMOTE_WRITE);
	CHECK(!change(qp, IBV_QPS_RESET));
	to_state(qp, IBV_QPS_RTR);
	CHECK(atomic_load(&s->gen) == gen + 1 && fake.connects == 1 && !fake.locked_in_connect);
	CHECK(atomic_load(&s->dest_qpn) == (9u << VB_LANE_SHIFT | 5) && atomic_load(&s->dest_lane) == 9 &&
	      atomic_load(&s->rq_psn) == 100);
	CHECK(atomic_load(&s->min_rnr_timer) == 12 && atomic_load(&s->max_dest_rd_atomic) == 4 && fake.responders == 1);
	CHECK(!change(qp, IBV_QPS_RESET));
	CHECK(atomic_load(&s->gen) == gen + 2 && fake.quiesced_qpn == qp->qp_num);
	to_state(qp, IBV_QPS_RTS);
	CHECK(atomic_load(&s->gen) == gen + 3 && vb_qp(qp)->psn_next == 0x200 && fake.kicks >= 1);
	fake.quiesced_qpn = 0;
	CHECK(!fake.forgotten);
	CHECK(!change(qp, IBV_QPS_ERR) && atomic_load(&s->gen) == gen + 4 && fake.quiesced_qpn == qp->qp_num);
	CHECK(fake.forgotten == 1);
	CHECK(!vb_destroy_qp(qp) && atomic_load(&s->gen) == gen + 4);
}

static void values_out_of_range_change_nothing(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 2}, now;
	struct ibv_qp_init_attr init;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	CHECK(vb_modify_qp(qp, &a, mask) == EINVAL);
	a.port_num = 1;
	a.pkey_index = 1;
	CHECK(vb_modify_qp(qp, &a, mask) == EINVAL && qp->state == IBV_QPS_RESET);
	to_state(qp, IBV_QPS_RTS);
	a = (struct ibv_qp_attr){.min_rnr_timer = 32};
	CHECK(vb_modify_qp(qp, &a, IBV_QP_MIN_RNR_TIMER) == EINVAL);
	CHECK(vb_modify_qp(qp, &a, IBV_QP_ALT_PATH) == EINVAL);
	a.cur_qp_state = IBV_QPS_SQD;
	a.qp_state = IBV_QPS_RTS;
	CHECK(vb_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE) == EINVAL);
	a.cur_qp_state = IBV_QPS_RTS;
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE));
	CHECK(!vb_query_qp(qp, &now, 0, &init) && now.min_rnr_timer == 12 && now.qp_state == IBV_QPS_RTS &&
	      now.sq_psn == 0x345 && now.rq_psn == 101); /* those of the path */
	CHECK(now.cap.max_send_wr == 8 && init.cap.max_inline_data == 64 && init.qp_type == IBV_QPT_RC &&
	      init.send_cq == o.cq);
	CHECK(!vb_destroy_qp(qp));
}

static void a_lid_stands_for_an_address_and_is_told_as_it_was_set(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = IBV_MTU_1024,
	                        .dest_qp_num = 9 << VB_LANE_SHIFT | 5,
	                        .ah_attr = {.port_num = 1, .dlid = 9, .sl = 3}},
	                   now;
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_UC, NULL);
	struct ibv_qp_init_attr init;

	to_state(qp, IBV_QPS_INIT);
	CHECK(vb_modify_qp(qp, &a, mask) == EINVAL);
	fake_device.lids = true;
	fake_device.nd.v4_prefix = 24;
	fake_device.nd.n_addrs = 1;
	memcpy(fake_device.nd.addrs[0], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}, 16);
	CHECK(!vb_modify_qp(qp, &a, mask));
	CHECK(vb_qp(qp)->attr.ah_attr.grh.sgid_index == 1 && vb_qp(qp)->attr.ah_attr.grh.dgid.raw[15] == 9);
	CHECK(!vb_query_qp(qp, &now, 0, &init) && !memcmp(&now.ah_attr, &a.ah_attr, sizeof(a.ah_attr)));
	CHECK(!vb_destroy_qp(qp));
	fake_device.lids = false;
}

/* The MTU of the fake device's port is 1024: a larger packet would never arrive. */
static void a_path_mtu_above_the_active_one_is_refused(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = IBV_MTU_2048,
	                        .dest_qp_num = 9 << VB_LANE_SHIFT | 5,
	                        .ah_attr = {.is_global = 1, .port_num = 1, .grh.dgid.raw = {0xfe, 0x80, [15] = 2}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_UC, NULL);

	to_state(qp, IBV_QPS_INIT);
	CHECK(vb_modify_qp(qp, &a, mask) == EINVAL);
	a.path_mtu = IBV_MTU_4096;
	CHECK(vb_modify_qp(qp, &a, mask) == EINVAL && qp->state == IBV_QPS_INIT);
	a.path_mtu = IBV_MTU_1024;
	CHECK(!vb_modify_qp(qp, &a, mask) && !vb_destroy_qp(qp));
}

static void each_value_has_its_limit(void)
{
	static const struct {
		int bit;
		struct ibv_qp_attr attr;
	} bad[] = {
	        {IBV_QP_TIMEOUT, {.timeout = 32}},
	        {IBV_QP_RETRY_CNT, {.retry_cnt = 8}},
	        {IBV_QP_RNR_RETRY, {.rnr_retry = 8}},
	        {IBV_QP_MAX_QP_RD_ATOMIC, {.max_rd_atomic = 17}},
	        {IBV_QP_MAX_DEST_RD_ATOMIC, {.max_dest_rd_atomic = 17}},
	        {IBV_QP_AV, {.ah_attr = {.port_num = 1}}},
	        {IBV_QP_PATH_MIG_STATE, {.path_mig_state = IBV_MIG_ARMED}},
	};
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
	struct ibv_qp_attr fine = {
	        .timeout = 31, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16, .max_dest_rd_atomic = 16};

	to_state(qp, IBV_QPS_SQD);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct ibv_qp_attr a = bad[i].attr;

		CHECK(vb_modify_qp(qp, &a, bad[i].bit) == EINVAL);
	}
	CHECK(!vb_modify_qp(qp, &fine, 0xe00 | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC));
	CHECK(!vb_destroy_qp(qp));
}

static void posting_depends_on_the_state(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);

	CHECK(post_send(qp, 1, 0) == EINVAL && post_recv(qp, 100) == EINVAL);
	to_state(qp, IBV_QPS_INIT);
	CHECK(post_send(qp, 1, 0) == EINVAL && !post_recv(qp, 100));
	CHECK(!change(qp, IBV_QPS_RESET));
	to_state(qp, IBV_QPS_RTR);
	CHECK(post_send(qp, 1, 0) == EINVAL && !post_recv(qp, 100));
	CHECK(!change(qp, IBV_QPS_RESET));
	to_state(qp, IBV_QPS_RTS);
	CHECK(!post_send(qp, 1, 0) && !vb_destroy_qp(qp));
	expect_nothing();
}

static void an_error_flushes_sends_then_receives_in_order(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
	struct vb_qp *q = vb_qp(qp);

	to_state(qp, IBV_QPS_RTS);
	CHECK(!post_recv(qp, 100));
	for (uint64_t i = 1; i <= 5; i++)
		CHECK(!post_send(qp, i, i & 1 ? IBV_SEND_SIGNALED : 0) && !post_recv(qp, 100 + i));
	q->inbound->active = true; /* a message has arrived in part */
	q->inbound->wqe.wr_id = 100;
	vb_rq_advance(&q->rq);
	q->sq_una = q->sq_head - 4; /* the first one has completed */
	CHECK(!change(qp, IBV_QPS_ERR) && qp->state == IBV_QPS_ERR);
	for (uint64_t i = 2; i <= 5; i++)
		expect_flushed(i);
	for (uint64_t i = 100; i <= 105; i++)
		expect_flushed(i);
	expect_nothing();
	CHECK(!post_send(qp, 6, 0) && !post_recv(qp, 106)); /* later requests are flushed at once */
	expect_flushed(6);
	expect_flushed(106);
	CHECK(!change(qp, IBV_QPS_ERR));
	expect_nothing();
	CHECK(!vb_destroy_qp(qp));
}

static void a_send_queue_error_leaves_the_receives(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_UC, NULL);
	struct vb_qp *q = vb_qp(qp);

	to_state(qp, IBV_QPS_RTS);
	CHECK(!post_send(qp, 1, 0) && !post_recv(qp, 101));
	vb_lock(&q->node->progress);
	vb_lock(&q->sq_lock);
	vb_qp_sq_error(q);
	vb_unlock(&q->sq_lock);
	vb_unlock(&q->node->progress);
	CHECK(qp->state == IBV_QPS_SQE && (atomic_load(&q->shared->gen) & 1));
	expect_flushed(1);
	CHECK(!post_send(qp, 2, 0));
	expect_flushed(2);
	expect_nothing();
	CHECK(!change(qp, IBV_QPS_RTS) && !post_send(qp, 3, 0));
	expect_nothing();
	CHECK(!vb_destroy_qp(qp));
}

static void a_reset_forgets_everything(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL), *other = make_qp(&o, IBV_QPT_RC, NULL);
	struct ibv_wc wc;

	to_state(qp, IBV_QPS_RTS);
	to_state(other, IBV_QPS_RTS);
	CHECK(!post_send(qp, 1, 0) && !post_send(other, 2, 0) && !change(qp, IBV_QPS_ERR) &&
	      !change(other, IBV_QPS_ERR));
	CHECK(!change(qp, IBV_QPS_RESET) && fake.resets >= 1); /* removes its completion, too */
	CHECK(vb_poll_cq(o.cq, 1, &wc) == 1 && wc.wr_id == 2);
	expect_nothing();
	to_state(qp, IBV_QPS_RTS);
	for (uint64_t i = 1; i <= 8; i++)
		CHECK(!post_send(qp, i, 0) && !post_recv(qp, 100 + i));
	CHECK(post_send(qp, 9, 0) == ENOMEM && post_recv(qp, 109) == ENOMEM);
	CHECK(!change(qp, IBV_QPS_RESET));
	expect_nothing();
	to_state(qp, IBV_QPS_RTS);
	CHECK(!post_send(qp, 1, 0) && vb_qp(qp)->sq_head - vb_qp(qp)->sq_una == 1);
	CHECK(!vb_destroy_qp(qp) && !vb_destroy_qp(other));
}

/* As with hardware: a program may have freed the object behind wr_id, so the completion is removed. */
static void a_queue_pair_that_is_destroyed_takes_its_completions_along(void)
{
	struct ibv_cq_init_attr_ex xa = {.cqe = 15, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *ex = vb_create_cq_ex(o.ctx, &xa);
	struct ibv_qp_init_attr a = {
	        .send_cq = o.cq, .recv_cq = ibv_cq_ex_to_cq(ex), .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = vb_create_qp(o.pd, &a), *other = vb_create_qp(o.pd, &a);
	struct ibv_poll_cq_attr none = {0};

	to_state(qp, IBV_QPS_RTS);
	to_state(other, IBV_QPS_RTS);
	for (uint64_t i = 1; i <= 2; i++)
		CHECK(!post_send(qp, i, 0) && !post_recv(qp, 100 + i));
	CHECK(!post_send(other, 3, 0) && !post_recv(other, 103) && !change(qp, IBV_QPS_ERR) &&
	      !change(other, IBV_QPS_ERR));
	expect_flushed(1);
	CHECK(!ibv_start_poll(ex, &none) && ex->wr_id == 101 && !vb_destroy_qp(qp));
	CHECK(ex->wr_id == 101 && ibv_wc_read_opcode(ex) == IBV_WC_RECV); /* the entry being read stays */
	CHECK(!ibv_next_poll(ex) && ex->wr_id == 103 && ibv_next_poll(ex) == ENOENT);
	ibv_end_poll(ex);
	expect_flushed(3);
	expect_nothing();
	CHECK(!vb_destroy_qp(other) && !vb_destroy_cq(ibv_cq_ex_to_cq(ex)));
}

static void a_drained_queue_says_so(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
	struct vb_qp *q = vb_qp(qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1}, now;
	struct ibv_qp_init_attr init;
	struct ibv_async_event ev;

	to_state(qp, IBV_QPS_RTS);
	CHECK(!post_send(qp, 1, 0));
	q->sq_emit = q->sq_head; /* in flight */
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	CHECK(!vb_query_qp(qp, &now, 0, &init) && now.sq_draining && vb_get_async_event(o.ctx, &ev) == -1);
	CHECK(change(qp, IBV_QPS_RTS) == EINVAL); /* not yet */
	q->sq_una = q->sq_emit;
	vb_qp_check_drained(q);
	vb_qp_check_drained(q);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_SQ_DRAINED && ev.element.qp == qp);
	vb_ack_async_event(&ev);
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && !vb_query_qp(qp, &now, 0, &init) && !now.sq_draining);
	CHECK(!change(qp, IBV_QPS_RTS) && q->psn_next == 0x201 && !vb_destroy_qp(qp));
}

static void with_a_shared_queue_the_last_receive_is_told(void)
{
	struct ibv_srq_init_attr sa = {.attr = {4, 1, 0}};
	struct ibv_srq *srq = vb_create_srq(o.pd, &sa);
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, srq);
	struct ibv_async_event ev;

	CHECK(post_recv(qp, 101) == EINVAL);
	to_state(qp, IBV_QPS_RTS);
	CHECK(post_recv(qp, 101) == EINVAL && !change(qp, IBV_QPS_ERR) && !change(qp, IBV_QPS_ERR));
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && ev.element.qp == qp);
	vb_ack_async_event(&ev);
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && !vb_destroy_qp(qp) && !vb_destroy_srq(srq));
}

static void an_extended_queue_pair_is_refused_what_is_not_there(void)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = o.cq,
	                                .recv_cq = o.cq,
	                                .qp_type = IBV_QPT_UD,
	                                .pd = o.pd,
	                                .comp_mask = 0x41,
	                                .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ};

	CHECK(!vb_create_qp_ex(o.ctx, &a) && errno == EOPNOTSUPP);
	a.qp_type = IBV_QPT_RC;
	a.send_ops_flags = IBV_QP_EX_WITH_TSO;
	CHECK(!vb_create_qp_ex(o.ctx, &a) && errno == EOPNOTSUPP);
	a.send_ops_flags = 0;
	a.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
	CHECK(!vb_create_qp_ex(o.ctx, &a) && errno == EOPNOTSUPP);
	a.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; /* no PD */
	CHECK(!vb_create_qp_ex(o.ctx, &a) && errno == EINVAL);
	struct ibv_qp *plain = try_make((struct ibv_qp_cap){1, 1, 1, 1, 0}, IBV_QPT_RC);

	CHECK(!vb_qp_to_qp_ex(plain) && errno == EOPNOTSUPP && vb_qp_to_qp_ex(o.qp) && !vb_destroy_qp(plain));
}

static void a_program_sees_by_its_functions_whether_a_queue_pair_has_atomic_write_and_flush(void)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = o.cq,
	                                .recv_cq = o.cq,
	                                .qp_type = IBV_QPT_RC,
	                                .pd = o.pd,
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};

	for (int i = 0; i < 4; i++) {
		a.send_ops_flags = (i & 1 ? IBV_QP_EX_WITH_ATOMIC_WRITE : 0) | (i & 2 ? VB_IBV_QP_EX_WITH_FLUSH : 0);
		struct vb_qp *qp = (struct vb_qp *)vb_create_qp_ex(o.ctx, &a);

		CHECK(qp && !!qp->qpx.wr_atomic_write == (i & 1) && !!qp->qpx_newer.wr_flush == i >> 1);
		CHECK(qp->qpx.wr_rdma_write && !vb_destroy_qp(&qp->qp));
	}
}

/* Positions of requests go round after 2^32, and 2^31 requests without a limit are no credit. */
static void a_limit_begins_with_the_next_request(void)
{
	static const uint32_t positions[] = {0, 7, 0x7fffffff, 0x90000000, 0xffffffff};
	struct ibv_qp_rate_limit_attr limit = {.rate_limit = 8}, more = {.rate_limit = 16}, none = {0};

	for (size_t i = 0; i < sizeof(positions) / sizeof(positions[0]); i++) {
		struct ibv_qp *ibqp = make_qp(&o, IBV_QPT_RC, NULL);
		struct vb_qp *qp = vb_qp(ibqp);

		to_state(ibqp, IBV_QPS_RTS);
		qp->sq_una = qp->sq_emit = qp->sq_head = positions[i];
		CHECK(!vb_modify_qp_rate_limit(ibqp, &limit) && qp->rate.granted == positions[i]);
		qp->rate.granted += 3;
		CHECK(!vb_modify_qp_rate_limit(ibqp, &more) && qp->rate.granted == positions[i] + 3);
		CHECK(!vb_modify_qp_rate_limit(ibqp, &none) && !vb_modify_qp_rate_limit(ibqp, &limit));
		CHECK(qp->rate.granted == positions[i]);
		CHECK(!change(ibqp, IBV_QPS_RESET) && !qp->rate.kbps && !qp->attr.rate_limit);
		CHECK(!vb_destroy_qp(ibqp));
	}
}

/* 8 Mb/s and a burst of 4,000 bytes: four requests of 984 bytes and a header leave at once. */
static void a_limit_counts_what_leaves(void)
{
	struct ibv_qp_rate_limit_attr limit = {.rate_limit = 8000, .max_burst_sz = 4000, .typical_pkt_sz = 4000};
	struct ibv_qp *ibqp = make_qp(&o, IBV_QPT_RC, NULL);
	struct vb_qp *qp = vb_qp(ibqp);

	to_state(ibqp, IBV_QPS_RTS);
	CHECK(!vb_modify_qp_rate_limit(ibqp, &limit));
	for (uint32_t i = 0; i <= qp->sq_mask; i++)
		*vb_sq_at(qp, i) = (struct vb_swqe){.opcode = IBV_WR_SEND, .length = 984};
	qp->sq_head = 8;
	CHECK(vb_rate_grant(qp, 8) == 4 && qp->rate.due);
	/* the path lets one leave, and is blocked: as time passes, no more may follow at once */
	qp->sq_emit = 1;
	qp->rate.busy_until -= UINT64_C(100000000);
	CHECK(vb_rate_grant(qp, 8) == 4 && !qp->rate.due);
	CHECK(vb_rate_grant(qp, 3) == 3);
	qp->sq_emit = 4;
	CHECK(vb_rate_grant(qp, 8) == 8);
	/* what is flushed has cost nothing */
	qp->sq_emit = 5;
	qp->sq_una = 8;
	uint64_t busy = qp->rate.busy_until;

	vb_lock(&qp->node->progress);
	vb_lock(&qp->sq_lock);
	vb_qp_sq_error(qp);
	vb_unlock(&qp->sq_lock);
	vb_unlock(&qp->node->progress);
	CHECK(qp->rate.granted == 8 && qp->rate.busy_until == busy - UINT64_C(3000000) && qp->sq_emit == 8);
	/* what was counted under a higher limit has cost less */
	qp->sq_emit = 5;
	qp->rate.busy_until = 1;
	vb_rate_forget(qp);
	CHECK(!qp->rate.busy_until);
	qp->sq_head = qp->sq_emit = qp->sq_una = 0;
	CHECK(!vb_destroy_qp(ibqp));
}

static void *post_thirty(void *qp)
{
	for (uint64_t i = 0; i < 30;)
		i += !post_recv(qp, 100 + i); /* the program retries a full queue, which is soon flushed and polled */
	return NULL;
}

/* An old program's struct ends before the rate limit, and other data follows it. */
static void a_query_writes_no_further_than_an_old_program_has_room(void)
{
	const size_t old = offsetof(struct ibv_qp_attr, rate_limit);
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint8_t *bytes = (uint8_t *)&attr;

	memset(&attr, 0x5a, sizeof(attr));
	CHECK(!vb_query_qp(o.qp, &attr, (IBV_QP_DEST_QPN << 1) - 1, &init) && attr.qp_state == IBV_QPS_RESET &&
	      !attr.alt_timeout);
	for (size_t i = old; i < sizeof(attr); i++)
		CHECK(bytes[i] == 0x5a);
	CHECK(!vb_query_qp(o.qp, &attr, IBV_QP_RATE_LIMIT, &init) && !attr.rate_limit);
	/* nor read */
	CHECK(vb_modify_qp(o.qp, &attr, IBV_QP_STATE | IBV_QP_RATE_LIMIT) == EINVAL);
}

static void every_receive_completes_once_whoever_comes_first(void)
{
	struct ibv_wc wc;

	fake.threads = true;
	for (int round = 0; round < 200; round++) {
		struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
		pthread_t thread;

		to_state(qp, IBV_QPS_RTS);
		pthread_create(&thread, NULL, post_thirty, qp);
		for (volatile int spin = 0; spin < round * 50; spin++)
			;
		CHECK(!change(qp, IBV_QPS_ERR));
		for (uint64_t i = 0; i < 30; i++) {
			while (!vb_poll_cq(o.cq, 1, &wc))
				sched_yield();
			CHECK(wc.wr_id == 100 + i && wc.status == IBV_WC_WR_FLUSH_ERR);
		}
		pthread_join(thread, NULL);
		expect_nothing();
		CHECK(!vb_destroy_qp(qp));
	}
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK));
	RUN(the_state_says_error_before_a_completion_does);
	RUN(capabilities_are_rounded_up_or_refused);
	RUN(numbers_are_of_our_lane_and_not_used_again_soon);
	RUN(a_queue_pair_of_128_costs_less_than_18_kilobytes);
	RUN(a_queue_pair_holds_what_it_is_made_of);
	RUN(the_way_to_rts_publishes_what_peers_need);
	RUN(values_out_of_range_change_nothing);
	RUN(a_lid_stands_for_an_address_and_is_told_as_it_was_set);
	RUN(a_path_mtu_above_the_active_one_is_refused);
	RUN(each_value_has_its_limit);
	RUN(posting_depends_on_the_state);
	RUN(an_error_flushes_sends_then_receives_in_order);
	RUN(a_send_queue_error_leaves_the_receives);
	RUN(a_reset_forgets_everything);
	RUN(a_queue_pair_that_is_destroyed_takes_its_completions_along);
	RUN(a_drained_queue_says_so);
	RUN(with_a_shared_queue_the_last_receive_is_told);
	RUN(an_extended_queue_pair_is_refused_what_is_not_there);
	RUN(a_program_sees_by_its_functions_whether_a_queue_pair_has_atomic_write_and_flush);
	RUN(a_limit_begins_with_the_next_request);
	RUN(a_limit_counts_what_leaves);
	RUN(a_query_writes_no_further_than_an_old_program_has_room);
	RUN(every_receive_completes_once_whoever_comes_first);
	fake.nodes = nodes;
	close_objects(&o);
}
