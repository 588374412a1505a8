// rbd_trouble_test.c - gateways of an image in trouble: cut off from the cluster, without their image, refused
// see: backend/rbd.c, backend/rbd_gateway.c, backend/rbd_return.c
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdarg.h>

#include "../../support/check.h"
#include "backend/gateway.h"
#include "host.h"
#include "rbd_fake_gateway.h"

static struct nb_backend *a, *b;

/* Neither the state nor the image answers. Hosts learn it, although a request may wait for a minute; all goes on when the
 * cluster answers again. */
static void a_gateway_that_is_cut_off_keeps_no_host_waiting(void)
{
	static char data[4096];
	struct action reads, writes;

	a = gateway("a");
	until_access(a, NB_HERE);
	fake_object_stops(true);
	set_stopped(true);
	begin(&reads, a, NB_READ, data);
	begin(&writes, a, NB_WRITE, data);
	until_access(a, NB_AWAY);
	CHECK(reads.done && reads.error == NB_LATE && writes.done && writes.error == NB_LATE);
	SAME(act(a, NB_READ, data), NB_FENCED);
	SAME(act(a, NB_WRITE, data), NB_FENCED);
	SAME(act(a, NB_FLUSH, NULL), 0);
	set_stopped(false);
	fake_object_stops(false);
	until_access(a, NB_HERE);
	SAME(act(a, NB_WRITE, data), 0);
	nb_close(a);
	all_closed();
}

/* A slow cluster whose state goes on is not gone: other gateways would not get the image either. */
static void a_gateway_with_a_lease_waits_for_the_cluster(void)
{
	static char data[4096];
	struct action slow;

	a = gateway("a");
	until_access(a, NB_HERE);
	set_stopped(true);
	begin(&slow, a, NB_READ, data);
	for (uint64_t until = clock_ms() + 2500; clock_ms() < until;)
		one_turn(10);
	CHECK(!slow.done && a->access == NB_HERE);
	set_stopped(false);
	for (int ms = 0; ms < LONG_MS && !slow.done; ms += 10)
		one_turn(10);
	CHECK(slow.done && !slow.error);
	nb_close(a);
	all_closed();
}

static char said[1000];

__attribute__((format(printf, 1, 2))) static void note_line(const char *format, ...)
{
	va_list ap;
	size_t n = strlen(said);

	va_start(ap, format);
	vsnprintf(said + n, sizeof(said) - n, format, ap);
	va_end(ap);
}

/* With its image, what gateways share is gone. It tries to come back, and says once why it cannot. */
static void an_image_that_is_removed_is_said_in_one_line(void)
{
	a = gateway("a");
	until_access(a, NB_HERE);
	target_open(16 << 20);
	target.say = note_line;
	CHECK(nt_namespace_add(subsystem, 1, a, NULL));
	open_error = ENOENT;
	fake_put_object(NULL);
	for (int ms = 0; ms < LONG_MS && !strstr(said, "opened again"); ms += 10)
		one_turn(10);
	for (uint64_t until = clock_ms() + 1200; clock_ms() < until;) /* another attempt */
		one_turn(10);
	CHECK(!strcmp(said,
	              SUBNQN ", namespace 1: its cluster has shut this target out; hosts are told to use another" SUBNQN
	                     ", namespace 1: it cannot be opened again yet: image i: No such file or directory"));
	open_error = 0;
	for (int ms = 0; ms < LONG_MS && subsystem->ns[1]->backend == a; ms += 10)
		one_turn(10);
	CHECK(subsystem->ns[1]->backend != a);
	target_close();
	all_closed();
}

static void what_cannot_join_is_said_in_one_line(void)
{
	char why[NB_WHY];
	struct nb_config c = {
	        .kind = "rbd", .path = "p/i", .gateway = "a", .ceph_user = "other", .why = why, .wait_ms = 1000};

	a = gateway("a");
	SAME(nb_open(&c, ring, &b), EADDRINUSE);
	CHECK(!strcmp(why, "another target is the gateway a of this image"));
	c.gateway = "b";
	c.block = 4096;
	SAME(nb_open(&c, ring, &b), EMEDIUMTYPE);
	CHECK(!strcmp(why, "the gateway a of this image has block=512, this one block=4096"));
	nb_close(a);
	CHECK(nb_ring_drain(ring, LONG_MS));
	fake_put_object("something");
	SAME(open_as("a", why, &b), EBADMSG);
	CHECK(!strcmp(why, "the object verbena.gateways.abc has contents that no gateway writes"));
	command_error = EACCES; /* it could not take over */
	SAME(open_as("a", why, &b), EACCES);
	CHECK(strstr(why, " needs the capability mon 'profile rbd'"));
	command_error = 0;
	all_closed();
}

