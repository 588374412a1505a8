// rs_flow.h - flow control of a stream: what was received and may be granted, what may be sent. Pure functions of
// numbers follows: rdma-core docs/rsocket ("Data Streaming", "Message Format") SPDX-License-Identifier: MIT
#ifndef VB_RSOCKET_FLOW_H
#define VB_RSOCKET_FLOW_H

#include "rsocket/rs_wire.h"

/* A ring of bytes; its free space is at most two ranges. */
struct rs_ring {
	uint32_t size, head, used;
};
struct rs_span {
	uint32_t offset, length;
};

/* Takes n <= size - used bytes: one or two spans. */
int rs_ring_take(struct rs_ring *r, uint32_t n, struct rs_span out[2]);
void rs_ring_give(struct rs_ring *r, uint32_t n);

/*
 * Receiving. The buffer is granted to the peer in halves, in turn; a half is granted again when so many bytes have been
 * read. Data messages fill it in order.
 */
struct rs_rx {
	uint32_t size;     /* even */
	uint32_t granted;  /* the peer may still fill so many */
	uint32_t unread;   /* filled, not read */
	uint32_t freed;    /* read, not granted again */
	uint32_t next;     /* offset of the half to grant next */
	uint32_t read_at;  /* offset of the first unread byte */
	uint32_t *lengths; /* unread messages, a ring; credits are counted in messages */
	uint32_t head, count, slots;
	uint16_t read_no; /* messages read completely */
	uint16_t tell_at; /* grant new credits when read_no gets here */
	uint16_t credits;
};

/* lengths: room for credits entries, owned by the caller. */
void rs_rx_init(struct rs_rx *rx, uint32_t size, uint16_t credits, uint32_t *lengths);
/* A data message came. false: the peer sent more than it may. */
bool rs_rx_data(struct rs_rx *rx, uint32_t n);
/* The stretch of unread bytes after the first `skip`, at most `max` long. */
struct rs_span rs_rx_peek(const struct rs_rx *rx, uint32_t skip, uint32_t max);
void rs_rx_read(struct rs_rx *rx, uint32_t n);
/* Is it time for a credit message? */
bool rs_rx_owes(const struct rs_rx *rx);
bool rs_rx_has_half(const struct rs_rx *rx);
/* What the credit message says; half: what else is granted, where rs_rx_has_half() was true. */
uint16_t rs_rx_grant(struct rs_rx *rx, struct rs_span *half);

/* Sending. */
enum { RS_CTRL_WINDOW = 4, RS_SEND_LOW = 2048 };
struct rs_tx {
	struct rs_ring ring;
	struct rs_sge to;    /* the rest of the peer's current buffer range */
	uint8_t *sgl;        /* the peer writes further stretches here, as RS_SGL_ENTRIES entries */
	unsigned sgl_next;   /* entry to use next */
	uint32_t sq, sq_max; /* work requests: free, all */
	uint16_t seq, limit; /* data messages: sent, and where the peer's credits end */
	unsigned ctrl;       /* control messages in flight */
	unsigned cost;       /* work requests per message: 2 if the message is a separate send */
};

/* The stretch in use, or the next that the peer has granted. */
bool rs_tx_room(struct rs_tx *tx);
bool rs_tx_may_send(struct rs_tx *tx);
/* Takes n bytes of the peer's buffer, a credit, and work requests. */
struct rs_sge rs_tx_take(struct rs_tx *tx, uint32_t n);
bool rs_tx_may_control(const struct rs_tx *tx, unsigned n);
bool rs_tx_idle(const struct rs_tx *tx);

#endif
