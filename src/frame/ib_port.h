// ib_port.h - the state of an InfiniBand port and of ways from it, as the fabric process tells it to programs
// follows: IBA volume 1, 4.1.3 (LIDs), 14.2.5.6 (PortInfo), 14.2.5.5 (GUIDInfo), 14.2.5.7 (P_KeyTable)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_IB_PORT_H
#define VB_FRAME_IB_PORT_H

#include <stdbool.h>
#include <stdint.h>

#define VB_IB_PKEYS 64
#define VB_IB_GUIDS 8

/* All numbers in host order. Codes (state, phys, mtu, width, speed) are those of PortInfo. */
struct vb_ib_port {
	uint64_t node_guid, system_guid;
	uint64_t prefix;
	uint64_t guids[VB_IB_GUIDS]; /* 0: an empty entry */
	uint8_t address[16]; /* by which the broker finds the programs on this port: of one fabric process alone */
	uint32_t cap_mask, vendor_id, device_id;
	uint32_t reregisters; /* how often the subnet manager has asked for it */
	uint16_t lid, sm_lid;
	uint16_t bad_pkeys, bad_qkeys;
	uint8_t state, phys, lmc, sm_sl;
	uint8_t mtu, mtu_cap, vls, subnet_timeout;
	uint8_t width, speed; /* speed: of ibv_port_attr: 1, 2, 4; 16 FDR, 32 EDR, 64 HDR, 128 NDR */
	uint8_t reserved[6];
	uint16_t pkey[VB_IB_PKEYS]; /* 0: an empty entry */
};

/* --- what a program counts in memory that the fabric process reads --- */

#define VB_FABRIC_WAYS 65536u /* of a program */
#define VB_IB_SENDERS 32768u  /* a program has 16,384 queue pairs; one that moves to another way has two for a moment */

/* What has been sent by a way: of a queue pair, or of all that send no more. */
struct vb_ib_sent {
	_Atomic uint64_t packets[2], bytes[2]; /* there and back; they only grow while it has a way */
	_Atomic uint32_t tag;                  /* of its way, plus one; 0: it has none */
	_Atomic uint32_t turn;                 /* grows when it loses its way */
	uint64_t reserved[3];
};

struct vb_ib_traffic_map {
	_Atomic uint32_t senders; /* those that have been in use */
	uint32_t reserved[15];
	struct vb_ib_sent
	        way[VB_FABRIC_WAYS]; /* by tag: datagrams, and queue pairs that have left it; tag is not used */
	struct vb_ib_sent sender[VB_IB_SENDERS];
};
_Static_assert(sizeof(struct vb_ib_sent) == 64, "a cache line each");

/* X(name, text): why there is no way. */
#define VB_FABRIC_WHY(X)                                        \
	X(OPEN, "open")                                         \
	X(NO_LINK, "a link is down")                            \
	X(NOT_ACTIVE, "a port is not Active")                   \
	X(NO_ROUTE, "a switch has no route")                    \
	X(LOOP, "the forwarding tables lead round in a circle") \
	X(BAD_PKEY, "a P_Key is missing on the way")            \
	X(BAD_GID, "the port at its end has another GID")       \
	X(NOT_THERE, "the port at its end has another LID")     \
	X(BAD_VL, "a port has not the virtual lane of its SL")  \
	X(TOO_MANY, "the program has too many ways")            \
	X(ELSEWHERE, "it leads through another fabric process")

enum vb_fabric_why {
#define X(name, text) VB_WAY_##name,
	VB_FABRIC_WHY(X)
#undef X
	        VB_WAYS
};

/* Multicast LIDs: 4.1.3. The last LID is the permissive one. */
static inline bool vb_ib_is_group_lid(uint16_t lid)
{
	return lid >= 0xc000 && lid != 0xffff;
}

/* May these two P_Keys talk: 10.9.3? At least one is of a full member. */
static inline int vb_pkeys_match(uint16_t a, uint16_t b)
{
	return (a & 0x7fff) && !((a ^ b) & 0x7fff) && ((a | b) & 0x8000);
}

#endif
