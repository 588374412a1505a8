// rbd_gateways_test.c - two gateways of one image in one process, with calls in place of librados and librbd
// see: backend/rbd_gateway.c, backend/rbd_return.c
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <time.h>

#include "../../support/check.h"
#include "backend/gateway.h"
#include "host.h"
#include "rbd_fake.h"

static struct nb_ring *ring;

static uint64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void one_turn(int ms)
{
	struct pollfd p = {.fd = nb_ring_fd(ring), .events = POLLIN};

	poll(&p, 1, ms);
	nb_ring_reap(ring);
	nb_ring_turn(ring, clock_ms());
}

/* Two options that differ make two connections. */
static int open_as(const char *name, char why[NB_WHY], struct nb_backend **b)
{
	struct nb_config c = {
	        .kind = "rbd", .path = "p/i", .wait_ms = 60000, .gateway = name, .ceph_user = name, .why = why};

	*why = 0;
	return nb_open(&c, ring, b);
}

static struct nb_backend *gateway(const char *name)
{
	struct nb_backend *b;
	char why[NB_WHY];

	SAME(open_as(name, why, &b), 0);
	return b;
}

static void until_access(struct nb_backend *b, enum nb_access access)
{
	for (int ms = 0; ms < LONG_MS && b->access != access; ms += 10)
		one_turn(10);
	SAME(b->access, access);
}

static void all_closed(void)
{
	CHECK(nb_ring_drain(ring, LONG_MS));
	SAME(images, 0);
	SAME(connections, 0);
	fake_put_object(NULL);
}

struct action {
	struct nb_request r;
	bool done;
	int error;
};

static void action_done(struct nb_request *r, int error)
{
	struct action *a = (struct action *)(void *)r;

	a->done = true;
	a->error = error;
}

static void begin(struct action *a, struct nb_backend *b, enum nb_op op, void *data)
{
	*a = (struct action){.r = {.op = op, .length = 4096, .data = data, .done = action_done}};
	nb_submit(b, &a->r);
}

static int act(struct nb_backend *b, enum nb_op op, void *data)
{
	struct action a;

	begin(&a, b, op, data);
	for (int ms = 0; ms < LONG_MS && !a.done; ms += 10)
		one_turn(10);
	CHECK(a.done);
	return a.error;
}

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
	char text[8192];

	fake_get_object(text);
	return strstr(text, what);
}

/* The object names an owner that is silent. */
static void a_silent_owner_is_blocklisted_first(void)
{
	fake_put_object("verbena-gateways 1\nepoch 5\nowner x 192.0.2.9:0/9\nwanted -\ngateway x 3 17 192.0.2.9:0/9\n");
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
	char text[8192];

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

static void what_cannot_join_is_said_in_one_line(void)
{
	struct nb_backend *b, *a = gateway("a");
	char why[NB_WHY];
	struct nb_config c = {
	        .kind = "rbd", .path = "p/i", .gateway = "a", .ceph_user = "other", .why = why, .wait_ms = 1000};

	SAME(nb_open(&c, ring, &b), EADDRINUSE);
	CHECK(!strcmp(why, "another target is the gateway a of this image"));
	nb_close(a);
	CHECK(nb_ring_drain(ring, LONG_MS));
	fake_put_object("something");
	SAME(open_as("a", why, &b), EBADMSG);
	CHECK(!strcmp(why, "the object verbena.gateways.abc has contents that no gateway writes"));
	all_closed();
}

int main(void)
{
	fake_begin();
	SAME(nb_ring_open(&ring, false), 0);
	RUN(a_gateway_that_is_asked_to_write_becomes_the_owner);
	RUN(the_owner_keeps_it_until_its_writes_are_done);
	RUN(a_silent_owner_is_blocklisted_first);
	RUN(hosts_see_who_writes);
	RUN(what_cannot_join_is_said_in_one_line);
	nb_ring_close(ring);
	fake_end();
	return 0;
}
