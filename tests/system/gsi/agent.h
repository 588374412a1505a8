// agent.h - programs that use queue pair 1 and follow the test's orders, one at a time
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

/* The default is all zeros, the wildcard of both families. */
struct wanted {
	uint16_t ps, port;
	uint8_t local[16];
	bool v4_only, v6_only, reuse;
	uint32_t ifindex;
};

/* Starts an agent in a child, in the network of process net_of, with the runtime directory `runtime` (NULL: the
 * test's). It opens queue pair 1. */
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
/* The agent's oldest MAD; false: none arrived within ms. */
bool agent_take(struct agent *a, struct arrived *m, int ms);
/* Discards its MADs and returns their number. */
unsigned agent_count(struct agent *a);
/* From now on the agent has this connection. It tells each later broker to disconnect it at death. */
void agent_connected(struct agent *a, const uint8_t local[16], const uint8_t remote[16], uint32_t local_id,
                     uint32_t remote_id, uint32_t remote_qpn);
/* Waits until it has found another broker so many times and has told each of them everything; false after LONG_MS. */
bool agent_found(struct agent *a, int times);
/* Sets the timer to ns from now and sleeps ms. Returns how often it was called by then, or -1 if that was too early. */
int agent_timer(struct agent *a, uint64_t ns, int ms);
/* Forks. The child drops what it inherited and opens its own queue pair 1. Returns its lane, or 0 on failure. */
uint32_t agent_fork(struct agent *a);

/* Binds to any address and listens, or fails the test. */
uint32_t serve(struct agent *a, uint16_t ps, uint16_t port);

void v4(uint8_t gid[16], const char *text);
void v6(uint8_t gid[16], const char *text);

/* MADs. tag goes into the transaction id. */
void make_req(uint8_t mad[VB_MAD_LEN], uint16_t ps, uint16_t port, uint32_t comm_id, uint64_t tag);
void make_rep(uint8_t mad[VB_MAD_LEN], const struct agent *from, uint32_t to_comm_id, uint64_t tag);
void make_dreq(uint8_t mad[VB_MAD_LEN], uint32_t to_comm_id, uint32_t comm_id);
void make_sidr_req(uint8_t mad[VB_MAD_LEN], uint16_t port, uint32_t request_id);
void make_timeout(uint8_t mad[VB_MAD_LEN], uint32_t comm_id); /* a REJ without the other's id */
uint32_t comm_id_of(const struct agent *a, uint32_t rest);
/* Decodes it, or fails the test. */
struct vb_cm_msg cm_of(const uint8_t mad[VB_MAD_LEN]);

/* Bytes that an interface of this network namespace has received. */
uint64_t packets_of(const char *interface);

#endif
