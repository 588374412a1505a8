// rbd_gateway.c - keeps the state of the gateways of an image in an object of its pool, in a thread
// follows: backend/gateway.h; the interfaces of librados and librbd in Ceph 16
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/gateway.h"
#include "backend/rbd.h"

/* Limit of the wait for those who are told. It is in whole seconds: for less the OSD takes its default of 30 s. */
#define NOTIFY_MS 1000
#define JOIN_MS 12000      /* limit of joining: it may take the time of two leases */
#define CONFLICTS 20       /* others were faster so often: later */
#define CONFIRMED_MS 30000 /* without news of its lease, a gateway starts no write */

struct nb_rbd_gateway {
	struct nb_rbd *rbd;
	const struct nb_rbd_library *lib;
	rados_t rados;
	rados_ioctx_t io;
	char id[130], object[160], text[NG_TEXT];
	struct ng g; /* of the thread that opens the image, then of the one below */
	uint64_t version;
	struct nb_rbd_watch *watch; /* without it the gateway only learns of changes a moment later */
	pthread_t thread;
	bool has_thread;
	uint64_t confirmed; /* when it last wrote the state, in boot_ms; atomic */
	/* guards what follows; the loop, the thread, and librados' threads take it for a moment */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool woken, broken, wanted, drained, leaving, posted, fresh; /* fresh: there is something for the loop */
	enum ng_role role;
	struct nr_state reservations;
	uint64_t change_number, answered, enforces;
	struct nr_change change;
	enum nr_result result; /* of the change number answered */
	uint32_t port_count, other_count;
	struct nb_port ports[NB_PORTS_OF_ONE], others[NG_PORTS];
	char serves[NB_SERVES];
	struct nb_rbd_joined joined;
	/* of the loop */
	uint64_t changes, heard; /* the numbers of the last change, and of the last that was answered */
	struct nr_state shown;
	struct nb_port shown_others[NG_PORTS];
	struct nb_post post;
};

static uint64_t ms_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t steady_ms(void)
{
	return ms_of(CLOCK_MONOTONIC);
}

/* It goes on while the machine is suspended, as the clocks of the other gateways do. */
static uint64_t boot_ms(void)
{
	return ms_of(CLOCK_BOOTTIME);
}

/* ---- the object ---- */

/* 0, or a negative errno value. There may be none yet: then the state is empty. */
static int read_state(struct nb_rbd_gateway *w)
{
	uint64_t asked = steady_ms();
	struct ng_state s = {0};
	int n = w->lib->rados_read(w->io, w->object, w->text, sizeof(w->text), 0);

	if (n < 0 && n != -ENOENT)
		return n;
	w->version = n < 0 ? 0 : w->lib->rados_get_last_version(w->io);
	if (n >= 0 && !ng_decode(w->text, (size_t)n, &s))
		return -EBADMSG;
	ng_saw(&w->g, &s, asked, steady_ms());
	return 0;
}

/* -ECANCELED: it is not as it was read any more. */
static int write_state(struct nb_rbd_gateway *w)
{
	rados_write_op_t op = w->lib->rados_create_write_op();
	size_t n = ng_encode(&w->g.next, w->text);

	if (w->version)
		w->lib->rados_write_op_assert_version(op, w->version);
	else
		w->lib->rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
	w->lib->rados_write_op_write_full(op, w->text, n);
	/* also in a pool that is full: otherwise all leases would end */
	int error = w->lib->rados_write_op_operate(op, w->io, w->object, NULL, LIBRADOS_OPERATION_FULL_FORCE);

	w->lib->rados_release_write_op(op);
	if (error == -ERANGE || error == -EOVERFLOW || error == -EEXIST || error == -ENOENT)
		return -ECANCELED;
	return error;
}

/* ---- telling others ---- */

