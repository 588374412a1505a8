// ways.c - the ways from our port through the fabric: questions to the fabric process, and its answers
// see: fabric/proto/proto.h, docs/infiniband.md
// SPDX-License-Identifier: MIT
#include "path/ib/ib.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "util/calls.h"
#include "util/log.h"
#include "util/timespec.h"
#include "util/units.h"

static bool routes_equal(const struct vb_ib_route *a, const struct vb_ib_route *b)
{
	return a->dlid == b->dlid && a->pkey == b->pkey && a->path_bits == b->path_bits && a->sl == b->sl &&
	       a->grh == b->grh && a->both == b->both && !memcmp(&a->dgid, &b->dgid, sizeof(a->dgid));
}

static struct vb_ib_way **bucket_of(struct vb_ib_host *host, const struct vb_ib_route *r)
{
	return &host->hash[(r->dlid ^ (uint32_t)r->pkey << 3 ^ r->path_bits) % VB_IB_HASH];
}

/* Under questions_lock. */
static void note_unsent(struct vb_ib_host *host, struct vb_ib_way *w)
{
	if (w->unsent)
		return;
	w->unsent = true;
	w->next_unsent = host->unsent;
	host->unsent = w;
	atomic_store(&host->talks, true);
}

/* The known way, or `spare`, which it takes. NULL: there are too many. Under questions_lock. */
static struct vb_ib_way *find_or_add(struct vb_ib_host *host, const struct vb_ib_route *route, struct vb_ib_way **spare)
{
	struct vb_ib_way **bucket = bucket_of(host, route), *w = *bucket;

	while (w && !routes_equal(&w->route, route))
		w = w->next;
	if (w || host->tags == VB_FABRIC_WAYS)
		return w;
	w = *spare;
	*spare = NULL;
	w->route = *route;
	w->tag = host->tags++;
	w->sent = vb_ib_sent_by(host, w->tag);
	w->next = *bucket;
	*bucket = w;
	host->by_tag[w->tag] = w;
	return w;
}

static bool is_answered(struct vb_io *io, const struct vb_ib_way *w)
{
	vb_lock(&io->questions_lock);
	bool answered = w->answered;
	vb_unlock(&io->questions_lock);
	return answered;
}

static void await_answer(struct vb_io *io, const struct vb_ib_way *w, unsigned wait_ms)
{
	struct timespec until = vb_timespec_after(VB_MS(wait_ms));

	VB_MAY_WAIT();
	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	while (!is_answered(io, w))
		if (pthread_cond_timedwait(&io->meet_cond, &io->meet_lock, &until))
			break;
	vb_mutex_unlock(&io->meet_lock);
}

struct vb_ib_way *vb_ib_way_get(struct vb_node *node, const struct vb_ib_route *route, unsigned wait_ms)
{
	struct vb_io *io = node->io;
	struct vb_ib_host *host = io->ib;
	struct vb_ib_way *spare = host && host->by_tag ? calloc(1, sizeof(*spare)) : NULL;

	if (!spare)
		return NULL;
	vb_lock(&io->questions_lock);
	struct vb_ib_way *w = find_or_add(host, route, &spare);

	if (w && !w->users++ && host->alive) {
		w->asked = true;
		w->answered = false;
		note_unsent(host, w);
	}
	vb_unlock(&io->questions_lock);
	free(spare);
	if (!w)
		return NULL;
	vb_ib_ways_send(host);
	if (wait_ms && host->alive)
		await_answer(io, w, wait_ms);
	return w;
}

void vb_ib_way_put(struct vb_node *node, struct vb_ib_way *w)
{
	vb_lock(&node->io->questions_lock);
	if (!--w->users) {
		w->asked = false;
		atomic_store(&w->open, false);
		note_unsent(node->io->ib, w);
	}
	vb_unlock(&node->io->questions_lock);
}

unsigned vb_ib_way_why(struct vb_node *node, const struct vb_ib_way *w)
{
	vb_lock(&node->io->questions_lock);
	unsigned why = w->answered ? w->why : VB_WAYS;
	vb_unlock(&node->io->questions_lock);
	return why;
}

void vb_ib_way_address(struct vb_node *node, const struct vb_ib_way *w, union ibv_gid *address)
{
	vb_lock(&node->io->questions_lock);
	*address = w->address;
	vb_unlock(&node->io->questions_lock);
}

/* --- what the fabric process says --- */

static void tell_waiters(struct vb_io *io)
{
	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	pthread_cond_broadcast(&io->meet_cond);
	vb_mutex_unlock(&io->meet_lock);
}

