// mw_test.c - memory windows: what a bound window opens, which binds are refused, and how a binding ends
// follows: IBA volume 1, 10.6 (memory windows); ibv_alloc_mw(3), ibv_bind_mw(3), ibv_dereg_mr(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/buffer.h"
#include "core/mr.h"
#include "core/mw.h"
#include "core/pd.h"
#include "core/sq.h"

static char buf[8192] __attribute__((aligned(4096)));
#define BASE ((uint64_t)(uintptr_t)buf)
#define LW IBV_ACCESS_LOCAL_WRITE
#define RW IBV_ACCESS_REMOTE_WRITE
#define RR IBV_ACCESS_REMOTE_READ
#define ZB IBV_ACCESS_ZERO_BASED

static struct objects o;

static struct ibv_qp *ready(const struct objects *of, enum ibv_qp_type type)
{
	struct ibv_qp *qp = make_qp(of, type, NULL);

	to_state(qp, IBV_QPS_RTS);
	fake.kick_completes = true;
	return qp;
}

static struct ibv_mr *reg(unsigned access)
{
	return vb_reg_mr(o.pd, buf, 4096, access & ZB ? 0 : BASE, access);
}

static bool opens(struct ibv_qp *qp, uint32_t key, uint64_t addr, uint64_t len, uint32_t access)
{
	uint64_t va;

	return vb_own_memory(vb_qp(qp), key, addr, len, access, &va);
}

static void settle(void)
{
	vb_lock(&fake_node.progress);
	vb_mw_settle(&fake_node);
	vb_unlock(&fake_node.progress);
}

/* Executes the last request, once. */
static enum vb_mw_result execute(struct ibv_qp *ibqp)
{
	struct vb_qp *qp = vb_qp(ibqp);

	vb_lock(&qp->sq_lock);
	enum vb_mw_result r = vb_mw_execute(qp, vb_sq_at(qp, qp->sq_head - 1));

	vb_unlock(&qp->sq_lock);
	return r;
}

static enum vb_mw_result to_end(struct ibv_qp *qp)
{
	enum vb_mw_result r = execute(qp);

	for (int i = 0; i < 3 && r == VB_MW_LATER; i++) {
		settle();
		r = execute(qp);
	}
	return r;
}

static struct ibv_mw_bind_info part(struct ibv_mr *mr, uint64_t addr, uint64_t length, unsigned access)
{
	return (struct ibv_mw_bind_info){mr, addr, length, access};
}

static int post_bind(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t rkey, struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .bind_mw = {mw, rkey, info}}, *bad;

	return vb_post_send(qp, &wr, &bad);
}

/* A bind of type 2, with the low byte of the new key. */
static bool binds(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t byte, struct ibv_mw_bind_info info)
{
	CHECK(!post_bind(qp, mw, byte, info));
	enum vb_mw_result r = to_end(qp);

	CHECK(r != VB_MW_LATER);
	return r == VB_MW_DONE;
}

static uint32_t key_of(const struct ibv_mw *mw, uint32_t byte)
{
	return (mw->rkey & ~0xffu) | byte;
}

static bool binds_1(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind_info info)
{
	struct ibv_mw_bind bind = {.bind_info = info};

	CHECK(!vb_bind_mw(qp, mw, &bind));
	return to_end(qp) == VB_MW_DONE;
}

static bool invalidates(struct ibv_qp *qp, uint32_t key)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key}, *bad;

	CHECK(!vb_post_send(qp, &wr, &bad));
	return to_end(qp) == VB_MW_DONE;
}

