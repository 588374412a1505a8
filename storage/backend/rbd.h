// rbd.h - shared by the files of the backend rbd: an image, its cluster, its requests
// follows: the interface of librbd in Ceph 16
// SPDX-License-Identifier: MIT
#ifndef NB_RBD_H
#define NB_RBD_H

#include <pthread.h>

#include "backend/rbd_library.h"
#include "backend/ring.h"

struct nb_rbd_cluster;
struct nb_rbd_gateway;
struct nb_rbd_return;

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
	uint64_t fixed;                 /* the configured size, or 0 */
	struct nb_rbd_gateway *gateway; /* NULL: it knows no others */
	struct nb_config config;        /* a copy, if there is a gateway, to open the image again; or empty */

	/* of the loop */
	bool closing, ended;
	bool draining;                   /* the gateway waits until no write is at librbd */
	uint32_t writing;                /* writes there */
	struct nb_rbd_return *returning; /* the image is being opened again */
	char trouble[NB_WHY];            /* why that has failed last */
	struct nb_clock clock;
	enum nb_access role;        /* b.access, apart from silent */
	bool silent;                /* the cluster does not answer this gateway */
	uint64_t heard;             /* when librbd has answered a request, or the first one has gone to it */
	uint32_t outstanding;       /* requests at librbd, with the late ones */
	uint64_t late_bytes;        /* of requests that were answered with NB_LATE */
	struct nb_flights flying;   /* … that were not, in the order of their deadlines */
	struct nb_request *waiting; /* not at librbd yet, in that order, too; moved: the deadline */
	struct nb_request *unfit;   /* the pool has no space for them; the rest as with waiting */
	uint64_t try_at;            /* … when the first of them goes to librbd again */
	uint64_t refused;           /* … and when one was refused last; 0: there is space since then */
	struct nb_flight *spare;
	struct nb_request *changes; /* of the reservation, in order; the first is at the gateway, if change_sent */
	bool change_sent;
	uint64_t enforced, told; /* versions of the reservation: in force, and the one that the gateway knows of */

	/* the image's size as the thread of its watch has seen it; atomic */
	uint64_t seen_size;
	bool resized; /* the post is on its way; atomic */
	struct nb_post resize, closed;

	pthread_t closer; /* the thread that closes the image, if has_closer */
	bool has_closer;
};

/* Opens an image: POOL/[NAMESPACE/]IMAGE[@SNAP]. 0 or errno, with a message in why. */
int nb_rbd_open_image(struct nb_rbd *r, const struct nb_config *config, char *why);
bool nb_rbd_threads_left(void);
/* Closes it in a thread, which posts r->closed at the end. That calls nb_rbd_closed. */
void nb_rbd_close_image(struct nb_rbd *r);
void nb_rbd_closed(struct nb_rbd *r); /* waits for the end of the thread, which uses the ring until then */
/* No other image may use this connection any more. */
void nb_rbd_shut_out(struct nb_rbd *r);

/* rbd.c: opens an image without the loop. On failure *opened says that nb_rbd_close_image is to be called, by the loop
 * that holds the ring meanwhile. NULL: no memory. */
struct nb_rbd *nb_rbd_new(const struct nb_config *config, struct nb_ring *ring);
int nb_rbd_set_up(struct nb_rbd *r, const struct nb_config *config, char *why, bool *opened);
int nb_rbd_begin(struct nb_rbd *r);                 /* the loop serves it from now on */
void nb_rbd_abandon(struct nb_rbd *r, bool opened); /* frees it, perhaps later */
/* rbd_later.c */
int nb_rbd_open_later(const struct nb_config *config, struct nb_ring *ring, struct nb_opening *o);
/* … the gateway's role has changed */
void nb_rbd_access(struct nb_rbd *r, enum nb_access access, bool drain, bool out);

/* A request to librbd. again: the pool had no space for it. */
void nb_rbd_start(struct nb_rbd *r, struct nb_request *request, uint64_t due, bool again);

/* rbd_full.c: writes for which the pool has no space */
bool nb_rbd_is_full(int error);
bool nb_rbd_unfit_before(struct nb_rbd *r, struct nb_request *request, uint64_t due); /* it waits behind one of them */
void nb_rbd_unfit(struct nb_rbd *r, struct nb_request *request, uint64_t due, uint64_t now); /* it waits */
void nb_rbd_unfit_again(struct nb_rbd *r); /* they go to librbd, or learn that they do not belong here */
void nb_rbd_fits(struct nb_rbd *r);        /* … because there is space */
void nb_rbd_unfit_end(struct nb_rbd *r);   /* the image is inaccessible */
uint64_t nb_rbd_unfit_turn(struct nb_rbd *r, uint64_t now); /* returns when to call again */

/* rbd_reserve.c: changes of the reservation */
void nb_rbd_change(struct nb_rbd *r, struct nb_request *change, uint64_t due);
uint64_t nb_rbd_changes_turn(struct nb_rbd *r, uint64_t now); /* returns when to call again */
void nb_rbd_changes_end(struct nb_rbd *r);                    /* none is made any more */
void nb_rbd_change_answered(struct nb_rbd *r, enum nr_result result);
void nb_rbd_reserved(struct nb_backend *b, uint64_t version);
void nb_rbd_late_ended(struct nb_rbd *r);
void nb_rbd_announce(struct nb_backend *b, const struct nb_port *ports, uint32_t count);

