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
	for (struct sc_nexus *n = t->nexuses; n; n = n->next)
		n->attention[number] = 1u << SC_UA_POWER_ON;
	lu->backend = b;
	lu->number = (uint16_t)number;
	lu->id = 3ull << 60 |
	         (hash_text(b->identity ? b->identity : seed) & ~(15ull << 60)); /* NAA 3h: locally assigned */
	t->lus[number] = lu;
	return 0;
}

static void free_lu(struct sc_lu *lu)
{
	nb_close(lu->backend);
	free(lu->kept);
	free(lu);
}

void sc_lu_remove(struct sc_lu *lu)
{
	struct sc_target *t = lu->target;

	t->lus[lu->number] = NULL; /* so that no more tasks come */
	lu->next = t->removed;
	t->removed = lu;
	sc_fail_waiting(lu, SC_S_LUN);
}

void sc_target_sweep(struct sc_target *t)
{
	for (struct sc_lu **at = &t->removed; *at;) {
		struct sc_lu *lu = *at;

		if (lu->first) {
			at = &lu->next;
			continue;
		}
		*at = lu->next;
		free_lu(lu);
	}
}

int sc_lu_resize(struct sc_lu *lu, bool *changed)
{
	uint64_t before = lu->backend->size;
	int error = nb_resize(lu->backend, 0);

	*changed = !error && lu->backend->size != before;
	if (*changed)
		sc_attention_set(lu, NULL, SC_UA_CAPACITY);
	return error;
}

void sc_luns_changed(struct sc_target *t)
{
	for (unsigned i = 0; i < SC_LUNS; i++)
		if (t->lus[i])
			sc_attention_set(t->lus[i], NULL, SC_UA_LUNS);
}

void sc_target_close(struct sc_target *t)
{
	for (unsigned i = 0; i < SC_LUNS; i++)
		if (t->lus[i])
			free_lu(t->lus[i]);
	memset(t->lus, 0, sizeof(t->lus));
	sc_target_sweep(t);
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
