// disk.c - opens and closes disks, and reports their properties
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/client.h"

#define GOODBYE_MS 1000
#define OTHERS_MS 500 /* how long vn_open waits for the other paths when one is connected */

static int check_options(const struct vn_options *o)
{
	if (o->size != sizeof(*o) || !o->queue_depth || o->queue_depth > VN_DEPTH_MAX || !o->queues ||
	    o->queues > VN_QUEUES_MAX)
		return -EINVAL;
	if (o->max_transfer < 512 || !o->connect_ms || !o->reconnect_pause_ms)
		return -EINVAL;
	/* larger values would overflow the sums */
	return o->path_ms > INT32_MAX || !o->path_ms || o->reconnect_ms > INT32_MAX ||
	                       o->reconnect_pause_ms > INT32_MAX || o->connect_ms > INT32_MAX ||
	                       o->keep_alive_ms > INT32_MAX || o->rdma_again_ms > INT32_MAX
	               ? -EINVAL
	               : 0;
}

static void disk_free(struct vn_disk *d)
{
	vn_domain_fini(&d->domain);
	for (struct vn_op *o; (o = d->spare_ops);) {
		d->spare_ops = o->next;
		free(o);
	}
	if (d->epoll >= 0)
		close(d->epoll);
	if (d->wake >= 0)
		close(d->wake);
	for (unsigned i = 0; i < d->n_paths; i++)
		if (d->paths[i].care >= 0)
			close(d->paths[i].care);
	if (d->follower.care >= 0)
		close(d->follower.care);
	pthread_cond_destroy(&d->cond);
	pthread_mutex_destroy(&d->lock);
	free(d->cmds);
	explicit_bzero(&d->who, sizeof(d->who));
	free(d);
}

static bool make_paths(struct vn_disk *d, const struct vn_url *u)
{
	bool good = true;

	d->url = *u;
	d->follower.care = -1;
	if (u->discover) {
		d->follower.care = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		return d->follower.care >= 0;
	}
	d->n_paths = u->n;
	for (unsigned i = 0; i < u->n; i++) {
		struct vn_path *p = &d->paths[i];

		p->disk = d;
		p->at = u->at[i];
		p->care = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		good &= p->care >= 0;
	}
	return good;
}

static struct vn_disk *disk_new(const struct vn_options *o, const struct vn_url *u)
{
	struct vn_disk *d = calloc(1, sizeof(*d));
	size_t n = (size_t)o->queue_depth * o->queues;
	pthread_condattr_t a;
	struct epoll_event e = {.events = EPOLLIN};

	if (!d)
		return NULL;
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&d->cond, &a);
	pthread_condattr_destroy(&a);
	vn_domain_init(&d->domain);
	d->pending.end = &d->pending.first;
	d->done.end = &d->done.first;
	d->again.end = &d->again.first;
	d->options = *o;
	d->options.host_nqn = NULL; /* it points to the caller's memory */
	d->options.host_id = NULL;
	d->options.secret = d->options.controller_secret = d->options.tls_key = NULL;
	d->useless = vn_now();
	d->epoll = epoll_create1(EPOLL_CLOEXEC);
	d->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->cmds = calloc(n, sizeof(*d->cmds));
	e.data.fd = d->wake;
	if (!make_paths(d, u) || !d->cmds || d->epoll < 0 || d->wake < 0 ||
	    epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->wake, &e)) {
		disk_free(d);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		d->cmds[i].next = d->spare;
		d->spare = &d->cmds[i];
	}
	return d;
}

/* The threads block all signals, which are for the program. The follower starts more caretakers, so it comes last. */
static int start_threads(struct vn_disk *d)
{
	sigset_t all, was;
	int e = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	for (unsigned i = 0; i < d->n_paths && !e; i++)
		e = vn_caretaker_start(&d->paths[i]);
	if (!e && d->url.discover)
		e = vn_follow_start(d);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return e;
}

/* The follower may be waiting for the lock. */
static void end_threads(struct vn_disk *d)
{
	vn_lock(d);
	d->stop = true;
	for (unsigned i = 0; i < d->n_paths; i++)
		d->paths[i].leave = true;
	pthread_mutex_unlock(&d->lock);
	vn_follow_end(d);
	for (unsigned i = 0; i < d->n_paths; i++)
		vn_care(&d->paths[i]);
	for (unsigned i = 0; i < d->n_paths; i++)
		if (d->paths[i].has_caretaker)
			pthread_join(d->paths[i].caretaker, NULL);
}

