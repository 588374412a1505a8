// progress.c - progress, by a polling program or the progress thread: polled rings, doorbells, visits of queue pairs
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/mw.h"
#include "core/tm.h"
#include "engine/local/relay.h"
#include "engine/local/ring.h"
#include "node/io.h"
#include "node/wake.h"
#include "node/walk.h"
#include "node/yield.h"

/* The most records taken from a ring per poll, and QPs visited by a poller. */
#define BATCH 64u
#define VISITS 8u
/* After this many records in one poll, their acknowledgements do not wait for the next poll, before which an answer of the
 * program may carry them: the peer may wait for room in its send queue. */
#define PUBLISH_AT_ONCE 4u
/* A poller visits QPs that have only timers to serve, which reads the clock, once in this many polls. */
#define TIMERS_EVERY 8u
/* A poller with hot rings looks only at them and its doorbell, and does all the rest once in this many polls: sockets,
 * acknowledgements, timers. So it finds a record sooner, and returns it sooner. */
#define WHOLE_EVERY 4u
/* After this many whole polls without a record in any hot ring, sockets are polled each time. */
#define LIVELY 64u
/* A poller becomes the owner of progress after this many polls without ibv_req_notify_cq. */
#define TAKE_OVER 64u
/* A QP leaves the active list after this many visits without outstanding work. */
#define ACTIVE_IDLE 1000u
/* After this many whole polls without a record a hot ring may be replaced by one whose doorbell rings. */
#define QUIET 5000u

void vb_fence_all(struct vb_node *node)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (node->membarrier)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

/* The progress thread may have said that it sleeps before it could see has_peers. The fence makes that visible. */
void vb_expect_records(struct vb_node *node)
{
	atomic_store(&node->has_peers, true);
	vb_fence_all(node);
}

void vb_fence_for_records(struct vb_node *node)
{
	if (atomic_load(&node->has_peers))
		vb_fence_all(node);
	else
		atomic_thread_fence(memory_order_seq_cst);
}

/* --- doorbells --- */

void vb_peer_doorbell(struct vb_peer *p)
{
	uint32_t lane = p->node->lane;
	uint64_t bit = 1ull << (lane % 64);
	uint64_t was = atomic_fetch_or(&p->doorbell->word[lane / 64], bit);

	atomic_fetch_or(&p->doorbell->summary, 1ull << (lane / 64));
	/* if the bit was already set, the peer was woken for it, or reads it before it sleeps */
	if (!(was & bit) && atomic_load(&p->seg->sleeping))
		vb_wake_ring(p->wake_fd);
}

void vb_node_publish(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_local_publish_acks(node);
	for (unsigned i = 0; i < io->ndirty; i++) {
		struct vb_peer *p = io->dirty[i];

		atomic_store_explicit(&p->ours->rx_head, p->rx_head, memory_order_release);
		if (p->dropped || atomic_load_explicit(&p->theirs->want_space, memory_order_relaxed))
			vb_peer_notify(p);
		p->dropped = false;
	}
	io->ndirty = 0;
	atomic_store_explicit(&io->owing, node->acks != NULL, memory_order_relaxed);
}

static void note_dirty(struct vb_node *node, struct vb_peer *p)
{
	struct vb_io *io = node->io;

	for (unsigned i = 0; i < io->ndirty; i++)
		if (io->dirty[i] == p)
			return;
	if (io->ndirty == sizeof(io->dirty) / sizeof(io->dirty[0]))
		vb_node_publish(node);
	io->dirty[io->ndirty++] = p;
}

/* --- hot rings --- */

static bool hot_add(struct vb_node *node, struct vb_peer *p)
{
	struct vb_io *io = node->io;

	if (p->hot_index >= 0)
		return true;
	if (io->nhot == VB_HOT_MAX) {
		for (unsigned i = 0; i < io->nhot; i++) {
			if (io->hot[i]->quiet > QUIET) {
				vb_hot_drop(node, io->hot[i]);
				break;
			}
		}
		if (io->nhot == VB_HOT_MAX)
			return false;
	}
	p->hot_index = (int)io->nhot;
	p->quiet = 0;
	io->hot[io->nhot++] = p;
	atomic_store(&p->ours->hot, 1);
	return true;
}

