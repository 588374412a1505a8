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

static struct vb_rq *receive_queue(const struct vb_iwarp_path *path)
{
	return path->qp->srq ? &path->qp->srq->rq : &path->qp->rq;
}

/* Asks threads that post a receive to notify this stream. Returns whether there is a receive now. */
static bool want_receive(struct vb_iwarp_path *path)
{
	struct vb_rq *rq = receive_queue(path);
	bool there;

	vb_lock(&rq->lock);
	rq->rnr_waiter = path->qp->node;
	there = vb_rq_count(rq);
	vb_unlock(&rq->lock);
	return there;
}

static void join_starved(struct vb_iwarp_path *path)
{
	struct vb_iwarp_host *h = path->qp->node->io->iwarp;

	path->starving = true;
	path->fin = false;
	path->starved_next = h->starved;
	path->starved_prev = &h->starved;
	if (path->starved_next)
		path->starved_next->starved_prev = &path->starved_next;
	h->starved = path;
}

void vb_iwarp_unstarve(struct vb_iwarp_path *path)
{
	if (!path->starving)
		return;
	path->starving = false;
	*path->starved_prev = path->starved_next;
	if (path->starved_next)
		path->starved_next->starved_prev = path->starved_prev;
}

void vb_iwarp_starve(struct vb_iwarp_path *path)
{
	bool was = path->starving;

	while (vb_iw_starved(&path->q) && want_receive(path))
		vb_iw_retry(&path->q);
	if (vb_iw_starved(&path->q) && !was) {
		join_starved(path);
		path->look_at = vb_now() + EVERY;
		path->patience = path->look_at + PATIENCE;
		vb_timer_at(path->qp->node, path->look_at);
	} else if (!vb_iw_starved(&path->q)) {
		vb_iwarp_unstarve(path);
	}
	if (was != path->starving)
		vb_iwarp_rewatch(path);
}

/* Checks whether the connection has ended, because nothing is read that would show it. */
static void find_end(struct vb_iwarp_path *path, uint64_t now)
{
	struct pollfd p = {.fd = path->fd, .events = path->fin ? 0 : POLLRDHUP};
	socklen_t len = sizeof(int);
	int err = 0, cancel;

	path->look_at = now + EVERY;
	want_receive(path); /* another stream may have taken a receive of a shared queue, and the notification */
	vb_cancel_defer(&cancel);
	int n = poll(&p, 1, 0);
	vb_cancel_restore(cancel);
	if (n <= 0)
		return;
	if (p.revents & (POLLERR | POLLHUP)) {
		getsockopt(path->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		path->lost = path->status = err ? err : ECONNRESET;
	} else if (p.revents & POLLRDHUP) {
		path->fin = true;
		if (path->patience > now + AFTER_FIN)
			path->patience = now + AFTER_FIN;
	}
}

unsigned vb_iwarp_feed(struct vb_iwarp_path *path, bool finish)
{
	int saved = errno;

	if (vb_rq_count(receive_queue(path))) {
		vb_iw_retry(&path->q);
		path->patience = vb_now() + PATIENCE;
		vb_iwarp_starve(path);
		return 1;
	}
	uint64_t now = vb_now();

	if (finish || now >= path->look_at)
		find_end(path, now);
	errno = saved;
	if (path->lost || now < path->patience)
		return 0;
	if (path->fin)
		path->lost = ESHUTDOWN;
	else
		vb_iw_give_up(&path->q);
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

void vb_iwarp_heat(struct vb_iwarp_path *path)
{
	struct vb_iwarp_host *h = path->qp->node->io->iwarp;

	if (atomic_load_explicit(&path->heat, memory_order_relaxed) == HOT)
		return;
	atomic_store_explicit(&path->heat, HOT, memory_order_relaxed);
	if (!atomic_load_explicit(&h->trim_at, memory_order_relaxed))
		atomic_store_explicit(&h->trim_at, vb_now() + COOLS, memory_order_relaxed);
}

/* Under progress. */
static void cool_stream(struct vb_iwarp_path *path)
{
	if (!vb_trylock(&path->qp->sq_lock))
		return;
	if (atomic_fetch_sub(&path->heat, 1) == 1 && vb_iw_empty(&path->q))
		madvise(path->memory, VB_IWARP_STAGE + VB_IWARP_OUT, MADV_DONTNEED);
	vb_unlock(&path->qp->sq_lock);
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
	for (struct vb_iwarp_path *path = h->paths; path; path = path->next) {
		if (atomic_load(&path->heat))
			cool_stream(path);
		warm = warm || atomic_load(&path->heat);
	}
	if (warm)
		atomic_store(&h->trim_at, vb_now() + COOLS);
	vb_unlock(&node->progress);
}
