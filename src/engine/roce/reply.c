// reply.c - the responder's output: acknowledgements, NAKs, read responses, results of atomics, in order
// follows: IBA volume 1, 9.7.5.1 (responses), 9.7.5.2 (NAK), 9.7.7.2 (credits)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

#define RUN 240 /* the most packets of a response in a row, before requests are sent */

__attribute__((hot)) void vb_roce_owe_ack(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_responder *rs = &qp->rs;

	if (rs->owed > VB_ROCE_ACK)
		return; /* a NAK acknowledges too */
	if (rs->owed == VB_ROCE_NO_ACK) {
		rs->owed = VB_ROCE_ACK;
		rs->owed_for = 0;
		rs->ack_at = qp->cfg.ack_delay ? now + qp->cfg.ack_delay : 0;
	}
	if (++rs->owed_for >= qp->cfg.ack_every)
		rs->ack_at = 0;
}

void vb_roce_owe_rnr(struct vb_roce_qp *qp)
{
	qp->rs.owed = VB_ROCE_RNR;
	qp->rs.nak_psn = qp->rs.epsn;
}

void vb_roce_owe_nak(struct vb_roce_qp *qp, enum vb_nak nak, struct vb_psn psn)
{
	qp->rs.owed = VB_ROCE_NAK;
	qp->rs.nak = nak;
	qp->rs.nak_psn = psn;
}

/*
 * Answers to earlier reads are sent before the NAK. deviates: by IBA 10.3.1 a QP in ERR sends nothing. This one still
 * sends pending answers, and repeats a lost NAK, so that the requester learns the reason.
 */
void vb_roce_responder_refuse(struct vb_roce_qp *qp, enum vb_refusal why, struct vb_psn psn)
{
	static const uint8_t naks[] = {[VB_REFUSE_INVALID] = VB_NAK_INVALID_REQUEST,
	                               [VB_REFUSE_TOO_LONG] = VB_NAK_INVALID_REQUEST,
	                               [VB_REFUSE_DENIED] = VB_NAK_REMOTE_ACCESS,
	                               [VB_REFUSE_ACCESS] = VB_NAK_REMOTE_ACCESS,
	                               [VB_REFUSE_RECEIVE] = VB_NAK_REMOTE_OPERATIONAL};

	vb_roce_owe_nak(qp, (enum vb_nak)naks[why], psn);
	qp->rs.closed = true;
	vb_roce_end_receive(qp, vb_refused_rows[why].receive);
	vb_roce_kill(qp, vb_refused_rows[why].event);
}

static __attribute__((hot)) uint8_t current_credits(struct vb_roce_qp *qp)
{
	uint32_t receives = qp->ops->receives(qp->own);

	return receives == UINT32_MAX ? VB_CREDITS_UNLIMITED : vb_credit_code(receives);
}

static void make_ack(struct vb_roce_qp *qp, struct vb_roce_out *out)
{
	struct vb_roce_responder *rs = &qp->rs;
	struct vb_packet p = {.bth = {.opcode = VB_RC_ACK | vb_roce_service(qp), .psn = rs->nak_psn},
	                      .aeth.msn = rs->msn};

	struct vb_psn passed = rs->epsn; /* what was passed on is acknowledged when it is executed */

	if (rs->owed == VB_ROCE_ACK) {
		if (qp->cfg.xrc)
			qp->ops->oldest_passed(qp->own, &passed, &p.aeth.msn);
		p.bth.psn = vb_roce_resource_before(qp, vb_psn_add(passed, -1));
		p.aeth.value = current_credits(qp);
		qp->stats.acks_sent++;
	} else if (rs->owed == VB_ROCE_RNR) {
		p.aeth.kind = VB_AETH_RNR_NAK;
		p.aeth.value = qp->cfg.min_rnr_timer & 31;
		qp->stats.rnr_naks_sent++;
	} else {
		p.aeth.kind = VB_AETH_NAK;
		p.aeth.value = rs->nak;
		if (rs->nak == VB_NAK_PSN_SEQUENCE)
			qp->stats.seq_naks_sent++;
		else
			qp->stats.error_naks_sent++;
	}
	rs->owed = VB_ROCE_NO_ACK;
	rs->ack_at = 0;
	rs->acked_to = rs->epsn;
	vb_roce_seal(qp, out, &p);
}

static uint8_t response_opcode(const struct vb_roce_qp *qp, const struct vb_roce_resource *r)
{
	enum vb_position position = (r->next == r->from ? VB_FIRST : 0) | (r->next + 1 == r->end ? VB_LAST : 0);
	static const uint8_t opcodes[] = {[VB_MIDDLE] = VB_RC_READ_RESPONSE_MIDDLE,
	                                  [VB_FIRST] = VB_RC_READ_RESPONSE_FIRST,
	                                  [VB_LAST] = VB_RC_READ_RESPONSE_LAST,
	                                  [VB_ONLY] = VB_RC_READ_RESPONSE_ONLY};

	return (r->atomic ? VB_RC_ATOMIC_ACK : opcodes[position]) | vb_roce_service(qp);
}

static bool went_before(const struct vb_roce_resource *r)
{
	return r->answered || r->from;
}

/* Checks the key for each packet, because it may have been invalidated meanwhile. */
static enum vb_roce_data fetch_response(struct vb_roce_qp *qp, const struct vb_roce_resource *r, uint8_t opcode,
                                        struct vb_roce_out *out, bool *runs)
{
	uint64_t offset = (uint64_t)r->next * qp->cfg.mtu;

