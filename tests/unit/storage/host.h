// host.h - a host without a network, whose commands go directly to the target's core, and a backend controlled by the
// test
// see: target/target.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_HOST_H
#define VB_TEST_STORAGE_HOST_H

#include "../../support/check.h"
#include "target/core.h"

#define SUBNQN "nqn.2026-01.test:one"
#define HOSTNQN "nqn.2026-01.test:host"
#define ANSWERS 600

struct answer {
	uint16_t cid, status, sqhd;
	uint64_t result;
	bool data;
	uint32_t length;
};

/* One queue of the host. */
struct host {
	struct nt_queue q;
	bool gone, asked_to_close;
	bool hold_data;    /* fetch does not complete by itself */
	bool hold_answers; /* responses stay with the transport */
	struct nt_request *fetching[ANSWERS], *unreleased[ANSWERS];
	uint32_t fetch_count, unreleased_count;
	struct answer answers[ANSWERS];
	uint32_t count; /* number of answers so far */
	uint16_t next_cid;
	uint8_t in[NT_TRANSFER_MAX], out[NT_TRANSFER_MAX]; /* data sent last by the target; data that it fetches */
};

/* A backend in memory. If the test wants, its requests wait until they are released. */
struct medium {
	struct nb_backend b;
	uint8_t *bytes;
	bool slow;
	int error; /* result of the next requests */
	struct nb_request *first, **end;
	uint32_t count[5]; /* number of requests by operation */
	bool fua;          /* FUA of the last write */
	uint32_t unknown;  /* unsupported operations, as bits */
	bool closed;
};

extern struct nt_target target;
extern struct nt_port port;
extern struct nt_subsystem *subsystem;

void target_open(uint32_t memory);
void target_close(void);

struct medium *medium_open(uint64_t size, uint32_t block);
struct nt_namespace *medium_add(struct medium *m, uint32_t nsid);
void medium_go(struct medium *m); /* completes all waiting requests */

struct host *host_open(void);
void host_close(struct host *h);  /* frees it: it must have ended */
void host_settle(struct host *h); /* releases answered requests */

/* The descriptors of a transfer by the transport, of data in the capsule, and of none. */
struct nv_sgl by_transport(uint32_t length);
struct nv_sgl in_capsule(uint32_t length);

/* Sends without waiting. Uses the host's next command id and returns it. */
uint16_t host_post(struct host *h, struct nv_sqe c, uint32_t capsule);
/* … and returns its answer. */
struct answer host_do(struct host *h, struct nv_sqe c);
const struct answer *host_answer(const struct host *h, uint16_t cid); /* the last one with that id, or NULL */

/* Connect: fills in a valid command and data. A test changes fields before it sends. */
struct nv_sqe connect_command(struct host *h, uint16_t qid, uint16_t cntlid);
struct host *host_admin(void); /* connected and enabled */
struct host *host_io(struct host *admin, uint16_t qid);
struct host *host_admin_of(const char *hostnqn);
struct answer property_set(struct host *h, uint32_t offset, uint64_t value, unsigned attrib);
struct answer property_get(struct host *h, uint32_t offset, unsigned attrib);
uint64_t host_abort(struct host *admin, uint16_t qid, uint16_t cid); /* the result: 0 if it was aborted */
struct nv_sqe identify(uint8_t cns, uint32_t nsid);
struct nv_sqe get_log(uint32_t id, uint32_t length, uint64_t offset);
struct nv_sqe io_command(uint8_t opcode, uint64_t block, uint32_t blocks); /* of 512 bytes, namespace 1 */

#endif
