// crc32c.c - the CRC of iSCSI, SCTP and MPA
// follows: RFC 5044, 4.4; RFC 3720, 12.1 and B.4 (polynomial, test vectors)
// SPDX-License-Identifier: MIT
#include "frame/crc32c.h"

#include "frame/crc_slices.h"

#ifdef VB_HAVE_ISAL
#include <isa-l/crc.h>
#endif

static const uint32_t table[8][256] = {
        ROW(0xf26b8303, 0xe13b70f7, 0xc79a971f, 0x8ad958cf, 0x105ec76f, 0x20bd8ede, 0x417b1dbc, 0x82f63b78),
        ROW(0x13a29877, 0x274530ee, 0x4e8a61dc, 0x9d14c3b8, 0x3fc5f181, 0x7f8be302, 0xff17c604, 0xfbc3faf9),
        ROW(0xa541927e, 0x4f6f520d, 0x9edea41a, 0x38513ec5, 0x70a27d8a, 0xe144fb14, 0xc76580d9, 0x8b277743),
        ROW(0xdd45aab8, 0xbf672381, 0x7b2231f3, 0xf64463e6, 0xe964b13d, 0xd725148b, 0xaba65fe7, 0x52a0c93f),
        ROW(0x38116fac, 0x7022df58, 0xe045beb0, 0xc5670b91, 0x8f2261d3, 0x1ba8b557, 0x37516aae, 0x6ea2d55c),
        ROW(0xef306b19, 0xdb8ca0c3, 0xb2f53777, 0x6006181f, 0xc00c303e, 0x85f4168d, 0x0e045beb, 0x1c08b7d6),
        ROW(0x68032cc8, 0xd0065990, 0xa5e0c5d1, 0x4e2dfd53, 0x9c5bfaa6, 0x3d5b83bd, 0x7ab7077a, 0xf56e0ef4),
        ROW(0x493c7d27, 0x9278fa4e, 0x211d826d, 0x423b04da, 0x847609b4, 0x0d006599, 0x1a00cb32, 0x34019664),
};

uint32_t vb_crc32c_portable(uint32_t crc, const void *bytes, size_t len)
{
	return vb_crc_slices(table, crc, bytes, len);
}

uint32_t vb_crc32c(uint32_t crc, const void *bytes, size_t len)
{
#ifdef VB_HAVE_ISAL
	return ~crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)len, ~crc);
#else
	return vb_crc32c_portable(crc, bytes, len);
#endif
}
