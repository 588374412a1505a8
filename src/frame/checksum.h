// checksum.h - the checksum of IP, TCP and UDP
// follows: RFC 1071
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CHECKSUM_H
#define VB_FRAME_CHECKSUM_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Adds the words of these bytes, fewer than 2^32, to a sum below 2^48. An odd byte is the upper half of a word. Four words
 * are added at once where there are four: what overflows a word comes back to it when the sum is folded. */
static inline uint64_t vb_sum_words(uint64_t sum, const uint8_t *bytes, size_t len)
{
	uint64_t four, other = 0;
	size_t i = 0;

	for (; i + 8 <= len; i += 8) {
		memcpy(&four, bytes + i, sizeof(four));
		four = be64toh(four);
		sum += four >> 32;
		other += (uint32_t)four;
	}
	for (sum += other; i + 1 < len; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	return len % 2 ? sum + ((uint32_t)bytes[len - 1] << 8) : sum;
}

static inline uint16_t vb_sum_fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

#endif
