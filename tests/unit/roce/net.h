// net.h - a network that loses, doubles, reorders, damages and delays packets, in the same way for the same seed
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIRE_NET_H
#define VB_TEST_WIRE_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_PACKET_MAX 4224
#define NET_IN_FLIGHT 16384

/* Probabilities are out of 10,000. */
struct net_link {
	uint32_t lose, twice, late, damage, mark;
	uint64_t delay, jitter, late_by; /* ns */
	uint64_t bits_per_us;            /* 0: no limit */
	uint32_t queue;                  /* limit of queued bytes */
	uint64_t free_at;
	uint64_t dead_from, dead_to; /* everything is lost */
};

struct net_packet {
	uint64_t at, number;
	uint32_t len;
	uint8_t to;
	bool marked;
	uint8_t bytes[NET_PACKET_MAX];
};

struct net {
	uint64_t random;
	struct net_link link[2]; /* to node 0, to node 1 */
	struct net_packet *heap[NET_IN_FLIGHT];
	uint32_t count;
	uint64_t number;
	uint64_t sent, lost;
};

uint64_t net_random(struct net *net);
/* 0 to n - 1 */
uint32_t net_below(struct net *net, uint32_t n);
void net_send(struct net *net, int to, const uint8_t *bytes, size_t len, uint64_t now);
/* The next packet to arrive, or NULL. */
const struct net_packet *net_next(const struct net *net);
/* Removes it from the network; the caller frees it. */
struct net_packet *net_take(struct net *net);

#endif
