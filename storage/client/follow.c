// follow.c - paths by discovery: a thread follows the discovery log, and adds and ends the paths that it lists
// follows: NVMe over Fabrics 1.1, 5.3 (discovery log page), 4.3 (its change); verbena_nvme.h, "Paths by discovery"
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/client.h"

#define LOOK_MS 1000       /* interval at which it checks whether a path is usable */
#define REST_MS 50         /* between two readings of the log, also if the service reports changes without end */
#define NO_EVENTS_TIMES 10 /* a service without events is asked again after so many pauses */

/* ---- what the log lists ---- */

/* An address without names: a log must not make this host look one up. */
static bool is_address(const char *text)
{
	char bare[INET6_ADDRSTRLEN];
	size_t n = strcspn(text, "%"); /* the interface of a link-local address */
	uint8_t address[16];

	if (inet_pton(AF_INET, text, address) == 1)
		return true;
	if (n >= sizeof(bare))
		return false;
	memcpy(bare, text, n);
	bare[n] = 0;
	return inet_pton(AF_INET6, bare, address) == 1;
}

static bool is_port(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n && n <= 5 && !text[n] && strtoul(text, NULL, 10) - 1 < 65535;
}

static bool is_path(const struct vn_disk *d, const struct vn_found *f)
{
	return !f->referral && !f->discovery && !strcmp(f->nqn, d->url.nqn) && is_address(f->address) &&
	       is_port(f->service);
}

static bool by_tcp_too(const struct vn_disk *d, const struct vn_found *f)
{
	return !strcmp(f->transport, "tcp") || (d->who.tls.length && !strcmp(f->transport, "tls"));
}

/* An address of auto has the port for TCP. RDMA's is in the log at that port, unless the gateway has no TCP. all: those
 * that is_path has taken */
static bool may_be_path(const struct vn_disk *d, const struct vn_found *all, size_t n, const struct vn_found *f)
{
	bool rdma = !strcmp(f->transport, "rdma");

	if (d->url.scheme == VN_SCHEME_RDMA)
		return rdma;
	if (by_tcp_too(d, f))
		return true;
	if (!rdma || d->url.scheme != VN_SCHEME_AUTO || d->who.tls.length)
		return false;
	for (size_t i = 0; i < n; i++)
		if (by_tcp_too(d, &all[i]) && !strcmp(all[i].address, f->address))
			return false;
	return true;
}

/* Moves the paths among the n entries to the front. Returns how many these are. */
static size_t pick_paths(const struct vn_disk *d, struct vn_found *all, size_t n)
{
	size_t taken = 0, paths = 0;

	for (size_t i = 0; i < n; i++)
		if (is_path(d, &all[i]))
			all[taken++] = all[i];
	/* none of those for TCP is left out, so each entry finds them, whatever was moved */
	for (size_t i = 0; i < taken; i++)
		if (may_be_path(d, all, taken, &all[i]))
			all[paths++] = all[i];
	return paths;
}

static bool is_at(const struct vn_place *at, const struct vn_found *f)
{
	return !strcmp(at->host, f->address) && !strcmp(at->service, f->service);
}

static bool log_lists(const struct vn_found *all, size_t n, const struct vn_place *at)
{
	for (size_t i = 0; i < n; i++)
		if (is_at(at, &all[i]))
			return true;
	return false;
}

/* ---- paths, under the disk's lock ---- */

static bool has_path(const struct vn_disk *d, const struct vn_found *f)
{
	for (unsigned i = 0; i < d->n_paths; i++)
		if (!d->paths[i].parked && is_at(&d->paths[i].at, f))
			return true;
	return false;
}

static void begin_anew(struct vn_path *p, const struct vn_found *f)
{
	strcpy(p->at.host, f->address);
	strcpy(p->at.service, f->service);
	p->unlisted = p->parked = p->tried = p->by_iwarp = false;
	p->commands = p->breaks = p->rdma_at = p->roce_at = p->probed = 0;
	p->rdma_pause = p->roce_pause = 0;
	*p->said = *p->rdma_why = 0;
}

static bool reuse_place(struct vn_disk *d, const struct vn_found *f)
{
	for (unsigned i = 0; i < d->n_paths; i++)
		if (d->paths[i].parked) {
			begin_anew(&d->paths[i], f);
			vn_care(&d->paths[i]);
			return true;
		}
	return false;
}

/* running: the others' caretakers have started, so this one starts, too. Without room or memory it is tried again with
 * the next reading of the log. */
