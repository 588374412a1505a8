// storm_walk.h - an attacker's state and its random generators
// SPDX-License-Identifier: MIT
#ifndef VB_TESTS_ATTACK_STORM_WALK_H
#define VB_TESTS_ATTACK_STORM_WALK_H

#include <netinet/in.h>

#include "frame/cm.h"
#include "storm.h"

#define LINKS 24
#define KEPT_LANES 64 /* lane numbers that were seen */
#define MANY_FDS 253  /* SCM_MAX_FD */

extern struct walk {
	struct dice dice;
	struct link links[LINKS];
	int good[3];
	uint32_t lanes[KEPT_LANES], nlanes;
	int udp[2]; /* IPv4, IPv6 */
	uint8_t gid[16];
	struct sockaddr_in listens_at;
} w;

/* ---- storm_make.c ---- */

uint32_t some(uint32_t n);
bool one_in(uint32_t n);
struct link *some_link(void);
/* An attached connection, if there is one. */
struct link *some_member(void);
/* A lane of ours, of other programs, or a random one. */
uint32_t some_lane(void);
void some_gid(uint8_t gid[16]);

/* Makes at most n descriptors of wrong and right kinds, and returns their number. */
int odd_fds(int *fds, int n);

/* Make messages of at most VB_MAX_MSG bytes, and return their length. */
size_t make_attach(uint8_t *out, uint32_t ngids, bool claim);
size_t make_bind(uint8_t *out);
size_t make_any(uint8_t *out, const struct link *from);
void make_mad(uint8_t mad[VB_MAD_LEN]);

#endif
