// udp.h - UDP sockets for sending RoCEv2, and control data of received datagrams
// follows: udp(7), ip(7), ipv6(7); IBA annex A17.3 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_NET_UDP_H
#define VB_NET_UDP_H

#include <sys/socket.h>

#include "frame/net.h"

/* Makes a socket bound to a port of RoCEv2's range of source ports (A17.3.2), or to any port if all of these are in
 * use. It never fragments, so that IPv4's identification is 0. -1 on failure. from: NULL, or the address of this host
 * to bind to; sends then need not name it. Link-local addresses are not possible. */
int vb_udp_sender(bool v6, const uint8_t *from, uint16_t *port);

/* Sends a message without waiting. Returns -1 and sets errno on failure. No cancellation point. */
long vb_udp_send(int fd, const struct msghdr *mh);

struct vb_udp_arrival {
	struct vb_flow flow;    /* dport is RoCEv2's */
	struct vb_ip_fields ip; /* traffic class, hop limit, flow label: if enabled on the socket */
	uint32_t ifindex;
	uint32_t seg; /* 0, or the size of the packets that were merged */
};

/* Returns false if the kernel did not report the destination, or the datagram was truncated. */
bool vb_udp_arrived(const struct msghdr *mh, struct vb_udp_arrival *a);

#endif
