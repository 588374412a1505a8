// storm.h - shared by the parts of the storm: raw connections to a broker, random numbers, counters
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

/* In shared memory. */
struct storm_news {
	uint64_t moves, lives, rounds[2],
	        slowest_ms; /* steps of the attackers; of the two honest pairs; slowest: their slowest step */
	char slowest[64];
	int leaks;      /* forbidden observations of attackers */
	char leak[160]; /* the first one */
};
extern struct storm_news *news;

void leaked(const char *what);

/* ---- link.c of the storm: one connection ---- */

struct link {
	int sock; /* -1: none */
	uint32_t lane;
	uint64_t incarnation;
	int relay; /* the channel or the lane's socket; -1: none */
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

bool link_open(struct link *l); /* connects to the broker of VERBENA_RUNTIME without waiting */
void link_close(struct link *l);
/* Sends a message without waiting. False if it was not sent. */
bool link_send(const struct link *l, const void *msg, size_t len, const int *fds, int nfds);
/* Receives the next message, within ms. Its descriptors are the caller's. False: none arrived; *gone: and none will. */
bool link_take(const struct link *l, struct came *m, int ms, bool *gone);
void came_close(struct came *m);

/* A segment, a doorbell and a wake descriptor that the broker accepts. */
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

/* Waits before the lives of an attacker with TCP connections that outlive them: each of the broker's closing threads
 * waits for one, and too many of them block the user's other programs. */
void listen_to_nobody(void);

/* One life of an attacker, in its own process, which has its uid already. */
__attribute__((noreturn)) void attack(uint64_t seed);

/* An honest pair, in its own process, until SIGTERM. Exits with 0, or prints what failed. A third program of it comes
 * and goes between one SIGUSR1 and the next. */
__attribute__((noreturn)) void be_honest(int pair, int ready_fd);

#endif
