// responder.c - the peer's requests of RC and UC: the specification's checks in order, one state each
// follows: IBA volume 1, 9.7.4 (responder), 9.8.2.2 (UC), 9.9.3 (responder errors); annex A14 (XRC)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"
#include "util/units.h"

/* PSNs that a peer may have in flight. A request behind a lost, longer READ is dropped without a NAK; the peer's timer
 * repeats it. */
#define FAR (1 << 18)
#define VOUCH_WAIT VB_US(200) /* ns: acknowledgements wait this long for the peer to vouch for kept packets */

enum state {
	CHECK_PSN,
	CHECK_OP_SEQUENCE,
	CHECK_SRQ,
	CHECK_OP_ALLOWED,
	CHECK_RESOURCE,
	CHECK_LENGTH,
	CHECK_KEY,
	EXECUTE,
	COMPLETE,
	ACKNOWLEDGE,
	DUPLICATE,
	PASS,
	ERROR_SEQUENCE,
	ERROR_BUSY,
	ERROR_NOT_READY,
	ERROR_INVALID,
	ERROR_TOO_LONG, /* longer than the receive */
	ERROR_ACCESS,
	ERROR_RECEIVE,
	DONE,
};

/* A request packet that is being processed. */
struct job {
	struct vb_roce_qp *qp;
	const struct vb_packet *p;
	const uint8_t *payload;
	uint64_t now;
	unsigned flags; /* the opcode's flags */
	uint16_t port;  /* its UDP source port */
	bool rc;
	bool there; /* XRC: it is passed on */
};

/* The number of PSNs of the packet. A READ has one for each packet of its response. */
static uint32_t request_psns(const struct job *j)
{
	return j->p->info->op == VB_OP_READ ? vb_packet_count(j->p->reth.length, j->qp->cfg.mtu) : 1;
}

/* IBA 9.7.4.1: expected, behind (a duplicate), or ahead (something is missing); UC: 9.8.2.2 */
static __attribute__((hot)) enum state check_psn(struct job *j)
{
	struct vb_roce_responder *rs = &j->qp->rs;

	if (!j->rc)
		return vb_roce_uc_in_sequence(j->qp, j->p, j->port) ? CHECK_OP_SEQUENCE : DONE;

	int32_t ahead = vb_psn_diff(j->p->bth.psn, rs->epsn);

	if (ahead > 0)
		return ERROR_SEQUENCE;
	if (ahead < 0)
		return DUPLICATE;
	rs->port = j->port;
	vb_roce_ahead_pass(j->qp, rs->epsn, 1); /* a packet in order replaces the kept one */
	if (rs->refused) {
		rs->refused = rs->not_ready = false;
		if (rs->owed >= VB_ROCE_RNR) { /* the NAK is not sent yet, and not needed now */
			rs->owed = VB_ROCE_NO_ACK;
			vb_roce_owe_ack(j->qp, j->now);
		}
	}
	return CHECK_OP_SEQUENCE;
}

/* IBA 9.7.4.1: a message begins with FIRST or ONLY, and keeps its operation until LAST */
static __attribute__((hot)) enum state check_op_sequence(struct job *j)
{
	const struct vb_roce_inbound *in = &j->qp->rs.in;

	if (in->active == !!(j->flags & VB_FIRST) || (in->active && in->op != j->p->info->op))
		return ERROR_INVALID;
	return j->qp->cfg.xrc ? CHECK_SRQ : CHECK_OP_ALLOWED;
}

/* Annex A14: an XRC request names an SRQ of the target's XRC domain, in each of its packets the same */
static __attribute__((hot)) enum state check_srq(struct job *j)
{
	struct vb_roce_inbound *in = &j->qp->rs.in;
	uint32_t srqn = j->p->xrceth.srqn;

	if (!(j->flags & VB_FIRST) && srqn != in->srqn)
		return ERROR_INVALID;
	in->srqn = srqn;
	enum vb_roce_srq where = j->qp->ops->select_srq(j->qp->own, srqn, false);

	j->there = where == VB_ROCE_SRQ_THERE;
	return where == VB_ROCE_SRQ_BUSY ? ERROR_BUSY : where == VB_ROCE_SRQ_NONE ? ERROR_INVALID : CHECK_OP_ALLOWED;
}

