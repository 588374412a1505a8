// retry.c - the requester's timers: repeats requests, and fails them
// follows: IBA volume 1, 9.7.6 (transport timer), 9.7.5.2.8 (RNR NAK), 9.9.2 (retries)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"
#include "util/units.h"

#define PROBE_MAX VB_S(1) /* ns: the latest repetition by the early timer, if the QP has no timeout */
#define MEND_PATIENCE 4   /* round trips until a repeated packet is repeated again */
#define RETRY_PATIENCE 5  /* a retry comes after this multiple of the longest time of an answer */
#define LATE VB_MS(1)     /* ns: if a timer is read so late, an answer may have arrived that is not read yet */

/* IBA 9.7.6.1: 4.096 us * 2^timeout, or up to four times as much if answers take so long. 0: no timeout. */
static __attribute__((hot)) uint64_t retry_time(const struct vb_roce_qp *qp)
{
	const struct vb_roce_window *w = &qp->rq.window;
	uint64_t t = qp->cfg.timeout ? 4096ull << (qp->cfg.timeout & 31) : 0;
	uint64_t want = w->srtt ? RETRY_PATIENCE * vb_roce_window_patience(w, 0) : 0;

	return !t || want <= t ? t : want < 4 * t ? want : 4 * t;
}

/*
 * The first retry comes after the program's timeout, the second after twice the timeout, all others after four times
 * the timeout, which the standard allows. A peer may get no processor for ten seconds beside programs that call
 * sched_yield in a loop, and connections of rdma_cm have only seven retries of half a second.
 */
static uint64_t next_retry(const struct vb_roce_qp *qp)
{
	const uint8_t made = (uint8_t)(qp->cfg.retry_cnt - qp->rq.retry_left);
	uint64_t t = retry_time(qp),
	         backed_off = qp->cfg.timeout ? 4096ull << (qp->cfg.timeout & 31) << (made < 2 ? made : 2) : 0;

	return t > backed_off ? t : backed_off;
}

/*
 * deviates: besides the program's timer, which may run for seconds, an earlier timer, derived from measured round-trip
 * times, repeats unanswered packets. It does not count as a retry, so errors come at the time that the program asked
 * for. It grows with each repetition until an answer can be timed. It is at most a quarter of a retry, so that each
 * retry stands for several tries: if a fifth of all packets is lost, eight tries are not enough. It is longer only if
 * answers take longer.
 */
static __attribute__((hot)) uint64_t probe_time(const struct vb_roce_qp *qp)
{
	const struct vb_roce_requester *rq = &qp->rq;
	uint64_t most = retry_time(qp) ? retry_time(qp) / 4 : PROBE_MAX;
	uint64_t least = qp->cfg.probe_min, soon = MEND_PATIENCE * rq->window.srtt;

	if (rq->mending && soon && soon < least) /* during a mend little is in flight */
		least = soon;
	uint64_t patience = vb_roce_window_patience(&rq->window, least);
	uint64_t enough = rq->window.srtt ? patience : least;
	uint64_t t = patience << (rq->probes < 10 ? rq->probes : 10), stall = vb_roce_window_stall(&rq->window);

	if (t < stall)
		t = stall;
	if (most < enough)
		most = enough;
	return t < most ? t : most;
}

__attribute__((hot)) void vb_roce_requester_arm(struct vb_roce_qp *qp, uint64_t now)
{
	if (!qp->rq.retry_at && retry_time(qp))
		qp->rq.retry_at = now + next_retry(qp);
	if (!qp->rq.probe_at)
		qp->rq.probe_at = now + probe_time(qp);
}

__attribute__((hot)) void vb_roce_requester_progressed(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	rq->retry_left = qp->cfg.retry_cnt;
	rq->rnr_left = qp->cfg.rnr_retry;
	rq->retry_at = rq->probe_at = rq->rnr_at = 0;
	if (rq->una < rq->high)
		vb_roce_requester_arm(qp, now);
}

/* refused: the peer has said that it has not executed una, so an answer belongs to packets that are sent from now
 * on. */
static void back_to_una(struct vb_roce_qp *qp, bool refused, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	vb_roce_mend_stop(qp);
	rq->back_echo = false;
	rq->sure_from = refused && rq->keeps == VB_ROCE_KEEPS ? rq->una : rq->high;
	rq->back_una = rq->una;
	rq->back_at = now;
	rq->seq = rq->una;
	rq->cur = rq->head;
	rq->rd = 0;
	vb_roce_untime(rq);
	rq->unasked = UINT32_MAX / 2; /* the next packet asks for an acknowledgement */
}