static uint32_t said_full;

static void count_full(struct nb_backend *backend, enum nb_change what)
{
	said_full += what == NB_FULL;
}

/* The writes that need space are not at librbd meanwhile. */
static void a_pool_that_is_full_keeps_writes_waiting_and_nothing_else(void)
{
	static char data[4096], other[4096];
	struct action first, second,
	        discard = {.r = {.op = NB_DISCARD, .offset = 8192, .length = 4096, .done = action_done}};

	a = gateway("a");
	until_access(a, NB_HERE);
	a->changed = count_full;
	said_full = 0;
	bytes[0] = 0;
	memset(data, 7, sizeof(data));
	set_full(EDQUOT);
	begin(&first, a, NB_WRITE, data);
	begin(&second, a, NB_WRITE, data);
	for (int ms = 0; ms < LONG_MS && !said_full; ms += 10)
		one_turn(10);
	uint32_t answers = answered_now();

	for (int ms = 0; ms < LONG_MS && answered_now() == answers; ms += 10) /* one of them is tried again */
		one_turn(10);
	SAME(act(a, NB_READ, other), 0);
	nb_submit(a, &discard.r);
	for (int ms = 0; ms < LONG_MS && !discard.done; ms += 10)
		one_turn(10);
	CHECK(discard.done && !discard.error);
	CHECK(!first.done && !second.done && said_full == 1 && a->access == NB_HERE && !bytes[0]);
	set_full(0);
	for (int ms = 0; ms < LONG_MS && !(first.done && second.done); ms += 10)
		one_turn(10);
	CHECK(first.done && !first.error && second.done && !second.error && bytes[0] == 7);
	SAME(said_full, 1);
	nb_close(a);
	all_closed();
}

/* A host that has given up the first, and sent it elsewhere, may write something newer. */
static void a_write_does_not_overtake_one_to_the_same_blocks_that_waits(void)
{
	static char old[4096], new[4096];
	struct action first, second;

	a = gateway("a");
	until_access(a, NB_HERE);
	a->changed = count_full;
	said_full = 0;
	memset(old, 1, sizeof(old));
	memset(new, 2, sizeof(new));
	set_full(ENOSPC);
	begin(&first, a, NB_WRITE, old);
	for (int ms = 0; ms < LONG_MS && !said_full; ms += 10)
		one_turn(10);
	set_full(0);
	begin(&second, a, NB_WRITE, new);
	for (int ms = 0; ms < LONG_MS && !(first.done && second.done); ms += 10)
		one_turn(10);
	CHECK(first.done && !first.error && second.done && !second.error);
	SAME(bytes[0], 2);
	nb_close(a);
	all_closed();
}

/* … until its time is over: it is not executed afterwards. */
static void a_write_that_finds_no_space_in_time_is_answered_late(void)
{
	static char data[4096];
	char why[NB_WHY];
	struct nb_config c = {.kind = "rbd", .path = "p/i", .wait_ms = 700, .why = why};
	struct action late;

	bytes[0] = 0;
	memset(data, 9, sizeof(data));
	SAME(nb_open(&c, ring, &a), 0);
	set_full(ENOSPC);
	begin(&late, a, NB_WRITE, data);
	for (int ms = 0; ms < LONG_MS && !late.done; ms += 10)
		one_turn(10);
	CHECK(late.done && late.error == NB_LATE && !late.r.late && a->late == 1);
	set_full(0);
	for (uint64_t until = clock_ms() + 600; clock_ms() < until;)
		one_turn(10);
	CHECK(!bytes[0]);
	nb_close(a);
	all_closed();
}

