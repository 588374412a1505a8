// reference.c - reference implementations for the tests, without src/frame/
// follows: IBA volume 1, 7.8.1 (ICRC), 9.2 (OpCode field of the BTH); annex A17 (RoCEv2), CA17-22, A17.9.3
// SPDX-License-Identifier: MIT
#include "reference.h"

#include <stdlib.h>
#include <string.h>

static uint32_t reversed(uint32_t v, int bits)
{
	uint32_t r = 0;

	for (int i = 0; i < bits; i++)
		r |= (v >> i & 1) << (bits - 1 - i);
	return r;
}

uint32_t ref_crc32(const uint8_t *bytes, size_t len)
{
	static uint32_t table[256];

	for (uint32_t i = 1; i < 256 && !table[255]; i++) {
		table[i] = i << 24;
		for (int bit = 0; bit < 8; bit++)
			table[i] = table[i] & 0x80000000 ? table[i] << 1 ^ 0x04c11db7 : table[i] << 1;
	}
	uint32_t crc = 0xffffffff;

	for (size_t i = 0; i < len; i++)
		crc = crc << 8 ^ table[crc >> 24 ^ reversed(bytes[i], 8)];
	return reversed(~crc, 32);
}

void ref_icrc(const uint8_t *ip, size_t len, uint8_t icrc[4])
{
	uint8_t *all = malloc(8 + len - 4), *h = all + 8;
	size_t udp = ip[0] >> 4 == 4 ? 20 : 40;

	memset(all, 0xff, 8);
	memcpy(h, ip, len - 4);
	if (udp == 20) {
		h[1] = 0xff;          /* type of service */
		h[8] = 0xff;          /* time to live */
		h[10] = h[11] = 0xff; /* header checksum */
	} else {
		h[0] |= 0x0f; /* traffic class, flow label */
		h[1] = h[2] = h[3] = 0xff;
		h[7] = 0xff; /* hop limit */
	}
	h[udp + 6] = h[udp + 7] = 0xff; /* UDP checksum */
	h[udp + 8 + 4] = 0xff;          /* resv8a of the BTH */
	uint32_t crc = ref_crc32(all, 8 + len - 4);

	for (int i = 0; i < 4; i++)
		icrc[i] = (uint8_t)(crc >> 8 * i);
	free(all);
}

bool ref_icrc_ok(const uint8_t *ip, size_t len)
{
	uint8_t icrc[4];

	ref_icrc(ip, len, icrc);
	return !memcmp(icrc, ip + len - 4, 4);
}

uint64_t ref_random(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15; /* xorshift64* */

	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1d;
}

void ref_random_bytes(void *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)bytes)[i] = (uint8_t)(ref_random() >> 32);
}

size_t ref_hex(uint8_t *bytes, size_t size, const char *hex)
{
	size_t digits = 0;

	for (; *hex; hex++) {
		if (*hex == ' ')
			continue;
		if (digits / 2 == size)
			abort();
		uint8_t v = (uint8_t)(*hex <= '9' ? *hex - '0' : *hex - 'a' + 10);

		bytes[digits / 2] = (uint8_t)(digits % 2 ? bytes[digits / 2] | v : v << 4);
		digits++;
	}
	return digits / 2;
}

size_t ref_packet(uint8_t *udp_payload, const struct ref_opcode *o, size_t len)
{
	size_t pad = -len & 3, at = 12;

	ref_random_bytes(udp_payload, o->header_len + len + pad + 4);
	udp_payload[0] = o->code;
	udp_payload[1] = (uint8_t)((udp_payload[1] & 0xc0) | pad << 4);
	udp_payload[4] &= 0xc0;
	udp_payload[8] &= 0x80;
	for (const char *h = o->headers; *h; h++) {
		if (*h == 'd')
			udp_payload[at + 4] = 0;
		if (*h == 'f') { /* 26 reserved bits */
			memset(udp_payload + at, 0, 3);
			udp_payload[at + 3] &= 0x3f;
		}
		if (*h == 'x')
			udp_payload[at] = 0;
		at += *h == 'r' || *h == 'c' ? 16 : *h == 't' ? 28 : *h == 'd' || *h == 'k' ? 8 : 4;
	}
	memset(udp_payload + o->header_len + len, 0, pad);
	return o->header_len + len + pad + 4;
}

