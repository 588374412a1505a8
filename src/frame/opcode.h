// opcode.h - the BTH opcodes and their properties, one row each
// follows: IBA volume 1, 9.2.1 (OpCode field of the BTH) and 9.3; annexes A14 (XRC), A17, A17.9.3
// (CNP), A19 (FLUSH), A20 (ATOMIC WRITE)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_OPCODE_H
#define VB_FRAME_OPCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame/header.h"

/* The three high bits of an opcode. */
enum vb_service { VB_SVC_RC = 0x00, VB_SVC_UC = 0x20, VB_SVC_UD = 0x60, VB_SVC_CNP = 0x80, VB_SVC_XRC = 0xa0 };

enum vb_op {
	VB_OP_SEND,
	VB_OP_WRITE,
	VB_OP_READ,
	VB_OP_READ_RESPONSE,
	VB_OP_ACK,
	VB_OP_ATOMIC_ACK,
	VB_OP_CMP_SWAP,
	VB_OP_FETCH_ADD,
	VB_OP_CNP, /* congestion notification */
	VB_OP_FLUSH,
	VB_OP_ATOMIC_WRITE,
};

/* The position of a packet in its message. */
enum vb_position { VB_MIDDLE = 0, VB_FIRST = 1, VB_LAST = 2, VB_ONLY = VB_FIRST | VB_LAST };

/* The rows of XRC are RC's at 0xa0, whose requests have one more header. */
#define VB_OPCODES_XRC(X)                                                                         \
	X(0xa0, XRC_SEND_FIRST, XRC, SEND, FIRST, VB_EXT_XRCETH)                                  \
	X(0xa1, XRC_SEND_MIDDLE, XRC, SEND, MIDDLE, VB_EXT_XRCETH)                                \
	X(0xa2, XRC_SEND_LAST, XRC, SEND, LAST, VB_EXT_XRCETH)                                    \
	X(0xa3, XRC_SEND_LAST_IMM, XRC, SEND, LAST, VB_EXT_XRCETH | VB_EXT_IMMDT)                 \
	X(0xa4, XRC_SEND_ONLY, XRC, SEND, ONLY, VB_EXT_XRCETH)                                    \
	X(0xa5, XRC_SEND_ONLY_IMM, XRC, SEND, ONLY, VB_EXT_XRCETH | VB_EXT_IMMDT)                 \
	X(0xa6, XRC_WRITE_FIRST, XRC, WRITE, FIRST, VB_EXT_XRCETH | VB_EXT_RETH)                  \
	X(0xa7, XRC_WRITE_MIDDLE, XRC, WRITE, MIDDLE, VB_EXT_XRCETH)                              \
	X(0xa8, XRC_WRITE_LAST, XRC, WRITE, LAST, VB_EXT_XRCETH)                                  \
	X(0xa9, XRC_WRITE_LAST_IMM, XRC, WRITE, LAST, VB_EXT_XRCETH | VB_EXT_IMMDT)               \
	X(0xaa, XRC_WRITE_ONLY, XRC, WRITE, ONLY, VB_EXT_XRCETH | VB_EXT_RETH)                    \
	X(0xab, XRC_WRITE_ONLY_IMM, XRC, WRITE, ONLY, VB_EXT_XRCETH | VB_EXT_RETH | VB_EXT_IMMDT) \
	X(0xac, XRC_READ_REQUEST, XRC, READ, ONLY, VB_EXT_XRCETH | VB_EXT_RETH)                   \
	X(0xad, XRC_READ_RESPONSE_FIRST, XRC, READ_RESPONSE, FIRST, VB_EXT_AETH)                  \
	X(0xae, XRC_READ_RESPONSE_MIDDLE, XRC, READ_RESPONSE, MIDDLE, 0)                          \
	X(0xaf, XRC_READ_RESPONSE_LAST, XRC, READ_RESPONSE, LAST, VB_EXT_AETH)                    \
	X(0xb0, XRC_READ_RESPONSE_ONLY, XRC, READ_RESPONSE, ONLY, VB_EXT_AETH)                    \
	X(0xb1, XRC_ACK, XRC, ACK, ONLY, VB_EXT_AETH)                                             \
	X(0xb2, XRC_ATOMIC_ACK, XRC, ATOMIC_ACK, ONLY, VB_EXT_AETH | VB_EXT_ATOMIC_ACK)           \
	X(0xb3, XRC_CMP_SWAP, XRC, CMP_SWAP, ONLY, VB_EXT_XRCETH | VB_EXT_ATOMIC)                 \
	X(0xb4, XRC_FETCH_ADD, XRC, FETCH_ADD, ONLY, VB_EXT_XRCETH | VB_EXT_ATOMIC)               \
	X(0xb6, XRC_SEND_LAST_INV, XRC, SEND, LAST, VB_EXT_XRCETH | VB_EXT_IETH)                  \
	X(0xb7, XRC_SEND_ONLY_INV, XRC, SEND, ONLY, VB_EXT_XRCETH | VB_EXT_IETH)                  \
	X(0xbc, XRC_FLUSH, XRC, FLUSH, ONLY, VB_EXT_XRCETH | VB_EXT_FETH | VB_EXT_RETH)           \
	X(0xbd, XRC_ATOMIC_WRITE, XRC, ATOMIC_WRITE, ONLY, VB_EXT_XRCETH | VB_EXT_RETH)

