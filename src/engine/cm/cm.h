// cm.h - connection management as functions of messages and time: what the owner of queue pair 1 and of a clock calls
// follows: IBA volume 1, 12.9 (states and transitions), 12.10 (disconnecting, timewait), 12.11 (SIDR); annex A11
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_CM_H
#define VB_ENGINE_CM_H

#include "frame/cm.h"

/*
 * A communication id names its owner: the lane stands in the ten high bits, as in a QP number, so that whoever receives
 * for all can hand replies on without a table. The other 22 are the connection's place and a random tag that is another
 * each time the place is used, shuffled by a secret key: of what is in use they tell nothing.
 */
#define VB_CM_LANE_BITS 10
#define VB_CM_MAX_CONNS (1u << 16)

static inline uint32_t vb_cm_lane_of(uint32_t comm_id)
{
	return comm_id >> (32 - VB_CM_LANE_BITS);
}

/* X(NAME), as ib_cm calls them. IDLE: nothing is under way any more, after REJ, an error, timewait, SIDR_REP. */
#define VB_CM_STATES(X)  \
	X(IDLE)          \
	X(REQ_SENT)      \
	X(REQ_RCVD)      \
	X(MRA_REQ_SENT)  \
	X(MRA_REQ_RCVD)  \
	X(REP_SENT)      \
	X(REP_RCVD)      \
	X(MRA_REP_SENT)  \
	X(MRA_REP_RCVD)  \
	X(ESTABLISHED)   \
	X(DREQ_SENT)     \
	X(DREQ_RCVD)     \
	X(TIMEWAIT)      \
	X(SIDR_REQ_SENT) \
	X(SIDR_REQ_RCVD)

enum vb_cm_state {
#define X(name) VB_CM_##name,
	VB_CM_STATES(X)
#undef X
};

/* X(NAME): what the owner learns. Those that end in RECEIVED bring the message. */
#define VB_CM_EVENTS(X)                                                                                         \
	X(REQ_RECEIVED)      /* a new connection, the owner's from now on: accept, mra, reject or destroy it */ \
	X(REQ_ERROR)         /* no answer to the REQ; now IDLE */                                               \
	X(REP_RECEIVED)      /* rtu, mra, or reject */                                                          \
	X(REP_ERROR)         /* no answer to the REP; now IDLE */                                               \
	X(RTU_RECEIVED)      /* ESTABLISHED */                                                                  \
	X(USER_ESTABLISHED)  /* by vb_cm_establish */                                                           \
	X(MRA_RECEIVED)      /* the peer needs longer */                                                        \
	X(REJ_RECEIVED)      /* now IDLE, or TIMEWAIT where a queue pair may have been in use */                \
	X(DREQ_RECEIVED)     /* dreply; nothing to do where the state is TIMEWAIT: both disconnected at once */ \
	X(DREP_RECEIVED)     /* TIMEWAIT */                                                                     \
	X(DREQ_ERROR)        /* no answer to the DREQ; TIMEWAIT */                                              \
	X(TIMEWAIT_EXIT)     /* IDLE: the queue pair's number may be used again */                              \
	X(SIDR_REQ_RECEIVED) /* the owner's from now on: sidr_reply or destroy it */                            \
	X(SIDR_REP_RECEIVED) /* now IDLE */                                                                     \
	X(SIDR_ERROR)        /* no answer; now IDLE */

enum vb_cm_event_kind {
#define X(name) VB_CM_##name,
	VB_CM_EVENTS(X)
#undef X
};

struct vb_cm_event {
	enum vb_cm_event_kind kind;
	const struct vb_cm_msg *msg; /* of the peer, for the length of the call; NULL with the others */
};

const char *vb_cm_event_text(enum vb_cm_event_kind kind);
const char *vb_cm_state_text(enum vb_cm_state state);

/* Between whom a message goes: queue pair 1 of both. */
struct vb_cm_addr {
	uint8_t local[VB_GID_LEN], remote[VB_GID_LEN];
	uint32_t port; /* the owner's: which of its interfaces. Handed back with what is sent, not compared */
};

#define VB_CM_NONE 0 /* where another place of the table is named: by its index and one */
#define VB_CM_IGNORE UINT16_MAX

/* What belongs to a place of the table, not to the connection that is there. Of one never used: zeros. */
struct vb_cm_place {
	uint32_t tag;              /* the last one used */
	uint32_t id_head, qp_head; /* first of a bucket */
	uint32_t heap;             /* who is at this place of the heap of deadlines: an index */
	uint32_t next_free;
};

