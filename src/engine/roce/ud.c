// ud.c - receives datagrams, with the 40 bytes of header before the data
// follows: IBA volume 1, 9.8.3.2 (UD responder), 9.6.1.4 (Q_Key); annex A17 (RoCEv2), A17.4.5.2
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"
#include "frame/net.h"

/* Stores a datagram in the taken receive. */
static enum vb_work_status store_datagram(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                                          const uint8_t *grh)
{
	/* deviates: IBA 9.8.3.2 drops a datagram that is too long. Adapters complete the receive with an error, and
	 * programs expect that */
	if (VB_GRH_LEN + p->payload_len > qp->rs.in.room) {
		qp->stats.drop_length++;
		return VB_WORK_LOC_LEN_ERR;
	}
	if (!qp->ops->scatter_receive(qp->own, 0, grh, VB_GRH_LEN))
		return vb_refused_rows[VB_REFUSE_RECEIVE].receive;
	if (p->payload_len && !qp->ops->scatter_receive(qp->own, VB_GRH_LEN, payload, p->payload_len))
		return vb_refused_rows[VB_REFUSE_RECEIVE].receive;
	return VB_WORK_SUCCESS;
}

void vb_roce_datagram_input(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                            const struct vb_roce_from *from)
{
	if (p->deth.qkey != qp->cfg.qkey) { /* IBA 9.6.1.4 */
		qp->stats.drop_qkey++;
		return;
	}
	if (p->payload_len > qp->cfg.mtu) {
		qp->stats.drop_length++;
		return;
	}
	if (!qp->ops->take_receive(qp->own, &qp->rs.in.room)) {
		qp->stats.drop_no_receive++;
		return;
	}
	struct vb_receipt receipt = {
	        .status = store_datagram(qp, p, payload, from->grh),
	        .solicited = p->bth.solicited,
	        .ipv4 = from->grh[0] >> 4 != 6,
	        .slid = from->slid,
	        .dlid = from->dlid,
	        .sl = from->sl,
	        .local = from->local,
	        .flags = p->info->ext & VB_EXT_IMMDT ? VB_WORK_IMM : 0,
	        .imm = p->immdt.data,
	        .length = VB_GRH_LEN + p->payload_len,
	        .src_qpn = p->deth.src_qpn,
	};

	qp->ops->complete_receive(qp->own, &receipt);
	if (receipt.status == vb_refused_rows[VB_REFUSE_RECEIVE].receive) /* IBA 9.9.3: a local error ends any QP */
		vb_roce_kill(qp, vb_refused_rows[VB_REFUSE_RECEIVE].event);
}
