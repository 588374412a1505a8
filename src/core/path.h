// path.h - how a queue pair reaches its peer: by shared memory, RoCE, iWARP or a packet socket
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_PATH_H
#define VB_CORE_PATH_H

#include "core/core.h"

enum vb_datagram_result {
	VB_DATAGRAM_SENT,
	VB_DATAGRAM_WAIT,  /* the network cannot take it now */
	VB_DATAGRAM_LOST,  /* there is no network */
	VB_DATAGRAM_FAULT, /* local protection */
};

/* State of a send queue after a kick. */
enum vb_sq_status {
	VB_SQ_GOOD,   /* no request has failed */
	VB_SQ_FAILED, /* the oldest request has failed; vb_path_settle() must follow */
};

/* What fault injection does to a datagram for a program of this host. */
enum vb_datagram_fault {
	VB_DATAGRAM_WHOLE, /* nothing */
	VB_DATAGRAM_DROPPED,
	VB_DATAGRAM_TWICE,
	VB_DATAGRAM_DELAYED, /* those behind it to the same process wait too */
	VB_DATAGRAM_PASSED,  /* it is delayed, and others overtake it */
};

/* Operations of a path. qp->path is set under progress + sq_lock. No function is NULL unless its comment allows it. */
struct vb_path_ops {
	const char *name;
	bool ring;        /* the peer's requests arrive as records of a ring */
	bool socket;      /* data of the peer may be unread in a socket */
	bool only_timers; /* visit() serves its timers only */

	/* Sends what the peer and the network can take. Under sq_lock, in RTS. */
	enum vb_sq_status (*kick)(struct vb_qp *qp);
	/* UD only: asks the rules of fault injection about a datagram that is about to be sent to a program of this
	 * host. *wait: ns, if it is delayed. Under sq_lock. NULL: there are no rules. Beside kick, whose line is read
	 * anyway. */
	enum vb_datagram_fault (*judge)(struct vb_qp *qp, const struct vb_swqe *w, uint64_t *wait);
	/* Handles a failure (QP to ERR or SQE). Shared memory also retires completed requests here. Under progress +
	 * sq_lock. */
	void (*settle)(struct vb_qp *qp);
	/* Makes progress on a QP with unfinished work. finish: waits for sq_lock; otherwise it skips the QP while
	 * another thread is posting. Under progress. Returns the amount of work. */
	unsigned (*visit)(struct vb_qp *qp, bool finish);
	/* The latest time of the next visit, in addition to qp->due; ns, 0: none. NULL: qp->due is enough. Under
	 * progress. */
	uint64_t (*deadline)(struct vb_qp *qp);
	/* Initialises the responder: called on the way to RTR, with the attributes set, before peers on this host can
	 * send to the QP. Under progress + sq_lock. NULL: nothing to do. */
	void (*start_responder)(struct vb_qp *qp);
	/* Called when the QP went from cur to RTS or SQD (or stayed there) and its attributes are set. From RTR to RTS
	 * it initialises the requester. Under progress + sq_lock. NULL: nothing to do. */
	void (*entered)(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
	/* Has it a peer or a network to send to? Under progress + sq_lock. NULL: always. */
	bool (*resolved)(const struct vb_qp *qp);
	/* Have all started requests completed? Under sq_lock. */
	bool (*idle)(const struct vb_qp *qp);
	/* Shared memory: completes requests that the peer has executed, acknowledged or not. Networks: the same as
	 * settle. Under progress + sq_lock. */
	void (*closing)(struct vb_qp *qp);
	/* Called when the program takes the QP to ERR: from then on no data may be sent. Under progress + sq_lock.
	 * NULL: nothing to do. */
	void (*abort)(struct vb_qp *qp);
	/* Called when the QP has left the states that receive: sends the last acknowledgements. Under progress +
	 * sq_lock. */
	void (*closed)(struct vb_qp *qp);
	/* Sends delayed acknowledgements now, because the program may end before they are due. Under progress +
	 * sq_lock. NULL: acknowledgements are not delayed. */
	void (*last_words)(struct vb_qp *qp);
	/* Called when all sends were flushed: stops the timers, and forgets a request that was sent in part. Under
	 * sq_lock. NULL: nothing to do. */
	void (*forget_sends)(struct vb_qp *qp);
	/* The PSNs of the next request to send and of the next one to receive. Under progress + sq_lock. NULL: the path
	 * has no PSNs. */
	void (*next_psns)(const struct vb_qp *qp, uint32_t *sq_psn, uint32_t *rq_psn);
	/* Frees the path's resources, at RESET. Under progress + sq_lock. */
	void (*reset)(struct vb_qp *qp);

	/* UD only: sends to a receiver on another host. datagrams_end sends the datagrams that were collected. Under
	 * sq_lock. */
	enum vb_datagram_result (*datagram)(struct vb_qp *qp, struct vb_swqe *w);
	void (*datagrams_end)(struct vb_qp *qp);
	/* The same as kick for the requests before end, a position like sq_head. NULL: the path makes packets. */
	enum vb_sq_status (*kick_until)(struct vb_qp *qp, uint32_t end);
};

/* Called after the QP's state or its send queue changed: sends what can be sent. Under sq_lock only. */
static inline enum vb_sq_status vb_sq_kick(struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS ? qp->path->kick(qp) : VB_SQ_GOOD;
}

/* Has the QP a path to its peer? Otherwise path/unresolved.c looks for one. Under progress + sq_lock. */
static inline bool vb_path_resolved(const struct vb_qp *qp)
{
	return !qp->path->resolved || qp->path->resolved(qp);
}

#endif
