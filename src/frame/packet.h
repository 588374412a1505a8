// packet.h - a RoCEv2 packet: a UDP payload, and its decoded headers
// follows: IBA volume 1, 9.2, 9.3, 9.6 (packet validation); annex A17 (RoCEv2), figure 5
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_PACKET_H
#define VB_FRAME_PACKET_H

#include "frame/header.h"
#include "frame/opcode.h"

#define VB_PAYLOAD_MAX 4096 /* the largest path MTU */

struct vb_packet {
	struct vb_bth bth;
	const struct vb_opcode_info *info; /* the row of bth.opcode */
	                                   /* extension headers: valid if in info->ext, otherwise zero */
#define X(arg, name, field, len) struct vb_##field field;
	VB_EXTENSIONS(X, )
#undef X
	uint32_t payload_at, payload_len; /* within the UDP payload; without pad and ICRC */
};

/* X(name, text for counters and logs). */
#define VB_VERDICTS(X)                                                         \
	X(OK, "well formed")                                                   \
	X(TRUNCATED, "ends within its headers")                                \
	X(TVER, "another transport version")                                   \
	X(OPCODE, "an opcode that is reserved or not supported")               \
	X(LENGTH, "not a multiple of 4 bytes, or payload where there is none") \
	X(PAD, "more pad than payload, or pad before the last packet")         \
	X(LONG, "more payload than the largest MTU")

enum vb_verdict {
#define X(name, text) VB_PACKET_##name,
	VB_VERDICTS(X)
#undef X
};

const char *vb_verdict_text(enum vb_verdict verdict);

/*
 * Decodes a UDP payload, BTH to ICRC. If the verdict is not OK, *packet is untouched; a responder that must send a NAK
 * for a bad opcode or length decodes the BTH alone, with vb_bth_decode. icrc.h checks the ICRC, the engine checks path
 * MTU, PSN and keys.
 */
enum vb_verdict vb_packet_decode(struct vb_packet *packet, const uint8_t *udp_payload, size_t len);

/*
 * Writes the BTH and the extension headers of bth.opcode; info is not used. The caller appends payload, bth.pad zero
 * bytes and ICRC. A reserved opcode sets w->failed.
 */
void vb_packet_encode(struct vb_writer *w, const struct vb_packet *packet);

#endif
