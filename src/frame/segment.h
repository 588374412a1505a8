// segment.h - the packets of a message: their number, the length of the last one, its pad
// follows: IBA volume 1, 9.7 (segmentation by the path MTU), 9.2 (PadCnt)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_SEGMENT_H
#define VB_FRAME_SEGMENT_H

#include <stdint.h>

/* The number of packets, and so of PSNs, of a message or of a read response. A message of 0 bytes is one packet. */
static inline uint32_t vb_packet_count(uint32_t len, uint32_t mtu)
{
	return len ? (len - 1) / mtu + 1 : 1;
}

/* The payload length of the last, or only, packet. */
static inline uint32_t vb_last_len(uint32_t len, uint32_t mtu)
{
	return len ? (len - 1) % mtu + 1 : 0;
}

/* The pad bytes that extend a payload to a multiple of four. */
static inline uint8_t vb_pad_count(uint32_t len)
{
	return -len & 3;
}

#endif
