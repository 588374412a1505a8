// outcome.h - what one end saw: its completions, events and state, and what became of its memory
// follows: ibv_poll_cq(3), ibv_get_async_event(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_OUTCOME_H
#define VB_TEST_OUTCOME_H

#include "ends.h"

#define SEEN_MAX 6

struct outcome {
	uint8_t completions, events, state, change;
	bool there; /* the end still exists */
	uint8_t event[SEEN_MAX];
	struct {
		uint64_t id;
		uint32_t byte_len, vendor_err;
		uint8_t status, opcode, flags;
	} wc[SEEN_MAX];
};

/* Waits first_ms for a completion, then until nothing happens for quiet_ms. */
void outcome_observe(struct end *e, unsigned first_ms, unsigned quiet_ms, struct outcome *o);
/* Prints a line of the table, without the name. posted: the result of the post; *sink: NULL if nothing is answered. */
void outcome_print(const char *posted, const struct outcome *asked, const struct outcome *answered, const char *memory,
                   const char *sink);
const char *outcome_errno(int err);
/* Prints the names of all statuses and events, one a line. */
void outcome_print_names(void);

#endif
