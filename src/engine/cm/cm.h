// cm.h - connection management as functions of messages and time; the caller has queue pair 1 and a clock
// follows: IBA volume 1, 12.9 (states and transitions), 12.10 (disconnecting, timewait), 12.11 (SIDR); annex A11
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_CM_H
#define VB_ENGINE_CM_H

#include "frame/cm.h"

/*
 * The ten high bits of a communication id are its owner's lane, as in a QP number, so that a shared receiver can
 * forward replies without a table. The other 22 bits are the connection's place in the table and a tag that changes
 * each time the place is used. They are permuted with a secret key, so that an id reveals nothing about other ids.
 */
#define VB_CM_LANE_BITS 10
#define VB_CM_MAX_CONNS (1u << 16)

static inline uint32_t vb_cm_lane_of(uint32_t comm_id)
{
	return comm_id >> (32 - VB_CM_LANE_BITS);
}

/* X(NAME), with the names of ib_cm. IDLE: the exchange has ended, after REJ, an error, timewait, or SIDR_REP. */
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

/* X(NAME): events for the owner. Those that end in RECEIVED carry the message. */
#define VB_CM_EVENTS(X)                                                                                    \
	X(REQ_RECEIVED)      /* a new connection, which the owner must accept, mra, reject or destroy */   \
	X(REQ_ERROR)         /* no answer to the REQ; now IDLE */                                          \
	X(REP_RECEIVED)      /* rtu, mra, or reject */                                                     \
	X(REP_ERROR)         /* no answer to the REP; now IDLE */                                          \
	X(RTU_RECEIVED)      /* ESTABLISHED */                                                             \
	X(USER_ESTABLISHED)  /* by vb_cm_establish */                                                      \
	X(MRA_RECEIVED)      /* the peer needs more time */                                                \
	X(REJ_RECEIVED)      /* now IDLE, or TIMEWAIT if a queue pair may have been in use */              \
	X(DREQ_RECEIVED)     /* dreply; in TIMEWAIT, when both ends disconnected at once, nothing to do */ \
	X(DREP_RECEIVED)     /* TIMEWAIT */                                                                \
	X(DREQ_ERROR)        /* no answer to the DREQ; TIMEWAIT */                                         \
	X(TIMEWAIT_EXIT)     /* IDLE: the queue pair's number may be reused */                             \
	X(SIDR_REQ_RECEIVED) /* a new request, which the owner must sidr_reply or destroy */               \
	X(SIDR_REP_RECEIVED) /* now IDLE */                                                                \
	X(SIDR_ERROR)        /* no answer; now IDLE */

enum vb_cm_event_kind {
#define X(name) VB_CM_##name,
	VB_CM_EVENTS(X)
#undef X
};

struct vb_cm_event {
	enum vb_cm_event_kind kind;
	const struct vb_cm_msg *msg; /* the peer's message, valid during the call; NULL with other events */
};

const char *vb_cm_event_text(enum vb_cm_event_kind kind);
const char *vb_cm_state_text(enum vb_cm_state state);

/* The addresses of a message. Source and destination are queue pair 1 of both hosts. */
struct vb_cm_addr {
	uint8_t local[VB_GID_LEN], remote[VB_GID_LEN];
	uint32_t ifindex; /* passed to send, not compared */
};

#define VB_CM_NONE 0 /* no place; links are a place's index plus one */
#define VB_CM_IGNORE UINT16_MAX

/* The part of a table entry that belongs to the place, not to the connection in it. All zeros if it was never used. */
struct vb_cm_place {
	uint32_t tag;              /* the last one used */
	uint32_t id_head, qp_head; /* first connection of the hash bucket */
	uint32_t heap;             /* the connection at this position of the heap of deadlines: an index */
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
	void *own; /* the owner's pointer; NULL at first */

	/* the rest is private */
	struct vb_cm_place place;
	bool used, orphan; /* orphan: the owner has destroyed it; raises no events, and is freed when it is IDLE */
	bool sidr;
	bool in_ids, in_qps;
	bool has_mad;
	uint8_t retries, max_retries; /* retries: how many are left */
	uint8_t ack_timeout;
	uint64_t tid; /* of the REQ and its answers */
	/* of either side's DREQ; before that, of the DREQ that asks whether the peer knows the connection (input.c) */
	uint64_t dreq_tid;
	uint64_t local_guid, remote_guid;
	uint64_t timeout;          /* ns to the next repetition */
	uint64_t deadline;         /* 0: none */
	uint32_t heap_at;          /* position in the heap plus one; VB_CM_NONE: no deadline */
	uint32_t id_next, qp_next; /* the next connection in the same hash bucket */
	/* the message that this state repeats: REQ, MRA, REP, RTU, DREQ, DREP, REJ, SIDR_REQ */
	uint8_t mad[VB_MAD_LEN];
};

