// segment.h - how a message becomes packets
// follows: IBA volume 1, 9.7 (a message is packets of the path MTU, the last may be shorter), 9.2 (PadCnt)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_SEGMENT_H
#define VB_FRAME_SEGMENT_H

#include <stdint.h>

/* Packets, and PSNs, of a message or of a response to a read. A message of no bytes is one packet. */
static inline uint32_t vb_packet_count(uint32_t len, uint32_t mtu)
{
	return len ? (len - 1) / mtu + 1 : 1;
}

/* Payload of the last, or only, packet. */
static inline uint32_t vb_last_len(uint32_t len, uint32_t mtu)
{
	return len ? (len - 1) % mtu + 1 : 0;
}

/* Bytes behind a payload up to a multiple of four. */
static inline uint8_t vb_pad_count(uint32_t len)
{
	return -len & 3;
}

#endif
