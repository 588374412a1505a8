// smp.h - subnet management packets and their attributes, in host order
// follows: IBA volume 1, 14.2.1 (SMP), 14.2.2 (directed route), 14.2.5 (attributes), 13.4.8 (notice)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_SMP_H
#define VB_FRAME_SMP_H

#include "frame/mad.h"

#define VB_MAD_CLASS_SM_LID 0x01
#define VB_MAD_CLASS_SA 0x03
#define VB_MAD_CLASS_PM 0x04
#define VB_MAD_CLASS_DEVICE_MGMT 0x06
#define VB_MAD_CLASS_SM_DR 0x81
#define VB_SMI_QPN 0

#define VB_LID_DIRECTED 0xffff /* the LIDs of the part of a route that is directed */
#define VB_LID_MULTICAST 0xc000

enum vb_mad_method {
	VB_MAD_GET = 0x01,
	VB_MAD_SET = 0x02,
	VB_MAD_TRAP = 0x05,
	VB_MAD_REPRESS = 0x07,
	VB_MAD_GET_RESP = 0x81,
	VB_MAD_RESPONSE = 0x80, /* the bit of a response */
};

/* Status of a MAD (13.4.7). */
enum vb_mad_status {
	VB_MAD_BAD_VERSION = 0x04,
	VB_MAD_BAD_METHOD = 0x08,
	VB_MAD_BAD_ATTR = 0x0c,
	VB_MAD_BAD_VALUE = 0x1c,
	VB_SMP_RETURNING = 0x8000, /* the D bit of a directed route */
};

enum vb_smp_attr {
	VB_SMP_NOTICE = 0x02,
	VB_SMP_NODE_DESC = 0x10,
	VB_SMP_NODE_INFO = 0x11,
	VB_SMP_SWITCH_INFO = 0x12,
	VB_SMP_GUID_INFO = 0x14,
	VB_SMP_PORT_INFO = 0x15,
	VB_SMP_PKEY_TABLE = 0x16,
	VB_SMP_SL_TO_VL = 0x17,
	VB_SMP_VL_ARB = 0x18,
	VB_SMP_LFT = 0x19,
	VB_SMP_MFT = 0x1b,
	VB_SMP_SM_INFO = 0x20,
	VB_SMP_LED_INFO = 0x31,
};

#define VB_SMP_DATA 64
#define VB_SMP_HOPS 64

/* mad.status has VB_SMP_RETURNING; hop pointer and hop count are mad.class_specific. */
struct vb_smp {
	struct vb_mad mad;
	uint64_t mkey;
	uint16_t dr_slid, dr_dlid;
	uint8_t data[VB_SMP_DATA];
	uint8_t initial[VB_SMP_HOPS], back[VB_SMP_HOPS]; /* zeros unless the class is VB_MAD_CLASS_SM_DR */
};

static inline uint8_t vb_smp_hop(const struct vb_smp *s)
{
	return (uint8_t)(s->mad.class_specific >> 8);
}

static inline uint8_t vb_smp_hops(const struct vb_smp *s)
{
	return (uint8_t)s->mad.class_specific;
}

static inline void vb_smp_set_hop(struct vb_smp *s, uint8_t hop)
{
	s->mad.class_specific = (uint16_t)(hop << 8 | vb_smp_hops(s));
}

/* Any bytes decode. */
void vb_smp_decode(struct vb_smp *s, const uint8_t mad[VB_MAD_LEN]);
void vb_smp_encode(uint8_t mad[VB_MAD_LEN], const struct vb_smp *s);

enum vb_node_type { VB_NODE_CA = 1, VB_NODE_SWITCH = 2, VB_NODE_ROUTER = 3 };

struct vb_node_info {
	uint8_t base_version, class_version, type, ports;
	uint64_t system_guid, node_guid, port_guid;
	uint16_t partitions, device_id;
	uint32_t revision, vendor_id; /* vendor: 24 bits */
	uint8_t local_port;
};

