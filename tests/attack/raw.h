// raw.h - a program that speaks the broker's protocol without its rules
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

/* Connects to the broker and sends nothing. */
void raw_open(struct raw *r);
/* Attaches with one GID of these bytes; asks again while the broker is busy, as libibverbs does. Returns 0, or the errno
 * that the broker answers with; ECONNRESET: it closed the connection. */
int raw_attach(struct raw *r, const uint8_t gid[16]);
/* The same, claiming a lane. */
int raw_claim(struct raw *r, uint32_t lane, uint64_t incarnation);
void raw_close(struct raw *r);

/* Sends a whole message and fills in its type and length. False: the broker closed the connection. */
bool raw_say(struct raw *r, uint8_t type, void *msg, size_t len, const int *fds, int nfds);
/* Receives the next message of this type and skips others. Stores its descriptors (at most two, -1) in fds. Returns its
 * length, or 0 after ms. */
size_t raw_hear(struct raw *r, uint8_t type, void *msg, size_t size, int fds[2], int ms);

/* Binds a service to this port of all addresses. 0 or an errno. */
int raw_listen(struct raw *r, uint32_t id, uint16_t port);
/* Sends a connection request. local, remote: GIDs. */
void raw_request(struct raw *r, const uint8_t local[16], const uint8_t remote[16], uint16_t port, uint32_t comm_id,
                 uint64_t tid);

/* A TCP socket whose close blocks for an hour. */
int lingering_socket(void);

/* Runs fn as that user in its own process. Returns what fn returned; 0 means success. */
pid_t run_as(uid_t uid, int (*run)(void *), void *arg);
void ended_well(pid_t pid);

#endif