static void a_window_opens_its_part_of_a_region_and_no_more(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);
	uint64_t va;

	CHECK(mw && mw->pd == o.pd && mw->context == o.ctx && mw->type == IBV_MW_TYPE_2 && mw->rkey >> 8);
	CHECK(!opens(qp, mw->rkey, BASE, 1, 0));
	CHECK(binds(qp, mw, 0x5a, part(mr, BASE + 100, 50, LW | RW)));
	uint32_t key = key_of(mw, 0x5a);

	CHECK(vb_own_memory(vb_qp(qp), key, BASE + 100, 50, RW, &va) && va == BASE + 100);
	CHECK(opens(qp, key, BASE + 149, 1, RW) && !opens(qp, key, BASE + 149, 2, RW));
	CHECK(!opens(qp, key, BASE + 99, 1, RW) && !opens(qp, key, BASE + 150, 1, RW) &&
	      !opens(qp, key, BASE + 101, ~0ull, RW));
	CHECK(!opens(qp, key, BASE + 100, 1, RR) && !opens(qp, key, BASE + 100, 1, RW | RR));
	CHECK(!opens(qp, key ^ 1, BASE + 100, 1, RW) && !opens(qp, mr->rkey, BASE + 100, 1, RW));
	CHECK(!vb_mr_check_local(&fake_node, o.pd->handle, key, BASE + 100, 1, 0, &va)); /* it is no local key */
	CHECK(!vb_mr_check_local(&fake_node, 0, key, BASE + 100, 1, RW | LW, &va));
	CHECK(!vb_dealloc_mw(mw) && !vb_dereg_mr(mr) && !vb_destroy_qp(qp));
}

static void a_zero_based_window_begins_at_0(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = vb_alloc_mw(o.pd, IBV_MW_TYPE_2), *first = vb_alloc_mw(o.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.bind_info = part(mr, BASE, 8, RR | ZB)};
	uint64_t va;

	CHECK(binds(qp, mw, 1, part(mr, BASE + 4000, 96, RR | ZB)));
	CHECK(vb_own_memory(vb_qp(qp), key_of(mw, 1), 10, 86, RR, &va) && va == BASE + 4010);
	CHECK(!opens(qp, key_of(mw, 1), 10, 87, RR) && !opens(qp, key_of(mw, 1), BASE + 4000, 1, RR));
	CHECK(vb_bind_mw(qp, first, &bind) == EINVAL);
	CHECK(!vb_dealloc_mw(mw) && !vb_dealloc_mw(first) && !vb_dereg_mr(mr) && !vb_destroy_qp(qp));
}

static void a_window_of_type_2_serves_the_queue_pair_that_bound_it(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC), *other = ready(&o, IBV_QPT_UC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *one = vb_alloc_mw(o.pd, IBV_MW_TYPE_1), *two = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);
	struct objects there = o;
	uint32_t was = one->rkey;

	there.pd = vb_alloc_pd(o.ctx);
	struct ibv_qp *apart = ready(&there, IBV_QPT_RC);

	CHECK(binds(qp, two, 7, part(mr, BASE, 8, RW)));
	CHECK(binds_1(other, one, part(mr, BASE, 8, RW)) && one->rkey != was &&
	      !((one->rkey ^ was) >> VB_KEY_TAG_BITS));
	CHECK(opens(qp, key_of(two, 7), BASE, 8, RW) && !opens(other, key_of(two, 7), BASE, 8, RW));
	CHECK(opens(qp, one->rkey, BASE, 8, RW) && opens(other, one->rkey, BASE, 8, RW));
	CHECK(!opens(apart, key_of(two, 7), BASE, 8, RW) && !opens(apart, one->rkey, BASE, 8, RW));
	CHECK(!vb_dealloc_mw(one) && !vb_dealloc_mw(two) && !vb_dereg_mr(mr));
	CHECK(!vb_destroy_qp(qp) && !vb_destroy_qp(other) && !vb_destroy_qp(apart) && !vb_dealloc_pd(there.pd));
}