static void dissolve_paths(struct vn_disk *d)
{
	vn_dissolve(&d->follower.now);
	for (unsigned i = 0; i < d->n_paths; i++)
		vn_dissolve(&d->paths[i].now);
}

/* Until each path has been tried; once one is connected the others have a moment. A discovery log may name others all the
 * time. True: one is connected */
static bool await_paths(struct vn_disk *d)
{
	const uint64_t limit = d->url.discover ? vn_now() + d->options.connect_ms + OTHERS_MS : UINT64_MAX;
	uint64_t until = limit;
	unsigned tried, up;

	vn_lock(d);
	for (;;) {
		tried = up = 0;
		for (unsigned i = 0; i < d->n_paths; i++) {
			tried += d->paths[i].tried || d->paths[i].parked;
			up += d->paths[i].up;
		}
		if (!up)
			until = limit;
		else if (until == limit)
			until = vn_least(limit, vn_now() + OTHERS_MS);
		if (tried == d->n_paths || vn_now() >= until)
			break;
		if (until == UINT64_MAX) {
			pthread_cond_wait(&d->cond, &d->lock);
			continue;
		}
		pthread_cond_timedwait(&d->cond, &d->lock,
		                       &(struct timespec){.tv_sec = (time_t)(until / 1000),
		                                          .tv_nsec = (long)(until % 1000) * 1000000});
	}
	pthread_mutex_unlock(&d->lock);
	return up;
}

static int connect_disk(struct vn_disk *d, char *said)
{
	int e = d->url.discover ? vn_follow_first(d, said) : 0;

	if (e)
		return e;
	e = start_threads(d);
	if (!e && await_paths(d))
		return 0;
	end_threads(d);
	dissolve_paths(d);
	if (e)
		return e;
	snprintf(said, 120, "%s", d->paths[0].said);
	e = d->paths[0].error;
	return !e ? -ENOTCONN : e == -ECANCELED ? -ETIMEDOUT : e;
}

static int fail_open(char *why, size_t len, int e, const char *said)
{
	if (why && len)
		snprintf(why, len, "%s", *said ? said : strerror(-e));
	return e;
}

/* Our port, if we are an initiator of SRP. A second disk of this host must not end our login, so it is random, unless
 * the program says what it is. */
static int name_port(const struct vn_options *o, uint8_t port[16])
{
	if (o->host_id)
		memcpy(port, o->host_id, 16);
	else if (getrandom(port, 16, 0) != 16)
		return -errno;
	return 0;
}

int vn_open(const char *url, const struct vn_options *options, struct vn_disk **disk, char *why, size_t why_len)
{
	struct vn_options standard;
	struct vn_url u;
	struct vn_disk *d;
	char said[120] = "";
	int e;

	vn_options_init(&standard);
	if (!options)
		options = &standard;
	if (vn_url_parse(url, &u) || !*u.nqn)
		return fail_open(
		        why, why_len, -EINVAL,
		        "not an address of a disk: nvme+tcp://HOST[:PORT][,…]/NQN or srp://HOST[:PORT]/PORT-ID");
	if (check_options(options))
		return fail_open(why, why_len, -EINVAL, "an option is invalid");
	d = disk_new(options, &u);
	if (!d)
		return fail_open(why, why_len, -ENOMEM, "");
	e = vn_identity(options, &d->who);
	if (!e)
		e = name_port(options, d->initiator);
	bool keyless = !e && u.scheme == VN_SCHEME_TLS && !d->who.tls.length;

	e = keyless ? -EINVAL : e;
	if (keyless)
		vn_say(said, "nvme+tls needs a key");
	else if (e)
		vn_say(said,
		       e == -EOPNOTSUPP ? "built without OpenSSL: no secrets" : "host NQN, identifier or secret: %s",
		       strerror(-e));
	else
		e = connect_disk(d, said);
	if (e) {
		fail_open(why, why_len, e, said);
		disk_free(d);
		return e;
	}
	*disk = d;
	return 0;
}

