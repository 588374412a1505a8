// link.h - shared by the files of the SRP target's end at the adapter: a connection
// SPDX-License-Identifier: MIT
#ifndef SP_LINK_H
#define SP_LINK_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "srp/listener.h"

#define SP_TELLS 2u /* messages of their own at once */

struct sp_listener {
	struct nt_loop *loop;
	struct sp_target *target;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id, *ib; /* ib: by service id, on InfiniBand; NULL: not there */
	struct nt_watch watch;
	struct sp_link *links;
	uint64_t now, swept;
	bool stopped;
};

/* One connection. Its memory is one mapping: for each slot a response and a message. */
struct sp_link {
	struct sp_channel channel; /* first */
	struct sp_link *next;
	struct sp_listener *listener;
	struct rdma_cm_id *id;
	struct sockaddr_storage peer; /* its address; id may be gone before the link */
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *mr, *pool;
	struct nt_watch watch;
	uint8_t *memory;
	size_t memory_len, stride, message_at; /* of a slot; of the message in it */
	uint64_t began, heard;
	uint32_t telling; /* bits: which of SP_TELLS are sent */
	bool opened, established, failed, closed, probing, busy;
};

/* Makes the connection's queues and memory and opens the channel. 0, or a reason to reject the login. */
uint32_t sp_link_open(struct sp_link *k, const struct sp_login *l, struct sp_login_rsp *rsp);
void sp_link_poll(struct sp_link *k);
void sp_link_probe(struct sp_link *k); /* asks the adapter of the peer for an acknowledgement */
/* Ends the connection. The link is freed when its last request is done. */
void sp_link_close(struct sp_link *k);

#endif
