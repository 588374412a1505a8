// gsi.c - queue pair 1 for a program, through the broker
// follows: IBA volume 1, 12 (communication management), 13.5 (general services); broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "node/gsi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/proto/proto.h"
#include "capture/capture.h"
#include "node/io.h"
#include "util/calls.h"
#include "util/log.h"
#include "util/timespec.h"
#include "util/units.h"

#define EXPORT __attribute__((visibility("default")))
#define ANSWER_S 10 /* seconds to wait for an answer: a lost broker is replaced, and has its sockets, before that */
#define BUCKETS 256
#define PORT_WAIT_MS 10000 /* as at RTR: even on a very busy machine the keeper answers within this time */
/* A program that has bound this many ephemeral ports at one address in a row, which clients with many connections do,
 * gets the next ones in advance: as many as it has bound, at most SPARES_MAX. */
#define SPARES_AFTER 4u
#define SPARES_MAX 16u

/* The answer that a thread waits for. */
enum awaited { AWAITS_NOTHING, AWAITS_BIND, AWAITS_LISTEN, AWAITS_UNBIND };

struct binding {
	struct binding *next;
	struct vb_msg_cm_bind msg; /* the message for each new broker, with the bound port and whether it listens */
	enum awaited awaited;
	int err; /* the answer */
};

struct vb_gsi_client {
	const struct vb_gsi_client_ops *ops;
	void *own;
	struct vb_node *node;
	pid_t owner;
	pthread_mutex_t lock; /* guards the bindings. Callbacks run without it */
	pthread_cond_t answered;
	uint32_t last_id;
	struct binding *bindings[BUCKETS];
	struct vb_msg_cm_bind like; /* the last bindings to ephemeral ports were of this kind; id and port are 0 */
	unsigned in_a_row;          /* so many of them, at most SPARES_MAX */
	uint32_t spare[SPARES_MAX]; /* ids of such bindings that nobody uses yet, the oldest first */
	unsigned nspare;
};

static bool client_is_ours(const struct vb_gsi_client *q)
{
	return q->owner == getpid();
}

/* ---- open and close ---- */

static struct vb_gsi_client *client_new(const struct vb_gsi_client_ops *ops, void *own)
{
	struct vb_gsi_client *q = calloc(1, sizeof(*q));
	pthread_condattr_t attr;

	if (!q)
		return NULL;
	q->ops = ops;
	q->own = own;
	q->owner = getpid();
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->answered, &attr);
	pthread_condattr_destroy(&attr);
	return q;
}

static void client_free(struct vb_gsi_client *q)
{
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct binding *b = q->bindings[i], *next; b; b = next) {
			next = b->next;
			free(b);
		}
	}
	if (client_is_ours(q)) { /* in a child, a thread of the parent may have held them */
		pthread_cond_destroy(&q->answered);
		pthread_mutex_destroy(&q->lock);
	}
	free(q);
}

static void post_head(struct vb_gsi_client *q, uint8_t type)
{
	struct vb_msg_head m;

	vb_broker_post(q->node->io->broker, type, &m, sizeof(m), false);
}

EXPORT int vb_gsi_client_open(const struct vb_gsi_client_ops *ops, void *own, struct vb_gsi_client **out)
{
	struct vb_gsi_client *q = client_new(ops, own);
	int err = q ? vb_node_get(&q->node) : ENOMEM;

	if (err) {
		free(q);
		return err;
	}
	struct vb_io *io = q->node->io;

	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	if (io->gsi)
		err = EBUSY;
	else
		io->gsi = q;
	vb_mutex_unlock(&io->meet_lock);
	if (err) {
		vb_node_put(q->node);
		client_free(q);
		return err;
	}
	post_head(q, VB_MSG_CM_OPEN);
	*out = q;
	return 0;
}

