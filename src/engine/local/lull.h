// lull.h - when a polling program looks at a ring to which a stream of records comes
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_LULL_H
#define VB_ENGINE_LOCAL_LULL_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A look at a ring that is empty takes the cache line that the sender writes next. The sender's stores then wait until it
 * has the line back, and the receiver waits for the line again. If the receiver is the faster one, this happens for every
 * second record. So after a look that found few records the ring is left alone for a moment, if that has shown to be
 * faster: from time to time a trial. Programs that send to and fro find one record at a time, and have neither lulls nor
 * trials. All zeros is a valid start. Under progress.
 */
struct vb_lull {
	uint64_t until; /* ns: the ring is not looked at before; 0: it is */
	bool on;        /* there are lulls, outside trials */
	uint8_t stage;
	uint8_t failures;        /* lulls in a row after which there was next to nothing */
	uint32_t looks, records; /* that found records, and what they found, in this stage */
	uint32_t goal;           /* records of this stage; 0: the first one has not begun */
	uint32_t interval;       /* records between two trials */
	uint64_t began, cost;    /* ns: when this stage of a trial began; how long the one before took */
};

#define VB_LULL_FEW 12u /* a look that finds fewer records is followed by a lull */

/* A look has found n records, n > 0. Of a poll for so many completions. */
void vb_lull_look(struct vb_lull *l, unsigned n, unsigned want);
/* There is a lull: has it ended? */
bool vb_lull_ends(struct vb_lull *l);

/* Is the ring to be left alone now? */
static inline bool vb_lull_now(struct vb_lull *l)
{
	return __builtin_expect(l->until != 0, 0) && !vb_lull_ends(l);
}

#endif
