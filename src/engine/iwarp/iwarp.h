// iwarp.h - RDMAP streams as functions of bytes; the caller has the sockets and the memory
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

#define VB_IW_PIECES 40       /* the most pieces of memory that one callback may return */
#define VB_IW_DIRECT_MIN 4096 /* an FPDU with at least this payload is received in place */
#define VB_IW_STAGE_MIN (160u << 10)
#define VB_IW_OUT_MIN (72u << 10)
#define VB_IW_EMSS_MIN 128        /* smaller values are raised to this */
#define VB_IW_LARGE (32768u + 20) /* the most bytes of an FPDU if both ends support large ones: 32 KiB of a write */

/*
 * Callbacks for queues and memory. They are called only from the functions below, for one stream by one thread at a
 * time, and must not call those functions. Callbacks that return pieces of memory return at most VB_IW_PIECES of them,
 * with `len` bytes in all, or -1 if access is denied. The memory may be unmapped, so the engine does not access it:
 * only the kernel, copy_in and copy_out do.
 */
struct vb_iw_ops {
	/* As in struct vb_roce_ops. A send with immediate data fails with LOC_QP_OP_ERR, because RDMAP has none. After
	 * failed(VB_WORK_EVENT_SQ) possibly no request has completed with an error, because the peer's Terminate may
	 * concern a request that had completed before. */
	bool (*next_send)(void *own, struct vb_work *work);
	void (*complete_send)(void *own, const struct vb_work *work, enum vb_work_status status);
	/* Invalidates work->imm. Returns false if there is no such key. */
	enum vb_local (*local)(void *own, const struct vb_work *work);
	bool (*take_receive)(void *own, uint32_t *room);
	void (*complete_receive)(void *own, const struct vb_receipt *receipt);
	enum vb_memory_result (*atomic)(void *own, bool add, const struct vb_atomic *a, uint64_t *original);
	bool (*invalidate)(void *own, uint32_t stag);
	void (*failed)(void *own, enum vb_work_event event);

	/* Source: the data of a send or write. Sink: the memory for the response to a read or atomic. */
	int (*source)(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov);
	int (*sink)(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov);
	/* STag and offset of our sink for a Read Request. Any values will do, because responses are matched by their
	 * order. */
	void (*sink_name)(void *own, const struct vb_work *work, uint32_t *stag, uint64_t *to);
	/* The memory of the taken receive. */
	int (*sink_receive)(void *own, uint32_t offset, uint32_t len, struct iovec *iov);

	/* May the peer access [to, to + len)? The reason for a denial determines the Terminate's code. */
	enum vb_iw_denial {
		VB_IW_GRANTED,
		VB_IW_INVALID_STAG,
		VB_IW_NOT_OURS, /* of another protection domain */
		VB_IW_BOUNDS,
		VB_IW_ACCESS,
		VB_IW_WRAP,
	} (*check)(void *own, uint32_t stag, uint64_t to, uint64_t len, enum vb_right access);
	/* The same check, then the pieces of a write's target or a read's source. */
	int (*target)(void *own, uint32_t stag, uint64_t to, uint32_t len, enum vb_right access, struct iovec *iov);

	/* Guarded copies to and from pieces. They return false if the memory is not mapped. last: stores the last
	 * byte last, because programs poll for it. */
	bool (*copy_in)(void *own, const struct iovec *iov, int n, const void *bytes, uint32_t len, bool last);
	bool (*copy_out)(void *own, const struct iovec *iov, int n, void *bytes, uint32_t len);
};

struct vb_iw_config {
	bool crc;                     /* FPDUs of both directions carry a CRC32C, which is checked */
	bool markers_in, markers_out; /* the peer's stream has markers; ours has */
	bool initiator;               /* of MPA: the active side */
	uint32_t emss; /* the most bytes of an FPDU, markers and CRC included; vb_iw_reconfigure may change it */
	/* RFC 5044 makes FPDUs fit TCP's segments, so that an adapter can place each segment that arrives. An
	 * implementation on a socket gains nothing by that, and large FPDUs are faster. Two ends that support large
	 * FPDUs recognise each other by their first FPDU: an RDMA write of length 0 (the RTR message, and another one
	 * in return), whose STag and offset mean nothing to other implementations. */
	bool large;
	uint16_t ird, ord;   /* the most outstanding reads and atomics of the peer (ird), of this side (ord) */
	uint8_t access;      /* enum vb_right: access that the queue pair allows */
	uint32_t direct_min; /* 0: VB_IW_DIRECT_MIN */
};

/* The cause in a Terminate message (RFC 5040, 4.8). */
struct vb_iw_terminate {
	uint8_t layer, etype, code; /* layer: 0 RDMAP, 1 DDP, 2 MPA (LLP) */
};

enum vb_iw_end {
	VB_IW_FIN,   /* the peer's stream has ended between two FPDUs, or in the middle of one */
	VB_IW_RESET, /* the connection was reset, or timed out */
	VB_IW_FAULT, /* the kernel could not access memory from vb_iw_room or vb_iw_output (EFAULT) */
};

struct vb_iw_qp; /* engine/iwarp/state.h: the owner embeds it and reads no member but stats */

