// requester.c - turns send requests into packets
// follows: IBA volume 1, 9.7.3 (requester), 9.7.7.2 (credits), 9.8.2.1 (UC), 9.8.3.1 (UD), 10.8.3.3 (fence)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"
#include "util/units.h"

#define CHUNK_MIN 8  /* the fewest response packets that one READ request asks for */
#define CHUNK_ENDS 3 /* of these, packets outside a burst: the first and the last have longer headers */
#define BURST_MIN 4  /* packets in a row when paced: at least, at most */
#define BURST_MAX 64
#define HOLD 2            /* bursts of room that a sender waits for */
#define FIRST_WITH 2      /* the first packet of a message is longer: it and the next are outside bursts */
#define HOLD_WINDOW 4     /* bursts: in a smaller window losses would be detected too late */
#define PACED VB_MS(1)    /* ns: with longer round trips the sender is always paced, and never waits for a burst */
#define ASK_EVERY 256     /* the most packets between requests for an acknowledgement */
#define ECHO_EVERY 4      /* one of this many repeated packets is sent twice */
#define ASK_EVERY_LONG 64 /* the same for long round trips */

static const uint8_t operations[] = {[VB_VERB_SEND] = VB_OP_SEND,
                                     [VB_VERB_WRITE] = VB_OP_WRITE,
                                     [VB_VERB_READ] = VB_OP_READ,
                                     [VB_VERB_CMP_SWAP] = VB_OP_CMP_SWAP,
                                     [VB_VERB_FETCH_ADD] = VB_OP_FETCH_ADD,
                                     [VB_VERB_FLUSH] = VB_OP_FLUSH,
                                     [VB_VERB_ATOMIC_WRITE] = VB_OP_ATOMIC_WRITE};

static int opcode_of(const struct vb_roce_qp *qp, const struct vb_work_sent *s, enum vb_position position)
{
	unsigned tail = 0;

	if (position & VB_LAST)
		tail = s->work.flags & VB_WORK_IMM ? VB_EXT_IMMDT : s->work.flags & VB_WORK_INV ? VB_EXT_IETH : 0;
	return vb_opcode_find(vb_roce_service(qp), operations[s->work.verb], position, tail);
}

/* --- taking requests --- */

/* Finds errors before anything is sent. */
static enum vb_work_status find_fault(const struct vb_roce_qp *qp, const struct vb_work_sent *s)
{
	if (s->work.verb == VB_VERB_LOCAL_INV) /* it sends nothing, but ops->next_send may have refused it */
		return s->work.length > VB_WORK_MAX_MESSAGE ? VB_WORK_LOC_LEN_ERR : VB_WORK_SUCCESS;
	if (s->work.length > (qp->cfg.type == VB_ROCE_UD ? qp->cfg.mtu : VB_WORK_MAX_MESSAGE))
		return VB_WORK_LOC_LEN_ERR;
	if (opcode_of(qp, s, VB_ONLY) < 0)
		return VB_WORK_LOC_QP_OP_ERR;
	return vb_roce_is_answered(s) && !qp->cfg.max_rd_atomic ? VB_WORK_LOC_QP_OP_ERR : VB_WORK_SUCCESS;
}

static __attribute__((hot)) bool take_send(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;
	struct vb_work_sent *s = vb_roce_send_at(qp, rq->tail);

	if (rq->tail - rq->head > qp->mask || !qp->ops->next_send(qp->own, &s->work))
		return false;
	s->seq = rq->taken_seq;
	s->chunk = 0;
	s->done = false;
	s->status = find_fault(qp, s);
	s->packets = s->work.verb == VB_VERB_LOCAL_INV ? 0
	             : vb_roce_is_single(s)            ? 1
	                                               : vb_packet_count(s->work.length, qp->cfg.mtu);
	if (s->packets > 2 && !vb_roce_is_answered(s))
		s->middle = (uint8_t)opcode_of(qp, s, VB_MIDDLE);
	rq->receives += vb_roce_takes_receive(s);
	s->receives = rq->receives;
	rq->taken_seq += s->packets;
	rq->tail++;
	return true;
}

