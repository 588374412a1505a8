// roce.c - a RoCE queue pair: start and end, and dispatch of packets and timers to requester and responder
// follows: IBA volume 1, 9.6 (packet validation), 10.3 (states)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"
#include "util/units.h"

#define PROBE_MIN VB_MS(1)  /* ns: default of cfg.probe_min */
#define UC_PAUSE VB_US(100) /* ns: pause of a UC sender after a congestion notification */
#define MIGREQ 0x40         /* bit of the BTH's second byte */
#define CNP_EVERY VB_US(50) /* ns: the shortest time between two congestion notifications */

const char *vb_work_status_text(enum vb_work_status status)
{
	static const char *const text[] = {
#define X(name, words) [VB_WORK_##name] = words,
	        VB_WORK_STATUSES(X)
#undef X
	};

	return text[status];
}

static uint8_t limit_resources(const struct vb_roce_config *cfg)
{
	return cfg->max_dest_rd_atomic < VB_ROCE_MAX_RESOURCES ? cfg->max_dest_rd_atomic : VB_ROCE_MAX_RESOURCES;
}

void vb_roce_init(struct vb_roce_qp *qp, const struct vb_roce_config *cfg, const struct vb_roce_ops *ops, void *own,
                  struct vb_work_sent *sends, uint32_t sends_len)
{
	*qp = (struct vb_roce_qp){.cfg = *cfg, .ops = ops, .own = own, .sends = sends, .mask = sends_len - 1};
	qp->cfg.max_dest_rd_atomic = limit_resources(cfg);
	if (!qp->cfg.ack_every)
		qp->cfg.ack_every = 32;
	if (!qp->cfg.probe_min)
		qp->cfg.probe_min = PROBE_MIN;
	qp->rs.epsn = qp->rs.acked_to = cfg->rq_psn;
	vb_roce_window_init(&qp->rq.window, cfg->max_window, cfg->mtu);
}

void vb_roce_reconfigure(struct vb_roce_qp *qp, const struct vb_roce_config *cfg)
{
	struct vb_roce_config *c = &qp->cfg;

	c->timeout = cfg->timeout;
	c->retry_cnt = qp->rq.retry_left = cfg->retry_cnt;
	c->rnr_retry = qp->rq.rnr_left = cfg->rnr_retry;
	c->min_rnr_timer = cfg->min_rnr_timer;
	c->access = cfg->access;
	c->max_rd_atomic = cfg->max_rd_atomic;
	c->max_dest_rd_atomic = limit_resources(cfg);
	c->pkey = cfg->pkey;
	c->qkey = cfg->qkey;
	if (!qp->rq.started && !qp->rq.taken_seq)
		c->sq_psn = cfg->sq_psn;
}

void vb_roce_start(struct vb_roce_qp *qp)
{
	qp->rq.started = true;
	qp->rq.retry_left = qp->cfg.retry_cnt;
	qp->rq.rnr_left = qp->cfg.rnr_retry;
}

void vb_roce_pause(struct vb_roce_qp *qp, bool paused)
{
	qp->rq.paused = paused;
}

bool vb_roce_idle(const struct vb_roce_qp *qp)
{
	return qp->rq.una == qp->rq.high;
}

void vb_roce_end_receive(struct vb_roce_qp *qp, enum vb_work_status status)
{
	if (!qp->rs.in.receive)
		return;
	qp->rs.in.receive = false;
	qp->ops->complete_receive(qp->own, &(struct vb_receipt){.status = status});
}

static void flush_qp(struct vb_roce_qp *qp)
{
	qp->dead = true;
	qp->rq.started = false;
	qp->rq.retry_at = qp->rq.probe_at = qp->rq.rnr_at = qp->rq.wake_at = 0;
	vb_roce_requester_flush(qp);
	vb_roce_end_receive(qp, VB_WORK_WR_FLUSH_ERR);
	qp->rs.in = (struct vb_roce_inbound){0};
	vb_roce_ahead_drop(qp);
	if (qp->rs.closed) /* a NAK must be sent or repeated */
		return;
	qp->rs.owed = VB_ROCE_NO_ACK;
	qp->rs.unanswered = 0;
	qp->rs.cnp = false;
}