struct vb_cm_conn {
	/* for the owner to read */
	uint8_t state;     /* enum vb_cm_state */
	bool active;       /* we sent the REQ, or SIDR_REQ */
	uint8_t transport; /* enum vb_cm_transport */
	uint32_t local_comm_id, remote_comm_id;
	uint32_t local_qpn, remote_qpn;
	uint64_t service_id;
	struct vb_cm_addr addr;
	void *own; /* the owner's: set by it, NULL at first */

	/* the rest is ours */
	struct vb_cm_place place;
	bool used, orphan; /* orphan: destroyed by the owner; no events any more, free as soon as it is IDLE */
	bool sidr;
	bool in_ids, in_qps;
	bool has_mad;
	uint8_t retries, max_retries; /* left; in all */
	uint8_t ack_timeout;
	uint64_t tid; /* of the REQ and its answers */
	/* of the DREQ, whoever sent it; before that, of the question whether the peer knows the connection */
	uint64_t dreq_tid;
	uint64_t local_guid, remote_guid;
	uint64_t timeout;          /* ns to the next repetition */
	uint64_t deadline;         /* 0: none */
	uint32_t heap_at;          /* and one; VB_CM_NONE: no deadline */
	uint32_t id_next, qp_next; /* in the same bucket */
	uint8_t mad[VB_MAD_LEN];   /* what this state repeats: REQ, MRA, REP, RTU, DREQ, DREP, REJ, SIDR_REQ */
};

/* How the table reaches the world. */
struct vb_cm_ops {
	/*
	 * May this REQ or SIDR_REQ become a connection? 0: yes. Otherwise what it is refused with (enum vb_cm_reason;
	 * enum vb_cm_sidr_status), or VB_CM_IGNORE: no answer. Listeners and backlogs are counted here. Calls nothing
	 * of this table.
	 */
	uint16_t (*admit)(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg);
	/* One datagram to queue pair 1. May be lost. Calls nothing of this table. */
	void (*send)(void *own, const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN]);
	/* May call any function below, for this connection or another, vb_cm_destroy too; but not input and timeout. */
	void (*event)(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event);
};

struct vb_cm_config {
	uint32_t lane;
	uint64_t key[2]; /* random: nobody else may know them */
	/* Codes of vb_cm_time, the longest that a peer's word counts for; 0: */
	uint8_t max_service;  /* 24, 69 s: what it asks for in MRA */
	uint8_t max_response; /* 21, 8.6 s: the time between our repetitions */
	uint8_t max_timewait; /* 20, 4.3 s */
};

/* Bounded, and all of it: the owner keeps it and conns[]. One thread at a time. */
struct vb_cm {
	struct vb_cm_config cfg;
	const struct vb_cm_ops *ops;
	void *own;
	struct vb_cm_conn *conns;
	uint32_t len, index_bits;
	uint32_t fresh; /* places from here on were never used */
	uint32_t free_first, free_last, nfree, used, heap_len;
	uint64_t drawn; /* random numbers */
};

/* conns: zeros, so that memory is there from its first use only. len: a power of two, at most VB_CM_MAX_CONNS. */
void vb_cm_init(struct vb_cm *cm, const struct vb_cm_config *cfg, const struct vb_cm_ops *ops, void *own,
                struct vb_cm_conn *conns, uint32_t len);

/*
 * What the owner does. A connection is the owner's from vb_cm_connect, vb_cm_sidr_request, REQ_RECEIVED or
 * SIDR_REQ_RECEIVED to vb_cm_destroy, which each needs once. false: not in this state. Private data that is shorter
 * than its field is filled up with zeros by the caller, or by us where there is a length; NULL and 0: none. Times are
 * ns of any clock that does not go back, and not 0.
 */

/* The ids in *req are filled in here; timeouts and retries are taken from it: remote_response_timeout and
 * primary.ack_timeout together are the time to the next repetition. NULL: the table is full. */
struct vb_cm_conn *vb_cm_connect(struct vb_cm *cm, const struct vb_cm_addr *addr, const struct vb_cm_req *req,
                                 void *own, uint64_t now);
