// flow_match.h - the rules of flow steering as pure functions: what a rule asks for, and which frames have it
// follows: ibv_create_flow(3); IEEE 802.3, 802.1Q; RFC 791, RFC 8200
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
};

#define VB_FRAME_KEY_WORDS (sizeof(struct vb_frame_key) / sizeof(uint32_t))

union vb_frame_fields {
	struct vb_frame_key key;
	uint32_t word[VB_FRAME_KEY_WORDS];
};
_Static_assert(sizeof(union vb_frame_fields) == sizeof(struct vb_frame_key), "no padding");

struct vb_flow_match {
	union vb_frame_fields value, mask; /* value has no bits that mask has not */
	uint8_t layers;                    /* that a frame must have */
	bool drop;                         /* such frames go nowhere */
	bool tags;                         /* the completions of such frames have this tag */
	uint32_t tag;
	bool counts;                   /* the next one was given */
	struct ibv_counters *counters; /* that count such frames: not checked */
};

/* Reads the specifications behind attr. Returns 0, EINVAL (a wrong size or type, or two that contradict each other) or
 * EOPNOTSUPP (a kind that is not supported). */
int vb_flow_parse(const struct ibv_flow_attr *attr, struct vb_flow_match *match);

/* The fields of a frame, and its layers. Frames that are cut off have fewer layers. */
uint8_t vb_frame_dissect(const uint8_t *frame, uint32_t len, union vb_frame_fields *fields);

bool vb_flow_matches(const struct vb_flow_match *match, const union vb_frame_fields *fields, uint8_t layers);

/* Is the destination address one of several stations? */
static inline bool vb_frame_is_group(const union vb_frame_fields *fields)
{
	return fields->key.dst_mac[0] & 1;
}

#endif
