// cross.c - management datagrams as packets, for cables whose other end is in another process
// follows: IBA volume 1, 13.4 (MADs), 9.4 (opcodes)
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"
#include "fabric/ud.h"
#include "frame/opcode.h"

_Static_assert(VB_FABRIC_MAD_PACKET ==
                       VB_LINK_FRONT_MAX + VB_HEADER_LEN(VB_EXT_DETH) + VB_MAD_LEN + VB_ICRC_LEN + VB_VCRC_LEN,
               "a packet with a GRH");

size_t vb_fabric_encode(uint8_t bytes[VB_FABRIC_MAD_PACKET], const struct vb_fabric_packet *k)
{
	struct vb_fabric_ud u = {
	        .flow = {.slid = k->slid,
	                 .dlid = k->dlid,
	                 .sl = k->sl,
	                 .link = k->grh ? VB_LINK_GLOBAL : VB_LINK_LOCAL},
	        .ip = {.traffic_class = k->traffic_class, .hop_limit = k->hop_limit, .flow_label = k->flow_label},
	        .bth = {.opcode = VB_UD_SEND_ONLY, .migreq = true, .pkey = k->pkey, .dest_qpn = k->dst_qpn},
	        .deth = {.qkey = k->qkey, .src_qpn = k->src_qpn},
	        .payload = k->mad,
	        .len = VB_MAD_LEN};

	memcpy(u.flow.src, k->sgid, sizeof(u.flow.src));
	memcpy(u.flow.dst, k->dgid, sizeof(u.flow.dst));
	return vb_fabric_ud_encode(bytes, &u, k->dst_qpn == VB_SMI_QPN ? VB_VL_MANAGEMENT : 0);
}

bool vb_fabric_decode(struct vb_fabric_packet *k, const uint8_t *bytes, const struct vb_link_packet *p)
{
	struct vb_fabric_ud u;

	if (!vb_fabric_ud_decode(&u, bytes, p) || u.bth.opcode != VB_UD_SEND_ONLY || u.len != VB_MAD_LEN || u.bth.pad)
		return false;
	if (u.bth.dest_qpn > VB_GSI_QPN || (p->lrh.vl == VB_VL_MANAGEMENT) != (u.bth.dest_qpn == VB_SMI_QPN))
		return false;
	*k = (struct vb_fabric_packet){.slid = p->lrh.slid,
	                               .dlid = p->lrh.dlid,
	                               .pkey = u.bth.pkey,
	                               .sl = p->lrh.sl,
	                               .grh = p->global,
	                               .hop_limit = u.ip.hop_limit,
	                               .traffic_class = u.ip.traffic_class,
	                               .flow_label = u.ip.flow_label,
	                               .src_qpn = u.deth.src_qpn,
	                               .dst_qpn = u.bth.dest_qpn,
	                               .qkey = u.deth.qkey};
	if (p->global) {
		memcpy(k->sgid, u.flow.src, sizeof(k->sgid));
		memcpy(k->dgid, u.flow.dst, sizeof(k->dgid));
	}
	memcpy(k->mad, u.payload, VB_MAD_LEN);
	return true;
}

enum vb_fabric_kind vb_fabric_kind_of(const struct vb_link_packet *p, const uint8_t *bytes)
{
	if (vb_bth_dest_qpn(bytes + p->transport_at) <= VB_GSI_QPN)
		return VB_FABRIC_IS_MAD;
	return p->lrh.dlid >= VB_LID_MULTICAST ? VB_FABRIC_IS_GROUP : VB_FABRIC_IS_DATA;
}

void vb_fabric_arrive(struct vb_fabric_port *in, const uint8_t *bytes, const struct vb_link_packet *p,
                      enum vb_link_verdict verdict, unsigned hops)
{
	struct vb_fabric *f = in->node->fabric;
	struct vb_fabric_flight fl = {.from = in, .came_in = true, .hops = hops};

	if (verdict == VB_LINK_VCRC) {
		in->counters.rcv_errors++;
		VB_DROP(f, bad_vcrc);
		return;
	}
	if (verdict != VB_LINK_OK || !vb_fabric_decode(&fl.packet, bytes, p)) {
		in->counters.rcv_errors++;
		VB_DROP(f, bad_packet);
		return;
	}
	uint8_t mgmt_class = fl.packet.mad[1];

	fl.is_smp = mgmt_class == VB_MAD_CLASS_SM_DR || mgmt_class == VB_MAD_CLASS_SM_LID;
	if (fl.is_smp != (fl.packet.dst_qpn == VB_SMI_QPN)) { /* 13.5.3 */
		VB_DROP(f, bad_class);
		return;
	}
	if (fl.is_smp)
		vb_smp_decode(&fl.smp, fl.packet.mad);
	vb_fabric_launch_flight(f, &fl);
}
