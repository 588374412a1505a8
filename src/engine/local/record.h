// record.h - the records in a ring between two processes of one host
// follows: IBA volume 1, chapter 9 (meaning of each operation); docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_RECORD_H
#define VB_ENGINE_LOCAL_RECORD_H

#include <stdatomic.h>
#include <stdint.h>

enum vb_rec_type {
	VB_REC_PAD = 1,   /* padding up to the end of the ring */
	VB_REC_SEND,      /* payload: a piece of a message */
	VB_REC_PULL,      /* a whole SEND whose data the receiver fetches; payload: a list of struct vb_rec_span */
	VB_REC_WRITE,     /* ext + payload */
	VB_REC_NOTIFY,    /* ext: an RDMA WRITE with immediate whose data is already written */
	VB_REC_READ,      /* ext: the answer is VB_REC_READ_DATA */
	VB_REC_READ_DATA, /* ext.remote_addr is the offset in the message; payload */
	VB_REC_ATOMIC,    /* ext */
	VB_REC_VERDICT,   /* ext: a one-copy operation that the sender's check refused; the responder must judge it */
	VB_REC_UD,        /* ext.rkey is the Q_Key; payload: 40 bytes GRH, then the datagram */
	VB_REC_HELD,      /* a WRITE that its sender is withdrawing: the consumer waits for its new type */
	VB_REC_WRITTEN,   /* a WRITE whose data the sender has written itself */
	VB_REC_PACKET,    /* a RoCE packet for another program: source and destination, then BTH to ICRC */
	VB_REC_ATOMIC_WRITE, /* ext.swap: its 8 bytes */
	VB_REC_FLUSH,        /* ext.compare_add: its FETH; ext.swap: the length of its range */
	/* XRC between processes (engine/local/relay.h) */
	VB_REC_JOIN, /* ext: the XRC domain, MTU and initiator of the target `src`, which has requests for an SRQ there */
	VB_REC_JOINED, /* the answer to the target `dest`: `src` is the guest, or 0 */
	VB_REC_LEAVE,  /* the target `src` has no requests any more */
	VB_REC_TYPES
};

#define VB_RECF_FIRST 1u
#define VB_RECF_LAST 2u
#define VB_RECF_IMM 4u
#define VB_RECF_INV 8u
#define VB_RECF_SOLICITED 16u
#define VB_RECF_FETCH_ADD 32u /* ATOMIC: fetch and add; otherwise compare and swap */
#define VB_RECF_MAY_HOLD 32u  /* WRITE: its type may change to HELD */
#define VB_RECF_IS_READ 64u   /* VERDICT: of a read; otherwise of a write */
#define VB_RECF_FAULT 128u    /* VERDICT: the check passed, but the memory is not mapped */

/* The head of a record, aligned to 64 bytes. mark is stored last: size in lines | (position / 64) << 32, never 0. */
struct vb_rec {
	_Atomic uint64_t mark;
	uint32_t dest;   /* QP number | type << 24 */
	uint32_t src;    /* QP number | VB_RECF_* << 24 */
	uint32_t psn;    /* PSN | low 8 bits of the generation of the sender's QP << 24 */
	uint32_t length; /* payload bytes */
	/* low half of the count of requests that the sender's responder has executed for this QP pair; of an XRC
	 * initiator, which has no responder: the number of the SRQ */
	uint32_t ack;
	uint32_t imm; /* the immediate, or the key to invalidate */
};

struct vb_rec_ext {
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t total;       /* bytes of the whole message */
	uint64_t compare_add; /* ATOMIC */
	uint64_t swap;
};
#define VB_REC_SLOT(ext) ((ext)->total) /* ATOMIC needs no length, and has the result slot in this field */

/* UD has in compare_add what a packet on a fabric has in its headers; 0: it is not on a fabric. */
#define VB_REC_UD_IB(slid, pkey, sl, path_bits, grh)                                               \
	(1ull << 63 | (uint64_t)(grh) << 48 | (uint64_t)(path_bits) << 40 | (uint64_t)(sl) << 32 | \
	 (uint64_t)(pkey) << 16 | (slid))
#define VB_REC_UD_IS_IB(ext) ((ext)->compare_add >> 63)
#define VB_REC_UD_GRH(ext) ((ext)->compare_add >> 48 & 1)
#define VB_REC_UD_PATH_BITS(ext) ((uint8_t)((ext)->compare_add >> 40))
#define VB_REC_UD_SL(ext) ((uint8_t)((ext)->compare_add >> 32))
#define VB_REC_UD_PKEY(ext) ((uint16_t)((ext)->compare_add >> 16))
#define VB_REC_UD_SLID(ext) ((uint16_t)(ext)->compare_add)

struct vb_rec_span {
	uint64_t addr, length;
};

/* Bytes in front of the payload, without and with an extension. */
#define VB_REC_HEAD 32u
#define VB_REC_HEAD_EXT 64u

/*
 * Where the payload begins. Wide registers copy 512 bytes to less than 8 KiB (util/guard.c), and are slower across lines:
 * such a payload begins at a line of its own. String instructions copy the longer ones, and are slower if the payload
 * does begin at a line.
 */
#define VB_REC_LONG 8192u
#define VB_REC_HEAD_LONG 96u /* of long payloads behind an extension */

static inline uint32_t vb_rec_send_head(uint32_t length)
{
	return length - 512u < VB_REC_LONG - 512u ? VB_REC_HEAD_EXT : VB_REC_HEAD;
}

/* VB_REC_WRITE and VB_REC_READ_DATA. */
static inline uint32_t vb_rec_rdma_head(uint32_t length)
{
	return length < VB_REC_LONG ? VB_REC_HEAD_EXT : VB_REC_HEAD_LONG;
}

/* A number of 24 bits, and the byte above it, as in dest, src and psn of a record. */
static inline uint32_t vb_rec_word(uint32_t number, unsigned top)
{
	return number | (uint32_t)top << 24;
}

static inline unsigned vb_rec_top(uint32_t word)
{
	return word >> 24;
}

_Static_assert(sizeof(struct vb_rec) == VB_REC_HEAD &&
                       sizeof(struct vb_rec) + sizeof(struct vb_rec_ext) == VB_REC_HEAD_EXT,
               "a line together");

#endif