/* IBA 9.7.4.1: an operation that the QP does not allow is an invalid request, not an access error. Like rxe. */
static __attribute__((hot)) enum state check_op_allowed(struct job *j)
{
	static const uint8_t needs[] = {[VB_OP_WRITE] = VB_RIGHT_WRITE,
	                                [VB_OP_READ] = VB_RIGHT_READ,
	                                [VB_OP_CMP_SWAP] = VB_RIGHT_ATOMIC,
	                                [VB_OP_FETCH_ADD] = VB_RIGHT_ATOMIC,
	                                [VB_OP_ATOMIC_WRITE] = VB_RIGHT_WRITE};
	uint8_t need = j->p->info->op == VB_OP_FLUSH ? (uint8_t)(j->p->feth.type << VB_RIGHT_FLUSH_SHIFT)
	                                             : needs[j->p->info->op];

	return (j->qp->cfg.access & need) == need ? CHECK_RESOURCE : ERROR_INVALID;
}

/* IBA 9.7.4.1: takes a receive, or checks the limit of reads and atomics. The receive of an incomplete UC message is
 * reused. */
static __attribute__((hot)) enum state check_resource(struct job *j)
{
	struct vb_roce_inbound *in = &j->qp->rs.in;

	if (j->flags & VB_FIRST)
		in->offset = 0;
	if (j->flags & VB_ANSWERED)
		return j->qp->cfg.max_dest_rd_atomic ? CHECK_LENGTH : ERROR_INVALID;
	if (j->there) { /* the process that has the SRQ looks */
		in->room = UINT32_MAX;
		return CHECK_LENGTH;
	}
	if (j->flags & VB_TAKES_RECEIVE && !in->receive) {
		in->receive = j->qp->cfg.tagged && j->p->info->op == VB_OP_SEND
		                      ? j->qp->ops->take_tagged(j->qp->own, j->payload, j->p->payload_len,
		                                                j->flags & VB_LAST, &in->room)
		                      : j->qp->ops->take_receive(j->qp->own, &in->room);
		if (!in->receive)
			return ERROR_NOT_READY;
	}
	return CHECK_LENGTH;
}

/* IBA C9-92, C9-94: FIRST and MIDDLE packets are full, LAST is not empty, no packet is longer than the path MTU, and no
 * message longer than 2^31 bytes */
static __attribute__((hot)) enum state check_length(struct job *j)
{
	const struct vb_packet *p = j->p;
	uint32_t mtu = j->qp->cfg.mtu;
	bool last = j->flags & VB_LAST;

	if (last ? p->payload_len > mtu : p->payload_len != mtu)
		return ERROR_INVALID;
	if (last && !(j->flags & VB_FIRST) && !p->payload_len)
		return ERROR_INVALID;
	/* a flush of a whole region has no length (A19) */
	if (p->info->ext & VB_EXT_RETH && p->reth.length > VB_WORK_MAX_MESSAGE && !p->feth.level)
		return ERROR_INVALID;
	if (p->info->op == VB_OP_ATOMIC_WRITE && (p->payload_len != 8 || p->reth.length != 8)) /* IBA A20 */
		return ERROR_INVALID;
	if (p->info->op == VB_OP_SEND && p->payload_len > j->qp->rs.in.room - j->qp->rs.in.offset)
		return ERROR_TOO_LONG;
	return CHECK_KEY;
}

/* The first packet's check covers the whole message. A message of 0 bytes needs no key (IBA C9-88). */
static __attribute__((hot)) enum state check_key(struct job *j)
{
	struct vb_roce_qp *qp = j->qp;
	struct vb_roce_inbound *in = &qp->rs.in;
	const struct vb_reth *reth = &j->p->reth;

	if (j->p->info->op == VB_OP_READ)
		return !reth->length || j->there ||
		                       qp->ops->check(qp->own, reth->rkey, reth->va, reth->length, VB_RIGHT_READ)
		               ? EXECUTE
		               : ERROR_ACCESS;
	if (j->p->info->op != VB_OP_WRITE)
		return j->there ? PASS : EXECUTE;
	if (j->flags & VB_FIRST) {
		if (reth->length && !j->there &&
		    !qp->ops->check(qp->own, reth->rkey, reth->va, reth->length, VB_RIGHT_WRITE))
			return ERROR_ACCESS;
		in->va = reth->va;
		in->rkey = reth->rkey;
		in->left = in->whole = reth->length;
	}
	/* IBA 9.7.4.1: the payload must equal the announced length */
	if (j->flags & VB_LAST ? j->p->payload_len != in->left : j->p->payload_len >= in->left)
		return ERROR_INVALID;
	return j->there ? PASS : EXECUTE;
}

