// flow_dissect.c - the headers of a frame that rules of flow steering ask for, also inside a tunnel
// follows: IEEE 802.3, 802.1Q; RFC 791, RFC 8200; RFC 2784, RFC 2890 (GRE), RFC 7348 (VXLAN), RFC 3032, RFC 4023, RFC 7510
// (MPLS), RFC 4303 (ESP), RFC 2003, RFC 2473 (IP in IP)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "core/flow_match.h"
#include "frame/ethernet.h"
#include "frame/vlan.h"

#define PORTS_LEN 4u
#define VXLAN_LEN 8u
#define ESP_LEN 8u
#define LABEL_LEN 4u
#define VXLAN_PORT 4789
#define MPLS_PORT 6635
#define GRE_CHECKSUM 0x8000u
#define GRE_KEY 0x2000u
#define GRE_SEQUENCE 0x1000u
#define GRE_VERSION 7u
#define BOTTOM_OF_STACK 1u /* in the third byte of an entry */

enum { ETHERTYPE_MPLS = 0x8847, ETHERTYPE_MPLS_GROUP = 0x8848, ETHERTYPE_ETHERNET = 0x6558 };

/* Where the dissection stands, and what it has found. */
struct walk {
	struct vb_frame_key *key;
	unsigned layers;
	const uint8_t *inner; /* what a tunnel carries, or NULL */
	uint32_t inner_len;
	uint16_t inner_type; /* an EtherType */
};

static void carry(struct walk *w, uint16_t type, const uint8_t *p, uint32_t len)
{
	w->inner = p;
	w->inner_len = len;
	w->inner_type = type;
}

/* Takes the stack of labels. Returns the EtherType of what follows it, which only its first four bits tell; 0: unknown. */
static uint16_t take_labels(struct walk *w, const uint8_t **p, uint32_t *len)
{
	bool last = false;

	if (*len < LABEL_LEN)
		return 0;
	memcpy(&w->key->mpls, *p, LABEL_LEN);
	w->layers |= VB_LAYER_MPLS;
	while (!last && *len >= LABEL_LEN) {
		last = (*p)[2] & BOTTOM_OF_STACK;
		*p += LABEL_LEN;
		*len -= LABEL_LEN;
	}
	if (!last || !*len)
		return 0;
	return (*p)[0] >> 4 == 4 ? VB_ETHERTYPE_IPV4 : (*p)[0] >> 4 == 6 ? VB_ETHERTYPE_IPV6 : 0;
}

static void take_carried_labels(struct walk *w, const uint8_t *p, uint32_t len)
{
	uint16_t type = take_labels(w, &p, &len);

	if (type)
		carry(w, type, p, len);
}

static void dissect_udp(struct walk *w, const uint8_t *p, uint32_t len)
{
	uint16_t port = vb_load16(p + 2);

	if (len < VB_UDP_LEN)
		return;
	p += VB_UDP_LEN;
	len -= VB_UDP_LEN;
	if (port == MPLS_PORT)
		take_carried_labels(w, p, len);
	if (port != VXLAN_PORT || len < VXLAN_LEN)
		return;
	w->layers |= VB_LAYER_VXLAN;
	w->key->tunnel_id = htonl((uint32_t)p[4] << 16 | vb_load16(p + 5));
	carry(w, ETHERTYPE_ETHERNET, p + VXLAN_LEN, len - VXLAN_LEN);
}

static void dissect_gre(struct walk *w, const uint8_t *p, uint32_t len)
{
	uint32_t at = 4;

	if (len < at)
		return;
	uint16_t flags = vb_load16(p), type = vb_load16(p + 2);

	at += flags & GRE_CHECKSUM ? 4u : 0;
	uint32_t key_at = at;

	at += flags & GRE_KEY ? 4u : 0;
	at += flags & GRE_SEQUENCE ? 4u : 0;
	if (len < at)
		return;
	w->layers |= VB_LAYER_GRE;
	w->key->gre_flags = htons(flags);
	w->key->gre_protocol = htons(type);
	if (flags & GRE_KEY)
		memcpy(&w->key->gre_key, p + key_at, 4);
	if (flags & GRE_VERSION)
		return;
	if (type == ETHERTYPE_MPLS || type == ETHERTYPE_MPLS_GROUP)
		take_carried_labels(w, p + at, len - at);
	else
		carry(w, type, p + at, len - at);
}

