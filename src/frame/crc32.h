// crc32.h - the CRC of Ethernet, zlib, and the ICRC
// follows: IEEE 802.3 3.2.9; zlib's crc32() for seed and result
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CRC32_H
#define VB_FRAME_CRC32_H

#include <stddef.h>
#include <stdint.h>

/*
 * Continues a CRC: crc is that of the bytes before, 0 at the start. This serves a gather list piece by piece, and a
 * copy while it is in the nearest cache: copy a few KiB, run this over the copy, then the next. Copy bytes first that
 * another thread may change or unmap.
 */
uint32_t vb_crc32(uint32_t crc, const void *bytes, size_t len);

/*
 * The same for the 12 bytes of head and the n bytes behind them, whose sum vb_guard_copy_sum has computed. powers are
 * those of vb_crc32_powers for n. Only if vb_guard_can_sum.
 */
struct vb_crc32_powers {
	uint64_t v[2];
};
struct vb_crc32_powers vb_crc32_powers(size_t n);
uint32_t vb_crc32_summed(uint32_t crc, const uint32_t head[3], const uint64_t sum[2],
                         const struct vb_crc32_powers *powers);

/* Product of polynomials modulo the CRC's; the highest bit is the coefficient of 1. */
uint32_t vb_crc32_multiply(uint32_t a, uint32_t b);

/* The same as vb_crc32 without ISA-L. */
uint32_t vb_crc32_portable(uint32_t crc, const void *bytes, size_t len);

#endif