EXPORT void vb_gsi_client_close(struct vb_gsi_client *q)
{
	struct vb_node *node = q->node;
	struct vb_io *io = node->io;

	if (client_is_ours(q)) {
		vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
		io->gsi = NULL;
		VB_MAY_WAIT();
		while (io->gsi_calling)
			pthread_cond_wait(&io->meet_cond, &io->meet_lock);
		vb_mutex_unlock(&io->meet_lock);
		atomic_store(&io->gsi_at, 0);
		post_head(q, VB_MSG_CM_CLOSE);
	}
	client_free(q);
	vb_node_put(node); /* does nothing for a parent's node */
}

EXPORT uint32_t vb_gsi_client_lane(const struct vb_gsi_client *q)
{
	return q->node->lane;
}

EXPORT uint64_t vb_gsi_client_now(void)
{
	return vb_now();
}

/* ---- the progress thread ---- */

/* Begins a callback. vb_gsi_client_close waits until end(). Returns NULL if there is no client. */
static struct vb_gsi_client *begin_callback(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	struct vb_gsi_client *q = io->gsi;
	io->gsi_calling = q != NULL;
	vb_mutex_unlock(&io->meet_lock);
	return q;
}

static void end_callback(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	io->gsi_calling = false;
	pthread_cond_broadcast(&io->meet_cond);
	vb_mutex_unlock(&io->meet_lock);
}

void vb_gsi_on_mad(struct vb_node *node, const struct vb_msg_cm_mad *m)
{
	struct vb_gsi_client *q = begin_callback(node);

	if (!q)
		return;
	if (vb_capturing())
		vb_capture_mad(&(struct vb_capture_of){.direction = VB_CAPTURE_IN, .time = vb_capture_now(), .qpn = 1},
		               m->remote, m->local, m->mad, sizeof(m->mad));
	VB_HOLDS_NO_LOCK();
	q->ops->mad(q->own, m->local, m->remote, m->ifindex, m->mad, sizeof(m->mad));
	end_callback(node);
}

void vb_gsi_on_time(struct vb_node *node)
{
	uint64_t at = atomic_load(&node->io->gsi_at);

	if (!at)
		return;
	uint64_t now = vb_now();

	if (now < at || !atomic_compare_exchange_strong(&node->io->gsi_at, &at, 0))
		return;
	struct vb_gsi_client *q = begin_callback(node);
	if (!q)
		return;
	VB_HOLDS_NO_LOCK();
	q->ops->timeout(q->own, now);
	end_callback(node);
}

EXPORT void vb_gsi_client_timer(struct vb_gsi_client *q, uint64_t at)
{
	if (!client_is_ours(q))
		return;
	atomic_store(&q->node->io->gsi_at, at);
	/* Whoever owns progress, because a poller does not do this work. The progress thread itself looks at the timer
	 * before it sleeps. */
	if (at && at < atomic_load(&q->node->sleep_until) && !pthread_equal(pthread_self(), q->node->io->thread))
		vb_progress_wake(q->node);
}

/* ---- datagrams ---- */

EXPORT void vb_gsi_client_send(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16],
                               uint32_t ifindex, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_msg_cm_mad m = {.ifindex = ifindex};

	if (!client_is_ours(q))
		return;
	memcpy(m.local, local, sizeof(m.local));
	memcpy(m.remote, remote, sizeof(m.remote));
	memcpy(m.mad, mad, sizeof(m.mad));
	if (vb_capturing())
		vb_capture_mad(&(struct vb_capture_of){.direction = VB_CAPTURE_OUT, .time = vb_capture_now(), .qpn = 1},
		               local, remote, mad, VB_MAD_LEN);
	vb_broker_post(q->node->io->broker, VB_MSG_CM_SEND, &m, sizeof(m), false);
}

EXPORT void vb_gsi_client_at_death(struct vb_gsi_client *q, const uint8_t local[16], const uint8_t remote[16],
                                   uint32_t ifindex, uint32_t local_id, uint32_t remote_id, uint32_t remote_qpn)
{
	struct vb_msg_cm_at_death m = {
	        .ifindex = ifindex, .local_id = local_id, .remote_id = remote_id, .remote_qpn = remote_qpn};

	if (!client_is_ours(q))
		return;
	memcpy(m.local, local, sizeof(m.local));
	memcpy(m.remote, remote, sizeof(m.remote));
	vb_broker_post(q->node->io->broker, VB_MSG_CM_AT_DEATH, &m, sizeof(m), false);
}