/*
 * sends: sends_len entries (a power of two), the most send requests that may be outstanding. stage: the caller's memory
 * for data that cannot be received in place, at least VB_IW_STAGE_MIN bytes. out: memory for headers and for data that
 * cannot be sent in place (all data if there is a CRC), at least VB_IW_OUT_MIN bytes. Pages that are not needed are not
 * touched.
 */
void vb_iw_init(struct vb_iw_qp *q, const struct vb_iw_config *cfg, const struct vb_iw_ops *ops, void *own,
                struct vb_work_sent *sends, uint32_t sends_len, uint8_t *stage, size_t stage_len, uint8_t *out,
                size_t out_len);
/* Changes emss, access, ord and ird. */
void vb_iw_reconfigure(struct vb_iw_qp *q, const struct vb_iw_config *cfg);
/* The ready-to-receive message of RFC 6581 (peer-to-peer mode). send: the first FPDU is of this kind and of length 0,
 * and has no completion. expect: the first incoming FPDU, if it is such a message, consumes no receive. */
enum vb_iw_rtr { VB_IW_RTR_NONE, VB_IW_RTR_SEND, VB_IW_RTR_WRITE, VB_IW_RTR_READ };
void vb_iw_send_rtr(struct vb_iw_qp *q, enum vb_iw_rtr kind);
void vb_iw_expect_rtr(struct vb_iw_qp *q, enum vb_iw_rtr kind);
/* Sends nothing before the peer's first FPDU has arrived (RFC 5044, 7.1: the responder of a connection). */
void vb_iw_hold_until_input(struct vb_iw_qp *q);
void vb_iw_hold_no_longer(struct vb_iw_qp *q);

/* Lists the memory for the next bytes of the stream: their final place if a large FPDU is being received, then the
 * stage. Returns the number of pieces, or 0 if nothing may be read, because the stream is over or starved. */
int vb_iw_room(struct vb_iw_qp *q, struct iovec *iov, int max);
/* Processes n bytes that have been received into the memory from vb_iw_room. */
void vb_iw_received(struct vb_iw_qp *q, size_t n);
/* The same for bytes in other memory (data behind the MPA reply; a simulator). Returns how many were consumed: all,
 * unless the stream is starved and the stage full. */
size_t vb_iw_input(struct vb_iw_qp *q, const void *bytes, size_t len);

/*
 * Has a message arrived for which no receive is posted? RFC 5041, 7.1 allows to end the stream, or to use flow control
 * of the lower protocol. Programs written for InfiniBand rely on RNR retries, so the message waits: the stream is
 * starved, nothing more is read, and TCP's flow control stops the peer. All data behind the message waits too, even
 * responses to our own reads. Output continues.
 */
bool vb_iw_starved(const struct vb_iw_qp *q);
/* Called when a receive may have been posted: continues, or stays starved. */
void vb_iw_retry(struct vb_iw_qp *q);
/* Called when the message has waited too long: ends the stream as RFC 5041 says, unless a receive is posted now. */
void vb_iw_give_up(struct vb_iw_qp *q);
/* Are stage and out empty? Then their contents may be discarded. */
bool vb_iw_empty(const struct vb_iw_qp *q);

/* Lists the data to send next: at least `most` bytes if there is so much data, and if it fits in VB_IW_FPDUS FPDUs
 * (state.h) and in iov. Returns the number of pieces, or 0. They are valid until the next call of any function here,
 * and while no region is deregistered. Call it after a post, after input, and after vb_iw_sent (a local request may
 * have waited for that), until it returns 0. max: at least 2. */
int vb_iw_output(struct vb_iw_qp *q, struct iovec *iov, int max, size_t most);
/* Is there nothing to send, except for requests that were not taken yet? */
bool vb_iw_quiet(const struct vb_iw_qp *q);
/* Called when TCP has accepted n bytes of the output. Completes sends and writes. */
void vb_iw_sent(struct vb_iw_qp *q, size_t n);

/* For SQD, and back to RTS. The send queue has drained when vb_iw_idle is true. */
void vb_iw_pause(struct vb_iw_qp *q, bool paused);
bool vb_iw_idle(const struct vb_iw_qp *q);
/* Called when the program ends the stream: flushes the taken requests. No callback follows. terminate: vb_iw_output
 * still sends a Terminate, if the stream is between two FPDUs. */
void vb_iw_abort(struct vb_iw_qp *q, bool terminate);
/* Called when the connection has ended: flushes the taken requests. After VB_IW_FAULT the request whose memory could
 * not be accessed completes with LOC_PROT_ERR. ops->failed is not called. */
void vb_iw_closed(struct vb_iw_qp *q, enum vb_iw_end how);

/* Has the stream ended? Then only a Terminate may still be sent. Close the connection when vb_iw_output returns 0. */
bool vb_iw_over(const struct vb_iw_qp *q);
/* The Terminate that was sent, or received. They return false if there is none. */
bool vb_iw_sent_terminate(const struct vb_iw_qp *q, struct vb_iw_terminate *t);
bool vb_iw_got_terminate(const struct vb_iw_qp *q, struct vb_iw_terminate *t);

#endif
