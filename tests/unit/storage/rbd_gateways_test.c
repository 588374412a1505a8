// rbd_gateways_test.c - two gateways of one image in one process, with calls in place of librados and librbd
// see: backend/rbd_gateway.c, backend/rbd_return.c
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <time.h>

#include "../../support/check.h"
#include "backend/gateway.h"
#include "host.h"
#include "rbd_fake_gateway.h"
#include "reserve_host.h"

static void a_gateway_that_is_asked_to_write_becomes_the_owner(void)
{
	static char data[4096], is[4096];
	struct nb_backend *a = gateway("a"), *b;

	until_access(a, NB_HERE);
	b = gateway("b");
	SAME(b->access, NB_OTHER);
	SAME(a->part, 0);
	SAME(b->part, 1);
	CHECK(!strcmp(a->identity, b->identity));
	memset(data, 1, sizeof(data));
	SAME(act(a, NB_WRITE, data), 0);
	SAME(act(b, NB_READ, is), 0);
	CHECK(is[7] == 1);
	memset(data, 2, sizeof(data));
	SAME(act(b, NB_WRITE, data), NB_ELSEWHERE); /* it is not executed later either */
	SAME(act(b, NB_ZERO, NULL), NB_ELSEWHERE);
	until_access(b, NB_HERE);
	SAME(a->access, NB_OTHER);
	CHECK(bytes[0] == 1);
	SAME(act(b, NB_WRITE, data), 0);
	SAME(act(a, NB_WRITE, data), NB_ELSEWHERE);
	SAME(fake_blocklisted(), 0);
	nb_close(a);
	nb_close(b);
	all_closed();
}

/* As a reload does: the earlier opening leaves when the cluster has answered its last request. */
static void a_later_opening_of_the_same_gateway_follows_the_earlier_one(void)
{
	static char data[4096];
	struct nb_config c = {.kind = "rbd", .path = "p/i", .wait_ms = 30000, .gateway = "a", .ceph_user = "a"};
	struct opening l = {.o.done = opening_done};
	struct nb_backend *a = gateway("a");
	struct action slow;

	until_access(a, NB_HERE);
	set_stopped(true);
	begin(&slow, a, NB_WRITE, data);
	nb_close(a);
	SAME(nb_open_later(&c, ring, &l.o), 0);
	for (uint64_t until = clock_ms() + NG_LEASE_MS; clock_ms() < until;)
		one_turn(10);
	CHECK(!l.done && !slow.done);
	set_stopped(false);
	for (int ms = 0; ms < LONG_MS && !l.done; ms += 10)
		one_turn(10);
	CHECK(slow.done && !slow.error);
	SAME(l.error, 0);
	until_access(l.b, NB_HERE);
	SAME(fake_blocklisted(), 0);
	SAME(act(l.b, NB_WRITE, data), 0);
	nb_close(l.b);
	all_closed();
}

static void the_owner_keeps_it_until_its_writes_are_done(void)
{
	static char data[4096];
	struct nb_backend *a = gateway("a"), *b;
	struct action slow;

	until_access(a, NB_HERE);
	b = gateway("b");
	set_stopped(true);
	begin(&slow, a, NB_WRITE, data);
	SAME(act(b, NB_WRITE, data), NB_ELSEWHERE);
	until_access(b, NB_MOVING);
	until_access(a, NB_OTHER); /* it starts no more */
	SAME(act(a, NB_WRITE, data), NB_ELSEWHERE);
	for (uint64_t until = clock_ms() + 700; clock_ms() < until;)
		one_turn(10);
	SAME(b->access, NB_MOVING);
	CHECK(!slow.done);
	set_stopped(false);
	until_access(b, NB_HERE);
	CHECK(slow.done && !slow.error);
	nb_close(a);
	nb_close(b);
	all_closed();
}

static bool object_has(const char *what)
{
	char text[NG_TEXT];

	fake_get_object(text);
	return strstr(text, what);
}