/* --- may the next packet be sent? --- */

/* At least 1, because an accepted request is sent even if the limit became 0 meanwhile. */
static uint32_t reads_at_once(const struct vb_roce_qp *qp)
{
	return qp->cfg.max_rd_atomic ? qp->cfg.max_rd_atomic : 1;
}

/* Is the round trip short? Then packets are sent in bursts, otherwise they are paced. */
static bool short_path(const struct vb_roce_requester *rq)
{
	return rq->window.rtt_min && rq->window.rtt_min < PACED;
}

static void choose_chunk(const struct vb_roce_qp *qp, struct vb_work_sent *s)
{
	uint32_t reads = reads_at_once(qp), share = reads < 4 ? reads : reads < 8 ? 4 : reads / 2;
	uint32_t third = qp->rq.window.packets / 3, whole = qp->cfg.burst + CHUNK_ENDS;

	if (s->chunk)
		return;
	s->chunk = qp->rq.window.packets / share;
	if (qp->cfg.burst && short_path(&qp->rq) && s->chunk < third) {
		s->chunk = qp->rq.window.packets / 2 >= whole ? whole : third;
		if (third > whole)
			s->chunk = third - (third - CHUNK_ENDS) % qp->cfg.burst;
	}
	if (s->chunk < CHUNK_MIN)
		s->chunk = CHUNK_MIN;
}

/* The number of PSNs of the packet. A READ request has one for each packet of its response. */
static uint64_t psn_span(const struct vb_work_sent *s, uint64_t seq)
{
	return s->work.verb == VB_VERB_READ ? vb_roce_chunk_end(s, seq) - seq : 1;
}

/* The size of the window. It is doubled while a missing packet is repeated, because packets that the peer keeps are not
 * in the network. */
static uint64_t window_limit(const struct vb_roce_requester *rq)
{
	return rq->mending && (rq->keeps == VB_ROCE_KEEPS || rq->mend_response) ? 2ull * rq->window.packets
	                                                                        : rq->window.packets;
}

/*
 * IBA 9.7.7.2: without a credit, one packet may be sent to ask for credits. The packets of a message whose first packet
 * was acknowledged need none, because the message has its receive.
 */
static bool has_credit(const struct vb_roce_qp *qp, const struct vb_work_sent *s)
{
	const struct vb_roce_requester *rq = &qp->rq;

	return !rq->credits || !vb_roce_takes_receive(s) || s->receives <= rq->credit_limit || rq->una == rq->seq ||
	       rq->una > s->seq;
}

/* Must the sender wait until there is room for a burst? Only if much is in flight, so that an acknowledgement will
 * follow. */
static bool must_wait_for_burst(struct vb_roce_qp *qp, const struct vb_work_sent *s)
{
	struct vb_roce_requester *rq = &qp->rq;
	uint64_t in_flight = rq->seq - rq->una + rq->stale;

	if (rq->burst_left || rq->seq < rq->high || rq->mending || vb_roce_is_answered(s))
		return false;
	if (!short_path(rq) || window_limit(rq) < HOLD_WINDOW * qp->cfg.burst)
		return false;
	uint64_t want = HOLD * (uint64_t)qp->cfg.burst, most = window_limit(rq) / 3;

	if (want > most)
		want = most;
	rq->waits_for_burst = rq->seq - rq->una >= 2 * want && in_flight + want > window_limit(rq);
	return rq->waits_for_burst;
}

