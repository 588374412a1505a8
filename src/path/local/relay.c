// relay.c - the target's side of XRC between processes: what it passes on, and what comes of it
// follows: IBA volume 1, annex A14 (XRC); docs/roce.md, "Extended reliable connections"
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "core/active.h"
#include "core/device.h"
#include "engine/local/relay.h"
#include "engine/local/ring.h"
#include "node/io.h"
#include "path/local/relay_state.h"
#include "path/roce/roce.h"
#include "util/units.h"

#define LOOK VB_US(500)     /* ns: the next look if no doorbell rings before */
#define LOOK_SOON VB_US(50) /* ns: the same for what nobody tells of: room in a ring, a meeting */
#define ASK_AGAIN VB_MS(2)  /* ns: a process that has not answered is asked again */

/* Records after which fetched data is no more the answer to a repeated READ: before its PSN comes again. */
#define FETCHED_AGE (1u << 20)

/* --- state --- */

void vb_relay_look(struct vb_qp *qp, uint64_t within)
{
	uint64_t at = vb_now() + within, due = atomic_load_explicit(&qp->xrc.relay_due, memory_order_relaxed);

	if (due && due <= at)
		return;
	atomic_store(&qp->xrc.relay_due, at);
	if (!atomic_load_explicit(&qp->on_active, memory_order_relaxed))
		vb_active_add(qp);
	vb_timer_at(qp->node, at);
}

static uint64_t pending(const struct vb_relay *r)
{
	return r->current ? r->current->sent - r->current->done : 0;
}

static struct vb_relay_entry *oldest(struct vb_relay *r)
{
	return &r->entries[r->current->done % VB_RELAY_RECORDS];
}

bool vb_relay_oldest(const struct vb_qp *qp, uint32_t *psn, uint64_t *count)
{
	struct vb_relay *r = qp->xrc.relay;

	/* a READ that is fetched is not answered yet, and counts where the target keeps it */
	for (uint64_t i = r->current ? r->current->done : 0; r->current && i != r->current->sent; i++) {
		const struct vb_relay_entry *e = &r->entries[i % VB_RELAY_RECORDS];

		if (e->type != VB_REC_READ) {
			*psn = e->psn;
			*count = e->count;
			return true;
		}
	}
	return false;
}

bool vb_relay_refers(const struct vb_qp *qp, const struct vb_peer *peer)
{
	for (const struct vb_way *w = qp->xrc.relay->ways; w; w = w->next)
		if (w->peer == peer)
			return true;
	return false;
}

static struct vb_way *way_to(const struct vb_qp *qp, uint32_t lane)
{
	struct vb_way *w = qp->xrc.relay ? qp->xrc.relay->ways : NULL;

	while (w && w->lane != lane)
		w = w->next;
	return w;
}

/* --- the way to another process --- */

static void forget_guest(struct vb_way *w)
{
	*w = (struct vb_way){.next = w->next, .lane = w->lane, .state = VB_GUEST_ASKED, .gid = w->gid};
}

static uint32_t gen_of(const struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->shared->gen, memory_order_relaxed) & 0xff;
}

static void send_join(struct vb_qp *qp, struct vb_way *w, uint64_t now)
{
	struct vb_xrc_id id;

	w->asked = now;
	if (!vb_xrc_id_of(qp->xrc.domain, &id))
		return;
	const struct vb_rec_ext ext = {.remote_addr = id.st_dev,
	                               .rkey = qp->attr.dest_qp_num,
	                               .total = qp->attr.path_mtu,
	                               .compare_add = id.st_ino,
	                               .swap = id.device};

	vb_relay_say(w->peer, vb_rec_word(0, VB_REC_JOIN), qp->qp.qp_num, gen_of(qp), &ext);
}

/* Meets the process, and asks it for a guest. */
static void ask_way(struct vb_qp *qp, struct vb_way *w, uint64_t now)
{
	int err = 0;

	if (!w->since)
		w->since = now;
	if (!w->peer)
		w->peer = vb_peer_find(qp->node, w->lane << VB_LANE_SHIFT, &w->gid, 0, &err);
	if ((err == ENOENT || err == EACCES) && vb_peer_answered(qp->node, w->lane << VB_LANE_SHIFT, &w->gid, w->since))
		w->state = VB_GUEST_NONE;
	else if (w->peer && !vb_peer_alive(w->peer))
		forget_guest(w);
	else if (w->peer && !vb_peer_ready(w->peer))
		vb_peer_remind(w->peer);
	else if (w->peer && now - w->asked > ASK_AGAIN)
		send_join(qp, w, now);
}