void vb_roce_kill(struct vb_roce_qp *qp, enum vb_work_event event)
{
	if (qp->dead)
		return;
	flush_qp(qp);
	qp->ops->failed(qp->own, event);
}

void vb_roce_abort(struct vb_roce_qp *qp)
{
	qp->rs.closed = false;
	flush_qp(qp);
}

/* IBA 10.9.3: the base values are the same, and at least one of the two is a full member. */
static bool pkey_matches(uint16_t a, uint16_t b)
{
	return !((a ^ b) & 0x7fff) && ((a | b) & 0x8000) && (a & 0x7fff);
}

/* IBA 9.6.1: checks that every packet must pass, whatever its operation. */
static bool admit_packet(struct vb_roce_qp *qp, const struct vb_packet *p)
{
	if (p->bth.dest_qpn != qp->cfg.qpn) {
		qp->stats.drop_qpn++;
		return false;
	}
	if (p->info->op == VB_OP_CNP)
		return true;
	if (p->info->service != vb_roce_service(qp) ||
	    (qp->cfg.xrc == VB_ROCE_XRC_INITIATOR && p->info->flags & VB_REQUEST)) {
		qp->stats.drop_type++;
		return false;
	}
	if (!pkey_matches(p->bth.pkey, qp->cfg.pkey)) {
		qp->stats.drop_pkey++;
		return false;
	}
	return true;
}

void vb_roce_congested(struct vb_roce_qp *qp, uint64_t now)
{
	if (now < qp->rs.cnp_after || qp->cfg.type == VB_ROCE_UD)
		return;
	qp->rs.cnp = true;
	qp->rs.cnp_after = now + CNP_EVERY;
}

/* UC has no window, so the sender pauses instead. It sends at least one packet between two pauses, because
 * notifications have no PSN and are easily forged. */
static void pause_uc(struct vb_roce_qp *qp, uint64_t now)
{
	if (qp->rq.rnr_at || qp->rq.seq + 1 == qp->rq.cnp_seq)
		return;
	qp->rq.rnr_at = now + UC_PAUSE;
	qp->rq.cnp_seq = qp->rq.seq + 1;
}

/* Would the peer send this packet now? Otherwise the packet does not show that the peer is alive. */
__attribute__((hot)) bool vb_roce_expects(const struct vb_roce_qp *qp, const struct vb_packet *p)
{
	bool request = p->info->flags & VB_REQUEST && p->info->service == vb_roce_service(qp);

	return qp->cfg.type == VB_ROCE_UD || (request && vb_psn_equal(p->bth.psn, qp->rs.epsn));
}

__attribute__((hot)) void vb_roce_input(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                                        const struct vb_roce_from *from, uint64_t now)
{
	if (!admit_packet(qp, p))
		return;
	qp->stats.rcvd_pkts++;
	qp->stats.rcvd_bytes += p->payload_len;
	if (from->congested && !qp->dead)
		vb_roce_congested(qp, now);
	if (p->info->op == VB_OP_CNP) {
		qp->stats.cnp_rcvd++;
		vb_roce_window_marked(&qp->rq.window, now);
		if (qp->cfg.type == VB_ROCE_UC)
			pause_uc(qp, now);
	} else if (qp->dead && !qp->rs.closed) {
		qp->stats.drop_state++;
	} else if (qp->cfg.type == VB_ROCE_UD) {
		vb_roce_datagram_input(qp, p, payload, from);
	} else if (p->info->flags & VB_REQUEST) {
		vb_roce_responder_input(qp, p, payload, from->port, now);
	} else if (qp->rq.started) {
		vb_roce_requester_input(qp, p, payload, now);
	} else {
		qp->stats.drop_state++;
	}
}

void vb_roce_input_unknown(struct vb_roce_qp *qp, const struct vb_bth *bth)
{
	bool rc = qp->cfg.type == VB_ROCE_RC && qp->cfg.xrc != VB_ROCE_XRC_INITIATOR &&
	          bth->opcode >> 5 == vb_roce_service(qp) >> 5;

	if (rc && bth->dest_qpn == qp->cfg.qpn && pkey_matches(bth->pkey, qp->cfg.pkey))
		vb_roce_responder_input_unknown(qp, bth->psn);
}

