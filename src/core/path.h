// path.h - how a queue pair reaches its peer: by shared memory, RoCE or iWARP
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_PATH_H
#define VB_CORE_PATH_H

#include "core/core.h"

enum vb_datagram_result {
	VB_DATAGRAM_SENT,
	VB_DATAGRAM_WAIT,  /* the network does not take it now */
	VB_DATAGRAM_LOST,  /* there is no network */
	VB_DATAGRAM_FAULT, /* local protection */
};

/* What became of a send queue. */
enum vb_sq_status {
	VB_SQ_GOOD,   /* no request has failed */
	VB_SQ_FAILED, /* the oldest request has failed, and waits for vb_path_settle() */
};

/* qp->path is set under progress + sq_lock. Every function is there unless it says otherwise. */
struct vb_path_ops {
	const char *name;
	bool ring;        /* the peer's requests come as records of a ring */
	bool socket;      /* what the peer said may lie unread in a socket */
	bool only_timers; /* visits are for its timers alone */

	/* Sends what may go. Under sq_lock, in RTS. */
	enum vb_sq_status (*kick)(struct vb_qp *qp);
	/* Retires what has completed, in order, and acts upon failures (QP to ERR or SQE). Under progress + sq_lock. */
	void (*settle)(struct vb_qp *qp);
	/* Looks at a QP with something unfinished. wait: also if somebody is just posting; else the next look will do. Under
	 * progress. Returns work done. */
	unsigned (*visit)(struct vb_qp *qp, bool wait);
	/* When it wants to be visited at the latest, beside qp->due: ns, 0 for never. NULL: qp->due says all. Under progress. */
	uint64_t (*deadline)(struct vb_qp *qp);
	/* The QP went from cur to RTS or SQD (or stayed there), its attributes are in place. Under progress + sq_lock. NULL:
	 * nothing is to be done. */
	void (*entered)(struct vb_qp *qp, enum ibv_qp_state cur, enum ibv_qp_state next);
	/* Is nothing under way that was begun? Under sq_lock. */
	bool (*idle)(const struct vb_qp *qp);
	/* Completes what the peer has executed, whether it has said so or not. Under progress + sq_lock. */
	void (*closing)(struct vb_qp *qp);
	/* The program takes the QP to ERR: what the peer does not have yet it shall not get. Under progress + sq_lock. NULL:
	 * nothing is to be done. */
	void (*abort)(struct vb_qp *qp);
	/* The QP has left the states that receive: the peer gets the last acknowledgements. Under progress + sq_lock. */
	void (*closed)(struct vb_qp *qp);
	/* Says what it still owes the peer: nobody may be left to do so later. Under progress + sq_lock. NULL: it owes nothing. */
	void (*last_words)(struct vb_qp *qp);
	/* Gives back what it holds, at RESET. Under progress + sq_lock. */
	void (*reset)(struct vb_qp *qp);

	/* UD alone, for receivers beyond this host. What was sent goes out at datagrams_end at the latest. Under sq_lock. */
	enum vb_datagram_result (*datagram)(struct vb_qp *qp, struct vb_swqe *w);
	void (*datagrams_end)(struct vb_qp *qp);
};

/* After the QP's state, or its send queue, changed: sends what may go. Under sq_lock only. */
static inline enum vb_sq_status vb_sq_kick(struct vb_qp *qp)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == IBV_QPS_RTS ? qp->path->kick(qp) : VB_SQ_GOOD;
}

#endif
