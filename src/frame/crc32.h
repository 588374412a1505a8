// crc32.h - the CRC of Ethernet, zlib, and the ICRC
// follows: IEEE 802.3 3.2.9; zlib's crc32() for seed and result
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CRC32_H
#define VB_FRAME_CRC32_H

#include <stddef.h>
#include <stdint.h>

/*
 * The CRC of everything up to the end of these bytes, where crc is that of what comes before them; 0 at the start. So
 * it goes over a gather list piece by piece, and over a copy while it is in the nearest cache: copy a few KiB, run
 * this over the copy, then the next. Bytes that another thread may change, or unmap, are copied first.
 */
uint32_t vb_crc32(uint32_t crc, const void *bytes, size_t len);

/* The same without ISA-L. */
uint32_t vb_crc32_portable(uint32_t crc, const void *bytes, size_t len);

#endif
