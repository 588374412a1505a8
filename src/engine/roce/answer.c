// answer.c - the requester's input: acknowledgements, NAKs, read responses, results of atomics
// follows: IBA volume 1, 9.7.5.1 (responses), 9.7.5.2 (NAK codes), 9.7.7.2 (credits), 9.9.2 (requester errors)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

/* The sequence number of the packet with this PSN. A number below una is old or invalid. */
static int64_t seq_of(const struct vb_roce_qp *qp, struct vb_psn psn)
{
	return (int64_t)qp->rq.una + vb_psn_diff(psn, vb_roce_send_psn(qp, qp->rq.una));
}

static struct vb_work_sent *find_sent(struct vb_roce_qp *qp, uint64_t seq)
{
	for (uint32_t i = qp->rq.head; i != qp->rq.tail; i++) {
		struct vb_work_sent *s = vb_roce_send_at(qp, i);

		if (seq >= s->seq && seq < s->seq + s->packets)
			return s;
	}
	return NULL;
}

/* --- responses ahead of a missing one --- */

static bool has_come(const struct vb_roce_requester *rq, uint64_t seq)
{
	return seq < rq->got_to && rq->got[seq / 64 % (VB_ROCE_WINDOW_MAX / 64)] >> seq % 64 & 1;
}

static void mark_response(struct vb_roce_requester *rq, uint64_t seq)
{
	rq->got[seq / 64 % (VB_ROCE_WINDOW_MAX / 64)] |= 1ull << seq % 64;
	if (rq->got_to <= seq)
		rq->got_to = seq + 1;
}

/* The first packet that is not acknowledged, or whose response has not arrived. */
static uint64_t first_unsettled(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;
	uint64_t seq = rq->una;

	for (uint32_t i = rq->head; i != rq->tail; i++) {
		const struct vb_work_sent *s = vb_roce_send_at(qp, i);
		uint64_t end = s->seq + s->packets;

		if (vb_roce_is_answered(s))
			while (seq < end && has_come(rq, seq))
				seq++;
		else if (seq < end && seq < rq->executed)
			seq = end < rq->executed ? end : rq->executed;
		if (seq < end)
			break;
	}
	return seq;
}

/* Clears the marks of responses up to this packet. Requests that are fully answered are no longer outstanding. */
static void forget_responses(struct vb_roce_qp *qp, uint64_t to)
{
	struct vb_roce_requester *rq = &qp->rq;

	for (uint32_t i = rq->head; i != rq->tail && vb_roce_send_at(qp, i)->seq < to; i++) {
		const struct vb_work_sent *s = vb_roce_send_at(qp, i);

		if (!vb_roce_is_answered(s))
			continue;
		for (uint64_t seq = s->seq > rq->una ? s->seq : rq->una; seq < to && seq < s->seq + s->packets; seq++) {
			rq->got[seq / 64 % (VB_ROCE_WINDOW_MAX / 64)] &= ~(1ull << seq % 64);
			if (seq < rq->seq && (vb_roce_is_single(s) || seq + 1 == vb_roce_chunk_end(s, seq)))
				rq->rd--;
		}
	}
}

/* --- acknowledgements --- */

static __attribute__((hot)) void time_answered(struct vb_roce_requester *rq, uint64_t now)
{
	const struct vb_roce_timed *t = NULL;

	/* an acknowledgement answers the last packet that it covers; for earlier timed packets it is late */
	for (; rq->timed_n && rq->timed[rq->timed_0].seq < rq->una; rq->timed_n--) {
		t = &rq->timed[rq->timed_0];
		rq->timed_0 = (rq->timed_0 + 1) % VB_ROCE_TIMED;
	}
	if (!t)
		return;
	if (t->guess)
		vb_roce_window_guess(&rq->window, now - t->at);
	else
		vb_roce_window_rtt(&rq->window, now - t->at, t->first, now);
	rq->probes = 0;
}

/* Moves una forward. Packets that were going to be repeated, and are answered now, are not sent. */
static void move_una(struct vb_roce_qp *qp, uint64_t una, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;
	bool full = rq->waits_for_burst || 4 * (rq->seq - rq->una + rq->stale + 1) >= 3ull * rq->window.packets;

	forget_responses(qp, una);
	if (rq->silent.at) {
		/* too early for an answer to the repetition, so the answer to the original was late, not lost */
		if (now - rq->silent.at < rq->window.rtt_min)
			vb_roce_window_restore(&rq->window, rq->silent.packets, rq->silent.slow_start_below);
		rq->silent.at = 0;
	}
	vb_roce_window_acked(&rq->window, (uint32_t)(una - rq->una) + rq->uncounted, full || rq->seq < rq->una, now);
	rq->uncounted = 0;
	if (rq->stale && now - rq->back_at > rq->window.srtt)
		rq->stale = 0;
	rq->stale -= una - rq->una < rq->stale ? (uint32_t)(una - rq->una) : rq->stale;
	rq->una = una;
	time_answered(rq, now);
	if (rq->seq < rq->una)
		rq->seq = rq->una;
	while (rq->cur != rq->tail) {
		struct vb_work_sent *s = vb_roce_send_at(qp, rq->cur);

		if (!s->packets || s->seq + s->packets > rq->seq)
			break;
		rq->cur++;
	}
	vb_roce_requester_progressed(qp, now);
	vb_roce_mend_progressed(qp, now);
	vb_roce_requester_retire(qp);
}

