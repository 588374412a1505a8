// flow_match.c - the rules of flow steering as pure functions: what a rule asks for, and which frames have it
// follows: ibv_create_flow(3); IEEE 802.3, 802.1Q; RFC 791, RFC 8200
// SPDX-License-Identifier: MIT
#include "core/flow_match.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "frame/ethernet.h"
#include "frame/vlan.h"

#define PORTS_LEN 4u

/* --- what a rule asks for --- */

/* Adds a layer. Two that a frame cannot have at once contradict each other. */
static int add_layer(struct vb_flow_match *m, unsigned layer)
{
	const unsigned ip = VB_LAYER_IPV4 | VB_LAYER_IPV6, ports = VB_LAYER_TCP | VB_LAYER_UDP;
	unsigned all = m->layers | layer;

	if ((all & ip) == ip || (all & ports) == ports)
		return EINVAL;
	m->layers = (uint8_t)all;
	return 0;
}

#define SET(field, from)                             \
	do {                                         \
		m->value.key.field = spec->val.from; \
		m->mask.key.field = spec->mask.from; \
	} while (0)
#define COPY(field, from)                                                               \
	do {                                                                            \
		memcpy(m->value.key.field, spec->val.from, sizeof(m->value.key.field)); \
		memcpy(m->mask.key.field, spec->mask.from, sizeof(m->mask.key.field));  \
	} while (0)

static int add_eth(struct vb_flow_match *m, const struct ibv_flow_spec_eth *spec)
{
	COPY(dst_mac, dst_mac);
	COPY(src_mac, src_mac);
	SET(ether_type, ether_type);
	SET(vlan_tag, vlan_tag);
	return spec->mask.vlan_tag ? add_layer(m, VB_LAYER_TAG) : 0;
}

static int add_ipv4(struct vb_flow_match *m, const struct ibv_flow_spec_ipv4 *spec)
{
	SET(src_ip, src_ip);
	SET(dst_ip, dst_ip);
	return add_layer(m, VB_LAYER_IPV4);
}

static int add_ipv4_ext(struct vb_flow_match *m, const struct ibv_flow_spec_ipv4_ext *spec)
{
	SET(src_ip, src_ip);
	SET(dst_ip, dst_ip);
	SET(proto, proto);
	SET(tos, tos);
	SET(ttl, ttl);
	SET(ip_flags, flags);
	return add_layer(m, VB_LAYER_IPV4);
}

static int add_ipv6(struct vb_flow_match *m, const struct ibv_flow_spec_ipv6 *spec)
{
	COPY(src_ip6, src_ip);
	COPY(dst_ip6, dst_ip);
	SET(flow_label, flow_label);
	SET(next_hdr, next_hdr);
	SET(traffic_class, traffic_class);
	SET(hop_limit, hop_limit);
	return add_layer(m, VB_LAYER_IPV6);
}

static int add_ports(struct vb_flow_match *m, const struct ibv_flow_spec_tcp_udp *spec)
{
	SET(dst_port, dst_port);
	SET(src_port, src_port);
	return add_layer(m, spec->type == IBV_FLOW_SPEC_TCP ? VB_LAYER_TCP : VB_LAYER_UDP);
}

/* A rule has one counters object, as with mlx5. */
static int add_counting(struct vb_flow_match *m, const struct ibv_flow_spec_counter_action *spec)
{
	if (m->counts)
		return EINVAL;
	m->counts = true;
	m->counters = spec->counters;
	return 0;
}

static int add_tag(struct vb_flow_match *m, const struct ibv_flow_spec_action_tag *spec)
{
	if (m->tags)
		return EINVAL;
	m->tags = true;
	m->tag = spec->tag_id;
	return 0;
}

