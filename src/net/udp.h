// udp.h - UDP sockets that RoCEv2 is sent from, and what comes beside a datagram that is received
// follows: udp(7), ip(7), ipv6(7); IBA annex A17.3 (RoCEv2)
// SPDX-License-Identifier: MIT
#ifndef VB_NET_UDP_H
#define VB_NET_UDP_H

#include <sys/socket.h>

#include "frame/net.h"

/* A socket bound to a port of the range that RoCEv2 sends from (A17.3.2); where all are taken, to any. It never
 * fragments, so that IPv4's identification is 0. -1: none to be had. */
int vb_udp_sender(bool v6, uint16_t *port);

struct vb_udp_arrival {
	struct vb_flow flow;    /* dport is RoCEv2's */
	struct vb_ip_fields ip; /* traffic class, hop limit, flow label: where the socket was told to say them */
	uint32_t ifindex;
	uint32_t seg; /* 0, or the size of the packets that were merged */
};

/* False: the kernel did not say where it went, or no more than a part of it is here. */
bool vb_udp_arrived(const struct msghdr *mh, struct vb_udp_arrival *a);

#endif
