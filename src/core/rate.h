// rate.h - the limit of a queue pair's rate: a token bucket, kept as the time until which a link of that rate is busy
// follows: ibv_modify_qp_rate_limit(3), ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_RATE_H
#define VB_CORE_RATE_H

#include <stdbool.h>
#include <stdint.h>

/* What a packet has around its payload, where a message is counted as packets: a BTH and an ICRC. */
#define VB_RATE_HEADERS 16u

/* Under sq_lock; changed under progress + sq_lock. */
struct vb_rate {
	uint32_t kbps;       /* 0: there is no limit */
	uint32_t burst;      /* bytes that may leave at once after a pause */
	uint32_t typical;    /* bytes: the size of the packets as which a message is counted */
	bool waits;          /* a request waits for its turn */
	uint32_t granted;    /* on one host: requests before this position of the send queue may leave */
	uint64_t busy_until; /* ns */
	uint64_t due;        /* ns: when the request that waits may leave; 0: none waits */
};

static inline uint64_t vb_rate_time(const struct vb_rate *r, uint64_t bytes)
{
	return bytes * 8000000u / r->kbps; /* ns; at most 2^32 bytes */
}

/* Sets a limit. burst and typical: 0 for the defaults. packet: the largest packet, which a burst always has room for; mtu:
 * the default of typical. */
void vb_rate_set(struct vb_rate *r, uint32_t kbps, uint32_t burst, uint32_t typical, uint32_t packet, uint32_t mtu,
                 uint64_t now);
/* When may so many bytes leave? 0: now. What is longer than a burst waits until the link would have carried it. */
uint64_t vb_rate_ready(struct vb_rate *r, uint64_t bytes, uint64_t now);
/* Is there room for so many bytes at once? */
static inline bool vb_rate_has_room(const struct vb_rate *r, uint64_t bytes, uint64_t now)
{
	return r->busy_until + vb_rate_time(r, bytes) <= now + vb_rate_time(r, r->burst);
}
/* They leave. */
static inline void vb_rate_take(struct vb_rate *r, uint64_t bytes)
{
	r->busy_until += vb_rate_time(r, bytes);
	r->waits = false;
}

struct vb_qp;
/* Same host, raw packets: how far, at most to `end`, the limit lets the requests of the send queue leave. Sets due if the
 * limit is why that is before `end`; otherwise requests that it has let leave are still at sq_emit. Under sq_lock. */
uint32_t vb_rate_grant(struct vb_qp *qp, uint32_t end);
/* The requests of the send queue are flushed. Those that never left have cost nothing. Under sq_lock. */
void vb_rate_forget(struct vb_qp *qp);

#endif
