// opcode.c - the table of send queue operations and their properties
// follows: IBA volume 1, table 97 (operations by transport service), annexes A14 (XRC), A19, A20; ibv_post_send(3), ibv_wr_post(3)
// SPDX-License-Identifier: MIT
#include "core/opcode.h"

#include "core/newer.h"

#define RC (VB_QPT_BIT(IBV_QPT_RC) | VB_QPT_BIT(IBV_QPT_XRC_SEND)) /* XRC has the operations of RC */
#define UC VB_QPT_BIT(IBV_QPT_UC)
#define UD VB_QPT_BIT(IBV_QPT_UD)
#define RC_OF_IB VB_QPT_RC_OF_IB
#define RAW VB_QPT_BIT(IBV_QPT_RAW_PACKET)

/* The man page lists SEND_WITH_INV for UC, but IBA table 35 has no such opcode. */
// clang-format off
const struct vb_wr_info vb_wr_info[VB_WR_OPCODES] = {
	/* opcode types flags completion builder */
	[IBV_WR_RDMA_WRITE]           = {RC | UC,      VB_WR_REMOTE | VB_WR_PAYLOAD,                IBV_WC_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM]  = {RC | UC,      VB_WR_REMOTE | VB_WR_PAYLOAD | VB_WR_IMM,    IBV_WC_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM},
	[IBV_WR_SEND]                 = {RC | UC | UD | RAW, VB_WR_PAYLOAD,                         IBV_WC_SEND,       IBV_QP_EX_WITH_SEND},
	[IBV_WR_SEND_WITH_IMM]        = {RC | UC | UD, VB_WR_PAYLOAD | VB_WR_IMM,                   IBV_WC_SEND,       IBV_QP_EX_WITH_SEND_WITH_IMM},
	[IBV_WR_RDMA_READ]            = {RC,           VB_WR_REMOTE,                                IBV_WC_RDMA_READ,  IBV_QP_EX_WITH_RDMA_READ},
	[IBV_WR_ATOMIC_CMP_AND_SWP]   = {RC,           VB_WR_REMOTE | VB_WR_ATOMIC,                 IBV_WC_COMP_SWAP,  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {RC,           VB_WR_REMOTE | VB_WR_ATOMIC,                 IBV_WC_FETCH_ADD,  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD},
	[IBV_WR_LOCAL_INV]            = {RC | UC,      VB_WR_INV,                                   IBV_WC_LOCAL_INV,  IBV_QP_EX_WITH_LOCAL_INV},
	[IBV_WR_BIND_MW]              = {RC | UC,      VB_WR_BIND,                                  IBV_WC_BIND_MW,    IBV_QP_EX_WITH_BIND_MW},
	[IBV_WR_TSO]                  = {RAW,          VB_WR_PAYLOAD | VB_WR_TSO,                   IBV_WC_TSO,        IBV_QP_EX_WITH_TSO},
	[IBV_WR_SEND_WITH_INV]        = {RC,           VB_WR_PAYLOAD | VB_WR_INV,                   IBV_WC_SEND,       IBV_QP_EX_WITH_SEND_WITH_INV},
	[VB_IBV_WR_FLUSH]             = {RC_OF_IB,     VB_WR_REMOTE,                                VB_IBV_WC_FLUSH,   VB_IBV_QP_EX_WITH_FLUSH},
	[IBV_WR_ATOMIC_WRITE]         = {RC_OF_IB,     VB_WR_REMOTE | VB_WR_PAYLOAD,                IBV_WC_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE},
};
// clang-format on

uint64_t vb_wr_send_ops(uint8_t qp_type, bool iwarp)
{
	unsigned types = VB_QPT_BIT(qp_type) | (RC & VB_QPT_BIT(qp_type) && !iwarp ? VB_QPT_RC_OF_IB : 0);
	uint64_t ops = 0;

	for (int i = 0; i < VB_WR_OPCODES; i++)
		if (vb_wr_info[i].qp_types & types)
			ops |= vb_wr_info[i].send_op;
	return ops;
}
