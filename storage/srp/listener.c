// listener.c - the SRP target on rdma_cm: accepts logins, ends connections
// follows: rdma_cm(7); SRP (ANSI INCITS 365, T10/1415-D), 6.2 to 6.4; the login of Linux's ib_srp by rdma_cm
// SPDX-License-Identifier: MIT
#include "srp/listener.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "srp/link.h"

#define BACKLOG 64
#define EVENTS 32 /* at once */
#define SWEEP_MS 1000
#define LOGIN_MS 5000    /* from the response to the connection */
#define SILENT_MS 10000u /* before the peer's adapter is asked for an acknowledgement */

static void reject_login(struct rdma_cm_id *id, const struct sp_login *l, uint32_t reason)
{
	struct sp_login_rej rej = {.tag = l->tag, .reason = reason, .formats = SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT};
	uint8_t said[SP_LOGIN_REJ_LEN];

	sp_login_rej_encode(&rej, said);
	rdma_reject(id, said, sizeof(said));
	rdma_destroy_id(id);
}

static uint8_t lesser(uint8_t a, int b)
{
	return a < b ? a : (uint8_t)b;
}

static bool accept_login(struct sp_link *k, const struct sp_login_rsp *rsp, const struct rdma_conn_param *peer)
{
	struct ibv_device_attr a;
	uint8_t said[SP_LOGIN_RSP_LEN];

	if (ibv_query_device(k->id->verbs, &a))
		return false;
	struct rdma_conn_param p = {.private_data = said,
	                            .private_data_len = sizeof(said),
	                            .initiator_depth = lesser(peer->initiator_depth, a.max_qp_init_rd_atom),
	                            .responder_resources = lesser(peer->responder_resources, a.max_qp_rd_atom),
	                            .flow_control = 1,
	                            .rnr_retry_count = 7};

	sp_login_rsp_encode(rsp, said);
	return !rdma_accept(k->id, &p);
}

static struct sockaddr_storage peer_address(struct rdma_cm_id *id)
{
	const struct sockaddr *from = rdma_get_peer_addr(id);
	struct sockaddr_storage a = {.ss_family = from->sa_family};
	size_t len = from->sa_family == AF_INET    ? sizeof(struct sockaddr_in)
	             : from->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
	             : from->sa_family == AF_IB    ? sizeof(struct sockaddr_ib)
	                                           : 0;

	memcpy(&a, from, len);
	return a;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	switch (a->ss_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	case AF_INET6:
		return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
		               &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
	case AF_IB:
		return !memcmp(&((const struct sockaddr_ib *)a)->sib_addr, &((const struct sockaddr_ib *)b)->sib_addr,
		               sizeof(struct ib_addr));
	default:
		return true;
	}
}

/* A host can take as many names of initiator ports as it likes, but not as many addresses. */
static bool host_has_room(const struct sp_listener *p, const struct sockaddr_storage *host)
{
	unsigned n = 0;

	for (const struct sp_link *k = p->links; k; k = k->next)
		n += same_host(&k->peer, host);
	return n < SP_CHANNELS_OF_HOST;
}

static void take_login(struct sp_listener *p, struct rdma_cm_id *id, const struct sp_login *l, uint32_t reason,
                       const struct rdma_conn_param *peer)
{
	struct sockaddr_storage host = peer_address(id);
	struct sp_login_rsp rsp;
	struct sp_link *k = NULL;

	if (!reason && p->stopped)
		reason = SP_REJ_RESOURCES;
	if (!reason && !peer->initiator_depth) /* its data could not be read */
		reason = SP_REJ_NO_CHANNEL;
	if (!reason)
		reason = sp_login_check(p->target, l);
	if (!reason && !host_has_room(p, &host))
		reason = SP_REJ_RESOURCES;
	if (!reason && !(k = calloc(1, sizeof(*k))))
		reason = SP_REJ_RESOURCES;
	if (reason) {
		reject_login(id, l, reason);
		return;
	}
	k->listener = p;
	k->id = id;
	k->peer = host;
	k->began = k->heard = p->now;
	id->context = k;
	if (!(reason = sp_link_open(k, l, &rsp)) && accept_login(k, &rsp, peer))
		return;
	if (k->opened) {
		k->failed = true; /* closing it rejects the connection */
		return;
	}
	id->context = NULL;
	free(k);
	reject_login(id, l, reason);
}

/* The two forms of a login: by IP addresses, whose header leaves less room, and by a service id. */
static bool read_login(const struct sp_listener *p, const struct rdma_cm_event *e, struct sp_login *l)
{
	const struct rdma_conn_param *c = &e->param.conn;
	size_t len = c->private_data ? c->private_data_len : 0;

	return e->listen_id && e->listen_id == p->ib ? sp_login_ib_decode(c->private_data, len, l)
	                                             : sp_login_decode(c->private_data, len, l);
}

static void take_cm_event(struct sp_listener *p, struct rdma_cm_event *e)
{
	struct rdma_cm_id *id = e->id;
	struct rdma_conn_param peer = e->param.conn;
	enum rdma_cm_event_type what = e->event;
	struct sp_login l = {0};
	uint32_t reason = 0;

	if (what == RDMA_CM_EVENT_CONNECT_REQUEST && !read_login(p, e, &l))
		reason = SP_REJ_NO_CHANNEL;
	rdma_ack_cm_event(e); /* before anything can be destroyed */
	if (what == RDMA_CM_EVENT_CONNECT_REQUEST) {
		take_login(p, id, &l, reason, &peer);
	} else if (id == p->id || id == p->ib) {
		if (what == RDMA_CM_EVENT_DEVICE_REMOVAL) {
			rdma_destroy_id(id);
			*(id == p->id ? &p->id : &p->ib) = NULL;
		}
	} else if (id->context) {
		struct sp_link *k = id->context;

		if (what == RDMA_CM_EVENT_ESTABLISHED)
			k->established = true;
		else if (what != RDMA_CM_EVENT_ADDR_CHANGE)
			k->failed = true;
	}
}