/* Callbacks of the table. */
struct vb_cm_ops {
	/*
	 * May this REQ or SIDR_REQ become a connection? Returns 0 for yes, a reason to refuse it (enum vb_cm_reason;
	 * enum vb_cm_sidr_status), or VB_CM_IGNORE to send no answer. The owner checks listeners and backlogs here.
	 * Must not call functions of this table.
	 */
	uint16_t (*admit)(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg);
	/* Sends one datagram to queue pair 1. It may be lost. Must not call functions of this table. */
	void (*send)(void *own, const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN]);
	/* May call any function below for this or another connection, also vb_cm_destroy, but not vb_cm_input and
	 * vb_cm_timeout. */
	void (*event)(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event);
};

struct vb_cm_config {
	uint32_t lane;
	uint64_t key[2]; /* random and secret */
	/* The longest times that a peer may ask for, as codes of vb_cm_time. 0 means the default: */
	uint8_t max_service;  /* service time in MRA: 24, which is 69 s */
	uint8_t max_response; /* time between our repetitions: 21, 8.6 s */
	uint8_t max_timewait; /* timewait: 20, 4.3 s */
};

/* The table, of fixed size. The owner provides it and conns[]. One thread at a time. */
struct vb_cm {
	struct vb_cm_config cfg;
	const struct vb_cm_ops *ops;
	void *own;
	struct vb_cm_conn *conns;
	uint32_t len, index_bits;
	uint32_t fresh; /* places from this index on were never used */
	uint32_t free_first, free_last, nfree, used, heap_len;
	uint64_t drawn; /* count of random numbers drawn from key */
};

/* conns: all zeros, so that pages may be allocated at first use. len: a power of two, at most VB_CM_MAX_CONNS. */
void vb_cm_init(struct vb_cm *cm, const struct vb_cm_config *cfg, const struct vb_cm_ops *ops, void *own,
                struct vb_cm_conn *conns, uint32_t len);

/*
 * Functions for the owner. The owner holds a connection from vb_cm_connect, vb_cm_sidr_request, REQ_RECEIVED or
 * SIDR_REQ_RECEIVED until vb_cm_destroy, which it must call once for each. The functions return false if the state does
 * not allow the call. Private data that is shorter than its field is padded with zeros, by the function if it has a
 * length argument, otherwise by the caller. NULL and 0: no private data. Times are ns of a monotonic clock, and not 0.
 */

/* Sends a REQ. Fills in the ids. Uses the timeouts and retries of *req: the time to the next repetition is
 * remote_response_timeout plus primary.ack_timeout. Returns NULL if the table is full. */
struct vb_cm_conn *vb_cm_connect(struct vb_cm *cm, const struct vb_cm_addr *addr, const struct vb_cm_req *req,
                                 void *own, uint64_t now);
