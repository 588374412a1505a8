// ethernet.h - the headers of an Ethernet frame: VLAN tags, and those in front of a UDP or TCP payload in a capture
// follows: RFC 791, RFC 8200, RFC 768, RFC 9293; IEEE 802.3, 802.1Q
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_ETHERNET_H
#define VB_FRAME_ETHERNET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "frame/net.h"

#define VB_ETHERNET_LEN 14
#define VB_MACS_LEN 12u
#define VB_VLAN_TAG_LEN 4u
#define VB_UDP_LEN 8
#define VB_TCP_LEN 20
/* The longest of these headers: Ethernet, IPv6, TCP. */
#define VB_FRAME_HEAD_MAX (VB_ETHERNET_LEN + VB_IPV6_LEN + VB_TCP_LEN)

enum {
	VB_ETHERTYPE_IPV4 = 0x0800,
	VB_ETHERTYPE_IPV6 = 0x86dd,
	VB_ETHERTYPE_CVLAN = 0x8100, /* a VLAN tag follows: a customer's */
	VB_ETHERTYPE_SVLAN = 0x88a8, /* a service provider's */
};

static inline uint16_t vb_load16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* The low 16 bits of v. */
static inline void vb_store16(uint8_t *at, uint32_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static inline bool vb_is_vlan_tag(uint16_t ethertype)
{
	return ethertype == VB_ETHERTYPE_CVLAN || ethertype == VB_ETHERTYPE_SVLAN;
}

/* Where the frame has its EtherType: behind its VLAN tags. The EtherType of a frame that is cut off may not be there. */
static inline uint32_t vb_ethertype_at(const uint8_t *frame, uint32_t len)
{
	uint32_t at = VB_MACS_LEN;

	while (len >= at + VB_VLAN_TAG_LEN + 2 && vb_is_vlan_tag(vb_load16(frame + at)))
		at += VB_VLAN_TAG_LEN;
	return at;
}

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
