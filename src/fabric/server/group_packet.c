// group_packet.c - datagrams to multicast groups as packets, for cables to other fabric processes
// follows: IBA volume 1, 5.2 (packets), 7.7 (LRH), 7.8 (ICRC, VCRC), 8.3 (GRH), 9.6.3 (DETH), 9.4 (opcodes)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>

#include "fabric/server/peer.h"
#include "frame/fields.h"
#include "frame/header.h"
#include "frame/icrc.h"
#include "frame/opcode.h"

enum { DETH_LEN = 8, IMM_LEN = 4 };

static void flow_of(struct vb_flow *flow, struct vb_ip_fields *ip, const struct vb_fabric_datagram *d)
{
	struct vb_reader r = vb_reader(d->grh, VB_GRH_LEN);
	uint32_t word = vb_get32(&r);

	*flow = (struct vb_flow){.slid = d->slid, .dlid = d->dlid, .sl = d->sl, .link = VB_LINK_GLOBAL};
	*ip = (struct vb_ip_fields){.traffic_class = (uint8_t)(word >> 20),
	                            .hop_limit = d->grh[7],
	                            .flow_label = word & VB_FLOW_LABEL_MASK};
	memcpy(flow->src, d->grh + 8, VB_GID_LEN);
	memcpy(flow->dst, d->grh + 24, VB_GID_LEN);
}

size_t group_encode(uint8_t bytes[GROUP_PACKET_MOST], const struct vb_fabric_datagram *d)
{
	const struct vb_fabric_data *m = d->own;
	bool imm = m->flags & VB_FABRIC_DATA_IMM;
	const struct vb_bth bth = {.opcode = imm ? VB_UD_SEND_ONLY_IMM : VB_UD_SEND_ONLY,
	                           .pad = -m->length & 3,
	                           .solicited = m->flags & VB_FABRIC_DATA_SOLICITED,
	                           .migreq = true,
	                           .pkey = d->pkey,
	                           .dest_qpn = VB_QPN_MULTICAST,
	                           .psn = vb_psn(d->psn)};
	const struct vb_deth deth = {.qkey = m->qkey, .src_qpn = d->src_qpn};
	size_t transport = VB_BTH_LEN + DETH_LEN + (imm ? IMM_LEN : 0) + m->length + bth.pad + VB_ICRC_LEN;
	struct vb_ip_fields ip;
	struct vb_flow flow;

	flow_of(&flow, &ip, d);
	size_t front = vb_link_front(bytes, &flow, &ip, transport);
	struct vb_writer w = vb_writer(bytes + front, transport);

	vb_bth_encode(&w, &bth);
	vb_deth_encode(&w, &deth);
	if (imm)
		vb_put32(&w, ntohl(m->imm));
	vb_put_bytes(&w, m + 1, m->length);
	vb_put_zeros(&w, bth.pad);
	uint32_t crc = vb_icrc_start(&flow, 0, bytes + front, w.pos, transport);

	vb_icrc_encode(bytes + front + w.pos, crc);
	vb_vcrc_encode(bytes, front + transport);
	return front + transport + VB_VCRC_LEN;
}

bool group_decode(struct vb_fabric_datagram *d, struct group_message *m, const uint8_t *bytes,
                  const struct vb_link_packet *p)
{
	struct vb_reader r = vb_reader(bytes + p->transport_at, p->transport_len - VB_ICRC_LEN);
	struct vb_ip_fields ip;
	struct vb_flow flow;
	struct vb_deth deth;
	struct vb_bth bth;

	vb_bth_decode(&r, &bth);
	vb_deth_decode(&r, &deth);
	bool imm = bth.opcode == VB_UD_SEND_ONLY_IMM;
	uint32_t data = imm ? vb_get32(&r) : 0;

	if (r.failed || !p->global || (bth.opcode != VB_UD_SEND_ONLY && !imm) || bth.tver || vb_left(&r) < bth.pad ||
	    vb_left(&r) - bth.pad > VB_FABRIC_PAYLOAD || p->lrh.dlid == VB_LID_DIRECTED)
		return false;
	vb_link_addresses(&flow, &ip, p, bytes);
	if (vb_icrc_check(&flow, 0, bytes + p->transport_at, p->transport_len))
		return false;
	m->head = (struct vb_fabric_data){
	        .verb = VB_FABRIC_DATA,
	        .length = (uint32_t)(vb_left(&r) - bth.pad),
	        .src_qpn = deth.src_qpn,
	        .qkey = deth.qkey,
	        .imm = htonl(data),
	        .slid = p->lrh.slid,
	        .dlid = p->lrh.dlid,
	        .pkey = bth.pkey,
	        .sl = p->lrh.sl,
	        .flags = (uint8_t)((imm ? VB_FABRIC_DATA_IMM : 0) | (bth.solicited ? VB_FABRIC_DATA_SOLICITED : 0))};
	memcpy(m->head.grh, bytes + VB_LRH_LEN, sizeof(m->head.grh));
	memcpy(m->payload, vb_take(&r, m->head.length), m->head.length);
	*d = (struct vb_fabric_datagram){.slid = p->lrh.slid,
	                                 .dlid = p->lrh.dlid,
	                                 .pkey = bth.pkey,
	                                 .sl = p->lrh.sl,
	                                 .psn = bth.psn.v,
	                                 .src_qpn = deth.src_qpn,
	                                 .length = m->head.length,
	                                 .bytes = 4u * p->lrh.words,
	                                 .grh = m->head.grh,
	                                 .own = m};
	return true;
}
