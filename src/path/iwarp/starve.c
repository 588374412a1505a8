// starve.c - starved streams, which wait for a receive; idle streams, whose memory is freed
// follows: RFC 5041, 7.1 (no receive); madvise(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/rq.h"
#include "path/iwarp/path.h"
#include "util/calls.h"
#include "util/units.h"

#define PATIENCE VB_S(5)     /* ns: how long a message waits for a receive */
#define AFTER_FIN VB_MS(500) /* ns: the same after its sender has closed */
#define EVERY VB_MS(10)      /* ns: interval of checks whether a starved connection still exists */
#define COOLS VB_S(1)        /* ns: a stream unused in two such intervals is idle */
#define HOT 2

/* --- starved --- */

static struct vb_rq *receive_queue(const struct vb_iwarp_path *w)
{
	return w->qp->srq ? &w->qp->srq->rq : &w->qp->rq;
}

/* Asks threads that post a receive to notify this stream. Returns whether there is a receive now. */
static bool want_receive(struct vb_iwarp_path *w)
{
	struct vb_rq *rq = receive_queue(w);
	bool there;

	vb_lock(&rq->lock);
	rq->rnr_waiter = w->qp->node;
	there = vb_rq_count(rq);
	vb_unlock(&rq->lock);
	return there;
}

static void join_starved(struct vb_iwarp_path *w)
{
	struct vb_iwarp_host *h = w->qp->node->io->iwarp;

	w->starving = true;
	w->fin = false;
	w->starved_next = h->starved;
	w->starved_prev = &h->starved;
	if (w->starved_next)
		w->starved_next->starved_prev = &w->starved_next;
	h->starved = w;
}

void vb_iwarp_unstarve(struct vb_iwarp_path *w)
{
	if (!w->starving)
		return;
	w->starving = false;
	*w->starved_prev = w->starved_next;
	if (w->starved_next)
		w->starved_next->starved_prev = w->starved_prev;
}

void vb_iwarp_starve(struct vb_iwarp_path *w)
{
	bool was = w->starving;

	while (vb_iw_starved(&w->q) && want_receive(w))
		vb_iw_retry(&w->q);
	if (vb_iw_starved(&w->q) && !was) {
		join_starved(w);
		w->look_at = vb_now() + EVERY;
		w->patience = w->look_at + PATIENCE;
		vb_timer_at(w->qp->node, w->look_at);
	} else if (!vb_iw_starved(&w->q)) {
		vb_iwarp_unstarve(w);
	}
	if (was != w->starving)
		vb_iwarp_rewatch(w);
}

/* Checks whether the connection has ended, because nothing is read that would show it. */
static void find_end(struct vb_iwarp_path *w, uint64_t now)
{
	struct pollfd p = {.fd = w->fd, .events = w->fin ? 0 : POLLRDHUP};
	socklen_t len = sizeof(int);
	int err = 0, cancel;

	w->look_at = now + EVERY;
	want_receive(w); /* another stream may have taken a receive of a shared queue, and the notification */
	vb_cancel_defer(&cancel);
	int n = poll(&p, 1, 0);
	vb_cancel_restore(cancel);
	if (n <= 0)
		return;
	if (p.revents & (POLLERR | POLLHUP)) {
		getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		w->lost = w->status = err ? err : ECONNRESET;
	} else if (p.revents & POLLRDHUP) {
		w->fin = true;
		if (w->patience > now + AFTER_FIN)
			w->patience = now + AFTER_FIN;
	}
}

unsigned vb_iwarp_feed(struct vb_iwarp_path *w, bool finish)
{
	int saved = errno;

	if (vb_rq_count(receive_queue(w))) {
		vb_iw_retry(&w->q);
		w->patience = vb_now() + PATIENCE;
		vb_iwarp_starve(w);
		return 1;
	}
	uint64_t now = vb_now();

	if (finish || now >= w->look_at)
		find_end(w, now);
	errno = saved;
	if (w->lost || now < w->patience)
		return 0;
	if (w->fin)
		w->lost = ESHUTDOWN;
	else
		vb_iw_give_up(&w->q);
	return 1;
}

uint64_t vb_iwarp_due(struct vb_node *node)
{
	const struct vb_iwarp_host *h = node->io->iwarp;
	uint64_t trim = atomic_load_explicit(&h->trim_at, memory_order_relaxed),
	         look = h->starved ? vb_now() + EVERY : 0;

	return look && (look < trim || !trim) ? look : trim;
}

/* --- idle --- */

void vb_iwarp_heat(struct vb_iwarp_path *w)
{
	struct vb_iwarp_host *h = w->qp->node->io->iwarp;

	if (atomic_load_explicit(&w->heat, memory_order_relaxed) == HOT)
		return;
	atomic_store_explicit(&w->heat, HOT, memory_order_relaxed);
	if (!atomic_load_explicit(&h->trim_at, memory_order_relaxed))
		atomic_store_explicit(&h->trim_at, vb_now() + COOLS, memory_order_relaxed);
}

/* Under progress. */
static void cool_stream(struct vb_iwarp_path *w)
{
	if (!vb_trylock(&w->qp->sq_lock))
		return;
	if (atomic_fetch_sub(&w->heat, 1) == 1 && vb_iw_empty(&w->q))
		madvise(w->memory, VB_IWARP_STAGE + VB_IWARP_OUT, MADV_DONTNEED);
	vb_unlock(&w->qp->sq_lock);
}

void vb_iwarp_trim(struct vb_node *node)
{
	struct vb_iwarp_host *h = node->io->iwarp;
	uint64_t at = atomic_load_explicit(&h->trim_at, memory_order_relaxed);
	bool warm = false;

	if (!at || vb_now() < at || !vb_trylock(&node->progress))
		return;
	/* a stream that is used from now on sets the time again */
	atomic_store(&h->trim_at, 0);
	for (struct vb_iwarp_path *w = h->paths; w; w = w->next) {
		if (atomic_load(&w->heat))
			cool_stream(w);
		warm = warm || atomic_load(&w->heat);
	}
	if (warm)
		atomic_store(&h->trim_at, vb_now() + COOLS);
	vb_unlock(&node->progress);
}