/* XRC: the process that has the SRQ executes it. */
static enum state pass_request(struct job *j)
{
	if (j->p->info->ext & VB_EXT_ATOMIC && j->p->atomic.va & 7)
		return ERROR_INVALID;
	if (j->flags & VB_ANSWERED && !vb_roce_resource_room(j->qp))
		return ERROR_INVALID;
	return vb_roce_pass_on(j->qp, j->p, j->payload) ? COMPLETE : ERROR_BUSY;
}

static enum state execute_send(struct job *j)
{
	struct vb_roce_qp *qp = j->qp;
	struct vb_roce_inbound *in = &qp->rs.in;

	if (j->p->payload_len && !qp->ops->scatter_receive(qp->own, in->offset, j->payload, j->p->payload_len))
		return ERROR_RECEIVE;
	if (j->p->info->ext & VB_EXT_IETH && !qp->ops->invalidate(qp->own, j->p->ieth.rkey))
		return ERROR_ACCESS;
	return COMPLETE;
}

static enum state execute_write(struct job *j)
{
	struct vb_roce_qp *qp = j->qp;
	struct vb_roce_inbound *in = &qp->rs.in;
	uint32_t len = j->p->payload_len;

	if (len && !qp->ops->write(qp->own, in->rkey, in->va, j->payload, len, j->flags & VB_LAST))
		return ERROR_ACCESS;
	in->va += len;
	in->left -= len;
	return COMPLETE;
}

static enum state execute_read(struct job *j)
{
	struct vb_roce_resource r = {
	        .psn = j->p->bth.psn,
	        .packets = vb_packet_count(j->p->reth.length, j->qp->cfg.mtu),
	        .va = j->p->reth.va,
	        .rkey = j->p->reth.rkey,
	        .length = j->p->reth.length,
	        .srqn = j->p->xrceth.srqn,
	        .msn = (j->qp->rs.msn + 1) & VB_MSN_MASK,
	};

	return vb_roce_resource_add(j->qp, &r) ? COMPLETE : ERROR_INVALID;
}

static enum state state_of_memory(enum vb_memory_result result)
{
	return result == VB_MEMORY_OK ? COMPLETE : result == VB_MEMORY_MISALIGNED ? ERROR_INVALID : ERROR_ACCESS;
}

/* IBA annexes A19, A20. Executed in order, so everything that the peer has written before is in place. */
static enum state execute_placed(struct job *j)
{
	struct vb_roce_qp *qp = j->qp;
	const struct vb_reth *reth = &j->p->reth;
	struct vb_roce_resource r = {.placed = j->p->info->op,
	                             .psn = j->p->bth.psn,
	                             .packets = 1,
	                             .va = reth->va,
	                             .rkey = reth->rkey,
	                             .msn = (qp->rs.msn + 1) & VB_MSN_MASK};
	enum state next = ERROR_INVALID;

	if (!vb_roce_resource_room(qp))
		return ERROR_INVALID;
	if (r.placed == VB_OP_ATOMIC_WRITE) {
		uint64_t value;

		memcpy(&value, j->payload, sizeof(value));
		next = state_of_memory(qp->ops->atomic_write(qp->own, reth->rkey, reth->va, value));
	} else if (vb_feth_is_known(j->p->feth)) {
		next = qp->ops->flush(qp->own, reth, j->p->feth) ? COMPLETE : ERROR_ACCESS;
	}
	if (next == COMPLETE)
		vb_roce_resource_add(qp, &r);
	return next;
}

/* IBA 9.4.5: a misaligned address is an invalid request */
static enum state execute_atomic(struct job *j)
{
	struct vb_roce_qp *qp = j->qp;
	const struct vb_atomic *a = &j->p->atomic;
	struct vb_roce_resource r = {.atomic = true, .psn = j->p->bth.psn, .packets = 1, .va = a->va, .rkey = a->rkey};