/* Reads the BTH byte by byte: opcode; flags; P_Key; resv8a; DestQP; ack; PSN. */
bool vb_roce_input_middle(struct vb_roce_qp *qp, const uint8_t *bytes, size_t len, uint16_t port, uint64_t now)
{
	const uint8_t *payload = bytes + VB_BTH_LEN;

	if (len != VB_BTH_LEN + qp->cfg.mtu + VB_ICRC_LEN || qp->dead || bytes[1] & ~MIGREQ)
		return false;
	if (vb_bth_dest_qpn(bytes) != qp->cfg.qpn || !pkey_matches((uint16_t)(bytes[2] << 8 | bytes[3]), qp->cfg.pkey))
		return false;
	struct vb_psn psn = vb_bth_psn(bytes);
	bool ask = bytes[8] >> 7, taken = false;

	uint8_t service = vb_roce_service(qp);

	if (bytes[0] == (VB_RC_WRITE_MIDDLE | service))
		taken = !qp->cfg.xrc && vb_roce_responder_input_middle(qp, VB_OP_WRITE, psn, ask, payload, port, now);
	else if (bytes[0] == (VB_RC_SEND_MIDDLE | service)) /* XRC: with an XRCETH, which this does not read */
		taken = !qp->cfg.xrc && vb_roce_responder_input_middle(qp, VB_OP_SEND, psn, ask, payload, port, now);
	else if (bytes[0] == (VB_RC_READ_RESPONSE_MIDDLE | service) && qp->cfg.type == VB_ROCE_RC)
		taken = vb_roce_requester_input_middle(qp, psn, payload, now);
	qp->stats.rcvd_pkts += taken;
	qp->stats.rcvd_bytes += taken ? qp->cfg.mtu : 0;
	return taken;
}

__attribute__((hot)) uint8_t *vb_roce_payload(const struct vb_roce_out *out, uint8_t opcode)
{
	return out->packet + vb_opcode_info(opcode)->header_len;
}

__attribute__((hot)) void vb_roce_seal(struct vb_roce_qp *qp, struct vb_roce_out *out, struct vb_packet *p)
{
	struct vb_writer w = vb_writer(out->packet, VB_ROCE_MAX_HEADER);

	p->bth.migreq = true; /* IBA 9.2: always "migrated" without path migration; adapters drop other packets */
	p->bth.pkey = qp->cfg.pkey;
	if (qp->cfg.type != VB_ROCE_UD)
		p->bth.dest_qpn = qp->cfg.dest_qpn;
	p->bth.pad = vb_pad_count(out->payload_len);
	vb_packet_encode(&w, p);
	out->header_len = (uint32_t)w.pos;
	out->pad = p->bth.pad;
	memset(out->packet + out->header_len + out->payload_len, 0, out->pad);
	out->opcode = p->bth.opcode;
	out->psn = p->bth.psn;
	qp->stats.sent_pkts++;
	qp->stats.sent_bytes += out->payload_len;
}

void vb_roce_run(struct vb_roce_out *out, uint32_t n, uint8_t opcode, struct vb_roce_resource *answered)
{
	out->run.left = n;
	out->run.answered = answered;
	memcpy(out->run.bth, out->packet, VB_BTH_LEN);
	out->run.bth[0] = opcode;
	out->run.bth[1] = MIGREQ;
}

void vb_roce_seal_middle(struct vb_roce_qp *qp, struct vb_roce_out *out, struct vb_psn psn, bool ask)
{
	vb_roce_middle_bth(out, out->packet, psn, ask);
	out->header_len = VB_BTH_LEN;
	out->payload_len = qp->cfg.mtu;
	out->pad = 0;
	out->opcode = out->run.bth[0];
	out->psn = psn;
	out->run.left--;
	qp->stats.sent_pkts++;
	qp->stats.sent_bytes += qp->cfg.mtu;
}

uint32_t vb_roce_output_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart)
{
	if (n > out->run.left)
		n = out->run.left;
	n = out->run.answered ? vb_roce_reply_more(qp, out, n, apart) : vb_roce_requester_more(qp, out, n, apart);
	out->run.left -= n;
	qp->stats.sent_pkts += n;
	qp->stats.sent_bytes += (uint64_t)n * qp->cfg.mtu;
	return n;
}

