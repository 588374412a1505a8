// flow_match.h - the rules of flow steering as pure functions: what a rule asks for, and which frames have it
// follows: ibv_create_flow(3); IEEE 802.3, 802.1Q; RFC 791, RFC 8200; RFC 2784, RFC 2890 (GRE), RFC 7348 (VXLAN), RFC 3032
// (MPLS), RFC 4303 (ESP)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_FLOW_MATCH_H
#define VB_CORE_FLOW_MATCH_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* The layers of a frame. */
enum {
	VB_LAYER_IPV4 = 1 << 0,
	VB_LAYER_IPV6 = 1 << 1,
	VB_LAYER_TCP = 1 << 2,
	VB_LAYER_UDP = 1 << 3,
	VB_LAYER_TAG = 1 << 4, /* a VLAN tag */
	VB_LAYER_ETHERNET = 1 << 5,
	VB_LAYER_ESP = 1 << 6,
	VB_LAYER_GRE = 1 << 7,
	VB_LAYER_VXLAN = 1 << 8,
	VB_LAYER_MPLS = 1 << 9,
};

/* ip_flags: those of struct ibv_flow_ipv4_ext_filter, as in Linux. */
enum { VB_IP_DONT_FRAGMENT = 2, VB_IP_MORE_FRAGMENTS = 4 };

/* The fields of all layers, in network order. Those of layers that a frame does not have are zero. No padding, because
 * keys are compared byte by byte. */
struct vb_frame_key {
	uint8_t dst_mac[6], src_mac[6];
	uint16_t ether_type, vlan_tag; /* of the last tag */
	uint32_t src_ip, dst_ip;
	uint8_t proto, tos, ttl, ip_flags;
	uint8_t src_ip6[16], dst_ip6[16];
	uint32_t flow_label;
	uint8_t next_hdr, traffic_class, hop_limit, zero;
	uint16_t dst_port, src_port;
	uint32_t esp_spi, esp_seq;
	uint16_t gre_flags, gre_protocol;
	uint32_t gre_key;
	uint32_t tunnel_id; /* VXLAN's VNI, 24 bits */
	uint32_t mpls;      /* the first entry of the stack of labels, whole */
};

#define VB_FRAME_KEY_WORDS (sizeof(struct vb_frame_key) / sizeof(uint32_t))

union vb_frame_fields {
	struct vb_frame_key key;
	uint32_t word[VB_FRAME_KEY_WORDS];
};
_Static_assert(sizeof(union vb_frame_fields) == sizeof(struct vb_frame_key), "no padding");

/* What a rule asks of the headers of a frame, or of those inside its tunnel. */
struct vb_flow_part {
	union vb_frame_fields value, mask; /* value has no bits that mask has not */
	uint16_t layers;                   /* that a frame must have */
};

struct vb_flow_match {
	struct vb_flow_part outer, inner;
	bool deep; /* inner counts */
	bool drop; /* such frames go nowhere */
	bool tags; /* the completions of such frames have this tag */
	uint32_t tag;
	bool counts;                   /* the next one was given */
	struct ibv_counters *counters; /* that count such frames: not checked */
};

/* Reads the specifications behind attr. Returns 0, EINVAL (a wrong size or type, or two that contradict each other) or
 * EOPNOTSUPP (a kind that is not supported). */
int vb_flow_parse(const struct ibv_flow_attr *attr, struct vb_flow_match *match);

bool vb_flow_matches(const struct vb_flow_part *part, const union vb_frame_fields *fields, uint16_t layers);

/* --- frames: flow_dissect.c --- */

/* The fields of a frame, and its layers. Frames that are cut off have fewer layers. */
uint16_t vb_frame_dissect(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields);
/* The same of what is in its tunnel: behind the headers of VXLAN, GRE, MPLS over GRE or UDP, or IP in IP. 0: it has none. */
uint16_t vb_frame_dissect_inner(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields);

/* Is the destination address one of several stations? */
static inline bool vb_frame_is_group(const union vb_frame_fields *fields)
{
	return fields->key.dst_mac[0] & 1;
}

#endif