/* Called by threads of librados, too. */
static void wake_up(void *arg, bool broken)
{
	struct nb_rbd_gateway *w = arg;

	pthread_mutex_lock(&w->lock);
	w->woken = true;
	w->broken |= broken;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

/* The answers have the clients' addresses. An owner whose address is not among them is perhaps gone. */
static void tell_others(struct nb_rbd_gateway *w)
{
	const char *owner = w->g.seen.owner_client;
	char *reply = NULL;
	size_t n = 0;
	int error = w->lib->rados_notify2(w->io, w->object, NULL, 0, NOTIFY_MS, &reply, &n);

	if ((!error || error == -ETIMEDOUT) && *owner && strcmp(owner, w->g.client) &&
	    !(reply && memmem(reply, n, owner, strlen(owner))))
		strcpy(w->g.silent, owner);
	w->lib->rados_buffer_free(reply);
}

/* ---- taking over ---- */

static int fence(struct nb_rbd_gateway *w)
{
	const struct nb_rbd_gateway_place at = {.lib = w->lib, .rados = w->rados, .id = w->id};
	int error = nb_rbd_fence(&at, w->io, w->g.victim);

	if (!error)
		ng_fenced(&w->g);
	return error;
}

/* ---- one look ---- */

static void publish_ports(struct nb_rbd_gateway *w)
{
	struct nb_port ports[NG_PORTS];
	uint32_t n = ng_others(&w->g, ports);

	if (n == w->other_count && !memcmp(ports, w->others, sizeof(*ports) * n))
		return;
	w->other_count = n;
	memcpy(w->others, ports, sizeof(*ports) * n);
	w->fresh = true;
}

/* To the loop. */
static void publish(struct nb_rbd_gateway *w, enum ng_role role)
{
	pthread_mutex_lock(&w->lock);
	bool changed = w->role != role;

	w->role = role;
	w->fresh |= changed;
	if (role != NG_DRAINING || changed)
		w->drained = w->leaving;
	if (w->reservations.version != w->g.seen.reservations.version) {
		w->reservations = w->g.seen.reservations;
		w->fresh = true;
	}
	publish_ports(w);
	if (w->answered != w->g.answered) {
		w->answered = w->g.answered;
		w->result = w->g.change.result;
		w->fresh = true;
	}
	bool post = w->fresh && !w->posted && w->rbd;

	w->posted |= post;
	pthread_mutex_unlock(&w->lock);
	if (post)
		nb_ring_post(w->rbd->ring, &w->post);
}

static void take_orders(struct nb_rbd_gateway *w)
{
	pthread_mutex_lock(&w->lock);
	bool broken = w->broken;

	if (w->wanted)
		ng_want(&w->g, steady_ms());
	w->g.leaving = w->leaving;
	w->g.drained = w->drained;
	w->g.enforces = w->enforces;
	w->g.port_count = w->port_count;
	memcpy(w->g.ports, w->ports, sizeof(w->ports));
	memcpy(w->g.serves, w->serves, sizeof(w->serves));
	if (w->g.change_number != w->change_number) {
		w->g.change_number = w->change_number;
		w->g.change = w->change;
	}
	w->woken = w->wanted = w->broken = false;
	pthread_mutex_unlock(&w->lock);
	if (w->g.role != NG_JOINING)
		nb_rbd_watch_keep(w->watch, broken);
}

static int act_once(struct nb_rbd_gateway *w, enum ng_act *act)
{
	int error = read_state(w);

	if (error)
		return error;
	*act = ng_decide(&w->g, steady_ms());
	publish(w, w->g.role);
	if (*act == NG_FENCE) {
		if ((error = fence(w)))
			return error;
		*act = ng_decide(&w->g, steady_ms());
	}
	if (*act != NG_WRITE)
		return 0;
	bool news = w->g.news;
	uint64_t before = boot_ms(); /* others see the write later: this gateway ends its lease before they do */

	if ((error = write_state(w)))
		return error;
	ng_wrote(&w->g, steady_ms());
	__atomic_store_n(&w->confirmed, before, __ATOMIC_RELEASE);
	publish(w, w->g.role);
	if (news)
		tell_others(w);
	return 0;
}

static int look_once(struct nb_rbd_gateway *w, enum ng_act *act)
{
	int error = -ECANCELED;

	take_orders(w);
	for (int i = 0; i < CONFLICTS && error == -ECANCELED; i++)
		error = act_once(w, act);
	return error;
}

static void nap(struct nb_rbd_gateway *w, uint32_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&w->lock);
	while (!w->woken && !pthread_cond_timedwait(&w->wake, &w->lock, &until))
		;
	pthread_mutex_unlock(&w->lock);
}

