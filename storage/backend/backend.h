// backend.h - the storage behind a namespace: takes requests, and calls done() when one is finished
// SPDX-License-Identifier: MIT
#ifndef NB_BACKEND_H
#define NB_BACKEND_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/reservation.h"

struct nb_backend;
struct nb_late;
struct nb_ring;

enum nb_op {
	NB_READ,
	NB_WRITE,
	NB_FLUSH,   /* makes all requests durable that were done when this one was submitted */
	NB_DISCARD, /* the contents are no longer needed; later reads return zeros if zeros_after_discard */
	NB_ZERO,    /* later reads return zeros; may_punch: the space may be freed */
	/* writes other if the medium has data, in one step for all users of the medium; EILSEQ: it has something else,
	 * EINVAL: not possible for this range. Only if compare_write */
	NB_COMPARE_WRITE,
	/* changes the reservation; data is a struct nr_change, with the result when done. Only if reservations is set */
	NB_RESERVE,
};

/* Errors of a medium that other machines share. */
#define NB_LATE ETIME       /* no answer yet: the request may still be executed, and another one may be sent */
#define NB_FENCED ESHUTDOWN /* the medium takes no request of this target any more, and executes none */
/* Not executed: another gateway of the medium has the writes, or perhaps a reservation that this one has not seen. */
#define NB_ELSEWHERE EXDEV

/*
 * One request. Its memory belongs to the caller and must stay valid until done. The thread of the loop calls done,
 * possibly from within nb_submit. error is 0 or an errno value. offset and length are multiples of the backend's block,
 * and within its size.
 */
struct nb_request {
	enum nb_op op;
	bool fua;       /* NB_WRITE, NB_ZERO, NB_DISCARD: durable when done */
	bool may_punch; /* NB_ZERO */
	uint64_t offset, length;
	void *data;  /* NB_READ, NB_WRITE, NB_COMPARE_WRITE: fastest if aligned to NB_ALIGN */
	void *other; /* NB_COMPARE_WRITE */
	void (*done)(struct nb_request *r, int error);
	/* NULL, or called when the request begins to wait outside the medium, where others may take its place. done follows */
	void (*aside)(struct nb_request *r);
	/* Set in a call of done with NB_LATE if the medium still uses the memory of the request. The caller then stores
	 * in it what late->free needs. The backend calls that when the medium has finished. */
	struct nb_late *late;
	uint64_t since; /* ms of the monotonic clock, from which wait_ms counts; 0: from nb_submit */
	/* used by the backend and the ring */
	struct nb_backend *backend;
	struct nb_request *next;
	int fd;
	uint64_t moved;
	int step;
};

#define NB_ALIGN 4096u

struct nb_late {
	void (*free)(struct nb_late *l);
	void *owner;
	struct {
		void *at;
		uint32_t length;
	} memory[3];
};

enum nb_change {
	NB_RESIZED,
	NB_SHUT_OUT, /* fenced is set */
	NB_MOVED,    /* access has changed */
	NB_LET_IN,   /* after NB_SHUT_OUT: successor is another opening of the medium, to be taken in its place */
	NB_RESERVED, /* reservations has changed; to be answered by nb_reserved */
	NB_PORTS,    /* others has changed */
	NB_SLOW,     /* the first of some requests has been answered with NB_LATE */
	NB_NOT_IN,   /* after NB_SHUT_OUT: it cannot be opened again, and trouble says why. Attempts go on */
	NB_FULL,     /* the medium has no space for the first of some writes. They wait for it */
};

#define NB_ADDRESS 64u

/* An address at which a gateway serves a subsystem. */
struct nb_port {
	uint8_t trtype, treq, tsas[4]; /* as in the discovery log */
	uint16_t id, service;
	char address[NB_ADDRESS];
	uint8_t subsystem[16]; /* derived from its NQN */
};

#define NB_PORTS_OF_ONE 8u /* of one gateway and medium */

bool nb_address_valid(const char *text); /* numeric, perhaps with a scope; shorter than NB_ADDRESS */

/* Who writes to a medium that several gateways serve. */
enum nb_access {
	NB_HERE,  /* this one, or there are no others */
	NB_OTHER, /* another one. Writes are answered with NB_ELSEWHERE, and reads, too, that a reservation may forbid */
	NB_MOVING, /* as NB_OTHER; soon it will be NB_HERE, or NB_OTHER again */
	NB_AWAY    /* the medium does not answer this one. Requests are answered with NB_FENCED */
};

/* A backend's configuration: a path or a size, depending on the kind. */
struct nb_config {
	const char *kind, *path; /* memory, null, file, block, mapped, rbd */
	uint64_t size;           /* 0: the size of the file */
	uint32_t block;          /* 512 to 4096, a power of two; 0: the smallest that the medium supports */
	bool readonly, buffered; /* buffered: never O_DIRECT */
	/* rbd; NULL, 0: the default */
	const char *ceph_conf, *ceph_user, *ceph_keyring;
	const char *gateway; /* the name of this target among those that serve the medium; NULL: it knows no others */
	const char *before;  /* … and its connection that is over */
	const char *serves;  /* what all of these must have in common, as words with commas between them */
	uint32_t wait_ms;    /* limit of the wait for the medium: then done is called with NB_LATE */
	char *why;           /* NULL, or NB_WHY bytes for a message that says more than the errno value */
};

