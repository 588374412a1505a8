// rdma.c - the NVMe over RDMA transport: accepts and ends connections
// follows: NVMe over Fabrics 1.1, 7.3.6 (connections); rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "target/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "nvme/rdma_choice.h"
#include "target/rdma_conn.h"

#define LINGER_MS 2000 /* time for the remaining output when a connection ends */
#define SWEEP_MS 1000
#define BACKLOG 128
#define EVENTS 32 /* at once */
#define ROUNDS 16 /* of settling connections before other events are handled */

/* Transport specific address subtype of a discovery log entry. Fabrics 1.1, 7.3.8 */
enum { TSAS_QPTYPE = 0, TSAS_PRTYPE = 1, TSAS_CMS = 2 };
#define QPTYPE_CONNECTED 1
#define PRTYPE_NONE 1
#define CMS_RDMA_CM 1

/* ---- calls by the core ---- */

static uint16_t rdma_ops_sgl(struct nt_queue *q, const struct nv_sgl *s)
{
	return s->type == NV_SGL_KEYED && (s->subtype == NV_SGL_ADDRESS || s->subtype == NV_SGL_INVALIDATE)
	               ? 0
	               : NV_SGL_TYPE;
}

static void rdma_ops_close(struct nt_queue *q)
{
	struct nt_rconn *c = nt_rconn_of(q);

	if (c->ending)
		return;
	c->ending = true;
	c->ending_at = c->rdma->target->now;
	nt_rconn_dirty(c);
}

/* The core has dropped its last reference. */
static void rdma_ops_gone(struct nt_queue *q)
{
	struct nt_rconn *c = nt_rconn_of(q);

	if (c->next)
		c->next->prev = c->prev;
	if (c->prev)
		c->prev->next = c->next;
	else
		c->rdma->conns = c->next;
	c->rdma->count--;
	free(c);
}

static const struct nt_ops ops = {.name = "rdma",
                                  .trtype = NV_TRTYPE_RDMA,
                                  .keyed = true,
                                  .sgl = rdma_ops_sgl,
                                  .fetch = nt_rconn_fetch,
                                  .respond = nt_rconn_respond,
                                  .close = rdma_ops_close,
                                  .gone = rdma_ops_gone};

/* ---- connections ---- */

void nt_rconn_dirty(struct nt_rconn *c)
{
	if (c->dirty || c->closed)
		return;
	c->dirty = true;
	c->next_dirty = c->rdma->dirty;
	c->rdma->dirty = c;
}

void nt_rconn_fail(struct nt_rconn *c)
{
	c->failed = true;
	nt_rconn_dirty(c);
}

/* Destroys the queue pair first, so that no adapter accesses the memory of the requests any more. */
static void close_rdma_conn(struct nt_rconn *c)
{
	struct rdma_cm_id *id = c->id;

	c->closed = true;
	rdma_disconnect(id);
	nt_rconn_close(c);
	rdma_destroy_id(id);
	c->id = NULL;
	c->device->conns--;
	for (uint32_t slot = 0; slot <= c->q.entries; slot++) {
		struct nt_request *r = nt_slot(&c->q, slot);

		if (r && r->state == NT_RESPOND && nt_ritem(r)->map)
			nt_ritem(r)->map->in_flight--;
		if (r && r->state == NT_FETCH)
			nt_rconn_end_sink(r);
	}
	nt_rconn_leave(c);
	nt_queue_close(&c->q); /* may free the connection */
}

/* Handles a connection that is marked dirty because it may have changed. */
static void settle_rdma_conn(struct nt_rconn *c)
{
	c->gathering = true;
	bool more = !c->failed && nt_rconn_poll(c);

	c->gathering = false;
	nt_rconn_flush(c);
	if (c->failed || (c->ending && !c->answering && !c->wait_first)) {
		close_rdma_conn(c);
		return;
	}
	c->dirty = false;
	if (more)
		nt_rconn_dirty(c);
}

static void sweep_rdma_conn(struct nt_rconn *c, uint64_t now)
{
	const struct nt_tcp_limits *l = &c->rdma->limits;

	if ((c->ending ? now - c->ending_at > LINGER_MS : !c->q.connected && now - c->began > l->hello_ms) ||
	    (c->posted && now - c->since > l->stall_ms) || c->device->dead)
		nt_rconn_fail(c);
}

/* ---- new connections ---- */

static void reject_request(struct nt_rdma *p, struct rdma_cm_id *id, enum nt_rdma_reason why)
{
	uint8_t said[NT_RDMA_REJECT_LEN];

	p->counts.rejected++;
	nt_rdma_reject_encode(why, said);
	rdma_reject(id, said, sizeof(said));
	rdma_destroy_id(id);
}

