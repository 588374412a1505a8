// net.c - RoCEv2 on IP: flows, GIDs as socket addresses, source ports, the IP header before a received datagram
// follows: IBA annex A17 (RoCEv2), A17.3.1, A17.3.2, A17.4.1.1, A17.4.5.2; RFC 791, RFC 8200, RFC 4291 2.5.5.2
// SPDX-License-Identifier: MIT
#include "frame/net.h"

#include <netinet/in.h>
#include <string.h>

#include "frame/cursor.h"
#include "frame/fields.h"

#define UDP_LEN 8

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

__attribute__((hot)) bool vb_gid_is_ipv4(const uint8_t gid[VB_GID_LEN])
{
	return !memcmp(gid, mapped, sizeof(mapped));
}

__attribute__((hot)) bool vb_gid_is_multicast(const uint8_t gid[VB_GID_LEN])
{
	return vb_gid_is_ipv4(gid) ? (gid[12] & 0xf0) == 0xe0 : gid[0] == 0xff;
}

__attribute__((hot)) socklen_t vb_gid_to_sockaddr(struct sockaddr_storage *sa, const uint8_t gid[VB_GID_LEN],
                                                  uint16_t port, uint32_t scope)
{
	memset(sa, 0, sizeof(*sa));
	if (vb_gid_is_ipv4(gid)) {
		struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

		memcpy(&in.sin_addr, gid + sizeof(mapped), 4);
		memcpy(sa, &in, sizeof(in));
		return sizeof(in);
	}
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	memcpy(&in6.sin6_addr, gid, VB_GID_LEN);
	if (IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr) || IN6_IS_ADDR_MC_LINKLOCAL(&in6.sin6_addr))
		in6.sin6_scope_id = scope;
	memcpy(sa, &in6, sizeof(in6));
	return sizeof(in6);
}

__attribute__((hot)) bool vb_gid_of_sockaddr(uint8_t gid[VB_GID_LEN], const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		memcpy(gid, mapped, sizeof(mapped));
		memcpy(gid + sizeof(mapped), (const uint8_t *)sa + offsetof(struct sockaddr_in, sin_addr), 4);
		return true;
	}
	if (sa->sa_family == AF_INET6) {
		memcpy(gid, (const uint8_t *)sa + offsetof(struct sockaddr_in6, sin6_addr), VB_GID_LEN);
		return true;
	}
	return false;
}

struct vb_flow vb_roce_flow(const uint8_t src[VB_GID_LEN], const uint8_t dst[VB_GID_LEN], uint16_t sport)
{
	struct vb_flow flow = {.sport = sport, .dport = VB_ROCE_PORT, .link = VB_LINK_UDP};

	memcpy(flow.src, src, VB_GID_LEN);
	memcpy(flow.dst, dst, VB_GID_LEN);
	return flow;
}

uint16_t vb_flow_label_sport(uint32_t flow_label)
{
	return (uint16_t)(0xc000 | ((flow_label ^ (flow_label & VB_FLOW_LABEL_MASK) >> 14) & 0x3fff));
}

uint32_t vb_flow_label_of_qps(uint32_t qpn, uint32_t other_qpn)
{
	uint64_t product = (uint64_t)(qpn & VB_QPN_MASK) * (other_qpn & VB_QPN_MASK);

	product ^= product >> 20;
	product ^= product >> 40;
	return product & VB_FLOW_LABEL_MASK;
}

uint16_t vb_ipv4_checksum(const uint8_t header[VB_IPV4_LEN])
{
	struct vb_reader r = vb_reader(header, VB_IPV4_LEN);
	uint32_t sum = 0;

	while (vb_left(&r))
		sum += vb_get16(&r);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static size_t ipv4_header(uint8_t header[VB_IPV4_LEN], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                          size_t udp_payload_len, uint16_t sum)
{
	struct vb_writer w = vb_writer(header, VB_IPV4_LEN);

	vb_put8(&w, 0x45);
	vb_put8(&w, ip->traffic_class);
	vb_put16(&w, (uint16_t)(VB_IPV4_LEN + UDP_LEN + udp_payload_len));
	vb_put16(&w, ip->id);
	vb_put16(&w, 0x4000); /* don't fragment */
	vb_put8(&w, ip->hop_limit);
	vb_put8(&w, IPPROTO_UDP);
	vb_put16(&w, sum);
	vb_put_bytes(&w, flow->src + sizeof(mapped), 4);
	vb_put_bytes(&w, flow->dst + sizeof(mapped), 4);
	return w.pos;
}

static size_t ipv4_header_checked(uint8_t header[VB_IPV4_LEN], const struct vb_flow *flow,
                                  const struct vb_ip_fields *ip, size_t udp_payload_len)
{
	ipv4_header(header, flow, ip, udp_payload_len, 0);
	return ipv4_header(header, flow, ip, udp_payload_len, vb_ipv4_checksum(header));
}

static size_t ipv6_header(uint8_t header[VB_IPV6_LEN], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                          size_t udp_payload_len)
{
	struct vb_writer w = vb_writer(header, VB_IPV6_LEN);

	vb_put32(&w, 6u << 28 | (uint32_t)ip->traffic_class << 20 | (ip->flow_label & VB_FLOW_LABEL_MASK));
	vb_put16(&w, (uint16_t)(UDP_LEN + udp_payload_len));
	vb_put8(&w, IPPROTO_UDP);
	vb_put8(&w, ip->hop_limit);
	vb_put_bytes(&w, flow->src, VB_GID_LEN);
	vb_put_bytes(&w, flow->dst, VB_GID_LEN);
	return w.pos;
}

size_t vb_ip_header(uint8_t header[VB_IPV6_LEN], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                    size_t udp_payload_len)
{
	return vb_gid_is_ipv4(flow->dst) ? ipv4_header_checked(header, flow, ip, udp_payload_len)
	                                 : ipv6_header(header, flow, ip, udp_payload_len);
}

size_t vb_ip_header_masked(uint8_t header[VB_IPV6_LEN], const struct vb_flow *flow, uint16_t ipv4_id,
                           size_t udp_payload_len)
{
	const struct vb_ip_fields ones = {
	        .traffic_class = 0xff, .hop_limit = 0xff, .flow_label = VB_FLOW_LABEL_MASK, .id = ipv4_id};

	return vb_gid_is_ipv4(flow->dst) ? ipv4_header(header, flow, &ones, udp_payload_len, 0xffff)
	                                 : ipv6_header(header, flow, &ones, udp_payload_len);
}

void vb_grh(uint8_t grh[VB_GRH_LEN], const struct vb_flow *flow, const struct vb_ip_fields *ip, size_t udp_payload_len)
{
	memset(grh, 0, VB_GRH_LEN);
	vb_ip_header(vb_gid_is_ipv4(flow->dst) ? grh + VB_GRH_LEN - VB_IPV4_LEN : grh, flow, ip, udp_payload_len);
}
