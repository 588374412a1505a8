// windows.c - memory windows between two processes of one host, by shared memory or by RoCE
// follows: IBA volume 1, 10.6 (memory windows)
// SPDX-License-Identifier: MIT
#include "window_cases.h"

/* Fails if a bind waits for the peer's queue pair, which is not in RTR yet, until the retries are spent. */
static void a_window_is_bound_before_the_peer_is_ready(void)
{
	struct dev d;
	struct mem m;
	struct link a, b;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	CHECK(!ibv_dereg_mr(m.mr));
	mem_reg(&m, &d, ALL_ACCESS | IBV_ACCESS_MW_BIND);
	link_make(&a, &d, &(struct conf){.timeout = 8, .retry = 1});
	link_make(&b, &d, &(struct conf){0});
	link_to(&a, &b.me);
	struct ibv_mw *mw = ibv_alloc_mw(d.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {.wr_id = 1,
	                         .opcode = IBV_WR_BIND_MW,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .bind_mw = {mw, 7, {m.mr, (uintptr_t)m.p, 64, IBV_ACCESS_REMOTE_WRITE}}},
	                   *bad;

	CHECK(mw);
	struct far far = {(uintptr_t)m.p, (mw->rkey & ~0xffu) | 7, 0};

	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	expect(a.scq, 1, IBV_WC_SUCCESS);
	POST(&a, .op = IBV_WR_LOCAL_INV, .id = 2, .imm = far.rkey);
	expect(a.scq, 2, IBV_WC_SUCCESS);
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	expect(a.scq, 1, IBV_WC_SUCCESS);
	link_to(&b, &a.me);
	fill(m.p + 1024, 64, 3);
	POST(&b, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &m, .off = 1024, .len = 64, .far = far);
	expect(b.scq, 3, IBV_WC_SUCCESS);
	CHECK(holds(m.p, 64, 3) && !ibv_dealloc_mw(mw));
}

int main(int argc, char **argv)
{
	static const struct test own[] = {
	        {"a window is bound before the peer is ready", a_window_is_bound_before_the_peer_is_ready}};

	way = (struct way){dev_open, link_open, false};
	return run_tests(argc, argv, window_cases, window_cases_n) | RUN_TESTS(argc, argv, own);
}
