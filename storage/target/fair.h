// fair.h - a queue that serves those who wait in it by turns: deficit round robin
// follows: Shreedhar, Varghese, Efficient Fair Queuing Using Deficit Round Robin (1995)
// SPDX-License-Identifier: MIT
#ifndef NT_FAIR_H
#define NT_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#define NT_QUANTUM 32768       /* what a host of weight 1 is served in one turn */
#define NT_COST 4096u          /* of a command, besides its bytes */
#define NT_COST_MAX (2u << 20) /* bytes of a command that count */
#define NT_FLOW_BUCKETS 1024u

struct nt_fair;

/*
 * A place in a queue. It is part of what waits, so a queue needs no memory of its own, however many there are. The first
 * one of each host also has the host's place among the others.
 */
struct nt_place {
	struct nt_fair *in; /* NULL: waits nowhere */
	const void *host;
	uint32_t cost, weight;
	struct nt_place *next, *prev; /* of this host, in order of arrival */
	/* only of the first of a host: */
	struct nt_place *last;
	struct nt_place *right, *left; /* the first ones of other hosts, a ring */
	struct nt_place *chain;        /* in the table of first ones */
	int64_t credit;
};

/* Finds the first one that waits for a host. All queues may share one table. */
struct nt_flows {
	struct nt_place *buckets[NT_FLOW_BUCKETS];
};

struct nt_fair {
	struct nt_flows *flows;
	struct nt_place *turn; /* the first one of the host whose turn it is; NULL: nothing waits */
	uint32_t count;
};

/* bytes: of the command. weight 0 counts as 1. */
void nt_fair_enter(struct nt_fair *f, struct nt_place *p, const void *host, uint32_t weight, uint64_t bytes);
/* Returns the one to be served next, or NULL. Only nt_fair_serve or nt_fair_leave changes the answer. */
struct nt_place *nt_fair_next(struct nt_fair *f);
void nt_fair_serve(struct nt_place *p); /* p is the next one: it leaves, and its host has had that much */
void nt_fair_leave(struct nt_place *p); /* it gives up */

#endif
