// services_test.c - which bindings of a port can coexist, and which one is found
// see: src/broker/server/services.h
// SPDX-License-Identifier: MIT
#include "broker/server/services.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/check.h"

static struct vb_services t;
static const struct vb_port_range range = {.low = 100, .high = 103, .start = 2};

static struct vb_binding of(uint32_t lane, uint32_t id, uint16_t port, uint8_t last)
{
	struct vb_binding b = {.lane = lane, .id = id, .port_space = 0x106, .port = port};

	if (last) {
		b.local[0] = 0xfe;
		b.local[1] = 0x80;
		b.local[15] = last;
	}
	return b;
}

static int add(struct vb_binding want, struct vb_binding **out)
{
	struct vb_binding *b;

	return vb_service_bind(&t, &want, &range, out ? out : &b);
}

static void clear(void)
{
	for (uint32_t lane = 0; lane < VB_LANE_COUNT; lane++)
		vb_services_forget(&t, lane);
	CHECK(t.n == 0);
}

static bool everybody(void *arg, uint32_t lane)
{
	return !arg || *(uint32_t *)arg == lane;
}

static void one_address_on_two_interfaces_is_two(void)
{
	struct vb_binding a = of(1, 1, 7, 9), b = of(2, 1, 7, 9), *first, *second;

	a.ifindex = 3;
	b.ifindex = 4;
	CHECK(add(a, &first) == 0);
	CHECK(add(b, &second) == 0);
	CHECK(add(of(3, 1, 7, 9), NULL) == EADDRINUSE);
	CHECK(vb_service_listen(&t, first) == 0 && vb_service_listen(&t, second) == 0);
	CHECK(vb_service_find(&t, 0x106, 7, a.local, 3, everybody, NULL) == first);
	CHECK(vb_service_find(&t, 0x106, 7, a.local, 4, everybody, NULL) == second);
	CHECK(vb_service_find(&t, 0x106, 7, a.local, 5, everybody, NULL) == NULL);
	CHECK(vb_service_find(&t, 0x106, 7, a.local, 0, everybody, NULL) != NULL);
	clear();
}

static struct vb_binding any_of(uint32_t lane, bool v4_only, bool v6_only)
{
	struct vb_binding b = of(lane, 1, 7, 0);

	b.v4_only = v4_only;
	b.v6_only = v6_only;
	return b;
}

