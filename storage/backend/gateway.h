// gateway.h - which of several targets writes to an image: the state that they share, and what one of them does next
// follows: docs/ceph.md
// SPDX-License-Identifier: MIT
#ifndef NB_GATEWAY_H
#define NB_GATEWAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

/*
 * A gateway is a target that serves an image together with others. One of them, the owner, writes. The state is an
 * object of the cluster that each gateway reads, and replaces only if nobody else has replaced it meanwhile. What
 * follows does no I/O and knows no clock. All times are ms of the gateway's own monotonic clock.
 *
 * The order that keeps late writes away: the owner changes only after the old owner has said itself that none of its
 * writes is left, or after the cluster has confirmed that it takes no more of them (a blocklist).
 *
 * A change of the reservation is complete when each gateway that lives has said that it enforces the new one, and has
 * no request left that the old one admitted. One that does not say so fails by its lease: a failed owner is
 * blocklisted. Another gateway executes no write. It executes no read before it has read the state again, if the state
 * that it knows has registered hosts; otherwise a read may pass a reservation that it has not seen.
 */

#define NG_GATEWAYS 16u
#define NG_NAME 64u
#define NG_CLIENT 256u
#define NG_TEXT 40960u /* a state is shorter */
#define NG_BEAT_MS 1000u
#define NG_LEASE_MS 3000u  /* a gateway whose beat does not change for that long has failed */
#define NG_SILENT_MS 1500u /* … or, if it has not answered a notification, for that long: it has missed a beat */
#define NG_HOLD_MS 1000u   /* an owner keeps the image that long, although another asks for it */
#define NG_WANT_MS 8000u   /* a gateway asks that long; hosts wait for 10 s (ANATT) */

struct ng_gateway {
	char name[NG_NAME];
	char client[NG_CLIENT]; /* the address of its connection to the cluster; "": it has left */
	uint64_t beat;          /* it counts as long as it lives */
	uint16_t slot;          /* 0 to NG_GATEWAYS - 1, no two the same: gives it a range of controller ids */
	uint64_t enforces;      /* the version of the reservations; none that is older has requests left */
	uint64_t change;        /* the number of the last change of them that this connection has made */
	char serves[NB_SERVES]; /* its configuration, in words; "": unknown */
	uint32_t port_count;
	struct nb_port ports[NB_PORTS_OF_ONE];
};

struct ng_state {
	uint64_t epoch;                               /* number of changes of the owner */
	char owner[NG_NAME], owner_client[NG_CLIENT]; /* "": nobody; the client is the one that may have writes left */
	char wanted[NG_NAME];                         /* the gateway that asks to become the owner; "": none */
	struct nr_state reservations;
	uint32_t count;
	struct ng_gateway gateways[NG_GATEWAYS];
};

/* As text. False: there are bytes that no gateway writes. */
bool ng_decode(const char *text, size_t length, struct ng_state *out);
size_t ng_encode(const struct ng_state *s, char text[NG_TEXT]);
bool ng_name_valid(const char *name);
struct ng_gateway *ng_find(struct ng_state *s, const char *name);

enum ng_role {
	NG_JOINING,
	NG_STANDBY,
	NG_MOVING,   /* it asks to become the owner, or the owner has failed */
	NG_OWNER,    /* it may write */
	NG_DRAINING, /* it is the owner, but starts no write any more; ng->drained is to be set after the last one */
	NG_LEFT,
	NG_OUT, /* another connection of its name has come: this one has no part any more */
};

enum ng_act {
	NG_WAIT,
	NG_WRITE,   /* replace the state that was read by ng->next, then call ng_wrote */
	NG_FENCE,   /* blocklist ng->victim, and when the cluster has confirmed it, call ng_fenced */
	NG_TAKEN,   /* it cannot join: another gateway of this name is alive */
	NG_FULL,    /* … or there are too many gateways */
	NG_DIFFERS, /* … or one that lives serves the image in another way */
};

struct ng {
	/* set by the user */
	char name[NG_NAME], client[NG_CLIENT];
	char before[NG_CLIENT]; /* an earlier connection of this program, which is over; "": none */
	bool drained, leaving;
	char silent[NG_CLIENT]; /* a connection that has not answered a notification; "": none */
	uint64_t enforces;      /* as in the state */
	char serves[NB_SERVES]; /* … of printable characters without spaces */
	uint32_t port_count;
	struct nb_port ports[NB_PORTS_OF_ONE];
	uint64_t change_number; /* 0: no change of the reservation is to be made; otherwise each time another number */
	struct nr_change change;
	/* results */
	uint64_t answered; /* change_number, when change.result is there */
	enum ng_role role;
	struct ng_state next;
	char victim[NG_CLIENT];
	char other[NG_NAME]; /* NG_DIFFERS: that gateway */
	bool news;           /* next says more than that this gateway lives: others should look at once */
	/* its own */
	struct ng_state seen;
	struct ng_lease {
		char client[NG_CLIENT];
		uint64_t beat, at; /* … and when that was seen first */
		bool moved;        /* the beat has changed since this gateway looks */
	} leases[NG_GATEWAYS];
	char fenced[NG_CLIENT];
	uint64_t began, asked, beat_at, owner_since, lost_at, want_until;
	/* made: change_number, when the state has the change; version: the one that others have to enforce then */
	uint64_t made, version;
	bool looked;
};

/* The state as a read that began at asked has found it. */
void ng_saw(struct ng *g, const struct ng_state *s, uint64_t asked, uint64_t now);
/* What to do now. */
enum ng_act ng_decide(struct ng *g, uint64_t now);
void ng_wrote(struct ng *g, uint64_t now);
void ng_fenced(struct ng *g);
/* A host has sent a write here: this gateway should become the owner. */
void ng_want(struct ng *g, uint64_t now);
uint32_t ng_pause(struct ng *g, uint64_t now); /* ms until the next look at the state */
/* The ports of the other gateways that live. Returns how many. */
#define NG_PORTS (NG_GATEWAYS * NB_PORTS_OF_ONE)
uint32_t ng_others(struct ng *g, struct nb_port ports[NG_PORTS]);

/* After NG_DIFFERS: a message. */
void ng_tell_difference(struct ng *g, char *out, size_t size);

#endif
