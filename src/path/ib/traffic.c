// traffic.c - tells the fabric process what the ways have carried, for the counters of the ports
// follows: IBA volume 1, 16.1.3.5 (PortCounters); docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "path/ib/ib.h"

#include <errno.h>
#include <stdlib.h>

#include "engine/local/local.h"
#include "util/units.h"

#define PAUSE VB_MS(100) /* ns: between two reports */

/* --- of queue pairs --- */

struct vb_ib_tally *vb_ib_tally_new(struct vb_ib_host *host, struct vb_ib_way *way)
{
	struct vb_lock *lock = &host->node->io->questions_lock;
	struct vb_ib_tally *made = calloc(1, sizeof(*made)), *t = made;

	vb_lock(lock);
	if (host->spare_tallies) {
		t = host->spare_tallies;
		host->spare_tallies = t->next;
	}
	if (t) {
		t->way = way;
		atomic_store(&t->retired, false);
		t->next = host->tallies;
		host->tallies = t;
	}
	vb_unlock(lock);
	if (made != t)
		free(made);
	return t;
}

/* Gives the way what a counter has grown by. */
static void give(_Atomic uint64_t from[2], uint64_t seen[2], _Atomic uint64_t to[2])
{
	for (int i = 0; i < 2; i++) {
		uint64_t now = atomic_load_explicit(&from[i], memory_order_relaxed);

		if (now != seen[i])
			atomic_fetch_add_explicit(&to[i], now - seen[i], memory_order_relaxed);
		seen[i] = now;
	}
}

static void collect(struct vb_ib_host *host)
{
	struct vb_lock *lock = &host->node->io->questions_lock;

	vb_lock(lock);
	for (struct vb_ib_tally **at = &host->tallies, *t; (t = *at);) {
		bool retired = atomic_load(&t->retired); /* before the counters are read */

		give(t->packets, t->seen_packets, t->way->packets);
		give(t->bytes, t->seen_bytes, t->way->bytes);
		if (!retired) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		t->next = host->spare_tallies;
		host->spare_tallies = t;
	}
	vb_unlock(lock);
}

static void free_tallies(struct vb_ib_tally *t)
{
	while (t) {
		struct vb_ib_tally *next = t->next;

		free(t);
		t = next;
	}
}

void vb_ib_traffic_free(struct vb_ib_host *host)
{
	free_tallies(host->tallies);
	free_tallies(host->spare_tallies);
}

/* --- of ways --- */

static bool take_told(struct vb_ib_way *w, struct vb_fabric_told *told)
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

static void take_back(struct vb_ib_host *host, const struct vb_fabric_told *told)
{
	struct vb_ib_way *w = host->by_tag[told->tag];

	for (int i = 0; i < 2; i++) {
		atomic_fetch_add_explicit(&w->packets[i], told->packets[i], memory_order_relaxed);
		atomic_fetch_add_explicit(&w->bytes[i], told->bytes[i], memory_order_relaxed);
	}
}

/* What does not fit in the socket is told next time: the fabric process is stopped, or slow. */
static void tell(struct vb_ib_host *host, struct vb_fabric_traffic *t)
{
	size_t len = offsetof(struct vb_fabric_traffic, told) + t->count * sizeof(t->told[0]);
	int err = 0;

	t->verb = VB_FABRIC_TRAFFIC;
	if (t->count && host->alive)
		err = vb_fabric_try(host->watch.fd, &(struct iovec){t, len}, 1, -1);
	for (uint32_t i = 0; (err == EAGAIN || err == EINTR) && i < t->count; i++)
		take_back(host, &t->told[i]);
	t->count = 0;
}

static uint32_t tags_of(struct vb_ib_host *host)
{
	vb_lock(&host->node->io->questions_lock);
	uint32_t tags = host->tags;
	vb_unlock(&host->node->io->questions_lock);
	return tags;
}

bool vb_ib_traffic_tell(struct vb_ib_host *host)
{
	struct vb_fabric_traffic t = {.count = 0};
	uint32_t tags = tags_of(host);
	bool any = false;

	collect(host);
	for (uint32_t i = 0; i < tags; i++) {
		if (!take_told(host->by_tag[i], &t.told[t.count]))
			continue;
		any = true;
		if (++t.count == VB_FABRIC_TOLD)
			tell(host, &t);
	}
	tell(host, &t);
	return any;
}

/* A message that is counted at this moment may not see yet that it has to wake this thread. So there is one more look after
 * traffic_rests was set. */
void vb_ib_traffic_look(struct vb_ib_host *host)
{
	atomic_bool *rests = &host->node->traffic_rests;
	uint64_t now = vb_now();

	if (now < host->report_at)
		return;
	host->report_at = now + PAUSE;
	vb_mutex_lock(&host->node->io->meet_lock, VB_RANK_MEETING);
	bool any = vb_ib_traffic_tell(host);
	vb_mutex_unlock(&host->node->io->meet_lock);
	host->rests = atomic_exchange(rests, !any) && !any;
}

uint64_t vb_ib_traffic_due(const struct vb_ib_host *host)
{
	return host->rests && atomic_load(&host->node->traffic_rests) ? 0 : host->report_at;
}