/* rbd_return.c: opens an image that has shut this connection out by another one, and again until that succeeds. Then
 * changed is called with NB_LET_IN. */
bool nb_rbd_copy_config(struct nb_config *to, const struct nb_config *from); /* false: no memory, and nothing to free */
void nb_rbd_free_config(struct nb_config *c);
void nb_rbd_return(struct nb_rbd *r);
void nb_rbd_return_forget(struct nb_rbd *r); /* r ends */

/* rbd_gateway.c. Joining blocks, and belongs to opening. */
struct nb_rbd_gateway_place {
	const struct nb_rbd_library *lib;
	rados_t rados;
	const char *pool, *space, *id; /* of the image */
};

/* 0, or a negative errno value with a message in why */
int nb_rbd_gateway_join(const struct nb_rbd_gateway_place *at, const char *name, const char *before, const char *serves,
                        struct nb_rbd_gateway **out, uint32_t *part, char *why);
int nb_rbd_gateway_start(struct nb_rbd_gateway *w, struct nb_rbd *r); /* 0 or errno */
void nb_rbd_gateway_ends(struct nb_rbd_gateway *w);  /* it leaves soon: another of its name may wait for that */
void nb_rbd_gateway_leave(struct nb_rbd_gateway *w); /* blocks; before the image is closed */
void nb_rbd_gateway_free(struct nb_rbd_gateway *w);  /* by the loop */
/* By the loop: no write is at librbd; a host has sent a write. */
void nb_rbd_gateway_drained(struct nb_rbd_gateway *w);
void nb_rbd_gateway_want(struct nb_rbd_gateway *w);
/* Not too long ago it was alive for all others. */
bool nb_rbd_gateway_current(const struct nb_rbd_gateway *w);
/* It is alive for all others: none changes the reservation without it. */
bool nb_rbd_gateway_in_lease(const struct nb_rbd_gateway *w);
/* The backend's fields reservations and others are the gateway's. */
void nb_rbd_gateway_show(struct nb_rbd_gateway *w, struct nb_backend *b);
/* One change of the reservation at a time: nb_rbd_change_answered follows, unless it is forgotten. A forgotten change may
 * still be made. */
void nb_rbd_gateway_change(struct nb_rbd_gateway *w, const struct nr_change *c);
void nb_rbd_gateway_forget(struct nb_rbd_gateway *w);
void nb_rbd_gateway_enforces(struct nb_rbd_gateway *w, uint64_t version);
void nb_rbd_gateway_announce(struct nb_rbd_gateway *w, const struct nb_port *ports, uint32_t count);
const char *nb_rbd_gateway_client(const struct nb_rbd_gateway *w);
void nb_rbd_gateway_serves(struct nb_rbd_gateway *w, const char *serves); /* it has changed */

/* rbd_joined.c: what all gateways of the image must have in common, as one word. */
void nb_rbd_serves(const struct nb_config *config, uint64_t size, char out[NB_SERVES]);
/* The gateways of this program that have joined and not left yet. The texts are the gateway's. */
struct nb_rbd_joined {
	struct nb_rbd_joined *next;
	const char *object, *name, *client;
	bool ends;
};
void nb_rbd_joined_add(struct nb_rbd_joined *j);
void nb_rbd_joined_ends(struct nb_rbd_joined *j); /* its image is being closed */
void nb_rbd_joined_remove(const struct nb_rbd_joined *j);
bool nb_rbd_joined_ending(const char *object, const char *name, const char *client); /* there is such a one that ends */

/* rbd_watch.c: a watch of an object. None of its calls waits for a cluster that does not answer. Threads of librados call
 * woken when somebody has notified, or the watch has broken: the user then tells nb_rbd_watch_keep so. */
struct nb_rbd_watched {
	const struct nb_rbd_library *lib;
	rados_t rados;
	rados_ioctx_t io;            /* nb_rbd_watch_end destroys it */
	const char *object, *client; /* client: the answer to those who notify */
};
struct nb_rbd_watch;
/* NULL: no memory */
struct nb_rbd_watch *nb_rbd_watch_new(const struct nb_rbd_watched *of, void (*woken)(void *owner, bool broken),
                                      void *owner);
void nb_rbd_watch_keep(struct nb_rbd_watch *w, bool broken); /* begins it, or continues to; to be called often */
void nb_rbd_watch_end(struct nb_rbd_watch *w);               /* waits for a second at most. woken is called no more */
void nb_rbd_watch_shut_down(rados_t rados);                  /* the connection has ended */

/* rbd_fence.c: the cluster takes nothing of that connection any more, and the image's lock is not its. 0, or a negative
 * errno value */
int nb_rbd_fence(const struct nb_rbd_gateway_place *at, rados_ioctx_t io, char *victim);

#endif