/*
 * X(code, name, service, operation, position, extension headers). Other properties are derived. RD has no rows.
 */
#define VB_OPCODES(X)                                                                 \
	X(0x00, RC_SEND_FIRST, RC, SEND, FIRST, 0)                                    \
	X(0x01, RC_SEND_MIDDLE, RC, SEND, MIDDLE, 0)                                  \
	X(0x02, RC_SEND_LAST, RC, SEND, LAST, 0)                                      \
	X(0x03, RC_SEND_LAST_IMM, RC, SEND, LAST, VB_EXT_IMMDT)                       \
	X(0x04, RC_SEND_ONLY, RC, SEND, ONLY, 0)                                      \
	X(0x05, RC_SEND_ONLY_IMM, RC, SEND, ONLY, VB_EXT_IMMDT)                       \
	X(0x06, RC_WRITE_FIRST, RC, WRITE, FIRST, VB_EXT_RETH)                        \
	X(0x07, RC_WRITE_MIDDLE, RC, WRITE, MIDDLE, 0)                                \
	X(0x08, RC_WRITE_LAST, RC, WRITE, LAST, 0)                                    \
	X(0x09, RC_WRITE_LAST_IMM, RC, WRITE, LAST, VB_EXT_IMMDT)                     \
	X(0x0a, RC_WRITE_ONLY, RC, WRITE, ONLY, VB_EXT_RETH)                          \
	X(0x0b, RC_WRITE_ONLY_IMM, RC, WRITE, ONLY, VB_EXT_RETH | VB_EXT_IMMDT)       \
	X(0x0c, RC_READ_REQUEST, RC, READ, ONLY, VB_EXT_RETH)                         \
	X(0x0d, RC_READ_RESPONSE_FIRST, RC, READ_RESPONSE, FIRST, VB_EXT_AETH)        \
	X(0x0e, RC_READ_RESPONSE_MIDDLE, RC, READ_RESPONSE, MIDDLE, 0)                \
	X(0x0f, RC_READ_RESPONSE_LAST, RC, READ_RESPONSE, LAST, VB_EXT_AETH)          \
	X(0x10, RC_READ_RESPONSE_ONLY, RC, READ_RESPONSE, ONLY, VB_EXT_AETH)          \
	X(0x11, RC_ACK, RC, ACK, ONLY, VB_EXT_AETH)                                   \
	X(0x12, RC_ATOMIC_ACK, RC, ATOMIC_ACK, ONLY, VB_EXT_AETH | VB_EXT_ATOMIC_ACK) \
	X(0x13, RC_CMP_SWAP, RC, CMP_SWAP, ONLY, VB_EXT_ATOMIC)                       \
	X(0x14, RC_FETCH_ADD, RC, FETCH_ADD, ONLY, VB_EXT_ATOMIC)                     \
	X(0x16, RC_SEND_LAST_INV, RC, SEND, LAST, VB_EXT_IETH)                        \
	X(0x17, RC_SEND_ONLY_INV, RC, SEND, ONLY, VB_EXT_IETH)                        \
	X(0x1c, RC_FLUSH, RC, FLUSH, ONLY, VB_EXT_FETH | VB_EXT_RETH)                 \
	X(0x1d, RC_ATOMIC_WRITE, RC, ATOMIC_WRITE, ONLY, VB_EXT_RETH)                 \
	X(0x20, UC_SEND_FIRST, UC, SEND, FIRST, 0)                                    \
	X(0x21, UC_SEND_MIDDLE, UC, SEND, MIDDLE, 0)                                  \
	X(0x22, UC_SEND_LAST, UC, SEND, LAST, 0)                                      \
	X(0x23, UC_SEND_LAST_IMM, UC, SEND, LAST, VB_EXT_IMMDT)                       \
	X(0x24, UC_SEND_ONLY, UC, SEND, ONLY, 0)                                      \
	X(0x25, UC_SEND_ONLY_IMM, UC, SEND, ONLY, VB_EXT_IMMDT)                       \
	X(0x26, UC_WRITE_FIRST, UC, WRITE, FIRST, VB_EXT_RETH)                        \
	X(0x27, UC_WRITE_MIDDLE, UC, WRITE, MIDDLE, 0)                                \
	X(0x28, UC_WRITE_LAST, UC, WRITE, LAST, 0)                                    \
	X(0x29, UC_WRITE_LAST_IMM, UC, WRITE, LAST, VB_EXT_IMMDT)                     \
	X(0x2a, UC_WRITE_ONLY, UC, WRITE, ONLY, VB_EXT_RETH)                          \
	X(0x2b, UC_WRITE_ONLY_IMM, UC, WRITE, ONLY, VB_EXT_RETH | VB_EXT_IMMDT)       \
	X(0x64, UD_SEND_ONLY, UD, SEND, ONLY, VB_EXT_DETH)                            \
	X(0x65, UD_SEND_ONLY_IMM, UD, SEND, ONLY, VB_EXT_DETH | VB_EXT_IMMDT)         \
	X(0x81, CNP, CNP, CNP, ONLY, VB_EXT_CNP)                                      \
	VB_OPCODES_XRC(X)

