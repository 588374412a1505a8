// rdma_connect.c - connecting with rdma_cm, and the resources of a queue over RDMA
// follows: rdma_cm(7)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/rdma.h"
#include "nvme/rdma_choice.h"

#define READS_MAX 16 /* reads of the target that we answer at a time */

/* ---- memory, by protection domain ---- */

static int make_mr_on(void *pd, unsigned i, struct vn_memory *m)
{
	m->mr[i] = ibv_reg_mr(pd, m->address, m->length,
	                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	if (!m->mr[i]) /* the memory may be read-only: then register it for remote reads only */
		m->mr[i] = ibv_reg_mr(pd, m->address, m->length, IBV_ACCESS_REMOTE_READ);
	return m->mr[i] ? 0 : -(errno ? errno : ENOMEM);
}

int vn_mr_make(struct vn_domain *d, struct vn_memory *m)
{
	int e = 0;

	for (unsigned i = 0; i < VN_DEVICES && !e; i++)
		if (d->devices[i].pd)
			e = make_mr_on(d->devices[i].pd, i, m);
	if (e)
		vn_mr_drop(m);
	return e;
}

static void drop_mr_on(struct vn_memory *m, unsigned i)
{
	if (m->mr[i])
		ibv_dereg_mr(m->mr[i]);
	m->mr[i] = NULL;
}

void vn_mr_drop(struct vn_memory *m)
{
	for (unsigned i = 0; i < VN_DEVICES; i++)
		drop_mr_on(m, i);
}

static void drop_device(struct vn_domain *d, unsigned i, void *pd)
{
	for (size_t m = 0; m < d->n; m++)
		drop_mr_on(d->all[m], i);
	if (pd)
		ibv_dealloc_pd(pd);
}

void vn_domain_end(struct vn_domain *d)
{
	for (unsigned i = 0; i < VN_DEVICES; i++) {
		drop_device(d, i, d->devices[i].pd);
		d->devices[i] = (struct vn_device){0};
	}
}

/* Registers all memory in a place that no device has. d->attaching keeps the list as it is. */
static int fill_place(struct vn_domain *d, unsigned i, void *context, void **pd)
{
	int e = 0;

	*pd = ibv_alloc_pd(context);
	if (!*pd)
		return -(errno ? errno : ENOMEM);
	for (size_t m = 0; m < d->n && !e; m++)
		e = make_mr_on(*pd, i, d->all[m]);
	if (e)
		drop_device(d, i, *pd);
	return e;
}

/* Releases the lock meanwhile: registration takes long, and requests of the other paths need the lock. */
static int attach_device(struct vn_domain *d, unsigned i, void *context)
{
	void *pd, *old = d->devices[i].pd;

	d->devices[i] = (struct vn_device){0};
	d->attaching = true;
	pthread_mutex_unlock(&d->lock);
	drop_device(d, i, old);
	int e = fill_place(d, i, context, &pd);

	pthread_mutex_lock(&d->lock);
	d->attaching = false;
	pthread_cond_broadcast(&d->idle);
	if (!e)
		d->devices[i] = (struct vn_device){.pd = pd, .context = context};
	return e;
}

/* The place of a device, or else one that no queue uses: the paths have one device each at most. VN_DEVICES: none */
static unsigned find_device(const struct vn_domain *d, const void *context)
{
	unsigned i = 0;

	while (i < VN_DEVICES && d->devices[i].context != context)
		i++;
	if (i < VN_DEVICES)
		return i;
	for (i = 0; i < VN_DEVICES && d->devices[i].users; i++)
		;
	return i;
}

static bool is_attached(const struct vn_domain *d, unsigned i, const void *context)
{
	return i < VN_DEVICES && d->devices[i].context == context;
}

int vn_domain_attach(struct vn_domain *d, void *context, unsigned *device)
{
	unsigned i;
	int e = 0;

	pthread_mutex_lock(&d->lock);
	while (i = find_device(d, context), !is_attached(d, i, context) && (d->busy || d->attaching))
		pthread_cond_wait(&d->idle, &d->lock);
	if (i == VN_DEVICES)
		e = -ENOSPC;
	else if (!is_attached(d, i, context))
		e = attach_device(d, i, context);
	if (!e) {
		d->devices[i].users++;
		*device = i;
	}
	pthread_mutex_unlock(&d->lock);
	return e;
}

void vn_domain_leave(struct vn_domain *d, unsigned device)
{
	pthread_mutex_lock(&d->lock);
	d->devices[device].users--;
	pthread_mutex_unlock(&d->lock);
}

/* ---- events ---- */

static int event_error(const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
		return -ENODEV;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return -EHOSTUNREACH;
	case RDMA_CM_EVENT_UNREACHABLE:
		return -ETIMEDOUT;
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	default:
		return -ECONNRESET;
	}
}

