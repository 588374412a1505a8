// id.c - creates ids, moves them to another event channel, and destroys them once their events are acknowledged
// follows: rdma_create_id(3), rdma_destroy_id(3), rdma_migrate_id(3)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"
#include "util/calls.h"

struct rcm_id *rcm_id_new(enum rdma_port_space ps, enum ibv_qp_type type, void *context)
{
	struct rcm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->id.context = context;
	id->id.ps = ps;
	id->space = (enum vb_port_space)ps;
	id->id.qp_type = type;
	id->kind = RCM_EITHER;
	id->generation = rcm.generation;
	return id;
}

void rcm_link(struct rcm_id *id)
{
	struct rcm_id **first = id->state == RCM_LISTEN ? &rcm.listeners : &rcm.ids;

	id->next = *first;
	if (id->next)
		id->next->link = &id->next;
	id->link = first;
	*first = id;
}

void rcm_unlink(struct rcm_id *id)
{
	if (!id->link)
		return;
	*id->link = id->next;
	if (id->next)
		id->next->link = id->link;
	id->link = NULL;
}

static bool known_space(enum rdma_port_space ps)
{
	return ps == RDMA_PS_TCP || ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB || ps == RDMA_PS_IB;
}

int rcm_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps,
                  enum ibv_qp_type type)
{
	struct rcm_id *id;
	int err = rcm_open();

	if (!err && (!known_space(ps) || (channel && rcm_channel(channel)->generation != rcm.generation)))
		err = EINVAL;
	if (err)
		return err;
	id = rcm_id_new(ps, type, context);
	if (!id)
		return ENOMEM;
	id->delivers_events = true;
	id->sync = !channel;
	id->id.channel = channel ? channel : rdma_create_event_channel();
	if (!id->id.channel) {
		err = errno;
		free(id);
		return err;
	}
	rcm_lock();
	rcm_link(id);
	rcm_unlock();
	*out = &id->id;
	return 0;
}

RCM_EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                              enum rdma_port_space ps)
{
	bool ud = ps == RDMA_PS_IPOIB || ps == RDMA_PS_UDP;

	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.create_id(channel, id, context, ps);

	return rcm_result(rcm_create_id(channel, id, context, ps, ud ? IBV_QPT_UD : IBV_QPT_RC));
}

void rcm_free_id(struct rcm_id *id)
{
	for (struct rcm_mcast *mc = id->left, *next; mc; mc = next) {
		next = mc->next;
		free(mc);
	}
	if (id->sync)
		rdma_destroy_event_channel(id->id.channel);
	free(id->id.route.path_rec);
	free(id->connect);
	free(id->asked);
	free(id->qp_init_attr);
	rdma_freeaddrinfo(id->resolved);
	free(id);
}

static void end_connection(struct rcm_id *id)
{
	rcm_iw_end(id);
	if (!id->conn)
		return;
	vb_cm_destroy(&rcm.cm, id->conn, vb_gsi_client_now());
	id->conn = NULL;
	rcm_rearm();
}

/* Destroys a connection that the program has never seen, with its event. */
void rcm_discard(struct rcm_event *e)
{
	while (e) {
		struct rcm_event *next = e->next;

		if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			struct rcm_id *child = rcm_id(e->event.id);

			end_connection(child);
			rcm_unlink(child);
			rcm_free_id(child);
		}
		free(e);
		e = next;
	}
}

/* From now on the id gets no events. */
static void silence_id(struct rcm_id *id)
{
	int cancel;

	rcm_qp_lock(id, &cancel);
	rcm_iw_disconnect(id);
	rcm_qp_hear(id);
	rcm_lock();
	if (id->state == RCM_LISTEN)
		rcm_late_closed(id);
	id->delivers_events = false;
	rcm_establish_heard(id); /* so that the peer gets a DREQ, not a REJ */
	end_connection(id);
	rcm_unlink(id);
	rcm_discard(rcm_unqueue(id, NULL));
	rcm_unlock();
	rcm_qp_unlock(id, cancel);
	if (id->bound)
		vb_gsi_client_unbind(rcm.gsi, id->binding);
	id->bound = false;
	rcm_fabric_unbind(id);
}

