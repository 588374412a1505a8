// ud.c - packets of unreliable datagrams: what management datagrams and datagrams to groups have in common
// follows: IBA volume 1, 5.2 (packets), 7.7 (LRH), 7.8 (ICRC, VCRC), 8.3 (GRH), 9.4 (opcodes), 9.6.3 (DETH)
// SPDX-License-Identifier: MIT
#include "fabric/ud.h"
#include "frame/icrc.h"
#include "frame/opcode.h"

size_t vb_fabric_ud_encode(uint8_t *bytes, const struct vb_fabric_ud *u, uint8_t vl)
{
	bool imm = u->bth.opcode == VB_UD_SEND_ONLY_IMM;
	size_t len = VB_HEADER_LEN(VB_EXT_DETH) + (imm ? sizeof(u->imm) : 0) + u->len + u->bth.pad;
	size_t front = vb_link_front(bytes, &u->flow, &u->ip, len + VB_ICRC_LEN);
	struct vb_writer w = vb_writer(bytes + front, len);

	bytes[0] |= (uint8_t)(vl << 4);
	vb_bth_encode(&w, &u->bth);
	vb_deth_encode(&w, &u->deth);
	if (imm)
		vb_put32(&w, u->imm);
	vb_put_bytes(&w, u->payload, u->len);
	vb_put_zeros(&w, u->bth.pad);
	vb_icrc_encode(bytes + front + len, vb_icrc_start(&u->flow, 0, bytes + front, len, len + VB_ICRC_LEN));
	vb_vcrc_encode(bytes, front + len + VB_ICRC_LEN);
	return front + len + VB_ICRC_LEN + VB_VCRC_LEN;
}

bool vb_fabric_ud_decode(struct vb_fabric_ud *u, const uint8_t *bytes, const struct vb_link_packet *p)
{
	struct vb_reader r = vb_reader(bytes + p->transport_at, p->transport_len - VB_ICRC_LEN);

	vb_bth_decode(&r, &u->bth);
	vb_deth_decode(&r, &u->deth);
	u->imm = u->bth.opcode == VB_UD_SEND_ONLY_IMM ? vb_get32(&r) : 0;
	if (r.failed || (u->bth.opcode != VB_UD_SEND_ONLY && u->bth.opcode != VB_UD_SEND_ONLY_IMM) || u->bth.tver ||
	    vb_left(&r) < u->bth.pad)
		return false;
	u->len = vb_left(&r) - u->bth.pad;
	u->payload = vb_take(&r, u->len);
	vb_link_addresses(&u->flow, &u->ip, p, bytes);
	return !vb_icrc_check(&u->flow, 0, bytes + p->transport_at, p->transport_len);
}