	if (a->va & 7)
		return ERROR_INVALID;
	if (!vb_roce_resource_room(qp))
		return ERROR_INVALID;
	enum state next = state_of_memory(qp->ops->atomic(qp->own, j->p->info->op == VB_OP_FETCH_ADD, a, &r.original));

	if (next != COMPLETE)
		return next;
	r.msn = (qp->rs.msn + 1) & VB_MSN_MASK;
	vb_roce_resource_add(qp, &r);
	return COMPLETE;
}

static __attribute__((hot)) enum state execute_request(struct job *j)
{
	switch (j->p->info->op) {
	case VB_OP_SEND:
		return execute_send(j);
	case VB_OP_WRITE:
		return execute_write(j);
	case VB_OP_READ:
		return execute_read(j);
	case VB_OP_FLUSH:
	case VB_OP_ATOMIC_WRITE:
		return execute_placed(j);
	default:
		return execute_atomic(j);
	}
}

static void complete_inbound(struct job *j)
{
	const struct vb_packet *p = j->p;
	struct vb_roce_qp *qp = j->qp;
	struct vb_receipt receipt = {
	        .write_imm = p->info->op == VB_OP_WRITE,
	        .solicited = p->bth.solicited,
	        .flags = (p->info->ext & VB_EXT_IMMDT ? VB_WORK_IMM : 0) |
	                 (p->info->ext & VB_EXT_IETH ? VB_WORK_INV : 0),
	        .imm = p->info->ext & VB_EXT_IMMDT ? p->immdt.data : p->ieth.rkey,
	        .length = qp->rs.in.offset,
	        .src_qpn = qp->cfg.dest_qpn,
	};

	qp->rs.in.receive = false;
	qp->ops->complete_receive(qp->own, &receipt);
}

/* IBA 9.7.7.1: the message sequence number counts completed messages */
static __attribute__((hot)) enum state complete_request(struct job *j)
{
	struct vb_roce_responder *rs = &j->qp->rs;

	rs->epsn = vb_psn_add(j->p->bth.psn, (int32_t)request_psns(j));
	vb_roce_ahead_pass(j->qp, j->p->bth.psn, request_psns(j));
	rs->in.offset += j->p->payload_len;
	rs->in.op = j->p->info->op;
	rs->in.active = !(j->flags & VB_LAST);
	if (j->flags & VB_LAST)
		rs->msn = (rs->msn + 1) & VB_MSN_MASK;
	if (j->flags & VB_COMPLETES_RECEIVE && !j->there)
		complete_inbound(j);
	return j->rc ? ACKNOWLEDGE : DONE;
}

static __attribute__((hot)) enum state acknowledge_request(struct job *j)
{
	if (j->p->bth.ack_req)
		vb_roce_owe_ack(j->qp, j->now);
	return DONE;
}

/* IBA C9-105: sends and writes are acknowledged again, not executed. Reads and atomics are answered again. */
static enum state answer_duplicate(struct job *j)
{
	j->qp->stats.duplicate_request++;
	j->qp->rs.vouched = vb_roce_ahead_vouches(j->qp, &j->p->bth, j->now);
	if (j->flags & VB_ANSWERED)
		vb_roce_resource_replay(j->qp, j->p);
	else
		vb_roce_owe_ack(j->qp, j->now);
	return DONE;
}

/* Is the packet with the expected PSN kept, and may the peer still vouch for it? */
static bool awaits_voucher(const struct vb_roce_qp *qp, uint64_t now)
{
	return qp->rs.kept && !qp->rs.vouches && now < qp->rs.vouch_by && vb_roce_ahead_waits(qp);
}

/*
 * IBA 9.7.5.2: sends one NAK for a gap, then none until the expected packet arrives. deviates: by IBA half of all PSNs
 * are ahead. Here a packet that is further ahead than any packet in flight is dropped, because its sender probably
 * guessed the PSN.
 */