static void hot_forget(struct vb_io *io, struct vb_peer *p)
{
	struct vb_peer *last = io->hot[--io->nhot];

	io->hot[p->hot_index] = last;
	last->hot_index = p->hot_index;
	p->hot_index = -1;
	atomic_store(&p->ours->hot, 0);
}

void vb_peer_look_again(struct vb_node *node, struct vb_peer *p)
{
	atomic_fetch_or(&node->doorbell->word[p->lane / 64], 1ull << (p->lane % 64));
	atomic_fetch_or(&node->doorbell->summary, 1ull << (p->lane / 64));
}

void vb_hot_drop(struct vb_node *node, struct vb_peer *p)
{
	if (p->hot_index < 0)
		return;
	hot_forget(node->io, p);
	vb_fence_all(node);
	vb_peer_look_again(node, p); /* for records that it published while the ring looked hot to it */
}

/* --- progress --- */

/* Takes one record, or a run of plain ones, of which the program wants so many. From time to time publishes the consumed
 * position, so that the sender can write while this process reads. Acknowledgements are published before that, so that
 * consumed records do not look dropped. */
static unsigned take_some(struct vb_node *node, struct vb_peer *p, struct vb_cq *cq, unsigned want)
{
	uint64_t before = p->rx_head;
	unsigned n = vb_local_take_plain(p, cq, want);

	if (!n)
		n = vb_local_drain(p, 1);
	if (__builtin_expect((before ^ p->rx_head) / (VB_RING_BYTES / 8) != 0, 0)) {
		vb_local_publish_acks(node);
		atomic_store_explicit(&p->ours->rx_head, p->rx_head, memory_order_release);
		if (atomic_load_explicit(&p->theirs->want_space, memory_order_relaxed))
			vb_peer_notify(p);
	}
	return n;
}

static unsigned ring_drain(struct vb_node *node, struct vb_peer *p, struct vb_cq *cq, unsigned want)
{
	unsigned n = 0, left = want;

	if (!vb_ring_ready(p))
		return 0;
	while (n < BATCH && vb_ring_ready(p)) {
		unsigned taken = take_some(node, p, cq, left);

		n += taken;
		if (!taken)
			break; /* the peer is dead, or the record is held */
		/* takes no more than the program wants now, because a record in the ring does not need a receive yet */
		if (cq) {
			uint32_t there = atomic_load_explicit(&cq->tail, memory_order_relaxed) -
			                 atomic_load_explicit(&cq->head, memory_order_relaxed);

			if (there >= want)
				break;
			left = want - there;
		}
		if (atomic_load_explicit(&p->state, memory_order_relaxed) == VB_PEER_DEAD)
			break;
	}
	if (n)
		note_dirty(node, p);
	return n;
}

static unsigned answer_doorbells(struct vb_node *node, struct vb_cq *cq, unsigned want, bool finish)
{
	uint64_t summary = atomic_load_explicit(&node->doorbell->summary, memory_order_relaxed);
	unsigned done = 0;

	if (!summary)
		return 0;
	summary = atomic_exchange(&node->doorbell->summary, 0);
	for (unsigned w = 0; w < VB_LANE_COUNT / 64; w++) {
		if (!(summary >> w & 1))
			continue;
		uint64_t bits = atomic_exchange(&node->doorbell->word[w], 0);

		for (; bits; bits &= bits - 1) {
			struct vb_peer *p = atomic_load_explicit(&node->peers[w * 64 + (unsigned)__builtin_ctzll(bits)],
			                                         memory_order_acquire);

			if (!p)
				continue;
			atomic_store_explicit(&p->ours->want_space, 0, memory_order_relaxed);
			unsigned n = ring_drain(node, p, cq, want);

			done += n + 1;
			if (!finish && atomic_load_explicit(&node->owner, memory_order_relaxed) == VB_OWNER_POLLER)
				hot_add(node, p);
			if (vb_ring_ready(p) && !p->held &&
			    atomic_load_explicit(&p->state, memory_order_relaxed) != VB_PEER_DEAD)
				vb_peer_look_again(node, p);
		}
	}
	return done;
}