/* A pool that is full lets no watch begin or end. */
static void a_gateway_lives_on_while_its_watch_does_not_come_back(void)
{
	static char data[4096];
	struct nb_backend *a = gateway("a"), *b;

	until_access(a, NB_HERE);
	b = gateway("b");
	for (int ms = 0; ms < LONG_MS && fake_watches() < 2; ms += 10)
		one_turn(10);
	SAME(fake_watches(), 2);
	fake_watch_stops(true);
	fake_watch_breaks();
	for (uint64_t until = clock_ms() + NG_LEASE_MS + 1000; clock_ms() < until;)
		one_turn(10);
	SAME(b->access, NB_OTHER);
	SAME(act(b, NB_WRITE, data), NB_ELSEWHERE);
	until_access(b, NB_HERE); /* the owner has seen it without a notification, and gives the image up */
	SAME(fake_blocklisted(), 0);
	SAME(act(b, NB_WRITE, data), 0);
	SAME(a->access, NB_OTHER);
	nb_close(a); /* before its watch has ended */
	for (int ms = 0; ms < LONG_MS && images != 1; ms += 10)
		one_turn(10);
	SAME(images, 1);
	fake_watch_stops(false);
	for (int ms = 0; ms < LONG_MS && fake_watches() != 1; ms += 10)
		one_turn(10);
	SAME(fake_watches(), 1); /* … of b, which came back */
	nb_close(b);
	all_closed();
	SAME(fake_watches(), 0);
}

/* The object names an owner that is silent. */
static void a_silent_owner_is_blocklisted_first(void)
{
	fake_put_object("verbena-gateways 2\nepoch 5\nowner x 192.0.2.9:0/9\nwanted -\n"
	                "reservation 0 0 0 0\ngateway x 3 17 0 0 192.0.2.9:0/9\n");
	fake_blocklist_fails(true);
	struct nb_backend *b = gateway("b");
	uint32_t before = fake_blocklisted();

	SAME(b->part, 0);
	for (uint64_t until = clock_ms() + NG_LEASE_MS + 1500; clock_ms() < until;) {
		one_turn(10);
		CHECK(b->access != NB_HERE);
	}
	SAME(b->access, NB_MOVING);
	CHECK(object_has("owner x"));
	fake_blocklist_fails(false);
	until_access(b, NB_HERE);
	SAME(fake_blocklisted(), before + 1);
	CHECK(object_has("epoch 6\nowner b "));
	nb_close(b);
	all_closed();
}

static struct host *admin, *h;

static uint32_t group_now(void)
{
	host_do(admin, get_log(NV_LOG_ANA, 4096, 0));
	return nv_get32(admin->in + 16);
}

static void until_group(uint32_t group)
{
	for (int ms = 0; ms < LONG_MS && group_now() != group; ms += 10)
		one_turn(10);
	SAME(group_now(), group);
}

static uint16_t write_once(void)
{
	uint16_t cid = host_post(h, io_command(NV_IO_WRITE, 0, 8), 0);

	for (int ms = 0; ms < LONG_MS && !host_answer(h, cid); ms += 10)
		one_turn(10);
	uint16_t status = host_answer(h, cid)->status;

	host_settle(h);
	return status;
}

static void blocklist_owner(void)
{
	struct ng_state s;
	char text[NG_TEXT];

	fake_get_object(text);
	CHECK(ng_decode(text, strlen(text), &s));
	SAME(nb_rbd_load(NULL)->rados_blocklist_add(NULL, s.owner_client, 1), 0);
}