static int take_event(struct vn_link *l, struct vn_rdma_queue *r, enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;
	int error = 0;

	if (rdma_get_cm_event(r->events, &e))
		return -errno;
	if (e->event == RDMA_CM_EVENT_ADDR_CHANGE) { /* the hardware address of the interface: the connection stays */
		rdma_ack_cm_event(e);
		return -EAGAIN;
	}
	if (e->event != want) {
		error = event_error(e);
		vn_say(l->why, "%s port %s by RDMA: %s", l->host, l->service, rdma_event_str(e->event));
	}
	const uint8_t *private = e->param.conn.private_data;
	size_t length = private ? e->param.conn.private_data_len : 0;

	if (e->event == RDMA_CM_EVENT_REJECTED && r->binding->rejected)
		error = r->binding->rejected(l, r, private, length);
	if (!error && want == RDMA_CM_EVENT_ESTABLISHED)
		error = r->binding->accepted(l, r, private, length);
	rdma_ack_cm_event(e);
	return error;
}

static int await_event(struct vn_link *l, struct vn_rdma_queue *r, enum rdma_cm_event_type want)
{
	struct pollfd p = {.fd = r->events->fd, .events = POLLIN};

	for (;;) {
		int e = take_event(l, r, want), ms = vn_left(l->deadline);

		if (e != -EAGAIN && e != -EWOULDBLOCK)
			return e;
		if (l->stop && *l->stop)
			return -ECANCELED;
		if (!ms) {
			vn_say(l->why, "%s port %s by RDMA: no answer", l->host, l->service);
			return -ETIMEDOUT;
		}
		poll(&p, 1, ms < VN_LOOK_MS ? ms : VN_LOOK_MS);
	}
}

void vn_rdma_events(struct vn_rdma_queue *r)
{
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(r->events, &e)) {
		enum rdma_cm_event_type type = e->event;

		rdma_ack_cm_event(e);
		if (type == RDMA_CM_EVENT_DISCONNECTED || type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
		    type == RDMA_CM_EVENT_CONNECT_ERROR)
			vn_queue_break(&r->q, ECONNRESET, "by RDMA: %s", rdma_event_str(type));
	}
}

/* ---- resources ---- */

static size_t round_to_line(size_t n)
{
	return (n + 63) / 64 * 64;
}

static int make_memory(struct vn_rdma_queue *r)
{
	const struct vn_rdma_binding *b = r->binding;
	uint32_t room = r->q.inline_max > b->room ? r->q.inline_max : b->room;
	unsigned bounces = r->q.qid ? VN_RDMA_BOUNCES : 1;
	size_t all, answers, spare;

	r->capsule_size = round_to_line(b->head + room);
	answers = r->capsule_size * (r->q.depth + b->extra);
	spare = round_to_line(answers + (r->q.depth + 1u + b->extra) * (size_t)b->answer);
	all = spare + round_to_line(b->spare) + (size_t)bounces * VN_RDMA_BOUNCE;
	r->memory = vn_shared_new(all, &r->memory_fd);
	if (!r->memory)
		return -ENOMEM;
	r->memory_length = all;
	r->answers = r->memory + answers;
	r->spare = r->memory + spare;
	for (unsigned i = 0; i < bounces; i++)
		r->bounces[r->n_bounces++] = r->memory + all - (size_t)(i + 1) * VN_RDMA_BOUNCE;
	r->mr = ibv_reg_mr(vn_rdma_pd(r), r->memory, all,
	                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	return r->mr ? 0 : -(errno ? errno : ENOMEM);
}

static int make_queue_pair(struct vn_rdma_queue *r)
{
	struct ibv_context *c = r->id->verbs;
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
	                             .cap = {.max_send_wr = r->q.depth + 1u + r->binding->extra,
	                                     .max_recv_wr = r->q.depth + 1u + r->binding->extra,
	                                     .max_send_sge = 2,
	                                     .max_recv_sge = 1}};

	r->channel = ibv_create_comp_channel(c);
	if (!r->channel || fcntl(r->channel->fd, F_SETFL, O_NONBLOCK))
		return -errno;
	r->cq = ibv_create_cq(c, (int)(2 * (r->q.depth + r->binding->extra) + 3), NULL, r->channel, 0);
	if (!r->cq)
		return -errno;
	a.send_cq = a.recv_cq = r->cq;
	if (rdma_create_qp(r->id, vn_rdma_pd(r), &a))
		return -errno;
	for (unsigned i = 0; i <= r->q.depth + r->binding->extra; i++)
		if (!vn_rdma_receive(r, i))
			return -EIO;
	return 0;
}

