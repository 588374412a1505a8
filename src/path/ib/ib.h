// ib.h - queue pairs on an InfiniBand fabric: what the fabric process says of our port and of the ways from it
// see: docs/infiniband.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_IB_IB_H
#define VB_PATH_IB_IB_H

#include "core/ib.h"
#include "fabric/proto/proto.h"
#include "node/io.h"

#define VB_IB_HASH 1024u

/* The connection to the fabric process, and the ways that it was asked about. */
struct vb_ib_host {
	struct vb_watch watch; /* of the socket; fd -1: there was no fabric process */
	struct vb_node *node;
	atomic_bool alive;                  /* the fabric process has not ended */
	bool parts;                         /* the fabric has several processes: datagrams go as packets. Constant */
	bool link_asked;                    /* under io->meet_lock */
	bool watched, waits_for_room;       /* under io->meet_lock */
	struct vb_ib_way *hash[VB_IB_HASH]; /* under io->questions_lock, as the next three */
	struct vb_ib_way **by_tag;          /* VB_FABRIC_WAYS entries */
	uint32_t tags;
	struct vb_ib_way *unsent;       /* by next_unsent */
	struct vb_ib_traffic_map *sent; /* the fabric process reads it too. Constant; NULL: nothing is counted */
	uint32_t free_sent;         /* the number of the first free sender in it, plus one; under io->questions_lock */
	uint64_t told;              /* packets that the fabric process has been told of; under io->meet_lock */
	atomic_bool talks;          /* unsent has entries */
	atomic_bool datagrams_wait; /* for room in the socket */
	uint32_t groups_asked,
	        groups_answered; /* the last questions about groups; under io->meet_lock, as the next two */
	int group_error;         /* of that answer */
	bool group_asking;       /* a question awaits its answer */
	uint64_t report_at;      /* ns: when traffic may be told next. The progress thread's, as the next */
	bool rests;              /* nothing has moved at the last two looks */
};

/* --- path.c --- */

/* At RTR: finds the way, or gives the queue pair packets, if VERBENA_WIRE=always or the way leads through another fabric
 * process. True: the peer's program can be met at qp->met. No lock held. */
bool vb_ib_connect(struct vb_qp *qp);
void vb_ib_ah_made(struct vb_ah *ah);
/* Gives the QP, which is in SQD, the way of its address and its P_Key of now. No lock held. */
void vb_ib_moved(struct vb_qp *qp);
/* Brings all queue pairs to what the ways and the P_Key table say now. Progress thread, no lock held. */
void vb_ib_refresh(struct vb_node *node);
/* Takes over the P_Key that its port has for the queue pair now. No lock held. */
void vb_ib_take_pkey(struct vb_qp *qp);

/* --- link.c: packets to and from the fabric process --- */

/* At RTR: gives the queue pair its engine, and packets to and from the fabric process. No lock held. */
void vb_ib_connect_link(struct vb_qp *qp);
/* The connection for packets. Returns an errno. No spin lock held. */
int vb_ib_open_link(struct vb_node *node);
/* The same for a queue pair from RTR on that has not sent or received. The connection is open. False: there is no memory. Under
 * progress + sq_lock. */
bool vb_ib_change_over(struct vb_qp *qp);

/* --- ways.c --- */

/* The way of a route, with one user more. Waits up to wait_ms for the answer; if there is none yet, the way is closed. NULL:
 * no fabric, no memory, or too many. No spin lock held. */
struct vb_ib_way *vb_ib_way_get(struct vb_node *node, const struct vb_ib_route *route, unsigned wait_ms);
/* Any lock may be held. */
void vb_ib_way_put(struct vb_node *node, struct vb_ib_way *way);
/* Why it is closed (enum vb_fabric_why); VB_WAYS: there is no answer yet. */
unsigned vb_ib_way_why(struct vb_node *node, const struct vb_ib_way *way);
/* An answer of the fabric process. No lock held. */
void vb_ib_way_told(struct vb_ib_host *host, const struct vb_fabric_way_is *is);
/* The fabric process has ended: all ways are closed. */
void vb_ib_ways_close(struct vb_ib_host *host);
/* Sends what is unsent, as far as there is room. No spin lock held. */
void vb_ib_ways_send(struct vb_ib_host *host);
void vb_ib_ways_free(struct vb_ib_host *host);

/* --- groups.c --- */

/* struct vb_path_ops. Under sq_lock. */
enum vb_datagram_result vb_ib_datagram(struct vb_qp *qp, struct vb_swqe *w);
/* There is room in the socket again. No lock held. */
void vb_ib_datagrams_again(struct vb_ib_host *host);
/* An answer of the fabric process. No lock held. */
void vb_ib_group_told(struct vb_ib_host *host, const struct vb_fabric_group_is *is);
/* A datagram of a group, in len bytes. No lock held. */
void vb_ib_data_came(struct vb_ib_host *host, const struct vb_fabric_data *m, size_t len);

/* --- traffic.c --- */

/* Gives the fabric process the memory of the counters. Before other threads use it. */
void vb_ib_traffic_open(struct vb_ib_host *host);
/* Where datagrams of the way with this tag are counted. NULL: nowhere. */
struct vb_ib_sent *vb_ib_sent_by(const struct vb_ib_host *host, uint32_t tag);
/* Where a queue pair that uses the way counts. NULL: nothing is counted. questions_lock is not held, as in the next. */
struct vb_ib_sent *vb_ib_sender_get(struct vb_ib_host *host, const struct vb_ib_way *way);
/* It counts no more there, under its sq_lock. */
void vb_ib_sender_put(struct vb_ib_host *host, struct vb_ib_sent *sent);
/* If it is time: tells the fabric process that something has moved. Progress thread, no lock held. */
void vb_ib_traffic_look(struct vb_ib_host *host);
/* When that must be called next, ns; 0: never, until a message is counted. Progress thread. */
uint64_t vb_ib_traffic_due(const struct vb_ib_host *host);
void vb_ib_traffic_free(struct vb_ib_host *host);

#endif
