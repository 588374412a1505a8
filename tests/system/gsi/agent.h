// agent.h - programs that use queue pair 1 and do what the test tells them, one order at a time
// see: src/node/gsi.h
// SPDX-License-Identifier: MIT
#ifndef VB_TESTS_GSI_AGENT_H
#define VB_TESTS_GSI_AGENT_H

#include "../broker/harness.h"
#include "frame/cm.h"

struct agent {
	pid_t pid;
	int sock;
	uint32_t lane;
};

struct arrived {
	uint8_t local[16], remote[16];
	uint32_t ifindex;
	uint8_t mad[VB_MAD_LEN];
};

/* Nothing is set by default: zeros are the wildcard of both families. */
struct wanted {
	uint16_t ps, port;
	uint8_t local[16];
	bool v4_only, v6_only, reuse;
	uint32_t ifindex;
};

/* A child; with net_of in the network of that process, with runtime in that directory of brokers (NULL: the test's). It
 * opens queue pair 1. */
void agent_start_at(struct agent *a, pid_t net_of, const char *runtime);
void agent_start(struct agent *a);
/* Closes queue pair 1 and exits. */
void agent_end(struct agent *a);
void agent_kill(struct agent *a);

int agent_open(struct agent *a);
void agent_close(struct agent *a);
int agent_bind(struct agent *a, const struct wanted *w, uint16_t *port, uint32_t *id);
int agent_listen(struct agent *a, uint32_t id);
void agent_unbind(struct agent *a, uint32_t id);
void agent_send(struct agent *a, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                const uint8_t mad[VB_MAD_LEN], unsigned times);
/* The oldest MAD it has; false: none came within ms. */
bool agent_take(struct agent *a, struct arrived *m, int ms);
/* How many it has; they are forgotten. */
unsigned agent_count(struct agent *a);
/* This is a connection of its own from now on: each broker that comes after another is told to disconnect it at
 * death. */
void agent_connected(struct agent *a, const uint8_t local[16], const uint8_t remote[16], uint32_t local_id,
                     uint32_t remote_id, uint32_t remote_qpn);
/* Until it has found another broker so many times, and told each of them everything; false after LONG_MS. */
bool agent_found(struct agent *a, int times);
/* Sets the timer ns from now, sleeps ms; how often it was called by then, or -1 if that was too early. */
int agent_timer(struct agent *a, uint64_t ns, int ms);
/* Forks: the child leaves what it inherited and opens its own. Its lane, 0 if it could not. */
uint32_t agent_fork(struct agent *a);

/* Binds and listens to any address, or fails the test. */
uint32_t serve(struct agent *a, uint16_t ps, uint16_t port);

void v4(uint8_t gid[16], const char *text);
void v6(uint8_t gid[16], const char *text);

/* MADs. tag stands in the transaction id. */
void make_req(uint8_t mad[VB_MAD_LEN], uint16_t ps, uint16_t port, uint32_t comm_id, uint64_t tag);
void make_rep(uint8_t mad[VB_MAD_LEN], const struct agent *from, uint32_t to_comm_id, uint64_t tag);
void make_dreq(uint8_t mad[VB_MAD_LEN], uint32_t to_comm_id, uint32_t comm_id);
void make_sidr_req(uint8_t mad[VB_MAD_LEN], uint16_t port, uint32_t request_id);
void make_timeout(uint8_t mad[VB_MAD_LEN], uint32_t comm_id); /* a rejection by who never learnt the other's id */
uint32_t comm_id_of(const struct agent *a, uint32_t rest);
/* Decodes it, or fails the test. */
struct vb_cm_msg cm_of(const uint8_t mad[VB_MAD_LEN]);

/* What an interface of this network namespace has received. */
uint64_t packets_of(const char *interface);

#endif
