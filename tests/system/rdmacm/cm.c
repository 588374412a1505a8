// cm.c - two ends of a connection within one process
// follows: rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "cm.h"

#include <arpa/inet.h>
#include <poll.h>

union address at(const char *host, unsigned port)
{
	union address a = {0};

	if (strchr(host, ':')) {
		a.sin6.sin6_family = AF_INET6;
		a.sin6.sin6_port = htons((uint16_t)port);
		SAME(inet_pton(AF_INET6, host, &a.sin6.sin6_addr), 1);
	} else {
		a.sin.sin_family = AF_INET;
		a.sin.sin_port = htons((uint16_t)port);
		SAME(inet_pton(AF_INET, host, &a.sin.sin_addr), 1);
	}
	return a;
}

bool event_waits(struct rdma_event_channel *ch)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

struct rdma_cm_event *fetch(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	MUST(rdma_get_cm_event(ch, &e));
	if (e->event != type)
		fail(__FILE__, __LINE__, "%s (status %d) in place of %s", rdma_event_str(e->event), e->status,
		     rdma_event_str(type));
	return e;
}

void next_is(struct rdma_event_channel *ch, enum rdma_cm_event_type type, struct rdma_cm_event *out)
{
	struct rdma_cm_event *e = fetch(ch, type);

	if (out)
		*out = *e;
	MUST(rdma_ack_cm_event(e));
}

unsigned start_listening(struct end *e, const char *host, enum rdma_port_space ps, int backlog)
{
	union address a = at(host, 0);

	*e = (struct end){.ch = rdma_create_event_channel()};
	CHECK(e->ch);
	MUST(rdma_create_id(e->ch, &e->id, e, ps));
	MUST(rdma_bind_addr(e->id, &a.sa));
	MUST(rdma_listen(e->id, backlog));
	return ntohs(rdma_get_src_port(e->id));
}

void go_to(struct end *e, const char *host, unsigned port, enum rdma_port_space ps)
{
	union address a = at(host, port);

	*e = (struct end){.ch = rdma_create_event_channel()};
	CHECK(e->ch);
	MUST(rdma_create_id(e->ch, &e->id, e, ps));
	MUST(rdma_resolve_addr(e->id, NULL, &a.sa, PATIENCE));
	next_is(e->ch, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	MUST(rdma_resolve_route(e->id, PATIENCE));
	next_is(e->ch, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
}

struct ibv_qp_init_attr qp_attr(struct ibv_cq *cq, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
	        .send_cq = cq,
	        .recv_cq = cq,
	        .qp_type = type,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
}

void make_qp(struct end *e)
{
	e->cq = ibv_create_cq(e->id->verbs, 64, NULL, NULL, 0);
	CHECK(e->cq);
	struct ibv_qp_init_attr attr = qp_attr(e->cq, e->id->qp_type);

	MUST(rdma_create_qp(e->id, NULL, &attr));
	e->mr = ibv_reg_mr(e->id->pd, e->buf, sizeof(e->buf),
	                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	CHECK(e->mr);
}

void connect_pair(struct end *listener, struct end *client, struct end *server)
{
	unsigned port = start_listening(listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(client, "127.0.0.1", port, RDMA_PS_TCP);
	make_qp(client);
	MUST(rdma_connect(client->id, NULL));
	e = fetch(listener->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	*server = (struct end){.ch = listener->ch, .id = e->id};
	make_qp(server);
	MUST(rdma_accept(server->id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(client->ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server->ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
}

void drop_end(struct end *e)
{
	struct rdma_event_channel *ch = e->id->context == e ? e->ch : NULL;

	if (e->id->qp)
		rdma_destroy_qp(e->id);
	if (e->mr)
		MUST(ibv_dereg_mr(e->mr));
	if (e->cq)
		MUST(ibv_destroy_cq(e->cq));
	MUST(rdma_destroy_id(e->id));
	if (ch)
		rdma_destroy_event_channel(ch);
}

void finish_pair(struct end *listener, struct end *client, struct end *server)
{
	MUST(rdma_disconnect(client->id));
	next_is(server->ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(server->id));
	next_is(client->ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(client);
	drop_end(server);
	drop_end(listener);
}

void poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int n = 0;

	while (!n)
		n = ibv_poll_cq(cq, 1, wc);
	SAME(n, 1);
	SAME(wc->status, IBV_WC_SUCCESS);
}
