// yield.c - a program that polls in vain gives way to others that want its core
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "node/yield.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "node/io.h"
#include "util/units.h"

/* A poller calls sched_yield after YIELD_MIN to YIELD_MAX consecutive empty polls, because the program that it waits
 * for may need this core: rarely if no thread took the core at the last yield, often if one did. */
#define YIELD_MAX 2048u
#define YIELD_MIN 16u
#define YIELD_TAKEN VB_US(3) /* ns: during a yield of this length another thread ran */
/* If a poller waits for another host, a yield may give the core to an unrelated program for a whole time slice. After
 * that the poller does not yield for the same time, at most YIELD_HOLD (ns). Otherwise it would run for only
 * microseconds per slice beside a busy program. */
#define YIELD_HOLD VB_MS(4)
/* A poller whose core other threads want sleeps for a moment once per NAP_EVERY (ns), because sched_yield alone can
 * starve a thread that does not yield: Linux 6.18 let eight programs that poll and yield keep the broker from their
 * cores for 13 s. Each nap in vain is twice as long as the one before it, up to NAP_MAX (ns), so that many pollers in
 * vain leave the cores to their neighbours. */
#define NAP_EVERY VB_MS(10)
#define NAP_MIN VB_US(1)
#define NAP_MAX VB_MS(1)
#define NAP_SPACING VB_US(50) /* ns: the shortest time of polling between two naps */

/* The core is wanted by other threads. Returns true if the caller has slept instead of yielding. */
static bool nap_sometimes(struct vb_node *node, uint64_t now)
{
	uint64_t after = atomic_load_explicit(&node->nap_after, memory_order_relaxed);

	/* one thread of the program at a time */
	if (now < after || !atomic_compare_exchange_strong(&node->nap_after, &after, now + NAP_MAX))
		return false;

	uint32_t naps = atomic_load_explicit(&node->naps, memory_order_relaxed);
	uint64_t length = naps < 10 ? NAP_MIN << naps : NAP_MAX;
	uint64_t wait = naps < 4 ? NAP_EVERY >> naps : NAP_SPACING;

	/* no cancellation point, and errno is the program's */
	int saved = errno;
	syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = (long)length}, NULL);
	errno = saved;
	atomic_store_explicit(&node->naps, naps + 1, memory_order_relaxed);
	atomic_store_explicit(&node->nap_after, vb_now() + wait, memory_order_relaxed);
	return true;
}

/* Have completions come without this program's polls? They do with the post of a request that is executed by one copy,
 * and from the progress thread if the program waits for events and then polls until the queue is empty. */
static bool is_fed(const struct vb_cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_relaxed) !=
	       atomic_load_explicit(&cq->seen, memory_order_relaxed);
}

bool vb_yield(struct vb_node *node, struct vb_cq *cq, uint32_t polls)
{
	if (cq && polls < VB_YIELD_NOW && is_fed(cq)) {
		vb_yield_not(node, cq);
		return false;
	}
	uint64_t before = vb_now();
	uint32_t every = atomic_load_explicit(&node->yield_every, memory_order_relaxed);

	atomic_store_explicit(&node->empty_polls, 0, memory_order_relaxed);
	if (before < atomic_load_explicit(&node->yield_after, memory_order_relaxed))
		return false;
	if (atomic_load_explicit(&node->crowded, memory_order_relaxed) && nap_sometimes(node, before))
		return true;
	sched_yield();
	uint64_t taken = vb_now() - before;

	atomic_store_explicit(&node->crowded, taken > YIELD_TAKEN, memory_order_relaxed);
	if (taken > YIELD_TAKEN)
		every = YIELD_MIN;
	else if (every < YIELD_MAX)
		every *= 2;
	if (vb_awaits_network(node->io))
		atomic_store_explicit(&node->yield_after, before + taken + (taken < YIELD_HOLD ? taken : YIELD_HOLD),
		                      memory_order_relaxed);
	atomic_store_explicit(&node->yield_every, every, memory_order_relaxed);
	return true;
}
