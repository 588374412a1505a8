// associate.c - connects all queues of a disk, over RDMA or TCP, at the given address or one from the discovery log
// follows: NVMe over Fabrics 1.1, 1.5 and 3.3; its 5.3 for the discovery log
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define KATO_OF_DISCOVERY 0
#define BUSY_MS 200 /* pause before a busy target is asked again */
/* A target that is reachable by RDMA may delay Connect: verbena-target does for up to 2 s, while it ends the commands
 * of a broken connection. That is no reason to fall back to TCP. */
#define HELD_MS 4000
#define RDMA_AGAIN_MAX_MS 3600000u /* longest interval between attempts with RDMA */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static struct vn_link link_of(struct vn_disk *d, const struct vn_transport *t, uint64_t deadline)
{
	struct vn_link l = {.transport = t,
	                    .options = &d->options,
	                    .domain = &d->domain,
	                    .deadline = deadline,
	                    .stop = &d->stop,
	                    .why = d->why};

	strcpy(l.host, d->url.host);
	strcpy(l.service, d->url.service);
	l.service_id = d->url.service_id;
	l.pkey = d->url.pkey;
	return l;
}

void vn_dissolve(struct vn_association *a)
{
	if (a->admin)
		vn_events_end(a);
	for (unsigned i = 0; i < a->n; i++)
		a->io[i]->transport->close(a->io[i]);
	if (a->admin)
		a->admin->transport->close(a->admin);
	a->n = 0;
	a->admin = NULL;
}

static int open_queue(struct vn_link *l, uint16_t qid, uint16_t depth, const struct vn_identity *who, const char *nqn,
                      uint32_t kato, struct vn_queue **out)
{
	struct vn_queue *q;
	int e;

	l->who = who;
	l->nqn = nqn;
	e = l->transport->open(l, qid, depth, &q);

	if (e)
		return e;
	uint64_t held = min_u64(vn_now() + HELD_MS, l->latest);

	if (l->deadline < held)
		l->deadline = held;
	q->stop = l->stop;
	e = vn_ctl_connect(l, q, who, nqn, kato);
	if (e)
		l->transport->close(q);
	else
		*out = q;
	return e;
}

static int open_admin(struct vn_link *l, const struct vn_identity *who, const char *nqn, uint32_t kato,
                      struct vn_association *a)
{
	int e = open_queue(l, 0, VN_ADMIN_DEPTH, who, nqn, kato, &a->admin);

	if (!e)
		e = vn_ctl_enable(l, a->admin, &a->limits);
	if (!e)
		e = vn_ctl_identify(l, a->admin, &a->limits, &a->info);
	return e;
}

