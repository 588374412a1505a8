// hold_test.c - requests while another opening of their medium is to come: they wait, in order, and not in vain
// see: target/hold.c
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "host.h"
#include "target/server.h"

#define SIZE (1u << 20)
#define WAIT_MS 700u

static struct nt_server server;
static struct host *admin, *h;
static struct medium *m;
static struct nt_namespace *ns;

static void up(void)
{
	target_open(16 << 20);
	m = medium_open(SIZE, 512);
	ns = medium_add(m, 1);
	admin = host_admin();
	h = host_io(admin, 1);
}

static void hold(void)
{
	CHECK(nt_hold_medium(&server, ns, WAIT_MS) && nt_is_held(ns));
	CHECK(m->closed);
	free(m->bytes);
	free(m);
	m = NULL;
}

static void down(void)
{
	host_settle(h);
	host_close(h);
	host_close(admin);
	target_close();
	if (!m)
		return;
	CHECK(m->closed);
	free(m->bytes);
	free(m);
}

static uint16_t post_write(uint8_t byte)
{
	memset(h->out, byte, 512);
	return host_post(h, io_command(NV_IO_WRITE, 0, 1), 0);
}

static void the_new_medium_gets_them_in_order(void)
{
	up();
	hold();
	uint16_t first = post_write(1), second = post_write(2);

	nb_ring_turn(server.ring, nt_now());
	CHECK(!host_answer(h, first) && !host_answer(h, second));
	m = medium_open(SIZE, 512);
	ns->backend->successor = &m->b;
	nt_namespace_replace(ns, &m->b);
	CHECK(!nt_is_held(ns) && host_answer(h, first) && host_answer(h, second));
	SAME(host_answer(h, first)->status, 0);
	SAME(host_answer(h, second)->status, 0);
	SAME(m->count[NB_WRITE], 2);
	SAME(m->bytes[0], 2);
	down();
}

static void their_time_is_that_of_the_configuration(void)
{
	up();
	hold();
	uint64_t before = nt_now();
	uint16_t cid = post_write(1);

	nb_ring_turn(server.ring, before + WAIT_MS - 1);
	CHECK(!host_answer(h, cid));
	nb_ring_turn(server.ring, nt_now() + WAIT_MS);
	CHECK(host_answer(h, cid));
	SAME(host_answer(h, cid)->status, NV_INTERNAL_PATH);
	SAME(ns->backend->late, 1);
	down();
}

/* The request is the last user of the namespace. */
static void nobody_waits_for_a_namespace_that_was_removed(void)
{
	up();
	hold();
	post_write(1);
	nt_queue_close(&h->q);
	CHECK(!h->gone);
	nt_namespace_remove(ns);
	nb_ring_turn(server.ring, nt_now());
	CHECK(h->gone);
	SAME(nb_ring_turn(server.ring, nt_now()), UINT64_MAX);
	down();
}

static void nobody_waits_when_the_target_ends(void)
{
	up();
	hold();
	uint16_t cid = post_write(1);

	server.stop = true;
	nb_ring_turn(server.ring, nt_now());
	CHECK(host_answer(h, cid));
	SAME(host_answer(h, cid)->status, NV_INTERNAL_PATH);
	server.stop = false;
	down();
}

/* Another one may change the reservation meanwhile. */
static void at_a_gateway_hosts_are_told_to_try_again(void)
{
	const struct nb_port other = {.trtype = NV_TRTYPE_TCP, .id = 0x101, .service = 4420, .address = "192.0.2.2"};

	up();
	m->b.parts = 16;
	m->b.part = 3;
	m->b.others = &other;
	m->b.other_count = 1;
	hold();
	uint16_t cid = post_write(1);

	CHECK(host_answer(h, cid));
	SAME(host_answer(h, cid)->status, NV_ANA_TRANSITION_PATH);
	SAME(ns->backend->part, 3);
	SAME(ns->backend->other_count, 1);
	CHECK(!memcmp(ns->backend->others, &other, sizeof(other)));
	down();
}

int main(void)
{
	SAME(nb_ring_open(&server.ring, false), 0);
	RUN(the_new_medium_gets_them_in_order);
	RUN(their_time_is_that_of_the_configuration);
	RUN(nobody_waits_for_a_namespace_that_was_removed);
	RUN(nobody_waits_when_the_target_ends);
	RUN(at_a_gateway_hosts_are_told_to_try_again);
	nb_ring_close(server.ring);
	return 0;
}