static void await_acks(const struct rcm_id *id)
{
	rcm_lock();
	while (id->acked < id->reported)
		rcm_wait();
	rcm_unlock();
}

static struct rcm_id *first_at(struct rcm_id *id, const struct rdma_event_channel *channel)
{
	while (id && id->id.channel != channel)
		id = id->next;
	return id;
}

/* deviates: programs must destroy the ids first. As the kernel does when a channel is closed, this also ends their
 * connections. */
void rcm_detach(const struct rdma_event_channel *channel)
{
	struct rcm_id *id;

	do {
		rcm_lock();
		id = first_at(rcm.ids, channel);
		if (!id)
			id = first_at(rcm.listeners, channel);
		rcm_unlock();
		if (id) {
			silence_id(id);
			rcm_hw_abandon(id);
			id->id.channel = NULL;
		}
	} while (id);
}

/* Destroys an id whose channel is gone. Events of a destroyed channel need not be acknowledged. Returns 0 or an errno
 * value. */
static int destroy_detached(struct rcm_id *id)
{
	rcm_drop_event(id);
	rcm_lock();
	bool awaited = id->acked < id->reported;

	rcm_unlock();
	if (awaited)
		return EINVAL;
	rcm_leave_all(id);
	rcm_free_id(id);
	return 0;
}

RCM_EXPORT int rdma_destroy_id(struct rdma_cm_id *cm_id)
{
	struct rcm_id *id = rcm_id(cm_id);

	if (!id)
		return rcm_fail(EINVAL);
	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.destroy_id(cm_id);
	if (id->generation != rcm.generation) { /* an id of the parent: its resources are not this process's */
		free(id);
		return 0;
	}
	if (!cm_id->channel)
		return rcm_result(destroy_detached(id));
	int cancel;

	vb_cancel_defer(&cancel); /* no cancellation half way */
	rcm_leave_all(id);
	silence_id(id);
	rcm_drop_event(id);
	rcm_hw_end(id);
	await_acks(id);
	rcm_free_id(id);
	vb_cancel_restore(cancel);
	return 0;
}

/* Moves queued events to the new channel, in order. */
static void move_events(struct rcm_id *id, struct rdma_event_channel *channel)
{
	struct rcm_event *e = rcm_unqueue(id, NULL);

	id->id.channel = channel;
	while (e) {
		struct rcm_event *next = e->next;

		if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			e->event.id->channel = channel;
		rcm_queue(e);
		e = next;
	}
}

static int migrate_real(struct rcm_id *id, struct rcm_channel *ch)
{
	int err = rcm_hw_attach(ch);

	return err ? rcm_fail(err) : rcm_real.migrate_id(id->real, atomic_load(&ch->real));
}

RCM_EXPORT int rdma_migrate_id(struct rdma_cm_id *cm_id, struct rdma_event_channel *channel)
{
	struct rcm_id *id = rcm_id(cm_id);
	struct rdma_event_channel *old;
	bool was_sync;

	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.migrate_id(cm_id, channel);
	if (!rcm_ours(id) || (id->sync && !channel) || (channel && rcm_channel(channel)->generation != rcm.generation))
		return rcm_fail(EINVAL);
	bool sync = !channel;

	if (sync)
		channel = rdma_create_event_channel();
	if (!channel)
		return -1;
	if (id->sync)
		rcm_drop_event(id); /* the system's librdmacm waits until it is acknowledged */
	if (id->real && migrate_real(id, rcm_channel(channel))) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return -1;
	}
	rcm_lock();
	old = id->id.channel;
	was_sync = id->sync;
	move_events(id, channel);
	id->sync = sync;
	rcm_unlock();
	if (was_sync)
		rdma_destroy_event_channel(old);
	await_acks(id);
	return 0;
}
