// mend.c - repeats only the missing packets to a peer that keeps packets ahead of them
// follows: IBA volume 1, 9.7.5.2.2 (PSN sequence NAK); RFC 6582 (partial acknowledgements)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

#define TRIAL_WINDOW 16 /* packets: below this, selective repetition saves little */
#define TRIAL_LEN 8     /* packets repeated at once in a trial */
#define TRIALS_MAX 4
#define FLAT_MAX 5 /* after this many consecutive mends without a kept packet, the peer is assumed to keep none */

static struct vb_work_sent *una_of(struct vb_roce_qp *qp)
{
	uint32_t i = qp->rq.head;

	while (i != qp->rq.tail && vb_roce_send_at(qp, i)->seq + vb_roce_send_at(qp, i)->packets <= qp->rq.una)
		i++;
	return i == qp->rq.tail ? NULL : vb_roce_send_at(qp, i);
}

static bool una_is_answered(struct vb_roce_qp *qp)
{
	const struct vb_work_sent *s = una_of(qp);

	return s && vb_roce_is_answered(s);
}

/*
 * Repeats len packets from una on, but none beyond the first request that the peer must answer with data. While it is
 * not known whether the peer keeps packets, and there are packets to keep, the first, the last and some in between are
 * sent twice, which vouches for the kept packets (ahead.c).
 */
static void repeat_from_una(struct vb_roce_qp *qp, uint32_t len, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (len > rq->seq - rq->una)
		len = (uint32_t)(rq->seq - rq->una);
	for (uint32_t i = rq->head; i != rq->tail && vb_roce_send_at(qp, i)->seq < rq->una + len; i++) {
		struct vb_work_sent *s = vb_roce_send_at(qp, i);

		if (!vb_roce_is_answered(s) || s->seq + s->packets <= rq->una)
			continue;
		len = s->seq > rq->una ? (uint32_t)(s->seq - rq->una) : 1;
		if (s->seq <= rq->una && s->work.verb == VB_VERB_READ)
			len = (uint32_t)(vb_roce_chunk_end(s, rq->una) - rq->una);
		break;
	}
	rq->mending = true;
	rq->mend_response = una_is_answered(qp);
	rq->echoes = !rq->mend_response && rq->keeps != VB_ROCE_KEEPS && rq->seq > rq->una + 1;
	rq->echo = false;
	rq->mend_seq = rq->mend_next = rq->una;
	rq->mend_end = rq->una + len;
	rq->mend_to = rq->seq;
	rq->mend_at = rq->mend_last_at = now;
	vb_roce_untime(rq);
	rq->sure_from = rq->una > rq->mended_to ? rq->una : rq->mended_to;
	if (rq->mend_response)
		rq->sure_from = rq->high;
	if (rq->mended_to < rq->mend_end)
		rq->mended_to = rq->mend_end;
	rq->probe_at = 0; /* the peer answers, so the timer starts again */
	vb_roce_requester_arm(qp, now);
}

void vb_roce_mend_stop(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;

	rq->mending = rq->echo = false;
	rq->mend_next = rq->mend_end; /* nothing is left to repeat */
	if (rq->keeps == VB_ROCE_KEEPS_TRIAL)
		rq->keeps = VB_ROCE_KEEPS_UNKNOWN;
}

/* Goes back to una and repeats everything. If a full queue may have lost the packets behind una too, the trial says
 * nothing about the peer, and another one is allowed. */
static bool repeat_all(struct vb_roce_qp *qp, uint64_t now)
{
	bool doubt =
	        qp->rq.trials < TRIALS_MAX && (qp->rq.keeps == VB_ROCE_KEEPS || vb_roce_window_crowded(&qp->rq.window));

	qp->rq.keeps = doubt ? VB_ROCE_KEEPS_UNKNOWN : VB_ROCE_KEEPS_NOT;
	return vb_roce_requester_go_back(qp, true, now);
}