static enum state error_sequence(struct job *j)
{
	j->qp->stats.out_of_seq_request++;
	if (vb_psn_diff(j->p->bth.psn, j->qp->rs.epsn) > FAR) {
		j->qp->stats.drop_far++;
		return DONE;
	}
	if (j->qp->rs.vouches && j->port != j->qp->rs.port) {
		j->qp->stats.drop_port++;
		return DONE;
	}
	if (!j->qp->rs.refused && !awaits_voucher(j->qp, j->now)) {
		vb_roce_owe_nak(j->qp, VB_NAK_PSN_SEQUENCE, j->qp->rs.epsn);
		j->qp->rs.refused = true;
	}
	/* after an RNR NAK the peer repeats all packets anyway */
	if (!j->qp->rs.not_ready && j->port == j->qp->rs.port)
		vb_roce_ahead_keep(j->qp, j->p, j->payload, j->now);
	return DONE;
}

static enum state drop_message(struct job *j, uint64_t *counter)
{
	++*counter;
	j->qp->rs.in.active = false;
	j->qp->rs.in.drop = !(j->flags & VB_LAST);
	return DONE;
}

/* XRC: dropped, and asked for when it can be passed on. Until then packets behind it cause no NAK. */
static enum state error_busy(struct job *j)
{
	j->qp->rs.refused = true;
	return DONE;
}

static enum state error_not_ready(struct job *j)
{
	if (!j->rc)
		return drop_message(j, &j->qp->stats.drop_no_receive);
	vb_roce_owe_rnr(j->qp);
	vb_roce_ahead_drop(j->qp); /* the peer repeats all packets */
	j->qp->rs.refused = j->qp->rs.not_ready = true;
	return DONE;
}

static enum state error_invalid(struct job *j)
{
	if (!j->rc)
		return drop_message(j, &j->qp->stats.drop_sequence);
	vb_roce_responder_refuse(j->qp, VB_REFUSE_INVALID, j->qp->rs.epsn);
	return DONE;
}

/* IBA 9.9.3: the receive completes with an error too */
static enum state error_too_long(struct job *j)
{
	if (!j->rc)
		return drop_message(j, &j->qp->stats.drop_length);
	vb_roce_responder_refuse(j->qp, VB_REFUSE_TOO_LONG, j->qp->rs.epsn);
	return DONE;
}

static enum state error_access(struct job *j)
{
	if (!j->rc)
		return drop_message(j, &j->qp->stats.drop_access);
	vb_roce_responder_refuse(j->qp, j->qp->rs.in.receive ? VB_REFUSE_ACCESS : VB_REFUSE_DENIED, j->qp->rs.epsn);
	return DONE;
}

/* A local error: the buffers of the receive cannot be written */
static enum state error_receive(struct job *j)
{
	if (j->rc) {
		vb_roce_responder_refuse(j->qp, VB_REFUSE_RECEIVE, j->qp->rs.epsn);
		return DONE;
	}
	vb_roce_end_receive(j->qp, vb_refused_rows[VB_REFUSE_RECEIVE].receive);
	vb_roce_kill(j->qp, vb_refused_rows[VB_REFUSE_RECEIVE].event);
	return DONE;
}

static enum state (*const steps[])(struct job *) = {
        [CHECK_PSN] = check_psn,
        [CHECK_OP_SEQUENCE] = check_op_sequence,
        [CHECK_SRQ] = check_srq,
        [CHECK_OP_ALLOWED] = check_op_allowed,
        [CHECK_RESOURCE] = check_resource,
        [CHECK_LENGTH] = check_length,
        [CHECK_KEY] = check_key,
        [EXECUTE] = execute_request,
        [COMPLETE] = complete_request,
        [ACKNOWLEDGE] = acknowledge_request,
        [DUPLICATE] = answer_duplicate,
        [PASS] = pass_request,
        [ERROR_SEQUENCE] = error_sequence,
        [ERROR_BUSY] = error_busy,
        [ERROR_NOT_READY] = error_not_ready,
        [ERROR_INVALID] = error_invalid,
        [ERROR_TOO_LONG] = error_too_long,
        [ERROR_ACCESS] = error_access,
        [ERROR_RECEIVE] = error_receive,
};

