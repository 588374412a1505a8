// traffic.c - tells the fabric process what the ways have carried, for the counters of the ports
// follows: IBA volume 1, 16.1.3.5 (PortCounters); docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "path/ib/ib.h"

#include "core/qp.h"
#include "util/units.h"

#define PAUSE VB_MS(100) /* ns: between two reports */

static void move(uint64_t from[2], _Atomic uint64_t to[2])
{
	for (int i = 0; i < 2; i++) {
		if (from[i])
			atomic_fetch_add_explicit(&to[i], from[i], memory_order_relaxed);
		from[i] = 0;
	}
}

void vb_ib_traffic_fold(struct vb_qp *qp)
{
	if (!qp->local.way)
		return;
	move(qp->local.way_packets, qp->local.way->packets);
	move(qp->local.way_bytes, qp->local.way->bytes);
}

static bool take(struct vb_ib_way *w, struct vb_fabric_told *told)
{
	*told = (struct vb_fabric_told){.tag = w->tag};
	if (!atomic_load_explicit(&w->packets[0], memory_order_relaxed) &&
	    !atomic_load_explicit(&w->packets[1], memory_order_relaxed))
		return false;
	for (int i = 0; i < 2; i++) {
		told->packets[i] = atomic_exchange_explicit(&w->packets[i], 0, memory_order_relaxed);
		told->bytes[i] = atomic_exchange_explicit(&w->bytes[i], 0, memory_order_relaxed);
	}
	return true;
}

/* A report that does not fit in the socket is lost: the fabric process is stopped, or slow. */
static void tell(struct vb_ib_host *host, struct vb_fabric_traffic *t)
{
	size_t len = offsetof(struct vb_fabric_traffic, told) + t->count * sizeof(t->told[0]);

	t->verb = VB_FABRIC_TRAFFIC;
	if (t->count && host->watch.fd >= 0)
		vb_fabric_try(host->watch.fd, &(struct iovec){t, len}, 1, -1);
	t->count = 0;
}

void vb_ib_traffic_of_way(struct vb_ib_host *host, struct vb_ib_way *w)
{
	struct vb_fabric_traffic t;

	t.count = take(w, &t.told[0]);
	tell(host, &t);
}

static void fold(struct vb_qp *qp, void *arg)
{
	vb_ib_traffic_fold(qp);
}

static uint32_t tags_of(struct vb_ib_host *host)
{
	vb_lock(&host->node->io->questions_lock);
	uint32_t tags = host->tags;
	vb_unlock(&host->node->io->questions_lock);
	return tags;
}

bool vb_ib_traffic_tell(struct vb_ib_host *host, bool qps)
{
	struct vb_fabric_traffic t = {.count = 0};
	uint32_t tags = tags_of(host);
	bool any = false;

	if (qps && tags) {
		vb_lock(&host->node->progress);
		vb_node_each_qp(host->node, fold, NULL);
		vb_unlock(&host->node->progress);
	}
	for (uint32_t i = 0; i < tags; i++) {
		if (!take(host->by_tag[i], &t.told[t.count]))
			continue;
		any = true;
		if (++t.count == VB_FABRIC_TOLD)
			tell(host, &t);
	}
	tell(host, &t);
	return any;
}

void vb_ib_traffic_look(struct vb_ib_host *host)
{
	uint64_t now = vb_now();

	if (now < host->report_at)
		return;
	host->report_at = now + PAUSE;
	atomic_store(&host->report_due, vb_ib_traffic_tell(host, true) ? host->report_at : 0);
}
