// tso.h - segmentation of TCP: the headers of each frame, made from those that a program gives for all of them
// follows: RFC 791, RFC 8200, RFC 9293, RFC 3168 §6.1.2 (CWR); IEEE 802.1Q; ibv_post_send(3), IBV_WR_TSO
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_TSO_H
#define VB_FRAME_TSO_H

#include <stdbool.h>
#include <stdint.h>

/* The headers that a program gives: Ethernet, VLAN tags, IPv4 or IPv6 (without extension headers), TCP with its options. */
struct vb_tso {
	uint32_t len;
	uint32_t ip_at, tcp_at; /* offsets */
	bool v4;
};

/* Returns false if these bytes are not such headers, from the first byte to the last. */
bool vb_tso_parse(struct vb_tso *t, const uint8_t *head, uint32_t len);

/*
 * Writes the headers of the frame that has the bytes from `offset` on of the payload. Its own payload, of this many bytes,
 * lies behind them already. number: of the frame, from 0.
 */
void vb_tso_head(const struct vb_tso *t, const uint8_t *head, uint8_t *frame, uint32_t number, uint32_t offset,
                 uint32_t payload, bool is_last);

#endif
