// ahead.c - requests that came before one that is missing: kept, and executed in their turn when the peer vouches for them
// follows: IBA volume 1, 9.7.4.1 (PSN verification); the peer sees of it only an acknowledgement that comes early
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

/*
 * Anybody who can forge the peer's address can place a packet ahead of the expected PSN: there are thousands of PSNs to
 * hit in place of one. Two things are beyond his guessing. The first time, a packet that was kept is not executed
 * because the PSNs before it have come, but when the requester vouches for it: of packets that it sends again some go
 * twice, and the second time ask for nothing (mend.c; of a READ request its last PSN goes twice: requester.c, echo).
 * While the responder waits at a kept packet, only a duplicate of the very PSN before it counts, right behind it: a
 * forger has to hit that PSN, as he has to hit the expected one without any of this. Adapters that go back to what is
 * missing never do that; they send all of it again in its turn, and what comes in its turn takes the place of what was
 * kept. A requester that has vouched keeps to one source port, which is random (vb_udp_sender): from then on nothing
 * ahead is taken from another. Of two packets that differ ahead of their turn neither is executed: the PSN is asked for
 * again.
 */

#define REACH 4096             /* PSNs ahead of the last that came: no burst that is lost is longer */
#define KEPT_FOR 2000000000ull /* ns */

static struct vb_roce_kept *slot(const struct vb_roce_qp *qp, struct vb_psn psn)
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

/* The same request? It may ask for an acknowledgement only the second time. */
static bool same(const struct vb_roce_kept *k, const struct vb_packet *p, const uint8_t *payload)
{
	const struct vb_packet *a = &k->packet;

	return a->bth.opcode == p->bth.opcode && a->bth.solicited == p->bth.solicited &&
	       a->payload_len == p->payload_len && a->reth.va == p->reth.va && a->reth.rkey == p->reth.rkey &&
	       a->reth.length == p->reth.length && a->atomic.va == p->atomic.va && a->atomic.rkey == p->atomic.rkey &&
	       a->atomic.swap_add == p->atomic.swap_add && a->atomic.compare == p->atomic.compare &&
	       a->immdt.data == p->immdt.data && a->ieth.rkey == p->ieth.rkey &&
	       !memcmp(k->payload, payload, p->payload_len);
}

/* No further than n, each PSN once: no more than the slots can be filled. */
void vb_ahead_keep(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload, uint64_t now)
{
	struct vb_roce_responder *rs = &qp->rs;
	uint32_t distance = (uint32_t)vb_psn_diff(p->bth.psn, rs->epsn);
	uint32_t so_far = rs->kept ? (uint32_t)vb_psn_diff(rs->kept_to, rs->epsn) : 0;

	if (distance >= qp->ahead.n || distance > so_far + REACH || p->payload_len > qp->cfg.mtu)
		return;
	struct vb_roce_kept *k = slot(qp, p->bth.psn);

	if (k->used) {
		qp->stats.disputed_pkts += !k->disputed && !same(k, p, payload);
		k->disputed = k->disputed || !same(k, p, payload);
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

bool vb_ahead_waits(const struct vb_roce_qp *qp)
{
	return qp->rs.kept && slot(qp, qp->rs.epsn)->used;
}

/* Who just sends a packet again asks for an acknowledgement. */
bool vb_ahead_vouches(const struct vb_roce_qp *qp, const struct vb_bth *bth, uint64_t now)
{
	const struct vb_roce_responder *rs = &qp->rs;

	return now < rs->vouch_by && !bth->ack_req && vb_psn_equal(bth->psn, rs->last) &&
	       vb_psn_equal(vb_psn_add(bth->psn, 1), rs->epsn) && vb_ahead_waits(qp);
}

struct vb_roce_kept *vb_ahead_take(struct vb_roce_qp *qp)
{
	struct vb_roce_kept *k;

	if (!vb_ahead_waits(qp))
		return NULL;
	k = slot(qp, qp->rs.epsn);
	k->used = false;
	qp->rs.kept--;
	if (!k->disputed)
		return k;
	vb_owe_nak(qp, VB_NAK_PSN_SEQUENCE, qp->rs.epsn);
	qp->rs.refused = true;
	return NULL;
}

void vb_ahead_pass(struct vb_roce_qp *qp, struct vb_psn from, uint32_t count)
{
	for (uint32_t i = 0; i < count && i < qp->ahead.n && qp->rs.kept; i++) {
		struct vb_roce_kept *k = slot(qp, vb_psn_add(from, (int32_t)i));

		qp->rs.kept -= k->used;
		k->used = false;
	}
}

void vb_ahead_drop(struct vb_roce_qp *qp)
{
	if (qp->rs.kept)
		vb_ahead_pass(qp, qp->rs.epsn, (uint32_t)vb_psn_diff(qp->rs.kept_to, qp->rs.epsn));
}

void vb_ahead_timeout(struct vb_roce_qp *qp, uint64_t now)
{
	if (!qp->rs.kept_until || qp->rs.kept_until > now)
		return;
	vb_ahead_drop(qp);
	qp->rs.kept_until = 0;
	if (qp->ops->ahead_unused)
		qp->ops->ahead_unused(qp->own);
}