	if (r->waits)
		return VB_ROCE_WAIT;
	if (r->atomic || !r->length)
		return VB_ROCE_DATA;
	uint32_t len = r->end_length - offset < qp->cfg.mtu ? (uint32_t)(r->end_length - offset) : qp->cfg.mtu;

	qp->again = went_before(r);
	enum vb_roce_srq where = qp->cfg.xrc ? qp->ops->select_srq(qp->own, r->srqn, true) : VB_ROCE_SRQ_HERE;
	enum vb_roce_data got = VB_ROCE_GONE;

	if (where == VB_ROCE_SRQ_THERE)
		got = qp->ops->read_there(qp->own, r, (uint32_t)offset, vb_roce_payload(out, opcode), len);
	else if (where == VB_ROCE_SRQ_HERE &&
	         qp->ops->read(qp->own, r->rkey, r->va + offset, vb_roce_payload(out, opcode), len))
		got = VB_ROCE_DATA;
	*runs = where == VB_ROCE_SRQ_HERE;
	out->payload_len = got == VB_ROCE_DATA ? len : 0;
	return got;
}

static enum vb_roce_data make_response(struct vb_roce_qp *qp, struct vb_roce_resource *r, struct vb_roce_out *out)
{
	struct vb_roce_responder *rs = &qp->rs;
	struct vb_packet p = {.bth = {.opcode = response_opcode(qp, r), .psn = vb_psn_add(r->psn, (int32_t)r->next)},
	                      .aeth = {.msn = r->msn},
	                      .atomic_ack.original = r->original};

	bool runs = true; /* more packets may follow without a look at their SRQ */
	enum vb_roce_data got = fetch_response(qp, r, p.bth.opcode, out, &runs);

	if (got != VB_ROCE_DATA)
		return got;
	if (vb_opcode_info(p.bth.opcode)->ext & VB_EXT_AETH)
		p.aeth.value = current_credits(qp);
	vb_roce_resource_sent(qp, r);
	/* the answer to the last request also acknowledges all requests before it */
	if (vb_psn_equal(vb_psn_add(p.bth.psn, 1), rs->epsn)) {
		rs->acked_to = rs->epsn;
		if (rs->owed == VB_ROCE_ACK) {
			rs->owed = VB_ROCE_NO_ACK;
			rs->ack_at = 0;
		}
	}
	vb_roce_seal(qp, out, &p);
	if (runs && r->next > r->from && r->next + 1 < r->end)
		vb_roce_run(out, r->end - 1 - r->next < RUN ? r->end - 1 - r->next : RUN,
		            VB_RC_READ_RESPONSE_MIDDLE | vb_roce_service(qp), r);
	return VB_ROCE_DATA;
}

/* Writes the next middle packet of the answer. Returns false if the memory is not mapped: vb_roce_reply_output is tried next,
 * fails in the same way, and reports it. */
bool vb_roce_reply_middle(struct vb_roce_qp *qp, struct vb_roce_out *out)
{
	struct vb_roce_resource *r = out->run.answered;
	struct vb_psn psn = vb_psn_add(r->psn, (int32_t)r->next);

	qp->again = went_before(r);
	if (!qp->ops->read(qp->own, r->rkey, r->va + (uint64_t)r->next * qp->cfg.mtu, out->packet + VB_BTH_LEN,
	                   qp->cfg.mtu))
		return false;
	r->next++;
	vb_roce_seal_middle(qp, out, psn, false);
	return true;
}

/* The same for several packets. */
uint32_t vb_roce_reply_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart)
{
	struct vb_roce_resource *r = out->run.answered;
	uint32_t mtu = qp->cfg.mtu, i;

	qp->again = went_before(r);
	for (i = 0; i < n; i++) {
		uint8_t *packet = out->packet + (size_t)i * apart;

		if (!qp->ops->read(qp->own, r->rkey, r->va + (uint64_t)(r->next + i) * mtu, packet + VB_BTH_LEN, mtu))
			break;
		vb_roce_middle_bth(out, packet, vb_psn_add(r->psn, (int32_t)(r->next + i)), false);
	}
	r->next += i;
	return i;
}

/*
 * Ends a repeated answer whose memory the program has deregistered after the answer was sent once. Most likely the
 * answer had arrived, and the repeated request was late. A requester that still needs the answer fails by its own
 * retries.
 */
static bool was_answered(struct vb_roce_qp *qp, struct vb_roce_resource *r)
{
	if (!r->answered)
		return false;
	r->next = r->end;
	qp->rs.unanswered--;
	qp->stats.drop_replay++;
	return true;
}

__attribute__((hot)) bool vb_roce_reply_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now)
{
	struct vb_roce_responder *rs = &qp->rs;
	struct vb_roce_resource *r;

	while ((r = vb_roce_resource_unanswered(qp))) {
		enum vb_roce_data got = make_response(qp, r, out);

		if (got != VB_ROCE_GONE)
			return got == VB_ROCE_DATA; /* if it waits for data, so do acknowledgements behind it */
		if (was_answered(qp, r))
			continue;
		rs->unanswered = 0;
		rs->res_head = rs->res_tail;
		vb_roce_responder_refuse(qp, VB_REFUSE_DENIED, vb_psn_add(r->psn, (int32_t)r->next));
	}
	if (rs->owed == VB_ROCE_NO_ACK || (rs->owed == VB_ROCE_ACK && rs->ack_at > now))
		return false;
	make_ack(qp, out);
	return true;
}