void vb_relay_joined(struct vb_peer *peer, const struct vb_rec *rec)
{
	struct vb_node *node = peer->node;
	uint32_t qpn = rec->dest & VB_QPN_MASK, guest = rec->src & VB_QPN_MASK;
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);
	struct vb_way *w = qp && qp->qp.qp_num == qpn && qp->xrc.relay ? way_to(qp, peer->lane) : NULL;

	if (!w || w->state != VB_GUEST_ASKED || w->peer != peer || (guest && VB_QP_LANE(guest) != w->lane) ||
	    gen_of(qp) != vb_rec_top(rec->psn))
		return;
	if (guest) {
		w->shared = vb_seg_qp(w->peer->seg, guest);
		w->gen = atomic_load_explicit(&w->shared->gen, memory_order_acquire);
		if (!(w->gen & 1) || atomic_load_explicit(&w->shared->qpn, memory_order_relaxed) != guest)
			return; /* it has ended since: another one is asked for */
	}
	w->state = guest ? VB_GUEST_OPEN : VB_GUEST_NONE;
	w->guest = guest;
	vb_relay_look(qp, 0);
}

/* Its process has ended, or closed the XRC domain; then the domain may be open there again. */
static bool guest_is_over(const struct vb_way *w)
{
	return !vb_peer_alive(w->peer) || atomic_load_explicit(&w->shared->gen, memory_order_acquire) != w->gen;
}

enum vb_xrc_place vb_relay_place(struct vb_qp *qp, uint32_t srqn)
{
	struct vb_way *w = way_to(qp, VB_QP_LANE(srqn));
	struct vb_relay *r = qp->xrc.relay;

	if (w && w->state == VB_GUEST_NONE)
		return VB_XRC_NONE;
	if (w && w->state == VB_GUEST_OPEN && guest_is_over(w)) {
		if (w == r->current && r->in_message && w->sent == w->done)
			return VB_XRC_NONE; /* another guest does not have the beginning of the message */
		if (w->sent == w->done) {
			if (w == r->current && r->fetched.state == VB_FETCH_ASKED)
				r->fetched.state = VB_FETCH_NONE;
			forget_guest(w); /* another process may have this lane now */
		}
	} else if (w && w->state == VB_GUEST_OPEN && !r->alone &&
	           (w == r->current || (!pending(r) && !r->in_message))) {
		r->current = w;
		return VB_XRC_THERE;
	}
	if (!w && !qp->xrc.wanted) {
		qp->xrc.wanted = srqn;
		if (!atomic_exchange(&qp->node->relay_work, true))
			vb_progress_wake(qp->node);
	}
	if (r) {
		r->dropped = true;
		vb_relay_look(qp, LOOK_SOON);
	}
	return VB_XRC_BUSY;
}

bool vb_relay_allows(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;
	uint64_t count;
	uint32_t psn;

	if (!vb_relay_oldest(qp, &psn, &count))
		return true;
	r->dropped = true;
	return false;
}

/* --- passing on --- */

static uint32_t relayed_head(const struct vb_relayed *what)
{
	if (what->type == VB_REC_SEND)
		return vb_rec_send_head(what->length);
	return what->type == VB_REC_WRITE ? vb_rec_rdma_head(what->length) : VB_REC_HEAD_EXT;
}

static bool write_record(struct vb_qp *qp, struct vb_way *w, const struct vb_relayed *what)
{
	uint32_t head = relayed_head(what);
	struct vb_peer *peer = w->peer;

	vb_lock(&peer->tx_lock);
	struct vb_rec *rec = vb_ring_reserve(peer, head + what->length);

	if (!rec && vb_ring_want_space(peer))
		rec = vb_ring_reserve(peer, head + what->length);
	if (rec) {
		rec->dest = vb_rec_word(w->guest, what->type);
		rec->src = vb_rec_word(qp->qp.qp_num, what->flags);
		rec->psn = vb_rec_word((uint32_t)w->sent & VB_PSN_MASK, gen_of(qp));
		rec->length = what->length;
		rec->ack = what->srqn;
		rec->imm = what->imm;
		if (head != VB_REC_HEAD && what->type != VB_REC_SEND)
			*(struct vb_rec_ext *)(rec + 1) = what->ext;
		if (what->length)
			memcpy((uint8_t *)rec + head, what->payload, what->length);
		vb_ring_commit(peer, head + what->length);
		vb_peer_notify(peer);
		vb_ring_prepare(peer);
	}
	vb_unlock(&peer->tx_lock);
	return rec;
}