/* ---- bindings ---- */

static struct binding **place_of(struct vb_gsi_client *q, uint32_t id)
{
	struct binding **at = &q->bindings[id % BUCKETS];

	while (*at && (*at)->msg.id != id)
		at = &(*at)->next;
	return at;
}

static void binding_answer(struct binding *b, int err)
{
	b->awaited = AWAITS_NOTHING;
	b->err = err;
}

/* Under lock. */
static void take_reply(struct binding *b, const struct vb_msg_service_reply *m)
{
	if (!m->err && m->port)
		b->msg.port = m->port;
	if (b->awaited == AWAITS_BIND || b->awaited == AWAITS_UNBIND) {
		binding_answer(b, m->err);
	} else if (b->awaited == AWAITS_LISTEN && (m->listening || (m->err && m->err != ENOENT))) {
		binding_answer(b, m->err); /* ENOENT: the broker is new, and is being told */
	} else if (m->err && m->err != ENOENT && b->awaited == AWAITS_NOTHING) {
		vb_log(VB_LOG_WARN, "port %u was taken by another program while the broker was away", b->msg.port);
	}
}

void vb_gsi_on_service_reply(struct vb_node *node, const struct vb_msg_service_reply *m)
{
	struct vb_gsi_client *q = begin_callback(node);

	if (!q)
		return;
	vb_mutex_lock(&q->lock, VB_RANK_GSI);
	struct binding *b = *place_of(q, m->id);
	if (b) {
		take_reply(b, m);
		pthread_cond_broadcast(&q->answered);
	}
	vb_mutex_unlock(&q->lock);
	if (m->listening && m->no_socket)
		vb_roce_bring_up(node, 0); /* the refusal tells why */
	end_callback(node);
}

/* Under lock. Another program may have a spare's port by now, so the new broker chooses one. */
static void spares_renew(struct vb_gsi_client *q)
{
	for (unsigned i = 0; i < q->nspare; i++) {
		struct binding *b = *place_of(q, q->spare[i]);

		b->msg.port = 0;
		b->awaited = AWAITS_BIND;
	}
}

void vb_gsi_on_reattached(struct vb_node *node)
{
	struct vb_gsi_client *q = begin_callback(node);

	if (!q)
		return;
	post_head(q, VB_MSG_CM_OPEN);
	vb_mutex_lock(&q->lock, VB_RANK_GSI);
	spares_renew(q);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct binding *b = q->bindings[i]; b; b = b->next) {
			if (b->awaited == AWAITS_UNBIND) /* this broker does not know it */
				binding_answer(b, 0);
			else
				vb_broker_post(node->io->broker, VB_MSG_CM_BIND, &b->msg, sizeof(b->msg), false);
		}
	pthread_cond_broadcast(&q->answered);
	vb_mutex_unlock(&q->lock);
	VB_HOLDS_NO_LOCK();
	if (q->ops->again)
		q->ops->again(q->own);
	vb_log(VB_LOG_DEBUG, "queue pair 1: a broker that is new has been told of all bindings and connections");
	end_callback(node);
}

/* Waits for the answer about a binding. Under lock, which is released during the wait. Returns the answer, ETIMEDOUT,
 * or ECANCELED if the binding was removed. */
static int binding_await(struct vb_gsi_client *q, uint32_t id)
{
	struct timespec until = vb_timespec_after(VB_S(ANSWER_S));
	struct binding *b;
	int err = 0;

	VB_MAY_WAIT();
	while ((b = *place_of(q, id)) && b->awaited != AWAITS_NOTHING && !err)
		err = pthread_cond_timedwait(&q->answered, &q->lock, &until);
	if (!b)
		return ECANCELED;
	if (b->awaited != AWAITS_NOTHING)
		binding_answer(b, ETIMEDOUT);
	return b->err;
}