/* A host sees each step, and one that is shut out comes back by itself, with nothing to do for anybody. */
static void hosts_see_who_writes(void)
{
	static char data[4096];
	struct nb_backend *a = gateway("a");

	target_open(16 << 20);
	struct nt_namespace *ns = nt_namespace_add(subsystem, 1, a, NULL);

	CHECK(ns);
	admin = host_admin();
	h = host_io(admin, 1);
	until_group(1);
	SAME(write_once(), 0);
	struct nb_backend *b = gateway("b");

	blocklist_owner();
	for (int ms = 0; ms < LONG_MS && ns->backend == a; ms += 10)
		one_turn(10);
	CHECK(ns->backend != a && !ns->backend->fenced);
	SAME(ns->backend->part, 0);
	until_group(1);
	SAME(write_once(), 0);
	SAME(b->access, NB_OTHER);
	SAME(act(b, NB_WRITE, data), NB_ELSEWHERE);
	until_access(b, NB_HERE);
	until_group(NT_ANA_OTHER);
	SAME(admin->in[16 + 16], NV_ANA_NON_OPTIMIZED);
	uint16_t status;

	for (int ms = 0; ms < LONG_MS && (status = write_once()); ms += 50) { /* for a second it does not ask */
		SAME(status, NV_ANA_TRANSITION_PATH);
		one_turn(50);
	}
	until_group(1);
	SAME(admin->in[16 + 16], NV_ANA_OPTIMIZED);
	SAME(write_once(), 0);
	nb_close(b);
	host_close(h);
	host_close(admin);
	target_close();
	all_closed();
}

/* ---- reservations: two gateways are two subsystems here ---- */

#define OTHER_SUBNQN "nqn.2026-01.test:other"
#define CONFLICT (NV_RESERVATION_CONFLICT | NV_DNR)

static struct nb_backend *a, *b;
static struct reserver one_a, one_b, two_a, two_b; /* two hosts, each at both */

static uint16_t await(struct host *q, uint16_t cid)
{
	for (int ms = 0; ms < LONG_MS && !host_answer(q, cid); ms += 10)
		one_turn(10);
	host_settle(q);
	CHECK(host_answer(q, cid));
	uint16_t status = host_answer(q, cid)->status;

	q->count = 0;
	return status;
}

static void reserving_up(void)
{
	target_open(16 << 20);
	struct nt_subsystem *other = nt_subsystem_add(&target, OTHER_SUBNQN);

	CHECK(other);
	other->any_host = true;
	CHECK(nt_namespace_add(subsystem, 1, a, NULL) && nt_namespace_add(other, 1, b, NULL));
	one_a = reserver_open(SUBNQN, HOSTNQN, 1);
	one_b = reserver_open(OTHER_SUBNQN, HOSTNQN, 1);
	two_a = reserver_open(SUBNQN, "nqn.2026-01.test:two", 2);
	two_b = reserver_open(OTHER_SUBNQN, "nqn.2026-01.test:two", 2);
}

static void reserving_down(void)
{
	reserver_close(&one_a);
	reserver_close(&one_b);
	reserver_close(&two_a);
	reserver_close(&two_b);
	target_close();
	all_closed();
}

static uint16_t write_by(struct reserver *v)
{
	return await(v->io, host_post(v->io, io_command(NV_IO_WRITE, 0, 8), 0));
}

static uint16_t read_by(struct reserver *v)
{
	return await(v->io, host_post(v->io, io_command(NV_IO_READ, 0, 8), 0));
}

static void both_report_the_same(uint32_t registrants)
{
	static uint8_t was[4096];

	SAME(report(&one_a, sizeof(was)), 0);
	memcpy(was, one_a.io->in, sizeof(was));
	SAME(nv_get16(was + 5), registrants);
	SAME(report(&two_b, sizeof(was)), 0);
	CHECK(!memcmp(was, two_b.io->in, sizeof(was)));
}

