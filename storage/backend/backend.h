// backend.h - what a namespace's bytes lie in: requests are submitted, and done() is called when they are through
// SPDX-License-Identifier: MIT
#ifndef NB_BACKEND_H
#define NB_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nb_backend;
struct nb_ring;

enum nb_op {
	NB_READ,
	NB_WRITE,
	NB_FLUSH,   /* everything that was done before this was submitted is durable */
	NB_DISCARD, /* the contents are not needed any more; later reads return zeros if zeros_after_discard */
	NB_ZERO,    /* reads as zeros; may_punch: the space may be given back */
};

/*
 * One request. The caller owns it and its memory until done, which may come from within nb_submit, and is called by the
 * thread of the loop. error: 0 or an errno value. offset and length are multiples of the backend's block, within its
 * size.
 */
struct nb_request {
	enum nb_op op;
	bool fua;       /* NB_WRITE, NB_ZERO, NB_DISCARD: durable when done */
	bool may_punch; /* NB_ZERO */
	uint64_t offset, length;
	void *data; /* NB_READ, NB_WRITE: aligned to NB_ALIGN for the shortest way */
	void (*done)(struct nb_request *r, int error);
	/* the backend's and the ring's own */
	struct nb_backend *backend;
	struct nb_request *next;
	int fd;
	uint64_t moved;
	int step;
};

#define NB_ALIGN 4096u

/* A backend's configuration: a path or a size, as the kind needs. */
struct nb_config {
	const char *kind, *path; /* memory, null, file, block, mapped */
	uint64_t size;           /* 0: that of the file */
	uint32_t block;          /* 512 to 4096, a power of two; 0: the smallest the medium has */
	bool readonly, buffered; /* buffered: never O_DIRECT */
};

struct nb_kind {
	const char *name;
	/* 0 or errno; *out is filled but for its kind */
	int (*open)(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out);
	void (*submit)(struct nb_backend *b, struct nb_request *r);
	int (*resize)(struct nb_backend *b, uint64_t size); /* NULL: it has the size it has */
	void (*close)(struct nb_backend *b);                /* no request is in progress */
};

struct nb_backend {
	const struct nb_kind *kind;
	uint64_t size;
	uint32_t block;
	bool readonly;
	bool volatile_cache; /* a flush does something */
	bool cached; /* what is written waits in the page cache: that it got lost is told by whatever is durable next */
	bool zeros_after_discard;
	char *identity;         /* by which the medium is known again, NULL: it has none; the backend's */
	bool identity_anywhere; /* … and told from all others; else, from others at this place */
	/*
	 * Memory in which the bytes stand from offset 0 on, that a transport may read from directly, and register: or
	 * NULL. It may change while it is sent, and the pages of a file that became shorter are not there any more.
	 */
	const uint8_t *map;
	uint64_t map_len;
	bool map_lost; /* a transport could not read there: requests can, or say why not */
	/* bytes that this program has copied for requests; the kernel's own copies are not known here */
	uint64_t copied;
};

/* The largest size there is: offsets stay positive as off_t, and a multiple of every block. */
#define NB_SIZE_MAX (INT64_MAX & ~(uint64_t)4095)

int nb_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out); /* 0 or errno */
void nb_submit(struct nb_backend *b, struct nb_request *r);
/* Looks how large the medium is by now (size 0), or gives it a size, and says so in b->size. 0 or errno. */
int nb_resize(struct nb_backend *b, uint64_t size);
void nb_close(struct nb_backend *b);

extern const struct nb_kind nb_memory, nb_null, nb_file, nb_block, nb_mapped;

#endif
