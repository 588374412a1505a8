// iwarp.h - iWARP: joins a TCP stream to its queue pair
// follows: RFC 5040, RFC 5044
// see: docs/iwarp.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_IWARP_IWARP_H
#define VB_PATH_IWARP_IWARP_H

#include "engine/iwarp/iwarp.h"
#include "node/io.h"

/* A connected TCP socket after the exchange of MPA frames. */
struct vb_iwarp_stream {
	int fd;
	bool initiator, crc, markers_in, markers_out;
	bool large;               /* FPDUs may be longer than a TCP segment: struct vb_iw_config */
	bool waits_for_initiator; /* the responder of MPA revision 1, which must not send first */
	uint16_t ird, ord;
	enum vb_iw_rtr send_rtr, expect_rtr;
	const void *early; /* data that was read behind the MPA frame */
	size_t early_len;
	/* The stream has ended, by either side; status is 0 or an errno. Progress thread, no lock held, called once.
	 * own must be valid until then, unless the node ends before. */
	void (*closed)(void *own, int status);
	void *own;
};

/*
 * Gives an RC queue pair of an iWARP device its stream and takes it from INIT to RTS. Takes ownership of the descriptor
 * unless it fails. 0 or an errno. No lock held.
 */
int vb_iwarp_attach(struct vb_qp *qp, const struct vb_iwarp_stream *s);
/* Allows a responder to send although its initiator has sent nothing. No lock held but the caller's own. */
void vb_iwarp_hold_no_longer(struct vb_node *node, uint32_t qpn);
/* The program disconnects: the queue pair goes to ERR, data in the socket is still delivered, then the stream ends.
 * The stream of a queue pair that the program takes to ERR itself is reset instead. No lock held. */
void vb_iwarp_disconnect(struct vb_qp *qp);

#endif
