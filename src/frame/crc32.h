// crc32.h - the CRC of Ethernet, zlib, and the ICRC
// follows: IEEE 802.3 3.2.9; zlib's crc32() for seed and result
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CRC32_H
#define VB_FRAME_CRC32_H

#include <stddef.h>
#include <stdint.h>

/*
 * Continues a CRC: crc is that of the bytes before, 0 at the start. So it can be computed piece by piece, for example
 * over each few KiB of a copy while they are in the nearest cache. Copy memory first that another thread may change or
 * unmap.
 */
uint32_t vb_crc32(uint32_t crc, const void *bytes, size_t len);

/*
 * The same for the 12 bytes of head and n bytes that follow them, whose sum vb_guard_copy_sum has computed. powers is
 * vb_crc32_powers(n). Only if vb_guard_can_sum.
 */
struct vb_crc32_powers {
	uint64_t v[2];
};
struct vb_crc32_powers vb_crc32_powers(size_t n);
uint32_t vb_crc32_summed(uint32_t crc, const uint32_t head[3], const uint64_t sum[2],
                         const struct vb_crc32_powers *powers);

/* The product of two polynomials modulo the CRC's. The highest bit is the coefficient of x^0. */
uint32_t vb_crc32_multiply(uint32_t a, uint32_t b);

/* The same as vb_crc32 without ISA-L. */
uint32_t vb_crc32_portable(uint32_t crc, const void *bytes, size_t len);

#endif
