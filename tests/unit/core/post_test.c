// post_test.c - posting sends with ibv_post_send and with the ibv_wr_ functions
// follows: IBA volume 1, 11.4.1.1; ibv_post_send(3), ibv_wr_post(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/sq.h"

static struct objects o;
static char buf[128] = "the quick brown fox jumps over the lazy dog, again and again and again and again";
static struct ibv_sge sges[3] = {{0, 10, 1}, {0, 20, 2}, {0, 30, 3}};

static struct ibv_qp *ready(enum ibv_qp_type type)
{
	struct ibv_qp *qp = make_qp(&o, type, NULL);

	to_state(qp, IBV_QPS_RTS);
	return qp;
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, unsigned flags, int num_sge)
{
	return (struct ibv_send_wr){
	        .wr_id = 1, .sg_list = sges, .num_sge = num_sge, .opcode = opcode, .send_flags = flags};
}

static int post(struct ibv_qp *qp, struct ibv_send_wr wr)
{
	struct ibv_send_wr *bad = NULL;
	int err = vb_post_send(qp, &wr, &bad);

	CHECK(!err || bad == &wr);
	return err;
}

static struct vb_swqe *last(struct ibv_qp *qp)
{
	return vb_sq_at(vb_qp(qp), vb_qp(qp)->sq_head - 1);
}

static void requests_that_cannot_be_are_refused(void)
{
	struct ibv_qp *rc = ready(IBV_QPT_RC), *uc = ready(IBV_QPT_UC), *ud = ready(IBV_QPT_UD);

	CHECK(post(rc, request(IBV_WR_SEND, 0, 3)) == EINVAL && post(rc, request(IBV_WR_SEND, 0, -1)) == EINVAL);
	/* no window */
	CHECK(post(rc, request(IBV_WR_BIND_MW, 0, 0)) == EINVAL && post(rc, request(IBV_WR_TSO, 0, 0)) == EINVAL);
	CHECK(post(rc, request(IBV_WR_DRIVER1, 0, 0)) == EINVAL && post(rc, request(-1, 0, 0)) == EINVAL &&
	      post(rc, request(99, 0, 0)) == EINVAL);
	CHECK(post(uc, request(IBV_WR_RDMA_READ, 0, 1)) == EINVAL &&
	      post(uc, request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1)) == EINVAL);
	CHECK(post(uc, request(IBV_WR_SEND_WITH_INV, 0, 1)) == EINVAL &&
	      !post(uc, request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1)));
	/* no handle */
	CHECK(post(ud, request(IBV_WR_RDMA_WRITE, 0, 1)) == EINVAL && post(ud, request(IBV_WR_SEND, 0, 1)) == EINVAL);
	CHECK(post(rc, request(IBV_WR_RDMA_READ, IBV_SEND_INLINE, 1)) == EINVAL);
	CHECK(vb_qp(rc)->sq_head == 0 && fake.kicks);
	CHECK(!vb_destroy_qp(rc) && !vb_destroy_qp(uc) && !vb_destroy_qp(ud));
}

static void what_precedes_the_bad_one_is_posted(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC);
	struct ibv_send_wr wr[3], *bad = NULL;
	int before = fake.kicks;

	for (int i = 0; i < 3; i++) {
		wr[i] = request(i == 1 ? IBV_WR_TSO : IBV_WR_SEND, 0, 1);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	CHECK(vb_post_send(qp, wr, &bad) == EINVAL && bad == &wr[1] && vb_qp(qp)->sq_head == 1 &&
	      fake.kicks == before + 1);
	CHECK(!vb_destroy_qp(qp));
}

static void a_full_queue_says_so_until_there_is_room(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC);

	for (int i = 0; i < 8; i++)
		CHECK(!post(qp, request(IBV_WR_SEND, 0, 1)));
	CHECK(post(qp, request(IBV_WR_SEND, 0, 1)) == ENOMEM);
	vb_qp(qp)->sq_una++;
	CHECK(!post(qp, request(IBV_WR_SEND, 0, 1)) && post(qp, request(IBV_WR_SEND, 0, 1)) == ENOMEM);
	CHECK(!vb_destroy_qp(qp));
}

static void inline_data_is_taken_when_posted(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC);
	struct ibv_sge s[2] = {{(uintptr_t)buf, 4, 0}, {(uintptr_t)buf + 10, 60, 0}};
	struct ibv_send_wr wr = {.sg_list = s, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};

	CHECK(!post(qp, wr));
	CHECK(last(qp)->length == 64 && last(qp)->num_sge == 0 && last(qp)->flags & IBV_SEND_INLINE);
	CHECK(!memcmp(vb_sq_inline(vb_qp(qp), 0), buf, 4) && !memcmp(vb_sq_inline(vb_qp(qp), 0) + 4, buf + 10, 60));
	s[0].length = 5;
	CHECK(post(qp, wr) == EINVAL);
	wr.num_sge = 0;
	CHECK(!post(qp, wr) && last(qp)->length == 0);
	CHECK(!vb_destroy_qp(qp));
}

