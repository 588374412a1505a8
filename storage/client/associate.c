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

static struct vn_link link_of(struct vn_path *p, const struct vn_transport *t, uint64_t deadline)
{
	struct vn_link l = {.transport = t,
	                    .options = &p->disk->options,
	                    .domain = &p->disk->domain,
	                    .deadline = deadline,
	                    .stop = p->returning ? &p->leave : &p->disk->stop,
	                    .why = p->why};

	strcpy(l.host, p->at.host);
	strcpy(l.service, p->at.service);
	l.service_id = p->disk->url.service_id;
	l.pkey = p->disk->url.pkey;
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
	uint64_t held = vn_least(vn_now() + HELD_MS, l->latest);

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

static int open_io(struct vn_path *p, struct vn_link *l, struct vn_association *a)
{
	unsigned n,
	        depth = p->disk->options.queue_depth < a->limits.mqes ? p->disk->options.queue_depth : a->limits.mqes;
	int e = vn_ctl_queues(l, a->admin, p->disk->options.queues, &n);

	l->inline_max = a->limits.inline_max;
	while (!e && a->n < n) {
		e = open_queue(l, (uint16_t)(a->n + 1), (uint16_t)depth, &p->disk->who, p->disk->url.nqn, 0,
		               &a->io[a->n]);
		a->n += !e;
	}
	a->info.queues = (uint16_t)n;
	a->info.queue_depth = (uint16_t)depth;
	return e;
}

int vn_nvme_associate(struct vn_path *p, struct vn_link *l, struct vn_association *a)
{
	int e;

	memset(a, 0, sizeof(*a));
	/* the same namespace, even if another is first in the list now */
	vn_lock(p->disk);
	a->info.nsid = p->disk->info.nsid ? p->disk->info.nsid : p->disk->url.nsid;
	pthread_mutex_unlock(&p->disk->lock);
	strcpy(a->info.nqn, p->disk->url.nqn);
	e = open_admin(l, &p->disk->who, p->disk->url.nqn, p->disk->options.keep_alive_ms, a);
	a->limits.events &= NV_AEC_NS_CHANGED | NV_AEC_ANA_CHANGED;
	/* enable events before reading what they report, so that no change is missed */
	if (!e && a->limits.events && vn_ctl_want_events(l, a->admin, a->limits.events))
		a->limits.events = 0;
	if (!e)
		e = vn_ctl_namespace(l, a->admin, &a->limits, &a->info, &a->names);
	a->access = NV_ANA_OPTIMIZED;
	if (!e && a->limits.ana && vn_ctl_access(l, a->admin, a->info.nsid, &a->access) && a->admin->error)
		e = -a->admin->error;
	if (!e)
		e = open_io(p, l, a);
	a->info.controller = l->cntlid;
	a->info.max_transfer =
	        (uint32_t)vn_least(vn_least(a->limits.transfer, p->disk->options.max_transfer), VN_TRANSFER_MAX);
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

int vn_discovery_open(struct vn_link *l, const struct vn_identity *who, struct vn_association *a)
{
	memset(a, 0, sizeof(*a));
	int e = open_admin(l, who, NV_DISCOVERY_NQN, l->options->keep_alive_ms, a);

	a->limits.events &= NV_AEC_DISCOVERY_CHANGED;
	if (!e && a->limits.events && vn_ctl_want_events(l, a->admin, a->limits.events))
		a->limits.events = 0;
	if (!e && a->admin->error)
		e = -a->admin->error;
	if (e)
		vn_dissolve(a);
	return e;
}

static int by_tcp(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	struct vn_link l = link_of(p, &vn_tcp, deadline);

	return vn_nvme_associate(p, &l, a);
}

void vn_rdma_again(struct vn_path *p, const char *why)
{
	p->rdma_pause = !p->rdma_pause ? p->disk->options.rdma_again_ms
	                               : (uint32_t)vn_least(2ull * p->rdma_pause, RDMA_AGAIN_MAX_MS);
	vn_lock(p->disk);
	p->rdma_at = vn_now() + p->rdma_pause;
	snprintf(p->rdma_why, sizeof(p->rdma_why), "%s", why);
	pthread_mutex_unlock(&p->disk->lock);
}

void vn_roce_again(struct vn_path *p)
{
	p->roce_pause = !p->roce_pause ? p->disk->options.rdma_again_ms
	                               : (uint32_t)vn_least(2ull * p->roce_pause, RDMA_AGAIN_MAX_MS);
	p->roce_at = vn_now() + p->roce_pause;
}

#ifdef VN_HAVE_RDMA
/* One of two kinds of RDMA has worked. failed: the other one has not. */
static void note_kind(struct vn_path *p, bool iwarp, bool failed)
{
	p->by_iwarp = iwarp;
	if (!iwarp)
		p->roce_pause = 0;
	else if (failed)
		vn_roce_again(p);
}

/* A target that answers Busy over RDMA would answer the same over TCP. */
static bool may_try_next(const struct vn_path *p, int e)
{
	return e && e != -EBUSY && !p->disk->stop && !p->leave;
}

static int by_rdma(struct vn_path *p, bool iwarp, uint64_t deadline, struct vn_association *a)
{
	struct vn_link l = link_of(p, p->disk->url.scheme == VN_SCHEME_SRP ? &vn_srp : &vn_rdma, deadline);

	l.latest = p->latest;
	l.iwarp = iwarp;
	return l.transport->associate(p, &l, a);
}

/* Gateways list each other's ports, which are those of other paths. */
static bool is_of_another_path(struct vn_path *p, const char *address)
{
	struct vn_disk *d = p->disk;
	bool other = false;

	vn_lock(d);
	for (unsigned i = 0; i < d->n_paths; i++)
		other |= strcmp(p->at.host, address) && !strcmp(d->paths[i].at.host, address);
	pthread_mutex_unlock(&d->lock);
	return other;
}

/* Tries the RDMA ports of the discovery log. -ENOENT: it has none; -ENOTCONN: there is no log. */
static int by_rdma_listed(struct vn_path *p, bool iwarp, uint64_t log_deadline, uint64_t deadline,
                          struct vn_association *a)
{
	struct vn_link l = link_of(p, &vn_tcp, log_deadline);
	struct vn_found *found;
	size_t n;
	int e = vn_discover_at(&l, &p->disk->who, &found, &n);

	if (e)
		return -ENOTCONN;
	e = -ENOENT;
	for (size_t i = 0; i < n && may_try_next(p, e); i++) {
		if (strcmp(found[i].transport, "rdma") || strcmp(found[i].nqn, p->disk->url.nqn) ||
		    is_of_another_path(p, found[i].address))
			continue;
		l = link_of(p, &vn_rdma, deadline);
		l.latest = p->latest;
		l.iwarp = iwarp;
		strcpy(l.host, found[i].address);
		strcpy(l.service, found[i].service);
		e = vn_nvme_associate(p, &l, a);
	}
	free(found);
	return e;
}

static int by_this_rdma(struct vn_path *p, bool iwarp, unsigned ms, uint64_t deadline, struct vn_association *a)
{
	uint64_t soon = vn_least(vn_now() + ms, deadline);
	/* leave time for RDMA if TCP does not get through */
	int e = by_rdma_listed(p, iwarp, vn_least(vn_now() + ms / 2, deadline), soon, a);

	if (e == -ENOENT) /* not every target lists its other ports: try this one for a shorter time */
		soon = vn_least(soon, vn_now() + ms / 2);
	return e == -ENOTCONN || e == -ENOENT ? by_rdma(p, iwarp, soon, a) : e;
}

/* Tries RoCE first, which the address uses by default, then iWARP, which gets through where UDP is blocked. The one
 * that worked last time comes first. Also where the deadline comes before rdma_ms each has its part of the time. */
static int by_any_rdma(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	unsigned kinds = vn_rdma_kinds(), part = kinds ? p->disk->options.rdma_ms / kinds : 0;
	int e = -ENODEV;

	for (unsigned i = 0; i < kinds && may_try_next(p, e); i++) {
		bool iwarp = kinds == 2 && p->by_iwarp != (i == 1);

		e = by_this_rdma(p, iwarp, (unsigned)vn_least(part, (unsigned)vn_left(deadline) / (kinds - i)),
		                 deadline, a);
		if (!e)
			note_kind(p, iwarp, i);
	}
	return e;
}

/* Tries the given port, without TCP. With two adapters the first gets half of the time, and the second the rest. */
static int by_rdma_alone(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	bool both = vn_rdma_kinds() == 2;
	int e = by_rdma(p, both && p->by_iwarp, both ? deadline - (unsigned)vn_left(deadline) / 2 : deadline, a);

	if (both && may_try_next(p, e)) {
		e = by_rdma(p, !p->by_iwarp, deadline, a);
		if (!e)
			note_kind(p, !p->by_iwarp, true);
	}
	return e;
}

static int by_either(struct vn_path *p, unsigned tries, uint64_t deadline, struct vn_association *a)
{
	bool due = vn_now() >= p->rdma_at;

	/* leave time for TCP if a target is reachable by RDMA but does not answer */
	p->latest = deadline - (unsigned)vn_left(deadline) / 4;
	int e = due ? by_any_rdma(p, deadline, a) : -ENODEV;

	if (!e)
		p->rdma_pause = 0;
	char why[sizeof(p->why)];

	strcpy(why, p->why); /* TCP may overwrite it */
	/* do not fall back to TCP at the first failure: a target that is down should be found by RDMA again */
	if (!may_try_next(p, e) || (tries == 1 && p->transport != &vn_tcp))
		return e;
	p->latest = deadline;
	e = by_tcp(p, deadline, a);
	if (!e && due)
		vn_rdma_again(p, why);
	return e;
}

int vn_associate_rdma(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	p->latest = deadline;
	int e = by_any_rdma(p, deadline, a);

	if (e)
		vn_rdma_again(p, p->why);
	return e;
}

int vn_associate_roce(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	p->latest = deadline;
	int e = vn_rdma_kinds() != 2 ? -ENODEV
	        : p->disk->url.scheme == VN_SCHEME_AUTO
	                ? by_this_rdma(p, false, (unsigned)vn_left(deadline), deadline, a)
	                : by_rdma(p, false, deadline, a);

	if (e)
		vn_roce_again(p);
	return e;
}
#else
int vn_associate_roce(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	vn_roce_again(p);
	return -EOPNOTSUPP;
}

int vn_associate_rdma(struct vn_path *p, uint64_t deadline, struct vn_association *a)
{
	vn_rdma_again(p, "built without RDMA");
	return -EOPNOTSUPP;
}
#endif

static int associate_by_scheme(struct vn_path *p, unsigned tries, uint64_t deadline, struct vn_association *a)
{
	bool rdma = p->disk->url.scheme == VN_SCHEME_RDMA || p->disk->url.scheme == VN_SCHEME_SRP;

	if (p->disk->who.tls.length && rdma) {
		vn_say(p->why, "RDMA does not support TLS");
		return -EOPNOTSUPP;
	}
	if (p->disk->who.controller_secret.length && p->disk->url.scheme == VN_SCHEME_SRP) {
		vn_say(p->why, "SRP has no authentication, so a target cannot prove that it has a secret");
		return -EOPNOTSUPP;
	}
	if (p->disk->who.tls.length) /* auto: with a TLS key, data must not go over RDMA, which is not encrypted */
		return by_tcp(p, deadline, a);
#ifdef VN_HAVE_RDMA
	if (rdma)
		return by_rdma_alone(p, deadline, a);
	if (p->disk->url.scheme == VN_SCHEME_AUTO)
		return by_either(p, tries, deadline, a);
#else
	if (rdma) {
		vn_say(p->why, "built without RDMA");
		return -EOPNOTSUPP;
	}
#endif
	return by_tcp(p, deadline, a);
}

int vn_associate(struct vn_path *p, unsigned tries, struct vn_association *a)
{
	uint64_t deadline = vn_now() + p->disk->options.connect_ms;

	p->latest = deadline;
	int e = associate_by_scheme(p, tries, deadline, a);

	while (e == -EBUSY && !tries && vn_left(deadline) > BUSY_MS) { /* later the caretaker retries */
		poll(NULL, 0, BUSY_MS);
		e = associate_by_scheme(p, tries, deadline, a);
		/* the last attempt had too little time: report the error before it */
		if (e == -ETIMEDOUT && !vn_left(deadline))
			e = -EBUSY;
	}
	return e;
}
