// crc32c.h - the CRC of iSCSI, SCTP and MPA
// follows: RFC 5044, 4.4; RFC 3720, 12.1 and B.4 (polynomial, test vectors)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CRC32C_H
#define VB_FRAME_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues a CRC over these bytes (less than 2 GiB): crc is that of the bytes before, 0 at the start. */
uint32_t vb_crc32c(uint32_t crc, const void *bytes, size_t len);

/* The same without ISA-L. */
uint32_t vb_crc32c_portable(uint32_t crc, const void *bytes, size_t len);

#endif