static void binds_that_the_specification_forbids_fail(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC), *uc = ready(&o, IBV_QPT_UC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND), *closed = reg(LW | RW), *ro = reg(IBV_ACCESS_MW_BIND),
	              *zero = reg(LW | IBV_ACCESS_MW_BIND | ZB);
	struct objects there = o;
	struct ibv_mw *mw = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);

	there.pd = vb_alloc_pd(o.ctx);
	struct ibv_mw *far = vb_alloc_mw(there.pd, IBV_MW_TYPE_2);
	struct ibv_mr *far_mr = vb_reg_mr(there.pd, buf, 4096, BASE, LW | IBV_ACCESS_MW_BIND);
	struct ibv_qp *far_qp = ready(&there, IBV_QPT_RC);

	/* C10-72: the protection domain of all three */
	CHECK(!binds(qp, far, 1, part(mr, BASE, 8, RW)) && !binds(qp, mw, 1, part(far_mr, BASE, 8, RW)) &&
	      !binds(far_qp, mw, 1, part(mr, BASE, 8, RW)) && !binds(qp, far, 1, part(far_mr, BASE, 8, RW)));
	CHECK(!binds(qp, mw, 1, part(closed, BASE, 8, RW)));                        /* C10-73 */
	CHECK(!binds(qp, mw, 1, part(ro, BASE, 8, RW)) &&                           /* C10-74 */
	      !binds(qp, mw, 1, part(ro, BASE, 8, IBV_ACCESS_REMOTE_ATOMIC | RR))); /* */
	CHECK(!binds(qp, mw, 1, part(zero, 0, 8, RW)));                             /* a zero-based region */
	CHECK(!binds(qp, mw, 1, part(mr, BASE - 1, 8, RW)) &&                       /* C10-75 */
	      !binds(qp, mw, 1, part(mr, BASE + 4089, 8, RW)) && !binds(qp, mw, 1, part(mr, BASE, 4097, RW)) &&
	      !binds(qp, mw, 1, part(mr, BASE + 1, ~0ull, RW)) && !binds(qp, mw, 1, part(mr, 0, 8, RW)));
	CHECK(!binds(qp, mw, 1, part(mr, BASE, 0, RW)) && !binds(qp, mw, 1, part(NULL, 0, 0, 0)) && /* o10-37.2.40 */
	      !binds(qp, mw, 1, part(NULL, BASE, 8, RW)));
	CHECK(binds(qp, mw, 1, part(ro, BASE, 8, RR)) && !binds(qp, mw, 2, part(mr, BASE, 8, RW)) && /* o10-37.2.30 */
	      !binds(uc, mw, 2, part(mr, BASE, 8, RW)) && opens(qp, key_of(mw, 1), BASE, 8, RR));
	struct ibv_mw gone = *far;

	CHECK(!vb_dealloc_mw(far) && !binds(far_qp, &gone, 1, part(far_mr, BASE, 8, RW)));
	CHECK(!vb_dealloc_mw(mw) && !vb_dereg_mr(mr) && !vb_dereg_mr(closed) && !vb_dereg_mr(ro) &&
	      !vb_dereg_mr(zero) && !vb_dereg_mr(far_mr));
	CHECK(!vb_destroy_qp(qp) && !vb_destroy_qp(uc) && !vb_destroy_qp(far_qp) && !vb_dealloc_pd(there.pd));
}

static void requests_that_make_no_sense_are_not_posted(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC), *ud = ready(&o, IBV_QPT_UD), *idle = make_qp(&o, IBV_QPT_RC, NULL);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *one = vb_alloc_mw(o.pd, IBV_MW_TYPE_1), *two = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);
	struct ibv_pd *other = vb_alloc_pd(o.ctx);
	struct ibv_mw *far = vb_alloc_mw(other, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.bind_info = part(mr, BASE, 8, RW)}, none = {.bind_info = part(NULL, BASE, 8, RW)};
	uint32_t key = one->rkey;

	CHECK(post_bind(qp, NULL, 1, bind.bind_info) == EINVAL && post_bind(qp, one, 1, bind.bind_info) == EINVAL &&
	      post_bind(ud, two, 1, bind.bind_info) == EINVAL && post_bind(idle, two, 1, bind.bind_info) == EINVAL);
	CHECK(post_bind(qp, two, 1, part(mr, BASE, 8, 1u << 30)) == EINVAL);
	CHECK(vb_bind_mw(qp, two, &bind) == EINVAL && vb_bind_mw(ud, one, &bind) == EINVAL &&
	      vb_bind_mw(idle, one, &bind) == EINVAL && vb_bind_mw(qp, one, &none) == EINVAL);
	CHECK(vb_bind_mw(qp, far, &bind) == EPERM && one->rkey == key);
	fake.kick_completes = false;
	for (int i = 0; i < 8; i++)
		CHECK(!vb_bind_mw(qp, one, &bind) && one->rkey != key);
	key = one->rkey;
	CHECK(vb_bind_mw(qp, one, &bind) == ENOMEM && one->rkey == key);
	CHECK(!vb_alloc_mw(o.pd, 3) && errno == EINVAL && !vb_alloc_mw(o.pd, 0) && errno == EINVAL);
	CHECK(!vb_dealloc_mw(one) && !vb_dealloc_mw(two) && vb_dealloc_pd(other) == EBUSY && !vb_dealloc_mw(far) &&
	      !vb_dealloc_pd(other));
	CHECK(!vb_dereg_mr(mr) && !vb_destroy_qp(qp) && !vb_destroy_qp(ud) && !vb_destroy_qp(idle));
}