bool vb_relay_put(struct vb_qp *qp, const struct vb_relayed *what)
{
	struct vb_relay *r = qp->xrc.relay;
	struct vb_way *w = r->current;

	if (w->sent - w->done >= VB_RELAY_RECORDS || !write_record(qp, w, what)) {
		r->dropped = r->dropped || what->type != VB_REC_READ;
		vb_relay_look(qp, LOOK_SOON);
		return false;
	}
	r->entries[w->sent++ % VB_RELAY_RECORDS] = (struct vb_relay_entry){
	        .type = (uint8_t)what->type, .psn = what->psn, .slot = what->slot, .count = what->count};
	r->alone = r->alone || what->alone;
	if (what->type != VB_REC_READ && ++r->fetched.age > FETCHED_AGE && r->fetched.state == VB_FETCH_DONE)
		r->fetched.state = VB_FETCH_NONE;
	if (what->type != VB_REC_READ)
		r->in_message = !(what->flags & VB_RECF_LAST);
	vb_relay_look(qp, LOOK);
	return true;
}

/* --- READ --- */

enum vb_relay_result vb_relay_read(struct vb_qp *qp, uint64_t request, uint32_t srqn, uint32_t key, uint64_t addr,
                                   uint32_t total, void *to, uint32_t length)
{
	struct vb_way *w = way_to(qp, VB_QP_LANE(srqn));
	struct vb_relay *r = qp->xrc.relay;

	if (!w || w->state != VB_GUEST_OPEN)
		return VB_RELAY_GONE;
	struct vb_fetched *f = &r->fetched;
	bool same = f->request == request && f->srqn == srqn && f->key == key;

	if (f->state == VB_FETCH_DONE && same && addr - f->addr <= f->length &&
	    length <= f->length - (addr - f->addr)) {
		if (to)
			memcpy(to, r->data + (addr - f->addr), length);
		return VB_RELAY_DATA;
	}
	r->waits_for_data = true;
	if (f->state == VB_FETCH_ASKED)
		return VB_RELAY_WAIT;
	vb_relay_look(qp, LOOK_SOON);
	/* between the records of a message, too: the guest knows which is which */
	if (w != r->current && (pending(r) || r->in_message))
		return VB_RELAY_WAIT;
	r->current = w;
	*f = (struct vb_fetched){.request = request,
	                         .srqn = srqn,
	                         .key = key,
	                         .addr = addr,
	                         .length = total < VB_RELAY_READ ? total : VB_RELAY_READ,
	                         .record = w->sent};
	const struct vb_relayed what = {.type = VB_REC_READ,
	                                .flags = VB_RECF_FIRST | VB_RECF_LAST,
	                                .srqn = srqn,
	                                .ext = {.remote_addr = addr, .rkey = key, .total = f->length}};

	if (vb_relay_put(qp, &what))
		f->state = VB_FETCH_ASKED;
	return VB_RELAY_WAIT;
}

/* The answer to the READ goes on. Under progress. */
static void answer_on(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;

	r->waits_for_data = false;
	if (qp->roce)
		vb_roce_path_answer(qp, vb_now(), false);
	else
		vb_local_serve_reads(qp);
}

void vb_relay_data(struct vb_qp *qp, struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                   const uint8_t *payload)
{
	struct vb_relay *r = qp->qp.qp_num == (rec->dest & VB_QPN_MASK) ? qp->xrc.relay : NULL;
	struct vb_way *w = r ? r->current : NULL;
	struct vb_fetched *f = r ? &r->fetched : NULL;

	if (!w || w->peer != peer || w->guest != (rec->src & VB_QPN_MASK) || f->state != VB_FETCH_ASKED ||
	    ((uint32_t)f->record & VB_PSN_MASK) != (rec->psn & VB_PSN_MASK) || ext->remote_addr != f->got ||
	    rec->length > f->length - f->got)
		return;
	memcpy(r->data + f->got, payload, rec->length);
	f->got += rec->length;
	if (f->got < f->length)
		return;
	f->state = VB_FETCH_DONE;
	if (r->waits_for_data)
		answer_on(qp);
}

/* --- what has come of it --- */

