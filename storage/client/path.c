// path.c - the paths to a disk: which one is used for commands, and what is said of them
// follows: NVM Express Base 1.4, 8.20 (asymmetric namespace access)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "client/client.h"

#define SICK_MS 5000u  /* a path that could not execute a command is used again only then, if there is another */
#define ANATT_S 10u    /* if the target does not say how long a change takes */
#define PATHS_STATUS 3 /* the type of status codes that are about the path. Base 1.4, 4.6.1 */

/* ---- choosing ---- */

/* 0: it is not usable. With one path the commands themselves find out whether the namespace is accessible. */
static unsigned rank_of(const struct vn_path *p, uint64_t now)
{
	bool sick = p->sick > now;

	if (!p->up)
		return 0;
	if (!vn_several(p->disk))
		return 1;
	switch (p->access) {
	case NV_ANA_OPTIMIZED:
		return sick ? 2 : 4;
	case NV_ANA_NON_OPTIMIZED:
		return sick ? 1 : 3;
	default:
		return 0;
	}
}

/* A path, if all of them say that the namespace is lost for good. */
static struct vn_path *lost_for_good(struct vn_disk *d)
{
	struct vn_path *first = NULL;

	for (unsigned i = 0; i < d->n_paths; i++) {
		struct vn_path *p = &d->paths[i];

		if (p->parked)
			continue;
		if (!p->up || p->access != NV_ANA_LOSS)
			return NULL;
		first = first ? first : p;
	}
	return first;
}

void vn_choose(struct vn_disk *d)
{
	uint64_t now = vn_now();
	struct vn_path *best = d->use;
	unsigned rank = best ? rank_of(best, now) : 0;

	for (unsigned i = 0; i < d->n_paths; i++)
		if (rank_of(&d->paths[i], now) > rank) {
			best = &d->paths[i];
			rank = rank_of(best, now);
		}
	if (!rank)
		best = lost_for_good(d); /* whose answers end the requests */
	if (best == d->use)
		return;
	if (best) {
		d->stats.moves += d->last && best != d->last;
		d->last = best;
		vn_resend(d);
	} else {
		d->useless = now;
	}
	d->use = best;
}

void vn_set_access(struct vn_path *p, uint8_t state)
{
	if (state == NV_ANA_CHANGE && p->access != NV_ANA_CHANGE)
		p->changing = vn_now();
	p->access = state;
	vn_choose(p->disk);
}

/* A group that changes for longer than the target has said: it is asked by a new connection. */
static bool changes_too_long(const struct vn_path *p, uint64_t now)
{
	unsigned s = p->now.limits.anatt ? p->now.limits.anatt : ANATT_S;

	return p->access == NV_ANA_CHANGE && now - p->changing > s * 1000u;
}

bool vn_refused(struct vn_path *p, uint16_t status)
{
	uint16_t code = status & NV_STATUS_MASK;

	if (code >> 8 != PATHS_STATUS || status & NV_DNR || (code == NV_ANA_LOSS_PATH && lost_for_good(p->disk)))
		return false;
	p->stale = true;
	vn_care(p);
	if (code == NV_ANA_INACCESSIBLE_PATH) {
		vn_set_access(p, NV_ANA_INACCESSIBLE);
	} else if (code == NV_ANA_TRANSITION_PATH) {
		vn_set_access(p, NV_ANA_CHANGE);
	} else if (code == NV_ANA_LOSS_PATH) {
		vn_set_access(p, NV_ANA_LOSS);
	} else {
		p->sick = vn_now() + SICK_MS;
		vn_choose(p->disk);
	}
	return true;
}

void vn_lost(struct vn_path *p)
{
	if (!p->up)
		return;
	p->up = false;
	p->breaks++;
	vn_choose(p->disk);
	vn_care(p);
	vn_follow_now(p->disk); /* perhaps others have come or gone, too */
}

bool vn_hopeless(const struct vn_disk *d)
{
	return !d->use && vn_now() - d->useless >= d->options.reconnect_ms;
}

void vn_review(struct vn_path *p, uint64_t now)
{
	struct vn_disk *d = p->disk;

	if (!vn_several(d) || d->state != VN_OPEN)
		return;
	for (unsigned i = 0; i < p->now.n && p->up; i++) {
		struct vn_queue *q = p->now.io[i];

		if (p != d->use && !q->busy) /* perhaps nobody else notices that it breaks */
			q->transport->progress(q);
		if (q->error)
			vn_lost(p);
	}
	if (p->up && changes_too_long(p, now))
		vn_lost(p);
	vn_choose(d); /* a sick one may be well again */
	if (p->up && vn_hopeless(d) && now - d->useless >= ANATT_S * 1000) {
		d->useless = now;
		vn_requests_end(d, -EIO);
		vn_wake(d);
	}
}

/* ---- connections ---- */

/* A command must be right for each path, because it may move. */
static void join_limits(struct vn_disk *d, const struct vn_association *a)
{
	if (!vn_several(d) || !d->max_part) {
		d->limits = a->limits;
		d->max_part = a->info.max_transfer;
		return;
	}
	d->limits.zeroes = vn_least(d->limits.zeroes, a->limits.zeroes);
	d->limits.discard = vn_least(d->limits.discard, a->limits.discard);
	d->limits.frees_zeroes &= a->limits.frees_zeroes;
	d->max_part = (uint32_t)vn_least(d->max_part, a->info.max_transfer);
}

