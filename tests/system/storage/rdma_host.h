// rdma_host.h - an NVMe host on verbs that sends what a test wants
// follows: NVMe over Fabrics 1.1, 7.3
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_RDMA_HOST_H
#define VB_TEST_STORAGE_RDMA_HOST_H

#include <rdma/rdma_cma.h>

#include "../../support/check.h"
#include "nvme/nvme.h"
#include "target/rdma_hello.h"

#define SUBNQN "nqn.2026-01.test:one"
#define HOSTNQN "nqn.2026-01.test:host"
#define HOST_DEPTH 128u
#define HOST_SENDS (2 * HOST_DEPTH) /* outstanding sends: each has its own memory until then */
#define HOST_DATA (4u << 20)
#define HOST_CAPSULE 8192u

struct host {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *capsules_mr, *answers_mr, *data_mr;
	/* HOST_SENDS, HOST_DEPTH; HOST_DATA bytes that the target may access */
	uint8_t *capsules, *answers, *data;
	uint32_t next; /* capsule */
	uint16_t next_cid, cntlid;
	unsigned invalidated; /* answers with an invalidated key */
	bool ended;           /* a completion or an event reports the end of the connection */
};

struct hello {
	struct nt_rdma_hello h;
	size_t len; /* of private data */
	uint8_t responder_resources;
};

/* Valid private data for a queue. */
struct hello hello_for(uint16_t qid);
/* Connects. Returns 0, or the reason of the rejection; -1: something else. *out is NULL unless 0. */
int host_dial(const char *address, uint16_t port, const struct hello *hello, struct host **out);
void host_hang_up(struct host *h);
void host_free(struct host *h); /* without a disconnect, unless it has disconnected already */

/* Keyed: bytes of data at an offset of h->data. */
struct nv_sgl host_keyed(const struct host *h, uint32_t at, uint32_t length, bool invalidate);
struct nv_sgl host_inline(uint32_t length);

/* Sends a capsule unchecked: its first len bytes, followed by the host's data if longer. */
void host_send_raw(struct host *h, const uint8_t sqe[NV_SQE_LEN], uint32_t len, const void *data);
uint16_t host_post(struct host *h, struct nv_sqe c, uint32_t inline_len, const void *data);
bool host_next(struct host *h, struct nv_cqe *out); /* false: the connection has ended */
struct nv_cqe host_do(struct host *h, struct nv_sqe c, uint32_t inline_len, const void *data); /* must be answered */
bool host_ends(struct host *h); /* waits until the connection has ended */

/* Connects and enables a controller; connects its next queue. */
struct host *host_admin(const char *address, uint16_t port, const char *subnqn);
struct host *host_io(struct host *admin, const char *address, uint16_t port, uint16_t qid);
struct nv_sqe io_command(uint8_t opcode, uint32_t nsid, uint64_t block, uint32_t blocks, struct nv_sgl sgl);

#endif