static void ask_again(struct vb_qp *qp)
{
	qp->xrc.relay->dropped = false;
	if (qp->roce)
		vb_roce_path_ask_again(qp);
	else
		vb_local_ask_again(qp);
}

static void refuse(struct vb_qp *qp, unsigned code)
{
	struct vb_relay *r = qp->xrc.relay;
	struct vb_relay_entry *e = oldest(r);
	enum vb_refusal why = code == VB_RING_NAK_ACCESS ? VB_REFUSE_DENIED
	                      : code == VB_RING_NAK_OP   ? VB_REFUSE_RECEIVE
	                                                 : VB_REFUSE_INVALID;

	if (qp->roce)
		vb_roce_path_refuse(qp, why, e->type == VB_REC_READ ? NULL : &e->psn);
	else
		vb_local_relayed_refused(qp, why);
}

/* The oldest record found no receive: it, and what was sent after it, is asked for again. */
static void no_receive(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;
	struct vb_relay_entry e = *oldest(r);

	r->current->sent = r->current->done;
	r->in_message = r->alone = r->dropped = false;
	if (r->fetched.state == VB_FETCH_ASKED)
		r->fetched.state = VB_FETCH_NONE;
	if (qp->roce)
		vb_roce_path_no_receive(qp, e.psn, (uint32_t)e.count);
	else
		vb_local_relayed_rnr(qp, e.psn, e.count);
}

static void executed(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;
	struct vb_way *w = r->current;
	struct vb_relay_entry e = *oldest(r);

	w->done++;
	r->alone = r->alone && w->done != w->sent;
	if (e.type != VB_REC_ATOMIC && e.type != VB_REC_ATOMIC_WRITE && e.type != VB_REC_FLUSH)
		return;
	uint64_t old = atomic_load_explicit(&w->shared->atomic_result[VB_RELAY_SLOT], memory_order_relaxed);

	if (qp->roce) /* which now sends the answer; that of the other two has no data */
		vb_roce_path_result(qp, e.psn, old);
	else if (e.type == VB_REC_ATOMIC)
		atomic_store_explicit(&qp->shared->atomic_result[e.slot % VB_RD_ATOM_SLOTS], old, memory_order_relaxed);
}

/* The guest publishes what it has executed, then a NAK, then its end; so they are read in the reverse order. Returns
 * false if the target has failed. */
static bool take_answers(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;
	struct vb_way *w = r->current;
	bool alive = vb_peer_alive(w->peer);
	uint32_t gens = atomic_load_explicit(&w->shared->gen, memory_order_acquire) - w->gen;
	uint64_t nak = atomic_load_explicit(&w->shared->nak, memory_order_acquire);
	uint64_t to =
	        atomic_load_explicit(gens || !alive ? &w->shared->executed : &w->shared->acked, memory_order_acquire);
	uint64_t before = w->done;

	while (gens <= 1 && w->done != w->sent && (int64_t)(to - w->done) > 0)
		executed(qp);
	if (w->done != before) {
		if (qp->roce)
			vb_roce_path_executed(qp);
		else
			vb_local_relayed_executed(qp);
	}
	if (w->done == w->sent)
		return true;
	/* a READ before the refused record is not answered yet, and the target must not go back to it */
	bool waits = VB_RING_NAK_CODE(nak) == VB_RING_NAK_RNR && oldest(r)->type == VB_REC_READ;

	if (gens <= 1 && nak && VB_RING_NAK_COUNTER(nak) != w->nak_seen && !waits) {
		w->nak_seen = VB_RING_NAK_COUNTER(nak);
		if (VB_RING_NAK_CODE(nak) == VB_RING_NAK_RNR) {
			no_receive(qp);
			return true;
		}
		refuse(qp, VB_RING_NAK_CODE(nak));
		return false;
	}
	if (!gens && alive)
		return true;
	refuse(qp, VB_RING_NAK_INV_REQ);
	return false;
}

static bool still_receives(const struct vb_qp *qp)
{
	uint8_t s = atomic_load_explicit(&qp->state, memory_order_relaxed);

	return s == IBV_QPS_RTR || s == IBV_QPS_RTS || s == IBV_QPS_SQD;
}

static bool asks(const struct vb_qp *qp)
{
	for (const struct vb_way *w = qp->xrc.relay->ways; w; w = w->next)
		if (w->state == VB_GUEST_ASKED)
			return true;
	return qp->xrc.wanted;
}