/* Repeats the NAK that ended the QP, if the request is repeated and so the NAK was lost. */
static void repeat_nak(struct vb_roce_qp *qp, struct vb_psn psn)
{
	qp->stats.drop_state++;
	if (vb_psn_equal(psn, qp->rs.nak_psn))
		vb_roce_owe_nak(qp, qp->rs.nak, qp->rs.nak_psn);
}

static __attribute__((hot)) void run_states(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                                            uint16_t port, uint64_t now)
{
	struct job j = {.qp = qp, .p = p, .payload = payload, .now = now, .flags = p->info->flags, .port = port};

	j.rc = qp->cfg.type == VB_ROCE_RC;
	for (enum state s = CHECK_PSN; s != DONE;)
		s = steps[s](&j);
}

/* IBA 9.7.5.2: a reserved opcode is an invalid request if its PSN is expected; otherwise the packet is dropped. */
void vb_roce_responder_input_unknown(struct vb_roce_qp *qp, struct vb_psn psn)
{
	if (qp->rs.closed)
		repeat_nak(qp, psn);
	else if (!qp->dead && vb_psn_equal(psn, qp->rs.epsn))
		vb_roce_responder_refuse(qp, VB_REFUSE_INVALID, psn);
}

/* A shortcut for the most frequent packets. Leaves errors to the states above. */
bool vb_roce_responder_input_middle(struct vb_roce_qp *qp, enum vb_op op, struct vb_psn psn, bool ack_req,
                                    const uint8_t *payload, uint16_t port, uint64_t now)
{
	struct vb_roce_responder *rs = &qp->rs;
	struct vb_roce_inbound *in = &rs->in;
	uint32_t mtu = qp->cfg.mtu;

	if (!vb_psn_equal(psn, rs->epsn) || (qp->cfg.type == VB_ROCE_UC && port != rs->port) || !in->active ||
	    in->op != op || in->drop || rs->refused || rs->closed || rs->kept)
		return false;
	if (op == VB_OP_WRITE) {
		if (!(qp->cfg.access & VB_RIGHT_WRITE) || mtu >= in->left ||
		    !qp->ops->write(qp->own, in->rkey, in->va, payload, mtu, false))
			return false;
		in->va += mtu;
		in->left -= mtu;
	} else if (!in->receive || mtu > in->room - in->offset ||
	           !qp->ops->scatter_receive(qp->own, in->offset, payload, mtu)) {
		return false;
	}
	in->offset += mtu;
	rs->epsn = vb_psn_add(psn, 1);
	if (ack_req && qp->cfg.type == VB_ROCE_RC)
		vb_roce_owe_ack(qp, now);
	return true;
}

/* Executes kept packets up to the next gap. */
static void run_kept(struct vb_roce_qp *qp, uint64_t now)
{
	struct vb_roce_kept *k;

	while (!qp->dead && (k = vb_roce_ahead_take(qp))) {
		run_states(qp, &k->packet, k->payload, qp->rs.port, now);
		qp->rs.ack_at = 0; /* the requester waits for it */
	}
}

/* Delays the acknowledgement, because it would make the requester repeat the kept packets. */
static void wait_for_voucher(struct vb_roce_qp *qp, uint64_t now)
{
	qp->rs.vouch_by = now + VOUCH_WAIT;
	if (qp->rs.owed == VB_ROCE_ACK && vb_roce_ahead_waits(qp))
		qp->rs.ack_at = qp->rs.vouch_by;
}

__attribute__((hot)) void vb_roce_responder_input(struct vb_roce_qp *qp, const struct vb_packet *p,
                                                  const uint8_t *payload, uint16_t port, uint64_t now)
{
	struct vb_roce_responder *rs = &qp->rs;

	if (rs->closed) {
		repeat_nak(qp, p->bth.psn);
		return;
	}
	struct vb_psn before = rs->epsn;

	rs->vouched = false;
	run_states(qp, p, payload, port, now);
	rs->last = vb_psn_add(
	        p->bth.psn, p->info->op == VB_OP_READ ? (int32_t)vb_packet_count(p->reth.length, qp->cfg.mtu) - 1 : 0);
	rs->vouches = rs->vouches || rs->vouched;
	if (rs->vouches)
		run_kept(qp, now);
	else if (rs->kept && !vb_psn_equal(before, rs->epsn))
		wait_for_voucher(qp, now);
}
