// datagram.c - a datagram on its way: to a program of this host, or to the network
// follows: IBA volume 1, 9.8.3 (UD), 10.2.5 (controlled Q_Key)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "core/ah.h"
#include "core/gid.h"
#include "core/mr.h"
#include "core/pd.h"
#include "engine/requester.h"
#include "engine/ring.h"
#include "frame/header.h"
#include "frame/net.h"
#include "frame/segment.h"

/* A datagram is dropped when its receiver makes no room for so long, or cannot be met: the broker and a busy program may
 * need a while for that, as address resolution does on a network. */
#define UD_PATIENCE 100000000ull /* ns */
#define UD_MEETING 3000000000ull /* ns */
#define FAR_MS 50                /* a new program with an old number may have come by then */

static enum vb_emit ud_waits(struct vb_qp *qp, uint64_t patience)
{
	if (!qp->deadline) {
		qp->timer_kind = VB_TIMER_RETRY;
		qp->deadline = vb_now() + patience;
		vb_timer_armed(qp->node);
	}
	return VB_EMIT_BLOCKED;
}

/* The broker need not be asked for each datagram. */
static bool is_far(const struct vb_ah *ah, uint32_t lane)
{
	uint64_t far = atomic_load_explicit(&ah->far, memory_order_relaxed);

	return far >> 40 == lane && vb_now() / 1000000 < (far & 0xffffffffffull);
}

static void set_far(struct vb_ah *ah, uint32_t lane)
{
	atomic_store_explicit(&ah->far, (uint64_t)lane << 40 | ((vb_now() / 1000000 + FAR_MS) & 0xffffffffffull),
			      memory_order_relaxed);
}

/* To another host, or to a group. */
static enum vb_emit emit_far(struct vb_qp *qp, struct vb_swqe *w)
{
	switch (vb_wire_datagram(qp, w)) {
	case VB_DATAGRAM_SENT:
		vb_stop_timer(qp);
		return vb_emit_done(w);
	case VB_DATAGRAM_LOST:
		VB_COUNT(drop_ud_path, 1);
		return vb_emit_done(w);
	case VB_DATAGRAM_WAIT:
		return ud_waits(qp, UD_PATIENCE);
	default:
		return vb_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	}
}

/* The header that the packet would have had on the wire. */
static void put_grh(uint8_t grh[40], const struct vb_swqe *w)
{
	const struct ibv_global_route *route = &w->ah->attr.grh;
	struct vb_ip_fields ip = {
		.traffic_class = route->traffic_class, .hop_limit = route->hop_limit, .flow_label = route->flow_label & 0xfffff};
	uint32_t headers = w->opcode == IBV_WR_SEND_WITH_IMM ? VB_HEADER_LEN(VB_EXT_DETH | VB_EXT_IMMDT) : VB_HEADER_LEN(VB_EXT_DETH);
	struct vb_flow flow;

	memcpy(flow.src, w->ah->sgid.raw, VB_GID_LEN);
	memcpy(flow.dst, route->dgid.raw, VB_GID_LEN);
	vb_grh(grh, &flow, &ip, headers + w->length + vb_pad_count(w->length) + VB_ICRC_LEN);
}

/* A datagram goes to whoever its address handle names; one that finds nobody is lost, as datagrams are. */
enum vb_emit vb_emit_datagram(struct vb_qp *qp, struct vb_swqe *w)
{
	struct iovec iov[VB_MAX_SGE + 1];
	struct vb_peer *peer = atomic_load_explicit(&w->ah->last_peer, memory_order_acquire);
	uint32_t lane = VB_QP_LANE(w->ud_qpn);
	int err = 0, n;

	if (w->length > 4096)
		return vb_emit_fault(w, IBV_WC_LOC_LEN_ERR);
	if (qp->wire_always || w->ah->attr.grh.dgid.raw[0] == 0xff || vb_gid_is_multicast4(&w->ah->attr.grh.dgid))
		return emit_far(qp, w);
	if (!peer || peer->lane != lane || !vb_peer_alive(peer)) {
		if (is_far(w->ah, lane))
			return emit_far(qp, w);
		peer = vb_peer_find(qp->node, w->ud_qpn, &w->ah->attr.grh.dgid, 0, &err);
		if (!peer && err != EAGAIN) {
			if (qp->wire)
				set_far(w->ah, lane);
			return emit_far(qp, w);
		}
		if (peer)
			atomic_store_explicit(&w->ah->last_peer, peer, memory_order_release);
	}
	n = vb_gather(qp, w, 0, iov);
	if (n < 0)
		return vb_emit_fault(w, IBV_WC_LOC_PROT_ERR);
	if (!peer || !vb_peer_ready(peer))
		goto wait;
	vb_lock(&peer->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(peer, 64 + 40 + w->length);
	if (!rec && vb_want_space(peer))
		rec = vb_ring_reserve(peer, 64 + 40 + w->length);
	if (!rec) {
		vb_unlock(&peer->tx_lock);
		goto wait;
	}
	struct vb_rec_ext *ext = (struct vb_rec_ext *)(rec + 1);
	uint8_t *payload = (uint8_t *)(ext + 1);
	bool ok = vb_copy_from(iov, n, 0, payload + 40, w->length);

	if (ok) {
		put_grh(payload, w);
		vb_rec_fill(qp, rec, VB_REC_UD, VB_RECF_FIRST | VB_RECF_LAST | vb_message_flags(w), 0, 40 + w->length, w->imm);
		rec->dest = w->ud_qpn | (uint32_t)VB_REC_UD << 24;
		ext->rkey = w->ud_qkey & 0x80000000u ? qp->attr.qkey : w->ud_qkey; /* IBA 10.2.5: controlled Q_Key */
		ext->total = w->length;
		vb_ring_commit(peer, 64 + 40 + w->length);
		vb_peer_notify(peer);
		vb_ring_prepare(peer);
	}
	vb_unlock(&peer->tx_lock);
	vb_stop_timer(qp);
	return ok ? vb_emit_done(w) : vb_emit_fault(w, IBV_WC_LOC_PROT_ERR);
wait:
	return ud_waits(qp, peer && vb_peer_ready(peer) ? UD_PATIENCE : UD_MEETING);
}
