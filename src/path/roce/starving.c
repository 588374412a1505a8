// starving.c - datagrams that come from a fabric before their queue pair has a receive
// see: docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "core/rq.h"
#include "frame/fields.h"
#include "frame/opcode.h"
#include "path/roce/roce.h"

/* ns: so long datagrams of a queue pair wait for receives. A program that polls may be without a processor for some 10 ms. After
 * 250 ms the fabric process discards what waits for a program that does not read */
#define PATIENCE VB_MS(150)
#define EARNED VB_MS(1) /* ns: so much longer for each datagram that has found a receive */

/* The UD queue pair of a datagram. */
static struct vb_qp *datagram_qp(struct vb_node *node, const uint8_t *bth)
{
	uint32_t qpn = vb_bth_dest_qpn(bth);

	if (bth[0] >> 5 != VB_UD_SEND_ONLY >> 5)
		return NULL;
	struct vb_qp *qp = atomic_load_explicit(&node->qps[VB_QP_INDEX(qpn)], memory_order_relaxed);
	enum ibv_qp_state state = qp ? atomic_load_explicit(&qp->state, memory_order_relaxed) : IBV_QPS_RESET;

	if (state < IBV_QPS_RTR || state == IBV_QPS_ERR || qp->qp.qp_num != qpn || qp->type != IBV_QPT_UD || !qp->roce)
		return NULL;
	return qp;
}

/* No link loses a datagram for want of room, and a program posts its receives again as it polls. So one that comes too early
 * waits, with all that is behind it. A queue pair that posts few receives must not hold up its neighbours: it has PATIENCE in
 * all, of which each datagram that finds a receive gives EARNED back. */
bool vb_roce_awaits_receive(struct vb_node *node, _Atomic uint64_t *waits_since, const uint8_t *bth, uint64_t now)
{
	struct vb_qp *qp = datagram_qp(node, bth);
	uint64_t since = atomic_load_explicit(waits_since, memory_order_relaxed), waited = since ? now - since : 0;
	bool starves = qp && !vb_rq_count(vb_rq_of(qp));

	if (starves && qp->roce->waited + waited < PATIENCE) {
		if (!since)
			atomic_store_explicit(waits_since, now, memory_order_relaxed);
		return true;
	}
	if (since)
		atomic_store_explicit(waits_since, 0, memory_order_relaxed);
	if (!qp || !(qp->roce->waited | waited))
		return false;
	waited += qp->roce->waited;
	if (waited > PATIENCE)
		waited = PATIENCE;
	qp->roce->waited = starves ? waited : waited < EARNED ? 0 : waited - EARNED;
	return false;
}
