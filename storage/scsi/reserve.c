// reserve.c - which commands another port's reservation forbids; RESERVE and RELEASE
// follows: SPC-2, 5.5.1 (reserve/release); SPC-4, 5.13.1 (tables 66 and 67); SBC-3, 4.17
// SPDX-License-Identifier: MIT
#include "scsi/internal.h"

static bool persistent_conflict(const struct sc_task *t, enum sc_access access)
{
	struct sc_lu *lu = t->lu;

	if (!lu->type || access == SC_ALWAYS || access == SC_ALLOWED)
		return false;
	const struct sc_registration *r = sc_registration_of(lu, t->nexus->port);

	if (r && (sc_holds(lu, r) || sc_registrants_only(lu) || sc_all_registrants(lu)))
		return false;
	bool exclusive = lu->type == 3 || lu->type == 6 || lu->type == 8;

	return exclusive || access == SC_WRITES;
}

static bool any_registered(const struct sc_lu *lu)
{
	for (unsigned i = 0; i < SC_REGISTRATIONS; i++)
		if (lu->registrations[i].key)
			return true;
	return false;
}

bool sc_conflicts(const struct sc_task *t)
{
	enum sc_access access = t->row->access;
	bool release = t->row->run == sc_run_release, reserve = t->row->run == sc_run_reserve;

	if (t->row->run == sc_run_start_stop)
		access = t->cdb[4] & 1 ? SC_ALLOWED : SC_WRITES;
	if (release || reserve) /* the two kinds of reservations exclude each other */
		return any_registered(t->lu) || (reserve && t->lu->reserved && t->lu->reserved != t->nexus);
	bool persistent = t->row->opcode == SC_PR_IN || t->row->opcode == SC_PR_OUT;

	if (t->lu->reserved && (persistent || (t->lu->reserved != t->nexus && access != SC_ALWAYS)))
		return true;
	return access != SC_OWN && persistent_conflict(t, access);
}

void sc_run_reserve(struct sc_task *t)
{
	t->lu->reserved = t->nexus;
	sc_good(t);
}

void sc_run_release(struct sc_task *t)
{
	if (t->lu->reserved == t->nexus)
		t->lu->reserved = NULL;
	sc_good(t);
}
