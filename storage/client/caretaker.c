// caretaker.c - the thread that keeps a path's connection alive and reconnects when it breaks
// follows: NVM Express Base 1.4, 7.12 (keep alive)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/client.h"

#define LOOK_MS 1000  /* interval of the check for unanswered commands */
#define LOOKS_MS 250  /* … with several paths, while there are commands: another may do better */
#define QUIET_MS 500u /* … with several paths: without an answer for so long, a keep alive asks for one */

void vn_care(struct vn_path *p)
{
	eventfd_write(p->care, 1);
}

uint64_t vn_patience(const struct vn_path *p)
{
	const struct vn_options *o = &p->disk->options;

	return vn_now() + (vn_several(p->disk) ? o->path_ms : o->connect_ms);
}

static void caretaker_nap(struct vn_path *p, int ms)
{
	struct pollfd f = {.fd = p->care, .events = POLLIN};
	eventfd_t n;

	if (poll(&f, 1, ms) > 0)
		eventfd_read(p->care, &n);
}

/* ---- connecting ---- */

/* Takes a new connection into use, if it leads to the disk. NULL, or why not. */
static const char *take_association(struct vn_path *p, const struct vn_association *a)
{
	struct vn_disk *d = p->disk;
	const char *misfit = d->state == VN_OPEN ? vn_misfit(d, a) : "the disk is given up";

	if (misfit)
		return misfit;
	if (!d->known) {
		d->info = a->info;
		d->names = a->names;
		d->known = true;
	}
	vn_install(p, a);
	vn_resize(d, a->info.size);
	vn_issue(d);
	return NULL;
}

static bool try_once(struct vn_path *p, unsigned tries)
{
	struct vn_disk *d = p->disk;
	struct vn_association a;
	const char *misfit = NULL;
	int e = vn_associate(p, tries, &a);

	vn_lock(d);
	if (!e)
		misfit = take_association(p, &a);
	bool good = !e && !misfit;

	if (misfit)
		snprintf(p->why, sizeof(p->why), "%s", misfit);
	if (!good)
		snprintf(p->said, sizeof(p->said), "%s", *p->why ? p->why : strerror(-e));
	if (!tries)
		p->error = e ? e : misfit ? -ENXIO : 0;
	d->stats.reconnects += good && tries;
	pthread_mutex_unlock(&d->lock);
	if (good)
		vn_wake(d);
	else if (!e)
		vn_dissolve(&a);
	return good;
}

bool vn_give_up_in_time(struct vn_disk *d)
{
	bool any = false;

	vn_lock(d);
	for (unsigned i = 0; i < d->n_paths; i++)
		any |= d->paths[i].up;
	if (d->state == VN_OPEN && !any && d->known && vn_hopeless(d))
		d->state = VN_GIVEN_UP;
	if (d->state == VN_GIVEN_UP) { /* ends those of this path; others are perhaps still in the queues of another */
		vn_requests_end(d, -ENOTCONN);
		vn_wake(d);
	}
	bool over = d->state != VN_OPEN;

	pthread_mutex_unlock(&d->lock);
	return over;
}

static bool is_unlisted(struct vn_path *p)
{
	vn_lock(p->disk);
	bool unlisted = p->unlisted;

	pthread_mutex_unlock(&p->disk->lock);
	return unlisted;
}

static void reconnect_path(struct vn_path *p)
{
	struct vn_disk *d = p->disk;
	unsigned most = d->options.reconnect_pause_ms, pause = most / 10 ? most / 10 : 1;

	vn_lock(d);
	vn_withdraw(p);
	struct vn_association old = p->now;

	p->now.n = 0;
	p->now.admin = NULL;
	p->now.event = NULL;
	if (old.admin && *old.admin->why)
		snprintf(p->said, sizeof(p->said), "%s", old.admin->why);
	vn_issue(d); /* by another path */
	pthread_mutex_unlock(&d->lock);
	vn_wake(d);
	vn_dissolve(&old);
	for (unsigned tries = 1; !d->stop; tries++) {
		if (vn_give_up_in_time(d) || is_unlisted(p))
			return;
		if (d->options.reconnect_ms && try_once(p, tries))
			return;
		caretaker_nap(p, d->options.reconnect_ms ? (int)pause : -1);
		pause = 2 * pause < most ? 2 * pause : most;
	}
}

/* The first attempt, for which vn_open waits. */
static void begin_path(struct vn_path *p)
{
	try_once(p, 0);
	vn_lock(p->disk);
	p->tried = true;
	pthread_cond_broadcast(&p->disk->cond);
	pthread_mutex_unlock(&p->disk->lock);
}

/* ---- minding ---- */

/* True if a command has waited too long. In a slow network a command far back in the queue waits long while others are
 * answered, but no more of them than fit in the queue twice. */
static bool is_overdue(const struct vn_queue *q, const struct vn_cmd *c, uint64_t now, uint64_t ms)
{
	if (now <= c->since || now - c->since <= ms)
		return false;
	return now - q->moved > ms || q->answers - c->before > 2 * q->depth;
}

/* Breaks connections with overdue commands, or has these aborted. */
static void look_for_silence(struct vn_path *p, struct vn_queue *q, uint64_t now)
{
	uint64_t ms = p->disk->options.io_ms;

	for (unsigned s = 0; ms && s <= q->mask && q->busy; s++)
		if (q->slots[s] && is_overdue(q, q->slots[s], now, ms) &&
		    (!q->transport->abort || !q->transport->abort(q, q->slots[s], now, ms)))
			vn_lost(p);
}

/* What a look at the queues has found: none has commands; some have; one of these has had no answer for a while. */
enum found { IDLE, BUSY, QUIET };

