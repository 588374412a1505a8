// rbd_return.c - opens an image again by another connection, after the cluster has blocklisted the first
// follows: docs/ceph.md
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/rbd.h"

#define PAUSE_S 1 /* before the next attempt */

struct nb_rbd_return {
	struct nb_post post;
	struct nb_rbd *old; /* NULL: it has ended meanwhile. Of the loop */
	struct nb_rbd *fresh;
	struct nb_config config;
	struct nb_ring *ring;
	pthread_t thread;
	bool opened, pauses;
	int error;
	char why[NB_WHY];
};

bool nb_rbd_copy_config(struct nb_config *to, const struct nb_config *from)
{
	const char *const texts[] = {from->path,    from->ceph_conf, from->ceph_user, from->ceph_keyring,
	                             from->gateway, from->before,    from->serves};
	const char **const copies[] = {&to->path,    &to->ceph_conf, &to->ceph_user, &to->ceph_keyring,
	                               &to->gateway, &to->before,    &to->serves};
	bool whole = true;

	*to = *from;
	to->why = NULL;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		*copies[i] = texts[i] ? strdup(texts[i]) : NULL;
		whole &= !texts[i] || *copies[i];
	}
	for (size_t i = 0; !whole && i < sizeof(texts) / sizeof(*texts); i++)
		free((void *)(uintptr_t)*copies[i]);
	return whole;
}

void nb_rbd_free_config(struct nb_config *c)
{
	free((void *)(uintptr_t)c->path);
	free((void *)(uintptr_t)c->ceph_conf);
	free((void *)(uintptr_t)c->ceph_user);
	free((void *)(uintptr_t)c->ceph_keyring);
	free((void *)(uintptr_t)c->before);
	free((void *)(uintptr_t)c->serves);
	free((void *)(uintptr_t)c->gateway);
	memset(c, 0, sizeof(*c));
}

static void *open_again(void *arg)
{
	struct nb_rbd_return *a = arg;
	const struct timespec pause = {.tv_sec = PAUSE_S};

	if (a->pauses)
		nanosleep(&pause, NULL);
	a->error = nb_rbd_set_up(a->fresh, &a->config, a->why, &a->opened);
	nb_ring_post(a->ring, &a->post);
	return NULL;
}

static bool is_same_image(const struct nb_rbd *a, const struct nb_rbd *b)
{
	return !strcmp(a->b.identity, b->b.identity);
}

/* Each reason is told once. */
static void tell_trouble(struct nb_rbd *old, const struct nb_rbd_return *a)
{
	const char *why = *a->why ? a->why : a->error ? strerror(a->error) : "another image has its name now";

	if (!old->b.changed || !strcmp(old->trouble, why))
		return;
	snprintf(old->trouble, sizeof(old->trouble), "%s", why);
	old->b.trouble = old->trouble;
	old->b.changed(&old->b, NB_NOT_IN);
}

static void start_attempt(struct nb_rbd *old, bool pauses);

static void attempt_ended(struct nb_post *p)
{
	struct nb_rbd_return *a = (struct nb_rbd_return *)(void *)p;
	struct nb_rbd *old = a->old, *fresh = a->fresh;
	struct nb_ring *ring = a->ring;

	pthread_join(a->thread, NULL);
	bool good = !a->error && old && old->b.changed && is_same_image(old, fresh) && !nb_rbd_begin(fresh);

	if (!good)
		nb_rbd_abandon(fresh, a->opened);
	if (!good && old)
		tell_trouble(old, a);
	nb_rbd_free_config(&a->config);
	free(a);
	if (old) {
		old->returning = NULL;
		if (good) {
			old->b.successor = &fresh->b;
			old->b.changed(&old->b, NB_LET_IN);
		} else {
			start_attempt(old, true);
		}
	}
	nb_ring_let_go(ring);
}

/* Without memory or a thread it ends: then a reload opens the image. */
static void start_attempt(struct nb_rbd *old, bool pauses)
{
	struct nb_rbd_return *a = calloc(1, sizeof(*a));
	struct nb_config c = old->config;

	old->b.returns = false;
	c.before = nb_rbd_gateway_client(old->gateway);
	if (!a || !nb_rbd_copy_config(&a->config, &c)) {
		free(a);
		return;
	}
	a->post.run = attempt_ended;
	a->old = old;
	a->ring = old->ring;
	a->pauses = pauses;
	a->fresh = nb_rbd_new(&a->config, a->ring);
	if (!a->fresh || pthread_create(&a->thread, NULL, open_again, a)) {
		if (a->fresh)
			nb_rbd_abandon(a->fresh, false);
		nb_rbd_free_config(&a->config);
		free(a);
		return;
	}
	old->returning = a;
	old->b.returns = true;
	nb_ring_hold(a->ring);
}

void nb_rbd_return(struct nb_rbd *r)
{
	start_attempt(r, false);
}

void nb_rbd_return_forget(struct nb_rbd *r)
{
	if (r->returning)
		r->returning->old = NULL;
	r->returning = NULL;
}