static bool may_go(struct vb_roce_qp *qp, struct vb_work_sent *s)
{
	const struct vb_roce_requester *rq = &qp->rq;

	if (s->status || s->work.verb == VB_VERB_LOCAL_INV)
		return false;
	if (rq->paused && rq->seq == s->seq && rq->seq >= rq->high)
		return false;
	if (qp->cfg.type != VB_ROCE_RC)
		return true;
	if (s->work.flags & VB_WORK_FENCE && rq->seq == s->seq && rq->rd)
		return false;
	if (vb_roce_is_answered(s) && rq->rd >= reads_at_once(qp))
		return false;
	if (s->work.verb == VB_VERB_READ)
		choose_chunk(qp, s);
	if (rq->keeps == VB_ROCE_KEEPS_TRIAL)
		return false;
	return rq->seq == rq->una || (rq->seq - rq->una + rq->stale + psn_span(s, rq->seq) <= window_limit(rq) &&
	                              !must_wait_for_burst(qp, s));
}

/* The request of the next packet, if that may be sent now. */
static __attribute__((hot)) struct vb_work_sent *take_next_to_send(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (!rq->started || rq->rnr_at || (rq->cur == rq->tail && !take_send(qp)))
		return NULL;
	struct vb_work_sent *s = vb_roce_send_at(qp, rq->cur);

	if (!may_go(qp, s))
		return NULL;
	if (has_credit(qp, s))
		return s;
	qp->stats.credit_waits++;
	return NULL;
}

/* --- packets --- */

static void fill_request(struct vb_packet *p, const struct vb_roce_qp *qp, const struct vb_work_sent *s, uint32_t at,
                         uint32_t psns)
{
	const struct vb_work *r = &s->work;
	uint64_t offset = (uint64_t)at * qp->cfg.mtu;
	uint32_t left = (uint32_t)(r->length - offset), asked = psns * qp->cfg.mtu;

	p->reth = (struct vb_reth){r->remote_addr + offset, r->rkey,
	                           r->verb == VB_VERB_READ && left > asked ? asked : left};
	p->atomic = (struct vb_atomic){r->remote_addr, r->rkey, r->swap_add, r->compare};
	p->feth = vb_feth_of(r->imm);
	p->deth = (struct vb_deth){r->ud_qkey, qp->cfg.qpn};
	p->xrceth.srqn = r->srqn;
	p->immdt.data = p->ieth.rkey = r->imm;
}

static uint8_t next_opcode(const struct vb_roce_qp *qp, const struct vb_work_sent *s, uint32_t at)
{
	bool first = !at || vb_roce_is_answered(s), last = at + 1 == s->packets || vb_roce_is_answered(s);
	enum vb_position position = (first ? VB_FIRST : 0) | (last ? VB_LAST : 0);

	return position == VB_MIDDLE ? s->middle : (uint8_t)opcode_of(qp, s, position);
}

static bool fetch_payload(struct vb_roce_qp *qp, struct vb_work_sent *s, uint32_t at, uint8_t opcode,
                          struct vb_roce_out *out)
{
	uint32_t offset = at * qp->cfg.mtu, left = s->work.length - offset,
	         len = left < qp->cfg.mtu ? left : qp->cfg.mtu;

	if (s->work.verb == VB_VERB_ATOMIC_WRITE) {
		out->payload_len = sizeof(s->work.swap_add);
		memcpy(vb_roce_payload(out, opcode), &s->work.swap_add, sizeof(s->work.swap_add));
	}
	if (vb_roce_is_answered(s))
		return true;
	qp->again = qp->rq.seq < qp->rq.high || qp->rq.mend_next < qp->rq.mend_end;
	if (len && !qp->ops->fetch(qp->own, &s->work, offset, vb_roce_payload(out, opcode), len)) {
		s->status = VB_WORK_LOC_PROT_ERR;
		return false;
	}
	out->payload_len = len;
	return true;
}

/* How often to ask for an acknowledgement (IBA 9.7.3.3 leaves it to the requester). */
static uint32_t ask_every(const struct vb_roce_requester *rq)
{
	uint32_t most = short_path(rq) ? ASK_EVERY : ASK_EVERY_LONG;

	return rq->window.packets / 4 < most ? rq->window.packets / 4 : most;
}