/* Copied from the specification's table, not from ours. */
const struct ref_opcode ref_opcodes[] = {
        {0, "RC_SEND_FIRST", 12, "", 1, 1, 0},
        {1, "RC_SEND_MIDDLE", 12, "", 1, 0, 0},
        {2, "RC_SEND_LAST", 12, "", 1, 0, 1},
        {3, "RC_SEND_LAST_IMM", 16, "i", 1, 0, 1},
        {4, "RC_SEND_ONLY", 12, "", 1, 1, 1},
        {5, "RC_SEND_ONLY_IMM", 16, "i", 1, 1, 1},
        {6, "RC_WRITE_FIRST", 28, "r", 1, 1, 0},
        {7, "RC_WRITE_MIDDLE", 12, "", 1, 0, 0},
        {8, "RC_WRITE_LAST", 12, "", 1, 0, 1},
        {9, "RC_WRITE_LAST_IMM", 16, "i", 1, 0, 1},
        {10, "RC_WRITE_ONLY", 28, "r", 1, 1, 1},
        {11, "RC_WRITE_ONLY_IMM", 32, "ri", 1, 1, 1},
        {12, "RC_READ_REQUEST", 28, "r", 0, 1, 1},
        {13, "RC_READ_RESPONSE_FIRST", 16, "a", 1, 1, 0},
        {14, "RC_READ_RESPONSE_MIDDLE", 12, "", 1, 0, 0},
        {15, "RC_READ_RESPONSE_LAST", 16, "a", 1, 0, 1},
        {16, "RC_READ_RESPONSE_ONLY", 16, "a", 1, 1, 1},
        {17, "RC_ACK", 16, "a", 0, 1, 1},
        {18, "RC_ATOMIC_ACK", 24, "ak", 0, 1, 1},
        {19, "RC_CMP_SWAP", 40, "t", 0, 1, 1},
        {20, "RC_FETCH_ADD", 40, "t", 0, 1, 1},
        {22, "RC_SEND_LAST_INV", 16, "v", 1, 0, 1},
        {23, "RC_SEND_ONLY_INV", 16, "v", 1, 1, 1},
        {28, "RC_FLUSH", 32, "fr", 0, 1, 1},
        {29, "RC_ATOMIC_WRITE", 28, "r", 1, 1, 1},
        {32, "UC_SEND_FIRST", 12, "", 1, 1, 0},
        {33, "UC_SEND_MIDDLE", 12, "", 1, 0, 0},
        {34, "UC_SEND_LAST", 12, "", 1, 0, 1},
        {35, "UC_SEND_LAST_IMM", 16, "i", 1, 0, 1},
        {36, "UC_SEND_ONLY", 12, "", 1, 1, 1},
        {37, "UC_SEND_ONLY_IMM", 16, "i", 1, 1, 1},
        {38, "UC_WRITE_FIRST", 28, "r", 1, 1, 0},
        {39, "UC_WRITE_MIDDLE", 12, "", 1, 0, 0},
        {40, "UC_WRITE_LAST", 12, "", 1, 0, 1},
        {41, "UC_WRITE_LAST_IMM", 16, "i", 1, 0, 1},
        {42, "UC_WRITE_ONLY", 28, "r", 1, 1, 1},
        {43, "UC_WRITE_ONLY_IMM", 32, "ri", 1, 1, 1},
        {100, "UD_SEND_ONLY", 20, "d", 1, 1, 1},
        {101, "UD_SEND_ONLY_IMM", 24, "di", 1, 1, 1},
        {129, "CNP", 28, "c", 0, 1, 1},
        {160, "XRC_SEND_FIRST", 16, "x", 1, 1, 0},
        {161, "XRC_SEND_MIDDLE", 16, "x", 1, 0, 0},
        {162, "XRC_SEND_LAST", 16, "x", 1, 0, 1},
        {163, "XRC_SEND_LAST_IMM", 20, "xi", 1, 0, 1},
        {164, "XRC_SEND_ONLY", 16, "x", 1, 1, 1},
        {165, "XRC_SEND_ONLY_IMM", 20, "xi", 1, 1, 1},
        {166, "XRC_WRITE_FIRST", 32, "xr", 1, 1, 0},
        {167, "XRC_WRITE_MIDDLE", 16, "x", 1, 0, 0},
        {168, "XRC_WRITE_LAST", 16, "x", 1, 0, 1},
        {169, "XRC_WRITE_LAST_IMM", 20, "xi", 1, 0, 1},
        {170, "XRC_WRITE_ONLY", 32, "xr", 1, 1, 1},
        {171, "XRC_WRITE_ONLY_IMM", 36, "xri", 1, 1, 1},
        {172, "XRC_READ_REQUEST", 32, "xr", 0, 1, 1},
        {173, "XRC_READ_RESPONSE_FIRST", 16, "a", 1, 1, 0},
        {174, "XRC_READ_RESPONSE_MIDDLE", 12, "", 1, 0, 0},
        {175, "XRC_READ_RESPONSE_LAST", 16, "a", 1, 0, 1},
        {176, "XRC_READ_RESPONSE_ONLY", 16, "a", 1, 1, 1},
        {177, "XRC_ACK", 16, "a", 0, 1, 1},
        {178, "XRC_ATOMIC_ACK", 24, "ak", 0, 1, 1},
        {179, "XRC_CMP_SWAP", 44, "xt", 0, 1, 1},
        {180, "XRC_FETCH_ADD", 44, "xt", 0, 1, 1},
        {182, "XRC_SEND_LAST_INV", 20, "xv", 1, 0, 1},
        {183, "XRC_SEND_ONLY_INV", 20, "xv", 1, 1, 1},
        {188, "XRC_FLUSH", 36, "xfr", 0, 1, 1},
        {189, "XRC_ATOMIC_WRITE", 32, "xr", 1, 1, 1},
};
const size_t ref_opcodes_len = sizeof(ref_opcodes) / sizeof(*ref_opcodes);