static __attribute__((hot)) unsigned look_after(struct vb_qp *qp, bool finish)
{
	unsigned relayed = 0;

	if (__builtin_expect(atomic_load_explicit(&qp->xrc.relay_due, memory_order_relaxed) != 0, 0)) {
		qp->active_idle = 0;
		relayed = vb_relay_visit(qp);
	}
	if (atomic_load_explicit(&qp->sq_pending, memory_order_relaxed) ||
	    atomic_load_explicit(&qp->due, memory_order_relaxed)) {
		qp->active_idle = 0;
		return relayed + qp->path->visit(qp, finish);
	}
	if (++qp->active_idle > ACTIVE_IDLE && vb_trylock(&qp->sq_lock)) {
		if (!atomic_load_explicit(&qp->sq_pending, memory_order_relaxed) && !atomic_load(&qp->due) &&
		    !atomic_load(&qp->xrc.relay_due))
			vb_active_remove(qp);
		vb_unlock(&qp->sq_lock);
	}
	return relayed;
}

static __attribute__((hot)) unsigned visit_active(struct vb_node *node, bool finish)
{
	bool timers = finish || ++node->io->timer_turn % TIMERS_EVERY == 0;
	unsigned done = 0;

	vb_active_collect(node);
	for (unsigned i = 0; (finish || i < VISITS) && node->active; i++) {
		struct vb_qp *qp = node->active_cursor ? node->active_cursor : node->active;

		node->active_cursor = qp->active_next;
		if (timers || !qp->path->only_timers || atomic_load_explicit(&qp->xrc.relay_due, memory_order_relaxed))
			done += look_after(qp, finish);
		if (!node->active_cursor)
			break; /* all were visited */
	}
	return done;
}

/* Polls the sockets of transports, which costs system calls. */
static __attribute__((hot)) unsigned poll_transports(struct vb_node *node, bool finish)
{
	struct vb_io *io = node->io;
	unsigned n = 0;

	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (atomic_load_explicit(&io->transport[i].users, memory_order_relaxed))
			n += vb_transports[i]->poll(node, finish);
	return n;
}

static __attribute__((noinline, cold)) void attend(struct vb_node *node)
{
	unsigned what = atomic_load(&node->attention);

	if (what & VB_ATTEND_OVERRUN)
		vb_qp_end_overrun(node);
	if (what & VB_ATTEND_WINDOWS)
		vb_mw_settle(node);
	if (what & VB_ATTEND_TAGS)
		vb_tm_serve(node);
	if (what & VB_ATTEND_WALK)
		vb_walk_now(node);
}

__attribute__((hot)) unsigned vb_progress_locked(struct vb_node *node, struct vb_cq *cq, unsigned want, bool finish)
{
	struct vb_io *io = node->io;
	unsigned done = 0;

	/* If the progress thread owns progress, the calling program may sleep after this poll. Then no work may be
	 * left, because a doorbell is not rung twice. */
	if (atomic_load_explicit(&node->owner, memory_order_relaxed) == VB_OWNER_THREAD) {
		finish = true;
		cq = NULL;
	}
	if (__builtin_expect(atomic_load_explicit(&node->attention, memory_order_relaxed), 0))
		attend(node);
	if (atomic_load_explicit(&io->owing, memory_order_relaxed))
		vb_node_publish(node);
	for (unsigned i = 0; i < io->nhot; i++) {
		struct vb_peer *p = io->hot[i];

		if (cq && vb_lull_now(&p->lull)) /* without a CQ all that has arrived is wanted now */
			continue;
		unsigned n = ring_drain(node, p, cq, want);

		if (n && cq)
			vb_lull_look(&p->lull, n, want);
		p->quiet = n ? 0 : p->quiet + 1;
		done += n;
	}
	/* The program waits for what these records brought: the rest waits for the next whole poll. */
	if (!done || finish || ++io->records % WHOLE_EVERY == 0) {
		done += answer_doorbells(node, cq, want, finish);
		done += poll_transports(node, finish);
		done += visit_active(node, finish);
	}
	if (io->ndirty || node->acks) {
		atomic_store_explicit(&io->owing, 1, memory_order_relaxed);
		if (finish || done >= PUBLISH_AT_ONCE)
			vb_node_publish(node);
	}
	return done;
}

