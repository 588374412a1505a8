// caretaker.c - the thread that keeps a disk's connection alive and reconnects when it breaks
// follows: NVM Express Base 1.4, 7.12 (keep alive)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/client.h"

#define LOOK_MS 1000 /* interval of the check for unanswered commands */

void vn_care(struct vn_disk *d)
{
	eventfd_write(d->care, 1);
}

void vn_lost(struct vn_disk *d)
{
	if (d->state != VN_UP)
		return;
	d->state = VN_LOST;
	vn_care(d);
}

void vn_install(struct vn_disk *d, const struct vn_association *a)
{
	d->now = *a;
	d->transport = a->admin->transport;
	d->max_part = a->info.max_transfer;
	for (unsigned i = 0; i < a->n; i++) {
		a->io[i]->disk = d;
		a->io[i]->stop = NULL;
		vn_queue_watch(a->io[i], d->epoll);
	}
	d->state = VN_UP;
}

void vn_withdraw(struct vn_disk *d)
{
	for (unsigned i = 0; i < d->now.n; i++) {
		struct vn_queue *q = d->now.io[i];

		vn_queue_watch(q, -1);
		q->transport->cut(q);
		d->stats.bytes_copied += q->copied;
		d->stats.digest_errors += q->digest_errors;
		q->copied = q->digest_errors = 0;
		for (unsigned s = 0; s <= q->mask; s++) {
			struct vn_cmd *c = q->slots[s];

			if (!c)
				continue;
			vn_queue_release(q, c);
			c->due = 0;
			c->next = NULL;
			*d->again.end = c;
			d->again.end = &c->next;
			d->stats.retries++;
		}
	}
}

static void caretaker_nap(struct vn_disk *d, int ms)
{
	struct pollfd p = {.fd = d->care, .events = POLLIN};
	eventfd_t n;

	if (poll(&p, 1, ms) > 0)
		eventfd_read(d->care, &n);
}

/* A disk without names that has become smaller is probably another. */
bool vn_is_same(const struct vn_disk *d, const struct vn_association *a)
{
	static const struct vn_names none;
	bool named = *a->info.uuid || memcmp(&a->names, &none, sizeof(none));

	return vn_same_disk(d, &a->info, &a->names) && (named || d->info.size <= a->info.size);
}

static bool try_once(struct vn_disk *d, unsigned tries)
{
	struct vn_association a;

	if (vn_associate(d, tries, &a))
		return false;
	vn_lock(d);
	bool good = vn_is_same(d, &a) && d->state == VN_LOST;

	if (good) {
		vn_install(d, &a);
		vn_resize(d, a.info.size);
		d->stats.reconnects++;
		vn_issue(d);
	}
	pthread_mutex_unlock(&d->lock);
	if (good)
		vn_wake(d);
	else
		vn_dissolve(&a);
	return good;
}

static void give_disk_up(struct vn_disk *d)
{
	vn_lock(d);
	if (d->state == VN_LOST) {
		d->state = VN_GIVEN_UP;
		vn_requests_end(d, -ENOTCONN);
	}
	pthread_mutex_unlock(&d->lock);
	vn_wake(d);
}

static void reconnect_disk(struct vn_disk *d)
{
	uint64_t until = vn_now() + d->options.reconnect_ms;
	unsigned most = d->options.reconnect_pause_ms, pause = most / 10 ? most / 10 : 1;

	vn_lock(d);
	vn_withdraw(d);
	struct vn_association old = d->now;

	d->now.n = 0;
	d->now.admin = NULL;
	pthread_mutex_unlock(&d->lock);
	vn_dissolve(&old);
	for (unsigned tries = 1; !d->stop; tries++) {
		if (vn_now() >= until) {
			give_disk_up(d);
			return;
		}
		if (try_once(d, tries))
			return;
		caretaker_nap(d, (int)pause);
		pause = 2 * pause < most ? 2 * pause : most;
	}
}

