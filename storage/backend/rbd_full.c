// rbd_full.c - writes for which the pool has no space: they wait outside librbd, and go to it again
// follows: docs/ceph.md; the interface of librbd in Ceph 16
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "backend/rbd.h"

#define TRY_MS 500       /* one of them is tried so often; a pool that has space again lets all go */
#define QUIET_MS 60000   /* after so long without a refusal, the next one is said again */
#define ASIDE (4u << 20) /* bytes that wait so that others get a place; more would take the target's memory from all */

/* The cluster has an error of its own for a quota. */
bool nb_rbd_is_full(int error)
{
	return error == ENOSPC || error == EDQUOT;
}

static bool few_wait(const struct nb_rbd *d)
{
	uint64_t bytes = 0;

	for (const struct nb_request *u = d->unfit; u; u = u->next)
		bytes += u->op == NB_WRITE || u->op == NB_COMPARE_WRITE ? u->length : 0;
	return bytes < ASIDE;
}

static void put_unfit(struct nb_rbd *d, struct nb_request *r, uint64_t due)
{
	struct nb_request **at = &d->unfit;

	while (*at && (*at)->moved <= due) /* in the order of their deadlines */
		at = &(*at)->next;
	r->moved = due;
	r->next = *at;
	*at = r;
	if (r->aside && few_wait(d))
		r->aside(r);
}

/* A host may have given up the one that waits, and sent it by another connection. What that host writes next to the same
 * blocks must not be overwritten by it. */
bool nb_rbd_unfit_before(struct nb_rbd *d, struct nb_request *r, uint64_t due)
{
	const struct nb_request *u = r->op == NB_READ ? NULL : d->unfit;

	while (u && (u->offset >= r->offset + r->length || r->offset >= u->offset + u->length))
		u = u->next;
	if (u)
		put_unfit(d, r, due);
	return u;
}

void nb_rbd_unfit(struct nb_rbd *d, struct nb_request *r, uint64_t due, uint64_t now)
{
	bool news = !d->refused || now - d->refused >= QUIET_MS;

	put_unfit(d, r, due);
	if (news)
		d->try_at = now + TRY_MS;
	d->refused = now;
	if (news && d->b.changed)
		d->b.changed(&d->b, NB_FULL);
}

static struct nb_request *take_first(struct nb_rbd *d)
{
	struct nb_request *r = d->unfit;

	d->unfit = r->next;
	return r;
}

void nb_rbd_unfit_again(struct nb_rbd *d)
{
	struct nb_request *first = d->unfit;

	d->unfit = NULL;
	while (first) {
		struct nb_request *r = first;

		first = r->next;
		nb_rbd_start(d, r, r->moved, true);
	}
}

void nb_rbd_fits(struct nb_rbd *d)
{
	d->refused = 0;
	nb_rbd_unfit_again(d);
}

void nb_rbd_unfit_end(struct nb_rbd *d)
{
	while (d->unfit) {
		struct nb_request *r = take_first(d);

		r->done(r, NB_FENCED);
	}
}

uint64_t nb_rbd_unfit_turn(struct nb_rbd *d, uint64_t now)
{
	while (d->unfit && d->unfit->moved <= now) {
		struct nb_request *r = take_first(d);

		d->b.late++;
		r->done(r, NB_LATE);
	}
	if (d->unfit && d->try_at <= now) {
		struct nb_request *r = take_first(d);

		d->try_at = now + TRY_MS;
		nb_rbd_start(d, r, r->moved, true);
	}
	if (!d->unfit)
		return UINT64_MAX;
	return d->unfit->moved < d->try_at ? d->unfit->moved : d->try_at;
}