static void a_reservation_holds_at_each_gateway(void)
{
	a = gateway("a");
	until_access(a, NB_HERE);
	b = gateway("b");
	reserving_up();
	SAME(host_do(one_a.admin, identify(NV_CNS_NS, 1)).status, 0);
	SAME(one_a.admin->in[31], 0xff);
	SAME(await(one_a.io, post_enter(&one_a, 10)), 0);
	both_report_the_same(1);
	SAME(await(one_b.io, post_acquire(&one_b, 10, NR_ACCESS)), 0); /* it is the same host, at another gateway */
	both_report_the_same(1);
	SAME(write_by(&two_a), CONFLICT);
	SAME(write_by(&two_b), CONFLICT);
	SAME(read_by(&two_b), CONFLICT);
	SAME(read_by(&one_b), 0);
	SAME(write_by(&one_a), 0);
	SAME(await(two_b.io, post_acquire(&two_b, 20, NR_ACCESS)), CONFLICT);
	SAME(await(two_b.io, post_enter(&two_b, 20)), 0);
	both_report_the_same(2);
	SAME(await(two_b.io, post_preempt(&two_b, 20, 10, NR_WRITES)), 0);
	both_report_the_same(1);
	SAME(write_by(&one_a), CONFLICT);
	SAME(write_by(&two_a), 0);
	SAME(read_by(&one_a), 0);
	/* the one that has lost it is told, whichever gateway it is at */
	SAME(host_do(one_a.admin, get_log(NV_LOG_RESERVATION, 64, 0)).status, 0);
	SAME(one_a.admin->in[8], NR_REGISTRATION_PREEMPTED);
	SAME(await(two_a.io, post_release(&two_a, 20, NR_WRITES)), 0);
	SAME(write_by(&one_a), 0);
	SAME(await(two_b.io, post_clear(&two_b, 20)), 0);
	both_report_the_same(0);
	struct nv_sqe persist = {
	        .opcode = NV_ADMIN_SET_FEATURES, .nsid = 1, .sgl = by_transport(0), .cdw = {NV_FEAT_PERSISTENCE, 1}};

	SAME(await(two_b.admin, host_post(two_b.admin, persist, 0)), 0);
	both_report_the_same(0);
	SAME(one_a.io->in[9], 1);
	reserving_down();
}

/* The other gateway has a write of the preempted host at the cluster. */
static void a_preemption_waits_for_the_writes_of_other_gateways(void)
{
	a = gateway("a");
	until_access(a, NB_HERE);
	b = gateway("b");
	reserving_up();
	SAME(await(one_a.io, post_enter(&one_a, 10)), 0);
	SAME(await(one_a.io, post_acquire(&one_a, 10, NR_WRITES)), 0);
	SAME(await(two_b.io, post_enter(&two_b, 20)), 0);
	set_stopped(true);
	memset(one_a.io->out, 5, 4096);
	bytes[0] = 1;
	uint16_t write = host_post(one_a.io, io_command(NV_IO_WRITE, 0, 8), 0),
	         preempts = post_preempt(&two_b, 20, 10, NR_WRITES);

	for (uint64_t until = clock_ms() + 700; clock_ms() < until;)
		one_turn(10);
	CHECK(!host_answer(two_b.io, preempts) && !host_answer(one_a.io, write) && bytes[0] == 1);
	SAME(host_answer(one_a.io, host_post(one_a.io, io_command(NV_IO_WRITE, 8, 8), 0))->status, CONFLICT);
	set_stopped(false);
	SAME(await(two_b.io, preempts), 0);
	SAME(bytes[0], 5);
	reserving_down();
}

static void a_change_that_the_cluster_does_not_take_may_be_tried_again(void)
{
	struct nb_config c = {.kind = "rbd",
	                      .path = "p/i",
	                      .wait_ms = 1000,
	                      .gateway = "a",
	                      .ceph_user = "a",
	                      .why = (char[NB_WHY]){0}};

	SAME(nb_open(&c, ring, &a), 0);
	until_access(a, NB_HERE);
	b = gateway("b");
	reserving_up();
	fake_object_stops(true);
	uint16_t first = post_enter(&one_a, 10), second = post_enter(&two_a, 20);

	SAME(await(one_a.io, first), NV_INTERNAL_PATH);
	SAME(await(two_a.io, second), NV_INTERNAL_PATH);
	fake_object_stops(false);
	SAME(await(one_a.io, post_enter(&one_a, 10)), 0);
	SAME(report(&two_b, 4096), 0);
	SAME(nv_get16(two_b.io->in + 5), 1); /* what was answered late is not made later */
	reserving_down();
}

