// state.h - what a stream knows: bounded, and all of it
// follows: RFC 5040, RFC 5041, RFC 5044
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_IWARP_STATE_H
#define VB_ENGINE_IWARP_STATE_H

#include "engine/iwarp/iwarp.h"
#include "frame/rdmap.h"

#define VB_IW_FPDUS 256u   /* that wait to be handed over; a power of two */
#define VB_IW_ANSWERS 128u /* reads and atomics of the peer's at most, whatever cfg.ird; a power of two */
#define VB_IW_HEADER_MAX (VB_DDP_UNTAGGED_LEN + VB_TERMINATE_MAX) /* an atomic request is no longer */
#define VB_IW_COPY_MAX 512u                                       /* payload up to here is copied next to its header */

/* What an FPDU is part of. */
enum vb_iw_source { VB_IW_OF_REQUEST, VB_IW_OF_ANSWER, VB_IW_OF_STREAM };

/* An FPDU that was made: `head` bytes of our own, `ref` of the program's, `tail` of our own. */
struct vb_iw_fpdu {
	uint32_t at; /* of head in out; tail follows there */
	uint32_t head, ref, tail;
	uint32_t of;     /* index of the request or the answer */
	uint32_t offset; /* of the payload in its message */
	uint32_t payload;
	uint8_t source; /* enum vb_iw_source */
	bool last;      /* the request, the answer is out with it */
};

/* A read or atomic of the peer's. */
struct vb_iw_answer {
	bool atomic;
	uint32_t msn, sink_stag, stag, length, offset, id;
	uint64_t sink_to, to, original;
};

struct vb_iw_requester {
	bool paused, started;     /* started: in the middle of a message */
	bool fault;               /* sends[cur] cannot be sent: nothing behind it is */
	uint32_t head, cur, tail; /* of sends[]: oldest, the one that is made FPDUs of, next to be taken */
	uint32_t offset;          /* of cur, where the next FPDU begins */
	bool immediate;           /* cur: its data are out, the Immediate Data message is due */
	uint32_t unsent;          /* FPDUs of requests that wait */
	uint32_t rd, rd_next;     /* reads and atomics under way; of sends[], where to look for the oldest */
	uint32_t got;             /* bytes of the oldest read's answer */
	uint32_t msn[2];          /* next of queue 0 and 1 */
	uint8_t rtr;              /* enum vb_iw_rtr: due */
	bool rtr_read;            /* the answer of a ready-to-receive read is due */
};

struct vb_iw_responder {
	uint32_t msn[4];       /* expected next, of each queue */
	bool active, receive;  /* queue 0: in the middle of a message; a receive is taken */
	uint8_t opcode;        /* of that message */
	uint32_t stag;         /* it is to invalidate */
	uint32_t offset, room; /* bytes of it that are there; that the receive takes */
	uint64_t written;      /* bytes of the RDMA write under way, or just done */
	bool writing;          /* it is under way */
	uint8_t rtr;           /* enum vb_iw_rtr: expected */
	struct vb_iw_answer answers[VB_IW_ANSWERS];
	uint32_t head, cur, tail; /* oldest, the one that is made FPDUs of, next free */
	uint32_t atomic_msn;      /* of the next atomic response that we send */
};

/* A segment whose header was found right. */
struct vb_iw_segment {
	struct vb_ddp ddp;
	uint32_t length; /* of its payload */
};

/* The FPDU under way, when it is received in place. */
struct vb_iw_direct {
	bool active;
	struct vb_iw_segment segment;
	uint32_t done; /* bytes of payload that are there */
	uint32_t keep; /* of payload, the end that goes through the stage: programs poll for the last byte of a write */
	uint32_t tail; /* pad and CRC */
	uint32_t given; /* bytes of memory that vb_iw_room named */
};

struct vb_iw_in {
	uint64_t position;    /* of the first byte in the stage, in the stream */
	uint32_t head, tail;  /* bytes of the stage that wait */
	uint32_t small;       /* FPDUs that were not large, since one was; few: the next is likely to be */
	bool starved;         /* the FPDU at the head waits for a receive */
	bool waited, gave_up; /* it has done so before; it does not any longer */
	bool framed;          /* its CRC is right, its markers are out: it is looked at with these */
	uint32_t ulpdu, marked;
	struct vb_iw_direct direct;
};

struct vb_iw_out {
	uint64_t base;       /* in the stream, of the oldest FPDU's first byte */
	uint64_t position;   /* of the next FPDU that is made */
	uint32_t head, tail; /* FPDUs that wait */
	uint32_t begin, end; /* of out_bytes, a ring: where the oldest lies, where the newest ends */
	uint32_t sent;       /* bytes of the oldest FPDU that are handed over */
	uint32_t given;      /* bytes that the last vb_iw_output named */
	bool answered;       /* the last message was an answer */
	struct vb_iw_fpdu fpdus[VB_IW_FPDUS];
};

enum vb_iw_life {
	VB_IW_LIVES,
	VB_IW_TERMINATING, /* a Terminate is due */
	VB_IW_OVER,        /* nothing is */
};

struct vb_iw_qp {
	struct vb_iw_config cfg; /* changed by vb_iw_reconfigure only */
	const struct vb_iw_ops *ops;
	void *own;
	struct vb_work_sent *sends;
	uint32_t mask;
	uint8_t *stage, *out_bytes;
	uint32_t stage_len, out_len;
	uint8_t life;     /* enum vb_iw_life */
	bool held;        /* until the first FPDU has come */
	bool large;       /* the peer takes FPDUs of VB_IW_LARGE */
	bool told, heard; /* a Terminate went out, has come */
	bool filled;      /* the last to name memory was vb_iw_room, not vb_iw_output */
	uint16_t hear;    /* enum vb_term */
	struct vb_terminate tell;
	struct vb_iw_requester rq;
	struct vb_iw_responder rs;
	struct vb_iw_in in;
	struct vb_iw_out out;
	struct vb_iw_stats stats;
};

#endif
