// responder.c - takes the records of a peer's ring: finds the queue pair, checks state and PSN, acknowledges or refuses
// follows: IBA volume 1, 9.6 (packet validation), 9.7.3 (responder), 9.8.2 (UC), 9.8.3 (UD); annex A14 (XRC)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "core/ib.h"
#include "core/rq.h"
#include "core/xrc.h"
#include "engine/local/pingpong.h"
#include "engine/local/relay.h"
#include "engine/local/responder.h"
#include "engine/local/ring.h"
#include "frame/fields.h"
#include "frame/net.h"

/* --- acknowledgement --- */

void vb_local_ack_later(struct vb_qp *qp)
{
	struct vb_node *node = qp->node;

	if (qp->local.on_acks)
		return;
	qp->local.on_acks = true;
	qp->local.acks_next = node->acks;
	node->acks = qp;
}

void vb_local_update_ackable(struct vb_qp *qp)
{
	uint64_t n = qp->local.inread_head == qp->local.inread_tail
	                     ? qp->local.taken
	                     : qp->local.inread[qp->local.inread_head % VB_RD_ATOM_SLOTS].index;
	uint64_t relayed;
	uint32_t psn;

	if (__builtin_expect(qp->type == IBV_QPT_XRC_RECV, 0) && qp->xrc.relay && vb_relay_oldest(qp, &psn, &relayed) &&
	    relayed < n)
		n = relayed;

	atomic_store_explicit(&qp->local.executed, n, memory_order_relaxed);
	atomic_store_explicit(&qp->shared->executed, n, memory_order_release);
	vb_local_ack_later(qp);
}

static void publish_nak(struct vb_qp *qp, enum vb_ring_nak code)
{
	atomic_store_explicit(&qp->shared->taken, qp->local.taken, memory_order_relaxed);
	atomic_store_explicit(&qp->shared->acked, atomic_load_explicit(&qp->local.executed, memory_order_relaxed),
	                      memory_order_relaxed);
	qp->local.nak_counter++;
	atomic_store_explicit(&qp->shared->nak, VB_RING_NAK(qp->local.nak_counter, qp->local.epsn, code),
	                      memory_order_release);
	qp->local.nak_state = true;
	vb_local_ack_later(qp);
}

/* --- requests --- */

static void note_dropped(struct vb_local_req *q)
{
	q->peer->dropped = true;
}

/* Annex A14: an XRC request names an SRQ of the target's XRC domain. A guest counts records, not messages. */
static __attribute__((noinline)) enum vb_verdict execute_xrc(struct vb_qp *qp, struct vb_local_req *q)
{
	switch (vb_xrc_select(qp, q->rec.ack)) {
	case VB_XRC_HERE:
		break;
	case VB_XRC_THERE:
		return vb_relay_record(qp, q);
	case VB_XRC_BUSY:
		return VB_VERDICT_AGAIN;
	default:
		return VB_VERDICT_INVALID;
	}
	enum vb_verdict v = vb_local_execute(qp, q);

	if (v == VB_VERDICT_OK && qp->xrc.initiator && !(q->flags & VB_RECF_LAST))
		vb_local_count_taken(qp);
	return v;
}