static void each_bind_of_type_1_gives_a_new_key_and_ends_the_old_one(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND), *closed = reg(LW);
	struct ibv_mw *mw = vb_alloc_mw(o.pd, IBV_MW_TYPE_1);
	uint32_t keys[100];

	for (int i = 0; i < 100; i++) {
		CHECK(binds_1(qp, mw, part(mr, BASE + (uint64_t)i, 8, RW)));
		keys[i] = mw->rkey;
		CHECK(opens(qp, mw->rkey, BASE + (uint64_t)i, 8, RW) && (!i || keys[i] != keys[i - 1]));
		CHECK(!i || !opens(qp, keys[i - 1], BASE + (uint64_t)i, 1, RW));
	}
	CHECK(!binds_1(qp, mw, part(closed, BASE, 8, RW))); /* fails: the binding stays; the program restores the key */
	mw->rkey = keys[99];
	CHECK(opens(qp, keys[99], BASE + 99, 8, RW) && vb_dereg_mr(mr) == EBUSY);
	CHECK(binds_1(qp, mw, part(mr, BASE, 0, 0)) && !opens(qp, keys[99], BASE + 99, 1, RW)); /* unbinds */
	CHECK(!opens(qp, mw->rkey, BASE, 0, 0) && binds_1(qp, mw, part(NULL, 0, 0, 0)));
	CHECK(!vb_dereg_mr(mr) && !vb_dereg_mr(closed) && !vb_dealloc_mw(mw) && !vb_destroy_qp(qp));
}

static void a_region_with_a_bound_window_stays(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | RW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *a = vb_alloc_mw(o.pd, IBV_MW_TYPE_2), *b = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);

	CHECK(binds(qp, a, 1, part(mr, BASE, 8, RW)) && binds(qp, b, 1, part(mr, BASE + 8, 8, RW)));
	CHECK(vb_dereg_mr(mr) == EBUSY && vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW) == EBUSY);
	CHECK(!invalidates(qp, mr->rkey) && vb_mw_invalidate_sent(vb_qp(qp), mr->rkey) == EBUSY);
	CHECK(opens(qp, mr->rkey, BASE, 8, RW) && opens(qp, key_of(a, 1), BASE, 8, RW));
	CHECK(invalidates(qp, key_of(a, 1)) && vb_dereg_mr(mr) == EBUSY && invalidates(qp, key_of(b, 1)));
	CHECK(!opens(qp, key_of(a, 1), BASE, 1, RW) && !vb_dereg_mr(mr));
	CHECK(!vb_dealloc_mw(a) && !vb_dealloc_mw(b) && !vb_destroy_qp(qp));
}

static void only_its_queue_pair_invalidates_a_window_and_only_of_type_2(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC), *other = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *one = vb_alloc_mw(o.pd, IBV_MW_TYPE_1), *two = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);

	CHECK(binds_1(qp, one, part(mr, BASE, 8, RW)) && binds(qp, two, 9, part(mr, BASE, 8, 0)));
	CHECK(!invalidates(qp, one->rkey) && vb_mw_invalidate_sent(vb_qp(qp), one->rkey) == EACCES);
	CHECK(!invalidates(other, key_of(two, 9)) && vb_mw_invalidate_sent(vb_qp(other), key_of(two, 9)) == EACCES);
	CHECK(!invalidates(qp, key_of(two, 8)) && vb_mw_invalidate_sent(vb_qp(qp), key_of(two, 8)) == EACCES);
	CHECK(opens(qp, one->rkey, BASE, 8, RW) && opens(qp, key_of(two, 9), BASE, 8, 0));
	CHECK(!vb_mw_invalidate_sent(vb_qp(qp), key_of(two, 9)) && !opens(qp, key_of(two, 9), BASE, 1, 0));
	CHECK(vb_mw_invalidate_sent(vb_qp(qp), key_of(two, 9)) == EACCES && !invalidates(qp, key_of(two, 9)));
	CHECK(binds(qp, two, 9, part(mr, BASE, 8, RW)) && invalidates(qp, key_of(two, 9)) &&
	      binds(other, two, 10, part(mr, BASE, 8, RW)) && opens(other, key_of(two, 10), BASE, 8, RW));
	CHECK(!vb_dealloc_mw(one) && !vb_dealloc_mw(two) && !vb_dereg_mr(mr) && !vb_destroy_qp(qp) &&
	      !vb_destroy_qp(other));
}

