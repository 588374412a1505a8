// opcode.h - the table of send queue operations and their properties
// follows: IBA volume 1, table 97 (operations by transport service); ibv_post_send(3), ibv_wr_post(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_OPCODE_H
#define VB_CORE_OPCODE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define VB_QPT_BIT(type) (1u << (type))

/* RC and XRC of InfiniBand and RoCE, not RC of iWARP. ibv_post_send looks for it if the type's own bit is not set. */
#define VB_QPT_RC_OF_IB (1u << 15)

enum {
	VB_WR_REMOTE = 1 << 0, /* accesses remote memory: remote_addr, rkey */
	VB_WR_IMM = 1 << 1,
	VB_WR_INV = 1 << 2, /* invalidates a key */
	VB_WR_ATOMIC = 1 << 3,
	VB_WR_BIND = 1 << 5,    /* binds a memory window */
	VB_WR_TSO = 1 << 6,     /* has headers, and the size of the segments */
	VB_WR_PAYLOAD = 1 << 4, /* sends the data of its sges; other operations store data there, or have no sges */
};

struct vb_wr_info {
	uint16_t qp_types; /* VB_QPT_BIT()s of the QP types that support it, or VB_QPT_RC_OF_IB; 0: none */
	uint8_t flags;
	uint8_t wc_opcode; /* enum ibv_wc_opcode */
	uint32_t send_op;  /* IBV_QP_EX_WITH_* */
};

#define VB_WR_OPCODES 17
extern const struct vb_wr_info vb_wr_info[VB_WR_OPCODES];

static inline const struct vb_wr_info *vb_wr_lookup(uint32_t opcode)
{
	return &vb_wr_info[opcode < VB_WR_OPCODES ? opcode : VB_WR_OPCODES - 1]; /* the last row is empty */
}

/* All IBV_QP_EX_WITH_* that a QP of this type supports. */
uint64_t vb_wr_send_ops(uint8_t qp_type, bool iwarp);

#endif