/*
 * Called when the peer has executed all packets before this one (IBA 9.7.5, coalesced acknowledgements). Returns false
 * if a response is missing, which must be requested again (implied NAK).
 */
static __attribute__((hot)) bool acknowledge_before(struct vb_roce_qp *qp, uint64_t before, uint64_t now)
{
	if (qp->rq.executed < before)
		qp->rq.executed = before;
	uint64_t una = first_unsettled(qp);

	if (una > qp->rq.una)
		move_una(qp, una, now);
	return una >= before;
}

static void response_lost(struct vb_roce_qp *qp, uint64_t now)
{
	qp->stats.lost_responses++;
	if (vb_roce_mend_response(qp, now))
		vb_roce_window_lost(&qp->rq.window, true, now);
}

/* Credits count from the acknowledged message. */
static __attribute__((hot)) void take_credits(struct vb_roce_qp *qp, uint8_t code)
{
	struct vb_roce_requester *rq = &qp->rq;
	uint64_t base = rq->receives;

	rq->credits = code != VB_CREDITS_UNLIMITED;
	if (!rq->credits)
		return;
	if (rq->head != rq->tail) {
		struct vb_work_sent *s = vb_roce_send_at(qp, rq->head);

		base = s->receives - vb_roce_takes_receive(s);
	}
	rq->credit_limit = base + vb_credits(code);
}

static void take_ack(struct vb_roce_qp *qp, const struct vb_packet *p, uint64_t seq, uint64_t now)
{
	qp->stats.acks_rcvd++;
	bool whole = acknowledge_before(qp, seq + 1, now);

	if (!qp->rq.started)
		return;
	take_credits(qp, p->aeth.value);
	if (!whole)
		response_lost(qp, now);
}

static void take_sequence_nak(struct vb_roce_qp *qp, uint64_t now)
{
	/*
	 * deviates: IBA 9.7.5 counts sequence NAKs against retry_cnt too. Here only the timer counts: a NAK that the
	 * network duplicated must not cost a retry. NAKs do not restart the timer, so it ends a request that makes no
	 * progress.
	 */
	qp->stats.seq_naks_rcvd++;
	if (qp->rq.seq > qp->rq.una && vb_mend(qp, now))
		vb_roce_window_lost(&qp->rq.window, qp->rq.mending, now);
}