static int open_io(struct vn_disk *d, struct vn_link *l, struct vn_association *a)
{
	unsigned n, depth = d->options.queue_depth < a->limits.mqes ? d->options.queue_depth : a->limits.mqes;
	int e = vn_ctl_queues(l, a->admin, d->options.queues, &n);

	l->inline_max = a->limits.inline_max;
	while (!e && a->n < n) {
		e = open_queue(l, (uint16_t)(a->n + 1), (uint16_t)depth, &d->who, d->url.nqn, 0, &a->io[a->n]);
		a->n += !e;
	}
	a->info.queues = (uint16_t)n;
	a->info.queue_depth = (uint16_t)depth;
	return e;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int vn_nvme_associate(struct vn_disk *d, struct vn_link *l, struct vn_association *a)
{
	int e;

	memset(a, 0, sizeof(*a));
	/* the same namespace, even if another is first in the list now */
	a->info.nsid = d->info.nsid ? d->info.nsid : d->url.nsid;
	strcpy(a->info.nqn, d->url.nqn);
	e = open_admin(l, &d->who, d->url.nqn, d->options.keep_alive_ms, a);
	/* enable events before reading what they report, so that no change is missed */
	if (!e && a->limits.events && vn_ctl_want_events(l, a->admin, a->limits.events))
		a->limits.events = 0;
	if (!e)
		e = vn_ctl_namespace(l, a->admin, &a->limits, &a->info, &a->names);
	if (!e)
		e = open_io(d, l, a);
	a->info.controller = l->cntlid;
	a->info.max_transfer = min_u32(min_u32(a->limits.transfer, d->options.max_transfer), VN_TRANSFER_MAX);
	if (!e && a->info.max_transfer >= a->info.block_size)
		a->info.max_transfer -= a->info.max_transfer % a->info.block_size;
	else if (!e)
		e = -EINVAL;
	if (e)
		vn_dissolve(a);
	return e;
}

int vn_discover_at(struct vn_link *l, const struct vn_identity *who, struct vn_found **found, size_t *count)
{
	struct vn_association a = {0};
	int e = open_admin(l, who, NV_DISCOVERY_NQN, KATO_OF_DISCOVERY, &a);

	if (!e)
		e = vn_ctl_log(l, a.admin, found, count);
	if (!e)
		vn_ctl_shutdown(a.admin, l->deadline);
	vn_dissolve(&a);
	return e;
}

static int by_tcp(struct vn_disk *d, uint64_t deadline, struct vn_association *a)
{
	struct vn_link l = link_of(d, &vn_tcp, deadline);

	return vn_nvme_associate(d, &l, a);
}

void vn_rdma_again(struct vn_disk *d, const char *why)
{
	d->rdma_pause =
	        !d->rdma_pause ? d->options.rdma_again_ms : (uint32_t)min_u64(2ull * d->rdma_pause, RDMA_AGAIN_MAX_MS);
	vn_lock(d);
	d->rdma_at = vn_now() + d->rdma_pause;
	snprintf(d->rdma_why, sizeof(d->rdma_why), "%s", why);
	pthread_mutex_unlock(&d->lock);
}

#ifdef VN_HAVE_RDMA
/* A target that answers Busy over RDMA would answer the same over TCP. */
static bool may_try_next(const struct vn_disk *d, int e)
{
	return e && e != -EBUSY && !d->stop;
}

static int by_rdma(struct vn_disk *d, bool iwarp, uint64_t deadline, struct vn_association *a)
{
	struct vn_link l = link_of(d, d->url.scheme == VN_SCHEME_SRP ? &vn_srp : &vn_rdma, deadline);

	l.latest = d->latest;
	l.iwarp = iwarp;
	return l.transport->associate(d, &l, a);
}

/* Tries the RDMA ports of the discovery log. -ENOENT: it has none; -ENOTCONN: there is no log. */
static int by_rdma_listed(struct vn_disk *d, bool iwarp, uint64_t log_deadline, uint64_t deadline,
                          struct vn_association *a)
{
	struct vn_link l = link_of(d, &vn_tcp, log_deadline);
	struct vn_found *found;
	size_t n;
	int e = vn_discover_at(&l, &d->who, &found, &n);

	if (e)
		return -ENOTCONN;
	e = -ENOENT;
	for (size_t i = 0; i < n && may_try_next(d, e); i++) {
		if (strcmp(found[i].transport, "rdma") || strcmp(found[i].nqn, d->url.nqn))
			continue;
		l = link_of(d, &vn_rdma, deadline);
		l.latest = d->latest;
		l.iwarp = iwarp;
		strcpy(l.host, found[i].address);
		strcpy(l.service, found[i].service);
		e = vn_nvme_associate(d, &l, a);
	}
	free(found);
	return e;
}

static int by_this_rdma(struct vn_disk *d, bool iwarp, unsigned ms, uint64_t deadline, struct vn_association *a)
{
	uint64_t soon = min_u64(vn_now() + ms, deadline);
	/* leave time for RDMA if TCP does not get through */
	int e = by_rdma_listed(d, iwarp, min_u64(vn_now() + ms / 2, deadline), soon, a);

	if (e == -ENOENT) /* not every target lists its other ports: try this one for a shorter time */
		soon = min_u64(soon, vn_now() + ms / 2);
	return e == -ENOTCONN || e == -ENOENT ? by_rdma(d, iwarp, soon, a) : e;
}

/* Tries RoCE first, which the address uses by default, then iWARP, which gets through where UDP is blocked. The one
 * that worked last time comes first. */
static int by_any_rdma(struct vn_disk *d, uint64_t deadline, struct vn_association *a)
{
	unsigned kinds = vn_rdma_kinds();
	int e = -ENODEV;

	for (unsigned i = 0; i < kinds && may_try_next(d, e); i++) {
		bool iwarp = kinds == 2 && d->by_iwarp != (i == 1);

		e = by_this_rdma(d, iwarp, d->options.rdma_ms / kinds, deadline, a);
		if (!e)
			d->by_iwarp = iwarp;
	}
	return e;
}

/* Tries the given port, without TCP. With two adapters the first gets half of the time, and the second the rest. */
static int by_rdma_alone(struct vn_disk *d, uint64_t deadline, struct vn_association *a)
{
	bool both = vn_rdma_kinds() == 2;
	int e = by_rdma(d, both && d->by_iwarp, both ? deadline - (unsigned)vn_left(deadline) / 2 : deadline, a);

	if (both && may_try_next(d, e)) {
		e = by_rdma(d, !d->by_iwarp, deadline, a);
		if (!e)
			d->by_iwarp = !d->by_iwarp;
	}
	return e;
}

static int by_either(struct vn_disk *d, unsigned tries, uint64_t deadline, struct vn_association *a)
{
	bool due = vn_now() >= d->rdma_at;

	/* leave time for TCP if a target is reachable by RDMA but does not answer */
	d->latest = deadline - (unsigned)vn_left(deadline) / 4;
	int e = due ? by_any_rdma(d, deadline, a) : -ENODEV;

	if (!e)
		d->rdma_pause = 0;
	char why[sizeof(d->why)];

	strcpy(why, d->why); /* TCP may overwrite it */
	/* do not fall back to TCP at the first failure: a target that is down should be found by RDMA again */
	if (!may_try_next(d, e) || (tries == 1 && d->transport != &vn_tcp))
		return e;
	d->latest = deadline;
	e = by_tcp(d, deadline, a);
	if (!e && due)
		vn_rdma_again(d, why);
	return e;
}

int vn_associate_rdma(struct vn_disk *d, uint64_t deadline, struct vn_association *a)
{
	d->latest = deadline;
	int e = by_any_rdma(d, deadline, a);

	if (e)
		vn_rdma_again(d, d->why);
	return e;
}
#else
int vn_associate_rdma(struct vn_disk *d, uint64_t deadline, struct vn_association *a)
{
	vn_rdma_again(d, "built without RDMA");
	return -EOPNOTSUPP;
}
#endif

static int associate_by_scheme(struct vn_disk *d, unsigned tries, uint64_t deadline, struct vn_association *a)
{
	bool rdma = d->url.scheme == VN_SCHEME_RDMA || d->url.scheme == VN_SCHEME_SRP;

	if (d->who.tls.length && rdma) {
		vn_say(d->why, "RDMA does not support TLS");
		return -EOPNOTSUPP;
	}
	if (d->who.controller_secret.length && d->url.scheme == VN_SCHEME_SRP) {
		vn_say(d->why, "SRP has no authentication, so a target cannot prove that it has a secret");
		return -EOPNOTSUPP;
	}
	if (d->who.tls.length) /* auto: with a TLS key, data must not go over RDMA, which is not encrypted */
		return by_tcp(d, deadline, a);
#ifdef VN_HAVE_RDMA
	if (rdma)
		return by_rdma_alone(d, deadline, a);
	if (d->url.scheme == VN_SCHEME_AUTO)
		return by_either(d, tries, deadline, a);
#else
	if (rdma) {
		vn_say(d->why, "built without RDMA");
		return -EOPNOTSUPP;
	}
#endif
	return by_tcp(d, deadline, a);
}

int vn_associate(struct vn_disk *d, unsigned tries, struct vn_association *a)
{
	uint64_t deadline = vn_now() + d->options.connect_ms;

	d->latest = deadline;
	int e = associate_by_scheme(d, tries, deadline, a);

	while (e == -EBUSY && !tries && vn_left(deadline) > BUSY_MS) { /* later the caretaker retries */
		poll(NULL, 0, BUSY_MS);
		e = associate_by_scheme(d, tries, deadline, a);
		/* the last attempt had too little time: report the error before it */
		if (e == -ETIMEDOUT && !vn_left(deadline))
			e = -EBUSY;
	}
	return e;
}
