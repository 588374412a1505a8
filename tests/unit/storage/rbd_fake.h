// rbd_fake.h - calls in place of librados and librbd: one image and one object, and connections that can be blocklisted
// see: backend/rbd_library.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_RBD_FAKE_H
#define VB_TEST_STORAGE_RBD_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/gateway.h"
#include "backend/rbd.h"

#define SIZE (8u << 20)
#define OBJECT (1u << 20)

extern char bytes[SIZE];             /* of the image */
extern uint64_t size, size_at_watch; /* 0: it does not change then */
extern uint64_t features;
extern const char *rbd_cache;
extern _Atomic int connect_error, pool_error, open_error, command_error; /* threads that open an image read them */
extern uint32_t connections, images;
extern rbd_update_callback_t watcher;
extern void *watcher_arg;

/* The object with the state of the gateways, whose threads use it meanwhile. */
void fake_put_object(const char *text); /* NULL: there is none */
void fake_object_stops(bool stop);      /* calls for it do not return */
void fake_watch_stops(bool stop);       /* watches begin and end no more: the pool is full */
void fake_watch_breaks(void);
uint32_t fake_watches(void);
void fake_get_object(char text[NG_TEXT]);
uint32_t fake_blocklisted(void); /* connections so far */
void fake_blocklist_fails(bool fail);

void fake_begin(void); /* starts the thread that answers requests */
void fake_end(void);
void set_stopped(bool stop); /* requests wait */
void set_fails(int error);   /* errno of all requests; 0: none */
void set_full(int error);    /* … of those that need space */
uint32_t answered_now(void);

/* An opening of nb_open_later, and what came of it. */
struct opening {
	struct nb_opening o; /* .done: opening_done */
	bool done;
	int error;
	struct nb_backend *b;
};
void opening_done(struct nb_opening *o, int error, struct nb_backend *backend);

#endif
