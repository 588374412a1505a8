// units.h - the logical units of verbena-srp-target: images that are added and removed, also while it runs
// SPDX-License-Identifier: MIT
#ifndef SP_UNITS_H
#define SP_UNITS_H

#include "backend/ring.h"
#include "srp/channel.h"

#define SP_WHY 200

/* How images become units. */
struct sp_units {
	struct sp_target *target;
	struct nb_ring *ring;
	const char *state; /* where persistent reservations are kept, or NULL */
	uint32_t block;
	bool readonly, mapped, buffered;
	char *names[SC_LUNS]; /* of the images; owned */
};

bool sp_unit_add(struct sp_units *u, unsigned lun, const char *image, char why[SP_WHY]);
/* Answers list, add, remove and resize; malloc'd. NULL: no memory */
char *sp_units_answer(struct sp_units *u, char *line);
void sp_units_free(struct sp_units *u);

#endif
