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
	for (struct vb_iwarp_path *path = h->paths; path; path = path->next) {
		path->fd = -1;
		path->in_set = false;
	}
	close(h->epoll_fd);
	h->epoll_fd = -1;
}

static struct epoll_event host_interest(struct vb_iwarp_path *path)
{
	return (struct epoll_event){.events = (path->starving ? 0 : EPOLLIN) |
	                                      (path->blocked && !path->fault_until ? EPOLLOUT : 0),
	                            .data.ptr = path};
}

/* Under progress + sq_lock. */
static void enter_set(struct vb_iwarp_host *h, struct vb_iwarp_path *path, bool in)
{
	struct epoll_event ev = host_interest(path);

	if (path->in_set == in)
		return;
	if (epoll_ctl(h->epoll_fd, in ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, path->fd, &ev) && in)
		vb_log(VB_LOG_ERROR, "queue pair 0x%x: its connection cannot be watched", path->qp->qp.qp_num);
	path->in_set = in;
	path->asked = ev.events;
}

void vb_iwarp_rewatch(struct vb_iwarp_path *path)
{
	struct epoll_event ev = host_interest(path);

	if (!path->in_set || path->asked == ev.events)
		return;
	path->asked = ev.events;
	epoll_ctl(path->qp->node->io->iwarp->epoll_fd, EPOLL_CTL_MOD, path->fd, &ev);
}

static void enter_all(struct vb_iwarp_host *h, bool in)
{
	for (struct vb_iwarp_path *path = h->paths; path; path = path->next) {
		vb_lock(&path->qp->sq_lock);
		enter_set(h, path, in);
		vb_unlock(&path->qp->sq_lock);
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

void vb_iwarp_host_join(struct vb_iwarp_path *path)
{
	struct vb_node *node = path->qp->node;
	struct vb_iwarp_host *h = node->io->iwarp;

	path->next = h->paths;
	path->prev = &h->paths;
	if (path->next)
		path->next->prev = &path->next;
	h->paths = path;
	h->n++;
	atomic_store(&node->io->transport[VB_TRANSPORT_IWARP].users, h->n);
	if (h->n == VB_IWARP_FEW + 1)
		vb_iwarp_release_all(node);
	if (atomic_load(&node->owner) == VB_OWNER_THREAD || h->n > VB_IWARP_FEW)
		enter_all(h, true); /* skips streams that are in the set already */
}

void vb_iwarp_host_leave(struct vb_iwarp_path *path)
{
	struct vb_iwarp_host *h = path->qp->node->io->iwarp;

	enter_set(h, path, false);
	*path->prev = path->next;
	if (path->next)
		path->next->prev = path->prev;
	h->n--;
	atomic_store(&path->qp->node->io->transport[VB_TRANSPORT_IWARP].users, h->n);
}
