// fake_gsi.c - a queue pair 1 within one process: sent MADs arrive again, with delay and possible loss
// see: node/gsi.h
// SPDX-License-Identifier: MIT
#include "fake_gsi.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

struct letter {
	struct letter *next;
	uint8_t local[16], remote[16], mad[512];
	size_t len;
};

struct service {
	struct service *next;
	uint16_t ps, port;
	uint8_t local[16];
	bool v4_only, v6_only, listens, reuse;
	uint32_t id;
};

struct vb_gsi_client {
	const struct vb_gsi_client_ops *ops;
	void *own;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct letter *first, **last;
	struct service *services;
	uint64_t timer;
	uint32_t ids;
	bool busy, closing;
};

bool (*_Atomic fake_drop)(const uint8_t mad[VB_MAD_LEN]);
atomic_uint fake_speed = 1;
static struct vb_gsi_client *only;

EXPORT uint64_t vb_gsi_client_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) * fake_speed;
}

static void wait_some(struct vb_gsi_client *q)
{
	uint64_t at = q->timer / fake_speed;
	struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};

	if (q->timer)
		pthread_cond_timedwait(&q->cond, &q->lock, &t);
	else
		pthread_cond_wait(&q->cond, &q->lock);
}

static void deliver(struct vb_gsi_client *q, struct letter *l)
{
	q->ops->mad(q->own, l->local, l->remote, 1, l->mad, l->len);
	free(l);
}

static void *postman(void *arg)
{
	struct vb_gsi_client *q = arg;

	pthread_mutex_lock(&q->lock);
	while (!q->closing) {
		struct letter *l = q->first;
		uint64_t now = vb_gsi_client_now();
		bool due = q->timer && q->timer <= now;

		if (!l && !due) {
			wait_some(q);
			continue;
		}
		if (l)
			q->first = l->next;
		if (l && !q->first)
			q->last = &q->first;
		if (!l)
			q->timer = 0;
		q->busy = true;
		pthread_mutex_unlock(&q->lock);
		if (l)
			deliver(q, l);
		else
			q->ops->timeout(q->own, now);
		pthread_mutex_lock(&q->lock);
		q->busy = false;
		pthread_cond_broadcast(&q->cond);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

EXPORT int vb_gsi_client_open(const struct vb_gsi_client_ops *ops, void *own, struct vb_gsi_client **out)
{
	struct vb_gsi_client *q = calloc(1, sizeof(*q));
	pthread_condattr_t attr;

	q->ops = ops;
	q->own = own;
	q->last = &q->first;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->cond, &attr);
	only = q;
	if (pthread_create(&q->thread, NULL, postman, q))
		return EAGAIN;
	*out = q;
	return 0;
}

/* Only a child of fork() gets here, and it has no delivery thread. */
EXPORT void vb_gsi_client_close(struct vb_gsi_client *q)
{
}

EXPORT uint32_t vb_gsi_client_lane(const struct vb_gsi_client *q)
{
	return 5;
}

static void put(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16], const uint8_t *mad,
                size_t len)
{
	struct letter *l = calloc(1, sizeof(*l));

	memcpy(l->local, local, 16);
	memcpy(l->remote, remote, 16);
	memcpy(l->mad, mad, len);
	l->len = len;
	pthread_mutex_lock(&q->lock);
	*q->last = l;
	q->last = &l->next;
	pthread_cond_broadcast(&q->cond);
	pthread_mutex_unlock(&q->lock);
}

EXPORT void vb_gsi_client_send(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16],
                               uint32_t ifindex, const uint8_t mad[VB_MAD_LEN])
{
	bool (*drop)(const uint8_t mad[VB_MAD_LEN]) = fake_drop;

	if (!drop || !drop(mad))
		put(q, remote, local, mad, VB_MAD_LEN);
}

EXPORT int vb_gsi_client_port(struct vb_gsi_client *q)
{
	return 0;
}