bool vb_work_waiting(struct vb_node *node)
{
	struct vb_io *io = node->io;

	for (unsigned i = 0; i < io->nhot; i++)
		if (vb_ring_ready(io->hot[i]))
			return true;
	return atomic_load_explicit(&node->doorbell->summary, memory_order_relaxed) ||
	       atomic_load_explicit(&io->owing, memory_order_relaxed);
}

bool vb_awaits_network(struct vb_io *io)
{
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (atomic_load_explicit(&io->transport[i].users, memory_order_relaxed))
			return true;
	return false;
}

static void watch_transports(struct vb_node *node, bool watch)
{
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		vb_transports[i]->watch(node, watch);
}

static void release_all(struct vb_node *node)
{
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		if (vb_transports[i]->release)
			vb_transports[i]->release(node);
}

/* The polling program becomes the owner of progress, and needs no doorbells. Under progress. */
static void poller_takes_over(struct vb_node *node)
{
	unsigned n = 0;

	atomic_store(&node->owner, VB_OWNER_POLLER);
	watch_transports(node, false);
	atomic_store(&node->hdr->sleeping, 0);
	for (unsigned lane = 0; lane < VB_LANE_COUNT && n < VB_HOT_MAX; lane++) {
		struct vb_peer *p = atomic_load_explicit(&node->peers[lane], memory_order_acquire);

		if (p && atomic_load_explicit(&p->state, memory_order_relaxed) != VB_PEER_DEAD && p->theirs)
			n += hot_add(node, p);
	}
	vb_progress_wake(node); /* from now on the progress thread checks whether the program still polls */
}

/* Counts a poll in vain. Returns whether other threads may have run meanwhile. */
static bool yield_sometimes(struct vb_node *node, struct vb_cq *cq)
{
	uint32_t n = atomic_load_explicit(&node->empty_polls, memory_order_relaxed) + 1;

	if (n >= atomic_load_explicit(&node->yield_every, memory_order_relaxed))
		return vb_yield(node, cq, n);
	atomic_store_explicit(&node->empty_polls, n, memory_order_relaxed);
	return false;
}

/* Is there nothing in the hot rings and the doorbell, and no need for a whole poll yet? Under progress. */
static inline bool is_quiet(struct vb_node *node)
{
	struct vb_io *io = node->io;
	bool lively = false;

	if (atomic_load_explicit(&node->owner, memory_order_relaxed) != VB_OWNER_POLLER || !io->nhot ||
	    atomic_load_explicit(&io->owing, memory_order_relaxed) ||
	    atomic_load_explicit(&node->attention, memory_order_relaxed))
		return false;
	for (unsigned i = 0; i < io->nhot; i++) {
		if (!vb_lull_now(&io->hot[i]->lull) && vb_ring_ready(io->hot[i]))
			return false;
		lively |= io->hot[i]->quiet < LIVELY;
	}
	if (!lively && vb_awaits_network(io))
		return false;
	return !atomic_load_explicit(&node->doorbell->summary, memory_order_relaxed) && ++io->looks % WHOLE_EVERY;
}

static inline uint32_t count_idle(struct vb_node *node)
{
	uint32_t idle = atomic_load_explicit(&node->idle_polls, memory_order_relaxed) + 1;

	atomic_store_explicit(&node->idle_polls, idle, memory_order_relaxed);
	return idle;
}