static bool decide_ack_request(struct vb_roce_qp *qp, bool more)
{
	if (++qp->rq.unasked < ask_every(&qp->rq) && (more || take_next_to_send(qp)))
		return false;
	qp->rq.unasked = 0;
	return true;
}

static __attribute__((hot)) void count_sent(struct vb_roce_qp *qp, struct vb_work_sent *s, uint64_t psns)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->seq < rq->high)
		qp->stats.resent_pkts++;
	rq->rd += vb_roce_is_answered(s);
	rq->waits_for_burst = false;
	if (rq->seq == s->seq && s->packets > FIRST_WITH && psns == 1 && qp->cfg.burst)
		rq->burst_left = HOLD * qp->cfg.burst + FIRST_WITH;
	else if (!rq->burst_left)
		rq->burst_left = HOLD * qp->cfg.burst;
	rq->burst_left -= rq->burst_left > 0;
	rq->seq += psns;
	if (rq->seq == s->seq + s->packets)
		rq->cur++;
	if (rq->high < rq->seq)
		rq->high = rq->seq;
}

static __attribute__((hot)) void time_it(struct vb_roce_qp *qp, uint64_t seq, bool first, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;
	const struct vb_roce_timed *last = &rq->timed[(rq->timed_0 + rq->timed_n - 1u) % VB_ROCE_TIMED];

	if (rq->timed_n == VB_ROCE_TIMED || seq < rq->sure_from || (rq->mending && seq != rq->mend_seq))
		return;
	if (rq->timed_n &&
	    (seq <= last->seq || now - last->at < rq->window.srtt / VB_ROCE_TIMED || !rq->window.srtt || !first))
		return; /* only the first of the repeated packets is timed, because the peer may have kept the others */
	rq->timed[(rq->timed_0 + rq->timed_n++) % VB_ROCE_TIMED] =
	        (struct vb_roce_timed){.seq = seq, .at = now, .first = first};
}

/* The first and the last of selectively repeated packets ask for an acknowledgement. Second copies do not. */
static bool ask_mended(struct vb_roce_qp *qp, uint64_t seq, uint64_t psns, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;
	bool second = rq->echo, last = seq + psns == rq->mend_end;

	qp->stats.resent_pkts++;
	rq->echo = rq->echoes && !second && (last || (seq - rq->mend_seq) % ECHO_EVERY == 0);
	rq->mend_next = rq->echo ? seq : seq + psns;
	rq->mend_last_at = now;
	return !second && (last || seq == rq->mend_seq);
}

/*
 * Sends the first packet after going back twice, like the first packet of a mend. The second copy of a READ request
 * asks for the last packet of the response only. A responder that has not executed that far does not answer it (IBA
 * 9.7.5.1.4).
 */
static void echo_first(struct vb_roce_requester *rq, const struct vb_work_sent *s, uint64_t seq)
{
	uint64_t end = seq + psn_span(s, seq);

	if (seq == rq->back_una && rq->high > end) {
		rq->mend_next = rq->mend_seq = end - 1;
		rq->mend_end = end;
		rq->echoes = rq->echo = true;
	}
	rq->back_echo = false;
}

