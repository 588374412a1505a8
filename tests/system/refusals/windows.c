// windows.c - the memory windows of a case: those whose keys a request names, and those that a request binds
// follows: IBA volume 1, 10.6 (memory windows of type 1 and 2B); ibv_bind_mw(3), ibv_post_send(3)
// SPDX-License-Identifier: MIT
#include "windows.h"

#include <unistd.h>

#include "../../support/check.h"

#define PREPARED_ID 77u

/* --- binding what the case needs --- */

static bool plan_has_type_1(const struct plan *p)
{
	switch (p->wrong) {
	case WRONG_WINDOW_1:
	case WRONG_WINDOW_REBOUND:
	case WRONG_WINDOW_UNBOUND:
	case WRONG_WINDOW_1_KEY:
	case WRONG_WINDOW_PD:
		return true;
	case WRONG_BIND_TYPE:
		return p->operation == OP_BIND;
	default:
		return p->operation == OP_BIND_1;
	}
}

static struct ibv_mw *new_window(struct end *e, struct ibv_pd *pd)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, plan_has_type_1(e->p) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);

	CHECK(mw);
	return mw;
}

static void await_success(struct end *e)
{
	struct ibv_wc wc = {0};
	int n = 0;

	for (unsigned ms = 0; ms < LONG_MS && !n; ms++) {
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (!n)
			usleep(1000);
	}
	CHECK(n == 1);
	SAME(wc.wr_id, PREPARED_ID);
	SAME(wc.status, IBV_WC_SUCCESS);
}

static int post_bind(struct ibv_qp *qp, struct ibv_mw *mw, bool by_request, const struct ibv_mw_bind_info *info,
                     uint64_t id, bool *named)
{
	struct ibv_mw_bind bind = {.wr_id = id, .send_flags = IBV_SEND_SIGNALED, .bind_info = *info};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .opcode = IBV_WR_BIND_MW,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .bind_mw = {mw, ibv_inc_rkey(mw->rkey), *info}},
	                   *bad = NULL;
	int err = by_request ? ibv_post_send(qp, &wr, &bad) : ibv_bind_mw(qp, mw, &bind);

	if (!err && by_request)
		mw->rkey = wr.bind_mw.rkey;
	if (named)
		*named = !by_request || bad == &wr;
	return err;
}

static void bind_now(struct end *e, struct ibv_qp *qp, const struct ibv_mw_bind_info *info)
{
	SAME(post_bind(qp, e->mw, e->mw->type == IBV_MW_TYPE_2, info, PREPARED_ID, NULL), 0);
	await_success(e);
}

static void invalidate_now(struct end *e, uint32_t rkey)
{
	struct ibv_send_wr wr = {.wr_id = PREPARED_ID,
	                         .opcode = IBV_WR_LOCAL_INV,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .invalidate_rkey = rkey},
	                   *bad;

	SAME(ibv_post_send(e->qp, &wr, &bad), 0);
	await_success(e);
}

static void go_wrong(struct end *e, struct ibv_qp *qp, struct ibv_mw_bind_info *info, uint32_t rkey)
{
	switch (e->p->wrong) {
	case WRONG_WINDOW_REBOUND:
		bind_now(e, qp, info);
		break;
	case WRONG_WINDOW_UNBOUND:
		info->length = 0;
		bind_now(e, qp, info);
		break;
	case WRONG_WINDOW_INVALID:
		invalidate_now(e, rkey);
		break;
	case WRONG_WINDOW_FREED:
		SAME(ibv_dealloc_mw(e->mw), 0);
		e->mw = NULL;
		break;
	default:
		break;
	}
}

uint32_t window_open(struct end *e, struct ibv_mr *mr)
{
	unsigned right = e->p->operation == OP_READ ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	struct ibv_qp *qp = plan_has_other_qp(e->p) ? end_other_qp(e) : e->qp;
	struct ibv_mw_bind_info info = {mr, (uintptr_t)mr->addr + WINDOW_AT, WINDOW_BYTES,
	                                e->p->wrong == WRONG_WINDOW_RIGHT ? right : REMOTE_RIGHTS};

	e->mw = new_window(e, mr->pd);
	bind_now(e, qp, &info);
	uint32_t rkey = e->mw->rkey;

	go_wrong(e, qp, &info, rkey);
	return rkey;
}

/* --- requests that bind --- */

int window_post_bind(struct end *e, struct ibv_mr *mr, bool *named)
{
	enum wrong wrong = (enum wrong)e->p->wrong;
	struct ibv_mw_bind_info info = {mr, (uintptr_t)mr->addr + WINDOW_AT, WINDOW_BYTES, REMOTE_RIGHTS};

	e->mw = new_window(e, wrong == WRONG_BIND_WINDOW_PD ? e->d->other_pd : e->d->pd);
	if (wrong == WRONG_BIND_TWICE)
		bind_now(e, e->qp, &info);
	if (wrong == WRONG_BIND_NONE)
		info.length = 0;
	if (wrong == WRONG_BIND_ACCESS)
		info.mw_access_flags |= 1u << 19;
	if (wrong == WRONG_BIND_END)
		info.addr = (uintptr_t)mr->addr + AREA_BYTES - WINDOW_BYTES + 1;
	if (wrong == WRONG_BIND_START)
		info.addr = (uintptr_t)mr->addr - 1;
	if (wrong == WRONG_BIND_WRAP)
		info.addr = -(uint64_t)WINDOW_BYTES / 2;
	return post_bind(e->qp, e->mw, e->p->operation == OP_BIND, &info, 1, named);
}

void window_close(struct end *e)
{
	if (e->mw)
		CHECK(!ibv_dealloc_mw(e->mw));
	e->mw = NULL;
}