#define NB_WHY 256
#define NB_WAIT_MS \
	20000 /* wait_ms if none is given: the Linux kernel resets a controller after 30 s without an answer */
#define NB_SERVES 384u

/* A medium that is being opened. */
struct nb_opening {
	/* The thread of the loop calls it, perhaps from within nb_open_later. error is 0 or an errno value. */
	void (*done)(struct nb_opening *o, int error, struct nb_backend *b);
	char why[NB_WHY]; /* as in the configuration */
};

struct nb_kind {
	const char *name;
	/* 0 or errno; fills *out except kind */
	int (*open)(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out);
	void (*submit)(struct nb_backend *b, struct nb_request *r);
	int (*resize)(struct nb_backend *b, uint64_t size); /* NULL: the size is fixed */
	void (*close)(struct nb_backend *b);                /* only late requests are in progress; fenced: any */
	/* if several gateways serve the medium; otherwise NULL */
	void (*reserved)(struct nb_backend *b, uint64_t version);
	void (*announce)(struct nb_backend *b, const struct nb_port *ports, uint32_t count);
	/* NULL: open does not take long. 0: done follows; or errno */
	int (*open_later)(const struct nb_config *config, struct nb_ring *ring, struct nb_opening *o);
	bool (*threads_left)(void); /* NULL: never */
};

struct nb_backend {
	const struct nb_kind *kind;
	uint64_t size;
	uint32_t block;
	bool readonly;
	bool volatile_cache; /* flushes are necessary */
	bool cached;         /* writes go to the page cache; the next durable request reports a lost one */
	bool zeros_after_discard;
	char *identity;         /* identifies the medium, NULL: nothing does; owned by the backend */
	bool identity_anywhere; /* … worldwide; otherwise only on this host */
	/*
	 * NULL, or memory that contains the bytes from offset 0 on. A transport may register it and read from it
	 * directly. It may change while it is sent, and pages of a file that has shrunk are not accessible.
	 */
	const uint8_t *map;
	uint64_t map_len;
	/* A transport could not read the map. From now on reads use requests, which succeed or report the error. */
	bool map_lost;
	/* bytes that this program has copied for requests, without the kernel's copies */
	uint64_t copied;
	bool compare_write;
	bool ordered; /* requests of the same blocks are executed in the order in which they come */
	bool fenced;  /* another opening of the medium may help … */
	bool returns; /* … and the backend does that itself: NB_LET_IN */
	enum nb_access access;
	uint32_t part,
	        parts; /* this gateway's share of whatever must not be the same in two; parts 0: there are no others */
	struct nb_backend *successor;
	/* If several gateways serve the medium: the reservation that they share, which the user enforces, and the ports
	 * of the other ones that live. The backend owns both, and changes them just before it calls changed. */
	const struct nr_state *reservations;
	const struct nb_port *others;
	uint32_t other_count;
	uint32_t boundary;   /* requests that cross multiples of this are slower; 0: none */
	uint32_t wait_ms;    /* done is called with NB_LATE after this time; 0: never */
	uint64_t late;       /* requests that were answered with NB_LATE */
	uint64_t answers;    /* of the medium, also to those; counted only if wait_ms is set */
	const char *trouble; /* for NB_NOT_IN */
	/* The thread of the loop calls it, not from within submit. NULL: nobody wants to know. */
	void (*changed)(struct nb_backend *b, enum nb_change what);
	void *owner; /* for changed */
};

/* The largest size: fits off_t, and is a multiple of every block. */
#define NB_SIZE_MAX (INT64_MAX & ~(uint64_t)4095)

int nb_open(const struct nb_config *config, struct nb_ring *ring, struct nb_backend **out); /* 0 or errno */
/* The same for a loop that serves others meanwhile. 0: done is called, once; or errno. */
int nb_open_later(const struct nb_config *config, struct nb_ring *ring, struct nb_opening *o);
/* Threads of openings that took too long still run. A program then ends by _exit(2): exit(3) would call destructors of
 * libraries that they use. */
bool nb_threads_left(void);
void nb_submit(struct nb_backend *b, struct nb_request *r);
/* Reads the present size of the medium (size 0), or sets its size. Stores the result in b->size. 0 or errno. */
int nb_resize(struct nb_backend *b, uint64_t size);
void nb_close(struct nb_backend *b);
/* This version of reservations is in force, and no request that an earlier one admitted is at the medium any more. */
void nb_reserved(struct nb_backend *b, uint64_t version);
/* At most NB_PORTS_OF_ONE ports at which this gateway serves the medium; more are left out. */
void nb_announce(struct nb_backend *b, const struct nb_port *ports, uint32_t count);

extern const struct nb_kind nb_memory, nb_null, nb_file, nb_block, nb_mapped, nb_rbd;

#endif
