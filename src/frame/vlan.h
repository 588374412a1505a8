// vlan.h - the EtherType of a frame, behind its MAC addresses and VLAN tags
// follows: IEEE 802.3, 802.1Q
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_VLAN_H
#define VB_FRAME_VLAN_H

#include <stdbool.h>
#include <stdint.h>

#define VB_MACS_LEN 12u
#define VB_VLAN_TAG_LEN 4u

enum {
	VB_ETHERTYPE_IPV4 = 0x0800,
	VB_ETHERTYPE_IPV6 = 0x86dd,
	VB_ETHERTYPE_CVLAN = 0x8100, /* a VLAN tag follows: a customer's */
	VB_ETHERTYPE_SVLAN = 0x88a8, /* a service provider's */
};

static inline uint16_t vb_load16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

/* The low 16 bits of v. */
static inline void vb_store16(uint8_t *at, uint32_t v)
{
	at[0] = (uint8_t)(v >> 8);
	at[1] = (uint8_t)v;
}

static inline bool vb_is_vlan_tag(uint16_t ethertype)
{
	return ethertype == VB_ETHERTYPE_CVLAN || ethertype == VB_ETHERTYPE_SVLAN;
}

/* Where the frame has its EtherType: behind its VLAN tags. The EtherType of a frame that is cut off may not be there. */
static inline uint32_t vb_ethertype_at(const uint8_t *frame, uint32_t len)
{
	uint32_t at = VB_MACS_LEN;

	while (len >= at + VB_VLAN_TAG_LEN + 2 && vb_is_vlan_tag(vb_load16(frame + at)))
		at += VB_VLAN_TAG_LEN;
	return at;
}

#endif