static void psns_follow_each_other(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC);

	vb_qp(qp)->psn_next = 0xffffff;
	CHECK(!post(qp, request(IBV_WR_SEND, 0, 1)) && last(qp)->psn == 0xffffff);
	CHECK(!post(qp, request(IBV_WR_SEND, 0, 1)) && last(qp)->psn == 0 && last(qp)->state == VB_SWQE_POSTED);
	CHECK(!vb_destroy_qp(qp));
}

static void a_message_that_is_too_long_fails_in_its_turn(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC), *ud = ready(IBV_QPT_UD);
	struct ibv_sge s[2] = {{0, VB_MAX_MSG_SZ, 1}, {0, 1, 1}};
	struct ibv_send_wr wr = {.sg_list = s, .num_sge = 1, .opcode = IBV_WR_SEND};
	struct vb_ah ah = {0};

	CHECK(!post(qp, wr) && last(qp)->state == VB_SWQE_POSTED);
	wr.num_sge = 2;
	fake.kick_completes = true;
	CHECK(!post(qp, wr) && last(qp)->state == VB_SWQE_DONE && last(qp)->status == IBV_WC_LOC_LEN_ERR &&
	      fake.settles == 1);
	fake.kick_completes = false;
	s[0].length = 1024; /* the port's MTU */
	wr.num_sge = 1;
	wr.wr.ud.ah = &ah.ah;
	CHECK(!post(ud, wr) && last(ud)->state == VB_SWQE_POSTED);
	wr.num_sge = 2;
	CHECK(!post(ud, wr) && last(ud)->status == IBV_WC_LOC_LEN_ERR);
	CHECK(!vb_destroy_qp(qp) && !vb_destroy_qp(ud));
}