static void say_goodbye(struct vn_path *p, uint64_t deadline)
{
	if (p->up && p->now.admin && !p->now.admin->error && p->transport->shutdown)
		p->transport->shutdown(p->now.admin, deadline);
}

void vn_close(struct vn_disk *d)
{
	int n = 0;

	vn_lock(d);
	d->state = VN_CLOSING;
	pthread_mutex_unlock(&d->lock);
	end_threads(d);
	vn_lock(d);
	for (unsigned i = 0; i < d->n_paths; i++)
		vn_withdraw(&d->paths[i]);
	vn_requests_end(d, -ECANCELED);
	while (vn_callbacks(d, &n))
		;
	pthread_mutex_unlock(&d->lock);
	d->stop = false;
	uint64_t deadline = vn_now() + GOODBYE_MS;

	for (unsigned i = 0; i < d->n_paths; i++)
		say_goodbye(&d->paths[i], deadline);
	if (d->follower.now.admin && !d->follower.now.admin->error)
		vn_ctl_shutdown(d->follower.now.admin, deadline);
	dissolve_paths(d);
	disk_free(d);
}

const struct vn_info *vn_info(const struct vn_disk *d)
{
	return &d->info;
}

const char *vn_transport_name(struct vn_disk *d)
{
	const char *name;

	vn_lock(d);
	name = d->last->transport ? d->last->transport->name : "";
	pthread_mutex_unlock(&d->lock);
	return name;
}

void vn_statistics(struct vn_disk *d, struct vn_statistics *s)
{
	vn_lock(d);
	*s = d->stats;
	for (unsigned k = 0; k < d->n_paths; k++)
		for (unsigned i = 0; i < d->paths[k].now.n; i++) {
			s->bytes_copied += d->paths[k].now.io[i]->copied;
			s->digest_errors += d->paths[k].now.io[i]->digest_errors;
		}
	pthread_mutex_unlock(&d->lock);
}

static int discover_by_url(const struct vn_url *u, const struct vn_options *options, const struct vn_identity *who,
                           struct vn_found **found, size_t *count, char *said)
{
	struct vn_domain domain;
	uint8_t initiator[16];
	struct vn_link l = {.transport = &vn_tcp,
	                    .options = options,
	                    .domain = &domain,
	                    .nqn = u->nqn,
	                    .initiator = initiator,
	                    .target = u->target,
	                    .service_id = u->service_id,
	                    .pkey = u->pkey,
	                    .deadline = vn_now() + options->connect_ms,
	                    .why = said};
	int e = name_port(options, initiator);

	strcpy(l.host, u->at[0].host);
	strcpy(l.service, u->at[0].service);
	if (u->scheme == VN_SCHEME_RDMA || u->scheme == VN_SCHEME_SRP) {
#ifdef VN_HAVE_RDMA
		l.transport = u->scheme == VN_SCHEME_SRP ? &vn_srp : &vn_rdma;
#else
		vn_say(said, "built without RDMA");
		return -EOPNOTSUPP;
#endif
	}
	vn_domain_init(&domain);
	if (!e)
		e = l.transport->list(&l, who, found, count);
	vn_domain_fini(&domain);
	return e;
}

int vn_discover(const char *url, const struct vn_options *options, struct vn_found **found, size_t *count, char *why,
                size_t why_len)
{
	struct vn_options standard;
	struct vn_identity who = {0};
	struct vn_url u;
	char said[120] = "";
	int e;

	vn_options_init(&standard);
	if (!options)
		options = &standard;
	if (vn_url_parse(url, &u) || u.n > 1)
		return fail_open(why, why_len, -EINVAL,
		                 "not an address of a discovery service: nvme+tcp://HOST[:PORT], or of a target: "
		                 "srp://HOST[:PORT]/PORT-ID");
	e = check_options(options);
	if (!e)
		e = vn_identity(options, &who);
	if (!e && ((u.scheme == VN_SCHEME_TLS && !who.tls.length) ||
	           ((u.scheme == VN_SCHEME_RDMA || u.scheme == VN_SCHEME_SRP) && who.tls.length)))
		e = -EINVAL;
	if (e)
		vn_say(said, "an option is invalid");
	else
		e = discover_by_url(&u, options, &who, found, count, said);
	explicit_bzero(&who, sizeof(who));
	return e ? fail_open(why, why_len, e, said) : 0;
}
