// message.h - a sender: its messages, with the packets in them, and what passes them to the kernel
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_ROCE_MESSAGE_H
#define VB_PATH_ROCE_MESSAGE_H

#include <string.h>

#include "frame/icrc.h"
#include "frame/lrh.h"
#include "net/udp_slots.h"
#include "path/roce/fault.h"
#include "path/roce/roce.h"

/*
 * The stage is a buffer that holds packets one after another. Payload may stay in the program's memory: its part of the
 * stage is then a gap, and the kernel gathers the payload. If that memory changes between the sum and the send, the
 * ICRC is wrong, the peer drops the packet, and the requester retries it from a copy. So only packets that can be
 * retried are sent this way. The stage is reused after each send, so it stays in the processor's cache.
 *
 * A message that is sent from a slot (net/udp_slots.h) is put together there. If it gets the slot before its payload is
 * copied, the cache lines that have nothing but payload go to the slot at once, and are a gap in the stage. The others
 * follow when it is sent. Each line of the slot corresponds to one of the stage: see vb_tx_in_slot.
 */
#define VB_TX_FULL_SENDS 2 /* in the stage before it is sent; the kernel then runs the same code twice in a row */
/* bytes; room for one send more, because a FIRST packet is longer */
#define VB_TX_STAGE ((VB_TX_FULL_SENDS + 1) * 64u << 10)
#define VB_TX_MESSAGES 32
#define VB_TX_SEGMENTS 64     /* the most segments of one send before Linux 6.9 */
#define VB_TX_SEND_MAX 65000u /* bytes of one send; with headers it must stay below 65,536 */
#define VB_TX_LINE 64u
#define VB_TX_GAPS (VB_TX_STAGE / VB_TX_IN_PLACE_MIN)

/* One send: n packets of seg bytes to one address. The last may be shorter. */
struct vb_tx_message {
	uint32_t at, len;
	uint16_t seg, n;
	uint16_t gap, gaps; /* index of the first gap, and number of gaps */
	bool closed;
	bool requests; /* no responses, nothing repeated: the acknowledgement of its packets means that these have come */
	bool asked;    /* for a slot */
	uint8_t *slot; /* where it is put together, or NULL */
	struct vb_roce_addr to;
};

/* Payload that is not in the stage: in the program's memory, or in the message's slot. */
struct vb_tx_gap {
	uint32_t at, len;
	const uint8_t *from;
};

struct vb_tx {
	struct vb_lock lock;
	struct vb_roce_sockets *sockets;
	int fd[2]; /* IPv4, IPv6 */
	uint16_t sport[2];
	int hops[2];                    /* hop limits set on the sockets; -1: the kernel's default */
	uint8_t bound[2][VB_GID_LEN];   /* addresses that the sockets are bound to; zeros: none */
	uint16_t segment[2], wanted[2]; /* segment size set on the sockets, 0: none; that of the last send */
	bool no_gso;
	unsigned
	        full; /* number of full sends in the stage, which is sent at VB_TX_FULL_SENDS, while it is in the cache */
	uint32_t used;
	unsigned n, sent, gaps;
	atomic_bool waits;              /* the kernel did not accept all packets */
	struct vb_roce_fault *fault;    /* NULL: no rule acts on packets that are sent */
	struct vb_roce_fault *disarmed; /* kept for the next rule */
	const struct vb_qp *qp;         /* whose packets are added */
	uint32_t qpn;                   /* its number: it may end before packets that wait */
	struct vb_flow flow;            /* addresses and ports of the last message */
	struct vb_icrc_known *known;    /* cached parts of the ICRC for that flow, or NULL */
	uint32_t long_sends;            /* of requests, until slots is asked for */
	bool no_slots;                  /* the kernel has none */
	struct vb_udp_slots *slots;     /* NULL: not needed yet */
	/* a short send needs the first of each: they are on the page of what is above */
	struct vb_tx_message msg[VB_TX_MESSAGES];
	struct iovec pieces[2 * VB_TX_SEGMENTS + 1];
	struct vb_icrc_cache icrc;
	struct vb_tx_gap gap[VB_TX_GAPS];
	uint8_t stage[VB_TX_STAGE + 64]; /* copies of 64 bytes may reach beyond the end */
};

static inline void vb_tx_flow(const struct vb_tx *tx, const struct vb_roce_addr *to, struct vb_flow *flow)
{
	*flow = (struct vb_flow){.sport = tx->sport[!vb_gid_is_ipv4(to->dst)],
	                         .dport = VB_ROCE_PORT,
	                         .slid = to->slid,
	                         .dlid = to->dlid,
	                         .sl = to->sl,
	                         .link = to->link};
	memcpy(flow->src, to->src, VB_GID_LEN);
	memcpy(flow->dst, to->dst, VB_GID_LEN);
}

/* The place in the message's slot of a byte of the stage. */
static inline uint8_t *vb_tx_in_slot(const struct vb_tx_message *m, uint32_t at)
{
	return m->slot + (at - m->at / VB_TX_LINE * VB_TX_LINE);
}

/* Adds the ICRC to a packet of len bytes with this identification. */
static inline void vb_tx_seal(struct vb_tx *tx, uint8_t *packet, const struct vb_flow *flow, uint16_t id, size_t len)
{
	tx->known = NULL;
	vb_icrc_encode(packet + len, vb_icrc_packet(&tx->icrc, flow, id, packet, len));
}

/* Opens the sender's socket for this address family, for packets from this GID. Returns false if there is none. Under
 * tx->lock. */
bool vb_tx_open_socket(struct vb_tx *tx, bool v6, const uint8_t *from);
/* May messages of the queue pair whose packets are added go by slots? The first ones do not. Under tx->lock. */
bool vb_tx_has_slots(const struct vb_tx *tx);
/* Takes the next slot for this message. Under tx->lock. */
void vb_tx_take_slot(struct vb_tx *tx, struct vb_tx_message *m);
/* Sends all messages. Returns false if some must wait. Under tx->lock. */
bool vb_tx_flush(struct vb_tx *tx);

#endif