/* One that takes over enforces what it finds, from its first command. */
static void a_gateway_that_takes_over_enforces_the_reservation(void)
{
	fake_put_object("verbena-gateways 2\nepoch 5\nowner x 192.0.2.9:0/9\nwanted -\nreservation 7 3 2 1\n"
	                "holder 03030303030303030303030303030303 03030303030303030303030303030303 0000000000000030\n"
	                "gateway x 3 17 7 2 192.0.2.9:0/9\n");
	a = gateway("a");
	b = gateway("b");
	reserving_up();
	SAME(read_by(&one_a), CONFLICT);
	both_report_the_same(1);
	for (int ms = 0; ms < LONG_MS && (a->access + b->access != NB_HERE + NB_OTHER); ms += 10) {
		CHECK(write_by(&one_a) && write_by(&two_b));
		one_turn(10);
	}
	SAME(write_by(&one_a), CONFLICT);
	SAME(write_by(&two_b), CONFLICT);
	CHECK(fake_blocklisted() > 0);
	both_report_the_same(1);
	SAME(nv_get64(two_b.io->in + 64 + 8), 0x30);
	SAME(await(one_a.io, post_enter(&one_a, 10)), 0);
	SAME(await(one_a.io, post_preempt(&one_a, 10, 0x30, NR_WRITES)), 0);
	both_report_the_same(1);
	reserving_down();
}

/* The loop stands still, as with a halted program, for longer than the lease: what the state says may be old. */
static void a_gateway_without_a_lease_reads_nothing_that_may_be_reserved(void)
{
	static char data[4096];

	fake_put_object(
	        "verbena-gateways 2\nepoch 5\nowner - -\nwanted -\nreservation 7 3 0 1\n"
	        "registrant 03030303030303030303030303030303 03030303030303030303030303030303 0000000000000030\n");
	a = gateway("a");
	until_access(a, NB_HERE);
	SAME(act(a, NB_READ, data), 0);
	fake_object_stops(true);
	struct timespec lease = {.tv_sec = NG_LEASE_MS / 1000, .tv_nsec = 100000000};

	nanosleep(&lease, NULL);
	SAME(act(a, NB_READ, data), NB_ELSEWHERE);
	fake_object_stops(false);
	int error = -1;

	for (int ms = 0; ms < LONG_MS && (error = act(a, NB_READ, data)); ms += 10)
		one_turn(10);
	SAME(error, 0);
	nb_close(a);
	all_closed();
}

static uint32_t listed(struct host *discovery, const char *address)
{
	uint32_t found = 0;

	SAME(host_do(discovery, get_log(NV_LOG_DISCOVERY, 16384, 0)).status, 0);
	for (uint64_t i = 0; i < nv_get64(discovery->in + 8); i++) {
		const uint8_t *e = discovery->in + 1024 * (i + 1);

		if (!memcmp(e + 512, address, strlen(address)) && e[512 + strlen(address)] == ' ' &&
		    !strcmp((const char *)e + 256, SUBNQN)) {
			found++;
			SAME(e[2], NV_SUBTYPE_NVM);
			CHECK(!memcmp(e + 32, "4420 ", 5));
		}
	}
	return found;
}

