// iwarp.h - RDMAP streams as functions of bytes: what the owner of sockets, clocks and memory calls
// follows: RFC 5040 (RDMAP), RFC 5041 (DDP), RFC 5044 (MPA), RFC 5042 (security), RFC 7306 (atomics, immediate data)
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_IWARP_H
#define VB_ENGINE_IWARP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "engine/iwarp/stats.h"
#include "engine/work.h"
#include "frame/header.h"

#define VB_IW_PIECES 40       /* pieces of memory that one call of ops may give */
#define VB_IW_DIRECT_MIN 4096 /* payload of an FPDU from here on is received in place */
#define VB_IW_STAGE_MIN (160u << 10)
#define VB_IW_OUT_MIN (72u << 10)
#define VB_IW_EMSS_MIN 128        /* smaller ones are taken for this */
#define VB_IW_LARGE (32768u + 20) /* bytes of an FPDU at most, between two that say so: 32 KiB of a write */

/*
 * How a stream reaches queues and memory. Called only from within the functions below, for one stream by one thread at
 * a time; none may call back into them. Pieces: at most VB_IW_PIECES, of `len` bytes in all; -1: no access. Memory that
 * is named may still be unmapped: it is touched by the kernel, or by copy_in and copy_out, never by the engine.
 */
struct vb_iw_ops {
	/* as in struct vb_roce_ops; RDMAP has no send with immediate data: it fails with LOC_QP_OP_ERR. failed: with
	 * VB_WORK_EVENT_SQ there may have been nothing to complete, if what the peer's Terminate is about was long
	 * sent */
	bool (*next_send)(void *own, struct vb_work *rq);
	void (*complete_send)(void *own, const struct vb_work *rq, enum vb_work_status status);
	bool (*local)(void *own, const struct vb_work *rq);
	bool (*take_receive)(void *own, uint32_t *room);
	void (*complete_receive)(void *own, const struct vb_receipt *receipt);
	enum vb_memory_result (*atomic)(void *own, bool add, const struct vb_atomic *a, uint64_t *original);
	bool (*invalidate)(void *own, uint32_t stag);
	void (*failed)(void *own, enum vb_work_event event);

	/* What a send or write sends; where a read's or an atomic's answer goes. */
	int (*source)(void *own, const struct vb_work *rq, uint32_t offset, uint32_t len, struct iovec *iov);
	int (*sink)(void *own, const struct vb_work *rq, uint32_t offset, uint32_t len, struct iovec *iov);
	/* The name that our own sink has in a Read Request: any STag and offset will do, answers are matched by
	 * their order. */
	void (*sink_name)(void *own, const struct vb_work *rq, uint32_t *stag, uint64_t *to);
	/* Of the receive that was taken. */
	int (*sink_receive)(void *own, uint32_t offset, uint32_t len, struct iovec *iov);

	/* May the peer have [to, to + len)? What is wrong decides over the Terminate's code. */
	enum vb_iw_denial {
		VB_IW_GRANTED,
		VB_IW_INVALID_STAG,
		VB_IW_NOT_OURS, /* of another protection domain */
		VB_IW_BOUNDS,
		VB_IW_ACCESS,
		VB_IW_WRAP,
	} (*check)(void *own, uint32_t stag, uint64_t to, uint64_t len, enum vb_right access);
	/* The same check, then the pieces: of a write's target, of a read's source. */
	int (*target)(void *own, uint32_t stag, uint64_t to, uint32_t len, enum vb_right access, struct iovec *iov);

	/* Guarded copies to and from pieces; false: the memory is not there. last: programs poll for the last byte,
	 * which has to be stored last. */
	bool (*copy_in)(void *own, const struct iovec *iov, int n, const void *bytes, uint32_t len, bool last);
	bool (*copy_out)(void *own, const struct iovec *iov, int n, void *bytes, uint32_t len);
};

struct vb_iw_config {
	bool crc;                     /* FPDUs carry a CRC32C that is checked, both ways */
	bool markers_in, markers_out; /* the peer's stream has markers; ours has */
	bool initiator;               /* of MPA: the active side */
	uint32_t emss; /* bytes of an FPDU at most, markers and CRC included; it may change: vb_iw_reconfigure */
	/* RFC 5044 has FPDUs that fit TCP's segments, so that an adapter can place each segment that arrives. Who
	 * reads a stream from a socket gains nothing by it. Two that both are such say so to each other by their
	 * first FPDU, an RDMA write of nothing (an RTR message, and another in return), whose STag and offset mean
	 * nothing to anybody else. */
	bool large;
	uint16_t ird, ord;   /* reads and atomics: served at once, asked for at once; 0: none */
	uint8_t access;      /* enum vb_right: what the queue pair allows at all */
	uint32_t direct_min; /* 0: VB_IW_DIRECT_MIN */
};

/* A Terminate message's cause (RFC 5040, 4.8). */
struct vb_iw_terminate {
	uint8_t layer, etype, code; /* layer: 0 RDMAP, 1 DDP, 2 MPA (LLP) */
};

enum vb_iw_end {
	VB_IW_FIN,   /* the peer's stream has ended between two FPDUs, or in the middle of one */
	VB_IW_RESET, /* the connection was reset, or timed out */
	VB_IW_FAULT, /* memory given by vb_iw_room or vb_iw_output could not be touched (EFAULT) */
};