static void take_rnr_nak(struct vb_roce_qp *qp, uint8_t timer, uint64_t now)
{
	qp->stats.rnr_naks_rcvd++;
	if (qp->rq.rnr_at || qp->rq.seq == qp->rq.una)
		return; /* the requester already waits, or has sent nothing since */
	if (qp->cfg.rnr_retry != 7 && !qp->rq.rnr_left) {
		vb_roce_requester_fail(qp, VB_WORK_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->cfg.rnr_retry != 7)
		qp->rq.rnr_left--;
	vb_roce_requester_wait_rnr(qp, timer, now);
}

/* A NAK carries the PSN of the packet that was not executed. All packets before it were. */
static void take_nak(struct vb_roce_qp *qp, const struct vb_packet *p, uint64_t seq, uint64_t now)
{
	static const uint8_t statuses[] = {[VB_NAK_INVALID_REQUEST] = VB_WORK_REM_INV_REQ_ERR,
	                                   [VB_NAK_REMOTE_ACCESS] = VB_WORK_REM_ACCESS_ERR,
	                                   [VB_NAK_REMOTE_OPERATIONAL] = VB_WORK_REM_OP_ERR,
	                                   [VB_NAK_INVALID_RD_REQUEST] = VB_WORK_REM_INV_REQ_ERR};

	if (p->aeth.kind == VB_AETH_NAK && p->aeth.value >= sizeof(statuses)) {
		qp->stats.drop_response++; /* a reserved code: IBA 9.7.5.2 */
		return;
	}
	if (!acknowledge_before(qp, seq, now)) {
		response_lost(qp, now);
		return;
	}
	if (!qp->rq.started)
		return;
	if (p->aeth.kind == VB_AETH_RNR_NAK) {
		take_rnr_nak(qp, p->aeth.value, now);
	} else if (p->aeth.value == VB_NAK_PSN_SEQUENCE) {
		take_sequence_nak(qp, now);
	} else {
		qp->stats.error_naks_rcvd++;
		vb_roce_requester_fail(qp, statuses[p->aeth.value]);
	}
}

/* --- reads and atomics --- */

/*
 * Checks opcode and length of a response packet. The response to a repeated request may begin in the middle while
 * packets of the first response still arrive. So FIRST is treated like MIDDLE, and LAST like ONLY. deviates: IBA 9.9.2
 * ends the QP for a bad response. Here it is dropped, because a ghost packet of an earlier connection must not end this
 * one. A request without a good response fails by its retries.
 */
static bool response_fits(const struct vb_roce_qp *qp, const struct vb_work_sent *s, const struct vb_packet *p,
                          uint64_t seq)
{
	if ((p->info->ext & VB_EXT_AETH) && p->aeth.kind != VB_AETH_ACK)
		return false;
	if (p->info->op == VB_OP_ATOMIC_ACK)
		return vb_roce_is_atomic(s);
	if (vb_roce_is_placed(s))
		return p->bth.opcode == (VB_RC_READ_RESPONSE_ONLY | vb_roce_service(qp)) && !p->payload_len;
	if (s->work.verb != VB_VERB_READ)
		return false;
	bool last = seq + 1 == s->seq + s->packets;

	return s->chunk && p->payload_len == (last ? vb_last_len(s->work.length, qp->cfg.mtu) : qp->cfg.mtu) &&
	       !(p->info->flags & VB_LAST) == (seq + 1 != vb_roce_chunk_end(s, seq));
}

static bool store_response(struct vb_roce_qp *qp, const struct vb_work_sent *s, const struct vb_packet *p,
                           const uint8_t *payload, uint64_t seq)
{
	if (p->info->op == VB_OP_ATOMIC_ACK)
		return qp->ops->scatter(qp->own, &s->work, 0, &p->atomic_ack.original, 8);
	return !p->payload_len ||
	       qp->ops->scatter(qp->own, &s->work, (uint32_t)(seq - s->seq) * qp->cfg.mtu, payload, p->payload_len);
}

static void take_response(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload, uint64_t seq,
                          uint64_t now)
{
	struct vb_work_sent *s = find_sent(qp, seq);

	if (!s || !response_fits(qp, s, p, seq)) {
		qp->stats.drop_response++;
		return;
	}
	bool whole = acknowledge_before(qp, seq, now);

	if (!qp->rq.started)
		return;
	if (has_come(&qp->rq, seq)) {
		qp->stats.duplicate_response++;
	} else if (seq - qp->rq.una < VB_ROCE_WINDOW_MAX) {
		if (store_response(qp, s, p, payload, seq))
			mark_response(&qp->rq, seq);
		else
			s->status = VB_WORK_LOC_PROT_ERR;
	}
	if (!whole) {
		response_lost(qp, now);
		return;
	}
	if (s->status)
		vb_roce_requester_retire(qp);
	else
		acknowledge_before(qp, seq + 1, now);
	if (qp->rq.started && p->info->ext & VB_EXT_AETH)
		take_credits(qp, p->aeth.value);
}

/* Moves una by one, within a request. The rest of move_una is done for the request's last packet. */
bool vb_roce_requester_input_middle(struct vb_roce_qp *qp, struct vb_psn psn, const uint8_t *payload, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;
	uint64_t seq = rq->una;
	struct vb_work_sent *s = vb_roce_send_at(qp, rq->head);

	if (!rq->started || rq->head == rq->tail || !vb_psn_equal(psn, vb_roce_send_psn(qp, seq)) ||
	    seq + 1 >= rq->seq || rq->mending || rq->stale || has_come(rq, seq))
		return false;
	if (s->work.verb != VB_VERB_READ || s->status || seq < s->seq || !s->chunk ||
	    seq + 1 >= vb_roce_chunk_end(s, seq))
		return false;
	if (!qp->ops->scatter(qp->own, &s->work, (uint32_t)(seq - s->seq) * qp->cfg.mtu, payload, qp->cfg.mtu))
		return false;
	rq->una = seq + 1;
	if (rq->executed < seq)
		rq->executed = seq;
	rq->uncounted++;
	time_answered(rq, now);
	if (rq->progress_at != now)
		vb_roce_requester_progressed(qp, now);
	rq->progress_at = now;
	return true;
}

__attribute__((hot)) void vb_roce_requester_input(struct vb_roce_qp *qp, const struct vb_packet *p,
                                                  const uint8_t *payload, uint64_t now)
{
	int64_t seq = seq_of(qp, p->bth.psn);

	if (seq < (int64_t)qp->rq.una) {
		qp->stats.duplicate_response++;
		/* a repeated last acknowledgement may bring new credits (IBA 9.7.7.2, unsolicited acknowledgement) */
		if (seq + 1 == (int64_t)qp->rq.una && p->info->op == VB_OP_ACK && p->aeth.kind == VB_AETH_ACK)
			take_credits(qp, p->aeth.value);
	} else if (seq >= (int64_t)qp->rq.high) {
		qp->stats.drop_ghost++; /* a ghost acknowledgement */
	} else if (p->info->op != VB_OP_ACK) {
		take_response(qp, p, payload, (uint64_t)seq, now);
	} else if (p->aeth.kind == VB_AETH_ACK) {
		take_ack(qp, p, (uint64_t)seq, now);
	} else if (p->aeth.kind == VB_AETH_RNR_NAK || p->aeth.kind == VB_AETH_NAK) {
		take_nak(qp, p, (uint64_t)seq, now);
	} else {
		qp->stats.drop_response++;
	}
}