/* The record that waits in the ring from its requester is tried again, or dropped if the target has ended. */
static void release_stalled(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;

	if (r->stalled && qp->local.peer)
		vb_peer_look_again(qp->node, qp->local.peer);
	r->stalled = false;
}

static unsigned look_at(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;
	uint64_t before = pending(r);

	for (struct vb_way *w = r->ways; w; w = w->next)
		if (w->state == VB_GUEST_ASKED)
			ask_way(qp, w, vb_now());
	if (pending(r) && !take_answers(qp))
		return 1;
	uint64_t left = pending(r);

	if (r->waits_for_data && r->fetched.state != VB_FETCH_ASKED)
		answer_on(qp);
	if (!still_receives(qp)) /* its NAK stands */
		return 1;
	/* what was dropped for want of room goes on when half of it is free */
	if (r->dropped && !asks(qp) && (!left || (left < VB_RELAY_RECORDS / 2 && r->in_message)))
		ask_again(qp);
	if (left || r->dropped || r->waits_for_data || asks(qp))
		vb_relay_look(qp, left && !r->dropped ? LOOK : LOOK_SOON);
	return before != left;
}

unsigned vb_relay_visit(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;

	atomic_store(&qp->xrc.relay_due, 0);
	if (!r)
		return 0;
	release_stalled(qp);
	return still_receives(qp) ? look_at(qp) : 0;
}

/* --- beginning and end --- */

void vb_relay_reset(struct vb_qp *qp)
{
	struct vb_relay *r = qp->xrc.relay;

	atomic_store(&qp->xrc.relay_due, 0);
	qp->xrc.wanted = 0;
	if (!r)
		return;
	while (r->ways) {
		struct vb_way *w = r->ways;

		if (w->peer && w->asked && w->state != VB_GUEST_NONE && vb_peer_alive(w->peer))
			vb_relay_say(w->peer, vb_rec_word(0, VB_REC_LEAVE), qp->qp.qp_num, 0, NULL);
		r->ways = w->next;
		free(w);
	}
	r->current = NULL;
	if (r->stalled) {
		release_stalled(qp);
		vb_timer_armed(qp->node);
	}
	r->stalled_since = 0;
	r->in_message = r->alone = r->dropped = r->waits_for_data = false;
	r->fetched.state = VB_FETCH_NONE;
}

void vb_relay_free(struct vb_qp *qp)
{
	free(qp->xrc.relay); /* vb_relay_reset has freed its ways */
}

/* Adds what was allocated for the target with this number, if it still wants it. */
static void give_way(struct vb_node *node, uint32_t qpn, struct vb_relay **r, struct vb_way **w)
{
	vb_lock(&node->progress);
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);

	if (qp && qp->qp.qp_num == qpn && qp->xrc.wanted && *r && *w) {
		vb_lock(&qp->sq_lock);
		uint32_t srqn = qp->xrc.wanted;

		qp->xrc.wanted = 0;
		if (!qp->xrc.relay) {
			qp->xrc.relay = *r;
			*r = NULL;
		}
		if (!way_to(qp, VB_QP_LANE(srqn)) &&
		    !vb_query_gid_at(VB_CONTEXT_OF(qp)->dev, 1, qp->attr.ah_attr.grh.sgid_index, &(*w)->gid)) {
			(*w)->lane = VB_QP_LANE(srqn);
			(*w)->next = qp->xrc.relay->ways;
			qp->xrc.relay->ways = *w;
			*w = NULL;
		}
		qp->xrc.relay->dropped = true;
		vb_relay_look(qp, 0);
		vb_unlock(&qp->sq_lock);
	}
	vb_unlock(&node->progress);
}

void vb_relays_work(struct vb_node *node)
{
	if (!atomic_load_explicit(&node->relay_work, memory_order_relaxed) ||
	    !atomic_exchange(&node->relay_work, false))
		return;
	vb_guests_work(node);
	for (uint32_t i = 0; i < VB_LANE_QPS; i++) {
		if (!atomic_load_explicit(&node->qps[i], memory_order_relaxed))
			continue;
		vb_lock(&node->progress);
		const struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);
		uint32_t qpn = qp && qp->type == IBV_QPT_XRC_RECV && qp->xrc.wanted ? qp->qp.qp_num : 0;
		vb_unlock(&node->progress);

		if (!qpn)
			continue;
		struct vb_relay *r = calloc(1, sizeof(*r));
		struct vb_way *w = calloc(1, sizeof(*w));

		give_way(node, qpn, &r, &w);
		free(r);
		free(w);
	}
}