static void an_end_waits_for_copies_in_progress(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *one = vb_alloc_mw(o.pd, IBV_MW_TYPE_1), *two = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr inv = {.opcode = IBV_WR_LOCAL_INV}, *bad;
	struct ibv_mw_bind bind = {.bind_info = part(mr, BASE, 8, RW)};

	CHECK(binds_1(qp, one, bind.bind_info) && binds(qp, two, 1, bind.bind_info));
	fake.copies = true;
	inv.invalidate_rkey = key_of(two, 1);
	CHECK(!vb_post_send(qp, &inv, &bad) && execute(qp) == VB_MW_LATER);
	CHECK(!opens(qp, key_of(two, 1), BASE, 1, RW)); /* no new access begins */
	settle();
	CHECK(execute(qp) == VB_MW_LATER && atomic_load(&fake_node.attention) & VB_ATTEND_WINDOWS);
	int kicks = fake.kicks;

	fake.copies = false;
	settle();
	CHECK(fake.kicks > kicks && execute(qp) == VB_MW_DONE);
	fake.copies = true;
	CHECK(!vb_bind_mw(qp, one, &bind) && execute(qp) == VB_MW_LATER && !opens(qp, one->rkey, BASE, 1, RW));
	fake.copies = false;
	settle();
	CHECK(execute(qp) == VB_MW_DONE && opens(qp, one->rkey, BASE, 8, RW));
	CHECK(!(atomic_load(&fake_node.attention) & VB_ATTEND_WINDOWS));
	CHECK(!vb_dealloc_mw(one) && !vb_dealloc_mw(two) && !vb_dereg_mr(mr) && !vb_destroy_qp(qp));
}

static int close_region(struct ibv_mr *mr)
{
	vb_mutex_lock(&fake_node.mr_lock, VB_RANK_MR);
	int err = vb_mw_close_region(&fake_node, vb_mr(mr)->shared);

	vb_mutex_unlock(&fake_node.mr_lock);
	return err;
}

static void a_region_is_busy_while_a_window_is_bound_but_not_while_a_binding_fades(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND), *other = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *a = vb_alloc_mw(o.pd, IBV_MW_TYPE_2), *b = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr inv = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key_of(a, 1)}, *bad;

	CHECK(binds(qp, a, 1, part(mr, BASE, 8, RW)) && binds(qp, b, 1, part(other, BASE, 8, RW)));
	CHECK(close_region(mr) == EBUSY && close_region(other) == EBUSY);
	fake.copies = true;
	CHECK(!vb_post_send(qp, &inv, &bad) && execute(qp) == VB_MW_LATER);
	CHECK(close_region(mr) == EAGAIN && close_region(other) == EBUSY); /* to be asked again after a wait */
	fake.copies = false;
	settle();
	CHECK(execute(qp) == VB_MW_DONE && !vb_dereg_mr(mr) && vb_dereg_mr(other) == EBUSY);
	CHECK(!vb_dealloc_mw(a) && !vb_dealloc_mw(b) && !vb_dereg_mr(other) && !vb_destroy_qp(qp));
}

