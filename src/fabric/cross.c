// cross.c - management datagrams as packets, for cables whose other end is in another process
// follows: IBA volume 1, 5.2 (packets), 7.7 (LRH), 7.8 (ICRC, VCRC), 8.3 (GRH), 9.6.3 (DETH), 13.4 (MADs)
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"

#include "frame/header.h"
#include "frame/icrc.h"
#include "frame/opcode.h"

enum { DETH = 8, HEADERS = VB_BTH_LEN + DETH, TRANSPORT = HEADERS + VB_MAD_LEN + VB_ICRC_LEN };

_Static_assert(VB_FABRIC_MAD_PACKET == VB_LINK_FRONT_MAX + TRANSPORT + VB_VCRC_LEN, "a packet with a GRH");

size_t vb_fabric_encode(uint8_t bytes[VB_FABRIC_MAD_PACKET], const struct vb_fabric_packet *k)
{
	struct vb_flow flow = {
	        .slid = k->slid, .dlid = k->dlid, .sl = k->sl, .link = k->grh ? VB_LINK_GLOBAL : VB_LINK_LOCAL};
	const struct vb_ip_fields ip = {
	        .traffic_class = k->traffic_class, .hop_limit = k->hop_limit, .flow_label = k->flow_label};
	const struct vb_bth bth = {.opcode = VB_UD_SEND_ONLY, .migreq = true, .pkey = k->pkey, .dest_qpn = k->dst_qpn};
	const struct vb_deth deth = {.qkey = k->qkey, .src_qpn = k->src_qpn};

	memcpy(flow.src, k->sgid, sizeof(flow.src));
	memcpy(flow.dst, k->dgid, sizeof(flow.dst));
	size_t front = vb_link_front(bytes, &flow, &ip, TRANSPORT);
	struct vb_writer w = vb_writer(bytes + front, TRANSPORT);

	if (k->dst_qpn == VB_SMI_QPN)
		bytes[0] |= VB_VL_MANAGEMENT << 4;
	vb_bth_encode(&w, &bth);
	vb_deth_encode(&w, &deth);
	vb_put_bytes(&w, k->mad, VB_MAD_LEN);
	uint32_t crc = vb_icrc_start(&flow, 0, bytes + front, HEADERS, TRANSPORT);

	vb_icrc_encode(bytes + front + TRANSPORT - VB_ICRC_LEN, vb_crc32(crc, k->mad, VB_MAD_LEN));
	vb_vcrc_encode(bytes, front + TRANSPORT);
	return front + TRANSPORT + VB_VCRC_LEN;
}

bool vb_fabric_decode(struct vb_fabric_packet *k, const uint8_t *bytes, const struct vb_link_packet *p)
{
	struct vb_reader r = vb_reader(bytes + p->transport_at, p->transport_len);
	struct vb_ip_fields ip;
	struct vb_flow flow;
	struct vb_deth deth;
	struct vb_bth bth;

	if (p->transport_len != TRANSPORT)
		return false;
	vb_bth_decode(&r, &bth);
	vb_deth_decode(&r, &deth);
	const uint8_t *mad = vb_take(&r, VB_MAD_LEN);

	if (r.failed || bth.opcode != VB_UD_SEND_ONLY || bth.pad || bth.tver || bth.dest_qpn > VB_GSI_QPN)
		return false;
	if ((p->lrh.vl == VB_VL_MANAGEMENT) != (bth.dest_qpn == VB_SMI_QPN))
		return false;
	vb_link_addresses(&flow, &ip, p, bytes);
	if (vb_icrc_check(&flow, 0, bytes + p->transport_at, TRANSPORT))
		return false;
	*k = (struct vb_fabric_packet){.slid = p->lrh.slid,
	                               .dlid = p->lrh.dlid,
	                               .pkey = bth.pkey,
	                               .sl = p->lrh.sl,
	                               .grh = p->global,
	                               .hop_limit = ip.hop_limit,
	                               .traffic_class = ip.traffic_class,
	                               .flow_label = ip.flow_label,
	                               .src_qpn = deth.src_qpn,
	                               .dst_qpn = bth.dest_qpn,
	                               .qkey = deth.qkey};
	if (p->global) {
		memcpy(k->sgid, flow.src, sizeof(k->sgid));
		memcpy(k->dgid, flow.dst, sizeof(k->dgid));
	}
	memcpy(k->mad, mad, VB_MAD_LEN);
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