/* There is no broker here that could change. */
EXPORT void vb_gsi_client_at_death(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16],
                                   uint32_t ifindex, uint32_t local_id, uint32_t remote_id, uint32_t remote_qpn)
{
}

void fake_inject(const uint8_t local[16], const uint8_t remote[16], const uint8_t *mad, size_t len)
{
	put(only, local, remote, mad, len);
}

void fake_settle(void)
{
	pthread_mutex_lock(&only->lock);
	while (only->first || only->busy)
		pthread_cond_wait(&only->cond, &only->lock);
	pthread_mutex_unlock(&only->lock);
}

EXPORT void vb_gsi_client_timer(struct vb_gsi_client *q, uint64_t at)
{
	pthread_mutex_lock(&q->lock);
	q->timer = at;
	pthread_cond_broadcast(&q->cond);
	pthread_mutex_unlock(&q->lock);
}

static bool overlap(const struct service *a, const struct service *b)
{
	static const uint8_t any[16];

	return a->ps == b->ps && a->port == b->port && !(a->v4_only && b->v6_only) && !(a->v6_only && b->v4_only) &&
	       (!memcmp(a->local, b->local, 16) || !memcmp(a->local, any, 16) || !memcmp(b->local, any, 16));
}

static bool taken(const struct vb_gsi_client *q, const struct service *want)
{
	for (const struct service *s = q->services; s; s = s->next)
		if (overlap(s, want) && (!want->reuse || !s->reuse || s->listens))
			return true;
	return false;
}

static uint16_t free_port(const struct vb_gsi_client *q, const struct service *want)
{
	struct service alone = *want;

	alone.reuse = false;
	for (alone.port = 40000; alone.port < 60000 && taken(q, &alone);)
		alone.port++;
	return alone.port;
}

EXPORT int vb_gsi_client_bind(struct vb_gsi_client *q, uint16_t ps, const uint8_t local[16], bool v4_only, bool v6_only,
                              uint32_t ifindex, uint16_t *port, bool reuse, uint32_t *binding)
{
	struct service *s = calloc(1, sizeof(*s));
	int err = 0;

	*s = (struct service){.ps = ps, .port = *port, .v4_only = v4_only, .v6_only = v6_only, .reuse = reuse};
	memcpy(s->local, local, 16);
	pthread_mutex_lock(&q->lock);
	if (!*port)
		s->port = free_port(q, s);
	else if (taken(q, s))
		err = EADDRINUSE;
	if (!err) {
		s->next = q->services;
		s->id = ++q->ids;
		q->services = s;
		*port = s->port;
		*binding = s->id;
	}
	pthread_mutex_unlock(&q->lock);
	if (err)
		free(s);
	return err;
}

EXPORT int vb_gsi_client_change(struct vb_gsi_client *q, uint32_t binding, bool v6_only, bool reuse)
{
	pthread_mutex_lock(&q->lock);
	for (struct service *s = q->services; s; s = s->next)
		if (s->id == binding) {
			s->v6_only = v6_only;
			s->reuse = reuse;
		}
	pthread_mutex_unlock(&q->lock);
	return 0;
}

EXPORT int vb_gsi_client_listen(struct vb_gsi_client *q, uint32_t binding)
{
	struct service *own = NULL;
	int err = 0;

	pthread_mutex_lock(&q->lock);
	for (struct service *s = q->services; s; s = s->next)
		if (s->id == binding)
			own = s;
	for (struct service *s = q->services; s; s = s->next)
		if (s != own && s->listens && overlap(s, own))
			err = EADDRINUSE;
	if (!err)
		own->listens = true;
	pthread_mutex_unlock(&q->lock);
	return err;
}

EXPORT void vb_gsi_client_unbind(struct vb_gsi_client *q, uint32_t binding)
{
	pthread_mutex_lock(&q->lock);
	for (struct service **at = &q->services; *at; at = &(*at)->next) {
		struct service *s = *at;

		if (s->id != binding)
			continue;
		*at = s->next;
		free(s);
		break;
	}
	pthread_mutex_unlock(&q->lock);
}
