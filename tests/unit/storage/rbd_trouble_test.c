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

int main(void)
{
	fake_begin();
	SAME(nb_ring_open(&ring, false), 0);
	RUN(a_gateway_that_is_cut_off_keeps_no_host_waiting);
	RUN(a_gateway_with_a_lease_waits_for_the_cluster);
	RUN(an_image_that_is_removed_is_said_in_one_line);
	RUN(what_cannot_join_is_said_in_one_line);
	nb_ring_close(ring);
	fake_end();
	return 0;
}