struct vb_iw_qp; /* engine/iwarp/state.h: the owner embeds it; it looks at no member but stats */

/*
 * sends: sends_len entries (a power of two), how many send requests may be under way. stage: the caller's memory for
 * what cannot be received in place, VB_IW_STAGE_MIN bytes at least; untouched pages of it stay so. out: the same for
 * headers and for what cannot be sent from where it lies (all FPDUs where there is a CRC), VB_IW_OUT_MIN bytes at
 * least.
 */
void vb_iw_init(struct vb_iw_qp *q, const struct vb_iw_config *cfg, const struct vb_iw_ops *ops, void *own,
                struct vb_work_sent *sends, uint32_t sends_len, uint8_t *stage, size_t stage_len, uint8_t *out,
                size_t out_len);
/* emss, access, ord, ird. */
void vb_iw_reconfigure(struct vb_iw_qp *q, const struct vb_iw_config *cfg);
/* The peer-to-peer ready-to-receive message of RFC 6581: the first FPDU out is a zero-length one of this kind, for
 * which no completion is made; expected as the first in, it is taken without a receive. */
enum vb_iw_rtr { VB_IW_RTR_NONE, VB_IW_RTR_SEND, VB_IW_RTR_WRITE, VB_IW_RTR_READ };
void vb_iw_send_rtr(struct vb_iw_qp *q, enum vb_iw_rtr kind);
void vb_iw_expect_rtr(struct vb_iw_qp *q, enum vb_iw_rtr kind);
/* Nothing of ours goes out before the peer's first FPDU has come (RFC 5044, 7.1: the responder of a connection). */
void vb_iw_hold_until_input(struct vb_iw_qp *q);
void vb_iw_hold_no_longer(struct vb_iw_qp *q);

/* Where the next bytes of the stream are to be received: memory in place if a large FPDU is under way, then the stage.
 * Returns the number of pieces, 0: nothing more is read, the stream is over or starved. */
int vb_iw_room(struct vb_iw_qp *q, struct iovec *iov, int max);
/* n bytes are there, as vb_iw_room said. */
void vb_iw_received(struct vb_iw_qp *q, size_t n);
/* The same from elsewhere (what came behind the MPA reply; a simulator). Returns how much was taken: all of it,
 * unless the stream is starved and the stage full. */
size_t vb_iw_input(struct vb_iw_qp *q, const void *bytes, size_t len);

/*
 * A message comes for which no receive is posted. RFC 5041, 7.1 lets it end the stream, or be seen to by means of the
 * protocol below. Programs written for InfiniBand rely on its receiver-not-ready retries, so the message waits: the
 * stream is starved, nothing more is taken in, TCP's flow control holds the peer. All that stands behind it in the
 * stream waits too, the answers to our own reads among it. What we have to send still goes out.
 */
bool vb_iw_starved(const struct vb_iw_qp *q);
/* There may be a receive now: it goes on, or is starved again. */
void vb_iw_retry(struct vb_iw_qp *q);
/* There is none, and will not be: the stream ends as the standard says (unless there is one after all). */
void vb_iw_give_up(struct vb_iw_qp *q);
/* Nothing stands in stage and out: what is there may be lost. */
bool vb_iw_empty(const struct vb_iw_qp *q);

/* What to send next, `most` bytes at the least if there is so much (and VB_IW_FPDUS of state.h at most, and what the
 * pieces take): pieces, 0 if there is nothing. They are good until the next call of any function here, and while no
 * region is deregistered. To be asked again after a post, after input, and after vb_iw_sent (a local request may
 * have waited for it) until it gives 0. max: 2 at least. */
int vb_iw_output(struct vb_iw_qp *q, struct iovec *iov, int max, size_t most);
/* Nothing is to be sent, but for requests that were not taken. */
bool vb_iw_quiet(const struct vb_iw_qp *q);
/* n bytes of it have been handed over. Sends and writes complete by it. */
void vb_iw_sent(struct vb_iw_qp *q, size_t n);

/* SQD and back. Drained when vb_iw_idle. */
void vb_iw_pause(struct vb_iw_qp *q, bool paused);
bool vb_iw_idle(const struct vb_iw_qp *q);
/* The program ends the stream: what was taken is flushed, no callback comes after. terminate: a Terminate is still
 * put out by vb_iw_output if the stream stands between two FPDUs. */
void vb_iw_abort(struct vb_iw_qp *q, bool terminate);
/* The connection has ended. What was taken completes: flushed, or with the error that a Terminate told (by then it
 * has). ops->failed is not called. */
void vb_iw_closed(struct vb_iw_qp *q, enum vb_iw_end how);

/* After a failure, in either direction: nothing is taken in or sent any more but a Terminate; when vb_iw_output has
 * nothing left, the connection is to be closed. */
bool vb_iw_over(const struct vb_iw_qp *q);
/* The Terminate that we sent, or that came; false: none. */
bool vb_iw_sent_terminate(const struct vb_iw_qp *q, struct vb_iw_terminate *t);
bool vb_iw_got_terminate(const struct vb_iw_qp *q, struct vb_iw_terminate *t);

#endif