/* True if a command has waited too long. In a slow network a command far back in the queue waits long while others are
 * answered, but no more of them than fit in the queue twice. */
static bool is_overdue(const struct vn_queue *q, const struct vn_cmd *c, uint64_t now, uint64_t ms)
{
	if (now <= c->since || now - c->since <= ms)
		return false;
	return now - q->moved > ms || q->answers - c->before > 2 * q->depth;
}

/* Breaks connections with overdue commands, or has these aborted. */
static void look_for_silence(struct vn_disk *d, uint64_t now)
{
	if (!d->options.io_ms)
		return;
	for (unsigned i = 0; i < d->now.n; i++) {
		struct vn_queue *q = d->now.io[i];

		if (q->looked != q->answers) {
			q->looked = q->answers;
			q->moved = now;
		}
		for (unsigned s = 0; s <= q->mask && q->busy; s++)
			if (q->slots[s] && is_overdue(q, q->slots[s], now, d->options.io_ms) &&
			    (!q->transport->abort || !q->transport->abort(q, q->slots[s], now, d->options.io_ms)))
				vn_lost(d);
	}
}

/* Handles requests that are due. Returns when to check again at the latest. */
static uint64_t visit_disk(struct vn_disk *d, uint64_t now)
{
	uint64_t at = now + LOOK_MS, again;

	vn_lock(d);
	if (d->state == VN_UP)
		look_for_silence(d, now);
	again = vn_again_at(d);
	pthread_mutex_unlock(&d->lock);
	if (again <= now)
		vn_wake(d);
	else if (again < at)
		at = again;
	return at;
}

static void lose_connection(struct vn_disk *d)
{
	vn_lock(d);
	vn_lost(d);
	pthread_mutex_unlock(&d->lock);
}

static bool send_keep_alive(struct vn_disk *d)
{
	uint64_t deadline = vn_now() + d->options.connect_ms;

	if (d->now.admin->transport->keep_alive(d->now.admin, deadline))
		return false;
	vn_lock(d);
	d->stats.keep_alives++;
	pthread_mutex_unlock(&d->lock);
	return true;
}

/* Serves the admin queue until it breaks, or another thread reports that an I/O queue has broken. */
static void mind_connection(struct vn_disk *d)
{
	struct vn_queue *admin = d->now.admin;
	uint64_t every = d->options.keep_alive_ms / 2, at = vn_now() + every;

	vn_events_begin(d);
	while (!d->stop) {
		struct pollfd p[3];
		uint64_t now = vn_now(), until = visit_disk(d, now);
		int n = admin->transport->descriptors(admin, p + 1) + 1;
		eventfd_t x;

		if (every && at < until)
			until = at;
		p[0] = (struct pollfd){.fd = d->care, .events = POLLIN};
		if (!admin->transport->arm(admin))
			poll(p, (nfds_t)n, vn_left(until));
		if (p[0].revents)
			eventfd_read(d->care, &x);
		admin->transport->progress(admin);
		admin->transport->look(d);
		if (!admin->error && every && vn_now() >= at) {
			at = vn_now() + every;
			if (!send_keep_alive(d))
				vn_queue_break(admin, ETIMEDOUT, "no answer to a keep alive");
		}
		if (admin->error)
			lose_connection(d);
		if (!admin->error && vn_return_due(d) && vn_return(d))
			return;
		vn_lock(d);
		bool up = d->state == VN_UP;

		pthread_mutex_unlock(&d->lock);
		if (!up)
			return;
	}
}

void *vn_caretaker(void *disk)
{
	struct vn_disk *d = disk;

	while (!d->stop) {
		vn_lock(d);
		enum vn_state state = d->state;

		pthread_mutex_unlock(&d->lock);
		if (state == VN_UP)
			mind_connection(d);
		else if (state == VN_LOST)
			reconnect_disk(d);
		else
			caretaker_nap(d, -1);
	}
	return NULL;
}
