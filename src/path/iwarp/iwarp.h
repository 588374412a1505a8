// iwarp.h - joins a TCP stream to a queue pair of an iWARP device
// follows: RFC 5040, RFC 5044; docs/iwarp.md
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
	/* Called once when the stream has ended, by either side. status is 0 or an errno. Progress thread, no lock
	 * held. own must be valid until then, unless the node ends before. */
	void (*closed)(void *own, int status);
	void *own;
};

/*
 * Gives an RC queue pair of an iWARP device its stream and takes it from RESET or INIT to RTS. Takes ownership of the descriptor
 * unless it fails. 0 or an errno. No lock held.
 */
int vb_iwarp_attach(struct vb_qp *qp, const struct vb_iwarp_stream *s);
/* Allows a responder to send although the initiator has sent nothing. No lock held but the caller's own. */
void vb_iwarp_hold_no_longer(struct vb_node *node, uint32_t qpn);
/* Disconnects: takes the queue pair to ERR, delivers data that is in the socket, then ends the stream. If the program
 * takes the queue pair to ERR itself, the stream is reset instead. No lock held. */
void vb_iwarp_disconnect(struct vb_qp *qp);

#endif
