// storm.h - what the parts of the storm share: raw connections to a broker, a generator of random numbers, what was noticed
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#ifndef VB_TESTS_ATTACK_STORM_H
#define VB_TESTS_ATTACK_STORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../system/broker/harness.h"
#include "broker/proto/proto.h"
#include "frame/fields.h"

/* In memory that all processes share. */
struct storm_news {
	uint64_t moves, lives, rounds[2],
	        slowest_ms; /* of attackers; of the two honest pairs; slowest: of their steps */
	char slowest[64];
	int leaks;      /* what no attacker may see */
	char leak[160]; /* the first of them */
};
extern struct storm_news *news;

void leaked(const char *what);

/* ---- link.c of the storm: one connection ---- */

struct link {
	int sock; /* -1: none */
	uint32_t lane;
	uint64_t incarnation;
	int relay; /* the channel or the lane's socket, -1: none */
};

struct came {
	struct vb_msg_head head; /* type 0: nothing */
	union {
		uint8_t bytes[VB_MAX_MSG];
		struct vb_msg_attached attached;
		struct vb_msg_meet_reply meet;
		struct vb_msg_error error;
		struct vb_msg_status_part part;
		struct vb_msg_roce_reply wire;
		struct vb_msg_cm_mad mad;
		struct vb_msg_service_reply service;
	};
	int fds[VB_MAX_FDS], nfds;
};

struct vb_msg_head head_for(uint8_t type, size_t len);

bool link_open(struct link *l); /* to VERBENA_RUNTIME's broker, without waiting */
void link_close(struct link *l);
/* A message, without waiting: false where it did not go. */
bool link_send(const struct link *l, const void *msg, size_t len, const int *fds, int nfds);
/* The next message, within ms; its descriptors are the caller's. False: none. *gone: and there will be none. */
bool link_take(const struct link *l, struct came *m, int ms, bool *gone);
void came_close(struct came *m);

/* A segment, a doorbell and a wake descriptor as the broker wants them. */
void storm_fds(int fds[3]);

/* ---- random numbers ---- */

struct dice {
	uint64_t state;
};

uint64_t roll(struct dice *d);
uint32_t below(struct dice *d, uint32_t n);
void roll_bytes(struct dice *d, void *out, size_t n);

/* ---- the parts ---- */

void gid_v4(uint8_t gid[16], const char *text);

/* Before the lives, of an attacker whose TCP connections outlive them: each of the broker's threads that wait to
 * close one waits on, and the user's other programs are refused when there are too many. */
void listen_to_nobody(void);

/* One life of an attacker, in a process of its own that has its uid already. */
__attribute__((noreturn)) void attack(uint64_t seed);

/* An honest pair, in a process of its own, until SIGTERM: exits with 0, or says what failed. A third program
 * of it comes and goes from one SIGUSR1 to the next. */
__attribute__((noreturn)) void be_honest(int pair, int ready_fd);

#endif
