// target.c - the target device: its logical units and nexuses
// follows: SAM-5, 4.5 to 4.8; SPC-4, 7.8.6.5 (NAA)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "scsi/internal.h"

/* FNV-1a: the same for the same text, on every host */
static uint64_t hash_text(const char *text)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *text; text++)
		h = (h ^ (uint8_t)*text) * 0x100000001b3ull;
	return h;
}

int sc_lu_add(struct sc_target *t, unsigned number, struct nb_backend *b, const char *seed)
{
	if (number >= SC_LUNS || t->lus[number])
		return EINVAL;
	struct sc_lu *lu = calloc(1, sizeof(*lu));

	if (!lu)
		return ENOMEM;
	lu->target = t;
	lu->backend = b;
	lu->number = (uint16_t)number;
	lu->id = 3ull << 60 |
	         (hash_text(b->identity ? b->identity : seed) & ~(15ull << 60)); /* NAA 3h: locally assigned */
	t->lus[number] = lu;
	return 0;
}

void sc_target_close(struct sc_target *t)
{
	for (unsigned i = 0; i < SC_LUNS; i++) {
		if (!t->lus[i])
			continue;
		nb_close(t->lus[i]->backend);
		free(t->lus[i]->kept);
		free(t->lus[i]);
		t->lus[i] = NULL;
	}
}

void sc_nexus_open(struct sc_target *t, struct sc_nexus *n)
{
	n->target = t;
	n->next = t->nexuses;
	t->nexuses = n;
	for (unsigned i = 0; i < SC_LUNS; i++)
		n->attention[i] = 1u << SC_UA_POWER_ON;
}

void sc_nexus_close(struct sc_nexus *n)
{
	struct sc_nexus **at = &n->target->nexuses;

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	for (unsigned i = 0; i < SC_LUNS; i++) /* SAM-5, 6.3.4: I_T nexus loss */
		if (n->target->lus[i] && n->target->lus[i]->reserved == n)
			n->target->lus[i]->reserved = NULL;
}
