// state.h - the state of a stream, of fixed size
// follows: RFC 5040, RFC 5041, RFC 5044
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_IWARP_STATE_H
#define VB_ENGINE_IWARP_STATE_H

#include "engine/iwarp/iwarp.h"
#include "frame/rdmap.h"

#define VB_IW_FPDUS 256u   /* the most FPDUs that TCP has not accepted yet; a power of two */
#define VB_IW_ANSWERS 128u /* the most outstanding reads and atomics of the peer, for any cfg.ird; a power of two */
#define VB_IW_HEADER_MAX (VB_DDP_UNTAGGED_LEN + VB_TERMINATE_MAX) /* an atomic request fits in this */
#define VB_IW_COPY_MAX 512u /* payload of up to this size is copied behind its header */

/* The origin of an FPDU. */
enum vb_iw_source { VB_IW_OF_REQUEST, VB_IW_OF_ANSWER, VB_IW_OF_STREAM };

/* An FPDU: `head` bytes of our memory, `ref` bytes of the program's memory, `tail` bytes of our memory. */
struct vb_iw_fpdu {
	uint32_t at; /* position of head in out; tail follows it */
	uint32_t head, ref, tail;
	uint32_t of;     /* index of the request or the answer */
	uint32_t offset; /* of the payload in its message */
	uint32_t payload;
	uint8_t source; /* enum vb_iw_source */
	bool last;      /* the last FPDU of its request or answer */
};

/* A read or atomic of the peer. */
struct vb_iw_answer {
	bool atomic;
	uint32_t msn, sink_stag, stag, length, offset, id;
	uint64_t sink_to, to, original;
};

struct vb_iw_requester {
	bool paused, started;     /* started: in the middle of a message */
	bool fault;               /* sends[cur] cannot be sent, nor any request behind it */
	uint32_t head, cur, tail; /* of sends[]: the oldest, the one being sent, the next to take */
	uint32_t offset;          /* start of cur's next FPDU */
	bool immediate;           /* cur's data is sent, its Immediate Data message is due */
	uint32_t unsent;          /* FPDUs of requests that TCP has not accepted */
	uint32_t rd, rd_next; /* outstanding reads and atomics; the index in sends[] from which to search the oldest */
	uint32_t got;         /* bytes of the response to the oldest read that have arrived */
	uint32_t msn[2];      /* the next MSN of queue 0 and of queue 1 */
	uint8_t rtr;          /* enum vb_iw_rtr: the RTR message that is due */
	bool rtr_read;        /* the response to an RTR read has not arrived yet */
};

struct vb_iw_responder {
	uint32_t msn[4];       /* the next expected MSN of each queue */
	bool active, receive;  /* queue 0: in the middle of a message; a receive is taken */
	uint8_t opcode;        /* of that message */
	uint32_t stag;         /* the STag that it invalidates */
	uint32_t offset, room; /* bytes of it that have arrived; size of the receive */
	uint64_t written;      /* bytes of the current or last RDMA write */
	bool writing;          /* an RDMA write is in progress */
	uint8_t rtr;           /* enum vb_iw_rtr: the RTR message that is expected */
	struct vb_iw_answer answers[VB_IW_ANSWERS];
	uint32_t head, cur, tail; /* the oldest, the one being sent, the next free */
	uint32_t atomic_msn;      /* MSN of the next atomic response that we send */
};

/* A segment whose header is valid. */
struct vb_iw_segment {
	struct vb_ddp ddp;
	uint32_t length; /* of its payload */
};

/* The FPDU that is being received in place. */
struct vb_iw_direct {
	bool active;
	struct vb_iw_segment segment;
	uint32_t done; /* bytes of payload that have arrived */
	/* bytes at the end of the payload that are copied from the stage: programs poll for the last byte of a write */
	uint32_t keep;
	uint32_t tail;  /* pad and CRC */
	uint32_t given; /* bytes of memory that vb_iw_room returned */
};

struct vb_iw_in {
	uint64_t position;    /* position in the stream of the first waiting byte */
	uint32_t head, tail;  /* range of waiting bytes in the stage */
	uint32_t small;       /* small FPDUs since the last large one; if few, the next may be large */
	bool starved;         /* the FPDU at the head waits for a receive */
	bool waited, gave_up; /* it has waited before; it must not wait any more */
	bool framed;          /* its CRC is checked and its markers are removed; ulpdu and marked are its lengths */
	uint32_t ulpdu, marked;
	struct vb_iw_direct direct;
};

struct vb_iw_out {
	uint64_t base;       /* position in the stream of the oldest FPDU's first byte */
	uint64_t position;   /* position in the stream of the next FPDU */
	uint32_t head, tail; /* the waiting FPDUs */
	uint32_t begin, end; /* in out_bytes, a ring: start of the oldest FPDU, end of the newest */
	uint32_t sent;       /* bytes of the oldest FPDU that TCP has accepted */
	uint32_t given;      /* bytes that the last vb_iw_output returned */
	bool answered;       /* the last message was an answer */
	struct vb_iw_fpdu fpdus[VB_IW_FPDUS];
};

enum vb_iw_life {
	VB_IW_LIVES,
	VB_IW_TERMINATING, /* a Terminate is due */
	VB_IW_OVER,        /* nothing more is sent */
};

struct vb_iw_qp {
	struct vb_iw_config cfg; /* changed by vb_iw_reconfigure only */
	const struct vb_iw_ops *ops;
	void *own;
	struct vb_work_sent *sends;
	uint32_t mask;
	uint8_t *stage, *out_bytes;
	uint32_t stage_len, out_len;
	uint8_t life;         /* enum vb_iw_life */
	bool waits_for_input; /* nothing is sent until the first FPDU has arrived */
	bool large;           /* the peer accepts FPDUs of VB_IW_LARGE */
	bool terminate_sent, terminate_received;
	bool filled;                   /* vb_iw_room was called after the last vb_iw_output */
	uint16_t terminate_cause;      /* enum vb_term of the received Terminate */
	struct vb_terminate terminate; /* the one to send */
	struct vb_iw_requester rq;
	struct vb_iw_responder rs;
	struct vb_iw_in in;
	struct vb_iw_out out;
	struct vb_iw_stats stats;
};

#endif
