// tso.c - segmentation of TCP: the headers of each frame, made from those that a program gives for all of them
// follows: RFC 791, RFC 8200, RFC 9293, RFC 3168 §6.1.2 (CWR); IEEE 802.1Q; ibv_post_send(3), IBV_WR_TSO
// SPDX-License-Identifier: MIT
#include "frame/tso.h"

#include <netinet/in.h>
#include <string.h>

#include "frame/checksum.h"
#include "frame/ethernet.h"

#define MACS 12u
#define VLAN_TAG 4u
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

static uint16_t load16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16_at(uint8_t *at, uint32_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

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
	uint32_t at = MACS, ip_len;

	while (len >= at + VLAN_TAG + 2 && (load16(head + at) == 0x8100 || load16(head + at) == 0x88a8))
		at += VLAN_TAG;
	if (len < at + 2 || (load16(head + at) != 0x0800 && load16(head + at) != 0x86dd))
		return false;
	*t = (struct vb_tso){.len = len, .ip_at = at + 2, .v4 = load16(head + at) == 0x0800};
	ip_len = ip_header_len(head + t->ip_at, len - t->ip_at, t->v4);
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
		put16_at(ip + IPV4_TOTAL, t->tcp_at - t->ip_at + body);
		put16_at(ip + IPV4_ID, load16(ip + IPV4_ID) + number);
		put16_at(ip + IPV4_SUM, 0);
		put16_at(ip + IPV4_SUM, vb_sum_fold(vb_sum_words(0, ip, t->tcp_at - t->ip_at)));
		sum = vb_sum_words(sum, ip + IPV4_ADDRESSES, 8);
	} else {
		put16_at(ip + IPV6_PAYLOAD, body);
		sum = vb_sum_words(sum, ip + IPV6_ADDRESSES, 32);
	}
	uint32_t seq = ((uint32_t)load16(tcp + TCP_SEQ) << 16 | load16(tcp + TCP_SEQ + 2)) + offset;

	put16_at(tcp + TCP_SEQ, seq >> 16);
	put16_at(tcp + TCP_SEQ + 2, seq);
	if (number)
		tcp[TCP_FLAGS] &= (uint8_t)~CWR;
	if (!is_last)
		tcp[TCP_FLAGS] &= (uint8_t) ~(FIN | PSH);
	put16_at(tcp + TCP_SUM, 0);
	put16_at(tcp + TCP_SUM, vb_sum_fold(vb_sum_words(sum, tcp, body)));
}
