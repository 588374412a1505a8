// reference.h - reference implementations for the tests, without src/frame/
// follows: IBA volume 1, 7.8.1 (ICRC); annex A17 (RoCEv2), CA17-22
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_FRAME_REFERENCE_H
#define VB_TEST_FRAME_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CRC as defined in the standard: polynomial 0x04c11db7, highest bit first, each byte's lowest bit first, with a
 * table. */
uint32_t ref_crc32(const uint8_t *bytes, size_t len);

/* The ICRC of an IP packet. The last four bytes, where it belongs, are ignored. */
void ref_icrc(const uint8_t *ip, size_t len, uint8_t icrc[4]);

/* True if an IP packet has the right ICRC. */
bool ref_icrc_ok(const uint8_t *ip, size_t len);

/* Pseudo-random numbers, the same in every run. */
uint64_t ref_random(void);
void ref_random_bytes(void *bytes, size_t len);

/* Parses hexadecimal digits and spaces into bytes. Returns their number. */
size_t ref_hex(uint8_t *bytes, size_t size, const char *hex);

/* The format of an opcode's packets. The test of the table compares with it, and other tests use it. */
struct ref_opcode {
	uint8_t code;
	const char *name;
	unsigned header_len; /* BTH and extension headers */
	const char *
	        headers; /* behind the BTH: d DETH, x XRCETH, r RETH, t AtomicETH, a AETH, k AtomicAckETH, i ImmDt, v IETH, c
	                        CNP */
	bool payload, first, last;
};
extern const struct ref_opcode ref_opcodes[];
extern const size_t ref_opcodes_len;

/* A UDP payload of this opcode with this many bytes of payload: random except for reserved fields; with pad, without
 * ICRC. */
#define REF_PACKET_MAX (44 + 4096 + 4)
size_t ref_packet(uint8_t *udp_payload, const struct ref_opcode *o, size_t len);

#endif
