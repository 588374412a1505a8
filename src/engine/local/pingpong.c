// pingpong.c - small RDMA writes to and fro: each program writes, polls, and waits for the other's write
// see: docs/same-host.md, "Writes to and fro"
// SPDX-License-Identifier: MIT
#include "engine/local/pingpong.h"

#include <string.h>

#include "core/node.h"
#include "engine/local/local.h"
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
	uint32_t allowed = atomic_load_explicit(&qp->local.remote->pingpong, memory_order_relaxed);

	return allowed && allowed != qp->local.pingpong.missed;
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

/* Each time that answers are allowed anew the number is another, so that a peer whose answer was not stored in the ring
 * tries that once only. While all goes well it stays, and with it the cache line in the peer's core. */
static void allow_answers(struct vb_qp *qp, bool allow)
{
	struct vb_pingpong *p = &qp->local.pingpong;
	bool allowed = atomic_load_explicit(&qp->shared->pingpong, memory_order_relaxed);

	if (allow == allowed)
		return;
	if (allow && !++p->allowed)
		p->allowed = 1;
	atomic_store_explicit(&qp->shared->pingpong, allow ? p->allowed : 0, memory_order_relaxed);
}

static void begin_hold(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	uint64_t until = vb_now() + (p->hits == HITS ? HOLD_MAX : HOLD_TRIAL);

	p->written = atomic_load_explicit(&qp->local.written, memory_order_relaxed);
	atomic_store_explicit(&p->until, until, memory_order_relaxed);
	p->looks = 0;
	vb_timer_at(qp->node, until);
	allow_answers(qp, true);
}

void vb_local_pingpong_hold(struct vb_qp *qp, const struct vb_swqe *w)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	if (!is_small_write(qp, w) || !is_only_request(qp) || !(w->flags & IBV_SEND_SIGNALED) || qp->scq->channel ||
	    qp->scq->want_timestamp || vb_pace_forced() == VB_FORCE_COPY)
		return;
	if (vb_pace_forced() == VB_LEARN && vb_local_is_mapped(qp, w->rkey))
		return; /* it is copied without a system call, and so is the answer */
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
	atomic_store_explicit(&qp->local.pingpong.until, 0, memory_order_relaxed);
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

	allow_answers(qp, false);
	if (qp->local.remote && vb_sq_at(qp, qp->sq_una)->slot)
		p->missed = atomic_load_explicit(&qp->local.remote->pingpong, memory_order_relaxed);
	end_hold(qp, VB_WITHDRAW_SOON);
	if (p->hits < HITS || ++p->misses == MISSES)
		stop_holding(qp);
}

static bool has_answer(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->local.written, memory_order_relaxed) != qp->local.pingpong.written;
}

bool vb_local_pingpong_holds(struct vb_qp *qp)
{
	struct vb_pingpong *p = &qp->local.pingpong;

	if (!vb_local_is_held(qp))
		return false;
	/* the first look may come late: then even an answer shows that the program did not poll */
	if (p->looks++ % CLOCK_EVERY == 0 && vb_now() >= atomic_load_explicit(&p->until, memory_order_relaxed)) {
		no_answer_came(qp);
		return false;
	}
	if (!has_answer(qp))
		return true;
	answer_came(qp);
	return false;
}

void vb_local_pingpong_release(struct vb_qp *qp)
{
	if (__builtin_expect(!vb_local_is_held(qp), 1))
		return;
	if (has_answer(qp))
		end_hold(qp, VB_WITHDRAW_AFTER);
	else
		no_answer_came(qp);
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
	uint32_t allowed = qp->local.pingpong.allowed;

	memset(&qp->local.pingpong, 0, sizeof(qp->local.pingpong));
	qp->local.pingpong.allowed = allowed;
	allow_answers(qp, false);
}