/* The size of a specification of this type; 0: not supported. */
static size_t size_of_spec(uint32_t type)
{
	switch (type) {
	case IBV_FLOW_SPEC_ETH:
		return sizeof(struct ibv_flow_spec_eth);
	case IBV_FLOW_SPEC_IPV4:
		return sizeof(struct ibv_flow_spec_ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return sizeof(struct ibv_flow_spec_ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return sizeof(struct ibv_flow_spec_ipv6);
	case IBV_FLOW_SPEC_TCP:
	case IBV_FLOW_SPEC_UDP:
		return sizeof(struct ibv_flow_spec_tcp_udp);
	case IBV_FLOW_SPEC_ACTION_TAG:
		return sizeof(struct ibv_flow_spec_action_tag);
	case IBV_FLOW_SPEC_ACTION_DROP:
		return sizeof(struct ibv_flow_spec_action_drop);
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return sizeof(struct ibv_flow_spec_counter_action);
	default:
		return 0;
	}
}

static int add_spec(struct vb_flow_match *m, const struct ibv_flow_spec *spec)
{
	switch ((uint32_t)spec->hdr.type) {
	case IBV_FLOW_SPEC_ETH:
		return add_eth(m, &spec->eth);
	case IBV_FLOW_SPEC_IPV4:
		return add_ipv4(m, &spec->ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return add_ipv4_ext(m, &spec->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return add_ipv6(m, &spec->ipv6);
	case IBV_FLOW_SPEC_ACTION_DROP:
		m->drop = true;
		return 0;
	case IBV_FLOW_SPEC_ACTION_TAG:
		return add_tag(m, &spec->flow_tag);
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return add_counting(m, &spec->flow_count);
	default:
		return add_ports(m, &spec->tcp_udp);
	}
}

int vb_flow_parse(const struct ibv_flow_attr *attr, struct vb_flow_match *match)
{
	const uint8_t *at = (const uint8_t *)(attr + 1);
	/* rdma-core does not read the size, and some programs do not set it */
	size_t left = attr->size > sizeof(*attr) ? attr->size - sizeof(*attr) : SIZE_MAX;

	memset(match, 0, sizeof(*match));
	for (unsigned i = 0; i < attr->num_of_specs; i++) {
		struct ibv_flow_spec spec = {0};

		/* programs lay the structures out packed, so they may be misaligned */
		if (left < sizeof(spec.hdr))
			return EINVAL;
		memcpy(&spec.hdr, at, sizeof(spec.hdr));
		size_t size = size_of_spec((uint32_t)spec.hdr.type);

		if (!size)
			return EOPNOTSUPP;
		if (spec.hdr.size != size || left < size)
			return EINVAL;
		memcpy(&spec, at, size);
		int err = add_spec(match, &spec);

		if (err)
			return err;
		at += size;
		left -= size;
	}
	for (size_t i = 0; i < VB_FRAME_KEY_WORDS; i++)
		match->value.word[i] &= match->mask.word[i];
	return 0;
}

/* --- which frames have it --- */

static unsigned dissect_ports(const uint8_t *p, uint32_t len, uint8_t protocol, struct vb_frame_key *key)
{
	if ((protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || len < PORTS_LEN)
		return 0;
	key->src_port = htons(vb_load16(p));
	key->dst_port = htons(vb_load16(p + 2));
	return protocol == IPPROTO_TCP ? VB_LAYER_TCP : VB_LAYER_UDP;
}

static unsigned dissect_ipv4(const uint8_t *p, uint32_t len, struct vb_frame_key *key)
{
	uint32_t header = len < VB_IPV4_LEN ? 0 : (p[0] & 15u) * 4;

	if (header < VB_IPV4_LEN || header > len || p[0] >> 4 != 4)
		return 0;
	uint16_t fragment = vb_load16(p + 6);

	memcpy(&key->src_ip, p + 12, 4);
	memcpy(&key->dst_ip, p + 16, 4);
	key->tos = p[1];
	key->ttl = p[8];
	key->proto = p[9];
	key->ip_flags = (uint8_t)((fragment & 0x4000 ? VB_IP_DONT_FRAGMENT : 0) |
	                          (fragment & 0x2000 ? VB_IP_MORE_FRAGMENTS : 0));
	if (fragment & 0x1fff) /* a later fragment: no ports */
		return VB_LAYER_IPV4;
	return VB_LAYER_IPV4 | dissect_ports(p + header, len - header, p[9], key);
}

static unsigned dissect_ipv6(const uint8_t *p, uint32_t len, struct vb_frame_key *key)
{
	if (len < VB_IPV6_LEN || p[0] >> 4 != 6)
		return 0;
	key->flow_label = htonl((p[1] & 15u) << 16 | vb_load16(p + 2));
	key->traffic_class = (uint8_t)(p[0] << 4 | p[1] >> 4);
	key->next_hdr = p[6];
	key->hop_limit = p[7];
	memcpy(key->src_ip6, p + 8, 16);
	memcpy(key->dst_ip6, p + 24, 16);
	return VB_LAYER_IPV6 | dissect_ports(p + VB_IPV6_LEN, len - VB_IPV6_LEN, p[6], key);
}

uint8_t vb_frame_dissect(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields)
{
	struct vb_frame_key *key = &fields->key;
	unsigned layers = 0;
	uint32_t at = VB_ETHERNET_LEN;

	memset(fields, 0, sizeof(*fields));
	if (len < VB_ETHERNET_LEN)
		return 0;
	memcpy(key->dst_mac, frame, 6);
	memcpy(key->src_mac, frame + 6, 6);
	uint16_t type = vb_load16(frame + 12);

	while (vb_is_vlan_tag(type) && at + VB_VLAN_TAG_LEN <= len) {
		key->vlan_tag = htons(vb_load16(frame + at));
		type = vb_load16(frame + at + 2);
		layers = VB_LAYER_TAG;
		at += VB_VLAN_TAG_LEN;
	}
	key->ether_type = htons(type);
	if (type == VB_ETHERTYPE_IPV4)
		layers |= dissect_ipv4(frame + at, len - at, key);
	else if (type == VB_ETHERTYPE_IPV6)
		layers |= dissect_ipv6(frame + at, len - at, key);
	return (uint8_t)layers;
}

bool vb_flow_matches(const struct vb_flow_match *match, const union vb_frame_fields *fields, uint8_t layers)
{
	if ((layers & match->layers) != match->layers)
		return false;
	for (size_t i = 0; i < VB_FRAME_KEY_WORDS; i++)
		if ((fields->word[i] & match->mask.word[i]) != match->value.word[i])
			return false;
	return true;
}
