// transport.c - iWARP as one of the node's transports
// see: node/transport.h
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "path/path.h"
#include "path/iwarp/path.h"
#include "util/log.h"

static int iwarp_start(struct vb_node *node)
{
	return vb_iwarp_host_new(node) ? 0 : ENOMEM;
}

static uint64_t iwarp_due(struct vb_node *node)
{
	uint64_t streams = vb_iwarp_due(node), tails = vb_iwarp_tails_at();

	return tails && (tails < streams || !streams) ? tails : streams;
}

static void iwarp_look(struct vb_node *node)
{
	vb_iwarp_tails(node);
	vb_iwarp_trim(node);
}

static void iwarp_log_counters(struct vb_node *node)
{
	struct vb_iw_stats sum = vb_iw_totals;

	for (struct vb_iwarp_path *w = node ? node->io->iwarp->paths : NULL; w; w = w->next) {
#define X(name, text) sum.name += w->q.stats.name;
		VB_IW_COUNTERS(X)
#undef X
	}
#define X(name, text) \
	if (sum.name) \
		vb_log(VB_LOG_DEBUG, "iWARP: %s: %lu", text, sum.name);
	VB_IW_COUNTERS(X)
#undef X
}

const struct vb_transport_ops vb_iwarp_transport = {
        .start = iwarp_start,
        .free = vb_iwarp_host_free,
        .in_child = vb_iwarp_in_child,
        .poll = vb_iwarp_poll,
        .watch = vb_iwarp_watch,
        .release = vb_iwarp_release_all,
        .due = iwarp_due,
        .look = iwarp_look,
        .last_words = vb_iwarp_last_words,
        .last_wait = vb_iwarp_tails_wait,
        .last_ends = vb_iwarp_last_ends,
        .log_counters = iwarp_log_counters,
        .arm = vb_iwarp_arm,
        .serve_faults = vb_iwarp_serve_faults,
};