bool vb_roce_requester_go_back(struct vb_roce_qp *qp, bool refused, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->rnr_at || (rq->back_at && rq->back_una == rq->una && now - rq->back_at < rq->window.rtt_min))
		return false;
	rq->stale = (uint32_t)(rq->seq - rq->una) / 2;
	back_to_una(qp, refused, now);
	rq->back_echo = rq->keeps != VB_ROCE_KEEPS;
	rq->probe_at = 0; /* the peer answers, so the timer starts again */
	vb_roce_requester_arm(qp, now);
	return true;
}

void vb_roce_requester_wait_rnr(struct vb_roce_qp *qp, uint8_t timer, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	qp->stats.rnr_waits++;
	back_to_una(qp, true, now);
	rq->rnr_at = now + vb_rnr_timer_us(timer) * 1000ull;
	rq->retry_at = rq->probe_at = 0;
}

void vb_roce_repeat_waits(struct vb_roce_qp *qp, uint64_t until)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->seq != rq->una && (rq->mend_next != rq->mend_seq || rq->mend_next >= rq->mend_end))
		return; /* some of it has been sent, and may be answered */
	if (rq->retry_at && rq->retry_at < until + next_retry(qp))
		rq->retry_at = until + next_retry(qp);
	if (rq->probe_at && rq->probe_at < until + probe_time(qp))
		rq->probe_at = until + probe_time(qp);
}

static void retry_from_una(struct vb_roce_qp *qp, uint64_t now)
{
	qp->rq.retry_at = qp->rq.probe_at = 0;
	if (qp->rq.window.rtt)
		qp->rq.silent = (struct vb_roce_silence){now, qp->rq.window.packets, qp->rq.window.slow_start_below};
	vb_roce_window_silent(&qp->rq.window, now);
	qp->rq.stale = 0;
	back_to_una(qp, false, now);
	qp->rq.back_echo = qp->rq.keeps != VB_ROCE_KEEPS;
	vb_roce_requester_arm(qp, now);
}

/* If this machine was so busy that even the earlier repetition was not sent, sends that before a retry counts. */
static void try_first(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->probe_at && rq->probe_at < rq->retry_at && rq->retry_at <= now)
		rq->retry_at = now + LATE + retry_time(qp) / 4;
}

/* If a timer is read late, postpones it once, so that answers that have arrived are read first. */
static bool looks_late(struct vb_roce_requester *rq, uint64_t now)
{
	bool retry = rq->retry_at && rq->retry_at <= now, probe = rq->probe_at && rq->probe_at <= now;
	bool late = (retry && now - rq->retry_at > LATE) || (probe && now - rq->probe_at > LATE);

	if (!retry && !probe)
		return false;
	if (rq->late || !late) {
		rq->late = false;
		return false;
	}
	rq->late = true;
	if (retry)
		rq->retry_at = now + LATE;
	if (probe)
		rq->probe_at = now + LATE;
	return true;
}

void vb_roce_requester_timeout(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->rnr_at && rq->rnr_at <= now)
		rq->rnr_at = 0;
	if (rq->wake_at && rq->wake_at <= now)
		rq->wake_at = 0;
	try_first(qp, now);
	if (looks_late(rq, now))
		return;
	if (rq->retry_at && rq->retry_at <= now) {
		if (!rq->retry_left) {
			vb_roce_requester_fail(qp, VB_WORK_RETRY_EXC_ERR);
			return;
		}
		rq->retry_left--;
		qp->stats.timeouts++;
		retry_from_una(qp, now);
	} else if (rq->probe_at && rq->probe_at <= now) {
		uint64_t retry_at = rq->retry_at;

		qp->stats.probes++;
		if (rq->probes++ || rq->seq < rq->high || rq->seq == rq->una) {
			retry_from_una(qp, now);
		} else {
			if (rq->mending)
				vb_roce_window_lost(&rq->window, true, now);
			else
				vb_roce_window_late(&rq->window, now);
			vb_roce_mend_probe(qp, now);
		}
		rq->retry_at = retry_at;
	}
}
