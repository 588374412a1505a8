// datagram.c - sends datagrams to programs of this host, or to the network
// follows: IBA volume 1, 9.8.3 (UD), 10.2.5 (controlled Q_Key)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/ah.h"
#include "core/gid.h"
#include "core/ib.h"
#include "core/mr.h"
#include "core/pd.h"
#include "core/sq.h"
#include "engine/local/frames.h"
#include "engine/local/requester.h"
#include "engine/local/ring.h"
#include "frame/cursor.h"
#include "frame/header.h"
#include "frame/net.h"
#include "frame/packet.h"
#include "frame/segment.h"
#include "util/units.h"

/* A datagram is dropped if its receiver makes no room for UD_PATIENCE, or was not met within UD_MEETING. The broker and
 * a busy program may need this time, as address resolution does on a network. */
#define UD_PATIENCE VB_MS(100) /* ns */
#define UD_MEETING VB_S(3)     /* ns */
/* the fields of ah->far */
#define FAR_LANE_SHIFT 40
#define FAR_TIME_MASK ((1ull << FAR_LANE_SHIFT) - 1)
#define FAR_MS 50 /* after this time the broker is asked again, because a new program may own the lane */

/* The most waiting datagrams that datagrams to other receivers may overtake. With more, all later datagrams wait. */
#define OVERTAKEN_MAX 128

/* w->slot of a datagram, with fault injection. */
enum vb_ud_judged {
	UD_NEW,
	UD_JUDGED,  /* the rules were asked */
	UD_DELAYED, /* until w->until; later ones to the same process wait behind it */
	UD_PASSED,  /* the same, but later ones overtake it */
};
#define NO_LANE UINT16_MAX

/* Copies the payload and address of a datagram that must wait. */
static enum vb_emit hold_datagram(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_held *h;
	int n = vb_gather(qp, w, 0, iov);

	if (n < 0)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	h = malloc(sizeof(*h) + w->length);
	if (!h)
		return VB_EMIT_BLOCKED;
	*h = (struct vb_held){.ah = {.ah = w->ah->ah,
	                             .attr = w->ah->attr,
	                             .sgid = w->ah->sgid,
	                             .met = w->ah->met,
	                             .way = w->ah->way}};
	if (!vb_copy_from(iov, n, 0, h->bytes, w->length)) {
		free(h);
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	}
	w->held = h;
	w->ah = &h->ah;
	return VB_EMIT_BLOCKED;
}

static enum vb_emit ud_waits(struct vb_qp *qp, struct vb_swqe *w, uint64_t patience)
{
	if (!w->until)
		w->until = vb_now() + patience;
	return patience == UD_MEETING && !w->held ? hold_datagram(qp, w) : VB_EMIT_BLOCKED;
}

/* Was there no program of this host with this lane a short time ago? Then the broker is not asked. */
static bool is_far(const struct vb_ah *ah, uint32_t lane)
{
	uint64_t far = atomic_load_explicit(&ah->far, memory_order_relaxed);

	return far >> FAR_LANE_SHIFT == lane && vb_now() / VB_MS(1) < (far & FAR_TIME_MASK);
}

static void set_far(struct vb_ah *ah, uint32_t lane)
{
	atomic_store_explicit(&ah->far,
	                      (uint64_t)lane << FAR_LANE_SHIFT | ((vb_now() / VB_MS(1) + FAR_MS) & FAR_TIME_MASK),
	                      memory_order_relaxed);
}

/* Handles the result of sending to the network. The links of a fabric lose nothing for want of room: a port that its neighbour
 * gives no credit sends nothing, for as long as that takes (IBA 7.9). If the fabric process ends, the datagram is lost. */
static enum vb_emit settle_far(struct vb_qp *qp, struct vb_swqe *w, enum vb_datagram_result result)
{
	switch (result) {
	case VB_DATAGRAM_SENT:
		return vb_local_emit_done(w);
	case VB_DATAGRAM_LOST:
		VB_COUNT(drop_ud_path, 1);
		return vb_local_emit_done(w);
	case VB_DATAGRAM_WAIT:
		return qp->ib ? VB_EMIT_BLOCKED : ud_waits(qp, w, UD_PATIENCE);
	default:
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	}
}

/* Sends to another host, or to a multicast group. */
static enum vb_emit emit_far(struct vb_qp *qp, struct vb_swqe *w)
{
	return settle_far(qp, w, qp->path->datagram(qp, w));
}

