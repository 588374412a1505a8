// ud.h - packets of unreliable datagrams, from LRH to VCRC, for cables whose other end is in another process
// follows: IBA volume 1, 5.2 (packets), 9.6.3 (DETH)
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_UD_H
#define VB_FABRIC_UD_H

#include "frame/header.h"
#include "frame/lrh.h"

struct vb_fabric_ud {
	struct vb_flow flow;
	struct vb_ip_fields ip;
	struct vb_bth bth; /* opcode: VB_UD_SEND_ONLY, or VB_UD_SEND_ONLY_IMM */
	struct vb_deth deth;
	uint32_t imm;
	const uint8_t *payload; /* decoded: in the packet */
	size_t len;             /* with the pad a multiple of 4 */
};

/* Returns its length: the payload's, the pad's, and 78 at most. */
size_t vb_fabric_ud_encode(uint8_t *bytes, const struct vb_fabric_ud *u, uint8_t vl);
/* Of a well-formed packet. False: it is no such datagram, or its ICRC is wrong. */
bool vb_fabric_ud_decode(struct vb_fabric_ud *u, const uint8_t *bytes, const struct vb_link_packet *p);

#endif
