// rbd_later.c - opens an image in a thread, while the loop serves others
// follows: docs/storage.md
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "backend/rbd.h"

struct later {
	struct nb_post post;
	struct nb_opening *opening;
	struct nb_rbd *fresh;
	struct nb_config config;
	struct nb_ring *ring;
	pthread_t thread;
	bool opened;
	int error;
	char why[NB_WHY];
};

static void *open_in_thread(void *arg)
{
	struct later *l = arg;

	l->error = nb_rbd_set_up(l->fresh, &l->config, l->why, &l->opened);
	nb_ring_post(l->ring, &l->post);
	return NULL;
}

static void later_ended(struct nb_post *p)
{
	struct later *l = (struct later *)(void *)p;
	struct nb_opening *o = l->opening;
	struct nb_rbd *fresh = l->fresh;

	pthread_join(l->thread, NULL);
	int error = l->error ? l->error : nb_rbd_begin(fresh);

	if (error)
		nb_rbd_abandon(fresh, l->opened);
	memcpy(o->why, l->why, NB_WHY);
	nb_rbd_free_config(&l->config);
	free(l);
	o->done(o, error, error ? NULL : &fresh->b);
}

int nb_rbd_open_later(const struct nb_config *config, struct nb_ring *ring, struct nb_opening *o)
{
	struct later *l = calloc(1, sizeof(*l));

	if (!l || !nb_rbd_copy_config(&l->config, config)) {
		free(l);
		return ENOMEM;
	}
	l->post.run = later_ended;
	l->opening = o;
	l->ring = ring;
	l->fresh = nb_rbd_new(&l->config, ring);
	int error = l->fresh ? pthread_create(&l->thread, NULL, open_in_thread, l) : ENOMEM;

	if (!error)
		return 0;
	if (l->fresh)
		nb_rbd_abandon(l->fresh, false);
	nb_rbd_free_config(&l->config);
	free(l);
	return error;
}