/* Sends to a lane that no program of this host owns. Without a network, only a program of this host that starts later
 * can receive the datagram. */
static enum vb_emit emit_to_unknown(struct vb_qp *qp, struct vb_swqe *w)
{
	enum vb_datagram_result result = qp->path->datagram(qp, w);

	if (result != VB_DATAGRAM_LOST)
		set_far(w->ah, VB_QP_LANE(w->ud_qpn));
	return settle_far(qp, w, result);
}

static bool is_to_group(const struct vb_ah *ah)
{
	if (ah->attr.dlid && !ah->attr.is_global)
		return false;
	return ah->attr.grh.dgid.raw[0] == 0xff || vb_gid_is_multicast4(&ah->attr.grh.dgid);
}

/* IBA 8.3. Without a GRH the 40 bytes are unspecified. */
void vb_local_put_ib_grh(uint8_t grh[VB_GRH_LEN], const struct vb_swqe *w, uint32_t payload)
{
	const struct ibv_global_route *route = &w->ah->attr.grh;
	struct vb_writer out = vb_writer(grh, VB_GRH_LEN);

	memset(grh, 0, VB_GRH_LEN);
	if (!w->ah->attr.is_global)
		return;
	vb_put32(&out, 6u << 28 | (uint32_t)route->traffic_class << 20 | (route->flow_label & VB_FLOW_LABEL_MASK));
	vb_put16(&out, (uint16_t)payload);
	vb_put8(&out, VB_GRH_NEXT_HEADER);
	vb_put8(&out, route->hop_limit);
	vb_put_bytes(&out, w->ah->sgid.raw, VB_GID_LEN);
	vb_put_bytes(&out, route->dgid.raw, VB_GID_LEN);
}

/* Writes the GRH, or the IP header that a RoCE packet would have. */
static void put_grh(uint8_t grh[VB_GRH_LEN], const struct vb_swqe *w)
{
	const struct ibv_global_route *route = &w->ah->attr.grh;
	struct vb_ip_fields ip = {.traffic_class = route->traffic_class,
	                          .hop_limit = route->hop_limit,
	                          .flow_label = route->flow_label & VB_FLOW_LABEL_MASK};
	uint32_t headers = w->opcode == IBV_WR_SEND_WITH_IMM ? VB_HEADER_LEN(VB_EXT_DETH | VB_EXT_IMMDT)
	                                                     : VB_HEADER_LEN(VB_EXT_DETH);
	struct vb_flow flow = vb_roce_flow(w->ah->sgid.raw, route->dgid.raw, 0);

	if (w->ah->way) {
		vb_local_put_ib_grh(grh, w, headers + w->length + vb_pad_count(w->length) + VB_ICRC_LEN);
		return;
	}
	vb_grh(grh, &flow, &ip, headers + w->length + vb_pad_count(w->length) + VB_ICRC_LEN);
}

/* The fields of a packet's headers that a record has, for the receiver. */
static uint64_t ib_fields(const struct vb_qp *qp, const struct vb_ah *ah)
{
	const struct vb_ib_way *way = ah->way;

	if (!way)
		return 0;
	return VB_REC_UD_IB(atomic_load_explicit(&way->slid, memory_order_relaxed), qp->local.pkey, ah->attr.sl & 15,
	                    atomic_load_explicit(&way->path_bits, memory_order_relaxed), ah->attr.is_global != 0);
}

/* The receiver's process that the address handle knows, or NULL. */
static struct vb_peer *known_peer(const struct vb_ah *ah)
{
	struct vb_peer *peer = atomic_load_explicit(&ah->last_peer, memory_order_acquire);

	if (ah->way && atomic_load_explicit(&ah->turn, memory_order_relaxed) !=
	                       atomic_load_explicit(&ah->way->turn, memory_order_relaxed))
		return NULL; /* another port is at the end of the way now */
	return peer;
}

/* Asks for the receiver's process. */
static struct vb_peer *meet_peer(struct vb_qp *qp, const struct vb_swqe *w, int *err)
{
	struct vb_ah *ah = w->ah;
	union ibv_gid met = ah->met;
	uint32_t turn = ah->way ? atomic_load_explicit(&ah->way->turn, memory_order_acquire) : 0;

