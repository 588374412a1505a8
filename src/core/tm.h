// tm.h - tag matching: SRQs that choose the receive of a message by the tag in its first bytes
// follows: rdma-core's Documentation/tag_matching.md; ibv_create_srq_ex(3), ibv_post_srq_ops(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_TM_H
#define VB_CORE_TM_H

#include "core/core.h"
#include "frame/tag.h"

struct vb_cqe;

/* The send queue of a queue pair that a program makes without one (max_send_wr 0): each rendezvous takes two requests. */
#define VB_TM_SENDS 16u
#define VB_TM_FIN_LEN (VB_TMH_LEN + VB_RVH_LEN)

enum vb_tag_state {
	VB_TAG_FREE,
	VB_TAG_LISTED,  /* it waits for a message */
	VB_TAG_CHOSEN,  /* by a rendezvous request, whose receive has not completed yet */
	VB_TAG_WAITING, /* for room in the send queue of its queue pair */
	VB_TAG_READING, /* the data of its rendezvous is read */
};

/* A tagged receive. Eager messages copy it into qp->inbound, and it is free again. */
struct vb_tag {
	uint64_t tag, mask, wr_id;
	struct vb_tag *next;  /* in tm->listed, tm->waiting or tm->unused */
	struct vb_qp *qp;     /* of its rendezvous; else NULL */
	struct vb_rvh source; /* of its rendezvous */
	uint64_t length;      /* sum of the sges */
	uint32_t num_sge;
	uint16_t generation; /* the upper half of its handle */
	uint8_t state;       /* enum vb_tag_state */
	bool enabled;        /* the program and the adapter agreed on the unexpected messages since it was added */
	uint8_t fin[VB_TM_FIN_LEN];
	struct ibv_sge sge[VB_MAX_TAG_SGE];
};

/* The part of an SRQ. Under its rq.lock, except where noted. */
struct vb_tm {
	struct vb_srq *srq;
	uint32_t max_tags, max_ops;
	_Atomic uint32_t ops;         /* signaled operations whose completions are in the queue */
	uint16_t unexpected, handled; /* unexpected messages: received, and those that the program says it has seen */
	struct vb_tag *listed, **listed_end;
	struct vb_tag *unused;
	struct vb_tag *waiting, **waiting_end; /* rendezvous that are not posted yet; under progress */
	atomic_uint waits;                     /* their number */
	struct vb_tm *next, **prev;            /* node->tms, under progress */
	struct vb_tag tag[];                   /* max_tags */
};

/* How qp->inbound got its receive; VB_TM_PLAIN: not by tag matching. */
enum vb_tm_kind {
	VB_TM_PLAIN,
	VB_TM_NO_TAG,     /* a receive of the queue, because the message has no tag */
	VB_TM_UNEXPECTED, /* a receive of the queue, because no tag matched */
	VB_TM_MATCHED,
	VB_TM_RENDEZVOUS, /* matched; the message announces data */
	VB_TM_INCOMPLETE, /* the same, and the program must read the data: the headers go into the tagged receive */
};

/* --- the SRQ: tm.c --- */

int vb_tm_check(const struct ibv_context *context, const struct ibv_srq_init_attr_ex *attr);
/* Makes a new SRQ one of tag matching. Returns 0 or an errno value; then it is as before. */
int vb_tm_enter(struct vb_srq *srq, const struct ibv_srq_init_attr_ex *attr);
/* No queue pair has the SRQ any more. */
void vb_tm_leave(struct vb_srq *srq);
/* A completion of the SRQ leaves the queue: the slot of its request is free again. Under cq->lock. */
void vb_tm_leaves(struct vb_rq *rq, enum ibv_wc_opcode opcode);

/* Under rq.lock. */
void vb_tag_free(struct vb_tm *tm, struct vb_tag *t);
/* A message that was unexpected has failed, and is not counted. Under progress. */
void vb_tm_uncount(struct vb_tm *tm);

/* --- messages: tm_match.c, under progress --- */

/* Takes the receive of a message that begins with the n bytes at head, into qp->inbound. single: they are all of it, and
 * one packet. Returns false if the message needs a receive of the queue and there is none. */
bool vb_tm_take(struct vb_qp *qp, const uint8_t *head, uint32_t n, bool single);
/* Bytes of the message before the part that is stored. */
static inline uint32_t vb_tm_skips(uint8_t kind)
{
	return kind == VB_TM_MATCHED ? VB_TMH_LEN : 0;
}
/* Reduces n bytes at offset *off of the message to those that are stored, with their offset in the receive. Returns how
 * many of them come first and are not stored. */
uint32_t vb_tm_clip(const struct vb_qp *qp, uint64_t *off, uint32_t *n);
/* Makes the completion of the message that of a TM-SRQ. */
void vb_tm_complete(struct vb_qp *qp, struct vb_cqe *cqe);
/* The queue pair goes back to RESET or is destroyed: its message and its rendezvous are forgotten. Returns whether the
 * message has a receive of the queue. + sq_lock */
bool vb_tm_abandon(struct vb_qp *qp);

/* --- rendezvous: tm_rndv.c --- */

/* May the adapter read the data itself, over this queue pair? Otherwise the program does. Under progress. */
bool vb_tm_can_read(const struct vb_qp *qp);
/* The request of the rendezvous was received. Under progress. */
void vb_tm_start(struct vb_qp *qp, struct vb_tag *t);
/* Posts what waits for room in send queues. Under progress, no sq_lock. */
void vb_tm_serve(struct vb_node *node);
/* A request of the adapter has ended. Under sq_lock. */
void vb_tm_sent(struct vb_qp *qp, const struct vb_swqe *w, enum ibv_wc_status status);
/* The queue pair is in ERR: rendezvous that wait are flushed. Under progress + sq_lock. */
void vb_tm_flush(struct vb_qp *qp);
/* They are forgotten, as those in progress. Under progress + sq_lock. */
void vb_tm_forget(struct vb_qp *qp);

#endif