static void take_connect_request(struct nt_rdma *p, struct rdma_cm_id *id, enum nt_rdma_reason why,
                                 const struct nt_rdma_hello *h, const struct rdma_conn_param *peer)
{
	struct nt_rconn *c;

	if (!why && (p->stopped || p->count >= p->limits.connections))
		why = NT_RDMA_NO_RESOURCES;
	/* not every host sends cntlid */
	if (!why && h->qid && h->cntlid && !nt_controller_known(p->target, h->cntlid))
		why = NT_RDMA_INVALID_CNTLID;
	if (!why)
		why = nt_rconn_open(p, &ops, id, h, peer, &c);
	if (why) {
		reject_request(p, id, why);
		return;
	}
	c->next = p->conns;
	if (c->next)
		c->next->prev = c;
	p->conns = c;
	p->count++;
}

static void take_cm_event(struct nt_rdma *p, struct rdma_cm_event *e)
{
	struct rdma_cm_id *id = e->id;
	struct rdma_conn_param peer = e->param.conn;
	enum rdma_cm_event_type what = e->event;
	struct nt_rdma_hello h;
	enum nt_rdma_reason why = what == RDMA_CM_EVENT_CONNECT_REQUEST
	                                  ? nt_rdma_hello_decode(peer.private_data, peer.private_data_len, &h)
	                                  : 0;

	rdma_ack_cm_event(e); /* before anything can be destroyed */
	if (what == RDMA_CM_EVENT_CONNECT_REQUEST) {
		take_connect_request(p, id, why, &h, &peer);
	} else if (id == p->listener) {
		if (what != RDMA_CM_EVENT_DEVICE_REMOVAL)
			return;
		rdma_destroy_id(id);
		p->listener = NULL; /* until the adapter returns */
	} else if (id->context && what != RDMA_CM_EVENT_ESTABLISHED && what != RDMA_CM_EVENT_ADDR_CHANGE) {
		nt_rconn_fail(id->context);
	}
}

static void cm_events_ready(struct nt_watch *w, uint32_t events)
{
	struct nt_rdma *p = (struct nt_rdma *)(void *)((uint8_t *)w - offsetof(struct nt_rdma, watch));
	struct rdma_cm_event *e;

	for (int i = 0; i < EVENTS && !rdma_get_cm_event(p->channel, &e); i++)
		take_cm_event(p, e);
}

/* ---- the listener ---- */

static bool is_any_address(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6
	               ? IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr)
	               : ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr == htonl(INADDR_ANY);
}

static int listen_rdma(struct nt_rdma *p, struct sockaddr *a)
{
	int zero = 0;

	if (rdma_create_id(p->channel, &p->listener, NULL, RDMA_PS_TCP))
		return errno;
	if (p->second)
		nv_rdma_take_iwarp(p->listener);
	if (a->sa_family == AF_INET6) /* :: serves IPv4, too */
		rdma_set_option(p->listener, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &zero, sizeof(zero));
	if (!rdma_bind_addr(p->listener, a) && !rdma_listen(p->listener, BACKLOG))
		return 0;
	int error = errno;

	rdma_destroy_id(p->listener);
	p->listener = NULL;
	return error;
}

/* True if the address has two adapters that can be chosen between. A listener on all addresses uses both. */
static bool has_second(struct nt_rdma *p, const struct sockaddr *a)
{
	struct sockaddr_storage any_port;
	struct rdma_cm_id *id;
	bool both = false;

	memcpy(&any_port, a, a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	((struct sockaddr_in *)(void *)&any_port)->sin_port = 0; /* at the same offset in sockaddr_in6 */
	for (int i = 0; i < 2; i++) {
		if (rdma_create_id(p->channel, &id, NULL, RDMA_PS_TCP))
			return false;
		both = (!i || nv_rdma_take_iwarp(id)) && !rdma_bind_addr(id, (struct sockaddr *)(void *)&any_port) &&
		       id->verbs && (id->verbs->device->transport_type == IBV_TRANSPORT_IWARP) == (i == 1);
		rdma_destroy_id(id);
		if (!both)
			break;
	}
	return both;
}

static void listen_again(struct nt_rdma *p)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM},
	                *list;

	if (getaddrinfo(p->port.address, p->port.service, &hints, &list))
		return;
	listen_rdma(p, list->ai_addr);
	freeaddrinfo(list);
}

/* Opens the adapters that exist now, so that the pool is registered before the first host connects. */
static int open_devices(struct nt_rdma *p)
{
	struct nt_rdma_device *d;
	int n = 0, error = ENODEV;

	if (p->listener->verbs)
		return nt_rdma_device_get(p->loop, p->target, p->listener->verbs, &d);
	struct ibv_context **list = rdma_get_devices(&n);

	for (int i = 0; list && i < n; i++) {
		int e = nt_rdma_device_get(p->loop, p->target, list[i], &d);

		error = error && e ? e : 0;
	}
	if (list)
		rdma_free_devices(list);
	return error;
}