	if (ah->way)
		vb_ib_way_address(qp->node, ah->way, &met);
	struct vb_peer *peer = vb_peer_find(qp->node, w->ud_qpn, &met, 0, err);

	if (peer) {
		atomic_store_explicit(&ah->turn, turn, memory_order_relaxed);
		atomic_store_explicit(&ah->last_peer, peer, memory_order_release);
	}
	return peer;
}

/* Asks the rules of fault injection. VB_EMIT_OK with a state of DONE: it is lost; with another state: it is to be sent,
 * twice if *twice. Otherwise it waits, or has failed. */
static enum vb_emit judge_datagram(struct vb_qp *qp, struct vb_swqe *w, bool *twice)
{
	uint64_t wait = 0;
	enum vb_datagram_fault fault = qp->path->judge(qp, w, &wait);

	w->slot = UD_JUDGED;
	*twice = fault == VB_DATAGRAM_TWICE;
	if (fault == VB_DATAGRAM_WHOLE || *twice)
		return VB_EMIT_OK;
	if (fault == VB_DATAGRAM_DROPPED)
		return vb_local_emit_done(w);
	w->slot = fault == VB_DATAGRAM_PASSED ? UD_PASSED : UD_DELAYED;
	w->until = vb_now() + wait;
	return w->held ? VB_EMIT_BLOCKED : hold_datagram(qp, w);
}

/* Sends a datagram to the receiver of its address handle. A datagram without a receiver is lost. */
static enum vb_emit emit_one(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_peer *peer = known_peer(w->ah);
	uint32_t lane = VB_QP_LANE(w->ud_qpn);
	int err = 0, n;

	if (w->length > VB_PAYLOAD_MAX)
		return vb_local_emit_fault(w, IBV_WC_LOC_LEN_ERR);
	if (qp->datagram.roce_always || is_to_group(w->ah))
		return emit_far(qp, w);
	if (w->ah->way && !atomic_load_explicit(&w->ah->way->open, memory_order_relaxed))
		return settle_far(qp, w, VB_DATAGRAM_LOST);
	if (!peer || peer->lane != lane || !vb_peer_alive(peer)) {
		if (is_far(w->ah, lane))
			return emit_far(qp, w);
		peer = meet_peer(qp, w, &err);
		if (!peer && err != EAGAIN)
			return emit_to_unknown(qp, w);
	}
	n = vb_gather(qp, w, 0, iov);
	if (n < 0)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	if (!peer || !vb_peer_ready(peer)) {
		if (peer)
			vb_peer_remind(peer);
		goto wait;
	}
	bool twice = false;
	if (__builtin_expect(qp->path->judge != NULL, 0) && w->slot == UD_NEW) {
		enum vb_emit fault = judge_datagram(qp, w, &twice);

		if (fault != VB_EMIT_OK || w->state == VB_SWQE_DONE)
			return fault;
	}
again:
	vb_lock(&peer->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(peer, VB_REC_HEAD_EXT + VB_GRH_LEN + w->length);
	if (!rec && vb_ring_want_space(peer))
		rec = vb_ring_reserve(peer, VB_REC_HEAD_EXT + VB_GRH_LEN + w->length);
	if (!rec) {
		vb_unlock(&peer->tx_lock);
		goto wait;
	}
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);
	uint8_t *payload = (uint8_t *)(ext + 1);
	bool ok = vb_copy_from(iov, n, 0, payload + VB_GRH_LEN, w->length);

	if (ok) {
		put_grh(payload, w);
		vb_rec_fill(qp, rec, VB_REC_UD, VB_RECF_FIRST | VB_RECF_LAST | vb_local_message_flags(w), 0,
		            VB_GRH_LEN + w->length, w->imm);
		rec->dest = vb_rec_word(w->ud_qpn, VB_REC_UD);
		/* IBA 10.2.5: a controlled Q_Key stands for the QP's own */
		ext->rkey = w->ud_qkey & VB_QKEY_CONTROLLED ? qp->attr.qkey : w->ud_qkey;
		ext->total = w->length;
		ext->compare_add = ib_fields(qp, w->ah);
		vb_ring_commit(peer, VB_REC_HEAD_EXT + VB_GRH_LEN + w->length);
		vb_peer_notify(peer);
		vb_ring_prepare(peer);
	}
	vb_unlock(&peer->tx_lock);
	if (!ok)
		return vb_local_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	qp->local.sent.messages++;
	vb_local_count_sent(qp, w);
	if (w->ah->way)
		vb_local_count_datagram(qp, w);
	if (__builtin_expect(qp->datagram.shown, 0))
		vb_local_show_datagram(qp, w, w->ud_qkey & VB_QKEY_CONTROLLED ? qp->attr.qkey : w->ud_qkey, iov, n);
	if (__builtin_expect(twice, 0)) {
		twice = false;
		goto again; /* if there is no room for the second one, it waits: the receiver has one, or two */
	}
	return vb_local_emit_done(w);
wait:
	return ud_waits(qp, w, peer && vb_peer_ready(peer) ? UD_PATIENCE : UD_MEETING);
}

