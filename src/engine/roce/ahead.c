// ahead.c - keeps requests that arrive ahead of a missing one, and executes them once the peer vouches for them
// follows: IBA volume 1, 9.7.4.1 (PSN verification)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"
#include "util/units.h"

/*
 * An attacker who forges the peer's address could place a packet ahead of the expected PSN, where thousands of PSNs are
 * valid instead of one. Two rules prevent that. First, a kept packet is not executed as soon as the PSNs before it have
 * arrived, but only once the requester vouches for it. To vouch, the requester sends some of the repeated packets twice,
 * the second time without asking for an acknowledgement (mend.c; of a READ request it repeats the last PSN: echo_first() in
 * requester.c). While the responder waits at a kept packet, only a duplicate with exactly the PSN before it vouches. So
 * an attacker must guess that PSN, just as he must guess the expected PSN without this feature. Adapters that go back to
 * the missing packet never send such duplicates. They repeat all packets in order, and a packet in order replaces a kept
 * one. Second, a requester that vouches has one random source port (vb_udp_sender): once it has vouched, packets ahead
 * are accepted only from that port. If two different packets ahead have the same PSN, neither is executed, and the PSN
 * is requested again.
 */

#define REACH 4096       /* PSNs that a kept packet may be ahead of the others: longer than any lost burst */
#define KEPT_FOR VB_S(2) /* ns that packets are kept */

static struct vb_roce_kept *ahead_slot(const struct vb_roce_qp *qp, struct vb_psn psn)
{
	size_t i = psn.v & (qp->ahead.n - 1);

	return (struct vb_roce_kept *)(void *)(qp->ahead.slots + i * VB_ROCE_SLOT(qp->cfg.mtu));
}

void vb_roce_keep_ahead(struct vb_roce_qp *qp, const struct vb_roce_ahead *ahead)
{
	qp->ahead = *ahead;
	if (!ahead->slots)
		qp->ahead.n = 0;
}

/* Is this the same request? Its bit that asks for an acknowledgement may differ. */
static bool same_request(const struct vb_roce_kept *k, const struct vb_packet *p, const uint8_t *payload)
{
	const struct vb_packet *a = &k->packet;

	return a->bth.opcode == p->bth.opcode && a->bth.solicited == p->bth.solicited &&
	       a->payload_len == p->payload_len && vb_feth_word(a->feth) == vb_feth_word(p->feth) &&
	       a->reth.va == p->reth.va && a->reth.rkey == p->reth.rkey && a->reth.length == p->reth.length &&
	       a->atomic.va == p->atomic.va && a->atomic.rkey == p->atomic.rkey &&
	       a->atomic.swap_add == p->atomic.swap_add && a->atomic.compare == p->atomic.compare &&
	       a->immdt.data == p->immdt.data && a->ieth.rkey == p->ieth.rkey &&
	       !memcmp(k->payload, payload, p->payload_len);
}

/* Keeps a packet that is less than n PSNs ahead, and each PSN once. So there are never more packets than slots. */
void vb_roce_ahead_keep(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload, uint64_t now)
{
	struct vb_roce_responder *rs = &qp->rs;
	uint32_t distance = (uint32_t)vb_psn_diff(p->bth.psn, rs->epsn);
	uint32_t so_far = rs->kept ? (uint32_t)vb_psn_diff(rs->kept_to, rs->epsn) : 0;

	if (distance >= qp->ahead.n || distance > so_far + REACH || p->payload_len > qp->cfg.mtu)
		return;
	struct vb_roce_kept *k = ahead_slot(qp, p->bth.psn);

	if (k->used) {
		qp->stats.disputed_pkts += !k->disputed && !same_request(k, p, payload);
		k->disputed = k->disputed || !same_request(k, p, payload);
		return;
	}
	k->used = true;
	k->disputed = false;
	k->packet = *p;
	memcpy(k->payload, payload, p->payload_len);
	if (distance >= so_far)
		rs->kept_to = vb_psn_add(p->bth.psn, 1);
	rs->kept++;
	rs->kept_until = now + KEPT_FOR;
	qp->stats.kept_pkts++;
	qp->stats.bytes_copied_in += p->payload_len;
}

__attribute__((hot)) bool vb_roce_ahead_waits(const struct vb_roce_qp *qp)
{
	return qp->rs.kept && ahead_slot(qp, qp->rs.epsn)->used;
}

/* A duplicate that asks for an acknowledgement is a plain repetition, and does not vouch. */
bool vb_roce_ahead_vouches(const struct vb_roce_qp *qp, const struct vb_bth *bth, uint64_t now)
{
	const struct vb_roce_responder *rs = &qp->rs;

	return now < rs->vouch_by && !bth->ack_req && vb_psn_equal(bth->psn, rs->last) &&
	       vb_psn_equal(vb_psn_add(bth->psn, 1), rs->epsn) && vb_roce_ahead_waits(qp);
}

struct vb_roce_kept *vb_roce_ahead_take(struct vb_roce_qp *qp)
{
	struct vb_roce_kept *k;

	if (!vb_roce_ahead_waits(qp))
		return NULL;
	k = ahead_slot(qp, qp->rs.epsn);
	k->used = false;
	qp->rs.kept--;
	if (!k->disputed)
		return k;
	vb_roce_owe_nak(qp, VB_NAK_PSN_SEQUENCE, qp->rs.epsn);
	qp->rs.refused = true;
	return NULL;
}

__attribute__((hot)) void vb_roce_ahead_pass(struct vb_roce_qp *qp, struct vb_psn from, uint32_t count)
{
	for (uint32_t i = 0; i < count && i < qp->ahead.n && qp->rs.kept; i++) {
		struct vb_roce_kept *k = ahead_slot(qp, vb_psn_add(from, (int32_t)i));

		qp->rs.kept -= k->used;
		k->used = false;
	}
}

void vb_roce_ahead_drop(struct vb_roce_qp *qp)
{
	if (qp->rs.kept)
		vb_roce_ahead_pass(qp, qp->rs.epsn, (uint32_t)vb_psn_diff(qp->rs.kept_to, qp->rs.epsn));
}

void vb_roce_ahead_timeout(struct vb_roce_qp *qp, uint64_t now)
{
	if (!qp->rs.kept_until || qp->rs.kept_until > now)
		return;
	vb_roce_ahead_drop(qp);
	qp->rs.kept_until = 0;
	if (qp->ops->ahead_unused)
		qp->ops->ahead_unused(qp->own);
}