static enum found look_at_queues(struct vn_path *p, uint64_t now)
{
	enum found found = IDLE;

	for (unsigned i = 0; i < p->now.n && p->up; i++) {
		struct vn_queue *q = p->now.io[i];

		if (q->looked != q->answers || !q->busy || !q->moved) {
			q->looked = q->answers;
			q->moved = now;
		}
		if (q->busy && found == IDLE)
			found = BUSY;
		if (now - q->moved >= QUIET_MS)
			found = QUIET;
		look_for_silence(p, q, now);
	}
	return found;
}

/* A caretaker that tries to return to RDMA may wait for a target that has died meanwhile. Another one then ends that.
 * True if there is one. */
static bool look_at_returns(struct vn_path *p, uint64_t now)
{
	struct vn_disk *d = p->disk;
	bool any = false;

	for (unsigned i = 0; i < d->n_paths; i++) {
		struct vn_path *other = &d->paths[i];

		if (other == p || !other->returning)
			continue;
		any = true;
		if (!other->up || look_at_queues(other, now) == QUIET)
			other->leave = true;
	}
	return any;
}

/* Handles requests that are due. Returns when to check again at the latest. */
static uint64_t visit_path(struct vn_path *p, enum found *found)
{
	struct vn_disk *d = p->disk;
	uint64_t now, at, again;

	vn_lock(d);
	now = vn_now(); /* not earlier than any time that another thread has noted */
	*found = look_at_queues(p, now);
	bool often = look_at_returns(p, now) || (vn_several(d) && *found != IDLE);

	at = now + (often ? LOOKS_MS : LOOK_MS);
	vn_review(p, now);
	again = vn_again_at(d);
	pthread_mutex_unlock(&d->lock);
	if (again <= now)
		vn_wake(d);
	else if (again < at)
		at = again;
	return at;
}

static void send_keep_alive(struct vn_path *p)
{
	struct vn_queue *admin = p->now.admin;

	if (admin->transport->keep_alive(admin, vn_patience(p))) {
		vn_queue_break(admin, ETIMEDOUT, "no answer to a keep alive");
		return;
	}
	vn_lock(p->disk);
	p->disk->stats.keep_alives++;
	pthread_mutex_unlock(&p->disk->lock);
}

/* Sends a keep alive if it is time, or if nothing else tells whether the target lives: with several paths that is
 * worth knowing soon. */
static void keep_path_alive(struct vn_path *p, uint64_t every, uint64_t *at, enum found found)
{
	uint64_t now = vn_now();
	bool ask = found == QUIET && vn_several(p->disk) && now - p->probed >= 2 * QUIET_MS;

	if (p->now.admin->error || !(ask || (every && now >= *at)))
		return;
	*at = now + every;
	send_keep_alive(p);
	p->probed = vn_now();
}

static bool is_stale(struct vn_path *p)
{
	vn_lock(p->disk);
	bool stale = p->stale && p->up;

	pthread_mutex_unlock(&p->disk->lock);
	return stale;
}

static bool is_up(struct vn_path *p)
{
	vn_lock(p->disk);
	if (p->now.admin->error)
		vn_lost(p);
	bool up = p->up;

	pthread_mutex_unlock(&p->disk->lock);
	return up;
}

/* Serves the admin queue until it breaks, or another thread reports that an I/O queue has broken. */
static void mind_connection(struct vn_path *p)
{
	struct vn_queue *admin = p->now.admin;
	uint64_t every = p->disk->options.keep_alive_ms / 2, at = vn_now() + every;

	vn_events_begin(&p->now);
	while (!p->disk->stop) {
		struct pollfd f[3];
		enum found found;
		uint64_t until = visit_path(p, &found);
		int n = admin->transport->descriptors(admin, f + 1) + 1;
		eventfd_t x;

		if (every && at < until)
			until = at;
		f[0] = (struct pollfd){.fd = p->care, .events = POLLIN};
		if (!admin->transport->arm(admin))
			poll(f, (nfds_t)n, vn_left(until));
		if (f[0].revents)
			eventfd_read(p->care, &x);
		admin->transport->progress(admin);
		admin->transport->look(p);
		if (!admin->error && is_stale(p))
			vn_ask_access(p);
		keep_path_alive(p, every, &at, found);
		if (!admin->error && vn_return_due(p) && vn_return(p))
			return;
		if (!is_up(p))
			return;
	}
}

/* What the caretaker does next. Under the disk's lock. */
static enum task { BEGIN, MIND, RECONNECT, REST } next_task(struct vn_path *p)
{
	if (p->up)
		return MIND;
	if (p->now.admin) /* its queues may still have commands */
		return RECONNECT;
	if (p->unlisted && !p->parked) {
		p->parked = true;
		vn_follow_now(p->disk); /* another may have waited for the place */
		pthread_cond_broadcast(&p->disk->cond);
	}
	if (p->parked)
		return REST;
	if (!p->tried)
		return BEGIN;
	return p->disk->state == VN_OPEN ? RECONNECT : REST;
}

static void *take_care(void *path)
{
	struct vn_path *p = path;

	while (!p->disk->stop) {
		vn_lock(p->disk);
		enum task task = next_task(p);

		pthread_mutex_unlock(&p->disk->lock);
		if (task == BEGIN)
			begin_path(p);
		else if (task == MIND)
			mind_connection(p);
		else if (task == RECONNECT)
			reconnect_path(p);
		else
			caretaker_nap(p, -1);
	}
	return NULL;
}

int vn_caretaker_start(struct vn_path *p)
{
	int e = pthread_create(&p->caretaker, NULL, take_care, p);

	p->has_caretaker = !e;
	return -e;
}
