// net.h - RoCEv2 on IP: flows, GIDs as socket addresses, source ports, the IP header before a received datagram
// follows: IBA annex A17 (RoCEv2), A17.3.1, A17.3.2, A17.4.1.1, A17.4.5.2; RFC 791, RFC 8200, RFC 4291 2.5.5.2
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_NET_H
#define VB_FRAME_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* A GID is an IPv6 address, or an IPv4-mapped one. */
#define VB_GID_LEN 16

/* Bytes of headers. A GRH is the header in front of a received datagram. */
#define VB_GRH_LEN 40
#define VB_GRH_NEXT_HEADER 0x1b /* IBA 8.3.1 */
#define VB_IPV6_LEN 40
#define VB_IPV4_LEN 20

#define VB_FLOW_LABEL_MASK 0xfffffu

/* What carries packets: UDP, or an InfiniBand link, with or without a GRH (frame/lrh.h). */
enum vb_link { VB_LINK_UDP, VB_LINK_LOCAL, VB_LINK_GLOBAL };

/* Source and destination of packets. Both addresses are IPv4-mapped, or neither is. */
struct vb_flow {
	uint8_t src[VB_GID_LEN], dst[VB_GID_LEN];
	uint16_t sport, dport; /* UDP */
	uint16_t slid, dlid;   /* InfiniBand, as sl */
	uint8_t sl;
	uint8_t link; /* enum vb_link */
};

/* A flow of UDP datagrams to RoCEv2's port. Callers do not fill in fields one by one: the next field would be unset. */
struct vb_flow vb_roce_flow(const uint8_t src[VB_GID_LEN], const uint8_t dst[VB_GID_LEN], uint16_t sport);

/* The fields of the IP header that may differ between packets of one flow. */
struct vb_ip_fields {
	uint8_t traffic_class; /* DSCP and ECN */
	uint8_t hop_limit;
	uint32_t flow_label; /* VB_FLOW_LABEL_MASK; IPv6 */
	uint16_t id;         /* identification; IPv4 */
};

bool vb_gid_is_ipv4(const uint8_t gid[VB_GID_LEN]);
/* ff00::/8, or an IPv4-mapped address of 224.0.0.0/4. */
bool vb_gid_is_multicast(const uint8_t gid[VB_GID_LEN]);

/* Fills in AF_INET for an IPv4-mapped GID, otherwise AF_INET6. scope: the interface of a link-local address. Returns
 * the size of the address. */
socklen_t vb_gid_to_sockaddr(struct sockaddr_storage *sa, const uint8_t gid[VB_GID_LEN], uint16_t port, uint32_t scope);

/* Returns false if the family is neither AF_INET nor AF_INET6. */
bool vb_gid_of_sockaddr(uint8_t gid[VB_GID_LEN], const struct sockaddr *sa);

/*
 * The UDP source port of a flow label, 0xc000 to 0xffff, and the flow label of a pair of queue pairs without one, the
 * same on both sides. Linux computes them in the same way (rdma_flow_label_to_udp_sport, rdma_calc_flow_label).
 */
uint16_t vb_flow_label_sport(uint32_t flow_label);
uint32_t vb_flow_label_of_qps(uint32_t qpn, uint32_t other_qpn);

/* The checksum of RFC 1071 over an IPv4 header without options: 0 if the header's own checksum is correct. */
uint16_t vb_ipv4_checksum(const uint8_t header[VB_IPV4_LEN]);

/*
 * Writes the IP header of a datagram with this many bytes of UDP payload. Returns its length: 20 for IPv4, without
 * options, with DF (CA17-3, CA17-7) and a valid checksum; 40 for IPv6.
 */
size_t vb_ip_header(uint8_t header[VB_IPV6_LEN], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                    size_t udp_payload_len);

/* The same for the ICRC: all bits of the fields that a router may change are ones (CA17-22 c). */
size_t vb_ip_header_masked(uint8_t header[VB_IPV6_LEN], const struct vb_flow *flow, uint16_t ipv4_id,
                           size_t udp_payload_len);

/* The 40 bytes before a received UD datagram (A17.4.5.2). An IPv4 header is in the last 20, after zeros. */
void vb_grh(uint8_t grh[VB_GRH_LEN], const struct vb_flow *flow, const struct vb_ip_fields *ip, size_t udp_payload_len);

#endif