const char *vn_misfit(const struct vn_disk *d, const struct vn_association *a)
{
	static const struct vn_names none;
	bool named = *a->info.uuid || memcmp(&a->names, &none, sizeof(none));

	if (!d->known)
		return NULL;
	/* a disk without names that has become smaller is probably another */
	if (!vn_same_disk(d, &a->info, &a->names) || (!named && d->info.size > a->info.size))
		return "another disk is there";
	if (!vn_several(d))
		return NULL;
	if (!named)
		return "the namespace has no identifier, so it may be another disk";
	if (d->info.nsid != a->info.nsid)
		return "the namespace has another number";
	for (unsigned i = 0; i < d->n_paths; i++)
		if (d->paths[i].up && d->info.size != a->info.size)
			return "the namespace has another size";
	return (d->info.compare && !a->info.compare) || (d->info.discard && !a->info.discard) ||
	                       (d->info.write_zeroes && !a->info.write_zeroes)
	               ? "the controller lacks commands that the others have"
	               : NULL;
}

void vn_install(struct vn_path *p, const struct vn_association *a)
{
	struct vn_disk *d = p->disk;

	p->now = *a;
	p->transport = a->admin->transport;
	a->admin->stop = &d->stop;
	join_limits(d, a);
	for (unsigned i = 0; i < a->n; i++) {
		a->io[i]->path = p;
		a->io[i]->stop = NULL;
		vn_queue_watch(a->io[i], d->epoll);
	}
	p->up = true;
	p->stale = false;
	p->sick = 0;
	p->access = 0; /* a change has begun anew */
	*p->said = 0;
	if (!d->last)
		d->last = p;
	vn_set_access(p, a->access);
}

void vn_retire(struct vn_path *p)
{
	struct vn_statistics *s = &p->disk->stats;

	for (unsigned i = 0; i < p->now.n; i++) {
		struct vn_queue *q = p->now.io[i];

		vn_queue_watch(q, -1);
		s->bytes_copied += q->copied;
		s->digest_errors += q->digest_errors;
		q->copied = q->digest_errors = 0;
	}
}

void vn_withdraw(struct vn_path *p)
{
	struct vn_disk *d = p->disk;

	vn_retire(p);
	for (unsigned i = 0; i < p->now.n; i++) {
		struct vn_queue *q = p->now.io[i];

		q->transport->cut(q);
		for (unsigned s = 0; s <= q->mask; s++) {
			struct vn_cmd *c = q->slots[s];

			if (!c)
				continue;
			vn_queue_release(q, c);
			vn_again(d, c, 0);
		}
	}
}

/* ---- what is said of them ---- */

static void tell_way(const struct vn_path *p, char *text, size_t size)
{
	const struct vn_disk *d = p->disk;
	const struct vn_queue *q = p->now.admin;
	uint64_t now = vn_now(), in = p->rdma_at > now ? (p->rdma_at - now + 999) / 1000 : 0;

	if (!q || (vn_several(d) && !p->up))
		snprintf(text, size, "not connected%s%s", *p->said ? ": " : "", p->said);
	else if (q->transport != &vn_tcp)
		snprintf(text, size, "%s, %s", q->way, q->device);
	else if (d->who.tls.length)
		snprintf(text, size, "TCP, because there is a key for TLS");
	else if (d->url.scheme != VN_SCHEME_AUTO)
		snprintf(text, size, "TCP, because the address says so");
	else
		snprintf(text, size, "TCP, because RDMA failed: %s; next attempt in %llu s",
		         *p->rdma_why ? p->rdma_why : "built without it", (unsigned long long)in);
}

void vn_way(struct vn_disk *d, char *text, size_t size)
{
	vn_lock(d);
	tell_way(d->last, text, size);
	pthread_mutex_unlock(&d->lock);
}

/* Why commands go, or do not go, by this path. */
static const char *reason_of(const struct vn_path *p, uint64_t now)
{
	const struct vn_disk *d = p->disk;

	if (!p->up)
		return *p->said ? p->said : "not connected";
	if (p == d->use)
		return p->access == NV_ANA_OPTIMIZED       ? "in use: optimized"
		       : p->access == NV_ANA_NON_OPTIMIZED ? "in use: no other path is optimized"
		                                           : "in use: there is no other path";
	if (p->sick > now)
		return "not in use: it could not execute a command a moment ago";
	switch (p->access) {
	case NV_ANA_OPTIMIZED:
		return "not in use: another path is as good";
	case NV_ANA_NON_OPTIMIZED:
		return "not in use: another path is better";
	case NV_ANA_CHANGE:
		return "not in use: the target changes its access";
	default:
		return "not in use: the target does not give access";
	}
}

static void tell_path(const struct vn_path *p, struct vn_path_info *i)
{
	memset(i, 0, sizeof(*i));
	strcpy(i->address, p->at.host);
	strcpy(i->service, p->at.service);
	snprintf(i->transport, sizeof(i->transport), "%s", p->transport ? p->transport->name : "");
	i->connected = p->up;
	i->used = p == p->disk->use;
	snprintf(i->access, sizeof(i->access), "%s", p->up ? vn_access_name(p->access) : "");
	tell_way(p, i->way, sizeof(i->way));
	snprintf(i->why, sizeof(i->why), "%s", reason_of(p, vn_now()));
	i->commands = p->commands;
	i->breaks = p->breaks;
}

size_t vn_paths(struct vn_disk *d, struct vn_path_info *paths, size_t n)
{
	size_t count = 0;

	vn_lock(d);
	for (unsigned i = 0; i < d->n_paths; i++) {
		if (d->paths[i].parked)
			continue;
		if (count < n)
			tell_path(&d->paths[i], &paths[count]);
		count++;
	}
	pthread_mutex_unlock(&d->lock);
	return count;
}