static void completions_are_asked_for_or_always_made(void)
{
	struct ibv_qp_init_attr a = {
	        .send_cq = o.cq, .recv_cq = o.cq, .cap = {4, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct ibv_qp *all = vb_create_qp(o.pd, &a), *qp = ready(IBV_QPT_RC);

	to_state(all, IBV_QPS_RTS);
	CHECK(!post(all, request(IBV_WR_SEND, 0, 1)) && last(all)->flags == IBV_SEND_SIGNALED);
	CHECK(!post(qp, request(IBV_WR_SEND, IBV_SEND_FENCE, 1)) && last(qp)->flags == IBV_SEND_FENCE);
	CHECK(!vb_destroy_qp(all) && !vb_destroy_qp(qp));
}

/* --- the ibv_wr_ functions, compared with ibv_post_send --- */

static void same_entries(struct ibv_qp *a, struct ibv_qp *b)
{
	const struct vb_swqe *x = last(a), *y = last(b);
	const struct vb_wr_info *info = vb_wr_lookup(x->opcode);

	CHECK(x->wr_id == y->wr_id && x->opcode == y->opcode && x->flags == y->flags && x->state == y->state &&
	      x->status == y->status);
	CHECK(x->length == y->length && x->num_sge == y->num_sge && x->psn == y->psn);
	if (info->flags & VB_WR_REMOTE)
		CHECK(x->remote_addr == y->remote_addr && x->rkey == y->rkey);
	if (info->flags & (VB_WR_IMM | VB_WR_INV | VB_WR_BIND))
		CHECK(x->imm == y->imm);
	if (info->flags & VB_WR_BIND) {
		const struct ibv_sge *p = vb_sq_sges(vb_qp(a), vb_qp(a)->sq_head - 1),
		                     *q = vb_sq_sges(vb_qp(b), vb_qp(b)->sq_head - 1);

		CHECK(x->rkey == 0x79 && x->rkey == y->rkey && x->remote_addr == 0xc000 &&
		      x->remote_addr == y->remote_addr && x->compare_add == 0x100000000 &&
		      x->compare_add == y->compare_add && !x->num_sge && !x->length);
		CHECK(p->lkey == 0x9876 && p->lkey == q->lkey && p->length == IBV_ACCESS_REMOTE_READ &&
		      p->length == q->length);
	}
	if (info->flags & VB_WR_ATOMIC)
		CHECK(x->compare_add == y->compare_add && x->swap == y->swap);
	if (a->qp_type == IBV_QPT_UD)
		CHECK(x->ah == y->ah && x->ud_qpn == y->ud_qpn && x->ud_qkey == y->ud_qkey);
	if (x->flags & IBV_SEND_INLINE)
		CHECK(!memcmp(vb_sq_inline(vb_qp(a), vb_qp(a)->sq_head - 1),
		              vb_sq_inline(vb_qp(b), vb_qp(b)->sq_head - 1), x->length));
	for (int i = 0; i < x->num_sge; i++)
		CHECK(!memcmp(&vb_sq_sges(vb_qp(a), vb_qp(a)->sq_head - 1)[i],
		              &vb_sq_sges(vb_qp(b), vb_qp(b)->sq_head - 1)[i], sizeof(struct ibv_sge)));
}

static void build(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	x->wr_id = wr->wr_id;
	x->wr_flags = wr->send_flags & ~(unsigned)IBV_SEND_INLINE;
	switch ((int)wr->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(x, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(x, wr->invalidate_rkey);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(x, wr->invalidate_rkey);
		return;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(x, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(x, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add,
		                      wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(x, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	}
}

static void attach(struct ibv_qp_ex *x, const struct ibv_send_wr *wr)
{
	struct ibv_data_buf data[2];

	if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_BIND_MW)
		return;
	for (int i = 0; i < wr->num_sge; i++)
		data[i] = (struct ibv_data_buf){(void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length};
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data_list(x, wr->num_sge, data);
	else if (wr->num_sge == 1)
		ibv_wr_set_sge(x, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	else
		ibv_wr_set_sge_list(x, wr->num_sge, wr->sg_list);
	if (x->qp_base.qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(x, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
}

static void fill_address(struct ibv_send_wr *wr, const struct vb_wr_info *info, bool ud)
{
	static struct vb_ah ah;
	static struct ibv_mw mw = {.rkey = 0x4567, .type = IBV_MW_TYPE_2};
	static struct ibv_mr mr = {.lkey = 0x9876};

	if (info->flags & (VB_WR_IMM | VB_WR_INV))
		wr->imm_data = 0x1234567;
	if (info->flags & VB_WR_ATOMIC) {
		wr->wr.atomic.remote_addr = 0xa000;
		wr->wr.atomic.rkey = 0x77;
		wr->wr.atomic.compare_add = 5;
		wr->wr.atomic.swap = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? 6 : 0;
	} else if (info->flags & VB_WR_REMOTE) {
		wr->wr.rdma.remote_addr = 0xb000;
		wr->wr.rdma.rkey = 0x78;
	} else if (info->flags & VB_WR_BIND) {
		wr->bind_mw.mw = &mw;
		wr->bind_mw.rkey = 0x79;
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){&mr, 0xc000, 0x100000000, IBV_ACCESS_REMOTE_READ};
	} else if (ud) {
		wr->wr.ud.ah = &ah.ah;
		wr->wr.ud.remote_qpn = 0xff000009;
		wr->wr.ud.remote_qkey = 0x80000000;
	}
}

static void builders_post_what_post_send_posts(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	int compared = 0;

	for (int t = 0; t < 3; t++)
		for (int op = 0; op < VB_WR_OPCODES; op++)
			for (int variant = 0; variant < 6; variant++) {
				struct ibv_sge s[2] = {{(uintptr_t)buf, 11, 3}, {(uintptr_t)buf + 20, 13, 4}};
				bool in_line = variant >= 3;
				const struct vb_wr_info *info = vb_wr_lookup(op);
				struct ibv_send_wr wr = {.wr_id = 99,
				                         .sg_list = s,
				                         .num_sge = variant % 3,
				                         .opcode = op,
				                         .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED |
				                                       (in_line ? IBV_SEND_INLINE : 0)};

				if (!(info->qp_types & VB_QPT_BIT(types[t])) ||
				    (in_line && !(info->flags & VB_WR_PAYLOAD)))
					continue;
				if (op == IBV_WR_LOCAL_INV || op == IBV_WR_BIND_MW)
					wr.num_sge = 0;
				fill_address(&wr, info, types[t] == IBV_QPT_UD);
				struct ibv_qp *a = ready(types[t]), *b = ready(types[t]);
				struct ibv_qp_ex *x = vb_qp_to_qp_ex(b);

				CHECK(!post(a, wr));
				ibv_wr_start(x);
				build(x, &wr);
				attach(x, &wr);
				CHECK(!ibv_wr_complete(x));
				same_entries(a, b);
				CHECK(!vb_destroy_qp(a) && !vb_destroy_qp(b));
				compared++;
			}
	CHECK(compared > 70);
}

static void an_error_aborts_the_whole_batch(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC), *ud = ready(IBV_QPT_UD);
	struct ibv_qp_ex *x = vb_qp_to_qp_ex(qp);

	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_sge(x, 1, 0, 8);
	ibv_wr_bind_mw(x, NULL, 0, NULL);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL && !vb_qp(qp)->sq_head);
	ibv_wr_start(x);
	ibv_wr_send_tso(x, NULL, 0, 0);
	CHECK(ibv_wr_complete(x) == EOPNOTSUPP && !vb_qp(qp)->sq_head);
	ibv_wr_start(x);
	ibv_wr_set_sge(x, 1, 0, 8); /* of 0 bytes */
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	for (int i = 0; i < 9; i++)
		ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == ENOMEM && !vb_qp(qp)->sq_head);
	ibv_wr_start(x);
	ibv_wr_rdma_read(x, 1, 0);
	ibv_wr_set_inline_data(x, buf, 8);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_inline_data(x, buf, 65);
	CHECK(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	ibv_wr_start(x);
	for (int i = 0; i < 8; i++)
		ibv_wr_send(x);
	CHECK(!ibv_wr_complete(x) && vb_qp(qp)->sq_head == 8);
	x = vb_qp_to_qp_ex(ud);
	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL); /* without a destination */
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, 1, 1);
	CHECK(ibv_wr_complete(x) == EOPNOTSUPP && !vb_destroy_qp(qp) && !vb_destroy_qp(ud));
}

static void builders_know_the_state(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_RC, NULL);
	struct ibv_qp_ex *x = vb_qp_to_qp_ex(qp);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct ibv_wc wc;

	ibv_wr_start(x);
	ibv_wr_send(x);
	CHECK(ibv_wr_complete(x) == EINVAL);
	to_state(qp, IBV_QPS_RTS);
	CHECK(!vb_modify_qp(qp, &a, IBV_QP_STATE));
	ibv_wr_start(x);
	x->wr_id = 5;
	ibv_wr_send(x);
	CHECK(!ibv_wr_complete(x) && vb_poll_cq(o.cq, 1, &wc) == 1 && wc.wr_id == 5 &&
	      wc.status == IBV_WC_WR_FLUSH_ERR);
	CHECK(!vb_destroy_qp(qp));
}

static void *build_many(void *qp)
{
	struct ibv_qp_ex *x = vb_qp_to_qp_ex(qp);

	for (int i = 0; i < 20000; i++) {
		ibv_wr_start(x);
		x->wr_id = 1;
		ibv_wr_send(x);
		ibv_wr_set_inline_data(x, buf, 8);
		ibv_wr_send(x);
		ibv_wr_set_inline_data(x, buf, 16);
		CHECK(!ibv_wr_complete(x));
	}
	return NULL;
}

static void both_ways_of_posting_may_meet(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC);
	pthread_t thread;

	fake.threads = true;
	fake.kick_completes = true;
	pthread_create(&thread, NULL, build_many, qp);
	for (int i = 0; i < 40000; i++)
		CHECK(!post(qp, request(IBV_WR_SEND, 0, 1)));
	pthread_join(thread, NULL);
	CHECK(vb_qp(qp)->sq_head == 80000 && vb_qp(qp)->sq_una == 80000 && vb_qp(qp)->psn_next == 0x200 + 80000);
	CHECK(!vb_destroy_qp(qp));
}

/* Not a test of speed, because machines differ. Prints the cost of a small inline send before it reaches the path. */
static void a_small_send_is_cheap(void)
{
	struct ibv_qp *qp = ready(IBV_QPT_RC);
	struct ibv_sge s = {(uintptr_t)buf, 8, 0};
	struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE},
	                   *bad;
	uint64_t t = vb_now();
	int n = 1000000;

	fake.kick_completes = true;
	for (int i = 0; i < n; i++)
		CHECK(!vb_post_send(qp, &wr, &bad));
	printf("# %.1f ns each, with a path that completes at once\n", (double)(vb_now() - t) / n);
	CHECK(!vb_destroy_qp(qp));
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	for (int i = 0; i < 3; i++)
		sges[i].addr = (uintptr_t)buf;
	RUN(requests_that_cannot_be_are_refused);
	RUN(what_precedes_the_bad_one_is_posted);
	RUN(a_full_queue_says_so_until_there_is_room);
	RUN(inline_data_is_taken_when_posted);
	RUN(psns_follow_each_other);
	RUN(a_message_that_is_too_long_fails_in_its_turn);
	RUN(completions_are_asked_for_or_always_made);
	RUN(builders_post_what_post_send_posts);
	RUN(an_error_aborts_the_whole_batch);
	RUN(builders_know_the_state);
	RUN(both_ways_of_posting_may_meet);
	RUN(a_small_send_is_cheap);
	fake.nodes = nodes;
	close_objects(&o);
}
