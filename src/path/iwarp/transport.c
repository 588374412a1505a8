// transport.c - iWARP as one of the node's transports
// see: node/transport.h
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

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

	for (struct vb_iwarp_path *path = node ? node->io->iwarp->paths : NULL; path; path = path->next) {
#define X(name, text) sum.name += path->q.stats.name;
		VB_IW_COUNTERS(X)
#undef X
	}
#define X(name, text) \
	if (sum.name) \
		vb_log(VB_LOG_DEBUG, "iWARP: %s: %lu", text, sum.name);
	VB_IW_COUNTERS(X)
#undef X
}

static bool iwarp_show(const struct vb_qp *qp, struct vb_counts *c, char *peer, size_t size)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} to;
	socklen_t len = sizeof(to);

	if (!qp->iwarp)
		return false;
	vb_iwarp_path_counts(qp->iwarp, c);
	if (!peer)
		return true;
	if (getpeername(qp->iwarp->fd, &to.sa, &len) ||
	    !inet_ntop(to.sa.sa_family,
	               to.sa.sa_family == AF_INET ? (void *)&to.in.sin_addr : (void *)&to.in6.sin6_addr, peer,
	               (socklen_t)size))
		peer[0] = '\0';
	return true;
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
        .show = iwarp_show,
        .arm = vb_iwarp_arm,
        .serve_faults = vb_iwarp_serve_faults,
};
