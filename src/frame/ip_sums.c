// ip_sums.c - the checksums of IPv4, TCP and UDP in an Ethernet frame: filled in, and verified
// follows: RFC 791, RFC 768, RFC 8200 §8.1, RFC 9293 §3.1; IEEE 802.1Q; ibv_post_send(3), IBV_SEND_IP_CSUM
// SPDX-License-Identifier: MIT
#include "frame/ip_sums.h"

#include <netinet/in.h>

#include "frame/checksum.h"
#include "frame/ethernet.h"
#include "frame/vlan.h"

#define IPV4_SUM 10u /* offsets in the headers */
#define TCP_SUM 16u
#define UDP_SUM 6u
#define UDP_LEN 8u
#define FRAGMENT 0x3fffu /* more fragments, or an offset */

/* Where the packet and its transport header are in a frame. */
struct layout {
	uint32_t ip_at, ip_len; /* of the IP header; ip_len 0: there is none */
	bool v4;
	uint8_t protocol; /* IPPROTO_TCP, IPPROTO_UDP; 0: neither, or not all of it is here */
	uint32_t at, len; /* of TCP or UDP */
};

static void find_transport(struct layout *l, const uint8_t *frame, uint32_t packet_len, uint8_t protocol)
{
	uint32_t len = packet_len - l->ip_len;

	l->at = l->ip_at + l->ip_len;
	l->len = len;
	if (protocol == IPPROTO_TCP && len >= VB_TCP_LEN)
		l->protocol = protocol;
	if (protocol != IPPROTO_UDP || len < UDP_LEN)
		return;
	l->len = vb_load16(frame + l->at + 4); /* which may be less than the packet has */
	if (l->len >= UDP_LEN && l->len <= len)
		l->protocol = protocol;
}

/* The packet may be shorter than the frame, which has a minimum. */
static void find_ipv4(struct layout *l, const uint8_t *frame, uint32_t room)
{
	const uint8_t *ip = frame + l->ip_at;
	uint32_t header = room < VB_IPV4_LEN ? 0 : (ip[0] & 0xfu) * 4;

	if (header < VB_IPV4_LEN || header > room || ip[0] >> 4 != 4)
		return;
	l->v4 = true;
	l->ip_len = header;
	uint32_t total = vb_load16(ip + 2);

	if (total >= header && total <= room && !(vb_load16(ip + 6) & FRAGMENT))
		find_transport(l, frame, total, ip[9]);
}

static void find_ipv6(struct layout *l, const uint8_t *frame, uint32_t room)
{
	const uint8_t *ip = frame + l->ip_at;

	if (room < VB_IPV6_LEN || ip[0] >> 4 != 6)
		return;
	l->ip_len = VB_IPV6_LEN;
	if (vb_load16(ip + 4) <= room - VB_IPV6_LEN)
		find_transport(l, frame, VB_IPV6_LEN + vb_load16(ip + 4), ip[6]);
}

static struct layout layout_of(const uint8_t *frame, uint32_t len)
{
	struct layout l = {0};
	uint32_t at = vb_ethertype_at(frame, len);

	l.ip_at = at + 2;
	if (len < l.ip_at)
		return l;
	if (vb_load16(frame + at) == VB_ETHERTYPE_IPV4)
		find_ipv4(&l, frame, len - l.ip_at);
	else if (vb_load16(frame + at) == VB_ETHERTYPE_IPV6)
		find_ipv6(&l, frame, len - l.ip_at);
	return l;
}

/* Over the transport's header and payload, and the pseudo header. 0 if what is there includes the right checksum. */
static uint16_t transport_sum(const uint8_t *frame, const struct layout *l)
{
	const uint8_t *addresses = frame + l->ip_at + (l->v4 ? 12 : 8);
	uint64_t sum = (uint64_t)l->protocol + l->len;

	sum = vb_sum_words(sum, addresses, l->v4 ? 8 : 32);
	return vb_sum_fold(vb_sum_words(sum, frame + l->at, l->len));
}

static uint32_t sum_at(const struct layout *l)
{
	return l->at + (l->protocol == IPPROTO_TCP ? TCP_SUM : UDP_SUM);
}

static void fill_transport(uint8_t *frame, const struct layout *l)
{
	uint8_t *at = frame + sum_at(l);

	vb_store16(at, 0);
	uint16_t sum = transport_sum(frame, l);

	vb_store16(at, sum || l->protocol == IPPROTO_TCP ? sum : 0xffff); /* 0 stands for no checksum of UDP */
}

void vb_ip_sums_fill(uint8_t *frame, uint32_t len)
{
	struct layout l = layout_of(frame, len);
	uint8_t *ip = frame + l.ip_at;

	if (l.v4) {
		vb_store16(ip + IPV4_SUM, 0);
		vb_store16(ip + IPV4_SUM, vb_sum_fold(vb_sum_words(0, ip, l.ip_len)));
	}
	if (l.protocol)
		fill_transport(frame, &l);
}

static bool has_transport_sum(const uint8_t *frame, const struct layout *l)
{
	return l->protocol == IPPROTO_TCP || (l->protocol == IPPROTO_UDP && vb_load16(frame + sum_at(l)));
}

static bool is_right_but_for_transport(const uint8_t *frame, const struct layout *l)
{
	return l->v4 && l->protocol && !vb_sum_fold(vb_sum_words(0, frame + l->ip_at, l->ip_len));
}

bool vb_ip_sums_finish(uint8_t *frame, uint32_t len)
{
	struct layout l = layout_of(frame, len);

	if (has_transport_sum(frame, &l))
		fill_transport(frame, &l);
	return is_right_but_for_transport(frame, &l);
}

bool vb_ip_sums_right(const uint8_t *frame, uint32_t len)
{
	struct layout l = layout_of(frame, len);

	return is_right_but_for_transport(frame, &l) && (!has_transport_sum(frame, &l) || !transport_sum(frame, &l));
}