/* Hosts repeat it at the opening that takes its place. */
static void an_image_that_is_closed_answers_what_waits_for_space(void)
{
	static char data[4096];
	struct action waits,
	        comes = {.r = {.op = NB_WRITE, .offset = 8192, .length = 4096, .data = data, .done = action_done}};

	a = gateway("a");
	until_access(a, NB_HERE);
	a->changed = count_full;
	said_full = 0;
	set_full(ENOSPC);
	begin(&waits, a, NB_WRITE, data);
	for (int ms = 0; ms < LONG_MS && !said_full; ms += 10)
		one_turn(10);
	SAME(said_full, 1);
	set_stopped(true);
	nb_submit(a, &comes.r); /* it is refused after the end */
	nb_close(a);
	set_stopped(false);
	for (int ms = 0; ms < LONG_MS && !(waits.done && comes.done); ms += 10)
		one_turn(10);
	CHECK(waits.done && waits.error == NB_FENCED && comes.done && comes.error == NB_FENCED);
	set_full(0);
	all_closed();
}

/* … although the cluster shuts it out while it ends. */
static void an_image_that_is_closed_does_not_come_back(void)
{
	static char data[4096];
	struct action reads;

	a = gateway("a");
	until_access(a, NB_HERE);
	set_stopped(true);
	begin(&reads, a, NB_READ, data);
	nb_close(a);
	set_fails(ESHUTDOWN);
	set_stopped(false);
	for (int ms = 0; ms < LONG_MS && !reads.done; ms += 10)
		one_turn(10);
	CHECK(reads.done && reads.error == NB_FENCED);
	set_fails(0);
	all_closed();
}

/* Three images of one cluster use one connection, also if nobody waits for the first. */
static void images_are_opened_while_the_loop_goes_on(void)
{
	struct nb_config c = {.kind = "rbd", .path = "p/i"};
	struct opening x[3], wrong = {.o.done = opening_done};

	for (int i = 0; i < 3; i++) {
		x[i] = (struct opening){.o.done = opening_done};
		SAME(nb_open_later(&c, ring, &x[i].o), 0);
		CHECK(!x[i].done);
	}
	for (int ms = 0; ms < LONG_MS && !(x[0].done && x[1].done && x[2].done); ms += 10)
		one_turn(10);
	for (int i = 0; i < 3; i++)
		CHECK(x[i].done && !x[i].error && x[i].b && x[i].b->size == SIZE);
	SAME(connections, 1);
	c.path = "p";
	SAME(nb_open_later(&c, ring, &wrong.o), 0);
	for (int ms = 0; ms < LONG_MS && !wrong.done; ms += 10)
		one_turn(10);
	CHECK(wrong.done && wrong.error == EINVAL && !wrong.b && strstr(wrong.o.why, "POOL/IMAGE"));
	for (int i = 0; i < 3; i++)
		nb_close(x[i].b);
	all_closed();
}

/* A connection that cannot be made fails for all who wait for it, in the same words. */
static void a_cluster_that_lets_nobody_in_says_so_to_all(void)
{
	struct nb_config c = {.kind = "rbd", .path = "p/i"};
	struct opening x[2];

	connect_error = EACCES;
	for (int i = 0; i < 2; i++) {
		x[i] = (struct opening){.o.done = opening_done};
		SAME(nb_open_later(&c, ring, &x[i].o), 0);
	}
	for (int ms = 0; ms < LONG_MS && !(x[0].done && x[1].done); ms += 10)
		one_turn(10);
	for (int i = 0; i < 2; i++)
		CHECK(x[i].done && x[i].error == EACCES && strstr(x[i].o.why, "lets client.admin not in"));
	connect_error = 0;
	all_closed();
}

int main(void)
{
	fake_begin();
	SAME(nb_ring_open(&ring, false), 0);
	RUN(a_gateway_that_is_cut_off_keeps_no_host_waiting);
	RUN(a_gateway_with_a_lease_waits_for_the_cluster);
	RUN(an_image_that_is_removed_is_said_in_one_line);
	RUN(what_cannot_join_is_said_in_one_line);
	RUN(a_pool_that_is_full_keeps_writes_waiting_and_nothing_else);
	RUN(a_write_does_not_overtake_one_to_the_same_blocks_that_waits);
	RUN(a_write_that_finds_no_space_in_time_is_answered_late);
	RUN(an_image_that_is_closed_answers_what_waits_for_space);
	RUN(an_image_that_is_closed_does_not_come_back);
	RUN(images_are_opened_while_the_loop_goes_on);
	RUN(a_cluster_that_lets_nobody_in_says_so_to_all);
	nb_ring_close(ring);
	fake_end();
	return 0;
}
