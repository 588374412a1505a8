// reservation.h - the persistent reservation of a medium: who is registered, who holds it, and what a command changes
// follows: NVM Express Base 1.4, 8.8 (reservations)
// SPDX-License-Identifier: MIT
#ifndef NB_RESERVATION_H
#define NB_RESERVATION_H

#include <stdbool.h>
#include <stdint.h>

#define NR_REGISTRANTS 64u
#define NR_NOTICES 8u /* the last ones that a state keeps */

/* Base 1.4, figure 435 */
enum nr_type {
	NR_NONE,
	NR_WRITES,             /* write exclusive */
	NR_ACCESS,             /* exclusive access */
	NR_WRITES_REGISTRANTS, /* …, registrants only */
	NR_ACCESS_REGISTRANTS,
	NR_WRITES_ALL_REGISTRANTS, /* all registrants hold it */
	NR_ACCESS_ALL_REGISTRANTS,
};

/* A host is its identifier and its name: it authenticates the name, and any host could give the identifier of another. */
struct nr_host {
	uint8_t id[16], name[16]; /* name: derived from the NQN */
};

struct nr_registrant {
	struct nr_host host;
	uint64_t key;
	bool holder; /* not with the types that all registrants hold */
};

/* What registrants learn. Base 1.4, figure 221 */
enum nr_event { NR_REGISTRATION_PREEMPTED = 1, NR_RELEASED, NR_PREEMPTED };

struct nr_notice {
	uint64_t version; /* the change that caused it */
	uint8_t event;    /* enum nr_event */
	struct nr_host by;
};

struct nr_state {
	uint64_t version;    /* of all changes */
	uint32_t generation; /* … that the Reservation Report counts */
	uint8_t type;        /* enum nr_type */
	bool persists;       /* through power loss */
	uint32_t count, notice_count;
	struct nr_registrant registrants[NR_REGISTRANTS];
	struct nr_notice notices[NR_NOTICES]; /* the oldest first */
};

enum nr_op { NR_REGISTER, NR_UNREGISTER, NR_REPLACE, NR_ACQUIRE, NR_PREEMPT, NR_RELEASE, NR_CLEAR, NR_PERSIST };
enum nr_persist { NR_AS_IT_IS = 0, NR_NO = 2, NR_YES = 3 };
enum nr_result { NR_OK, NR_CONFLICT, NR_INVALID, NR_FULL };

struct nr_change {
	enum nr_op op;
	struct nr_host by;
	uint64_t key, other; /* the present key; the new one, or that of those to be preempted */
	uint8_t type;        /* enum nr_type */
	uint8_t persist;     /* enum nr_persist */
	bool ignore_key;
	enum nr_result result; /* once a backend has made it */
};

/* Makes a change. With NR_OK version is another, even if nothing else is; with other results nothing has changed. */
enum nr_result nr_apply(struct nr_state *s, const struct nr_change *c);
/* All that is not for power loss to keep is lost. */
void nr_power_lost(struct nr_state *s);
/* True if the reservation forbids a host to read, or to write. */
bool nr_forbids(const struct nr_state *s, const struct nr_host *h, bool writes);
bool nr_holds(const struct nr_state *s, const struct nr_registrant *r);
const struct nr_registrant *nr_find(const struct nr_state *s, const struct nr_host *h);
/* False: nr_apply never makes such a state. */
bool nr_valid(const struct nr_state *s);

#endif
