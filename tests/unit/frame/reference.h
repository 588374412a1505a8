// reference.h - what the tests compare with: nothing of it uses src/frame/
// follows: IBA volume 1, 7.8.1 (ICRC); annex A17 (RoCEv2), CA17-22
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_FRAME_REFERENCE_H
#define VB_TEST_FRAME_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The CRC as the standard draws it: polynomial 0x04c11db7, highest bit first, each byte's lowest bit first, by a table.
 */
uint32_t ref_crc32(const uint8_t *bytes, size_t len);

/* The ICRC of an IP packet whose last four bytes are where it belongs; they are not looked at. */
void ref_icrc(const uint8_t *ip, size_t len, uint8_t icrc[4]);

/* Whether an IP packet carries the right one. */
bool ref_icrc_ok(const uint8_t *ip, size_t len);

/* Pseudo-random numbers, the same in every run. */
uint64_t ref_random(void);
void ref_random_bytes(void *bytes, size_t len);

/* Bytes of hexadecimal digits and spaces; returns their number. */
size_t ref_hex(uint8_t *bytes, size_t size, const char *hex);

/* What an opcode's packets look like: the test of the table compares with it, the others use it. */
struct ref_opcode {
	uint8_t code;
	const char *name;
	unsigned header_len; /* BTH and extension headers */
	const char *headers; /* behind the BTH: d DETH, r RETH, t AtomicETH, a AETH, k AtomicAckETH, i ImmDt, v IETH, c
	                        CNP */
	bool payload, first, last;
};
extern const struct ref_opcode ref_opcodes[];
extern const size_t ref_opcodes_len;

/* A UDP payload of this opcode with this many bytes of payload: random, but for what is reserved; pad; no ICRC yet. */
#define REF_PACKET_MAX (40 + 4096 + 4)
size_t ref_packet(uint8_t *udp_payload, const struct ref_opcode *o, size_t len);

#endif