static bool output_cnp(struct vb_roce_qp *qp, struct vb_roce_out *out)
{
	struct vb_packet p = {.bth = {.opcode = VB_CNP, .becn = true}};

	if (!qp->rs.cnp || qp->dead)
		return false;
	qp->rs.cnp = false;
	qp->stats.cnp_sent++;
	vb_roce_seal(qp, out, &p);
	return true;
}

/*
 * Delays a plain acknowledgement until the requests that are ready are sent, but at most for a burst. A program may
 * poll its CQ for a completion, and then poll its memory. By then the data of these requests must have arrived.
 */
static bool ack_waits(struct vb_roce_qp *qp)
{
	if (qp->rs.owed != VB_ROCE_ACK || vb_roce_resource_unanswered(qp))
		qp->passed = 0;
	return qp->rs.owed == VB_ROCE_ACK && (!qp->passed || qp->passed < qp->cfg.burst);
}

/* Alternates between answers and requests, so that neither starves the other. */
__attribute__((hot)) bool vb_roce_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now)
{
	if (out->run.left &&
	    (out->run.answered ? vb_roce_reply_middle(qp, out) : vb_roce_requester_middle(qp, out, now)))
		return true;
	out->run.left = 0;
	out->payload_len = 0;
	out->ah = NULL;
	if (output_cnp(qp, out))
		return true;
	if (ack_waits(qp) && vb_roce_requester_output(qp, out, now)) {
		qp->passed++;
		return true;
	}
	qp->turn = !qp->turn;
	if (qp->turn)
		return vb_roce_reply_output(qp, out, now) || vb_roce_requester_output(qp, out, now);
	return vb_roce_requester_output(qp, out, now) || vb_roce_reply_output(qp, out, now);
}

bool vb_roce_output_single(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now)
{
	out->run.left = 0;
	qp->rq.unasked = UINT32_MAX / 2; /* it asks for an acknowledgement */
	bool made = vb_roce_output(qp, out, now);

	out->run.left = 0;
	return made;
}

bool vb_roce_output_answer(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now)
{
	out->run.left = 0;
	out->payload_len = 0;
	out->ah = NULL;
	bool made = output_cnp(qp, out) || vb_roce_reply_output(qp, out, now);

	out->run.left = 0;
	return made;
}

void vb_roce_sent(struct vb_roce_qp *qp)
{
	if (qp->cfg.type == VB_ROCE_RC || !qp->rq.started)
		return;
	qp->rq.una = qp->rq.seq;
	vb_roce_requester_retire(qp);
}

static uint64_t earlier_time(uint64_t a, uint64_t b)
{
	return !a ? b : !b || a < b ? a : b;
}

__attribute__((hot)) uint64_t vb_roce_deadline(const struct vb_roce_qp *qp)
{
	uint64_t at = earlier_time(qp->rq.retry_at,
	                           earlier_time(qp->rq.probe_at, earlier_time(qp->rq.rnr_at, qp->rq.wake_at)));

	at = earlier_time(at, qp->rs.kept_until);
	return qp->rs.owed == VB_ROCE_ACK ? earlier_time(at, qp->rs.ack_at) : at;
}

void vb_roce_timeout(struct vb_roce_qp *qp, uint64_t now)
{
	if (qp->rs.ack_at && qp->rs.ack_at <= now)
		qp->rs.ack_at = 0;
	vb_roce_ahead_timeout(qp, now);
	vb_roce_requester_timeout(qp, now);
}

__attribute__((hot)) bool vb_roce_silent(const struct vb_roce_qp *qp, uint64_t now)
{
	const struct vb_roce_responder *rs = &qp->rs;
	bool waits = rs->owed == VB_ROCE_ACK && rs->ack_at > now;

	return qp->rq.head == qp->rq.tail && !rs->unanswered && !rs->cnp && (waits || rs->owed == VB_ROCE_NO_ACK);
}

__attribute__((hot)) void vb_roce_ack_now(struct vb_roce_qp *qp)
{
	qp->rs.ack_at = 0;
}

__attribute__((hot)) void vb_roce_ack_all(struct vb_roce_qp *qp)
{
	struct vb_roce_responder *rs = &qp->rs;

	if (rs->owed == VB_ROCE_NO_ACK && !rs->closed && !qp->dead && !vb_psn_equal(rs->acked_to, rs->epsn))
		rs->owed = VB_ROCE_ACK;
	rs->ack_at = 0;
}