/* Under lock. */
static void post_id(struct vb_gsi_client *q, uint8_t type, uint32_t id)
{
	struct vb_msg_cm_binding m = {.id = id};

	vb_broker_post(q->node->io->broker, type, &m, sizeof(m), false);
}

/* Under lock. */
static void binding_erase(struct vb_gsi_client *q, uint32_t id)
{
	struct binding **at = place_of(q, id), *b = *at;

	*at = b->next;
	free(b);
	pthread_cond_broadcast(&q->answered);
}

/* Under lock. */
static void forget_binding(struct vb_gsi_client *q, uint32_t id)
{
	if (!*place_of(q, id))
		return;
	binding_erase(q, id);
	post_id(q, VB_MSG_CM_UNBIND, id);
}

/* Under lock. Waits until the broker has read UNBIND, because our program may tell another one that it can listen there
 * now. The broker answers the LISTEN that follows with ENOENT. */
static void stop_listening(struct vb_gsi_client *q, uint32_t id)
{
	(*place_of(q, id))->awaited = AWAITS_UNBIND;
	post_id(q, VB_MSG_CM_UNBIND, id);
	post_id(q, VB_MSG_CM_LISTEN, id);
	if (binding_await(q, id) != ECANCELED)
		binding_erase(q, id);
}

/* A thread is not cancelled while it waits for the broker, because it holds the lock and has unfinished work. */
static int enter_call(struct vb_gsi_client *q)
{
	int cancel;

	vb_cancel_defer(&cancel);
	vb_mutex_lock(&q->lock, VB_RANK_GSI);
	return cancel;
}

static void leave_call(struct vb_gsi_client *q, int cancel)
{
	vb_mutex_unlock(&q->lock);
	vb_cancel_restore(cancel);
}

/* Under lock. Sends the broker a new binding like this one. Returns its id, or 0 without memory. */
static uint32_t binding_request(struct vb_gsi_client *q, const struct vb_msg_cm_bind *like)
{
	struct binding *b = calloc(1, sizeof(*b));

	if (!b)
		return 0;
	b->msg = *like;
	b->awaited = AWAITS_BIND;
	do
		b->msg.id = ++q->last_id;
	while (!b->msg.id || *place_of(q, b->msg.id));
	*place_of(q, b->msg.id) = b;
	/* if there is no broker now, vb_gsi_on_reattached sends the message */
	vb_broker_post(q->node->io->broker, VB_MSG_CM_BIND, &b->msg, sizeof(b->msg), false);
	return b->msg.id;
}

/* Under lock. Waits for the broker's answer. A binding that was refused is forgotten. */
static int binding_result(struct vb_gsi_client *q, uint32_t id, uint16_t *port)
{
	int err = id ? binding_await(q, id) : ENOMEM;

	if (!err)
		*port = (*place_of(q, id))->msg.port;
	else if (id)
		forget_binding(q, id);
	return err;
}

/* Under lock. */
static void spares_drop(struct vb_gsi_client *q)
{
	while (q->nspare)
		forget_binding(q, q->spare[--q->nspare]);
}

/* Under lock. Notes that the program binds an ephemeral port. */
static void count_in_a_row(struct vb_gsi_client *q, const struct vb_msg_cm_bind *like)
{
	if (!memcmp(&q->like, like, sizeof(*like))) {
		q->in_a_row += q->in_a_row < SPARES_MAX;
		return;
	}
	spares_drop(q);
	q->like = *like;
	q->in_a_row = 1;
}

static uint32_t spare_take(struct vb_gsi_client *q)
{
	uint32_t id = q->nspare ? q->spare[0] : 0;

	if (id)
		memmove(q->spare, q->spare + 1, --q->nspare * sizeof(q->spare[0]));
	return id;
}

/* Under lock. Half of the spares at once, so that the broker and this process wake once for several of them. */
static void spares_request(struct vb_gsi_client *q)
{
	if (q->in_a_row < SPARES_AFTER || q->nspare > q->in_a_row / 2)
		return;
	while (q->nspare < q->in_a_row) {
		uint32_t id = binding_request(q, &q->like);

		if (!id)
			return;
		q->spare[q->nspare++] = id;
	}
}

