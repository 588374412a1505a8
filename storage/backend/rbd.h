// rbd.h - shared by the files of the backend rbd: an image, its cluster, its requests
// follows: the interface of librbd in Ceph 16
// SPDX-License-Identifier: MIT
#ifndef NB_RBD_H
#define NB_RBD_H

#include <pthread.h>

#include "backend/rbd_library.h"
#include "backend/ring.h"

struct nb_rbd_cluster;

struct nb_flights {
	struct nb_flight *first, **end;
};

struct nb_rbd {
	struct nb_backend b;
	struct nb_ring *ring;
	const struct nb_rbd_library *lib;
	struct nb_rbd_cluster *cluster;
	rados_ioctx_t io;
	rbd_image_t image;
	uint64_t watch; /* of the image's header, if watching */
	bool watching;
	uint64_t fixed; /* the configured size, or 0 */
	uint32_t wait_ms;

	/* of the loop */
	bool closing;
	struct nb_clock clock;
	uint32_t outstanding;       /* requests at librbd, with the late ones */
	uint64_t late_bytes;        /* of requests that were answered with NB_LATE */
	struct nb_flights flying;   /* … that were not, in the order of their deadlines */
	struct nb_request *waiting; /* not at librbd yet, in that order, too; moved: the deadline */
	struct nb_flight *spare;

	/* the image's size as the thread of its watch has seen it; atomic */
	uint64_t seen_size;
	bool resized; /* the post is on its way; atomic */
	struct nb_post resize, closed;

	pthread_t closer; /* the thread that closes the image, if has_closer */
	bool has_closer;
};

/* Opens an image: POOL/[NAMESPACE/]IMAGE[@SNAP]. 0 or errno, with a message in why. */
int nb_rbd_open_image(struct nb_rbd *r, const struct nb_config *config, char *why);
/* Closes it in a thread, which posts r->closed at the end. That calls nb_rbd_closed. */
void nb_rbd_close_image(struct nb_rbd *r);
void nb_rbd_closed(struct nb_rbd *r); /* waits for the end of the thread, which uses the ring until then */
/* No other image may use this connection any more. */
void nb_rbd_shut_out(struct nb_rbd *r);

#endif
