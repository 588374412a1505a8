// lull.c - when a polling program looks at a ring to which a stream of records comes
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include "engine/local/lull.h"

#include "core/node.h"
#include "util/log.h"
#include "util/units.h"

#define LULL VB_US(2)      /* ns: as long as the sender needs for some dozens of records */
#define INTERVAL_MIN 4096u /* records from one trial to the next; doubles while the choice stays, up to INTERVAL_MAX */
#define INTERVAL_MAX (1u << 20)
#define TRIAL 2048u             /* records with lulls, and without, in a trial */
#define LIVELY (TRIAL * 500ull) /* ns: if these records take longer, the sender is slow, or was interrupted */
#define FAILURES 8u

enum stage { STEADY, AS_BEFORE, OTHERWISE };

static void enter(struct vb_lull *l, enum stage stage, uint32_t goal)
{
	l->stage = (uint8_t)stage;
	l->goal = goal;
	l->looks = l->records = 0;
}

static void wait_for_trial(struct vb_lull *l, uint32_t interval)
{
	l->interval = interval < INTERVAL_MAX ? interval : INTERVAL_MAX;
	enter(l, STEADY, l->interval);
}

static void end_trial(struct vb_lull *l, uint64_t other)
{
	if (other * 10 >= l->cost * 9) {
		wait_for_trial(l, l->interval * 2);
		return;
	}
	l->on = !l->on;
	l->failures = 0;
	vb_log(VB_LOG_INFO, "a stream of records: %s now; ns per record: %u instead of %u",
	       l->on ? "looked at from time to time" : "looked at by each poll", (unsigned)(other / TRIAL),
	       (unsigned)(l->cost / TRIAL));
	wait_for_trial(l, INTERVAL_MIN);
}

static __attribute__((noinline)) void end_stage(struct vb_lull *l)
{
	uint64_t now;

	switch (l->stage) {
	case STEADY:
		if (!l->goal) {
			wait_for_trial(l, INTERVAL_MIN);
		} else if (!l->on && l->records < l->looks + l->looks / 2) {
			enter(l, STEADY, l->interval); /* to and fro, or slower than the polls */
		} else {
			enter(l, AS_BEFORE, TRIAL);
			l->began = vb_now();
		}
		break;
	case AS_BEFORE:
		now = vb_now();
		l->cost = now - l->began;
		l->began = now;
		if (l->cost > LIVELY)
			wait_for_trial(l, l->interval * 2);
		else
			enter(l, OTHERWISE, TRIAL);
		break;
	default:
		end_trial(l, vb_now() - l->began);
	}
}

/* Did the last lull bring anything? If lulls go on in vain, the stream has ended. */
static void judge(struct vb_lull *l, unsigned n)
{
	l->failures = n > 2 ? 0 : l->failures + 1;
	if (l->failures < FAILURES || !l->on)
		return;
	l->on = false;
	wait_for_trial(l, INTERVAL_MIN);
}

void vb_lull_look(struct vb_lull *l, unsigned n, unsigned want)
{
	l->looks++;
	l->records += n;
	if (__builtin_expect(l->records >= l->goal, 0))
		end_stage(l);
	if (__builtin_expect(l->on == (l->stage == OTHERWISE), 1))
		return;
	judge(l, n);
	if (n < want && n < VB_LULL_FEW)
		l->until = vb_now() + LULL;
}

bool vb_lull_ends(struct vb_lull *l)
{
	if (vb_now() < l->until)
		return false;
	l->until = 0;
	return true;
}