static void describe_rdma_port(struct nt_rdma *p)
{
	const struct sockaddr *own = rdma_get_local_addr(p->listener);
	bool v6 = own->sa_family == AF_INET6;

	getnameinfo(own, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), p->port.address,
	            sizeof(p->port.address), NULL, 0, NI_NUMERICHOST);
	snprintf(p->port.service, sizeof(p->port.service), "%u", ntohs(rdma_get_src_port(p->listener)));
	p->port.trtype = NV_TRTYPE_RDMA;
	p->port.adrfam = v6 ? NV_ADRFAM_IPV6 : NV_ADRFAM_IPV4;
	p->port.any = is_any_address(own);
	p->port.tsas[TSAS_QPTYPE] = QPTYPE_CONNECTED;
	p->port.tsas[TSAS_PRTYPE] = PRTYPE_NONE;
	p->port.tsas[TSAS_CMS] = CMS_RDMA_CM;
	nt_port_add(p->target, &p->port);
	if (!v6 || !p->port.any)
		return;
	p->port4 = p->port;
	p->port4.adrfam = NV_ADRFAM_IPV4;
	strcpy(p->port4.address, "0.0.0.0");
	nt_port_add(p->target, &p->port4);
}

static int open_listener(struct nt_rdma *p, struct sockaddr *a)
{
	p->watch = (struct nt_watch){.fd = -1, .events = EPOLLIN, .ready = cm_events_ready};
	if (!(p->channel = rdma_create_event_channel()))
		return errno;
	if (p->second && !has_second(p, a))
		return ENODEV;
	int flags = fcntl(p->channel->fd, F_GETFL), error;

	if (flags < 0 || fcntl(p->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return errno;
	if ((error = listen_rdma(p, a)) || (error = open_devices(p)))
		return error;
	p->watch.fd = p->channel->fd;
	if ((error = nt_loop_add(p->loop, &p->watch)))
		p->watch.fd = -1;
	return error;
}

static void tear_down(struct nt_rdma *p)
{
	if (p->watch.fd >= 0)
		nt_loop_remove(p->loop, &p->watch);
	if (p->listener)
		rdma_destroy_id(p->listener);
	if (p->channel)
		rdma_destroy_event_channel(p->channel);
	free(p);
	nt_rdma_devices_release();
}

int nt_rdma_open(struct nt_loop *l, struct nt_target *t, const char *address, uint16_t port, bool second,
                 const struct nt_tcp_limits *limits, struct nt_rdma **out)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *list;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(address, service, &hints, &list))
		return EADDRNOTAVAIL;
	struct nt_rdma *p = calloc(1, sizeof(*p));

	if (!p) {
		freeaddrinfo(list);
		return ENOMEM;
	}
	p->loop = l;
	p->target = t;
	p->limits = *limits;
	p->second = second;
	nt_rdma_devices_hold();
	int error = open_listener(p, list->ai_addr);

	freeaddrinfo(list);
	if (error) {
		tear_down(p);
		return error;
	}
	describe_rdma_port(p);
	*out = p;
	return 0;
}

uint16_t nt_rdma_port(const struct nt_rdma *p)
{
	return (uint16_t)strtoul(p->port.service, NULL, 10);
}

const char *nt_rdma_address(const struct nt_rdma *p)
{
	return p->port.address;
}

uint32_t nt_rdma_connections(const struct nt_rdma *p)
{
	return p->count;
}

const struct nt_rdma_counts *nt_rdma_counted(const struct nt_rdma *p)
{
	return &p->counts;
}

/* ---- iterations of the loop ---- */

static void sweep_rdma(struct nt_rdma *p, uint64_t now)
{
	p->swept = now;
	for (struct nt_rconn *c = p->conns; c; c = c->next)
		if (!c->closed)
			sweep_rdma_conn(c, now);
	if (!p->listener && !p->stopped)
		listen_again(p);
}

uint64_t nt_rdma_turn(struct nt_rdma *p)
{
	uint64_t now = p->target->now;

	if (now - p->swept >= SWEEP_MS)
		sweep_rdma(p, now);
	/* settling one connection may make others dirty, so repeat this, within a limit */
	for (int rounds = 0; p->dirty && rounds < ROUNDS; rounds++) {
		struct nt_rconn *c = p->dirty, *next;

		p->dirty = NULL;
		for (; c; c = next) {
			next = c->next_dirty;
			settle_rdma_conn(c);
		}
	}
	nt_rdma_devices_turn();
	if (p->dirty)
		return now;
	return p->conns || (!p->listener && !p->stopped) ? p->swept + SWEEP_MS : UINT64_MAX;
}

void nt_rdma_stop(struct nt_rdma *p)
{
	if (p->stopped)
		return;
	p->stopped = true;
	if (p->listener)
		rdma_destroy_id(p->listener);
	p->listener = NULL;
	nt_port_remove(p->target, &p->port);
	if (p->port4.trtype)
		nt_port_remove(p->target, &p->port4);
}

bool nt_rdma_close(struct nt_rdma *p)
{
	nt_rdma_stop(p);
	for (struct nt_rconn *c = p->conns, *next; c; c = next) {
		next = c->next;
		if (!c->closed)
			nt_rconn_fail(c);
	}
	nt_rdma_turn(p);
	if (p->conns)
		return false;
	tear_down(p);
	return true;
}