/* Under lock. A spare that the broker refused is replaced by a binding of its own. */
static int bind_ephemeral(struct vb_gsi_client *q, const struct vb_msg_cm_bind *like, uint16_t *port, uint32_t *id)
{
	int err = EAGAIN;

	count_in_a_row(q, like);
	*id = spare_take(q);
	spares_request(q);
	if (*id)
		err = binding_result(q, *id, port);
	if (err && err != ETIMEDOUT) {
		*id = binding_request(q, like);
		err = binding_result(q, *id, port);
	}
	return err;
}

EXPORT int vb_gsi_client_bind(struct vb_gsi_client *q, uint16_t port_space, const uint8_t local[16], bool v4_only,
                              bool v6_only, uint32_t ifindex, uint16_t *port, bool reuse, uint32_t *binding)
{
	struct vb_msg_cm_bind like;
	uint32_t id;
	int err;

	if (!client_is_ours(q))
		return EINVAL;
	memset(&like, 0, sizeof(like)); /* with its padding, for memcmp */
	like.ifindex = ifindex;
	like.port_space = port_space;
	like.port = *port;
	like.v4_only = v4_only;
	like.reuse = reuse;
	like.v6_only = v6_only;
	memcpy(like.local, local, sizeof(like.local));
	int cancel = enter_call(q);
	if (*port || reuse) {
		id = binding_request(q, &like);
		err = binding_result(q, id, port);
		if ((err == EADDRINUSE || err == ENOSPC) && q->nspare) { /* a spare may be in the way */
			spares_drop(q);
			q->in_a_row = 0;
			id = binding_request(q, &like);
			err = binding_result(q, id, port);
		}
	} else {
		err = bind_ephemeral(q, &like, port, &id);
	}
	if (!err)
		*binding = id;
	leave_call(q, cancel);
	return err;
}

EXPORT int vb_gsi_client_port(struct vb_gsi_client *q)
{
	return client_is_ours(q) && vb_roce_bring_up(q->node, PORT_WAIT_MS) == EADDRINUSE ? EADDRINUSE : 0;
}

EXPORT int vb_gsi_client_change(struct vb_gsi_client *q, uint32_t binding, bool v6_only, bool reuse)
{
	int err = EINVAL;

	if (!client_is_ours(q))
		return err;
	int cancel = enter_call(q);
	struct binding *b = *place_of(q, binding);
	if (b && !b->msg.listen && b->awaited == AWAITS_NOTHING) {
		b->msg.v6_only = v6_only;
		b->msg.reuse = reuse;
		b->awaited = AWAITS_BIND;
		vb_broker_post(q->node->io->broker, VB_MSG_CM_BIND, &b->msg, sizeof(b->msg), false);
		err = binding_await(q, binding);
	}
	leave_call(q, cancel);
	return err;
}

EXPORT int vb_gsi_client_listen(struct vb_gsi_client *q, uint32_t binding)
{
	int err = EINVAL;

	if (!client_is_ours(q))
		return err;
	int cancel = enter_call(q);
	struct binding *b = *place_of(q, binding);
	if (b && !b->msg.listen) {
		b->msg.listen = true;
		b->awaited = AWAITS_LISTEN;
		post_id(q, VB_MSG_CM_LISTEN, binding);
		err = binding_await(q, binding);
		b = *place_of(q, binding);
		if (b)
			b->msg.listen = !err;
	} else if (b) {
		err = 0;
	}
	leave_call(q, cancel);
	return err;
}

EXPORT void vb_gsi_client_unbind(struct vb_gsi_client *q, uint32_t binding)
{
	if (!client_is_ours(q))
		return;
	int cancel = enter_call(q);
	struct binding *b = *place_of(q, binding);
	if (b && b->msg.listen && b->awaited == AWAITS_NOTHING)
		stop_listening(q, binding);
	else
		forget_binding(q, binding);
	leave_call(q, cancel);
}