static __attribute__((hot)) void make_packet(struct vb_roce_qp *qp, struct vb_work_sent *s, uint64_t seq,
                                             uint8_t opcode, struct vb_roce_out *out, uint64_t now)
{
	bool last = vb_opcode_info(opcode)->flags & VB_LAST, mended = qp->rq.mend_next < qp->rq.mend_end;
	uint64_t psns = psn_span(s, seq);
	bool first_time = seq >= qp->rq.high, second = mended && qp->rq.echo;
	struct vb_packet p = {.bth = {.opcode = opcode, .psn = vb_roce_send_psn(qp, seq)}};

	p.bth.solicited = last && s->work.flags & VB_WORK_SOLICITED && vb_roce_takes_receive(s);
	if (qp->cfg.type == VB_ROCE_UD)
		p.bth.dest_qpn = s->work.ud_qpn;
	fill_request(&p, qp, s, (uint32_t)(seq - s->seq), (uint32_t)psns);
	if (!mended)
		count_sent(qp, s, psns);
	if (!mended && qp->rq.back_echo)
		echo_first(&qp->rq, s, seq);
	if (qp->cfg.type == VB_ROCE_RC) {
		vb_roce_requester_arm(qp, now);
		p.bth.ack_req = (mended ? ask_mended(qp, seq, psns, now) : decide_ack_request(qp, false)) &&
		                !vb_roce_is_answered(s);
		if (p.bth.ack_req || (vb_roce_is_answered(s) && !second))
			time_it(qp, seq, first_time, now);
	}
	out->ah = s->work.ah;
	vb_roce_seal(qp, out, &p);
}

/* Executes a local operation when all requests before it are done, because a packet that must be repeated may need the
 * key that it invalidates. */
static void run_local(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;

	while (rq->started && (rq->cur != rq->tail || take_send(qp))) {
		struct vb_work_sent *s = vb_roce_send_at(qp, rq->cur);

		if (rq->cur != rq->head || s->work.verb != VB_VERB_LOCAL_INV)
			return;
		enum vb_local r = s->status ? VB_LOCAL_DONE : qp->ops->local(qp->own, &s->work);

		if (r == VB_LOCAL_LATER)
			return;
		s->done = true;
		rq->cur++;
		if (r == VB_LOCAL_FAILED)
			s->status = VB_WORK_MW_BIND_ERR;
		vb_roce_requester_retire(qp);
	}
}

/* The request of the next packet to repeat selectively, or NULL. */
static struct vb_work_sent *next_to_mend(struct vb_roce_qp *qp)
{
	struct vb_roce_requester *rq = &qp->rq;

	if (rq->mend_next < rq->una)
		rq->mend_next = rq->una;
	if (!rq->started || rq->rnr_at || rq->mend_next >= rq->mend_end)
		return NULL;
	for (uint32_t i = rq->head; i != rq->tail; i++) {
		struct vb_work_sent *s = vb_roce_send_at(qp, i);

		if (rq->mend_next < s->seq + s->packets)
			return s->status ? NULL : s;
	}
	return NULL;
}

/*
 * Does the pace allow the next packet? The sender may be ahead of it by a burst. Packets are paced if round trips are
 * long, and during a mend, when one acknowledgement may cover all packets kept behind a gap.
 */
static bool pace_allows(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;
	const struct vb_roce_window *win = &rq->window;
	uint64_t share = win->packets < win->slow_start_below ? 2 : 4; /* 2.5 or 1.25 windows per round trip */
	uint64_t apart = win->srtt * share / 5 / win->packets, burst = win->packets / 50;

	burst = (burst < BURST_MIN ? BURST_MIN : burst < BURST_MAX ? burst : BURST_MAX) * apart;

	rq->wake_at = 0;
	if (!apart || (rq->window.rtt_min < PACED && !rq->mending) || (rq->echo && rq->mend_next < rq->mend_end))
		return true;
	if (rq->pace_at + burst < now)
		rq->pace_at = now - burst;
	if (rq->pace_at > now) {
		rq->wake_at = rq->pace_at + burst / 2;
		return false;
	}
	rq->pace_at += apart;
	return true;
}

