// net.h - RoCEv2 on IP: flows, GIDs as socket addresses, source ports, the IP header that a UD receive shows
// follows: IBA annex A17 (RoCEv2), A17.3.1, A17.3.2, A17.4.1.1, A17.4.5.2; RFC 791, RFC 8200, RFC 4291 2.5.5.2
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_NET_H
#define VB_FRAME_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The bytes of a GID are those of an IPv6 address; IPv4 is mapped into it. */
#define VB_GID_LEN 16

/* Who sends to whom. Both addresses are IPv4-mapped, or none is. */
struct vb_flow {
	uint8_t src[VB_GID_LEN], dst[VB_GID_LEN];
	uint16_t sport, dport;
};

/* What of the IP header is not the same for each packet of a flow. */
struct vb_ip_fields {
	uint8_t traffic_class; /* DSCP and ECN */
	uint8_t hop_limit;
	uint32_t flow_label; /* 20 bits; IPv6 */
	uint16_t id;         /* identification; IPv4 */
};

bool vb_gid_is_ipv4(const uint8_t gid[VB_GID_LEN]);
/* ff00::/8, or an IPv4-mapped address of 224.0.0.0/4. */
bool vb_gid_is_multicast(const uint8_t gid[VB_GID_LEN]);

/* AF_INET for IPv4-mapped, AF_INET6 for the rest; scope is the interface, for link-local addresses. Returns its size.
 */
socklen_t vb_gid_to_sockaddr(struct sockaddr_storage *sa, const uint8_t gid[VB_GID_LEN], uint16_t port, uint32_t scope);

/* The address of either family. false: it is of another. */
bool vb_gid_of_sockaddr(uint8_t gid[VB_GID_LEN], const struct sockaddr *sa);

/*
 * The UDP source port of a flow label, 0xc000 to 0xffff, and the flow label of a pair of queue pairs that
 * have none, the same seen from both sides: as Linux computes them (rdma_flow_label_to_udp_sport,
 * rdma_calc_flow_label).
 */
uint16_t vb_flow_label_sport(uint32_t flow_label);
uint32_t vb_flow_label_of_qps(uint32_t qpn, uint32_t other_qpn);

/*
 * The IP header of a datagram with this many bytes of UDP payload: IPv4 without options and with a valid checksum, DF
 * set (CA17-3, CA17-7), 20 bytes, or IPv6, 40 bytes. Returns which.
 */
size_t vb_ip_header(uint8_t header[40], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                    size_t udp_payload_len);

/* The same as the ICRC sees it: the fields that a router may change are ones (CA17-22 c). */
size_t vb_ip_header_masked(uint8_t header[40], const struct vb_flow *flow, uint16_t ipv4_id, size_t udp_payload_len);

/* The 40 bytes in front of a received UD datagram (A17.4.5.2): IPv4 stands in the last 20, and the rest is zeros. */
void vb_grh(uint8_t grh[40], const struct vb_flow *flow, const struct vb_ip_fields *ip, size_t udp_payload_len);

#endif
