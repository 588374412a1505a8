// replay.c - stores the peer's reads, atomics, flushes and atomic writes, to answer them and to repeat the answers
// follows: IBA volume 1, 9.7.4 (responder), 9.7.5 (duplicate requests)
// SPDX-License-Identifier: MIT
#include "engine/roce/machine.h"

static struct vb_roce_resource *resource_at(struct vb_roce_qp *qp, uint32_t i)
{
	return &qp->rs.res[i % VB_ROCE_MAX_RESOURCES];
}

/* Is there room for a request, possibly in place of the oldest one, if that was answered? A requester within the limit
 * does not repeat that one. */
bool vb_roce_resource_room(struct vb_roce_qp *qp)
{
	struct vb_roce_responder *rs = &qp->rs;

	return rs->res_tail - rs->res_head < qp->cfg.max_dest_rd_atomic || resource_at(qp, rs->res_head)->answered;
}

bool vb_roce_resource_add(struct vb_roce_qp *qp, const struct vb_roce_resource *r)
{
	struct vb_roce_responder *rs = &qp->rs;

	if (!vb_roce_resource_room(qp))
		return false;
	if (rs->res_tail - rs->res_head >= qp->cfg.max_dest_rd_atomic) { /* may exceed a limit that was lowered */
		struct vb_roce_resource *old = resource_at(qp, rs->res_head++);

		rs->unanswered -= old->next != old->end;
	}
	struct vb_roce_resource *added = resource_at(qp, rs->res_tail++);

	*added = *r;
	added->end = r->packets;
	added->end_length = r->length;
	rs->unanswered++;
	return true;
}

/*
 * The last PSN, at most psn, that belongs to no read or atomic. An acknowledgement with the PSN of a read would mean
 * that the read is done, and some requesters accept that.
 */
struct vb_psn vb_roce_resource_before(struct vb_roce_qp *qp, struct vb_psn psn)
{
	for (uint32_t i = qp->rs.res_tail; i != qp->rs.res_head; i--) {
		const struct vb_roce_resource *r = resource_at(qp, i - 1);

		if (!vb_psn_equal(vb_psn_add(r->psn, (int32_t)r->packets - 1), psn))
			break;
		psn = vb_psn_add(r->psn, -1);
	}
	return psn;
}

__attribute__((hot)) struct vb_roce_resource *vb_roce_resource_unanswered(struct vb_roce_qp *qp)
{
	if (!qp->rs.unanswered)
		return NULL;
	uint32_t i = qp->rs.res_head;

	while (resource_at(qp, i)->next == resource_at(qp, i)->end)
		i++;
	return resource_at(qp, i);
}

void vb_roce_resource_sent(struct vb_roce_qp *qp, struct vb_roce_resource *r)
{
	if (++r->next < r->end)
		return;
	r->answered = true;
	qp->rs.unanswered--;
}

/* Does the request ask for r's response, or a part of it, that starts with packet `from`? */
static bool asks_for(const struct vb_roce_qp *qp, const struct vb_roce_resource *r, const struct vb_packet *p,
                     uint32_t from)
{
	uint64_t offset = (uint64_t)from * qp->cfg.mtu;

	if (r->placed)
		return p->info->op == r->placed && p->reth.va == r->va && p->reth.rkey == r->rkey;
	if (r->atomic)
		return p->info->ext & VB_EXT_ATOMIC && p->atomic.va == r->va && p->atomic.rkey == r->rkey;
	return p->info->op == VB_OP_READ && p->reth.va == r->va + offset && p->reth.rkey == r->rkey &&
	       p->reth.length <= r->length - offset && (p->reth.length || !r->length);
}

/* Sets the range of r's answer. An answer in progress that ends later keeps its end. */
static void answer_to(const struct vb_roce_qp *qp, struct vb_roce_resource *r, uint32_t from, uint32_t length)
{
	uint32_t end = from + vb_packet_count(length, qp->cfg.mtu);

	if (r->atomic || r->placed || (r->next != r->end && r->end >= end))
		return;
	r->end = end;
	r->end_length = from * qp->cfg.mtu + length;
}

/* Repeats an answer from the requested packet on, with a new FIRST packet. An answer in progress that has not reached
 * that packet just continues. An unknown request is dropped. */
void vb_roce_resource_replay(struct vb_roce_qp *qp, const struct vb_packet *p)
{
	for (uint32_t i = qp->rs.res_head; i != qp->rs.res_tail; i++) {
		struct vb_roce_resource *r = resource_at(qp, i);
		int32_t from = vb_psn_diff(p->bth.psn, r->psn);

		if (from < 0 || (uint32_t)from >= r->packets || !asks_for(qp, r, p, (uint32_t)from))
			continue;
		if ((uint32_t)from > r->next)
			return;
		qp->rs.unanswered += r->next == r->end;
		answer_to(qp, r, (uint32_t)from, p->reth.length);
		r->next = r->from = (uint32_t)from;
		return;
	}
	qp->stats.drop_replay++;
}
