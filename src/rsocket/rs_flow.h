// rs_flow.h - flow control of a stream as functions of numbers: what to grant to the peer, and what may be sent
// follows: rdma-core docs/rsocket ("Data Streaming", "Message Format")
// SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_FLOW_H
#define VB_RSOCKET_FLOW_H

#include "rsocket/rs_wire.h"

/* A ring of bytes. Its free space is at most two ranges. */
struct rs_ring {
	uint32_t size, head, used;
};
struct rs_span {
	uint32_t offset, length;
};

/* Takes n <= size - used bytes: one or two spans. */
int rs_ring_take(struct rs_ring *r, uint32_t n, struct rs_span out[2]);
/*
 * Takes the rest of the present cache line too, if it is free, so that the next piece begins at a line. Pieces whose
 * length divides the ring's then do not wrap, and are one range. Returns how many bytes; rs_ring_give must get them back.
 */
enum { RS_RING_LINE = 64 };
uint32_t rs_ring_pad(struct rs_ring *r);
void rs_ring_give(struct rs_ring *r, uint32_t n);

/*
 * The receiving side. Data messages fill the buffer in order. The peer is granted the two halves of the buffer in turn.
 * A half is granted again when as many bytes as it holds have been read.
 */
struct rs_rx {
	uint32_t size;     /* even */
	uint32_t granted;  /* bytes that the peer may still fill */
	uint32_t unread;   /* bytes filled and not read */
	uint32_t freed;    /* bytes read and not granted again */
	uint32_t next;     /* offset of the half to grant next */
	uint32_t read_at;  /* offset of the first unread byte */
	uint32_t *lengths; /* unread messages, a ring; credits are counted in messages */
	uint32_t head, count, slots;
	uint16_t read_no; /* messages read completely */
	uint16_t tell_at; /* grant new credits when read_no gets here */
	uint16_t credits;
};

/* lengths has room for `credits` entries and belongs to the caller. */
void rs_rx_init(struct rs_rx *rx, uint32_t size, uint16_t credits, uint32_t *lengths);
/* A data message has arrived. False if the peer sent more than it may. */
bool rs_rx_data(struct rs_rx *rx, uint32_t n);
/* The contiguous range of unread bytes after the first `skip`, at most `max` long. */
struct rs_span rs_rx_peek(const struct rs_rx *rx, uint32_t skip, uint32_t max);
void rs_rx_read(struct rs_rx *rx, uint32_t n);
/* True if a credit message is due. */
bool rs_rx_owes(const struct rs_rx *rx);
bool rs_rx_has_half(const struct rs_rx *rx);
/* Returns the sequence number for the credit message. half: the range to grant, if rs_rx_has_half() was true. */
uint16_t rs_rx_grant(struct rs_rx *rx, struct rs_span *half);

/* The sending side. */
enum { RS_CTRL_WINDOW = 4, RS_SEND_LOW = 2048 };
struct rs_tx {
	struct rs_ring ring;
	struct rs_sge to;    /* the rest of the peer's current buffer range */
	uint8_t *sgl;        /* the peer writes further ranges here, as RS_SGL_ENTRIES entries */
	unsigned sgl_next;   /* entry to use next */
	uint32_t sq, sq_max; /* work requests: free, total */
	uint16_t seq, limit; /* data messages: number sent, and the number up to which the peer allows them */
	unsigned ctrl;       /* control messages in flight */
	unsigned cost;       /* work requests per message: 2 if the message is a separate send */
};

/* Loads the next range that the peer has granted if the present one is used up. False if there is none. */
bool rs_tx_room(struct rs_tx *tx);
/* Adds the next range to the present one if the peer has granted it and it follows in memory. A message may then cross
 * the border of the two. */
void rs_tx_join(struct rs_tx *tx);
bool rs_tx_may_send(struct rs_tx *tx);
/* Takes n bytes of the peer's buffer, a credit, and work requests. */
struct rs_sge rs_tx_take(struct rs_tx *tx, uint32_t n);
bool rs_tx_may_control(const struct rs_tx *tx, unsigned n);
bool rs_tx_idle(const struct rs_tx *tx);

#endif
