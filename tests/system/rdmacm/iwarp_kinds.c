// iwarp_kinds.c - an interface with both kinds of adapters: a listener on one of them gets no requests from the other
// follows: rdma_set_option(3)
// see: docs/iwarp.md
// SPDX-License-Identifier: MIT
#include "iwarp.h"

#define OPTION_VERBENA 0x5642
#define OPTION_TRANSPORT 1

static void choose(struct rdma_cm_id *id, int transport)
{
	MUST(rdma_set_option(id, OPTION_VERBENA, OPTION_TRANSPORT, &transport, sizeof(transport)));
}

/* A listener on all addresses for this kind. Returns the port. */
static unsigned listen_for(struct end *e, int transport)
{
	union address a = at("0.0.0.0", 0);

	*e = (struct end){.ch = rdma_create_event_channel()};
	MUST(rdma_create_id(e->ch, &e->id, e, RDMA_PS_TCP));
	choose(e->id, transport);
	MUST(rdma_bind_addr(e->id, &a.sa));
	MUST(rdma_listen(e->id, 4));
	return ntohs(rdma_get_src_port(e->id));
}

static void ask_by(struct end *e, unsigned port, int transport)
{
	union address a = at("127.0.0.1", port);

	*e = (struct end){.ch = rdma_create_event_channel()};
	MUST(rdma_create_id(e->ch, &e->id, e, RDMA_PS_TCP));
	choose(e->id, transport);
	MUST(rdma_resolve_addr(e->id, NULL, &a.sa, PATIENCE));
	next_is(e->ch, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
	MUST(rdma_resolve_route(e->id, PATIENCE));
	next_is(e->ch, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
	SAME(e->id->verbs->device->transport_type, transport);
	make_qp(e);
	MUST(rdma_connect(e->id, NULL));
}

/* Requests from the other kind and from its own. */
static void is_asked_by_its_own_alone(struct end *listener, unsigned port, int transport, int other)
{
	struct end client, server;
	struct rdma_cm_event *e;

	ask_by(&client, port, other);
	next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL);
	CHECK(!event_waits(listener->ch));
	drop_end(&client);
	ask_by(&client, port, transport);
	e = fetch(listener->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	server = (struct end){.ch = listener->ch, .id = e->id};
	SAME(e->id->verbs->device->transport_type, transport);
	make_qp(&server);
	MUST(rdma_accept(server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	finish_pair(listener, &client, &server);
}

static void a_listener(int transport, int other)
{
	struct end listener;
	unsigned port = listen_for(&listener, transport);

	is_asked_by_its_own_alone(&listener, port, transport, other);
}

static void who_listens_for_iwarp_is_not_asked_by_roce(void)
{
	a_listener(IBV_TRANSPORT_IWARP, IBV_TRANSPORT_IB);
}

static void who_listens_for_roce_is_not_asked_by_iwarp(void)
{
	a_listener(IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP);
}

static void who_listens_for_either_is_asked_by_both(void)
{
	static const int transports[] = {IBV_TRANSPORT_IWARP, IBV_TRANSPORT_IB};
	struct end listener, client;

	unsigned port = start_listening(&listener, "0.0.0.0", RDMA_PS_TCP, 4);

	for (int i = 0; i < 2; i++) {
		ask_by(&client, port, transports[i]);
		struct rdma_cm_event *e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = e->id;

		SAME(id->verbs->device->transport_type, transports[i]);
		MUST(rdma_reject(id, NULL, 0));
		MUST(rdma_ack_cm_event(e));
		MUST(rdma_destroy_id(id));
		next_is(client.ch, RDMA_CM_EVENT_REJECTED, NULL);
		drop_end(&client);
	}
	drop_end(&listener);
}

/* By default an address means the RoCE adapter. */
static void who_is_bound_to_an_adapters_address_is_asked_by_that_adapter(void)
{
	struct end listener;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_TCP, 4);

	SAME(listener.id->verbs->device->transport_type, IBV_TRANSPORT_IB);
	is_asked_by_its_own_alone(&listener, port, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(who_listens_for_iwarp_is_not_asked_by_roce),
	        T(who_listens_for_roce_is_not_asked_by_iwarp),
	        T(who_listens_for_either_is_asked_by_both),
	        T(who_is_bound_to_an_adapters_address_is_asked_by_that_adapter),
	};

	setenv("VERBENA_DEVICES", "roce:lo,iwarp:lo", 1);
	return RUN_TESTS(argc, argv, tests);
}
