// pace.c - chooses how large RDMA operations travel: by one copy of the requester, or in the ring, copied by both ends
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "engine/local/pace.h"

#include <string.h>

#include "core/node.h"
#include "engine/local/choice.h"
#include "util/log.h"

#define FIRST_INTERVAL 16u /* operations before the first trial: a program that sends few is not worth one */
#define INTERVAL_MIN 1024u /* from one trial to the next; doubles while the choice stays, up to INTERVAL_MAX */
#define INTERVAL_MAX 65536u
#define TRIAL 24u /* operations by each way in a trial */
#define UNSEEN 8u /* the first ones, which may have to wake the peer's thread, are not measured */

enum stage { STEADY, TRY_RING, TRY_COPY };

enum vb_forced vb_pace_forced(void)
{
	static _Atomic int known;

	return vb_forced_way("VERBENA_RDMA", "copy", &known);
}

enum vb_rdma_way vb_pace_way(const struct vb_pace *p)
{
	switch (vb_pace_forced()) {
	case VB_FORCE_RING:
		return VB_RDMA_RING;
	case VB_FORCE_COPY:
		return VB_RDMA_COPY;
	case VB_FORCE_RANDOM:
		return (p->sent * 2654435761u) >> 31 ? VB_RDMA_RING : VB_RDMA_COPY;
	case VB_LEARN:
		break;
	}
	if (p->stage == STEADY)
		return (enum vb_rdma_way)p->way;
	return p->stage == TRY_RING ? VB_RDMA_RING : VB_RDMA_COPY;
}

static void enter(struct vb_pace *p, enum stage stage)
{
	p->stage = (uint8_t)stage;
	p->sent = 0;
}

/* Ends a trial: the next one begins after so many operations. */
static void wait_for_trial(struct vb_pace *p, uint32_t interval)
{
	p->interval = interval < INTERVAL_MAX ? interval : INTERVAL_MAX;
	memset(p->seen, 0, sizeof(p->seen));
	enter(p, STEADY);
}

uint64_t vb_pace_sent(struct vb_pace *p)
{
	uint32_t n = ++p->sent;

	if (vb_pace_forced() != VB_LEARN)
		return 0;
	if (p->stage == STEADY) {
		if (n >= (p->interval ? p->interval : FIRST_INTERVAL))
			enter(p, TRY_RING);
		return 0;
	}
	if (p->stage == TRY_RING && n == TRIAL)
		enter(p, TRY_COPY);
	return n > UNSEEN ? vb_now() : 0;
}

/* ns per 64 KiB; 0: nothing was measured. */
static uint64_t cost(const struct vb_pace *p, enum vb_rdma_way way)
{
	return p->seen[way].bytes ? p->seen[way].ns * 65536 / p->seen[way].bytes : 0;
}

static void end_trial(struct vb_pace *p)
{
	uint64_t ring = cost(p, VB_RDMA_RING), copy = cost(p, VB_RDMA_COPY);
	bool better = p->way == VB_RDMA_COPY ? ring * 5 < copy * 4 : copy * 5 < ring * 4;

	if (better && ring && copy) {
		p->way = p->way == VB_RDMA_COPY ? VB_RDMA_RING : VB_RDMA_COPY;
		vb_log(VB_LOG_INFO, "large RDMA operations: %s now; ns per 64 KiB: %u in the ring, %u by one copy",
		       p->way == VB_RDMA_RING ? "in the ring" : "by one copy", (unsigned)ring, (unsigned)copy);
		wait_for_trial(p, INTERVAL_MIN);
	} else {
		wait_for_trial(p, p->interval ? p->interval * 2 : INTERVAL_MIN);
	}
}

/* Operations overlap, so one lasts from the completion before it, if that was later than its own begin. A copy starts
 * when all that is in the ring has completed, so the last copy ends the trial. */
void vb_pace_done(struct vb_pace *p, enum vb_rdma_way way, uint64_t begun, uint32_t bytes)
{
	if (begun) {
		uint64_t now = vb_now();

		if (p->seen[way].begun) {
			p->seen[way].ns += now - (begun > p->done_at ? begun : p->done_at);
			p->seen[way].bytes += bytes;
		}
		p->seen[way].begun = true;
		p->done_at = now;
	}
	if (way == VB_RDMA_COPY && p->stage == TRY_COPY && p->sent == TRIAL)
		end_trial(p);
}

void vb_pace_failed(struct vb_pace *p)
{
	p->way = VB_RDMA_COPY;
	wait_for_trial(p, p->interval ? p->interval * 4 : INTERVAL_MIN);
}
