// violations.c - packets with a wrong P_Key and datagrams with a wrong Q_Key, as ibv_query_port counts them
// follows: IBA volume 1, 10.3.5 (violations), 14.2.5.6 (PortInfo); ibv_query_port(3)
// SPDX-License-Identifier: MIT
#include "core/device.h"
#include "core/qp.h"
#include "engine/local/local.h"
#include "node/io.h"

/* Under progress. */
static void count_violations(struct vb_node *node, const struct vb_device *dev, struct vb_counts *sum)
{
	for (unsigned i = 0, left = node->qp_count; i < VB_LANE_QPS && left; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		left -= qp != NULL;
		if (!qp || vb_qp_device(qp) != dev)
			continue;
		sum->qkey_viol_cntr += qp->local.received.wrong_qkey;
		for (unsigned t = 0; t < VB_TRANSPORTS; t++)
			vb_transports[t]->show(qp, sum, NULL, 0);
	}
}

static uint32_t saturated(uint64_t n)
{
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* deviates: an adapter counts for all programs; the files below hw_counters do. */
void vb_node_violations(struct vb_node *node, const struct vb_device *dev, struct ibv_port_attr *attr)
{
	struct vb_counts sum = {0};

	vb_lock(&node->progress);
	count_violations(node, dev, &sum);
	sum.bad_pkey_cntr += dev->ended.bad_pkey_cntr;
	sum.qkey_viol_cntr += dev->ended.qkey_viol_cntr;
	vb_unlock(&node->progress);
	attr->bad_pkey_cntr = saturated(sum.bad_pkey_cntr);
	attr->qkey_viol_cntr = saturated(sum.qkey_viol_cntr);
}
