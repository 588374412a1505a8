// datagrams.c - datagram services and multicast groups
// follows: rdma_cm(7) (RDMA_PS_UDP), rdma_join_multicast(3), rdma_leave_multicast(3)
// SPDX-License-Identifier: MIT
#include <ifaddrs.h>
#include <net/if.h>
#include <rdma/rdma_verbs.h>

#include "cm.h"

#define GRH 40
#define EVERYBODY 0xffffff

static void a_service_of(enum rdma_port_space ps)
{
	struct end listener, client;
	char data[181] = "who?";
	struct rdma_conn_param param = {.private_data = data, .private_data_len = 181};
	unsigned port = start_listening(&listener, "0.0.0.0", ps, 4);
	struct rdma_cm_event *e;
	struct ibv_wc wc;

	go_to(&client, "127.0.0.1", port, ps);
	make_qp(&client);
	SAME(client.id->qp->state, IBV_QPS_RTS);
	FAILS(rdma_connect(client.id, &param), EINVAL);
	param.private_data_len = 180;
	MUST(rdma_connect(client.id, &param));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	SAME(e->param.ud.private_data_len, 180);
	CHECK(!strcmp(e->param.ud.private_data, "who?"));
	struct end server = {.ch = listener.ch, .id = e->id};

	make_qp(&server);
	MUST(rdma_post_recv(server.id, NULL, server.buf, 100, server.mr));
	param.private_data_len = 137;
	FAILS(rdma_accept(server.id, &param), EINVAL);
	param.private_data_len = 4;
	MUST(rdma_accept(server.id, &param));
	FAILS(rdma_accept(server.id, &param), EINVAL);
	MUST(rdma_ack_cm_event(e));
	e = fetch(client.ch, RDMA_CM_EVENT_ESTABLISHED);
	SAME(e->param.ud.qp_num, server.id->qp->qp_num);
	SAME(e->param.ud.qkey, RDMA_UDP_QKEY);
	SAME(e->param.ud.private_data_len, 136);
	CHECK(!strcmp(e->param.ud.private_data, "who?"));
	struct ibv_ah *ah = ibv_create_ah(client.id->pd, &e->param.ud.ah_attr);

	CHECK(ah);
	strcpy(client.buf, "datagram");
	MUST(rdma_post_ud_send(client.id, NULL, client.buf, 9, client.mr, 0, ah, e->param.ud.qp_num));
	MUST(rdma_ack_cm_event(e));
	poll_one(client.cq, &wc);
	poll_one(server.cq, &wc);
	CHECK(!strcmp(server.buf + GRH, "datagram"));
	MUST(ibv_destroy_ah(ah));
	drop_end(&client);
	drop_end(&server);
	drop_end(&listener);
}

static void a_service_is_found_and_reached(void)
{
	a_service_of(RDMA_PS_UDP);
}

static void one_of_ipoib_too(void)
{
	a_service_of(RDMA_PS_IPOIB);
}

