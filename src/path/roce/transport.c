// transport.c - RoCE as one of the node's transports
// see: node/transport.h
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <time.h>

#include "core/gid.h"
#include "fault/set.h"
#include "path/path.h"
#include "path/roce/roce.h"
#include "util/log.h"

static int roce_start(struct vb_node *node)
{
	node->io->roce = vb_roce_sockets_new(node);
	return node->io->roce ? 0 : ENOMEM;
}

#define DRAIN_MS 1000

/* Sends what waits for room, and what rules hold, at its time: a network has a packet even if its sender has ended. */
void vb_roce_drain_held(struct vb_roce_sockets *s)
{
	const struct timespec ms = {0, 1000000};

	for (int i = 0; i < DRAIN_MS && s && atomic_load_explicit(&s->up, memory_order_acquire); i++) {
		uint64_t held = 0;

		for (unsigned k = 0; k < VB_TX_COUNT; k++)
			held |= vb_tx_serve_faults(s->tx[k]);
		if (!held)
			return;
		nanosleep(&ms, NULL);
	}
}

static void drain_held(struct vb_node *node)
{
	vb_roce_drain_held(node->io->roce);
}

static void roce_free(struct vb_node *node)
{
	drain_held(node);
	vb_roce_sockets_free(node->io->roce);
	node->io->roce = NULL;
}

static __attribute__((hot)) unsigned roce_poll(struct vb_node *node, bool finish)
{
	(void)finish;
	if (!atomic_load_explicit(&node->io->roce->up, memory_order_relaxed))
		return 0;
	vb_roce_datagrams_poll(node->io->roce);
	return vb_roce_poll(node);
}

static void roce_look(struct vb_node *node)
{
	vb_roce_ask_again(node);
	vb_roce_ring_look(node);
}

static uint64_t earlier_of(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

static uint64_t roce_due(struct vb_node *node)
{
	uint64_t due = earlier_of(vb_roce_forward_due(node), vb_roce_lost_at(node));

	return earlier_of(due, vb_roce_datagrams_due(node->io->roce));
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

void vb_roce_arm_sockets(struct vb_node *node, struct vb_roce_sockets *s)
{
	if (!s ||
	    !atomic_load_explicit(&s->up, memory_order_acquire)) /* senders and receivers start as the rules want */
		return;
	for (unsigned i = 0; i < VB_TX_COUNT; i++)
		vb_tx_arm(s->tx[i], vb_fault_is_armed(VB_FAULT_ARM_ROCE_TX));
	vb_lock(&node->progress);
	vb_roce_rx_arm(s->rx, vb_fault_is_armed(VB_FAULT_ARM_ROCE_RX));
	vb_unlock(&node->progress);
}

uint64_t vb_roce_serve_faults_of(struct vb_node *node, struct vb_roce_sockets *s)
{
	uint64_t at = 0;

	if (!s || !atomic_load_explicit(&s->up, memory_order_acquire))
		return 0;
	for (unsigned i = 0; i < VB_TX_COUNT; i++)
		at = earlier_of(at, vb_tx_serve_faults(s->tx[i]));
	vb_lock(&node->progress);
	at = earlier_of(at, vb_roce_rx_serve_faults(node, s->rx));
	vb_unlock(&node->progress);
	if (!at && (!vb_fault_is_armed(VB_FAULT_ARM_ROCE_TX) || !vb_fault_is_armed(VB_FAULT_ARM_ROCE_RX)))
		vb_roce_arm_sockets(node, s); /* nothing is held any more */
	return at;
}

static void roce_arm(struct vb_node *node)
{
	vb_roce_arm_sockets(node, node->io->roce);
}

static uint64_t roce_serve_faults(struct vb_node *node)
{
	return vb_roce_serve_faults_of(node, node->io->roce);
}

const struct vb_transport_ops vb_roce_transport = {
        .start = roce_start,
        .free = roce_free,
        .in_child = vb_roce_in_child,
        .poll = roce_poll,
        .watch = vb_roce_watch,
        .due = roce_due,
        .look = roce_look,
        .last_wait = drain_held,
        .log_counters = roce_log_counters,
        .show = roce_show,
        .arm = roce_arm,
        .serve_faults = roce_serve_faults,
};
