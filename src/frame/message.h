// message.h - a message as the RoCEv2 packets that it is on a network: their number, and the headers of each
// follows: IBA volume 1, 9.2, 9.3, 9.7 (segmentation by the path MTU)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_MESSAGE_H
#define VB_FRAME_MESSAGE_H

#include "frame/packet.h"

/* A request, or an answer. The fields of extension headers that its packets do not have are ignored. */
struct vb_message {
	enum vb_service service;
	enum vb_op op;
	unsigned tail;   /* VB_EXT_IMMDT, VB_EXT_IETH, or 0 */
	uint32_t length; /* payload of the message; of a read request: of its response */
	uint32_t mtu;
	uint32_t dest_qpn;
	struct vb_psn psn; /* of the first packet */
	uint16_t pkey;
	bool solicited;
	struct vb_feth feth;
	struct vb_reth reth;
	struct vb_atomic atomic;
	struct vb_deth deth;
	struct vb_xrceth xrceth;
	struct vb_aeth aeth;
	struct vb_atomic_ack atomic_ack;
	uint32_t last; /* the ImmDt or IETH of the last packet */
};

/* The longest headers: BTH and those of an atomic of XRC. */
#define VB_MESSAGE_HEAD_MAX VB_HEADER_LEN(VB_EXT_XRCETH | VB_EXT_ATOMIC)

/* The number of packets; and of PSNs, which is that of its response for a read request. */
uint32_t vb_message_packets(const struct vb_message *m);
uint32_t vb_message_psns(const struct vb_message *m);

/* Writes the headers of packet i. Returns their length, with the packet's part of the payload in *offset and *len and
 * its pad in *pad; or 0 if no opcode is right for it. */
size_t vb_message_head(const struct vb_message *m, uint32_t i, uint8_t head[VB_MESSAGE_HEAD_MAX], uint32_t *offset,
                       uint32_t *len, uint8_t *pad);

#endif