static void dissect_transport(struct walk *w, const uint8_t *p, uint32_t len, uint8_t protocol)
{
	bool ports = protocol == IPPROTO_TCP || protocol == IPPROTO_UDP;

	if (ports && len >= PORTS_LEN) {
		w->key->src_port = htons(vb_load16(p));
		w->key->dst_port = htons(vb_load16(p + 2));
		w->layers |= protocol == IPPROTO_TCP ? VB_LAYER_TCP : VB_LAYER_UDP;
	}
	if (protocol == IPPROTO_UDP && len >= PORTS_LEN)
		dissect_udp(w, p, len);
	else if (protocol == IPPROTO_GRE)
		dissect_gre(w, p, len);
	else if (protocol == IPPROTO_IPIP)
		carry(w, VB_ETHERTYPE_IPV4, p, len);
	else if (protocol == IPPROTO_IPV6)
		carry(w, VB_ETHERTYPE_IPV6, p, len);
	if (protocol != IPPROTO_ESP || len < ESP_LEN)
		return;
	memcpy(&w->key->esp_spi, p, 4);
	memcpy(&w->key->esp_seq, p + 4, 4);
	w->layers |= VB_LAYER_ESP;
}

static void dissect_ipv4(struct walk *w, const uint8_t *p, uint32_t len)
{
	struct vb_frame_key *key = w->key;
	uint32_t header = len < VB_IPV4_LEN ? 0 : (p[0] & 15u) * 4;

	if (header < VB_IPV4_LEN || header > len || p[0] >> 4 != 4)
		return;
	uint16_t fragment = vb_load16(p + 6);

	memcpy(&key->src_ip, p + 12, 4);
	memcpy(&key->dst_ip, p + 16, 4);
	key->tos = p[1];
	key->ttl = p[8];
	key->proto = p[9];
	key->ip_flags = (uint8_t)((fragment & 0x4000 ? VB_IP_DONT_FRAGMENT : 0) |
	                          (fragment & 0x2000 ? VB_IP_MORE_FRAGMENTS : 0));
	w->layers |= VB_LAYER_IPV4;
	if (!(fragment & 0x1fff)) /* a later fragment has no ports */
		dissect_transport(w, p + header, len - header, p[9]);
}

static void dissect_ipv6(struct walk *w, const uint8_t *p, uint32_t len)
{
	struct vb_frame_key *key = w->key;

	if (len < VB_IPV6_LEN || p[0] >> 4 != 6)
		return;
	key->flow_label = htonl((p[1] & 15u) << 16 | vb_load16(p + 2));
	key->traffic_class = (uint8_t)(p[0] << 4 | p[1] >> 4);
	key->next_hdr = p[6];
	key->hop_limit = p[7];
	memcpy(key->src_ip6, p + 8, 16);
	memcpy(key->dst_ip6, p + 24, 16);
	w->layers |= VB_LAYER_IPV6;
	dissect_transport(w, p + VB_IPV6_LEN, len - VB_IPV6_LEN, p[6]);
}

static void dissect_network(struct walk *w, uint16_t type, const uint8_t *p, uint32_t len)
{
	if (type == ETHERTYPE_MPLS || type == ETHERTYPE_MPLS_GROUP)
		type = take_labels(w, &p, &len);
	if (type == VB_ETHERTYPE_IPV4)
		dissect_ipv4(w, p, len);
	else if (type == VB_ETHERTYPE_IPV6)
		dissect_ipv6(w, p, len);
}

static void dissect_ethernet(struct walk *w, const uint8_t *frame, uint32_t len)
{
	struct vb_frame_key *key = w->key;
	uint32_t at = VB_ETHERNET_LEN;

	if (len < VB_ETHERNET_LEN)
		return;
	memcpy(key->dst_mac, frame, 6);
	memcpy(key->src_mac, frame + 6, 6);
	uint16_t type = vb_load16(frame + 12);

	w->layers |= VB_LAYER_ETHERNET;
	while (vb_is_vlan_tag(type) && at + VB_VLAN_TAG_LEN <= len) {
		key->vlan_tag = htons(vb_load16(frame + at));
		type = vb_load16(frame + at + 2);
		w->layers |= VB_LAYER_TAG;
		at += VB_VLAN_TAG_LEN;
	}
	key->ether_type = htons(type);
	dissect_network(w, type, frame + at, len - at);
}

static struct walk walk_frame(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields)
{
	struct walk w = {.key = &fields->key};

	memset(fields, 0, sizeof(*fields));
	dissect_ethernet(&w, frame, len);
	return w;
}

uint16_t vb_frame_dissect(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields)
{
	return (uint16_t)walk_frame(frame, len, fields).layers;
}

uint16_t vb_frame_dissect_inner(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields)
{
	const struct walk outer = walk_frame(frame, len, fields);
	struct walk w = {.key = &fields->key};

	memset(fields, 0, sizeof(*fields));
	if (!outer.inner)
		return 0;
	if (outer.inner_type == ETHERTYPE_ETHERNET)
		dissect_ethernet(&w, outer.inner, outer.inner_len);
	else
		dissect_network(&w, outer.inner_type, outer.inner, outer.inner_len);
	return (uint16_t)w.layers;
}
