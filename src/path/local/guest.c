// guest.c - guests: queue pairs that execute what the XRC targets of other processes pass on
// follows: IBA volume 1, annex A14 (XRC); docs/roce.md, "Extended reliable connections"
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "core/newer.h"
#include "engine/local/relay.h"
#include "engine/local/responder.h"
#include "engine/local/ring.h"
#include "node/io.h"
#include "path/local/relay_state.h"
#include "util/log.h"

#define ASKS 32u /* what does not fit is asked again */

/* Guests take QP numbers, of which the program needs some itself, and other processes too. */
#define GUESTS_MOST (VB_MAX_QP / 2)
#define GUESTS_OF_PEER (VB_MAX_QP / 4)

/* A record of another process, which the progress thread handles because it allocates. */
struct vb_relay_ask {
	struct vb_peer *peer; /* NULL: this entry is free */
	bool leaves;
	uint32_t qpn, gen, initiator;
	uint8_t path_mtu;
	struct vb_xrc_id id;
};

void vb_relay_say(struct vb_peer *peer, uint32_t dest, uint32_t src, uint32_t gen, const struct vb_rec_ext *ext)
{
	uint32_t size = ext ? VB_REC_HEAD_EXT : VB_REC_HEAD;

	vb_lock(&peer->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(peer, size);

	if (rec) {
		rec->dest = dest;
		rec->src = src;
		rec->psn = vb_rec_word(0, gen);
		rec->length = rec->ack = rec->imm = 0;
		if (ext)
			*(struct vb_rec_ext *)(rec + 1) = *ext;
		vb_ring_commit(peer, size);
		vb_peer_notify(peer);
	}
	vb_unlock(&peer->tx_lock);
}

void vb_relay_asked(struct vb_peer *peer, bool leaves, const struct vb_rec *rec, const struct vb_rec_ext *ext)
{
	struct vb_node *node = peer->node;

	for (unsigned i = 0; node->asks && i < ASKS; i++) {
		struct vb_relay_ask *a = &node->asks[i];

		if (a->peer)
			continue;
		*a = (struct vb_relay_ask){
		        .peer = peer, .leaves = leaves, .qpn = rec->src & VB_QPN_MASK, .gen = vb_rec_top(rec->psn)};
		if (!leaves) {
			a->initiator = ext->rkey & VB_QPN_MASK;
			a->path_mtu = (uint8_t)ext->total;
			a->id = (struct vb_xrc_id){ext->remote_addr, ext->compare_add, ext->swap};
		}
		break;
	}
	if (!atomic_exchange(&node->relay_work, true))
		vb_progress_wake(node);
}

/* Has the guest's target ended, or begun anew? */
static bool is_over(const struct vb_qp *guest)
{
	struct vb_peer *peer = guest->local.peer;

	if (!vb_peer_alive(peer) || atomic_load(&guest->state) != IBV_QPS_RTR)
		return true;
	struct vb_qp_shared *host = vb_seg_qp(peer->seg, guest->attr.dest_qp_num);

	return atomic_load_explicit(&host->qpn, memory_order_relaxed) != guest->attr.dest_qp_num ||
	       (atomic_load_explicit(&host->gen, memory_order_relaxed) & 0xff) != guest->xrc.host_gen;
}

static void reap(struct vb_node *node)
{
	struct vb_qp *over = NULL;

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	for (struct vb_xrc_domain *d = vb_xrc_domains(node); d; d = vb_xrc_domain_next(d)) {
		struct vb_qp **at = vb_xrc_guests_of(d);

		while (*at) {
			struct vb_qp *guest = *at;

			if (!is_over(guest)) {
				at = &guest->xrc.next_guest;
				continue;
			}
			*at = guest->xrc.next_guest;
			guest->xrc.next_guest = over;
			over = guest;
		}
	}
	atomic_store(&node->guests_end, over != NULL);
	vb_mutex_unlock(&node->ctx_lock);
	if (!over)
		return;
	vb_xrc_guests_end(over);
	atomic_store(&node->guests_end, false);
	vb_peers_reap(node); /* their targets' processes may have ended */
}

/* May this process have one more? Each of its guests is for a target, of which an honest process has no more either. Under
 * ctx_lock. */
static bool takes_guest_of(struct vb_node *node, const struct vb_peer *peer)
{
	static atomic_bool said;
	unsigned all = 0, its = 0;

	for (struct vb_xrc_domain *d = vb_xrc_domains(node); d; d = vb_xrc_domain_next(d))
		for (const struct vb_qp *g = *vb_xrc_guests_of(d); g; g = g->xrc.next_guest) {
			all++;
			its += g->local.peer == peer;
		}
	if (all < GUESTS_MOST && its < GUESTS_OF_PEER)
		return true;
	if (!atomic_exchange(&said, true))
		vb_log(VB_LOG_ERROR,
		       "too many XRC targets of other processes (%u, of process %d %u) name SRQs of this one", all,
		       peer->pid, its);
	return false;
}

/* Under ctx_lock. */
static struct vb_qp *guest_new(struct vb_xrcd *by, const struct vb_relay_ask *a)
{
	struct vb_qp *guest = vb_qp_make_target(by->xrcd.context, by);
	/* the target has checked what it allows */
	const struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	                                                    IBV_ACCESS_REMOTE_ATOMIC | VB_IBV_ACCESS_FLUSH_GLOBAL,
	                                 .path_mtu = (enum ibv_mtu)a->path_mtu,
	                                 .max_dest_rd_atomic = VB_RD_ATOM_SLOTS,
	                                 .dest_qp_num = a->qpn};

	if (!guest)
		return NULL;
	guest->xrc.initiator = a->initiator;
	guest->xrc.host_gen = a->gen;
	vb_qp_start_guest(guest, &attr, a->peer);
	return guest;
}

