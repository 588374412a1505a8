// ahead.c - requests that came before one that is missing: kept, and executed in their turn when it comes
// follows: IBA volume 1, 9.7.4.1 (PSN verification); the peer sees of it only an acknowledgement that comes early
// SPDX-License-Identifier: MIT
#include "engine/wire/machine.h"

static struct vb_wire_kept *slot(const struct vb_wire_qp *qp, struct vb_psn psn)
{
	size_t i = psn.v & (qp->ahead.n - 1);

	return (struct vb_wire_kept *)(void *)(qp->ahead.slots + i * VB_WIRE_SLOT(qp->cfg.mtu));
}

void vb_wire_keep_ahead(struct vb_wire_qp *qp, const struct vb_wire_ahead *ahead)
{
	qp->ahead = *ahead;
	if (!ahead->slots)
		qp->ahead.n = 0;
}

/* No further than n, each PSN once: no more than the slots can be filled, and the first that came stays. */
void vb_ahead_keep(struct vb_wire_qp *qp, const struct vb_packet *p, const uint8_t *payload)
{
	uint32_t distance = (uint32_t)vb_psn_diff(p->bth.psn, qp->rs.epsn);

	if (distance >= qp->ahead.n || p->payload_len > qp->cfg.mtu)
		return;
	struct vb_wire_kept *k = slot(qp, p->bth.psn);

	if (k->used)
		return;
	k->used = true;
	k->packet = *p;
	memcpy(k->payload, payload, p->payload_len);
	qp->rs.kept++;
	qp->stats.kept_pkts++;
	qp->stats.bytes_copied_in += p->payload_len;
}

struct vb_wire_kept *vb_ahead_take(struct vb_wire_qp *qp)
{
	struct vb_wire_kept *k;

	if (!qp->rs.kept)
		return NULL;
	k = slot(qp, qp->rs.epsn);
	if (!k->used)
		return NULL;
	k->used = false;
	qp->rs.kept--;
	return k;
}

void vb_ahead_pass(struct vb_wire_qp *qp, struct vb_psn from, uint32_t count)
{
	for (uint32_t i = 0; i < count && i < qp->ahead.n && qp->rs.kept; i++) {
		struct vb_wire_kept *k = slot(qp, vb_psn_add(from, (int32_t)i));

		qp->rs.kept -= k->used;
		k->used = false;
	}
}
