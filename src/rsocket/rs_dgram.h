// rs_dgram.h - datagram rsockets: a UDP socket, and a UD queue pair for each local address
// follows: rdma-core docs/rsocket ("Datagram Overview")
// SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_DGRAM_H
#define VB_RSOCKET_DGRAM_H

#include "rsocket/rs.h"

enum {
	RS_UD_GRH = 40,
	RS_UD_MAX = 2048, /* header and data: the size of a receive in rdma-core */
	RS_UDP_MAX = 65507,
	RS_DESTS_MAX = 1024,  /* remembered destinations of the program */
	RS_LOOK_UPS_MAX = 32, /* at once */
	RS_ASKED = 64,
	RS_UNASKED_QPS = 16, /* queue pairs, one for each local address, that unknown senders can make us create */
};

/* A datagram that waits for the program: part of a receive slot, or allocated by itself (qp NULL). */
struct rs_gram {
	struct rs_gram *next;
	struct rs_dqp *qp;
	union rs_addr from;
	uint8_t *data;
	uint32_t len;
};

struct rs_dqp {
	struct rs_dqp *next;
	union rs_addr local;
	struct rdma_cm_id *id;
	struct rdma_event_channel *cm;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *send_mr, *recv_mr;
	uint8_t *recv_buf;
	struct rs_gram *grams; /* one per receive slot */
	uint32_t mtu, inline_max;
	bool armed;
};

/* A destination of the program. A sender gets none, because a source address is easily forged. */
struct rs_dest {
	struct rs_dest *next;
	union rs_addr addr;
	struct rs_dqp *qp;
	struct ibv_ah *ah; /* not NULL: datagrams go by UD */
	uint32_t qpn;      /* 0: not known yet */
	unsigned in_flight;
	/* The peer has announced another number since. UDP carries the data until no contradiction has arrived for a
	 * while. */
	bool doubted;
	uint64_t sure_at; /* ns: when the number is trusted; 0: nothing was sent since */
	/* Set while the path is looked up; the list is in order of the start of the look-ups. */
	struct rdma_cm_id *id;
	struct rs_dest *look_next;
};

/* An unknown sender that was told our queue pair, and the local address that reaches it. Finding that address takes
 * system calls, so it is cached. */
struct rs_asked {
	union rs_addr addr;
	struct rs_dqp *qp; /* NULL: no answer is possible */
	uint64_t until;    /* ns */
};

struct rs_send_slot {
	struct rs_dest *to;
	int next_free;
};

/* rs->lock guards all members. */
struct rs_dgram {
	bool started, connected;
	int epfd; /* the completion channels of all queue pairs */
	union rs_addr peer;
	struct rs_dqp *qps;
	struct rs_dest *dests; /* most recently used first */
	unsigned dest_count, qp_count;
	struct rdma_event_channel *look_cm; /* shared by all look-ups */
	struct rs_dest *looking, **look_last;
	unsigned look_ups;
	uint64_t gave_up; /* ns: when a look-up was last given up for another */
	struct rs_asked asked[RS_ASKED];
	uint8_t *send_buf;
	struct rs_send_slot *slots;
	int free_slot;
	uint32_t sq, rq, sends;
	struct rs_gram *head, **tail;
	unsigned by_udp; /* datagrams in the queue that are allocated by themselves */
};

int rs_dgram_start(struct rsocket *rs);
int rs_plain_socket(int domain);

/* rs_dgram_path.c */
int rs_dest_get(struct rsocket *rs, const union rs_addr *addr, struct rs_dest **out);
ssize_t rs_udp_send(struct rsocket *rs, struct rs_dest *to, struct rs_cursor *c, unsigned op, int flags);
bool rs_dest_has_ud(struct rs_dest *t); /* True if datagrams to it go by UD */
void rs_dest_drop_all(struct rsocket *rs);

/* rs_dgram_qp.c */
int rs_dqp_get(struct rsocket *rs, const union rs_addr *local, struct rs_dqp **out);
void rs_dqp_drop_all(struct rsocket *rs);
int rs_dqp_post(struct rs_dqp *qp, struct rs_gram *slot);

void rs_gram_queue(struct rsocket *rs, struct rs_gram *g);

#endif