bool vb_mend(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->rnr_at)
		return false;
	if (rq->mending && rq->una < rq->mend_end &&
	    (rq->una >= rq->mend_next || !rq->window.rtt_min || now - rq->mend_last_at < rq->window.rtt_min))
		return false; /* una is in flight */
	if (rq->keeps == VB_ROCE_KEEPS_TRIAL)
		return repeat_all(qp, now);
	if (rq->keeps == VB_ROCE_KEEPS_UNKNOWN && rq->trials >= TRIALS_MAX)
		rq->keeps = VB_ROCE_KEEPS_NOT;
	if (rq->keeps == VB_ROCE_KEEPS_NOT || rq->seq < rq->high)
		return vb_roce_requester_go_back(qp, true, now);
	if (rq->keeps == VB_ROCE_KEEPS) {
		repeat_from_una(qp, rq->mend_len, now);
		return true;
	}
	if (rq->seq - rq->una < TRIAL_WINDOW || una_is_answered(qp))
		return vb_roce_requester_go_back(qp, true, now);
	rq->keeps = VB_ROCE_KEEPS_TRIAL;
	rq->trials++;
	rq->mend_len = 1;
	repeat_from_una(qp, TRIAL_LEN, now);
	return true;
}

bool vb_roce_mend_response(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->rnr_at || rq->seq <= rq->una)
		return false;
	if (rq->seq < rq->high)
		return vb_roce_requester_go_back(qp, false, now);
	if (rq->mending && rq->mend_response && rq->una < rq->mend_end &&
	    (rq->una >= rq->mend_next || now - rq->mend_last_at < vb_roce_window_patience(&rq->window, 0)))
		return false;
	vb_roce_mend_stop(qp);
	repeat_from_una(qp, 1, now);
	return true;
}

/* A probe is always answered: the peer executes it, or acknowledges it as a duplicate. */
void vb_roce_mend_probe(struct vb_roce_qp *qp, uint64_t now)
{
	vb_roce_mend_stop(qp);
	repeat_from_una(qp, 1, now);
	qp->rq.sure_from = qp->rq.high;
}

/* Called when all packets sent before the last mend have arrived: the next mend repeats fewer packets. */
static void end_mend(struct vb_roce_qp *qp)
{
	qp->rq.flat = 0;
	qp->rq.mend_len = (qp->rq.mend_len + 1) / 2;
	vb_roce_mend_stop(qp);
}

/*
 * Called when the peer has executed all packets up to another gap. More packets behind it may be missing, and each gap
 * costs a round trip, so each mend repeats more packets than the one before.
 */
static void mend_next_gap(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	rq->flat = rq->una == rq->mend_end ? rq->flat + 1 : 0;
	if (rq->flat >= FLAT_MAX) {
		repeat_all(qp, now);
		return;
	}
	if (rq->mend_len < rq->window.packets / 2)
		rq->mend_len *= 2;
	repeat_from_una(qp, rq->mend_len, now);
	vb_roce_window_lost(&rq->window, true, now);
}

void vb_roce_mend_progressed(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (!rq->mending)
		return;
	/* too early for an answer to the repetition, so the packet was late, not lost */
	if (now - rq->mend_at < rq->window.rtt_min) {
		vb_roce_mend_stop(qp);
		return;
	}
	if (rq->una < rq->mend_end && rq->una < rq->mend_to)
		return;
	if (rq->mend_response) {
		vb_roce_mend_stop(qp);
		if (rq->una < rq->got_to && una_is_answered(qp) && vb_roce_mend_response(qp, now))
			vb_roce_window_lost(&rq->window, true, now);
		return;
	}
	if (rq->keeps == VB_ROCE_KEEPS_NOT || rq->keeps == VB_ROCE_KEEPS_UNKNOWN) { /* the repetition was a probe */
		vb_roce_mend_stop(qp);
		if (rq->una == rq->mend_end && rq->una < rq->mend_to)
			vb_roce_requester_go_back(qp, true, now);
		return;
	}
	if (rq->keeps == VB_ROCE_KEEPS_TRIAL) {
		if (rq->una == rq->mend_end && rq->una < rq->mend_to) {
			repeat_all(qp, now);
			return;
		}
		if (rq->una > rq->mend_end)
			rq->keeps = VB_ROCE_KEEPS;
	}
	if (rq->una >= rq->mend_to || rq->keeps != VB_ROCE_KEEPS)
		end_mend(qp);
	else
		mend_next_gap(qp, now);
}
