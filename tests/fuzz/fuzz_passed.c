// fuzz_passed.c - XRC between processes: the hostile peer of fuzz_ring.c also has targets, of which this process makes guests,
// and SRQs, for which our target passes requests on. What it writes into its segment and its ring does no harm
// see: docs/roce.md, "Extended reliable connections"
// build: tests/fuzz/run 60 passed
// SPDX-License-Identifier: MIT
#include "passed.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "frame/fields.h"
#include "node/io.h"
#include "path/local/relay_state.h"
#include "path/roce/roce.h"

/* --- what stands in for the rest of the process --- */

static void no_offer(struct vb_node *node)
{
}

const struct vb_xrc_far_ops vb_xrc_far_ops = {.offer = no_offer};

void vb_progress_wake(struct vb_node *node)
{
}

void vb_peer_look_again(struct vb_node *node, struct vb_peer *p)
{
}

bool vb_peer_hold(struct vb_peer *p)
{
	return true;
}

void vb_peer_release(struct vb_peer *p)
{
}

void vb_peers_reap(struct vb_node *node)
{
}

bool vb_peer_answered(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, uint64_t since)
{
	return true;
}

/* None of its queue pairs is on a network. */
#define UNREACHED(name, ...)   \
	void name(__VA_ARGS__) \
	{                      \
		abort();       \
	}
UNREACHED(vb_roce_path_answer, struct vb_qp *a, uint64_t b, bool c)
UNREACHED(vb_roce_path_ask_again, struct vb_qp *a)
UNREACHED(vb_roce_path_executed, struct vb_qp *a)
UNREACHED(vb_roce_path_result, struct vb_qp *a, uint32_t b, uint64_t c)
UNREACHED(vb_roce_path_no_receive, struct vb_qp *a, uint32_t b, uint32_t c)
UNREACHED(vb_roce_path_refuse, struct vb_qp *a, enum vb_refusal b, const uint32_t *c)

/* --- the XRC domain --- */

int passed_file(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/", O_RDONLY | O_CLOEXEC);
	assert(fd >= 0);
	return fd;
}

void passed_begin(struct vb_node *node)
{
	free(node->asks);
	node->asks = NULL;
	vb_guests_work(node); /* has room for questions from now on */
	atomic_store(&node->relay_work, false);
}

/* --- records --- */

static const struct vb_qp *some_guest(const struct vb_qp *target, uint32_t k)
{
	const struct vb_qp *g = *vb_xrc_guests_of(target->xrc.domain);

	for (k %= 4; g && k; k--)
		g = g->xrc.next_guest ? g->xrc.next_guest : g;
	return g;
}

static uint32_t own(uint32_t qpn, uint32_t word)
{
	return (qpn & VB_QPN_MASK) | (word & ~VB_QPN_MASK);
}

/* From the target for which the guest was made. */
static void for_guest(uint32_t k, const struct vb_qp *guest, uint32_t srqn, struct vb_rec *r)
{
	r->dest = own(guest->qp.qp_num, r->dest);
	r->src = own(guest->attr.dest_qp_num, r->src);
	r->psn = vb_rec_word(guest->local.epsn & VB_PSN_MASK, guest->xrc.host_gen);
	if (k & 1)
		r->ack = srqn;
}

/* From the requester of our target, for an SRQ of the peer. */
static void for_srq_of_peer(uint32_t k, const struct vb_qp *target, struct vb_rec *r)
{
	uint32_t requester = target->attr.dest_qp_num;

	r->dest = own(target->qp.qp_num, r->dest);
	r->src = own(requester, r->src);
	r->psn = own(target->local.epsn, r->psn);
	r->ack = (requester & ~(VB_LANE_QPS - 1)) | (1 + k % 8);
}

static void ask_for_guest(uint32_t k, const struct vb_qp *target, struct vb_rec *r, struct vb_rec_ext *x)
{
	struct vb_xrc_id id;

	assert(vb_xrc_id_of(target->xrc.domain, &id));
	*x = (struct vb_rec_ext){.remote_addr = id.st_dev,
	                         .rkey = 1 + (k & 15),
	                         .total = k >> 4 & 7,
	                         .compare_add = id.st_ino,
	                         .swap = id.device};
	r->psn = vb_rec_word(0, k & 128 ? 1 : k >> 8);
}

