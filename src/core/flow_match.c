// flow_match.c - the rules of flow steering as pure functions: what a rule asks for
// follows: ibv_create_flow(3)
// SPDX-License-Identifier: MIT
#include "core/flow_match.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define VNI_MAX 0xffffffu

/* Adds a layer. Two that a frame cannot have at once contradict each other. */
static int add_layer(struct vb_flow_part *m, unsigned layer)
{
	static const unsigned exclusive[] = {VB_LAYER_IPV4 | VB_LAYER_IPV6,
	                                     VB_LAYER_TCP | VB_LAYER_UDP | VB_LAYER_ESP | VB_LAYER_GRE,
	                                     VB_LAYER_TCP | VB_LAYER_VXLAN | VB_LAYER_ESP | VB_LAYER_GRE};
	unsigned all = m->layers | layer;

	for (size_t i = 0; i < sizeof(exclusive) / sizeof(exclusive[0]); i++) {
		unsigned has = all & exclusive[i];

		if (has & (has - 1)) /* more than one of them */
			return EINVAL;
	}
	m->layers = (uint16_t)all;
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

static int add_eth(struct vb_flow_part *m, const struct ibv_flow_spec_eth *spec)
{
	COPY(dst_mac, dst_mac);
	COPY(src_mac, src_mac);
	SET(ether_type, ether_type);
	SET(vlan_tag, vlan_tag);
	return add_layer(m, VB_LAYER_ETHERNET | (spec->mask.vlan_tag ? VB_LAYER_TAG : 0u));
}

static int add_ipv4(struct vb_flow_part *m, const struct ibv_flow_spec_ipv4 *spec)
{
	SET(src_ip, src_ip);
	SET(dst_ip, dst_ip);
	return add_layer(m, VB_LAYER_IPV4);
}

static int add_ipv4_ext(struct vb_flow_part *m, const struct ibv_flow_spec_ipv4_ext *spec)
{
	SET(src_ip, src_ip);
	SET(dst_ip, dst_ip);
	SET(proto, proto);
	SET(tos, tos);
	SET(ttl, ttl);
	SET(ip_flags, flags);
	return add_layer(m, VB_LAYER_IPV4);
}

static int add_ipv6(struct vb_flow_part *m, const struct ibv_flow_spec_ipv6 *spec)
{
	COPY(src_ip6, src_ip);
	COPY(dst_ip6, dst_ip);
	SET(flow_label, flow_label);
	SET(next_hdr, next_hdr);
	SET(traffic_class, traffic_class);
	SET(hop_limit, hop_limit);
	return add_layer(m, VB_LAYER_IPV6);
}

static int add_ports(struct vb_flow_part *m, const struct ibv_flow_spec_tcp_udp *spec)
{
	SET(dst_port, dst_port);
	SET(src_port, src_port);
	return add_layer(m, (spec->type & ~(unsigned)IBV_FLOW_SPEC_INNER) == IBV_FLOW_SPEC_TCP ? VB_LAYER_TCP
	                                                                                       : VB_LAYER_UDP);
}

static int add_esp(struct vb_flow_part *m, const struct ibv_flow_spec_esp *spec)
{
	SET(esp_spi, spi);
	SET(esp_seq, seq);
	return add_layer(m, VB_LAYER_ESP);
}

static int add_gre(struct vb_flow_part *m, const struct ibv_flow_spec_gre *spec)
{
	SET(gre_flags, c_ks_res0_ver);
	SET(gre_protocol, protocol);
	SET(gre_key, key);
	return add_layer(m, VB_LAYER_GRE);
}

/* As the kernel, which refuses values of more than 24 bits. */
static int add_vxlan(struct vb_flow_part *m, const struct ibv_flow_spec_tunnel *spec)
{
	if (ntohl(spec->val.tunnel_id) > VNI_MAX || ntohl(spec->mask.tunnel_id) > VNI_MAX)
		return EINVAL;
	SET(tunnel_id, tunnel_id);
	return add_layer(m, VB_LAYER_VXLAN);
}

static int add_mpls(struct vb_flow_part *m, const struct ibv_flow_spec_mpls *spec)
{
	SET(mpls, label);
	return add_layer(m, VB_LAYER_MPLS);
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
	case IBV_FLOW_SPEC_ESP:
		return sizeof(struct ibv_flow_spec_esp);
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
		return sizeof(struct ibv_flow_spec_tunnel);
	case IBV_FLOW_SPEC_GRE:
		return sizeof(struct ibv_flow_spec_gre);
	case IBV_FLOW_SPEC_MPLS:
		return sizeof(struct ibv_flow_spec_mpls);
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

static int add_headers(struct vb_flow_part *m, uint32_t type, const struct ibv_flow_spec *spec)
{
	switch (type) {
	case IBV_FLOW_SPEC_ETH:
		return add_eth(m, &spec->eth);
	case IBV_FLOW_SPEC_IPV4:
		return add_ipv4(m, &spec->ipv4);
	case IBV_FLOW_SPEC_IPV4_EXT:
		return add_ipv4_ext(m, &spec->ipv4_ext);
	case IBV_FLOW_SPEC_IPV6:
		return add_ipv6(m, &spec->ipv6);
	case IBV_FLOW_SPEC_ESP:
		return add_esp(m, &spec->esp);
	case IBV_FLOW_SPEC_VXLAN_TUNNEL:
		return add_vxlan(m, &spec->tunnel);
	case IBV_FLOW_SPEC_GRE:
		return add_gre(m, &spec->gre);
	case IBV_FLOW_SPEC_MPLS:
		return add_mpls(m, &spec->mpls);
	default:
		return add_ports(m, &spec->tcp_udp);
	}
}

static int add_spec(struct vb_flow_match *m, uint32_t type, const struct ibv_flow_spec *spec)
{
	bool inner = type & IBV_FLOW_SPEC_INNER;

	switch (type) {
	case IBV_FLOW_SPEC_ACTION_DROP:
		m->drop = true;
		return 0;
	case IBV_FLOW_SPEC_ACTION_TAG:
		return add_tag(m, &spec->flow_tag);
	case IBV_FLOW_SPEC_ACTION_COUNT:
		return add_counting(m, &spec->flow_count);
	default:
		m->deep = m->deep || inner;
		return add_headers(inner ? &m->inner : &m->outer, type & ~(uint32_t)IBV_FLOW_SPEC_INNER, spec);
	}
}

static void clear_unmasked(struct vb_flow_part *part)
{
	for (size_t i = 0; i < VB_FRAME_KEY_WORDS; i++)
		part->value.word[i] &= part->mask.word[i];
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
		uint32_t type = (uint32_t)spec.hdr.type, plain = type & ~(uint32_t)IBV_FLOW_SPEC_INNER;
		size_t size = size_of_spec(plain);

		if (plain != type && plain >= IBV_FLOW_SPEC_ACTION_TAG) /* an action is nobody's inner one */
			return EINVAL;
		if (!size)
			return EOPNOTSUPP;
		if (spec.hdr.size != size || left < size)
			return EINVAL;
		memcpy(&spec, at, size);
		int err = add_spec(match, type, &spec);

		if (err)
			return err;
		at += size;
		left -= size;
	}
	clear_unmasked(&match->outer);
	clear_unmasked(&match->inner);
	return 0;
}

bool vb_flow_matches(const struct vb_flow_part *part, const union vb_frame_fields *fields, uint16_t layers)
{
	if ((layers & part->layers) != part->layers)
		return false;
	for (size_t i = 0; i < VB_FRAME_KEY_WORDS; i++)
		if ((fields->word[i] & part->mask.word[i]) != part->value.word[i])
			return false;
	return true;
}
