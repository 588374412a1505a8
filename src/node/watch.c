// watch.c - descriptors that the progress thread watches
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "node/io.h"

/*
 * The descriptors are in an epoll set of their own, which is in the progress thread's set. An event contains a slot and
 * the slot's generation, so that an event that was read before its watch was removed is ignored.
 */
struct slot {
	struct vb_watch *watch; /* NULL: free */
	uint32_t turn;
};

struct vb_watches {
	int epoll_fd;
	pthread_mutex_t lock; /* guards all members below; no lock is taken inside it */
	pthread_cond_t done;
	struct slot *slots;
	uint32_t n;
	struct vb_watch *running; /* its fn is being called */
};

struct vb_watches *vb_watches_new(struct vb_node *node)
{
	struct vb_watches *s = calloc(1, sizeof(*s));
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &node->io->watches};

	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->done, NULL);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll_fd < 0 || epoll_ctl(node->io->epoll_fd, EPOLL_CTL_ADD, s->epoll_fd, &ev)) {
		vb_watches_free(s);
		return NULL;
	}
	return s;
}

void vb_watches_free(struct vb_watches *s)
{
	if (!s)
		return;
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->done);
	free(s->slots);
	free(s);
}

void vb_watches_in_child(struct vb_node *node)
{
	struct vb_watches *s = node->io->watches;

	if (!s)
		return;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->done, NULL);
	s->running = NULL;
	close(s->epoll_fd); /* the set is shared with the parent, which changes would affect */
	s->epoll_fd = -1;
}

static uint64_t slot_name(const struct vb_watches *s, uint32_t i)
{
	return (uint64_t)s->slots[i].turn << 32 | i;
}

/* The watch's slot, or a free one for NULL. Under lock. */
static bool find_slot(struct vb_watches *s, const struct vb_watch *w, uint32_t *i)
{
	for (*i = 0; *i < s->n; ++*i)
		if (s->slots[*i].watch == w)
			return true;
	return false;
}

static bool watches_grow(struct vb_watches *s)
{
	uint32_t n = s->n ? 2 * s->n : 16;
	struct slot *more = realloc(s->slots, n * sizeof(*more));

	if (!more)
		return false;
	for (uint32_t i = s->n; i < n; i++)
		more[i] = (struct slot){0};
	s->slots = more;
	s->n = n;
	return true;
}

int vb_watch_add(struct vb_node *node, struct vb_watch *w, uint32_t events)
{
	struct vb_watches *s = node->io->watches;
	struct epoll_event ev = {.events = events};
	int err = 0;

	vb_mutex_lock(&s->lock, VB_RANK_WATCHES);
	if (!find_slot(s, NULL, &w->slot) && !watches_grow(s)) {
		err = ENOMEM;
	} else {
		ev.data.u64 = slot_name(s, w->slot);
		if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, w->fd, &ev))
			err = errno;
		else
			s->slots[w->slot].watch = w;
	}
	vb_mutex_unlock(&s->lock);
	return err;
}

int vb_watch_change(struct vb_node *node, struct vb_watch *w, uint32_t events)
{
	struct vb_watches *s = node->io->watches;
	struct epoll_event ev = {.events = events};
	int err = 0;

	vb_mutex_lock(&s->lock, VB_RANK_WATCHES);
	if (w->slot >= s->n || s->slots[w->slot].watch != w) {
		err = ENOENT;
	} else {
		ev.data.u64 = slot_name(s, w->slot);
		if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev))
			err = errno;
	}
	vb_mutex_unlock(&s->lock);
	return err;
}

void vb_watch_remove(struct vb_node *node, struct vb_watch *w)
{
	struct vb_watches *s = node->io->watches;

	vb_mutex_lock(&s->lock, VB_RANK_WATCHES);
	if (w->slot < s->n && s->slots[w->slot].watch == w) {
		epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
		s->slots[w->slot].watch = NULL;
		s->slots[w->slot].turn++;
	}
	VB_MAY_WAIT();
	while (s->running == w && !pthread_equal(pthread_self(), node->io->thread))
		pthread_cond_wait(&s->done, &s->lock);
	vb_mutex_unlock(&s->lock);
}

static struct vb_watch *begin_watch(struct vb_watches *s, uint64_t name)
{
	uint32_t i = (uint32_t)name;
	struct vb_watch *w = NULL;

	vb_mutex_lock(&s->lock, VB_RANK_WATCHES);
	if (i < s->n && s->slots[i].turn == name >> 32)
		w = s->slots[i].watch;
	s->running = w;
	vb_mutex_unlock(&s->lock);
	return w;
}

static void end_watch(struct vb_watches *s)
{
	vb_mutex_lock(&s->lock, VB_RANK_WATCHES);
	s->running = NULL;
	pthread_cond_broadcast(&s->done);
	vb_mutex_unlock(&s->lock);
}

void vb_watches_dispatch(struct vb_node *node)
{
	struct vb_watches *s = node->io->watches;
	struct epoll_event ev[16];
	int n = epoll_wait(s->epoll_fd, ev, 16, 0);

	for (int i = 0; i < n; i++) {
		struct vb_watch *w = begin_watch(s, ev[i].data.u64);

		if (!w)
			continue;
		VB_HOLDS_NO_LOCK();
		w->fn(w, ev[i].events);
		end_watch(s);
	}
}