static void add_path(struct vn_disk *d, const struct vn_found *f, bool running)
{
	struct vn_path *p = &d->paths[d->n_paths];

	if (reuse_place(d, f) || d->n_paths == VN_PATHS_MAX)
		return;
	p->disk = d;
	p->care = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->care < 0)
		return;
	begin_anew(p, f);
	d->n_paths++;
	if (running && vn_caretaker_start(p)) {
		d->n_paths--;
		close(p->care);
	}
}

/* A log without a path of ours, perhaps of a gateway that is just starting, changes nothing. */
static bool take_log(struct vn_disk *d, struct vn_found *all, size_t n, bool running)
{
	if (!(n = pick_paths(d, all, n)))
		return false;
	vn_lock(d);
	for (unsigned i = 0; i < d->n_paths; i++) {
		struct vn_path *p = &d->paths[i];

		p->unlisted = !log_lists(all, n, &p->at);
		if (p->unlisted && !p->up)
			vn_care(p);
	}
	for (size_t i = 0; i < n; i++)
		if (!has_path(d, &all[i]))
			add_path(d, &all[i], running);
	pthread_mutex_unlock(&d->lock);
	return true;
}

/* ---- the service ---- */

static int read_listed(struct vn_disk *d, uint64_t deadline, bool running)
{
	struct vn_follower *f = &d->follower;
	struct vn_link l = {.options = &d->options, .deadline = deadline, .why = f->why};
	struct vn_found *found;
	size_t n;
	int e = vn_ctl_log(&l, f->now.admin, &found, &n);

	if (e)
		return e;
	if (!take_log(d, found, n, running)) {
		vn_say(f->why, "the discovery log lists no path to the subsystem");
		e = -ENXIO;
	}
	free(found);
	return e;
}

static int ask_by(struct vn_disk *d, const struct vn_place *at, const struct vn_transport *t, bool iwarp,
                  uint64_t deadline, bool running)
{
	struct vn_follower *f = &d->follower;
	struct vn_link l = {.transport = t,
	                    .options = &d->options,
	                    .domain = &d->domain,
	                    .iwarp = iwarp,
	                    .deadline = deadline,
	                    .stop = &d->stop,
	                    .why = f->why};

	strcpy(l.host, at->host);
	strcpy(l.service, at->service);
	int e = vn_discovery_open(&l, &d->who, &f->now);

	if (e)
		return e;
	vn_events_begin(&f->now);
	e = read_listed(d, deadline, running);
	if (e)
		vn_dissolve(&f->now);
	return e;
}

static unsigned kinds_of_rdma(const struct vn_disk *d)
{
#ifdef VN_HAVE_RDMA
	if ((d->url.scheme == VN_SCHEME_RDMA || d->url.scheme == VN_SCHEME_AUTO) && !d->who.tls.length)
		return vn_rdma_kinds();
#endif
	return 0;
}

/* By the transport of the address; for auto by TCP, or else by RDMA. ms: for each way */
static int ask_service(struct vn_disk *d, const struct vn_place *at, unsigned ms, bool running)
{
	int e = -EOPNOTSUPP;

	*d->follower.why = 0;
	if (d->url.scheme != VN_SCHEME_RDMA)
		e = ask_by(d, at, &vn_tcp, false, vn_now() + ms, running);
#ifdef VN_HAVE_RDMA
	for (unsigned i = 0; e && !d->stop && i < kinds_of_rdma(d); i++)
		e = ask_by(d, at, &vn_rdma, i, vn_now() + ms, running);
#endif
	return e;
}

int vn_follow_first(struct vn_disk *d, char *said)
{
	unsigned ways = kinds_of_rdma(d) + (d->url.scheme != VN_SCHEME_RDMA);
	int e = -ENXIO;

	for (unsigned i = 0; i < d->url.n; i++) {
		e = ask_service(d, &d->url.at[i], d->options.connect_ms / (d->url.n * (ways ? ways : 1)), false);
		if (!e) {
			d->follower.next = i + 1;
			return 0;
		}
	}
	snprintf(said, 120, "%s", *d->follower.why ? d->follower.why : strerror(-e));
	return e;
}

/* ---- the thread ---- */

void vn_follow_now(struct vn_disk *d)
{
	if (d->follower.care >= 0)
		eventfd_write(d->follower.care, 1);
}

static void follower_nap(struct vn_disk *d, int ms)
{
	struct pollfd p = {.fd = d->follower.care, .events = POLLIN};
	eventfd_t n;

	if (poll(&p, 1, ms) > 0)
		eventfd_read(d->follower.care, &n);
}