static void data_for_read(const struct vb_qp *target, struct vb_rec *r, struct vb_rec_ext *x)
{
	const struct vb_relay *relay = target->xrc.relay;

	r->dest = own(target->qp.qp_num, r->dest);
	r->src = own(relay->current->guest, r->src);
	r->psn = own((uint32_t)relay->fetched.record, r->psn);
	x->remote_addr = relay->fetched.got;
}

void passed_record(uint32_t k, struct vb_qp *target, uint32_t srqn, struct vb_rec *r, struct vb_rec_ext *x)
{
	static const uint8_t more[] = {VB_REC_JOIN, VB_REC_JOINED, VB_REC_LEAVE, VB_REC_READ_DATA};
	const struct vb_qp *guest = some_guest(target, k >> 4);
	uint32_t what = k & 7, rest = k >> 3;

	if (what >= 4)
		r->dest = vb_rec_word(r->dest & VB_QPN_MASK, more[what - 4]);
	if (what == 1 && guest)
		for_guest(rest, guest, srqn, r);
	else if (what == 2)
		for_srq_of_peer(rest, target, r);
	else if (what == 4 && rest & 1)
		ask_for_guest(rest >> 1, target, r, x);
	else if (what == 5 && rest & 1)
		r->dest = own(target->qp.qp_num, r->dest);
	else if (what == 7 && rest & 1 && target->xrc.relay && target->xrc.relay->current)
		data_for_read(target, r, x);
}

/* --- what is no record --- */

static void guest_acts(uint32_t k, const struct vb_way *w, struct vb_peer *peer)
{
	uint64_t done = w->done + (k >> 2 & 3);

	atomic_store(&peer->theirs->rx_head, peer->tx_tail);
	switch (k & 3) {
	case 0:
		atomic_store(&w->shared->acked, done);
		break;
	case 1:
		atomic_store(&w->shared->executed, done);
		atomic_store(&w->shared->atomic_result[0], k);
		break;
	case 2:
		atomic_store(&w->shared->nak, VB_RING_NAK(w->nak_seen + 1, 0, k >> 4 & 7));
		break;
	default:
		atomic_fetch_add(&w->shared->gen, k >> 2 & 3);
	}
}

/* Its own number stands for that of its SRQ, and of its guest. */
static uint32_t its_number(uint32_t k, const struct vb_peer *peer)
{
	return peer->lane << VB_LANE_SHIFT | (1 + k % 8);
}

/* What takes several records otherwise: our target is asked for an SRQ of the peer, asks it for a guest, and gets one. */
static void open_way(uint32_t k, struct vb_qp *target, struct vb_peer *peer)
{
	const struct vb_rec joined = {
	        .dest = target->qp.qp_num,
	        .src = its_number(k, peer),
	        .psn = vb_rec_word(0, atomic_load(&target->shared->gen) & 0xff),
	};

	vb_lock(&target->node->progress);
	vb_relay_place(target, its_number(k >> 3, peer));
	vb_unlock(&target->node->progress);
	vb_relays_work(target->node);
	vb_lock(&target->node->progress);
	vb_relay_visit(target);
	vb_relay_joined(peer, &joined);
	vb_unlock(&target->node->progress);
}

/* The peer asks for a guest of its target, and gets it. */
static void open_guest(uint32_t k, struct vb_qp *target, struct vb_peer *peer)
{
	struct vb_rec asks = {.src = its_number(k, peer)};
	struct vb_rec_ext ext;

	ask_for_guest(1 + (k >> 3 & 7) + (1 + k % 5) * 16 + 128, target, &asks, &ext);
	vb_lock(&target->node->progress);
	vb_relay_asked(peer, false, &asks, &ext);
	vb_unlock(&target->node->progress);
	vb_relays_work(target->node);
}

void passed_act(uint32_t k, struct vb_qp *target, struct vb_peer *peer)
{
	const struct vb_way *w = target->xrc.relay ? target->xrc.relay->current : NULL;

	switch (k & 7) {
	case 0:
		open_way(k >> 3, target, peer);
		break;
	case 1:
		open_guest(k >> 3, target, peer);
		break;
	case 2:
		vb_relays_work(target->node);
		break;
	default:
		if (w && w->shared)
			guest_acts(k >> 3, w, peer);
	}
}