static void *stay_among_others(void *arg)
{
	struct nb_rbd_gateway *w = arg;
	enum ng_act act = NG_WAIT;

	while (w->g.role != NG_LEFT && w->g.role != NG_OUT) {
		int error = look_once(w, &act);

		if (error == -ESHUTDOWN) { /* the cluster has blocklisted this connection */
			publish(w, NG_OUT);
			break;
		}
		if (error && w->g.leaving)
			break;
		if (w->g.role != NG_LEFT && w->g.role != NG_OUT)
			nap(w, ng_pause(&w->g, steady_ms()));
	}
	return NULL;
}

/* ---- the loop's side ---- */

static void show(struct nb_rbd_gateway *w, struct nb_backend *b)
{
	if (w->shown.version != w->reservations.version)
		w->shown = w->reservations;
	memcpy(w->shown_others, w->others, sizeof(*w->others) * w->other_count);
	b->reservations = &w->shown;
	b->others = w->shown_others;
	b->other_count = w->other_count;
}

void nb_rbd_gateway_show(struct nb_rbd_gateway *w, struct nb_backend *b)
{
	pthread_mutex_lock(&w->lock);
	show(w, b);
	pthread_mutex_unlock(&w->lock);
}

static void take_role(struct nb_post *p)
{
	struct nb_rbd_gateway *w =
	        (struct nb_rbd_gateway *)(void *)((uint8_t *)p - offsetof(struct nb_rbd_gateway, post));
	static const enum nb_access accesses[] = {
	        [NG_OWNER] = NB_HERE, [NG_STANDBY] = NB_OTHER, [NG_DRAINING] = NB_OTHER, [NG_LEFT] = NB_OTHER,
	        [NG_OUT] = NB_OTHER,  [NG_JOINING] = NB_OTHER, [NG_MOVING] = NB_MOVING};

	struct nb_backend *b = &w->rbd->b;

	pthread_mutex_lock(&w->lock);
	enum ng_role role = w->role;
	enum nr_result result = w->result;
	bool answered = w->change_number && w->answered == w->change_number && w->heard != w->answered,
	     reserved = w->shown.version != w->reservations.version,
	     ports = b->other_count != w->other_count ||
	             memcmp(w->shown_others, w->others, sizeof(*w->others) * w->other_count);

	w->posted = w->fresh = false;
	w->heard = w->answered;
	show(w, b);
	pthread_mutex_unlock(&w->lock);
	if (ports && b->changed)
		b->changed(b, NB_PORTS);
	if (reserved && b->changed) /* before this gateway writes */
		b->changed(b, NB_RESERVED);
	else if (reserved)
		nb_rbd_reserved(b, b->reservations->version);
	if (answered)
		nb_rbd_change_answered(w->rbd, result);
	nb_rbd_access(w->rbd, accesses[role], role == NG_DRAINING, role == NG_OUT);
}

