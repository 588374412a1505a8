// walk.c - a look at what node->progress guards, in the middle of a program's traffic
// see: docs/locking.md
// SPDX-License-Identifier: MIT
#include "node/walk.h"

#include <sched.h>
#include <time.h>

#include "node/io.h"
#include "util/timespec.h"
#include "util/units.h"

#define PAUSE VB_US(50) /* ns: between two looks whether the polling thread has made the call */
#define PAUSES 40

struct vb_walk {
	void (*fn)(struct vb_node *node, void *arg);
	void *arg;
	atomic_bool done;
};

/* True if the polling thread has made the call. */
static bool was_polled(struct vb_node *node, struct vb_walk *walk)
{
	const struct timespec ts = vb_timespec_of(PAUSE);

	atomic_store(&node->io->walk, walk);
	atomic_fetch_or(&node->attention, VB_ATTEND_WALK);
	for (int i = 0; i < PAUSES && !atomic_load(&walk->done); i++)
		nanosleep(&ts, NULL);
	if (atomic_exchange(&node->io->walk, NULL))
		return false;
	while (!atomic_load(&walk->done)) /* it is in the middle of the call */
		sched_yield();
	return true;
}

void vb_walk(struct vb_node *node, void (*fn)(struct vb_node *node, void *arg), void *arg)
{
	struct vb_walk walk = {.fn = fn, .arg = arg};

	VB_MAY_WAIT();
	bool polling = atomic_load(&node->owner) == VB_OWNER_POLLER;

	if (polling && was_polled(node, &walk))
		return;
	vb_lock(&node->progress);
	if (polling && atomic_load(&node->owner) == VB_OWNER_POLLER)
		vb_thread_takes_over(node); /* it polls no more; the next walks do not wait for it */
	atomic_fetch_and(&node->attention, (uint8_t)~VB_ATTEND_WALK);
	fn(node, arg);
	vb_unlock(&node->progress);
}

void vb_walk_now(struct vb_node *node)
{
	atomic_fetch_and(&node->attention, (uint8_t)~VB_ATTEND_WALK);
	struct vb_walk *walk = atomic_exchange(&node->io->walk, NULL);

	if (!walk)
		return;
	walk->fn(node, walk->arg);
	atomic_store(&walk->done, true);
}
