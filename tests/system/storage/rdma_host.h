// rdma_host.h - a host on verbs that says what a test wants it to say
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
#define HOST_SENDS (2 * HOST_DEPTH) /* that may be under way: the memory of each is its own until then */
#define HOST_DATA (4u << 20)
#define HOST_CAPSULE 8192u

struct host {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	struct ibv_mr *capsules_mr, *answers_mr, *data_mr;
	/* HOST_SENDS, HOST_DEPTH; HOST_DATA bytes that the target may read and write */
	uint8_t *capsules, *answers, *data;
	uint32_t next; /* capsule */
	uint16_t next_cid, cntlid;
	unsigned invalidated; /* answers that came with it */
	bool ended;           /* a completion or an event says that the connection is over */
};

struct hello {
	struct nt_rdma_hello h;
	size_t len; /* of the private data */
	uint8_t responder_resources;
};

/* A good one for a queue. */
struct hello hello_for(uint16_t qid);
/* Connects: 0, or the reason of the rejection; -1: something else. *out is NULL unless 0. */
int host_dial(const char *address, uint16_t port, const struct hello *hello, struct host **out);
void host_hang_up(struct host *h);
void host_free(struct host *h); /* without a word, if it has not hung up */

/* Keyed: bytes of data at an offset of h->data. */
struct nv_sgl host_keyed(const struct host *h, uint32_t at, uint32_t length, bool invalidate);
struct nv_sgl host_inline(uint32_t length);

/* Sends a capsule as it is: its first len bytes, with data of the host's behind the entry if longer. */
void host_send_raw(struct host *h, const uint8_t sqe[NV_SQE_LEN], uint32_t len, const void *data);
uint16_t host_post(struct host *h, struct nv_sqe c, uint32_t inline_len, const void *data);
bool host_next(struct host *h, struct nv_cqe *out); /* false: the connection has ended */
struct nv_cqe host_do(struct host *h, struct nv_sqe c, uint32_t inline_len, const void *data); /* must be answered */
bool host_ends(struct host *h); /* waits until the connection is over */

/* Connect and enable; the next queue of the same controller. */
struct host *host_admin(const char *address, uint16_t port, const char *subnqn);
struct host *host_io(struct host *admin, const char *address, uint16_t port, uint16_t qid);
struct nv_sqe io_command(uint8_t opcode, uint32_t nsid, uint64_t block, uint32_t blocks, struct nv_sgl sgl);

#endif
