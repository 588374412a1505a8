// message.c - a message as the RoCEv2 packets that it is on a network: their number, and the headers of each
// follows: IBA volume 1, 9.2, 9.3, 9.7 (segmentation by the path MTU)
// SPDX-License-Identifier: MIT
#include "frame/message.h"

#include "frame/segment.h"

static bool has_payload(const struct vb_message *m)
{
	return m->op == VB_OP_SEND || m->op == VB_OP_WRITE || m->op == VB_OP_READ_RESPONSE ||
	       m->op == VB_OP_ATOMIC_WRITE;
}

uint32_t vb_message_packets(const struct vb_message *m)
{
	return has_payload(m) ? vb_packet_count(m->length, m->mtu) : 1;
}

uint32_t vb_message_psns(const struct vb_message *m)
{
	return m->op == VB_OP_READ ? vb_packet_count(m->length, m->mtu) : vb_message_packets(m);
}

size_t vb_message_head(const struct vb_message *m, uint32_t i, uint8_t head[VB_MESSAGE_HEAD_MAX], uint32_t *offset,
                       uint32_t *len, uint8_t *pad)
{
	uint32_t n = vb_message_packets(m);
	bool is_last = i == n - 1;
	unsigned position = (i ? 0u : (unsigned)VB_FIRST) | (is_last ? (unsigned)VB_LAST : 0u);
	int opcode = vb_opcode_find(m->service, m->op, (enum vb_position)position, is_last ? m->tail : 0);
	struct vb_writer w = vb_writer(head, VB_MESSAGE_HEAD_MAX);

	if (opcode < 0)
		return 0;
	*offset = has_payload(m) ? i * m->mtu : 0;
	*len = !has_payload(m) ? 0 : is_last ? vb_last_len(m->length, m->mtu) : m->mtu;
	*pad = vb_pad_count(*len);
	struct vb_packet p = {
	        .bth = {.opcode = (uint8_t)opcode,
	                .pad = *pad,
	                .solicited = is_last && m->solicited,
	                .migreq = true,
	                .ack_req = is_last && (m->service == VB_SVC_RC || m->service == VB_SVC_XRC) &&
	                           (vb_opcode_info((uint8_t)opcode)->flags & VB_REQUEST),
	                .pkey = m->pkey,
	                .dest_qpn = m->dest_qpn,
	                .psn = vb_psn_add(m->psn, (int32_t)i)},
	        .feth = m->feth,
	        .reth = m->reth,
	        .atomic = m->atomic,
	        .deth = m->deth,
	        .xrceth = m->xrceth,
	        .aeth = m->aeth,
	        .atomic_ack = m->atomic_ack,
	        .immdt = {m->last},
	        .ieth = {m->last},
	};

	vb_packet_encode(&w, &p);
	return w.failed ? 0 : w.pos;
}
