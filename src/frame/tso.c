// tso.c - segmentation of TCP: the headers of each frame, made from those that a program gives for all of them
// follows: RFC 791, RFC 8200, RFC 9293, RFC 3168 §6.1.2 (CWR); IEEE 802.1Q; ibv_post_send(3), IBV_WR_TSO
// SPDX-License-Identifier: MIT
#include "frame/tso.h"

#include <netinet/in.h>
#include <string.h>

#include "frame/checksum.h"
#include "frame/ethernet.h"
#include "frame/vlan.h"

#define IPV4_TOTAL 2u /* offsets in the headers */
#define IPV4_ID 4u
#define IPV4_PROTOCOL 9u
#define IPV4_SUM 10u
#define IPV4_ADDRESSES 12u
#define IPV6_PAYLOAD 4u
#define IPV6_NEXT 6u
#define IPV6_ADDRESSES 8u
#define TCP_SEQ 4u
#define TCP_OFFSET 12u
#define TCP_FLAGS 13u
#define TCP_SUM 16u
enum { FIN = 0x01, PSH = 0x08, CWR = 0x80 };

/* The length of the IP header at `at`, in front of TCP; 0: it is none. */
static uint32_t ip_header_len(const uint8_t *at, uint32_t room, bool v4)
{
	if (room < (v4 ? VB_IPV4_LEN : VB_IPV6_LEN) || at[0] >> 4 != (v4 ? 4 : 6) ||
	    at[v4 ? IPV4_PROTOCOL : IPV6_NEXT] != IPPROTO_TCP)
		return 0;
	if (!v4)
		return VB_IPV6_LEN;
	uint32_t len = (at[0] & 0xfu) * 4;

	return len >= VB_IPV4_LEN && len <= room ? len : 0;
}

bool vb_tso_parse(struct vb_tso *t, const uint8_t *head, uint32_t len)
{
	uint32_t at = vb_ethertype_at(head, len);
	uint16_t type = len < at + 2 ? 0 : vb_load16(head + at);

	if (type != VB_ETHERTYPE_IPV4 && type != VB_ETHERTYPE_IPV6)
		return false;
	*t = (struct vb_tso){.len = len, .ip_at = at + 2, .v4 = type == VB_ETHERTYPE_IPV4};
	uint32_t ip_len = ip_header_len(head + t->ip_at, len - t->ip_at, t->v4);

	t->tcp_at = t->ip_at + ip_len;
	return ip_len && len >= t->tcp_at + VB_TCP_LEN && (head[t->tcp_at + TCP_OFFSET] >> 4) * 4u == len - t->tcp_at;
}

void vb_tso_head(const struct vb_tso *t, const uint8_t *head, uint8_t *frame, uint32_t number, uint32_t offset,
                 uint32_t payload, bool is_last)
{
	uint8_t *ip = frame + t->ip_at, *tcp = frame + t->tcp_at;
	uint32_t body = t->len - t->tcp_at + payload;
	uint64_t sum = body + IPPROTO_TCP; /* of the pseudo header */

	memcpy(frame, head, t->len);
	if (t->v4) {
		vb_store16(ip + IPV4_TOTAL, t->tcp_at - t->ip_at + body);
		vb_store16(ip + IPV4_ID, vb_load16(ip + IPV4_ID) + number);
		vb_store16(ip + IPV4_SUM, 0);
		vb_store16(ip + IPV4_SUM, vb_sum_fold(vb_sum_words(0, ip, t->tcp_at - t->ip_at)));
		sum = vb_sum_words(sum, ip + IPV4_ADDRESSES, 8);
	} else {
		vb_store16(ip + IPV6_PAYLOAD, body);
		sum = vb_sum_words(sum, ip + IPV6_ADDRESSES, 32);
	}
	uint32_t seq = ((uint32_t)vb_load16(tcp + TCP_SEQ) << 16 | vb_load16(tcp + TCP_SEQ + 2)) + offset;

	vb_store16(tcp + TCP_SEQ, seq >> 16);
	vb_store16(tcp + TCP_SEQ + 2, seq);
	if (number)
		tcp[TCP_FLAGS] &= (uint8_t)~CWR;
	if (!is_last)
		tcp[TCP_FLAGS] &= (uint8_t) ~(FIN | PSH);
	vb_store16(tcp + TCP_SUM, 0);
	vb_store16(tcp + TCP_SUM, vb_sum_fold(vb_sum_words(sum, tcp, body)));
}