/* An event tells of each change; a gateway that leaves is listed no more. */
static void the_discovery_log_lists_all_gateways(void)
{
	struct nb_port there = {.trtype = NV_TRTYPE_TCP, .id = 3, .service = 4420, .address = "192.0.2.77"};

	a = gateway("a");
	target_open(16 << 20);
	CHECK(nt_namespace_add(subsystem, 1, a, NULL));
	struct host *d = reserver_queue(NV_DISCOVERY_NQN, HOSTNQN, 1, 0, NV_CNTLID_DYNAMIC);

	SAME(property_set(d, NV_PROP_CC, 1, 0).status, 0);
	SAME(host_do(d, (struct nv_sqe){.opcode = NV_ADMIN_SET_FEATURES,
	                                .sgl = by_transport(0),
	                                .cdw = {NV_FEAT_ASYNC_EVENTS, NV_AEC_DISCOVERY_CHANGED}})
	             .status,
	     0);
	SAME(listed(d, "192.0.2.1"), 1);
	SAME(listed(d, "192.0.2.77"), 0);
	d->count = 0;
	uint16_t aer = host_post(d, (struct nv_sqe){.opcode = NV_ADMIN_ASYNC_EVENT, .sgl = by_transport(0)}, 0);

	b = gateway("b");
	nv_uuid_from(SUBNQN, 0, there.subsystem);
	struct nb_port ports[2] = {there, there};

	strcpy(ports[1].address, "192.0.2.78");
	nv_uuid_from(OTHER_SUBNQN, 0, ports[1].subsystem); /* of another subsystem */
	nb_announce(b, ports, 2);
	for (int ms = 0; ms < LONG_MS && !host_answer(d, aer); ms += 10)
		one_turn(10);
	CHECK(host_answer(d, aer));
	SAME(listed(d, "192.0.2.77"), 1);
	SAME(listed(d, "192.0.2.78"), 0);
	SAME(listed(d, "192.0.2.1"), 1);
	for (int ms = 0; ms < LONG_MS && !object_has(" 192.0.2.1\n"); ms += 10) /* its thread writes it */
		one_turn(10);
	CHECK(object_has(" 4420 ") && object_has(" 192.0.2.1\n"));
	d->count = 0;
	aer = host_post(d, (struct nv_sqe){.opcode = NV_ADMIN_ASYNC_EVENT, .sgl = by_transport(0)}, 0);
	nb_close(b);
	for (int ms = 0; ms < LONG_MS && !host_answer(d, aer); ms += 10)
		one_turn(10);
	CHECK(host_answer(d, aer));
	SAME(listed(d, "192.0.2.77"), 0);
	port.any = true; /* it listens on all addresses, of which none can be reached by others */
	strcpy(target.announce, "127.0.0.1");
	nt_announce(&target);
	for (int ms = 0; ms < LONG_MS && object_has(" 192.0.2.1\n"); ms += 10)
		one_turn(10);
	CHECK(!object_has(" 192.0.2.1\n") && !object_has("127.0.0.1"));
	port.any = false;
	d->count = 0;
	aer = host_post(d, (struct nv_sqe){.opcode = NV_ADMIN_ASYNC_EVENT, .sgl = by_transport(0)}, 0);
	nt_namespace_remove(subsystem->ns[1]); /* and with it the ports of its gateways */
	CHECK(host_answer(d, aer));
	host_close(d);
	target_close();
	all_closed();
}

int main(void)
{
	fake_begin();
	SAME(nb_ring_open(&ring, false), 0);
	RUN(a_gateway_that_is_asked_to_write_becomes_the_owner);
	RUN(a_later_opening_of_the_same_gateway_follows_the_earlier_one);
	RUN(the_owner_keeps_it_until_its_writes_are_done);
	RUN(a_gateway_lives_on_while_its_watch_does_not_come_back);
	RUN(a_silent_owner_is_blocklisted_first);
	RUN(hosts_see_who_writes);
	RUN(a_reservation_holds_at_each_gateway);
	RUN(a_preemption_waits_for_the_writes_of_other_gateways);
	RUN(a_change_that_the_cluster_does_not_take_may_be_tried_again);
	RUN(a_gateway_that_takes_over_enforces_the_reservation);
	RUN(a_gateway_without_a_lease_reads_nothing_that_may_be_reserved);
	RUN(the_discovery_log_lists_all_gateways);
	nb_ring_close(ring);
	fake_end();
	return 0;
}
