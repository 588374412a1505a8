// raw.h - a program that speaks the broker's protocol as it likes
// see: src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#ifndef VB_TESTS_ATTACK_RAW_H
#define VB_TESTS_ATTACK_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../system/broker/harness.h"
#include "broker/proto/proto.h"

struct raw {
	int sock;
	struct vb_attach_fds fds;
	uint32_t lane; /* 0: not attached */
	uint64_t incarnation;
};

/* A connection to the broker, without a word. */
void raw_open(struct raw *r);
/* Attaches with one GID, whose bytes are given: 0, or the errno that the broker answers with; ECONNRESET: it hung
 * up. */
int raw_attach(struct raw *r, const uint8_t gid[16]);
/* The same, claiming a lane. */
int raw_claim(struct raw *r, uint32_t lane, uint64_t incarnation);
void raw_close(struct raw *r);

/* A whole message, of which type and length are filled in. False: the broker hung up. */
bool raw_say(struct raw *r, uint8_t type, void *msg, size_t len, const int *fds, int nfds);
/* The next message of this type, others are skipped, its descriptors (at most two, -1) to fds: its length, 0 after
 * ms. */
size_t raw_hear(struct raw *r, uint8_t type, void *msg, size_t size, int fds[2], int ms);

/* A service at this port of every address. 0 or an errno. */
int raw_listen(struct raw *r, uint32_t id, uint16_t port);
/* A request to connect. local, remote: GIDs. */
void raw_request(struct raw *r, const uint8_t local[16], const uint8_t remote[16], uint16_t port, uint32_t comm_id,
                 uint64_t tid);

/* A TCP socket that nobody can close before an hour has passed. */
int lingering_socket(void);

/* Runs it as that user in a process of its own, which says what it returned: 0 is right. */
pid_t run_as(uid_t uid, int (*run)(void *), void *arg);
void ended_well(pid_t pid);

#endif
