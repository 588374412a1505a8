// icrc.h - the invariant CRC of a packet, even if its IPv4 identification is unknown
// follows: IBA volume 1, 7.8.1 (ICRC); annex A17 (RoCEv2), A17.3.3 (CA17-22)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_ICRC_H
#define VB_FRAME_ICRC_H

#include "frame/crc32.h"
#include "frame/header.h"
#include "frame/net.h"

/*
 * A sender calls vb_icrc_start for BTH and extension headers, vb_crc32 for each piece of payload and for the pad, then
 * vb_icrc_encode, which writes four bytes. udp_payload_len counts from BTH to ICRC. headers are at least a BTH. ipv4_id
 * is the identification that the kernel will write: 0, or the segment's number within one GSO send.
 */
uint32_t vb_icrc_start(const struct vb_flow *flow, uint16_t ipv4_id, const uint8_t *headers, size_t headers_len,
                       size_t udp_payload_len);

/*
 * The same for a contiguous packet, BTH to pad, which is changed during the call and restored. The cache keeps partial
 * results for few flows and packet sizes. It is all zeros at first.
 */
/* entries. One flow has several lengths, which should not collide: full, first, last, acknowledgement */
#define VB_ICRC_FLOWS 32

struct vb_icrc_cache {
	struct vb_icrc_known {
		struct vb_flow flow;
		size_t len;
		struct vb_crc32_powers payload; /* for vb_icrc_summed; 0: not computed yet */
		uint32_t start;                 /* the CRC of everything before the BTH, with identification 0 */
		bool known;                     /* start is valid */
		bool numbered;                  /* the packets have an identification */
	} of[VB_ICRC_FLOWS];
};

uint32_t vb_icrc_packet(struct vb_icrc_cache *cache, const struct vb_flow *flow, uint16_t ipv4_id, uint8_t *packet,
                        size_t len);

/*
 * The same for a BTH with extension headers, and len bytes of payload elsewhere, whose sum vb_guard_copy_sum or
 * vb_guard_sum has computed. known is vb_icrc_known() for the flow and the length from BTH to ICRC. It is valid until
 * the next call of vb_icrc_known or vb_icrc_packet.
 */
struct vb_icrc_known *vb_icrc_known(struct vb_icrc_cache *cache, const struct vb_flow *flow, size_t len);
uint32_t vb_icrc_summed(struct vb_icrc_known *known, uint16_t ipv4_id, const uint8_t *headers, size_t headers_len,
                        const uint64_t sum[2], size_t len);

void vb_icrc_encode(uint8_t icrc[VB_ICRC_LEN], uint32_t crc);

/* The difference between a packet's ICRC and the correct one: 0 if they are equal. */
uint32_t vb_icrc_residual(const uint8_t icrc[VB_ICRC_LEN], uint32_t crc);

/* The same for a contiguous UDP payload. Not 0 if it is shorter than BTH and ICRC. */
uint32_t vb_icrc_check(const struct vb_flow *flow, uint16_t ipv4_id, const uint8_t *udp_payload, size_t len);

/*
 * Finds the identification of an IPv4 packet from the residual for the identification `guess`. Returns 0 to 65535, or
 * -1 if no identification makes the ICRC correct. The ICRC is linear, so there is at most one. A residual of 0 checks
 * 32 bits, this function only 16. If the sender's identifications are known (0, or small numbers), the caller should
 * accept only these. IPv6 has no such field: only a residual of 0 is correct.
 */
int vb_icrc_find_id(uint32_t residual, uint16_t guess, size_t udp_payload_len);

#endif