/* In REQ_RCVD or MRA_REQ_SENT: sends a REP. Fills in its ids. */
bool vb_cm_accept(struct vb_cm *cm, struct vb_cm_conn *conn, const struct vb_cm_rep *rep, uint64_t now);
/* In REP_RCVD or MRA_REP_SENT: sends an RTU, goes to ESTABLISHED. */
bool vb_cm_rtu(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* In REP_SENT or MRA_REP_RCVD: goes to ESTABLISHED, because data arrived before the RTU (IBV_EVENT_COMM_EST). */
bool vb_cm_establish(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now);
/* In REQ_RCVD or REP_RCVD: asks for more time, at most 4.096 us * 2^service_timeout. later: sends the MRA only when
 * the peer repeats its message. */
bool vb_cm_mra(struct vb_cm *cm, struct vb_cm_conn *conn, uint8_t service_timeout, bool later, const void *private_data,
               size_t len, uint64_t now);
/* In any state before ESTABLISHED: sends a REJ, goes to IDLE, or to TIMEWAIT if a REP was sent. */
bool vb_cm_reject(struct vb_cm *cm, struct vb_cm_conn *conn, uint16_t reason, const void *ari, size_t ari_len,
                  const void *private_data, size_t len, uint64_t now);
/* In ESTABLISHED: sends a DREQ. */
bool vb_cm_disconnect(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* In DREQ_RCVD: sends a DREP, goes to TIMEWAIT. */
bool vb_cm_dreply(struct vb_cm *cm, struct vb_cm_conn *conn, const void *private_data, size_t len, uint64_t now);
/* Sends a SIDR_REQ. timeout: ns to the next repetition. Returns NULL if the table is full. */
struct vb_cm_conn *vb_cm_sidr_request(struct vb_cm *cm, const struct vb_cm_addr *addr, const struct vb_cm_sidr_req *req,
                                      uint64_t timeout, uint8_t retries, void *own, uint64_t now);
/* In SIDR_REQ_RCVD: sends a SIDR_REP, goes to IDLE. Fills in its request_id and service_id. */
bool vb_cm_sidr_reply(struct vb_cm *cm, struct vb_cm_conn *conn, const struct vb_cm_sidr_rep *rep, uint64_t now);
/* In any state: sends the peer a REJ, DREQ or DREP if it needs one. The pointer is invalid afterwards. */
void vb_cm_destroy(struct vb_cm *cm, struct vb_cm_conn *conn, uint64_t now);

/* Called when a new broker, which does not know the connections, has replaced one that died. Calls say for each
 * connection whose peer the broker must tell if this program dies; say must not call functions of this table. Repeats
 * unanswered messages, which may have been lost with the old broker. */
void vb_cm_again(struct vb_cm *cm, void (*say)(void *own, const struct vb_cm_conn *conn));

/* The connection with this id, or NULL if there is none or it was destroyed. */
struct vb_cm_conn *vb_cm_find(struct vb_cm *cm, uint32_t local_comm_id);

/* Processes a datagram for queue pair 1 that was routed here. The bytes are untrusted. */
void vb_cm_input(struct vb_cm *cm, const struct vb_cm_addr *from, const uint8_t *mad, size_t len, uint64_t now);
/* The time to call vb_cm_timeout; 0: never. */
uint64_t vb_cm_deadline(const struct vb_cm *cm);
void vb_cm_timeout(struct vb_cm *cm, uint64_t now);

/*
 * The destination of a datagram. A peer repeats a REQ when its REP is late, and the listener may have ended by then.
 * The REQ is still routed to the last listener's lane while that exists. Its table knows the REQ, and its admit refuses
 * new ones.
 */
enum vb_cm_route {
	VB_CM_TO_SERVICE, /* REQ, SIDR_REQ: to the listener. If there is none: vb_cm_make_rej, vb_cm_make_sidr_rep */
	VB_CM_TO_LANE,    /* to the owner of the lane. If there is none: vb_cm_make_unknown */
	VB_CM_TO_ALL,     /* a REJ of a peer that does not know our id: to each program that is connected with its id */
	VB_CM_DROP,       /* not a message of connection management */
};

struct vb_cm_route_info {
	enum vb_cm_attr attr;
	uint32_t comm_id, lane; /* VB_CM_TO_LANE: our id and its lane */
	uint64_t service_id;    /* VB_CM_TO_SERVICE, like the members below */
	bool port_space;        /* the service id is of a port space: ps and port are valid */
	enum vb_port_space ps;
	uint16_t port; /* the destination's */
	bool cma;      /* hdr is valid: the header before the private data */
	struct vb_cma hdr;
};

/* Fields of *out that do not apply are zero. */
enum vb_cm_route vb_cm_route(const uint8_t *mad, size_t len, struct vb_cm_route_info *out);

/* Answers that need no table. They return false if the datagram needs no such answer. */
/* To REQ or REP. */
bool vb_cm_make_rej(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len, uint16_t reason);
/* To SIDR_REQ. */
bool vb_cm_make_sidr_rep(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len, uint8_t status);
/* The sender's id of the connection or request; 0: the message has none. */
uint32_t vb_cm_sender_id(const uint8_t *mad, size_t len);
/* The answer to a message for a connection that does not exist: REJ to REP, DREP to DREQ, APR to LAP. */
bool vb_cm_make_unknown(uint8_t out[VB_MAD_LEN], const uint8_t *mad, size_t len);

#endif