void nb_rbd_gateway_change(struct nb_rbd_gateway *w, const struct nr_change *c)
{
	pthread_mutex_lock(&w->lock);
	w->change = *c;
	w->change_number = ++w->changes;
	w->woken = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void nb_rbd_gateway_forget(struct nb_rbd_gateway *w)
{
	pthread_mutex_lock(&w->lock);
	w->change_number = 0;
	pthread_mutex_unlock(&w->lock);
}

void nb_rbd_gateway_enforces(struct nb_rbd_gateway *w, uint64_t version)
{
	pthread_mutex_lock(&w->lock);
	w->enforces = version;
	w->woken = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void nb_rbd_gateway_announce(struct nb_rbd_gateway *w, const struct nb_port *ports, uint32_t count)
{
	pthread_mutex_lock(&w->lock);
	w->woken |= count != w->port_count || memcmp(w->ports, ports, sizeof(*ports) * count);
	memset(w->ports, 0, sizeof(w->ports));
	memcpy(w->ports, ports, sizeof(*ports) * count);
	w->port_count = count;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void nb_rbd_gateway_serves(struct nb_rbd_gateway *w, const char *serves)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->serves, sizeof(w->serves), "%s", serves);
	w->woken = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void nb_rbd_gateway_drained(struct nb_rbd_gateway *w)
{
	pthread_mutex_lock(&w->lock);
	w->drained = w->role == NG_DRAINING;
	w->woken = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
}

void nb_rbd_gateway_want(struct nb_rbd_gateway *w)
{
	pthread_mutex_lock(&w->lock);
	if (!w->wanted) {
		w->wanted = w->woken = true;
		pthread_cond_signal(&w->wake);
	}
	pthread_mutex_unlock(&w->lock);
}

bool nb_rbd_gateway_current(const struct nb_rbd_gateway *w)
{
	return boot_ms() < __atomic_load_n(&w->confirmed, __ATOMIC_ACQUIRE) + CONFIRMED_MS;
}

bool nb_rbd_gateway_in_lease(const struct nb_rbd_gateway *w)
{
	return boot_ms() < __atomic_load_n(&w->confirmed, __ATOMIC_ACQUIRE) + NG_LEASE_MS;
}

const char *nb_rbd_gateway_client(const struct nb_rbd_gateway *w)
{
	return w->g.client;
}

/* ---- joining and leaving ---- */

static struct nb_rbd_gateway *new_gateway(void)
{
	struct nb_rbd_gateway *w = calloc(1, sizeof(*w));
	pthread_condattr_t a;

	if (!w)
		return NULL;
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &a);
	pthread_condattr_destroy(&a);
	w->post.run = take_role;
	return w;
}

void nb_rbd_gateway_free(struct nb_rbd_gateway *w)
{
	if (!w)
		return;
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static int take_client(struct nb_rbd_gateway *w, const char *name, const char *before)
{
	char *address;
	int error = w->lib->rados_getaddrs(w->rados, &address);

	if (error)
		return error;
	bool fits = strlen(address) < NG_CLIENT && strlen(name) < NG_NAME;

	if (fits) {
		strcpy(w->g.client, address);
		strcpy(w->g.name, name);
	}
	if (before && strlen(before) < NG_CLIENT)
		strcpy(w->g.before, before);
	w->lib->rados_buffer_free(address);
	return fits ? 0 : -ENAMETOOLONG;
}

/* An earlier opening of this program, which leaves when the cluster has answered its last request, has the name. True:
 * this one waits for it, and takes its place. */
static bool follows_ours(struct nb_rbd_gateway *w, char ours[NG_CLIENT])
{
	const struct ng_gateway *has = ng_find(&w->g.seen, w->g.name);

	if (!has)
		return false;
	if (nb_rbd_joined_ending(w->object, w->g.name, has->client))
		memcpy(ours, has->client, NG_CLIENT);
	else if (*ours && !strcmp(has->client, ours)) /* it could not say that it leaves */
		memcpy(w->g.before, ours, NG_CLIENT);
	else
		return false;
	return true;
}

static int join_in_time(struct nb_rbd_gateway *w)
{
	uint64_t until = steady_ms() + JOIN_MS;
	char ours[NG_CLIENT] = "";

	while (steady_ms() < until) {
		enum ng_act act = NG_WAIT;
		int error = look_once(w, &act);

		if (error && error != -ECANCELED)
			return error;
		if (act == NG_TAKEN && follows_ours(w, ours)) {
			nap(w, 200);
			continue;
		}
		if (act == NG_TAKEN || act == NG_FULL || act == NG_DIFFERS)
			return act == NG_TAKEN ? -EADDRINUSE : act == NG_FULL ? -EMFILE : -EMEDIUMTYPE;
		if (w->g.role != NG_JOINING)
			return 0;
		nap(w, 200);
	}
	return *ours ? -EALREADY : -ETIMEDOUT;
}

static void explain(struct nb_rbd_gateway *w, int error, char *why)
{
	if (error == -EADDRINUSE)
		snprintf(why, NB_WHY, "another target is the gateway %s of this image", w->g.name);
	else if (error == -EALREADY)
		snprintf(why, NB_WHY, "its earlier opening by this target still waits for the cluster");
	else if (error == -EMFILE)
		snprintf(why, NB_WHY, "this image has %u gateways already", NG_GATEWAYS);
	else if (error == -EMEDIUMTYPE)
		ng_tell_difference(&w->g, why, NB_WHY);
	else if (error == -EBADMSG)
		snprintf(why, NB_WHY, "the object %s has contents that no gateway writes", w->object);
	else
		snprintf(why, NB_WHY, "the object %s: %s", w->object, strerror(-error));
}

int nb_rbd_gateway_join(const struct nb_rbd_gateway_place *at, const char *name, const char *before, const char *serves,
                        struct nb_rbd_gateway **out, uint32_t *part, char *why)
{
	struct nb_rbd_gateway *w = new_gateway();

	if (!w)
		return -ENOMEM;
	w->lib = at->lib;
	w->rados = at->rados;
	snprintf(w->id, sizeof(w->id), "%.128s", at->id);
	snprintf(w->object, sizeof(w->object), "verbena.gateways.%.128s", at->id);
	int error = w->lib->rados_ioctx_create(w->rados, at->pool, &w->io);

	if (error) {
		nb_rbd_gateway_free(w);
		return error;
	}
	if (at->space)
		w->lib->rados_ioctx_set_namespace(w->io, at->space);
	w->lib->rados_set_pool_full_try(w->io); /* a lock is broken also in a pool that is full */
	snprintf(w->serves, sizeof(w->serves), "%s", serves);
	error = take_client(w, name, before);
	const struct nb_rbd_watched watched = {w->lib, w->rados, w->io, w->object, w->g.client};

	if (!error && !(w->watch = nb_rbd_watch_new(&watched, wake_up, w)))
		error = -ENOMEM;
	if (!error)
		error = join_in_time(w);
	if (!error) {
		*part = ng_find(&w->g.seen, name)->slot;
		w->reservations = w->g.seen.reservations;
		w->enforces = w->reservations.version; /* nothing was admitted yet, and the first request finds it */
		*out = w;
		w->joined = (struct nb_rbd_joined){.object = w->object, .name = w->g.name, .client = w->g.client};
		nb_rbd_joined_add(&w->joined);
		return 0;
	}
	explain(w, error, why);
	if (w->watch)
		nb_rbd_watch_end(w->watch);
	else
		w->lib->rados_ioctx_destroy(w->io);
	nb_rbd_gateway_free(w);
	return error;
}

int nb_rbd_gateway_start(struct nb_rbd_gateway *w, struct nb_rbd *r)
{
	w->rbd = r;
	int error = pthread_create(&w->thread, NULL, stay_among_others, w);

	w->has_thread = !error;
	return error;
}

void nb_rbd_gateway_ends(struct nb_rbd_gateway *w)
{
	nb_rbd_joined_ends(&w->joined);
}

/* Nothing is at librbd any more. */
void nb_rbd_gateway_leave(struct nb_rbd_gateway *w)
{
	enum ng_act act = NG_WAIT;

	pthread_mutex_lock(&w->lock);
	w->leaving = w->drained = w->woken = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	if (w->has_thread)
		pthread_join(w->thread, NULL);
	else
		look_once(w, &act);
	nb_rbd_joined_remove(&w->joined);
	nb_rbd_watch_end(w->watch);
}