/* The services of the address, then those of all paths that there have been: each target is also a discovery service. */
static bool ask_the_next(struct vn_disk *d)
{
	struct vn_follower *f = &d->follower;
	struct vn_place at;

	vn_lock(d);
	unsigned i = f->next++ % (d->url.n + d->n_paths);

	at = i < d->url.n ? d->url.at[i] : d->paths[i - d->url.n].at;
	pthread_mutex_unlock(&d->lock);
	return !ask_service(d, &at, d->options.path_ms, true);
}

/* A service may know less than another, if its target is cut off from the others. */
static bool another_may_know_more(struct vn_disk *d, uint64_t since)
{
	vn_lock(d);
	uint64_t now = vn_now(); /* not earlier than any time that another thread has noted */
	bool useless = !d->use && now - d->useless >= d->options.path_ms;

	pthread_mutex_unlock(&d->lock);
	return useless && now - since >= d->options.path_ms;
}

/* Waits for an event, for a request to read the log, or until the time. */
static bool await_news(struct vn_disk *d, uint64_t until)
{
	struct vn_queue *admin = d->follower.now.admin;
	struct pollfd p[3];
	int n = admin->transport->descriptors(admin, p + 1) + 1;
	uint32_t result;
	eventfd_t x;

	p[0] = (struct pollfd){.fd = d->follower.care, .events = POLLIN};
	if (!admin->transport->arm(admin))
		poll(p, (nfds_t)n, vn_left(until));
	if (p[0].revents)
		eventfd_read(d->follower.care, &x);
	admin->transport->progress(admin);
	return p[0].revents || vn_event_came(&d->follower.now, &result);
}

/* False: that failed, for example because the log kept changing. The change that was reported is still not known. */
static bool read_again(struct vn_disk *d)
{
	struct vn_association *a = &d->follower.now;
	uint32_t result;
	bool event = vn_event_came(a, &result);

	poll(NULL, 0, REST_MS);
	int e = read_listed(d, vn_now() + d->options.path_ms, true);

	if (e == -ENXIO)
		vn_queue_break(a->admin, ENXIO, "it lists nothing"); /* another service may */
	if (event)
		vn_event_again(a);
	return !e;
}

/* Until the log is read without an event. */
static uint64_t pause_of(const struct vn_disk *d)
{
	const struct vn_cmd *c = d->follower.now.event;
	bool events = c && !(c->done && c->cqe.status);

	return events ? UINT64_MAX / 2 : (uint64_t)d->options.reconnect_pause_ms * NO_EVENTS_TIMES;
}

static void stay_with_service(struct vn_disk *d)
{
	struct vn_association *a = &d->follower.now;
	uint64_t since = vn_now(), every = d->options.keep_alive_ms / 2, alive_at = since + every, last = since;
	bool known = true; /* what the log lists */

	while (!d->stop && !a->admin->error && !another_may_know_more(d, since)) {
		uint64_t read_at = last + (known ? pause_of(d) : d->options.reconnect_pause_ms);
		bool news = await_news(d, vn_least(vn_now() + LOOK_MS, vn_least(read_at, every ? alive_at : read_at)));
		uint64_t now = vn_now();

		if (news || now >= read_at) {
			known = read_again(d);
			last = now;
		}
		if (!a->admin->error && every && now >= alive_at) {
			if (vn_ctl_keep_alive(a->admin, now + d->options.path_ms))
				vn_queue_break(a->admin, ETIMEDOUT, "no answer to a keep alive");
			alive_at = now + every;
		}
	}
}

static void *follow(void *disk)
{
	struct vn_disk *d = disk;

	for (unsigned vain = 0; !d->stop;) {
		if (d->follower.now.admin) {
			stay_with_service(d);
			if (d->stop)
				break; /* vn_close says goodbye */
			vn_dissolve(&d->follower.now);
		} else if (vn_give_up_in_time(d)) {
			follower_nap(d, -1);
		} else if (ask_the_next(d)) {
			vain = 0;
		} else if (++vain % (d->url.n + d->n_paths) == 0) {
			follower_nap(d, (int)d->options.reconnect_pause_ms);
		}
	}
	return NULL;
}

int vn_follow_start(struct vn_disk *d)
{
	int e = pthread_create(&d->follower.thread, NULL, follow, d);

	d->follower.has_thread = !e;
	return -e;
}

void vn_follow_end(struct vn_disk *d)
{
	vn_follow_now(d);
	if (d->follower.has_thread)
		pthread_join(d->follower.thread, NULL);
	d->follower.has_thread = false;
}