static void windows_end_with_their_queue_pair_or_when_they_are_freed(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC), *other = ready(&o, IBV_QPT_RC);
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *one = vb_alloc_mw(o.pd, IBV_MW_TYPE_1), *two = vb_alloc_mw(o.pd, IBV_MW_TYPE_2),
	              *three = vb_alloc_mw(o.pd, IBV_MW_TYPE_2), copy = *three;

	CHECK(binds_1(qp, one, part(mr, BASE, 8, RW)) && binds(qp, two, 1, part(mr, BASE, 8, RW)) &&
	      binds(other, three, 1, part(mr, BASE, 8, RW)));
	CHECK(!vb_destroy_qp(qp));
	CHECK(opens(other, one->rkey, BASE, 8, RW) && opens(other, key_of(three, 1), BASE, 8, RW));
	CHECK(binds(other, two, 1, part(mr, BASE, 8, RR)) && !opens(other, key_of(two, 1), BASE, 8, RW));
	CHECK(!vb_dealloc_mw(three) && !opens(other, key_of(&copy, 1), BASE, 1, RW) && vb_dereg_mr(mr) == EBUSY);
	CHECK(!vb_destroy_qp(other) && vb_dereg_mr(mr) == EBUSY && !vb_dealloc_mw(one) && !vb_dereg_mr(mr));
	CHECK(!vb_dealloc_mw(two));
}

static void a_queue_pair_with_the_number_of_an_ended_one_has_windows_of_its_own(void)
{
	struct ibv_qp *qp = ready(&o, IBV_QPT_RC), *next = NULL;
	struct ibv_mr *mr = reg(LW | IBV_ACCESS_MW_BIND), *other = reg(LW | IBV_ACCESS_MW_BIND);
	struct ibv_mw *a = vb_alloc_mw(o.pd, IBV_MW_TYPE_2), *b = vb_alloc_mw(o.pd, IBV_MW_TYPE_2);
	uint32_t qpn = qp->qp_num;

	CHECK(binds(qp, a, 1, part(mr, BASE, 8, RW)));
	fake.copies = true;
	CHECK(!vb_destroy_qp(qp)); /* its binding fades for as long as another process copies */
	for (int i = 0; i < 2 * VB_LANE_QPS && (!next || next->qp_num != qpn); i++) {
		CHECK(!next || !vb_destroy_qp(next));
		next = make_qp(&o, IBV_QPT_RC, NULL);
	}
	CHECK(next->qp_num == qpn);
	to_state(next, IBV_QPS_RTS);
	CHECK(!post_bind(next, b, 1, part(other, BASE, 8, RW)) && execute(next) == VB_MW_DONE);
	fake.copies = false;
	settle();
	CHECK(!vb_dereg_mr(mr) && vb_dereg_mr(other) == EBUSY);
	CHECK(!vb_destroy_qp(next) && !vb_dereg_mr(other) && !vb_dealloc_mw(a) && !vb_dealloc_mw(b));
}

static void as_many_windows_exist_as_are_announced(void)
{
	struct ibv_mw **mw = malloc(VB_MAX_MW * sizeof(*mw));
	struct ibv_mr *mr;

	for (uint32_t i = 0; i < VB_MAX_MW; i++)
		CHECK((mw[i] = vb_alloc_mw(o.pd, IBV_MW_TYPE_1 + (i & 1))));
	CHECK(!vb_alloc_mw(o.pd, IBV_MW_TYPE_1) && errno == ENOMEM && !(mr = reg(LW)) && errno == ENOMEM);
	for (uint32_t i = 0; i < VB_MAX_MW; i++)
		CHECK(!vb_dealloc_mw(mw[i]));
	free(mw);
	CHECK((mr = reg(LW)) && !vb_dereg_mr(mr));
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	RUN(a_window_opens_its_part_of_a_region_and_no_more);
	RUN(a_zero_based_window_begins_at_0);
	RUN(a_window_of_type_2_serves_the_queue_pair_that_bound_it);
	RUN(binds_that_the_specification_forbids_fail);
	RUN(requests_that_make_no_sense_are_not_posted);
	RUN(each_bind_of_type_1_gives_a_new_key_and_ends_the_old_one);
	RUN(a_region_with_a_bound_window_stays);
	RUN(only_its_queue_pair_invalidates_a_window_and_only_of_type_2);
	RUN(an_end_waits_for_copies_in_progress);
	RUN(a_region_is_busy_while_a_window_is_bound_but_not_while_a_binding_fades);
	RUN(windows_end_with_their_queue_pair_or_when_they_are_freed);
	RUN(a_queue_pair_with_the_number_of_an_ended_one_has_windows_of_its_own);
	RUN(as_many_windows_exist_as_are_announced);
	fake.nodes = nodes;
	CHECK(!fake_node.mr_count && !fake_node.mw_count && !fake_node.mw_fading && !fake_node.mw_waiters);
	close_objects(&o);
}
