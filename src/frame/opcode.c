// opcode.c - the table of opcodes
// follows: IBA volume 1, 9.2.1 (OpCode field of the BTH) and 9.3; annexes A17, A17.9.3 (CNP), A19, A20
// SPDX-License-Identifier: MIT
#include "frame/opcode.h"

#define IS_RESPONSE(op) ((op) == VB_OP_READ_RESPONSE || (op) == VB_OP_ACK || (op) == VB_OP_ATOMIC_ACK)
#define HAS_PAYLOAD(op) \
	((op) == VB_OP_SEND || (op) == VB_OP_WRITE || (op) == VB_OP_READ_RESPONSE || (op) == VB_OP_ATOMIC_WRITE)
#define IS_ANSWERED(op)                                                                                    \
	((op) == VB_OP_READ || (op) == VB_OP_CMP_SWAP || (op) == VB_OP_FETCH_ADD || (op) == VB_OP_FLUSH || \
	 (op) == VB_OP_ATOMIC_WRITE)
/* An RDMA write with immediate takes its receive when the last packet arrives, which carries the immediate. */
#define IS_WRITE_IMM(op, ext) ((op) == VB_OP_WRITE && (ext)&VB_EXT_IMMDT)
#define FLAGS(op, position, ext)                                                                         \
	((position) |                                                                                    \
	 (IS_RESPONSE(op)     ? VB_RESPONSE                                                              \
	  : (op) == VB_OP_CNP ? 0                                                                        \
	                      : VB_REQUEST) |                                                            \
	 (HAS_PAYLOAD(op) ? VB_PAYLOAD : 0) | (IS_ANSWERED(op) ? VB_ANSWERED : 0) |                      \
	 (((op) == VB_OP_SEND && (position)&VB_FIRST) || IS_WRITE_IMM(op, ext) ? VB_TAKES_RECEIVE : 0) | \
	 (((op) == VB_OP_SEND && (position)&VB_LAST) || IS_WRITE_IMM(op, ext) ? VB_COMPLETES_RECEIVE : 0))

const struct vb_opcode_info vb_opcode_table[256] = {
#define X(code, name, service, op, position, ext)        \
	[code] = {#name,                                 \
	          (ext),                                 \
	          FLAGS(VB_OP_##op, VB_##position, ext), \
	          VB_SVC_##service,                      \
	          VB_OP_##op,                            \
	          VB_HEADER_LEN(ext)},
        VB_OPCODES(X)
#undef X
};

/* An opcode has at most one of the two tails. */
#define TAIL(ext) ((ext)&VB_EXT_IMMDT ? 1 : (ext)&VB_EXT_IETH ? 2 : 0)

/* By service, operation, position and tail: the opcode + 1, or 0 */
static const uint8_t codes[8][VB_OP_ATOMIC_WRITE + 1][VB_ONLY + 1][3] = {
#define X(code, name, service, op, position, ext) \
	[VB_SVC_##service / 32][VB_OP_##op][VB_##position][TAIL(ext)] = (code) + 1,
        VB_OPCODES(X)
#undef X
};

__attribute__((hot)) int vb_opcode_find(enum vb_service service, enum vb_op op, enum vb_position position,
                                        unsigned tail)
{
	return codes[service / 32u][op][position][TAIL(tail)] - 1;
}
