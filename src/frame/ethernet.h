// ethernet.h - the headers in front of a UDP or TCP payload, as a capture shows them
// follows: RFC 791, RFC 8200, RFC 768, RFC 9293; IEEE 802.3
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_ETHERNET_H
#define VB_FRAME_ETHERNET_H

#include <sys/uio.h>

#include "frame/net.h"

#define VB_ETHERNET_LEN 14
#define VB_UDP_LEN 8
#define VB_TCP_LEN 20
/* The longest of these headers: Ethernet, IPv6, TCP. */
#define VB_FRAME_HEAD_MAX (VB_ETHERNET_LEN + VB_IPV6_LEN + VB_TCP_LEN)

struct vb_tcp_fields {
	uint32_t seq, ack;
};

/*
 * Write Ethernet, IP and UDP (TCP) headers in front of a payload of this length, and return their length. A MAC address
 * is not known here: it is made from the IP address, and locally administered. The checksum of IP is right; that of
 * UDP and TCP is 0 until vb_frame_finish. Of a TCP header PSH and ACK are set.
 */
size_t vb_frame_udp(uint8_t head[VB_FRAME_HEAD_MAX], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                    size_t payload_len);
size_t vb_frame_tcp(uint8_t head[VB_FRAME_HEAD_MAX], const struct vb_flow *flow, const struct vb_tcp_fields *tcp,
                    size_t payload_len);

/* Sets the checksum of TCP, and of UDP over IPv6, which must have one. frame begins with this head, one of those above,
 * and has its whole payload. Another process may change frame meanwhile: then only the checksum is wrong. */
void vb_frame_finish(uint8_t *frame, size_t len, const uint8_t *head);

#endif