static void cm_events_ready(struct nt_watch *w, uint32_t events)
{
	struct sp_listener *p = (struct sp_listener *)(void *)((uint8_t *)w - offsetof(struct sp_listener, watch));
	struct rdma_cm_event *e;

	for (int i = 0; i < EVENTS && !rdma_get_cm_event(p->channel, &e); i++)
		take_cm_event(p, e);
}

static int listen_on(struct sp_listener *p, struct sockaddr *a)
{
	int zero = 0;

	if (!(p->channel = rdma_create_event_channel()))
		return errno;
	int flags = fcntl(p->channel->fd, F_GETFL);

	if (flags < 0 || fcntl(p->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return errno;
	if (rdma_create_id(p->channel, &p->id, NULL, RDMA_PS_TCP))
		return errno;
	if (a->sa_family == AF_INET6) /* :: serves IPv4, too */
		rdma_set_option(p->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &zero, sizeof(zero));
	if (rdma_bind_addr(p->id, a) || rdma_listen(p->id, BACKLOG))
		return errno;
	p->watch.fd = p->channel->fd;
	int error = nt_loop_add(p->loop, &p->watch);

	if (error)
		p->watch.fd = -1;
	return error;
}

static void free_listener(struct sp_listener *p)
{
	if (p->watch.fd >= 0)
		nt_loop_remove(p->loop, &p->watch);
	if (p->id)
		rdma_destroy_id(p->id);
	if (p->ib)
		rdma_destroy_id(p->ib);
	if (p->channel)
		rdma_destroy_event_channel(p->channel);
	free(p);
}

int sp_listener_open(struct nt_loop *l, struct sp_target *t, const char *address, uint16_t port,
                     struct sp_listener **out)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *list;
	char service[8];

	snprintf(service, sizeof(service), "%u", port);
	if (getaddrinfo(address, service, &hints, &list))
		return EADDRNOTAVAIL;
	struct sp_listener *p = calloc(1, sizeof(*p));
	int error = ENOMEM;

	if (p) {
		p->loop = l;
		p->target = t;
		p->watch = (struct nt_watch){.fd = -1, .events = EPOLLIN, .ready = cm_events_ready};
		error = listen_on(p, list->ai_addr);
	}
	freeaddrinfo(list);
	if (!error)
		*out = p;
	else if (p)
		free_listener(p);
	return error;
}

int sp_listener_open_ib(struct sp_listener *p, uint64_t *service_id)
{
	/* Of the ids that rdma_cm has for services that use no IP addresses. IBA volume 1, annex A11 */
	*service_id = (uint64_t)RDMA_PS_IB << 16 | sp_listener_port(p);
	struct sockaddr_ib any = {
	        .sib_family = AF_IB, .sib_sid = htobe64(*service_id), .sib_sid_mask = htobe64(UINT64_MAX)};

	if (!rdma_create_id(p->channel, &p->ib, NULL, RDMA_PS_IB) &&
	    !rdma_bind_addr(p->ib, (struct sockaddr *)(void *)&any) && !rdma_listen(p->ib, BACKLOG))
		return 0;
	int error = errno;

	if (p->ib)
		rdma_destroy_id(p->ib);
	p->ib = NULL;
	return error;
}

uint16_t sp_listener_port(const struct sp_listener *p)
{
	return ntohs(rdma_get_src_port(p->id));
}

/* Marks connections that never came, and asks silent peers whether they live. */
static void sweep(struct sp_listener *p)
{
	p->swept = p->now;
	for (struct sp_link *k = p->links; k; k = k->next) {
		if (k->closed || k->failed)
			continue;
		if (!k->established)
			k->failed = p->now - k->began > LOGIN_MS;
		else if (p->now - k->heard > SILENT_MS)
			sp_link_probe(k);
	}
}

uint64_t sp_listener_turn(struct sp_listener *p, uint64_t now)
{
	p->now = now;
	if (now - p->swept >= SWEEP_MS)
		sweep(p);
	bool again, busy = false;

	for (struct sp_link *k = p->links; k; k = k->next)
		if (k->busy && !k->closed && !k->failed) {
			sp_link_poll(k);
			busy |= k->busy;
		}
	do { /* closing one may free others, and a login may have failed some */
		again = false;
		for (struct sp_link *k = p->links; k && !again; k = k->next)
			if (k->failed && !k->closed) {
				again = true;
				sp_link_close(k);
			}
	} while (again);
	return busy ? now : p->links ? p->swept + SWEEP_MS : UINT64_MAX;
}

void sp_listener_stop(struct sp_listener *p)
{
	if (p->stopped)
		return;
	p->stopped = true;
	if (p->id)
		rdma_destroy_id(p->id);
	if (p->ib)
		rdma_destroy_id(p->ib);
	p->id = p->ib = NULL;
	for (struct sp_link *k = p->links; k; k = k->next)
		if (!k->closed && !k->failed && k->established)
			sp_logout(&k->channel);
}

bool sp_listener_close(struct sp_listener *p)
{
	sp_listener_stop(p);
	for (struct sp_link *k = p->links; k; k = k->next)
		k->failed = true;
	sp_listener_turn(p, p->now);
	if (p->links)
		return false;
	free_listener(p);
	return true;
}