/* REQ_RCVD, MRA_REQ_SENT. The ids in *rep are filled in here. */
bool vb_cm_accept(struct vb_cm *cm, struct vb_cm_conn *conn, const struct vb_cm_rep *rep, uint64_t now);
/* REP_RCVD, MRA_REP_SENT: ESTABLISHED. */
bool vb_cm_rtu(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* REP_SENT, MRA_REP_RCVD: data has come before the RTU (IBV_EVENT_COMM_EST): ESTABLISHED. */
bool vb_cm_establish(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now);
/* REQ_RCVD, REP_RCVD: we need longer, at most 4.096 us * 2^service_timeout. later: it is said only when the peer asks
 * again. */
bool vb_cm_mra(struct vb_cm *cm, struct vb_cm_conn *conn, uint8_t service_timeout, bool later, const void *private_data,
               size_t len, uint64_t now);
/* Any state before ESTABLISHED: IDLE, or TIMEWAIT if a REP was sent. */
bool vb_cm_reject(struct vb_cm *cm, struct vb_cm_conn *conn, uint16_t reason, const void *ari, size_t ari_len,
                  const void *private_data, size_t len, uint64_t now);
/* ESTABLISHED. */
bool vb_cm_disconnect(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* DREQ_RCVD: TIMEWAIT. */
bool vb_cm_dreply(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* timeout: ns to the next repetition. NULL: the table is full. */
struct vb_cm_conn *vb_cm_sidr_request(struct vb_cm *cm, const struct vb_cm_addr *addr, const struct vb_cm_sidr_req *req,
                                      uint64_t timeout, uint8_t retries, void *own, uint64_t now);
/* SIDR_REQ_RCVD: IDLE. request_id and service_id in *rep are filled in here. */
bool vb_cm_sidr_reply(struct vb_cm *cm, struct vb_cm_conn *conn, const struct vb_cm_sidr_rep *rep, uint64_t now);
/* Any state. The peer is told what it has to know: REJ, DREQ, DREP. The pointer is no longer the caller's. */
void vb_cm_destroy(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now);

/* A broker that comes after one that died knows of no connection: say is called for each whose peer has to hear of
 * this program's death. It calls nothing of this table. What was sent and not answered may have been lost with that
 * broker: it is sent again. */
void vb_cm_again(struct vb_cm *cm, void (*say)(void *own, const struct vb_cm_conn *conn));

/* The connection with this id, unless it was destroyed; NULL. */
struct vb_cm_conn *vb_cm_find(struct vb_cm *cm, uint32_t local_comm_id);

/* A datagram that came to queue pair 1 and was routed here: any bytes. */
void vb_cm_input(struct vb_cm *cm, const struct vb_cm_addr *from, const uint8_t *mad, size_t len, uint64_t now);
/* When vb_cm_timeout is to be called; 0: never. */
uint64_t vb_cm_deadline(const struct vb_cm *cm);
void vb_cm_timeout(struct vb_cm *cm, uint64_t now);

/*
 * Where a datagram belongs. A REQ comes again when its REP is late, and listeners may be gone by then: it goes to who
 * listened last for as long as that lane lives, whose table knows it, and whose admit refuses what is new.
 */
enum vb_cm_route {
	VB_CM_TO_SERVICE, /* REQ, SIDR_REQ: to who listens; nobody: vb_cm_make_rej, vb_cm_make_sidr_rep */
	VB_CM_TO_LANE,    /* to the owner of the lane, if the lane has one; otherwise vb_cm_make_unknown */
	VB_CM_TO_ALL, /* a REJ from one who never learnt our id: to every owner who listens; all but one ignore it */
	VB_CM_DROP,   /* no message of connection management */
};

struct vb_cm_route_info {
	enum vb_cm_attr attr;
	uint32_t comm_id, lane; /* VB_CM_TO_LANE: ours */
	uint64_t service_id;    /* VB_CM_TO_SERVICE; the rest as well */
	bool port_space;        /* ps and port are of the service id */
	enum vb_port_space ps;
	uint16_t port; /* the destination's */
	bool cma;      /* and this is what stands in front of the private data */
	struct vb_cma hdr;
};

/* *out: zeros where it does not apply. */
enum vb_cm_route vb_cm_route(const uint8_t *mad, size_t len, struct vb_cm_route_info *out);

/* Answers to a datagram without any table. false: not one that is answered so. */
/* REQ, REP. */
bool vb_cm_make_rej(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len, uint16_t reason);
/* SIDR_REQ. */
bool vb_cm_make_sidr_rep(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len, uint8_t status);
/* The id by which the sender of a message calls the connection, or what it asks for; 0: the message has none. */
uint32_t vb_cm_sender_id(const uint8_t *mad, size_t len);
/* What goes to one whose message names a connection that does not exist: REP: REJ; DREQ: DREP; LAP: APR. */
bool vb_cm_make_unknown(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len);

#endif
