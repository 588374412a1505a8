// pingpong.c - small RDMA writes to and fro: each program writes, polls, and waits for the other's write
// see: docs/same-host.md, "Writes to and fro"
// SPDX-License-Identifier: MIT
#include "engine/local/pingpong.h"

#include "core/node.h"
#include "engine/local/peer.h"
#include "engine/local/requester.h"
#include "util/units.h"

/*
 * One copy of a small write costs a system call, because the peer's program looks at its memory and does not poll. But it
 * polls while it waits for the completion of its own write. So the completion of a write is held for a moment. If the
 * peer's answer comes in that time, this process stores it during the same poll.
 */

#define HOLD_TRIAL VB_US(5) /* ns: the longest hold until answers have come */
#define HOLD_MAX VB_US(20)  /* ns: the longest hold after that */
#define SOON VB_US(5)       /* ns: a write that the peer has not stored during a hold is withdrawn after this */
#define HITS 4u             /* answers in a row until holds are long */
#define MISSES 3u           /* holds without an answer until they end */
#define SKIP_MAX 12u        /* after misses the next 2, 4, … 2^SKIP_MAX writes are not held */
#define CLOCK_EVERY 16u     /* looks at a held completion per look at the clock */

static bool is_only_request(const struct vb_qp *qp)
{
	return qp->sq_emit == qp->sq_una && qp->sq_head - qp->sq_una == 1;
}

static bool is_small_write(const struct vb_qp *qp, const struct vb_swqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE && w->length && w->length <= VB_PINGPONG_MAX && qp->type == IBV_QPT_RC &&
	       !qp->local.peer->self;
}

static unsigned skips_after(uint8_t *failures)
{
	*failures += *failures < SKIP_MAX;
	return 1u << *failures;
}

/* Says the peer that it holds completions? VERBENA_RDMA may say so in its place. */
static bool peer_may_poll(const struct vb_qp *qp)
{
	switch (vb_pace_forced()) {
	case VB_FORCE_RING:
		return true;
	case VB_FORCE_COPY:
		return false;
	case VB_FORCE_RANDOM:
		if ((qp->local.ssn_una * 2654435761u) & 0x80000000u)
			return true;
		break;
	case VB_LEARN:
		break;
	}
	return atomic_load_explicit(&qp->local.remote->pingpong, memory_order_relaxed);
}

bool vb_local_pingpong_answers(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_pingpong *p = &qp->local.pingpong;
	struct vb_peer *peer = qp->local.peer;

	if (p->ring_skip) {
		p->ring_skip--;
		return false;
	}
	if (!is_small_write(qp, w) || !is_only_request(qp) || !peer_may_poll(qp))
		return false;
	return atomic_load_explicit(&peer->theirs->can_place, memory_order_relaxed) && qp->node->membarrier &&
	       !peer->fence;
}

static void allow_answers(struct vb_qp *qp, bool allow)
{
	if (atomic_load_explicit(&qp->shared->pingpong, memory_order_relaxed) != allow)
		atomic_store_explicit(&qp->shared->pingpong, allow, memory_order_relaxed);
}

static void begin_hold(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	p->taken = atomic_load_explicit(&qp->local.executed, memory_order_relaxed);
	p->until = vb_now() + (p->hits == HITS ? HOLD_MAX : HOLD_TRIAL);
	p->looks = 0;
	allow_answers(qp, true);
}

void vb_local_pingpong_hold(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	if (!is_small_write(qp, w) || !is_only_request(qp) || !(w->flags & IBV_SEND_SIGNALED) ||
	    qp->qp.send_cq->channel || vb_pace_forced() == VB_FORCE_COPY)
		return;
	if (p->skip && !w->slot)
		p->skip--;
	else
		begin_hold(qp);
}

static bool is_unanswered(const struct vb_qp *qp, const struct vb_swqe *w)
{
	return w->state == VB_SWQE_SENT && w->slot && qp->local.ssn_una >= qp->local.acked_seen;
}

/* A write that the peer has not acknowledged is withdrawn if the peer does not execute it. */
static void end_hold(struct vb_qp *qp, uint64_t withdraw_after)
{
	qp->local.pingpong.until = 0;
	if (is_unanswered(qp, vb_sq_at(qp, qp->sq_una)))
		vb_local_expect_work(qp, withdraw_after);
}

static void answer_came(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	p->misses = p->failures = p->ring_failures = 0;
	p->hits += p->hits < HITS;
	end_hold(qp, VB_WITHDRAW_AFTER);
}

static void stop_holding(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	p->hits = p->misses = 0;
	p->skip = (uint16_t)skips_after(&p->failures);
	allow_answers(qp, false);
}

static void no_answer_came(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	end_hold(qp, SOON);
	if (p->hits < HITS || ++p->misses == MISSES)
		stop_holding(qp);
}

bool vb_local_pingpong_holds(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	if (!p->until)
		return false;
	if (atomic_load_explicit(&qp->local.executed, memory_order_relaxed) != p->taken) {
		answer_came(qp);
		return false;
	}
	if (++p->looks % CLOCK_EVERY || vb_now() < p->until)
		return true;
	no_answer_came(qp);
	return false;
}

void vb_local_pingpong_release(struct vb_qp *qp)
{
	if (__builtin_expect(qp->local.pingpong.until != 0, 0))
		end_hold(qp, VB_WITHDRAW_AFTER);
}

/* The peer's program may have been interrupted. Then its answer comes after this one copy. */
void vb_local_pingpong_failed(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	if (p->hits == HITS && qp->sq_head - qp->sq_una == 1) {
		begin_hold(qp);
		return;
	}
	p->ring_skip = (uint16_t)skips_after(&p->ring_failures);
	stop_holding(qp);
}

void vb_local_pingpong_reset(struct vb_qp *qp)
{
	qp->local.pingpong = (struct vb_pingpong){0};
	allow_answers(qp, false);
}
