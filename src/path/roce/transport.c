// transport.c - RoCE as one of the node's transports
// see: node/transport.h
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>

#include "core/gid.h"
#include "path/path.h"
#include "path/roce/roce.h"
#include "util/log.h"

static int roce_start(struct vb_node *node)
{
	node->io->roce = vb_roce_sockets_new(node);
	return node->io->roce ? 0 : ENOMEM;
}

static void roce_free(struct vb_node *node)
{
	vb_roce_sockets_free(node->io->roce);
	node->io->roce = NULL;
}

static unsigned roce_poll(struct vb_node *node, bool finish)
{
	(void)finish;
	return atomic_load_explicit(&node->io->roce->up, memory_order_relaxed) ? vb_roce_poll(node) : 0;
}

static uint64_t roce_due(struct vb_node *node)
{
	uint64_t forward = vb_roce_forward_due(node), lost = vb_roce_lost_at(node);

	return lost && (lost < forward || !forward) ? lost : forward;
}

/* Adds the counters of existing queue pairs. Under progress. */
static void count_open(struct vb_node *node, struct vb_roce_stats *sum)
{
	for (unsigned i = 0, left = node->qp_count; i < VB_LANE_QPS && left; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		left -= qp != NULL;
#define X(name, text) sum->name += qp->roce->q.stats.name;
		if (qp && qp->roce) {
			VB_ROCE_COUNTERS(X)
		}
#undef X
	}
}

static void roce_log_counters(struct vb_node *node)
{
	struct vb_roce_stats sum = vb_roce_totals;

	if (node)
		count_open(node, &sum);
#define X(name, text) \
	if (sum.name) \
		vb_log(VB_LOG_DEBUG, "RoCE: %s: %lu", text, sum.name);
	VB_ROCE_COUNTERS(X)
#undef X
}

static const char *roce_peer_text(const struct vb_qp *qp, char *buf, size_t size)
{
	const uint8_t *dst = qp->roce->to.dst;

	return inet_ntop(vb_gid_is_ipv4(dst) ? AF_INET : AF_INET6, vb_gid_is_ipv4(dst) ? dst + 12 : dst, buf,
	                 (socklen_t)size);
}

static bool roce_show(const struct vb_qp *qp, struct vb_counts *c, char *peer, size_t size)
{
	if (!qp->roce)
		return false;
	vb_roce_path_counts(qp->roce, c);
	if (peer && (qp->type == IBV_QPT_UD || !roce_peer_text(qp, peer, size)))
		peer[0] = '\0';
	return true;
}

const struct vb_transport_ops vb_roce_transport = {
        .start = roce_start,
        .free = roce_free,
        .in_child = vb_roce_in_child,
        .poll = roce_poll,
        .watch = vb_roce_watch,
        .due = roce_due,
        .look = vb_roce_ask_again,
        .log_counters = roce_log_counters,
        .show = roce_show,
};
