// rbd_watch.c - the watch of the object that the gateways of an image share, without a wait for the cluster
// follows: the interface of librados in Ceph 16
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/gateway.h"
#include "backend/rbd.h"

#define WATCH_S 10      /* a watcher that is gone counts that long */
#define END_MS 1000     /* limit of the wait for the end of a watch */
#define END_LOOK_MS 10u /* … in which it looks so often */

/* In a pool that is full librados does not send a watch, nor its end, before there is space. */
enum stage { NONE, COMES, THERE, GOES };

/* librados calls back for a watch until it has ended, or the connection. If the connection is what ends first, the
 * watch waits for that in a list. Meanwhile it answers those who notify, so that they do not wait for it. */
struct nb_rbd_watch {
	struct nb_rbd_watch *next;
	const struct nb_rbd_library *lib;
	rados_t rados;
	rados_ioctx_t io;
	char object[160], client[NG_CLIENT];
	/* of the user's thread */
	enum stage stage;
	bool broken;
	bool used; /* librados may have called back, and may do so until a flush */
	uint64_t handle;
	rados_completion_t pending; /* of COMES and GOES */
	/* guards what follows; threads of librados take it for a moment */
	pthread_mutex_t lock;
	void (*woken)(void *owner, bool broken);
	void *owner; /* NULL: the user has ended */
};

static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nb_rbd_watch *left; /* left_lock guards it */

/* ---- called by threads of librados ---- */

static void told(void *arg, uint64_t id, uint64_t handle, uint64_t who, void *data, size_t length)
{
	struct nb_rbd_watch *w = arg;

	(void)who, (void)data, (void)length;
	pthread_mutex_lock(&w->lock);
	w->lib->rados_notify_ack(w->io, w->object, id, handle, w->client, (int)strlen(w->client));
	if (w->owner)
		w->woken(w->owner, false);
	pthread_mutex_unlock(&w->lock);
}

static void watch_broke(void *arg, uint64_t handle, int error)
{
	struct nb_rbd_watch *w = arg;

	(void)handle, (void)error;
	pthread_mutex_lock(&w->lock);
	if (w->owner)
		w->woken(w->owner, true);
	pthread_mutex_unlock(&w->lock);
}

/* ---- the stages ---- */

/* False: it is still on its way. */
static bool settle(struct nb_rbd_watch *w)
{
	if (!w->pending)
		return true;
	if (!w->lib->rados_aio_is_complete(w->pending))
		return false;
	bool done = w->lib->rados_aio_get_return_value(w->pending) >= 0;

	w->lib->rados_aio_release(w->pending);
	w->pending = NULL;
	w->stage = w->stage == COMES && done ? THERE : NONE;
	return true;
}

static bool begin(struct nb_rbd_watch *w, enum stage stage)
{
	if (w->lib->rados_aio_create_completion2(NULL, NULL, &w->pending)) {
		w->pending = NULL;
		return false;
	}
	int error = stage == COMES ? w->lib->rados_aio_watch2(w->io, w->object, w->pending, &w->handle, told,
	                                                      watch_broke, WATCH_S, w)
	                           : w->lib->rados_aio_unwatch(w->io, w->handle, w->pending);

	if (error) {
		w->lib->rados_aio_release(w->pending);
		w->pending = NULL;
		return false;
	}
	w->stage = stage;
	w->used = true;
	return true;
}

void nb_rbd_watch_keep(struct nb_rbd_watch *w, bool broken)
{
	w->broken |= broken;
	if (!settle(w))
		return;
	if (w->stage == THERE && w->broken && begin(w, GOES) && !settle(w))
		return;
	if (w->stage != NONE)
		return;
	w->broken = false;
	if (begin(w, COMES))
		settle(w);
}

/* ---- the beginning and the end ---- */

struct nb_rbd_watch *nb_rbd_watch_new(const struct nb_rbd_watched *of, void (*woken)(void *owner, bool broken),
                                      void *owner)
{
	struct nb_rbd_watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->lib = of->lib;
	w->rados = of->rados;
	w->io = of->io;
	snprintf(w->object, sizeof(w->object), "%s", of->object);
	snprintf(w->client, sizeof(w->client), "%s", of->client);
	w->woken = woken;
	w->owner = owner;
	pthread_mutex_init(&w->lock, NULL);
	return w;
}

static void free_watch(struct nb_rbd_watch *w)
{
	if (w->pending)
		w->lib->rados_aio_release(w->pending);
	w->lib->rados_ioctx_destroy(w->io);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool ends_in_time(struct nb_rbd_watch *w)
{
	const struct timespec pause = {.tv_nsec = END_LOOK_MS * 1000000};
	uint64_t until = now_ms() + END_MS;

	for (;;) {
		bool settled = settle(w);

		if (settled && w->stage == NONE)
			return true;
		if (settled && !begin(w, GOES))
			return false;
		if (now_ms() >= until)
			return false;
		if (!settled)
			nanosleep(&pause, NULL);
	}
}

void nb_rbd_watch_end(struct nb_rbd_watch *w)
{
	bool ended = ends_in_time(w);

	pthread_mutex_lock(&w->lock);
	w->owner = NULL;
	pthread_mutex_unlock(&w->lock);
	if (ended) {
		if (w->used)
			w->lib->rados_watch_flush(w->rados); /* no call of told is in progress any more */
		free_watch(w);
		return;
	}
	pthread_mutex_lock(&left_lock);
	w->next = left;
	left = w;
	pthread_mutex_unlock(&left_lock);
}

void nb_rbd_watch_shut_down(rados_t rados)
{
	struct nb_rbd_watch *mine = NULL;

	pthread_mutex_lock(&left_lock);
	for (struct nb_rbd_watch **at = &left; *at;) {
		struct nb_rbd_watch *w = *at;

		if (w->rados != rados) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = mine;
		mine = w;
	}
	pthread_mutex_unlock(&left_lock);
	while (mine) {
		struct nb_rbd_watch *w = mine;

		mine = w->next;
		free_watch(w);
	}
}