static int make_resources(struct vn_link *l, struct vn_rdma_queue *r)
{
	int e = vn_domain_attach(r->domain, r->id->verbs, &r->device);

	r->attached = !e;
	if (!e)
		e = make_memory(r);
	if (!e)
		e = make_queue_pair(r);
	if (e)
		vn_say(l->why, "%s by RDMA: %s", ibv_get_device_name(r->id->verbs->device), strerror(-e));
	return e;
}

/* ---- connecting ---- */

/* By the address family of InfiniBand. IBA volume 1, annex A11 */
static int resolve_gid(struct vn_link *l, struct vn_rdma_queue *r)
{
	struct sockaddr_ib to = {.sib_family = AF_IB,
	                         .sib_pkey = htobe16(l->pkey),
	                         .sib_sid = htobe64(l->service_id),
	                         .sib_sid_mask = htobe64(UINT64_MAX)};

	if (inet_pton(AF_INET6, l->host, to.sib_addr.sib_raw) != 1)
		return -EINVAL;
	if (!rdma_resolve_addr(r->id, NULL, (struct sockaddr *)(void *)&to, vn_left(l->deadline)))
		return await_event(l, r, RDMA_CM_EVENT_ADDR_RESOLVED);
	int e = -errno;

	vn_say(l->why, "%s by InfiniBand: %s", l->host, strerror(-e));
	return e;
}

static int resolve_target(struct vn_link *l, struct vn_rdma_queue *r)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = l->options->numeric ? AI_NUMERICHOST : 0},
	                *all;
	int e = getaddrinfo(l->host, l->service, &hints, &all);

	if (e) {
		vn_say(l->why, "%s: %s", l->host, gai_strerror(e));
		return -EHOSTUNREACH;
	}
	e = rdma_resolve_addr(r->id, NULL, all->ai_addr, vn_left(l->deadline)) ? -errno : 0;
	freeaddrinfo(all);
	if (e)
		vn_say(l->why, "%s by RDMA: %s", l->host, strerror(-e));
	else
		e = await_event(l, r, RDMA_CM_EVENT_ADDR_RESOLVED);
	return e;
}

static int rdma_greet(struct vn_link *l, struct vn_rdma_queue *r)
{
	uint8_t private[VN_RDMA_PRIVATE] = {0};
	struct ibv_device_attr a;
	int reads = ibv_query_device(r->id->verbs, &a) ? 1 : a.max_qp_rd_atom;
	struct rdma_conn_param p = {.private_data = private,
	                            .private_data_len = (uint8_t)r->binding->ask(l, r, private),
	                            .responder_resources = (uint8_t)(reads < READS_MAX ? reads : READS_MAX),
	                            .initiator_depth = 1,
	                            .flow_control = 1,
	                            .retry_count = 7,
	                            .rnr_retry_count = 7};

	if (rdma_connect(r->id, &p))
		return -errno;
	return await_event(l, r, RDMA_CM_EVENT_ESTABLISHED);
}

int vn_rdma_connect(struct vn_link *l, struct vn_rdma_queue *r)
{
	int e;

	r->events = rdma_create_event_channel();
	if (!r->events || fcntl(r->events->fd, F_SETFL, O_NONBLOCK) ||
	    rdma_create_id(r->events, &r->id, NULL, l->service_id ? RDMA_PS_IB : RDMA_PS_TCP)) {
		vn_say(l->why, "rdma_cm: %s", strerror(errno));
		return -errno;
	}
	if (l->iwarp && !nv_rdma_take_iwarp(r->id)) {
		vn_say(l->why, "rdma_cm: there is no choice of adapters");
		return -ENODEV;
	}
	e = l->service_id ? resolve_gid(l, r) : resolve_target(l, r);
	if (!e)
		e = make_resources(l, r);
	if (!e)
		e = rdma_resolve_route(r->id, vn_left(l->deadline)) ? -errno
		                                                    : await_event(l, r, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (!e)
		e = rdma_greet(l, r);
	if (e)
		return e;
	r->q.way = nv_rdma_way(r->id);
	snprintf(r->q.device, sizeof(r->q.device), "%s", ibv_get_device_name(r->id->verbs->device));
	return 0;
}
