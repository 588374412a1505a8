// crc32c.h - the CRC of NVMe/TCP's digests
// follows: NVMe/TCP 1.0, 3.3.1.1 (header and data digest); RFC 3385; RFC 7143, 13.1 for the way it is sent
// SPDX-License-Identifier: MIT
#ifndef NV_CRC32C_H
#define NV_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of everything up to the end of these bytes, where crc is that of what comes before them; 0 at the start. */
uint32_t nv_crc32c(uint32_t crc, const void *bytes, size_t len);

/* The same with no help from processor or library. */
uint32_t nv_crc32c_portable(uint32_t crc, const void *bytes, size_t len);

#endif
