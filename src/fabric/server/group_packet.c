// group_packet.c - datagrams to multicast groups as packets, for cables to other fabric processes
// follows: IBA volume 1, 8.3 (GRH), 9.4 (opcodes), 10.5 (multicast)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>

#include "fabric/server/peer.h"
#include "fabric/ud.h"
#include "frame/opcode.h"

size_t group_encode(uint8_t bytes[GROUP_PACKET_MOST], const struct vb_fabric_datagram *d)
{
	const struct vb_fabric_data *m = d->own;
	struct vb_reader r = vb_reader(d->grh, VB_GRH_LEN);
	uint32_t word = vb_get32(&r);
	struct vb_fabric_ud u = {
	        .flow = {.slid = d->slid, .dlid = d->dlid, .sl = d->sl, .link = VB_LINK_GLOBAL},
	        .ip = {.traffic_class = (uint8_t)(word >> 20),
	               .hop_limit = d->grh[7],
	               .flow_label = word & VB_FLOW_LABEL_MASK},
	        .bth = {.opcode = m->flags & VB_FABRIC_DATA_IMM ? VB_UD_SEND_ONLY_IMM : VB_UD_SEND_ONLY,
	                .pad = -m->length & 3,
	                .solicited = m->flags & VB_FABRIC_DATA_SOLICITED,
	                .migreq = true,
	                .pkey = d->pkey,
	                .dest_qpn = VB_QPN_MULTICAST,
	                .psn = vb_psn(d->psn)},
	        .deth = {.qkey = m->qkey, .src_qpn = d->src_qpn},
	        .imm = ntohl(m->imm),
	        .payload = (const uint8_t *)(m + 1),
	        .len = m->length};

	memcpy(u.flow.src, d->grh + 8, VB_GID_LEN);
	memcpy(u.flow.dst, d->grh + 24, VB_GID_LEN);
	return vb_fabric_ud_encode(bytes, &u, 0);
}

bool group_decode(struct vb_fabric_datagram *d, struct group_message *m, const uint8_t *bytes,
                  const struct vb_link_packet *p)
{
	struct vb_fabric_ud u;

	if (!p->global || !vb_ib_is_group_lid(p->lrh.dlid) || !vb_fabric_ud_decode(&u, bytes, p) ||
	    u.len > VB_FABRIC_PAYLOAD)
		return false;
	m->head = (struct vb_fabric_data){
	        .verb = VB_FABRIC_DATA,
	        .length = (uint32_t)u.len,
	        .src_qpn = u.deth.src_qpn,
	        .qkey = u.deth.qkey,
	        .imm = htonl(u.imm),
	        .slid = p->lrh.slid,
	        .dlid = p->lrh.dlid,
	        .pkey = u.bth.pkey,
	        .sl = p->lrh.sl,
	        .flags = (uint8_t)((u.bth.opcode == VB_UD_SEND_ONLY_IMM ? VB_FABRIC_DATA_IMM : 0) |
	                           (u.bth.solicited ? VB_FABRIC_DATA_SOLICITED : 0))};
	memcpy(m->head.grh, bytes + VB_LRH_LEN, sizeof(m->head.grh));
	memcpy(m->payload, u.payload, u.len);
	*d = (struct vb_fabric_datagram){.slid = p->lrh.slid,
	                                 .dlid = p->lrh.dlid,
	                                 .pkey = u.bth.pkey,
	                                 .sl = p->lrh.sl,
	                                 .psn = u.bth.psn.v,
	                                 .src_qpn = u.deth.src_qpn,
	                                 .length = m->head.length,
	                                 .bytes = 4u * p->lrh.words,
	                                 .grh = m->head.grh,
	                                 .own = m};
	return true;
}
