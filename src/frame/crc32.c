// crc32.c - the CRC of Ethernet, zlib, and the ICRC
// follows: IEEE 802.3 3.2.9; zlib's crc32() for seed and result
// SPDX-License-Identifier: MIT
#include "frame/crc32.h"

#include "frame/crc_slices.h"

#ifdef VB_HAVE_ISAL
#include <isa-l/crc.h>
#endif

static const uint32_t table[8][256] = {
        ROW(0x77073096, 0xee0e612c, 0x076dc419, 0x0edb8832, 0x1db71064, 0x3b6e20c8, 0x76dc4190, 0xedb88320),
        ROW(0x191b3141, 0x32366282, 0x646cc504, 0xc8d98a08, 0x4ac21251, 0x958424a2, 0xf0794f05, 0x3b83984b),
        ROW(0x01c26a37, 0x0384d46e, 0x0709a8dc, 0x0e1351b8, 0x1c26a370, 0x384d46e0, 0x709a8dc0, 0xe1351b80),
        ROW(0xb8bc6765, 0xaa09c88b, 0x8f629757, 0xc5b428ef, 0x5019579f, 0xa032af3e, 0x9b14583d, 0xed59b63b),
        ROW(0x3d6029b0, 0x7ac05360, 0xf580a6c0, 0x30704bc1, 0x60e09782, 0xc1c12f04, 0x58f35849, 0xb1e6b092),
        ROW(0xcb5cd3a5, 0x4dc8a10b, 0x9b914216, 0xec53826d, 0x03d6029b, 0x07ac0536, 0x0f580a6c, 0x1eb014d8),
        ROW(0xa6770bb4, 0x979f1129, 0xf44f2413, 0x33ef4e67, 0x67de9cce, 0xcfbd399c, 0x440b7579, 0x8816eaf2),
        ROW(0xccaa009e, 0x4225077d, 0x844a0efa, 0xd3e51bb5, 0x7cbb312b, 0xf9766256, 0x299dc2ed, 0x533b85da),
};

uint32_t vb_crc32_portable(uint32_t crc, const void *bytes, size_t len)
{
	return vb_crc_slices(table, crc, bytes, len);
}

uint32_t vb_crc32(uint32_t crc, const void *bytes, size_t len)
{
#ifdef VB_HAVE_ISAL
	return crc32_gzip_refl(crc, bytes, len);
#else
	return vb_crc32_portable(crc, bytes, len);
#endif
}