static const struct {
	enum ibv_wc_status receive;
	enum vb_ring_nak nak;
	enum ibv_event_type event;
} refusals[] = {
#define EVENT_REQ IBV_EVENT_QP_REQ_ERR
#define EVENT_ACCESS IBV_EVENT_QP_ACCESS_ERR
#define EVENT_RQ 0
#define NAK_REQ VB_RING_NAK_INV_REQ
#define NAK_ACCESS VB_RING_NAK_ACCESS
#define NAK_RQ VB_RING_NAK_OP
#define X(name, receive, event) \
	[VB_VERDICT_##name] = {IBV_WC_##receive, NAK_##event, (enum ibv_event_type)EVENT_##event},
        VB_REFUSALS(X)
#undef X
};

/* Completes the receive that the message had taken. */
static void end_receive(struct vb_qp *qp, enum vb_verdict v)
{
	if (qp->inbound->active)
		vb_local_receive_complete(qp, NULL, refusals[v].receive, IBV_WC_RECV, 0);
}

static void end_qp(struct vb_qp *qp)
{
	vb_lock(&qp->sq_lock);
	vb_qp_error(qp);
	vb_unlock(&qp->sq_lock);
}

static bool qp_receives(struct vb_qp *qp)
{
	unsigned s = atomic_load_explicit(&qp->state, memory_order_relaxed);

	return s == IBV_QPS_RTR || s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE;
}

/* RC: sends the NAK and takes the QP to ERR. If no receive reports the error, an asynchronous event does. */
static void refuse_now(struct vb_qp *qp, enum vb_verdict v)
{
	end_receive(qp, v);
	publish_nak(qp, refusals[v].nak);
	end_qp(qp);
	if (refusals[v].event)
		vb_async_raise(VB_CONTEXT_OF(qp), refusals[v].event, &qp->qp);
}

/* The requester takes a NAK for the oldest request that has no answer. So earlier reads are answered first, and while there is
 * no room for that, the refusal waits. */
static void refuse_request(struct vb_qp *qp, enum vb_verdict v)
{
	if (!qp->local.inread || qp->local.inread_head == qp->local.inread_tail) {
		refuse_now(qp, v);
		return;
	}
	qp->local.refusal = (uint8_t)v;
	qp->local.nak_state = true;
	vb_local_serve_reads(qp);
}

void vb_local_reads_served(struct vb_qp *qp)
{
	enum vb_verdict v = qp->local.refusal;

	qp->local.refusal = 0;
	if (qp_receives(qp))
		refuse_now(qp, v);
}

void vb_local_refuse_read(struct vb_qp *qp)
{
	refuse_now(qp, VB_VERDICT_DENIED);
}

void vb_local_ask_again(struct vb_qp *qp)
{
	publish_nak(qp, VB_RING_NAK_AGAIN);
}

void vb_local_relayed_executed(struct vb_qp *qp)
{
	vb_local_update_ackable(qp);
}

void vb_local_relayed_rnr(struct vb_qp *qp, uint32_t psn, uint64_t taken)
{
	qp->local.epsn = psn;
	qp->local.taken = taken;
	/* reads behind it are asked for again */
	while (qp->local.inread_tail != qp->local.inread_head &&
	       qp->local.inread[(qp->local.inread_tail - 1) % VB_RD_ATOM_SLOTS].index >= taken)
		qp->local.inread_tail--;
	vb_local_update_ackable(qp);
	qp->local.received.no_receive++;
	publish_nak(qp, VB_RING_NAK_RNR);
}

void vb_local_relayed_refused(struct vb_qp *qp, enum vb_refusal why)
{
	refuse_now(qp, (enum vb_verdict)(VB_VERDICT_INVALID + (why - VB_REFUSE_INVALID)));
}

/* UC, IBA 9.8.2.2, 9.9.3: a message that fails is dropped silently, with its later pieces. If a buffer of the receive
 * fails, this QP goes to ERR. The same as in engine/roce/responder.c. */
static void input_unreliable(struct vb_qp *qp, struct vb_local_req *q)
{
	bool begins = q->flags & VB_RECF_FIRST;
	enum vb_verdict v = begins || !qp->inbound->dropped ? vb_local_execute(qp, q) : VB_VERDICT_DROP;

	if (v == VB_VERDICT_OK) {
		qp->inbound->dropped = false;
		return;
	}
	VB_COUNT(drop_state, 1);
	note_dropped(q);
	qp->inbound->dropped = !(q->flags & VB_RECF_LAST);
	if (v == VB_VERDICT_RECEIVE) {
		end_receive(qp, v);
		end_qp(qp);
	}
}

/* A duplicate is acknowledged again. */
static __attribute__((noinline, cold)) void took_again(struct vb_qp *qp)
{
	qp->local.received.duplicates++;
	vb_local_ack_later(qp);
}

static __attribute__((noinline, cold)) void skipped_ahead(struct vb_qp *qp)
{
	qp->local.received.ahead++;
	VB_COUNT(drop_psn, 1);
}

static void input_connected(struct vb_qp *qp, struct vb_local_req *q)
{
	uint32_t psn = q->rec.psn & VB_PSN_MASK;

	vb_first_contact(qp);
	if (qp->type == IBV_QPT_UC) {
		input_unreliable(qp, q);
		return;
	}
	/* a request of ours must complete before the peer's answer to it is received */
	if (qp->type == IBV_QPT_RC && vb_local_ack(qp, q->rec.ack) &&
	    atomic_load_explicit(&qp->sq_pending, memory_order_relaxed))
		vb_local_acked(qp);
	if (!qp_receives(qp)) /* an error has ended this QP meanwhile */
		return;
	if (psn != qp->local.epsn) {
		/* behind epsn: a duplicate, which is acknowledged again. Ahead: an earlier request was refused */
		if (((psn - qp->local.epsn) & VB_PSN_MASK) >= VB_PSN_HALF)
			took_again(qp);
		else
			skipped_ahead(qp);
		return;
	}
	if (qp->local.nak_state) {
		/* a later piece of the refused request; a guest's requester repeats records */
		if (qp->local.refusal || (!(q->flags & VB_RECF_FIRST) && !qp->xrc.initiator))
			return;
		qp->local.nak_state = false; /* the request is repeated from its first piece on */
	}
	if (__builtin_expect(vb_local_is_held(qp), 0) && q->type != VB_REC_WRITE) {
		/* a request of ours is complete, and this may be the answer to it */
		vb_lock(&qp->sq_lock);
		vb_local_end_hold(qp);
		vb_unlock(&qp->sq_lock);
	}
	enum vb_verdict v = qp->type == IBV_QPT_XRC_RECV ? execute_xrc(qp, q) : vb_local_execute(qp, q);

	if (v == VB_VERDICT_OK || v == VB_VERDICT_HELD)
		return;
	if (v == VB_VERDICT_AGAIN) { /* vb_local_ask_again follows */
		qp->local.nak_state = true;
		return;
	}
	if (v == VB_VERDICT_DROP) {
		VB_COUNT(drop_state, 1);
		note_dropped(q);
		return;
	}
	if (v == VB_VERDICT_RNR || v == VB_VERDICT_SOURCE) {
		qp->local.received.no_receive += v == VB_VERDICT_RNR;
		publish_nak(qp, v == VB_VERDICT_RNR ? VB_RING_NAK_RNR : VB_RING_NAK_SOURCE);
	} else
		refuse_request(qp, v);
}

static void input_ud(struct vb_qp *qp, struct vb_local_req *q)
{
	uint32_t theirs = VB_REC_UD_IS_IB(&q->ext) ? VB_IB_SHARED(VB_REC_UD_PKEY(&q->ext), VB_IB_ANY_LID) : 0;

	if (!vb_ib_partitions_match(theirs, atomic_load_explicit(&qp->shared->partition, memory_order_relaxed))) {
		VB_COUNT(drop_qkey, 1);
		qp->local.received.wrong_pkey++;
		return;
	}
	if (q->ext.rkey != qp->attr.qkey) { /* IBA 9.6.1.4.1: dropped and counted */
		VB_COUNT(drop_qkey, 1);
		qp->local.received.wrong_qkey++;
		return;
	}
	vb_first_contact(qp);
	if (q->rec.length < VB_GRH_LEN || !vb_receive_take(qp)) {
		VB_COUNT(drop_rnr_ud, 1);
		qp->local.received.no_receive++;
		return;
	}
	qp->local.received.datagrams++;
	qp->local.received_bytes[0] += q->rec.length - VB_GRH_LEN;
	if (q->rec.length > qp->inbound->wqe.length) {
		/* deviates: IBA 9.8.3.2.2 drops the datagram. Adapters complete the receive with an error, and
		 * programs expect that */
		vb_local_receive_complete(qp, q, IBV_WC_LOC_LEN_ERR, IBV_WC_RECV, 0);
		VB_COUNT(drop_length, 1);
		return;
	}
	if (vb_local_scatter(qp, q->payload, q->rec.length) != VB_VERDICT_OK) {
		vb_local_receive_complete(qp, q, refusals[VB_VERDICT_RECEIVE].receive, IBV_WC_RECV, 0);
		end_qp(qp);
	} else {
		vb_local_receive_complete(qp, q, IBV_WC_SUCCESS, IBV_WC_RECV, q->rec.length);
	}
}

void vb_local_take_datagram(struct vb_qp *qp, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                            const uint8_t *payload)
{
	struct vb_local_req q = {.ext = *ext, .payload = payload, .room = rec->length, .type = VB_REC_UD};

	memcpy((char *)&q.rec + 8, (const char *)rec + 8, sizeof(q.rec) - 8);
	q.flags = vb_rec_top(rec->src);
	if (qp_receives(qp) && qp->type == IBV_QPT_UD)
		input_ud(qp, &q);
	else
		VB_COUNT(drop_state, 1);
}

static void request_input(struct vb_local_req *q)
{
	struct vb_node *node = q->peer->node;
	struct vb_qp *qp =
	        atomic_load_explicit(&node->qps[VB_QP_INDEX(q->rec.dest & VB_QPN_MASK)], memory_order_relaxed);

	if (!qp || qp->qp.qp_num != (q->rec.dest & VB_QPN_MASK)) {
		VB_COUNT(drop_no_qp, 1);
		note_dropped(q);
		return;
	}
	if (!qp_receives(qp) || (qp->type == IBV_QPT_UD) != (q->type == VB_REC_UD) || !qp->path->ring ||
	    qp->type == IBV_QPT_XRC_SEND) { /* an initiator takes no requests */
		VB_COUNT(drop_state, 1);
		note_dropped(q);
		return;
	}
	if (qp->type == IBV_QPT_UD) {
		input_ud(qp, q);
		return;
	}
	if (!vb_local_is_of_peer(qp, q->peer, &q->rec)) {
		VB_COUNT(drop_stale, 1);
		note_dropped(q);
		return;
	}
	if (qp->local.peer != q->peer) {
		if (qp->local.peer && vb_peer_alive(qp->local.peer)) {
			VB_COUNT(drop_stale, 1);
			return;
		}
		vb_lock(&qp->sq_lock);
		qp->local.peer = q->peer;
		qp->local.remote = NULL;
		vb_unlock(&qp->sq_lock);
	}
	input_connected(qp, q);
}

/* --- the ring --- */

static uint32_t record_head(unsigned type, uint32_t length, bool with_ext)
{
	if (type == VB_REC_SEND)
		return vb_rec_send_head(length);
	if (type == VB_REC_WRITE || type == VB_REC_HELD || type == VB_REC_WRITTEN || type == VB_REC_READ_DATA)
		return vb_rec_rdma_head(length);
	return with_ext ? VB_REC_HEAD_EXT : VB_REC_HEAD;
}

/* Copies head and extension of a record, once. Returns false if they contradict its mark. */
static bool record_load(struct vb_local_req *q, struct vb_peer *peer, const uint8_t *at, uint32_t size)
{
	static const uint8_t with_ext[VB_REC_TYPES] = {
	        [VB_REC_PULL] = 1,    [VB_REC_WRITE] = 1, [VB_REC_HELD] = 1,         [VB_REC_WRITTEN] = 1,
	        [VB_REC_NOTIFY] = 1,  [VB_REC_READ] = 1,  [VB_REC_READ_DATA] = 1,    [VB_REC_ATOMIC] = 1,
	        [VB_REC_VERDICT] = 1, [VB_REC_UD] = 1,    [VB_REC_ATOMIC_WRITE] = 1, [VB_REC_FLUSH] = 1,
	        [VB_REC_JOIN] = 1};

	q->peer = peer;
	q->in_ring = (const struct vb_rec *)at;
	q->end = peer->rx_head + size;
	q->held = q->there = false;
	memcpy((char *)&q->rec + 8, at + 8, sizeof(q->rec) - 8);
	q->type = vb_rec_top(q->rec.dest);
	q->flags = vb_rec_top(q->rec.src);
	if (q->type >= VB_REC_TYPES || !q->type)
		return false;
	uint32_t head = record_head(q->type, q->rec.length, with_ext[q->type]);

	if (with_ext[q->type])
		memcpy(&q->ext, at + VB_REC_HEAD, sizeof(q->ext));
	q->payload = at + head;
	q->room = size < head ? 0 : size - head;
	return q->type == VB_REC_PAD || q->rec.length <= q->room;
}

unsigned vb_local_drain(struct vb_peer *peer, unsigned budget)
{
	unsigned done = 0;
	struct vb_local_req q;

	while (done < budget) {
		const uint8_t *at = peer->rx + (peer->rx_head & VB_RING_MASK);
		uint64_t mark = atomic_load_explicit((_Atomic uint64_t *)at, memory_order_acquire);
		uint64_t size = (uint64_t)(uint32_t)mark * VB_LINE;

		if (!mark)
			break;
		if (mark >> 32 != (uint32_t)(peer->rx_head / VB_LINE) || !size ||
		    size > VB_RING_BYTES - (peer->rx_head & VB_RING_MASK) ||
		    !record_load(&q, peer, at, (uint32_t)size)) {
			VB_COUNT(bad_record, 1);
			atomic_store(&peer->state, VB_PEER_DEAD);
			break;
		}
		__builtin_prefetch(at + size);
		if (q.type == VB_REC_HELD)
			q.held = true;
		else if (q.type == VB_REC_READ_DATA)
			vb_local_data(peer, &q.rec, &q.ext, q.payload);
		else if (q.type == VB_REC_PACKET)
			vb_roce_take_forwarded(peer->node, q.payload, q.rec.length);
		else if (q.type == VB_REC_JOIN || q.type == VB_REC_LEAVE)
			vb_relay_asked(peer, q.type == VB_REC_LEAVE, &q.rec, &q.ext);
		else if (q.type == VB_REC_JOINED)
			vb_relay_joined(peer, &q.rec);
		else if (q.type != VB_REC_PAD)
			request_input(&q);
		peer->held = q.held;
		if (__builtin_expect(q.held, 0))
			break;
		peer->rx_head += size;
		done++;
	}
	return done;
}