enum vb_opcode {
#define X(code, name, service, op, position, ext) VB_##name = code,
	VB_OPCODES(X)
#undef X
};

/* VB_FIRST and VB_LAST are flags too. */
enum {
	VB_REQUEST = 1 << 2,
	VB_RESPONSE = 1 << 3,
	VB_PAYLOAD = 1 << 4,          /* may carry payload */
	VB_ANSWERED = 1 << 5,         /* needs a response of its own, not just an acknowledgement */
	VB_TAKES_RECEIVE = 1 << 6,    /* takes a receive work request */
	VB_COMPLETES_RECEIVE = 1 << 7 /* completes it */
};

struct vb_opcode_info {
	const char *name; /* for logs; NULL if the opcode has no row */
	uint16_t ext;     /* VB_EXT_ of the headers between BTH and payload */
	uint8_t flags;
	uint8_t service, op;
	uint8_t header_len; /* BTH and extension headers */
};

extern const struct vb_opcode_info vb_opcode_table[256];

/* NULL: reserved, or not supported. */
static inline const struct vb_opcode_info *vb_opcode_info(uint8_t opcode)
{
	return vb_opcode_table[opcode].name ? &vb_opcode_table[opcode] : NULL;
}

/* Returns the opcode for this packet of a message, or -1 if none exists. tail: VB_EXT_IMMDT, VB_EXT_IETH, or 0. */
int vb_opcode_find(enum vb_service service, enum vb_op op, enum vb_position position, unsigned tail);

#endif