/* The number of the guest of this target, or 0. */
static uint32_t guest_of(struct vb_node *node, const struct vb_relay_ask *a)
{
	struct vb_xrcd *by = NULL;
	uint32_t qpn = 0;

	if (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096 || !a->initiator ||
	    VB_QP_LANE(a->qpn) != a->peer->lane)
		return 0;
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_xrc_domain *d = vb_xrc_domain_of(node, &a->id, &by);
	struct vb_qp *guest = d ? *vb_xrc_guests_of(d) : NULL;

	while (guest &&
	       (guest->local.peer != a->peer || guest->attr.dest_qp_num != a->qpn || guest->xrc.host_gen != a->gen))
		guest = guest->xrc.next_guest;
	if (!guest && d && by && takes_guest_of(node, a->peer) && (guest = guest_new(by, a))) {
		guest->xrc.next_guest = *vb_xrc_guests_of(d);
		*vb_xrc_guests_of(d) = guest;
	}
	if (guest)
		qpn = guest->qp.qp_num;
	vb_mutex_unlock(&node->ctx_lock);
	return qpn;
}

void vb_guests_work(struct vb_node *node)
{
	if (!node->asks) { /* what could not be noted is asked again */
		struct vb_relay_ask *asks = calloc(ASKS, sizeof(*asks));

		vb_lock(&node->progress);
		node->asks = asks;
		vb_unlock(&node->progress);
		return;
	}
	for (unsigned i = 0; i < ASKS; i++) {
		vb_lock(&node->progress);
		struct vb_relay_ask a = node->asks[i];

		node->asks[i].peer = NULL;
		vb_unlock(&node->progress);
		if (!a.peer || !vb_peer_hold(a.peer))
			continue;
		if (!a.leaves && vb_peer_alive(a.peer))
			vb_relay_say(a.peer, vb_rec_word(a.qpn, VB_REC_JOINED), guest_of(node, &a), a.gen, NULL);
		vb_peer_release(a.peer);
	}
	reap(node);
}