/* Computes how many middle packets of s may follow without further checks. Those of XRC have more than a BTH. */
static void begin_run(struct vb_roce_qp *qp, const struct vb_work_sent *s, struct vb_roce_out *out)
{
	const struct vb_roce_requester *rq = &qp->rq;
	bool rc = qp->cfg.type == VB_ROCE_RC;

	if (qp->cfg.xrc || vb_roce_is_answered(s) || s->packets < 3 || rq->seq + 1 >= s->seq + s->packets ||
	    rq->seq <= s->seq || rq->seq < rq->high)
		return;
	if (qp->rs.owed != VB_ROCE_NO_ACK || qp->rs.unanswered || rq->mending || (rc && rq->window.rtt_min >= PACED))
		return;
	if (take_next_to_send(qp) != s)
		return;
	uint64_t n = s->seq + s->packets - 1 - rq->seq, room = window_limit(rq) - (rq->seq - rq->una + rq->stale);

	if (rc && n > room)
		n = room;
	if (rc && rq->burst_left && n > rq->burst_left)
		n = rq->burst_left;
	vb_roce_run(out, (uint32_t)n, s->middle, NULL);
}

/* Writes the next middle packet. Returns false if the memory is not mapped: vb_roce_requester_output is tried next, fails in
 * the same way, and reports it. */
bool vb_roce_requester_middle(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now)
{
	struct vb_roce_requester *rq = &qp->rq;
	struct vb_work_sent *s = vb_roce_send_at(qp, rq->cur);
	uint64_t seq = rq->seq;
	bool asks = false;

	qp->again = seq < rq->high;
	if (!qp->ops->fetch(qp->own, &s->work, (uint32_t)(seq - s->seq) * qp->cfg.mtu, out->packet + VB_BTH_LEN,
	                    qp->cfg.mtu))
		return false;
	count_sent(qp, s, 1);
	if (qp->cfg.type == VB_ROCE_RC) {
		asks = decide_ack_request(qp, out->run.left > 1);
		if (asks)
			time_it(qp, seq, true, now);
	}
	vb_roce_seal_middle(qp, out, vb_roce_send_psn(qp, seq), asks);
	return true;
}

/* The same for several packets that do not ask for an acknowledgement. Leaves out the last packet of the run. */
uint32_t vb_roce_requester_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart)
{
	struct vb_roce_requester *rq = &qp->rq;
	struct vb_work_sent *s = vb_roce_send_at(qp, rq->cur);
	uint32_t mtu = qp->cfg.mtu, every = ask_every(rq), i;

	if (n == out->run.left)
		n--;
	if (qp->cfg.type == VB_ROCE_RC && n > rq->burst_left)
		n = rq->burst_left;
	if (qp->cfg.type == VB_ROCE_RC && rq->unasked + n >= every)
		n = rq->unasked + 1 < every ? every - rq->unasked - 1 : 0;
	qp->again = false;
	for (i = 0; i < n; i++) {
		uint8_t *packet = out->packet + (size_t)i * apart;

		if (!qp->ops->fetch(qp->own, &s->work, (uint32_t)(rq->seq + i - s->seq) * mtu, packet + VB_BTH_LEN,
		                    mtu))
			break;
		vb_roce_middle_bth(out, packet, vb_roce_send_psn(qp, rq->seq + i), false);
	}
	rq->seq += i;
	rq->high = rq->seq;
	if (qp->cfg.type == VB_ROCE_RC) {
		rq->burst_left -= i;
		rq->unasked += i;
	}
	return i;
}

__attribute__((hot)) bool vb_roce_requester_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now)
{
	run_local(qp);
	struct vb_work_sent *s = next_to_mend(qp);
	uint64_t seq = s ? qp->rq.mend_next : qp->rq.seq;

	qp->rq.wake_at = 0;
	if (!s)
		s = take_next_to_send(qp);
	if (!s) {
		if (qp->rq.started)
			vb_roce_requester_retire(
			        qp); /* reports an error that was found earlier, when its turn has come */
		return false;
	}
	if (qp->cfg.type == VB_ROCE_RC && !pace_allows(qp, now))
		return false;
	uint32_t at = (uint32_t)(seq - s->seq);
	uint8_t opcode = next_opcode(qp, s, at);

	if (!fetch_payload(qp, s, at, opcode, out)) {
		vb_roce_requester_retire(qp);
		return false;
	}
	make_packet(qp, s, seq, opcode, out, now);
	begin_run(qp, s, out);
	return true;
}