static void a_service_may_refuse(void)
{
	struct end listener, client;
	unsigned port = start_listening(&listener, "127.0.0.1", RDMA_PS_UDP, 4);
	struct rdma_cm_event *e, got;

	go_to(&client, "127.0.0.1", port, RDMA_PS_UDP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	e = fetch(listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(rdma_reject(e->id, "no", 2));
	FAILS(rdma_reject(e->id, "no", 2), EINVAL);
	MUST(rdma_destroy_id(e->id));
	MUST(rdma_ack_cm_event(e));
	next_is(client.ch, RDMA_CM_EVENT_UNREACHABLE, &got);
	SAME(got.status, 2);
	drop_end(&client);
	drop_end(&listener);
}

static void a_service_that_is_not_there_is_unreachable(void)
{
	struct rdma_cm_event got;
	struct end client;

	go_to(&client, "::1", 3, RDMA_PS_UDP);
	make_qp(&client);
	MUST(rdma_connect(client.id, NULL));
	next_is(client.ch, RDMA_CM_EVENT_UNREACHABLE, &got);
	SAME(got.status, 1);
	drop_end(&client);
}

/* Bound to an interface, because then groups need no route. */
static void member(struct end *e, union address *host)
{
	*e = (struct end){.ch = rdma_create_event_channel()};
	MUST(rdma_create_id(e->ch, &e->id, e, RDMA_PS_UDP));
	MUST(rdma_bind_addr(e->id, &host->sa));
	make_qp(e);
	MUST(rdma_post_recv(e->id, NULL, e->buf, 200, e->mr));
}

static struct ibv_ah *join(struct end *e, union address *group)
{
	struct rdma_cm_event *ev;
	struct ibv_ah *ah;
	int mine;

	MUST(rdma_join_multicast(e->id, &group->sa, &mine));
	ev = fetch(e->ch, RDMA_CM_EVENT_MULTICAST_JOIN);
	SAME(ev->status, 0);
	CHECK(ev->param.ud.private_data == &mine);
	SAME(ev->param.ud.qp_num, EVERYBODY);
	SAME(ev->param.ud.qkey, RDMA_UDP_QKEY);
	ah = ibv_create_ah(e->id->pd, &ev->param.ud.ah_attr);
	CHECK(ah);
	MUST(rdma_ack_cm_event(ev));
	return ah;
}

static void talk_in(union address *host, const char *name)
{
	union address group = at(name, 0);
	struct end a, b;
	struct ibv_ah *ah, *unused;
	struct ibv_wc wc;

	member(&a, host);
	member(&b, host);
	ah = join(&a, &group);
	unused = join(&b, &group);
	strcpy(a.buf + 1024, "to all");
	MUST(rdma_post_ud_send(a.id, NULL, a.buf + 1024, 7, a.mr, 0, ah, EVERYBODY));
	poll_one(b.cq, &wc);
	CHECK(!strcmp(b.buf + GRH, "to all"));
	MUST(ibv_destroy_ah(ah));
	MUST(ibv_destroy_ah(unused));
	MUST(rdma_leave_multicast(a.id, &group.sa));
	FAILS(rdma_leave_multicast(a.id, &group.sa), EADDRNOTAVAIL);
	MUST(rdma_leave_multicast(b.id, &group.sa));
	drop_end(&a);
	drop_end(&b);
}

static void groups_are_those_of_ip(void)
{
	union address lo = at("127.0.0.1", 0);

	talk_in(&lo, "239.1.2.3");
	talk_in(&lo, "::ffff:239.1.2.5"); /* the same, in the form that mckey uses with IPv6 */
}

/* lo has no IPv6 multicast. */
static void groups_of_ipv6_are_joined_on_an_interface(void)
{
	union address host = {0};
	struct ifaddrs *all;

	MUST(getifaddrs(&all));
	for (struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET6 && i->ifa_flags & IFF_MULTICAST &&
		    i->ifa_flags & IFF_UP)
			memcpy(&host.sin6, i->ifa_addr, sizeof(host.sin6));
	freeifaddrs(all);
	if (!host.sa.sa_family)
		skip("no interface with an IPv6 address");
	talk_in(&host, "ff15::1:2");
}

static void joining_is_checked(void)
{
	union address group = at("239.1.2.4", 0), host = at("127.0.0.1", 0);
	struct rdma_cm_join_mc_attr_ex attr = {.addr = &group.sa};
	struct end a;

	member(&a, &host);
	FAILS(rdma_join_multicast(a.id, NULL, NULL), EINVAL);
	FAILS(rdma_join_multicast(a.id, &host.sa, NULL), EINVAL);
	FAILS(rdma_join_multicast_ex(a.id, &attr, NULL), EINVAL);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
	FAILS(rdma_join_multicast_ex(a.id, &attr, NULL), ENOTSUP);
	attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	FAILS(rdma_join_multicast_ex(a.id, &attr, NULL), EINVAL);
	attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
	MUST(rdma_join_multicast_ex(a.id, &attr, NULL));
	next_is(a.ch, RDMA_CM_EVENT_MULTICAST_JOIN, NULL);
	FAILS(rdma_leave_multicast(a.id, &host.sa), EADDRNOTAVAIL);
	MUST(rdma_leave_multicast(a.id, &group.sa));
	/* left with an event that was not fetched, and never left */
	MUST(rdma_join_multicast(a.id, &group.sa, NULL));
	MUST(rdma_leave_multicast(a.id, &group.sa));
	CHECK(!event_waits(a.ch));
	MUST(rdma_join_multicast(a.id, &group.sa, NULL));
	drop_end(&a);
}

int main(int argc, char **argv)
{
#define T(name)                \
	{                      \
#name, name, 0 \
	}
	static const struct test tests[] = {
	        T(a_service_is_found_and_reached),
	        T(one_of_ipoib_too),
	        T(a_service_may_refuse),
	        T(a_service_that_is_not_there_is_unreachable),
	        T(groups_are_those_of_ip),
	        T(groups_of_ipv6_are_joined_on_an_interface),
	        T(joining_is_checked),
	};

	return RUN_TESTS(argc, argv, tests);
}