/* --- the queue: a waiting datagram does not delay datagrams to other receivers --- */

/* The waiting datagrams: the lane of each, and whether it waits for its receiver to be met. */
struct waiting {
	unsigned n;
	uint64_t due;
	uint16_t lane[OVERTAKEN_MAX];
	bool held[OVERTAKEN_MAX];
};

static void waiting_add(struct waiting *waiting, const struct vb_swqe *w)
{
	waiting->lane[waiting->n] = w->slot == UD_PASSED ? NO_LANE : (uint16_t)VB_QP_LANE(w->ud_qpn);
	waiting->held[waiting->n++] = w->held && w->slot < UD_DELAYED;
	if (w->until && (!waiting->due || w->until < waiting->due))
		waiting->due = w->until;
}

/* Ends the wait of a datagram. If a slow broker has not told where the receiver is, the datagram is sent to the
 * network, which delivers it even to a program of this host. */
static enum vb_emit last_try(struct vb_qp *qp, struct vb_swqe *w)
{
	if (!w->held || qp->path->datagram(qp, w) != VB_DATAGRAM_SENT)
		VB_COUNT(drop_ud_path, 1);
	return vb_local_emit_done(w);
}

/* Sends a datagram, unless an earlier one to the same lane waits. So they keep their order, although IBA 9.8.3 does not
 * require it. */
static enum vb_emit in_turn(struct vb_qp *qp, struct vb_swqe *w, const struct waiting *waiting)
{
	if (w->state == VB_SWQE_DONE) /* already sent, or refused when it was posted */
		return w->status == IBV_WC_SUCCESS ? VB_EMIT_OK : VB_EMIT_FAILED;
	if (w->until) {
		bool over = vb_now() >= w->until, delayed = w->slot >= UD_DELAYED;

		if (over && !delayed) /* it completes, even if it is lost */
			return last_try(qp, w);
		if (!over && delayed)
			return VB_EMIT_BLOCKED;
		if (delayed) { /* from now on it waits as others do */
			w->slot = UD_JUDGED;
			w->until = 0;
		}
	}
	for (unsigned i = 0; i < waiting->n; i++)
		if (waiting->lane[i] == VB_QP_LANE(w->ud_qpn))
			return waiting->held[i] ? ud_waits(qp, w, UD_MEETING) : VB_EMIT_BLOCKED;
	return emit_one(qp, w);
}

static void set_timer(struct vb_qp *qp, uint64_t due)
{
	uint64_t before = qp->local.deadline;

	if (due == before)
		return;
	qp->local.timer_kind = due ? VB_TIMER_RETRY : VB_TIMER_NONE;
	qp->local.deadline = due;
	if (due && (!before || due < before))
		vb_timer_armed(qp->node);
}

enum vb_sq_status vb_local_emit_datagrams(struct vb_qp *qp, uint32_t end)
{
	struct waiting waiting;
	enum vb_sq_status status = VB_SQ_GOOD;

	waiting.n = 0;
	waiting.due = 0;
	for (uint32_t i = qp->sq_emit; i != end && waiting.n < OVERTAKEN_MAX; i++) {
		struct vb_swqe *w = vb_sq_at(qp, i);
		enum vb_emit r = in_turn(qp, w, &waiting);

		if (r == VB_EMIT_BLOCKED) {
			waiting_add(&waiting, w);
			continue;
		}
		vb_sq_release(w);
		if (r == VB_EMIT_FAILED) { /* completes in order; datagrams behind it are not sent */
			status = waiting.n ? VB_SQ_GOOD : VB_SQ_FAILED;
			break;
		}
		if (!waiting.n)
			qp->sq_emit = i + 1;
	}
	set_timer(qp, waiting.due);
	return status;
}
