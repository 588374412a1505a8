// rdma_device.c - adapters: registers the target's memory with each, and receives their completion events
// follows: ibv_reg_mr(3), ibv_get_cq_event(3), ibv_get_async_event(3); proc_pid_status(5) for VmPin
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "target/core.h"
#include "target/rdma_conn.h"

#define EVENTS 64 /* at once */

static struct nt_rdma_device *devices;
static unsigned holders;

/* ---- events ---- */

static void completions_ready(struct nt_watch *w, uint32_t events)
{
	struct nt_rdma_device *d =
	        (struct nt_rdma_device *)(void *)((uint8_t *)w - offsetof(struct nt_rdma_device, completions));
	struct ibv_cq *cq;
	void *context;

	for (int i = 0; i < EVENTS && !ibv_get_cq_event(d->channel, &cq, &context); i++) {
		struct nt_rconn *c = context;

		ibv_ack_cq_events(cq, 1);
		c->armed = false;
		nt_rconn_dirty(c);
	}
}

/* Errors of a queue pair also appear as completions. A broken adapter may report nothing more. */
static void async_events_ready(struct nt_watch *w, uint32_t events)
{
	struct nt_rdma_device *d =
	        (struct nt_rdma_device *)(void *)((uint8_t *)w - offsetof(struct nt_rdma_device, events));
	struct ibv_async_event e;

	for (int i = 0; i < EVENTS && !ibv_get_async_event(d->ctx, &e); i++) {
		if (e.event_type == IBV_EVENT_DEVICE_FATAL)
			d->dead = true;
		ibv_ack_async_event(&e);
	}
	if (events & (EPOLLERR | EPOLLHUP)) { /* the adapter was removed */
		d->dead = true;
		nt_loop_remove(d->loop, w);
		w->fd = -1;
	}
}

static int watch_channel(struct nt_rdma_device *d, struct nt_watch *w, int fd,
                         void (*ready)(struct nt_watch *, uint32_t))
{
	*w = (struct nt_watch){.fd = fd, .events = EPOLLIN, .ready = ready};
	int flags = fcntl(fd, F_GETFL),
	    error = flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? errno : nt_loop_add(d->loop, w);

	if (error)
		w->fd = -1;
	return error;
}

/* ---- memory ---- */

/* Memory of this process that adapters have pinned, in KiB. */
static unsigned long pinned_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	unsigned long n = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmPin: %lu", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

static bool can_on_demand(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex a;

	memset(&a, 0, sizeof(a));
	return !ibv_query_device_ex(ctx, NULL, &a) && (a.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
	       (a.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
}

int nt_rdma_domain_open(struct nt_rdma_device *d, struct nt_target *t, struct nt_rdma_domain *o)
{
	size_t size;
	void *at = nt_pool_memory(t->pool, &size);

	if (!(o->pd = ibv_alloc_pd(d->ctx)) || !(o->pool = ibv_reg_mr(o->pd, at, size, IBV_ACCESS_LOCAL_WRITE))) {
		int error = errno ? errno : ENOMEM;

		if (o->pd)
			ibv_dealloc_pd(o->pd);
		o->pd = NULL;
		return error;
	}
	o->next = d->domains;
	d->domains = o;
	return 0;
}

static void map_close(struct nt_rdma_map **at)
{
	struct nt_rdma_map *m = *at;

	*at = m->next;
	ibv_dereg_mr(m->mr);
	nt_ns_put(m->ns);
	free(m);
}

void nt_rdma_domain_close(struct nt_rdma_device *d, struct nt_rdma_domain *o)
{
	struct nt_rdma_domain **at = &d->domains;

	if (!o->pd)
		return;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	while (o->maps)
		map_close(&o->maps);
	ibv_dereg_mr(o->pool);
	ibv_dealloc_pd(o->pd);
	o->pd = NULL;
}

static int register_pool(struct nt_rdma_device *d, struct nt_target *t)
{
	unsigned long before = pinned_kib();
	int error = nt_rdma_domain_open(d, t, &d->shared);

	if (error)
		return error;
	d->pins = pinned_kib() > before;
	d->on_demand = can_on_demand(d->ctx);
	/* a discard gives the file other pages: an adapter that pins the old ones would continue to send their
	 * contents */
	d->no_maps = d->pins && !d->on_demand;
	return 0;
}

static void close_removed_maps(struct nt_rdma_domain *o)
{
	for (struct nt_rdma_map **at = &o->maps; *at;)
		if ((*at)->ns->removed && !(*at)->in_flight)
			map_close(at);
		else
			at = &(*at)->next;
}

void nt_rdma_devices_turn(void)
{
	for (struct nt_rdma_device *d = devices; d; d = d->next)
		for (struct nt_rdma_domain *o = d->domains; o; o = o->next)
			close_removed_maps(o);
}

struct nt_rdma_map *nt_rdma_map_get(struct nt_rdma_device *d, struct nt_rdma_domain *o, struct nt_namespace *ns)
{
	struct nt_rdma_map *m = o->maps;

	while (m && m->ns != ns)
		m = m->next;
	if (!m && !d->no_maps && (m = calloc(1, sizeof(*m)))) {
		m->mr = ibv_reg_mr(o->pd, (void *)(uintptr_t)ns->backend->map, ns->backend->map_len,
		                   d->on_demand ? IBV_ACCESS_ON_DEMAND : 0);
		if (!m->mr) {
			free(m);
			d->no_maps = true;
			return NULL;
		}
		m->ns = ns;
		ns->users++;
		m->next = o->maps;
		o->maps = m;
	}
	if (m)
		m->in_flight++;
	return m;
}

/* ---- opening and closing ---- */

static void device_close(struct nt_rdma_device *d)
{
	if (d->completions.fd >= 0)
		nt_loop_remove(d->loop, &d->completions);
	if (d->events.fd >= 0)
		nt_loop_remove(d->loop, &d->events);
	if (d->channel)
		ibv_destroy_comp_channel(d->channel);
	nt_rdma_domain_close(d, &d->shared);
	free(d);
}

static int device_open(struct nt_rdma_device *d, struct nt_target *t)
{
	int error = ibv_query_device(d->ctx, &d->attr);

	if (error)
		return error;
	d->tells_sinks = d->ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	if (!(d->channel = ibv_create_comp_channel(d->ctx)))
		return errno ? errno : ENOMEM;
	error = register_pool(d, t);
	if (!error)
		error = watch_channel(d, &d->completions, d->channel->fd, completions_ready);
	return error ? error : watch_channel(d, &d->events, d->ctx->async_fd, async_events_ready);
}

int nt_rdma_device_get(struct nt_loop *l, struct nt_target *t, struct ibv_context *ctx, struct nt_rdma_device **out)
{
	for (struct nt_rdma_device *d = devices; d; d = d->next)
		if (d->ctx == ctx) {
			*out = d;
			return d->dead ? ENODEV : 0;
		}
	struct nt_rdma_device *d = calloc(1, sizeof(*d));

	if (!d)
		return ENOMEM;
	d->loop = l;
	d->ctx = ctx;
	d->completions.fd = d->events.fd = -1;
	int error = device_open(d, t);

	if (error) {
		device_close(d);
		return error;
	}
	d->next = devices;
	devices = d;
	*out = d;
	return 0;
}

void nt_rdma_devices_hold(void)
{
	holders++;
}

void nt_rdma_devices_release(void)
{
	if (--holders)
		return;
	while (devices) {
		struct nt_rdma_device *d = devices;

		devices = d->next;
		device_close(d);
	}
}
