// host.c - all streams of a process, and the epoll set of sockets that wake the progress thread
// follows: epoll(7); docs/iwarp.md
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "path/iwarp/path.h"
#include "util/env.h"
#include "util/log.h"

struct vb_iwarp_host *vb_iwarp_host_new(struct vb_node *node)
{
	struct vb_iwarp_host *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (h->epoll_fd < 0) {
		free(h);
		return NULL;
	}
	const char *congestion = vb_env("VERBENA_CONGESTION");

	snprintf(h->congestion, sizeof(h->congestion), "%s", congestion ? congestion : "");
	node->io->iwarp = h;
	vb_iwarp_watch(node, true); /* at first the progress thread owns progress */
	return h;
}

void vb_iwarp_host_free(struct vb_node *node)
{
	struct vb_iwarp_host *h = node->io->iwarp;

	if (!h)
		return;
	vb_iwarp_tails_free(node);
	close(h->epoll_fd);
	free(h);
	node->io->iwarp = NULL;
}

void vb_iwarp_in_child(struct vb_node *node)
{
	struct vb_iwarp_host *h = node->io->iwarp;

	vb_iwarp_tails_in_child(); /* closes the sockets of all streams */
	if (!h)
		return;
	for (struct vb_iwarp_path *w = h->paths; w; w = w->next) {
		w->fd = -1;
		w->in_set = false;
	}
	close(h->epoll_fd);
	h->epoll_fd = -1;
}

static struct epoll_event host_interest(struct vb_iwarp_path *w)
{
	return (struct epoll_event){
	        .events = (w->starving ? 0 : EPOLLIN) | (w->blocked && !w->fault_until ? EPOLLOUT : 0), .data.ptr = w};
}

/* Under progress + sq_lock. */
static void enter_set(struct vb_iwarp_host *h, struct vb_iwarp_path *w, bool in)
{
	struct epoll_event ev = host_interest(w);

	if (w->in_set == in)
		return;
	if (epoll_ctl(h->epoll_fd, in ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, w->fd, &ev) && in)
		vb_log(VB_LOG_ERROR, "queue pair 0x%x: its connection cannot be watched", w->qp->qp.qp_num);
	w->in_set = in;
	w->asked = ev.events;
}

void vb_iwarp_rewatch(struct vb_iwarp_path *w)
{
	struct epoll_event ev = host_interest(w);

	if (!w->in_set || w->asked == ev.events)
		return;
	w->asked = ev.events;
	epoll_ctl(w->qp->node->io->iwarp->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev);
}

static void enter_all(struct vb_iwarp_host *h, bool in)
{
	for (struct vb_iwarp_path *w = h->paths; w; w = w->next) {
		vb_lock(&w->qp->sq_lock);
		enter_set(h, w, in);
		vb_unlock(&w->qp->sq_lock);
	}
}

void vb_iwarp_watch(struct vb_node *node, bool watch)
{
	struct vb_iwarp_host *h = node->io->iwarp;
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &node->io->transport[VB_TRANSPORT_IWARP]};

	epoll_ctl(node->io->epoll_fd, watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, h->epoll_fd, &ev);
	/* sockets that are polled one by one are removed from the set, so that the kernel does no wake-up work for each
	 * packet */
	if (watch || h->n <= VB_IWARP_FEW)
		enter_all(h, watch);
}

void vb_iwarp_host_join(struct vb_iwarp_path *w)
{
	struct vb_node *node = w->qp->node;
	struct vb_iwarp_host *h = node->io->iwarp;

	w->next = h->paths;
	w->prev = &h->paths;
	if (w->next)
		w->next->prev = &w->next;
	h->paths = w;
	h->n++;
	atomic_store(&node->io->transport[VB_TRANSPORT_IWARP].users, h->n);
	if (h->n == VB_IWARP_FEW + 1)
		vb_iwarp_release_all(node);
	if (atomic_load(&node->owner) == VB_OWNER_THREAD || h->n > VB_IWARP_FEW)
		enter_all(h, true); /* skips streams that are in the set already */
}

void vb_iwarp_host_leave(struct vb_iwarp_path *w)
{
	struct vb_iwarp_host *h = w->qp->node->io->iwarp;

	enter_set(h, w, false);
	*w->prev = w->next;
	if (w->next)
		w->next->prev = w->prev;
	h->n--;
	atomic_store(&w->qp->node->io->transport[VB_TRANSPORT_IWARP].users, h->n);
}