/* Polls once, unless another thread makes progress now. */
static __attribute__((hot)) unsigned poll_once(struct vb_node *node, struct vb_cq *cq, unsigned want)
{
	if (!vb_trylock(&node->progress))
		return 0;
	unsigned done = vb_progress_locked(node, cq, want, false);
	uint32_t idle = count_idle(node);

	if (idle > TAKE_OVER && atomic_load_explicit(&node->owner, memory_order_relaxed) == VB_OWNER_THREAD)
		poller_takes_over(node);
	vb_unlock(&node->progress);
	return done;
}

/* A poll that has let others run polls again. Otherwise it would return what was true before: the program would find
 * no completion, then an event of rdma_cm that came later than the completion, and would destroy the queue pair. */
static __attribute__((hot)) __attribute__((noinline)) unsigned poll_whole(struct vb_node *node, struct vb_cq *cq,
                                                                          unsigned want)
{
	unsigned done = 0;

	for (int polls = 0; polls < 2; polls++) { /* one call of poll_once, so that it is inlined */
		done = poll_once(node, cq, want);
		if (done || polls || !yield_sometimes(node, cq))
			break;
	}
	if (done)
		vb_yield_not(node, cq);
	return done;
}

/* Polls if there is nothing to do but count the poll, which is the shortest way. */
static inline bool poll_quiet(struct vb_node *node)
{
	uint32_t n = atomic_load_explicit(&node->empty_polls, memory_order_relaxed) + 1;

	if (n >= atomic_load_explicit(&node->yield_every, memory_order_relaxed) || !vb_trylock(&node->progress))
		return false;
	bool quiet = is_quiet(node);

	if (quiet) {
		count_idle(node);
		atomic_store_explicit(&node->empty_polls, n, memory_order_relaxed);
	}
	vb_unlock(&node->progress);
	return quiet;
}

__attribute__((hot)) unsigned vb_progress(struct vb_node *node, struct vb_cq *cq, unsigned want)
{
	atomic_store_explicit(&node->polls, atomic_load_explicit(&node->polls, memory_order_relaxed) + 1,
	                      memory_order_relaxed);
	return poll_quiet(node) ? 0 : poll_whole(node, cq, want);
}

unsigned vb_progress_surely(struct vb_node *node)
{
	vb_lock(&node->progress);
	unsigned done = vb_progress_locked(node, NULL, 0, false);

	vb_unlock(&node->progress);
	return done;
}

/* From now on peers ring the doorbell and wake the progress thread. Under progress. */
void vb_thread_takes_over(struct vb_node *node)
{
	struct vb_io *io = node->io;

	while (io->nhot)
		hot_forget(io, io->hot[0]);
	atomic_store(&node->owner, VB_OWNER_THREAD);
	watch_transports(node, true);
	release_all(node);
	atomic_store(&node->idle_polls, 0);
	atomic_store(&node->hdr->sleeping, 1);
	vb_fence_for_records(node);
	/* for records that peers published before they could see that */
	for (unsigned lane = 0; lane < VB_LANE_COUNT; lane++) {
		struct vb_peer *p = atomic_load_explicit(&node->peers[lane], memory_order_acquire);

		if (p && vb_ring_ready(p))
			vb_peer_look_again(node, p);
	}
}

void vb_progress_handover(struct vb_node *node)
{
	bool more;

	if (atomic_load_explicit(&node->owner, memory_order_relaxed) != VB_OWNER_POLLER) {
		atomic_store_explicit(&node->idle_polls, 0, memory_order_relaxed);
		if (!atomic_load(&node->held_completions))
			return;
	}
	vb_lock(&node->progress);
	if (atomic_load(&node->owner) == VB_OWNER_POLLER)
		vb_thread_takes_over(node);
	else
		release_all(node);
	vb_progress_locked(node, NULL, 0, true);
	/* the progress thread handles outstanding acknowledgements, timers, and rings that fill again */
	more = node->active || atomic_load(&node->active_new) || atomic_load(&node->doorbell->summary);
	vb_unlock(&node->progress);
	if (more)
		vb_progress_wake(node);
}
