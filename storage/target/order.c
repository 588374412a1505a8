// order.c - the order of writes to a namespace: they run together, a fused pair runs alone
// follows: NVM Express Base 1.4, 6.2 (fused operations)
// SPDX-License-Identifier: MIT
#include "target/core.h"

/* Starts waiting writes in order: writers together, a fused pair alone. Does nothing if called from within itself. */
void nt_waiting_go(struct nt_namespace *ns)
{
	if (ns->pumping)
		return;
	ns->pumping = true;
	ns->users++; /* keeps the namespace: the last writer of a removed one may end here */
	while (ns->waiting && !ns->fused && (!ns->waiting->fused || !ns->writers)) {
		struct nt_request *r = ns->waiting;

		ns->waiting = r->next;
		r->next = NULL;
		if (r->fused) {
			ns->fused = r->fused;
			r->fused->writing = true;
		} else {
			ns->writers++;
			r->writing = true;
		}
		nt_turn(r);
	}
	ns->pumping = false;
	nt_ns_put(ns);
}

void nt_write_turn(struct nt_request *r)
{
	struct nt_namespace *ns = r->ns;
	struct nt_request **at = &ns->waiting;

	nt_hold(r);
	while (*at)
		at = &(*at)->next;
	r->next = NULL;
	*at = r;
	nt_waiting_go(ns);
}

void nt_write_done(struct nt_request *r)
{
	struct nt_namespace *ns = r->ns;

	r->writing = false;
	if (ns->fused == r)
		ns->fused = NULL;
	else
		ns->writers--;
	if (ns->waiting)
		nt_waiting_go(ns);
}

void nt_waiting_remove(struct nt_request *r)
{
	struct nt_request **at = &r->ns->waiting;

	while (*at && *at != r)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = r->next;
	r->fused = NULL;
}