void vb_ib_way_told(struct vb_ib_host *host, const struct vb_fabric_way_is *is)
{
	struct vb_io *io = host->node->io;

	vb_lock(&io->questions_lock);
	struct vb_ib_way *w = is->tag < VB_FABRIC_WAYS ? host->by_tag[is->tag] : NULL;

	if (!w) {
		vb_unlock(&io->questions_lock);
		return;
	}
	if (is->why == VB_WAY_OPEN && memcmp(&w->address, is->address, sizeof(w->address)) != 0) {
		memcpy(&w->address, is->address, sizeof(w->address));
		atomic_fetch_add(&w->turn, 1);
	}
	w->why = is->why < VB_WAYS ? (uint8_t)is->why : VB_WAY_NO_LINK;
	w->answered = true;
	atomic_store(&w->slid, is->slid);
	atomic_store(&w->path_bits, is->path_bits & 0x7f);
	atomic_store(&w->open, w->asked && is->why == VB_WAY_OPEN);
	vb_unlock(&io->questions_lock);
	tell_waiters(io);
}

void vb_ib_ways_close(struct vb_ib_host *host)
{
	struct vb_io *io = host->node->io;

	vb_lock(&io->questions_lock);
	for (uint32_t i = 0; i < host->tags; i++) {
		host->by_tag[i]->answered = true;
		host->by_tag[i]->why = VB_WAY_NO_LINK;
		atomic_store(&host->by_tag[i]->open, false);
	}
	vb_unlock(&io->questions_lock);
	tell_waiters(io);
}

/* --- what we say --- */

/* Takes the next message about a way. */
static struct vb_ib_way *take_unsent(struct vb_ib_host *host, struct vb_fabric_way_ask *m)
{
	struct vb_io *io = host->node->io;

	vb_lock(&io->questions_lock);
	struct vb_ib_way *w = host->unsent;

	if (w) {
		host->unsent = w->next_unsent;
		w->unsent = false;
		*m = (struct vb_fabric_way_ask){.verb = w->asked ? VB_FABRIC_WAY : VB_FABRIC_FORGET,
		                                .tag = w->tag,
		                                .dlid = w->route.dlid,
		                                .pkey = w->route.pkey,
		                                .path_bits = w->route.path_bits,
		                                .sl = w->route.sl,
		                                .flags = (w->route.grh ? VB_FABRIC_WAY_GRH : 0) |
		                                         (w->route.both ? VB_FABRIC_WAY_BOTH : 0)};
		memcpy(m->dgid, w->route.dgid.raw, sizeof(m->dgid));
	}
	vb_unlock(&io->questions_lock);
	return w;
}

static void put_back(struct vb_ib_host *host, struct vb_ib_way *w)
{
	vb_lock(&host->node->io->questions_lock);
	note_unsent(host, w);
	vb_unlock(&host->node->io->questions_lock);
}

/* Watches for room in the socket, or not any more. Under meet_lock. */
static void watch_room(struct vb_ib_host *host, bool wanted)
{
	if (host->waits_for_room == wanted || !host->watched)
		return;
	host->waits_for_room = wanted;
	vb_watch_change(host->node, &host->watch, wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Under meet_lock, so that the messages about one way leave in their order. */
static void send_all(struct vb_ib_host *host)
{
	struct vb_fabric_way_ask m;
	struct vb_ib_way *w;

	while (host->alive && (w = take_unsent(host, &m))) {
		int err = vb_fabric_try(host->watch.fd, &(struct iovec){&m, sizeof(m)}, 1, -1);

		if (err != EAGAIN && err != EINTR)
			continue; /* if the fabric process has ended, the socket tells it */
		put_back(host, w);
		if (err == EAGAIN) {
			watch_room(host, true);
			return;
		}
	}
	watch_room(host, atomic_load(&host->datagrams_wait));
}

void vb_ib_ways_send(struct vb_ib_host *host)
{
	int cancel;

	if (!atomic_load_explicit(&host->talks, memory_order_relaxed) || !atomic_exchange(&host->talks, false))
		return;
	vb_cancel_defer(&cancel);
	vb_mutex_lock(&host->node->io->meet_lock, VB_RANK_MEETING);
	send_all(host);
	vb_mutex_unlock(&host->node->io->meet_lock);
	vb_cancel_restore(cancel);
}

void vb_ib_ways_free(struct vb_ib_host *host)
{
	for (uint32_t i = 0; host->by_tag && i < host->tags; i++)
		free(host->by_tag[i]);
	free(host->by_tag);
}
