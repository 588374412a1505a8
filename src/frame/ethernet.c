// ethernet.c - the headers in front of a UDP or TCP payload, as a capture shows them
// follows: RFC 791, RFC 8200, RFC 768, RFC 9293, RFC 1071, RFC 1112, RFC 2464; IEEE 802.3
// SPDX-License-Identifier: MIT
#include "frame/ethernet.h"

#include <netinet/in.h>
#include <string.h>

#include "frame/checksum.h"
#include "frame/cursor.h"
#include "frame/vlan.h"

#define IPV4_PROTOCOL 9 /* offsets in the IP headers */
#define IPV4_SUM 10
#define IPV6_NEXT 6
#define UDP_SUM 6
#define TCP_SUM 16
#define PSH_ACK 0x18

static void put_mac(struct vb_writer *w, const uint8_t gid[VB_GID_LEN])
{
	bool multicast = vb_gid_is_multicast(gid);

	if (multicast && vb_gid_is_ipv4(gid)) {
		vb_put24(w, 0x01005e);
		vb_put8(w, gid[13] & 0x7f);
		vb_put_bytes(w, gid + 14, 2);
	} else {
		vb_put16(w, multicast ? 0x3333 : 0x0200);
		vb_put_bytes(w, gid + 12, 4);
	}
}

/* Ethernet and IP. rest: bytes behind the IP header. */
static size_t link_and_ip(uint8_t *head, const struct vb_flow *flow, const struct vb_ip_fields *ip, size_t rest,
                          uint8_t protocol)
{
	struct vb_writer w = vb_writer(head, VB_ETHERNET_LEN);
	bool v4 = vb_gid_is_ipv4(flow->dst);
	uint8_t *at = head + VB_ETHERNET_LEN;

	put_mac(&w, flow->dst);
	put_mac(&w, flow->src);
	vb_put16(&w, v4 ? 0x0800 : 0x86dd);
	size_t len = vb_ip_header(at, flow, ip, rest - VB_UDP_LEN);
	at[v4 ? IPV4_PROTOCOL : IPV6_NEXT] = protocol;
	if (v4) {
		vb_store16(at + IPV4_SUM, 0);
		vb_store16(at + IPV4_SUM, vb_sum_fold(vb_sum_words(0, at, VB_IPV4_LEN)));
	}
	return VB_ETHERNET_LEN + len;
}

size_t vb_frame_udp(uint8_t head[VB_FRAME_HEAD_MAX], const struct vb_flow *flow, const struct vb_ip_fields *ip,
                    size_t payload_len)
{
	size_t at = link_and_ip(head, flow, ip, VB_UDP_LEN + payload_len, IPPROTO_UDP);
	struct vb_writer w = vb_writer(head + at, VB_UDP_LEN);

	vb_put16(&w, flow->sport);
	vb_put16(&w, flow->dport);
	vb_put16(&w, (uint16_t)(VB_UDP_LEN + payload_len));
	vb_put16(&w, 0);
	return at + w.pos;
}

size_t vb_frame_tcp(uint8_t head[VB_FRAME_HEAD_MAX], const struct vb_flow *flow, const struct vb_tcp_fields *tcp,
                    size_t payload_len)
{
	const struct vb_ip_fields ip = {.hop_limit = 64};
	size_t at = link_and_ip(head, flow, &ip, VB_TCP_LEN + payload_len, IPPROTO_TCP);
	struct vb_writer w = vb_writer(head + at, VB_TCP_LEN);

	vb_put16(&w, flow->sport);
	vb_put16(&w, flow->dport);
	vb_put32(&w, tcp->seq);
	vb_put32(&w, tcp->ack);
	vb_put16(&w, 5 << 12 | PSH_ACK);
	vb_put16(&w, 0xffff); /* the window is not known */
	vb_put32(&w, 0);
	return at + w.pos;
}

void vb_frame_finish(uint8_t *frame, size_t len, const uint8_t *head)
{
	bool v4 = head[12] == 0x08;
	uint8_t *ip = frame + VB_ETHERNET_LEN, *body = ip + (v4 ? VB_IPV4_LEN : VB_IPV6_LEN);
	uint8_t protocol = head[VB_ETHERNET_LEN + (v4 ? IPV4_PROTOCOL : IPV6_NEXT)];
	size_t body_len = len - (size_t)(body - frame);

	if (v4 && protocol == IPPROTO_UDP) /* RoCEv2 senders leave it out (IBA A17.3.2) */
		return;
	uint64_t sum = v4 ? vb_sum_words(0, ip + 12, 8) : vb_sum_words(0, ip + 8, 32);
	sum += body_len + protocol;
	uint16_t folded = vb_sum_fold(vb_sum_words(sum, body, body_len));
	vb_store16(body + (protocol == IPPROTO_UDP ? UDP_SUM : TCP_SUM), folded ? folded : 0xffff);
}