enum vb_port_state { VB_PORT_NO_CHANGE, VB_PORT_DOWN, VB_PORT_INIT, VB_PORT_ARMED, VB_PORT_ACTIVE };
enum vb_port_phys { VB_PHYS_NO_CHANGE, VB_PHYS_SLEEP, VB_PHYS_POLLING, VB_PHYS_DISABLED, VB_PHYS_TRAINING, VB_PHYS_UP };

#define VB_CAP_SM 0x00000002u
#define VB_CAP_NOTICE 0x00000004u
#define VB_CAP_TRAP 0x00000008u
#define VB_CAP_AUTO_MIGRATION 0x00000020u
#define VB_CAP_SL_MAP 0x00000040u
#define VB_CAP_SYSTEM_GUID 0x00000800u
#define VB_CAP_EXT_SPEEDS 0x00004000u
#define VB_CAP_CM 0x00010000u
#define VB_CAP_REINIT 0x00040000u
#define VB_CAP_DEVICE_MGMT 0x00080000u
#define VB_CAP_CLIENT_REREGISTER 0x02000000u

struct vb_port_info {
	uint64_t mkey, gid_prefix;
	uint16_t lid, sm_lid;
	uint32_t cap_mask;
	uint16_t diag, mkey_lease;
	uint8_t local_port;
	uint8_t width_enabled, width_supported, width_active;
	uint8_t speed_supported, state, phys, down_default;
	uint8_t mkey_protect, lmc, speed_active, speed_enabled;
	uint8_t neighbor_mtu, sm_sl, vl_cap, init_type;
	uint8_t vl_high_limit, vl_arb_high_cap, vl_arb_low_cap;
	uint8_t init_reply, mtu_cap, vl_stall, hoq_life;
	uint8_t oper_vls, enforce; /* enforce: 4 bits: partition in, partition out, raw in, raw out */
	uint16_t mkey_violations, pkey_violations, qkey_violations;
	uint8_t guid_cap, reregister, mcast_pkey_trap, subnet_timeout, resp_time;
	uint8_t phys_errors, overrun_errors;
	uint16_t credit_hint;
	uint32_t round_trip; /* 24 bits */
	uint16_t cap_mask2;
	uint8_t ext_active, ext_supported, ext_enabled;
};

#define VB_ENFORCE_IN 8
#define VB_ENFORCE_OUT 4

struct vb_switch_info {
	uint16_t lft_cap, random_cap, mft_cap, lft_top;
	uint8_t default_port, default_mcast_primary, default_mcast_other;
	uint8_t life_time, state_change, sl2vl_optimized;
	uint16_t lids_per_port, enforce_cap;
	uint8_t caps; /* 5 bits: inbound, outbound, raw in, raw out, enhanced port 0 */
	uint16_t mft_top;
};

enum vb_notice_type { VB_NOTICE_FATAL, VB_NOTICE_URGENT, VB_NOTICE_SECURITY, VB_NOTICE_SM, VB_NOTICE_INFORMATION };
#define VB_NOTICE_DETAILS 54

struct vb_notice {
	bool generic;
	uint8_t type;      /* 7 bits */
	uint32_t producer; /* enum vb_node_type, 24 bits; a vendor id if not generic */
	uint16_t trap, issuer_lid;
	uint16_t toggle_count; /* toggle: the high bit */
	uint8_t details[VB_NOTICE_DETAILS];
};

void vb_node_info_decode(struct vb_node_info *n, const uint8_t data[VB_SMP_DATA]);
void vb_node_info_encode(uint8_t data[VB_SMP_DATA], const struct vb_node_info *n);
void vb_port_info_decode(struct vb_port_info *p, const uint8_t data[VB_SMP_DATA]);
void vb_port_info_encode(uint8_t data[VB_SMP_DATA], const struct vb_port_info *p);
void vb_switch_info_decode(struct vb_switch_info *s, const uint8_t data[VB_SMP_DATA]);
void vb_switch_info_encode(uint8_t data[VB_SMP_DATA], const struct vb_switch_info *s);
void vb_notice_decode(struct vb_notice *n, const uint8_t data[VB_SMP_DATA]);
void vb_notice_encode(uint8_t data[VB_SMP_DATA], const struct vb_notice *n);

#endif