static void any_address_of_each_family_may_be_anothers(void)
{
	const uint8_t four[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
	struct vb_binding *v4, *v6, one = of(5, 1, 7, 0);

	memcpy(one.local, four, sizeof(four));
	CHECK(add(any_of(1, true, false), &v4) == 0);
	CHECK(add(any_of(2, true, false), NULL) == EADDRINUSE);
	CHECK(add(any_of(2, false, false), NULL) == EADDRINUSE);
	CHECK(add(any_of(2, false, true), &v6) == 0);
	CHECK(add(any_of(3, false, true), NULL) == EADDRINUSE);
	CHECK(add(any_of(3, false, false), NULL) == EADDRINUSE);
	CHECK(add(of(3, 1, 7, 9), NULL) == EADDRINUSE);
	CHECK(add(one, NULL) == EADDRINUSE);
	CHECK(vb_service_listen(&t, v4) == 0 && vb_service_listen(&t, v6) == 0);
	CHECK(vb_service_find(&t, 0x106, 7, four, 0, everybody, NULL) == v4);
	CHECK(vb_service_find(&t, 0x106, 7, of(0, 0, 0, 9).local, 0, everybody, NULL) == v6);
	vb_service_unbind(&t, v4);
	CHECK(vb_service_find(&t, 0x106, 7, four, 0, everybody, NULL) == NULL);
	CHECK(add(one, NULL) == 0);
	CHECK(add(any_of(3, false, false), NULL) == EADDRINUSE);
	clear();
	CHECK(add(any_of(1, false, false), NULL) == 0); /* of both families */
	CHECK(add(any_of(2, true, false), NULL) == EADDRINUSE);
	CHECK(add(any_of(2, false, true), NULL) == EADDRINUSE);
	clear();
}

static void only_those_that_may_are_found(void)
{
	struct vb_binding *b;
	uint32_t one = 1, two = 2;

	CHECK(add(of(2, 5, 7, 0), &b) == 0);
	CHECK(vb_service_find(&t, 0x106, 7, of(0, 0, 0, 1).local, 0, everybody, &two) == NULL);
	CHECK(vb_service_listen(&t, b) == 0);
	CHECK(vb_service_find(&t, 0x106, 7, of(0, 0, 0, 1).local, 0, everybody, &two) == b);
	CHECK(vb_service_find(&t, 0x106, 7, of(0, 0, 0, 1).local, 0, everybody, &one) == NULL);
	CHECK(vb_service_find(&t, 0x111, 7, of(0, 0, 0, 1).local, 0, everybody, NULL) == NULL);
	CHECK(vb_service_of(&t, 2, 5) == b && !vb_service_of(&t, 2, 6) && !vb_service_of(&t, 1, 5));
	clear();
	CHECK(!vb_service_of(&t, 2, 5));
}

static void the_range_of_ports_has_an_end(void)
{
	struct vb_binding *b[4];
	bool seen[4] = {false};

	for (uint32_t i = 0; i < 4; i++) {
		CHECK(add(of(1, i + 1, 0, 0), &b[i]) == 0);
		CHECK(b[i]->port >= 100 && b[i]->port <= 103 && !seen[b[i]->port - 100]);
		seen[b[i]->port - 100] = true;
	}
	CHECK(b[0]->port == 102); /* starts at the given port */
	CHECK(add(of(1, 9, 0, 0), NULL) == ENOSPC);
	vb_service_unbind(&t, b[1]);
	CHECK(add(of(2, 9, 0, 0), NULL) == 0);
	clear();
}

static void a_program_has_so_many_and_others_theirs(void)
{
	uint16_t port = 1;

	for (uint32_t i = 0; i < VB_MAX_BINDINGS_EACH; i++)
		CHECK(add(of(1, i + 1, port++, 0), NULL) == 0);
	CHECK(add(of(1, 70000, port, 0), NULL) == ENOSPC);
	CHECK(add(of(2, 1, port, 0), NULL) == 0);
	vb_services_forget(&t, 1);
	CHECK(t.n == 1 && t.each[1] == 0 && t.each[2] == 1);
	CHECK(add(of(3, 1, 1, 0), NULL) == 0);
	clear();
}

/* Compared with a plain list while a thousand bindings come and go. */
static void it_forgets_nobody_and_keeps_nobody(void)
{
	struct vb_binding *have[64] = {0};
	uint32_t r = 1, n = 0;

	for (int i = 0; i < 100000; i++) {
		r = r * 1664525u + 1013904223u;
		uint32_t k = r >> 26;
		if (have[k]) {
			vb_service_unbind(&t, have[k]);
			have[k] = NULL;
			n--;
		} else if (!add(of(k % 5 + 1, k + 1, (uint16_t)((r >> 8 & 31) + 1), 0), &have[k])) {
			n++;
			for (uint32_t o = 0; o < 64; o++)
				CHECK(o == k || !have[o] || have[o]->port != have[k]->port);
		} else {
			have[k] = NULL;
		}
		CHECK(t.n == n);
	}
	clear();
}

/* ---- other users ---- */

static const struct vb_port_range wide = {.low = 32768, .high = 60999, .start = 12345};

static int add_of(uid_t uid, uint32_t lane, uint32_t id, uint16_t port, struct vb_binding **out)
{
	struct vb_port_range from = wide;
	struct vb_binding want = of(lane, id, port, 0), *b;

	from.start += id * 7919 + lane;
	want.uid = uid;
	want.foreign = uid != 0;
	want.reuse = port;
	return vb_service_bind(&t, &want, &from, out ? out : &b);
}

/* Limits of a user's bindings: of one port and in all. The broker's own user still gets his. */
static void nobody_crowds_a_port(void)
{
	for (uint32_t i = 1; i <= VB_MAX_AT_PORT_USER; i++)
		CHECK(add_of(7, 1, i, 7, NULL) == 0);
	CHECK(add_of(7, 1, 100, 7, NULL) == ENOSPC && add_of(7, 2, 100, 7, NULL) == ENOSPC);
	for (uint32_t uid = 8; uid < 7 + VB_MAX_AT_PORT / VB_MAX_AT_PORT_USER; uid++)
		for (uint32_t i = 1; i <= VB_MAX_AT_PORT_USER; i++)
			CHECK(add_of(uid, uid, i, 7, NULL) == 0);
	CHECK(add_of(1000, 700, 1, 7, NULL) == ENOSPC);
	for (uint32_t i = 1; i <= 5000; i++)
		CHECK(add_of(0, 800, i, 7, NULL) == 0);
	vb_services_forget(&t, 1);
	CHECK(add_of(1000, 700, 1, 7, NULL) == 0);
	clear();
	CHECK(t.foreign == 0 && !t.users);
}

static uint32_t all_he_can(uid_t uid, uint32_t lane)
{
	uint32_t n = 0;

	while (add_of(uid, lane + n / VB_MAX_BINDINGS_EACH, n + 1, 0, NULL) == 0)
		n++;
	return n;
}

/* Even if many users take as many ports as possible, some remain for another user, and an eighth for the broker's
 * own. */
static void users_do_not_take_all_ports(void)
{
	uint32_t all = 28232, first = all_he_can(1, 1), second = all_he_can(2, 3), third = all_he_can(3, 5);

	CHECK(first > all / 3 && second > all / 6 && third > all / 12);
	CHECK(first + second + third == t.foreign_ephemeral);
	for (uid_t uid = 4; uid < 50; uid++)
		all_he_can(uid, uid * 2);
	CHECK(t.foreign_ephemeral <= all - all / 8);
	CHECK(add_of(1, 1, 70000, 40000, NULL) == ENOSPC); /* a port given by number counts as one of them */
	CHECK(add_of(60, 500, 1, 7, NULL) == 0);           /* others are free */
	for (uint32_t i = 1; i <= all / 8; i++)
		CHECK(add_of(0, 900, i, 0, NULL) == 0);
	clear();
	CHECK(t.foreign_ephemeral == 0 && !t.users);
}

/* Ids that shared a bucket when the hash had no key. */
static void numbers_are_not_chosen_to_collide(void)
{
	uint32_t longest = 0;

	for (uint32_t i = 0; i < 8192; i++)
		CHECK(add_of(0, 1, 1 + i * VB_SERVICE_BUCKETS, (uint16_t)(1 + i), NULL) == 0);
	for (uint32_t i = 0; i < VB_SERVICE_BUCKETS; i++) {
		uint32_t n = 0;

		for (const struct vb_binding *b = t.by_id[i]; b; b = b->next_id)
			n++;
		longest = n > longest ? n : longest;
	}
	CHECK(longest < 1024);
	clear();
}

int main(void)
{
	one_address_on_two_interfaces_is_two();
	any_address_of_each_family_may_be_anothers();
	only_those_that_may_are_found();
	the_range_of_ports_has_an_end();
	a_program_has_so_many_and_others_theirs();
	it_forgets_nobody_and_keeps_nobody();
	nobody_crowds_a_port();
	users_do_not_take_all_ports();
	numbers_are_not_chosen_to_collide();
	puts("ok   services: bindings, conflicts, ports");
	return 0;
}
