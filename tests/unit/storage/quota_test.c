// quota_test.c - one peer's share of common resources: memory of the pool, connections, places of the discovery service
// see: storage/target/peer.c, storage/target/slow.c
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <netinet/in.h>

#include "host.h"

#define HOSTS 200

static struct host *hosts[HOSTS];

/* Opens a connection from an address; NULL: rejected. */
static struct host *from(const char *address)
{
	struct sockaddr_storage a = {0};
	struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&a;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&a;
	struct host *h = host_open();

	a.ss_family = strchr(address, ':') ? AF_INET6 : AF_INET;
	SAME(inet_pton(a.ss_family, address, strchr(address, ':') ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr), 1);
	nt_peer_leave(&h->q);
	if (nt_peer_join(&h->q, (struct sockaddr *)&a))
		return h;
	host_close(h);
	return NULL;
}

static uint16_t come_in(struct host *h, const char *subnqn)
{
	struct nv_sqe c = connect_command(h, 0, NV_CNTLID_DYNAMIC);

	memset(h->out + NV_CONNECT_AT_SUBNQN, 0, NV_NQN_SIZE);
	strcpy((char *)h->out + NV_CONNECT_AT_SUBNQN, subnqn);
	return host_do(h, c).status;
}

static struct host *io_from(const char *address)
{
	struct host *admin = from(address), *io = from(address);

	CHECK(admin && io);
	SAME(come_in(admin, SUBNQN), 0);
	SAME(property_set(admin, NV_PROP_CC, 0x460001, 0).status, 0);
	SAME(host_do(io, connect_command(io, 1, admin->q.ctrl->id)).status, 0);
	return io;
}

static void close_io(struct host *io)
{
	struct host *admin = (struct host *)(void *)io->q.ctrl->admin;

	host_close(io);
	host_close(admin);
}

static struct medium *medium;

static void up(void)
{
	target_open(16 << 20); /* 4 MiB for each peer */
	medium = medium_open(16 << 20, 512);
	medium_add(medium, 1);
	target.queues = 8;
}

static void down(void)
{
	target_close();
	free(medium->bytes);
	free(medium);
}

/* ---- memory ---- */

static void withhold(struct host *io, int n)
{
	io->hold_data = true;
	for (int i = 0; i < n; i++)
		host_post(io, io_command(NV_IO_WRITE, 0, 2048), 0);
}

static void a_host_with_many_controllers_has_one_share_of_the_memory(void)
{
	up();
	for (int i = 0; i < 6; i++)
		withhold(hosts[i] = io_from("192.0.2.1"), 3);
	SAME(nt_pool_used(target.pool), 4 << 20);
	struct host *other = io_from("192.0.2.2");

	SAME(host_do(other, io_command(NV_IO_WRITE, 0, 2048)).status, 0); /* at once */
	SAME(nt_pool_used(target.pool), 4 << 20);
	for (int i = 0; i < 6; i++)
		close_io(hosts[i]);
	SAME(nt_pool_used(target.pool), 0);
	close_io(other);
	down();
}

static void what_waits_is_served_in_turn(void)
{
	up();
	withhold(hosts[0] = io_from("192.0.2.1"), 9);
	withhold(hosts[1] = io_from("192.0.2.2"), 9);
	withhold(hosts[2] = io_from("192.0.2.3"), 9);
	SAME(nt_pool_used(target.pool), 12 << 20); /* all memory except the reserve */
	withhold(hosts[3] = io_from("192.0.2.4"), 9);
	withhold(hosts[4] = io_from("192.0.2.5"), 9);
	SAME(hosts[0]->fetch_count, 4);
	SAME(hosts[3]->fetch_count, 0);
	for (int i = 0; i < 5; i++) { /* a peer that was served goes to the end of the queue */
		nt_fetched(hosts[i % 3]->fetching[i / 3], 0);
		host_settle(hosts[i % 3]);
	}
	SAME(nt_pool_used(target.pool), 12 << 20);
	SAME(hosts[0]->fetch_count + hosts[1]->fetch_count + hosts[2]->fetch_count, 15);
	SAME(hosts[3]->fetch_count, 1);
	SAME(hosts[4]->fetch_count, 1);
	for (int i = 0; i < 5; i++)
		close_io(hosts[i]);
	SAME(nt_pool_used(target.pool), 0);
	CHECK(!target.in_line[NT_USUAL] && !target.urgent.first);
	down();
}

/* ---- a medium that completes nothing ---- */

#define MIB (1u << 20)

static struct medium *fast;

/* Five hosts, a namespace whose medium has stopped, and another one. */
static void up_with_slow(void)
{
	char address[32];

	up();
	fast = medium_open(4 << 20, 512);
	medium_add(fast, 2);
	medium->slow = true;
	for (int i = 0; i < 5; i++) {
		snprintf(address, sizeof(address), "192.0.2.%d", i + 1);
		hosts[i] = io_from(address);
	}
}

static void down_with_slow(void)
{
	medium_go(medium);
	for (int i = 0; i < 5; i++)
		close_io(hosts[i]);
	SAME(target.slow_memory, 0);
	SAME(target.at_medium, 0);
	CHECK(!target.in_line[NT_USUAL] && !target.in_line[NT_SLOW] && !target.urgent.first);
	for (unsigned i = 0; i < NT_PEER_BUCKETS; i++)
		CHECK(!target.peers[i]);
	target_close();
	free(medium->bytes);
	free(medium);
	free(fast->bytes);
	free(fast);
}

static void pass(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 250) {
		target.now += 250;
		nt_target_tick(&target);
	}
}

static void post_writes(int host, int n)
{
	for (int i = 0; i < n; i++)
		host_post(hosts[host], io_command(NV_IO_WRITE, 0, MIB / 512), 0);
}

static bool goes_on(int host, uint32_t bytes, bool capsule)
{
	struct nv_sqe c = io_command(NV_IO_WRITE, 0, bytes / 512);
	uint32_t before = hosts[host]->count;

	c.nsid = 2;
	c.sgl = capsule ? in_capsule(bytes) : c.sgl;
	uint16_t cid = host_post(hosts[host], c, capsule ? bytes : 0);
	const struct answer *a = host_answer(hosts[host], cid);

	return hosts[host]->count == before + 1 && a && !a->status;
}

static void become_slow(void)
{
	host_post(hosts[0], io_command(NV_IO_WRITE, 0, 8), 0);
	pass(750);
	CHECK(!subsystem->ns[1]->slow);
	pass(500);
	CHECK(subsystem->ns[1]->slow && !subsystem->ns[2]->slow);
}

static void hosts_of_a_slow_namespace_have_equal_parts_of_half_of_the_memory(void)
{
	up_with_slow();
	become_slow();
	for (int i = 0; i < 4; i++) { /* a host with little memory may have more: one request */
		post_writes(i, 6);
		SAME(hosts[i]->q.owner->memory[NT_SLOW], i ? MIB : MIB + 4096);
		SAME(hosts[i]->q.owner->memory[NT_USUAL], 0);
	}
	for (int i = 0; i < 5; i++)
		CHECK(goes_on(i, 2 * MIB, false) && goes_on(i, 4096, true));
	for (int i = 0; i < 5; i++) /* data in a capsule has its part, too */
		for (int k = 0; k < 200; k++)
			if (hosts[i]->q.in_use < 60) {
				struct nv_sqe c = io_command(NV_IO_WRITE, 0, 16);

				c.sgl = in_capsule(8192);
				host_post(hosts[i], c, 8192);
			}
	CHECK(target.slow_memory <= target.memory / 2);
	for (int i = 0; i < 5; i++)
		CHECK(hosts[i]->q.owner->memory[NT_SLOW] <= target.slow_part && goes_on(i, 2 * MIB, false));
	down_with_slow();
}

static void a_medium_that_goes_on_gets_all_that_waited(void)
{
	up_with_slow();
	become_slow();
	for (int i = 0; i < 5; i++)
		post_writes(i, 6);
	for (int i = 0; i < 20; i++) {
		medium_go(medium);
		pass(250);
	}
	CHECK(!subsystem->ns[1]->slow);
	for (int i = 0; i < 5; i++)
		SAME(hosts[i]->count, 1 + 6 + !i); /* Connect was the first */
	SAME(nt_pool_used(target.pool), 0);
	pass(2000); /* nothing waits */
	CHECK(!subsystem->ns[1]->slow);
	post_writes(1, 6);
	SAME(hosts[1]->q.owner->memory[NT_USUAL], 4 * MIB);
	medium_go(medium);
	down_with_slow();
}

static void what_is_taken_before_a_namespace_is_found_slow_leaves_some_memory_to_others(void)
{
	up_with_slow();
	for (int i = 0; i < 5; i++)
		post_writes(i, 4);
	for (int i = 0; i < 5; i++)
		for (int k = 0; k < 50; k++) {
			struct nv_sqe c = io_command(NV_IO_WRITE, 0, 16);

			c.sgl = in_capsule(8192);
			if (!target.urgent.first)
				host_post(hosts[i], c, 8192);
		}
	CHECK(nt_pool_used(target.pool) >= 12 * MIB);
	pass(1250);
	CHECK(subsystem->ns[1]->slow && target.slow_memory >= 12 * MIB);
	for (int i = 0; i < 5; i++)
		CHECK(goes_on(i, MIB, false) && goes_on(i, 8192, true));
	down_with_slow();
}

static void requests_that_wait_for_memory_have_the_deadline_of_the_medium(void)
{
	up_with_slow();
	become_slow();
	medium->b.wait_ms = 3000;
	post_writes(1, 3);
	pass(2750);
	SAME(hosts[1]->count, 1);
	pass(500);
	SAME(hosts[1]->count, 3); /* the third write is at the medium */
	SAME(hosts[1]->answers[1].status, NV_INTERNAL_PATH);
	SAME(medium->b.late, 2);
	down_with_slow();
}

static void late_answers_keep_a_namespace_slow_and_their_memory_counts(void)
{
	struct nb_late late = {0};
	struct nb_request *r;

	up_with_slow();
	post_writes(1, 1);
	pass(1250);
	r = medium->first;
	medium->first = NULL;
	medium->end = &medium->first;
	r->late = &late;
	r->done(r, NB_LATE);
	SAME(hosts[1]->answers[1].status, NV_INTERNAL_PATH);
	SAME(target.slow_memory, MIB);
	SAME(hosts[1]->q.owner->memory[NT_SLOW], 0);
	pass(2000);
	CHECK(subsystem->ns[1]->slow);
	late.free(&late);
	medium->b.answers++;
	pass(250);
	CHECK(!subsystem->ns[1]->slow);
	SAME(target.slow_memory, 0);
	down_with_slow();
}

static void what_has_no_space_at_the_medium_counts_apart(void)
{
	up_with_slow();
	post_writes(1, 4);
	SAME(hosts[1]->q.owner->memory[NT_USUAL], 4 * MIB);
	medium->first->aside(medium->first);
	SAME(hosts[1]->q.owner->memory[NT_USUAL], 3 * MIB);
	SAME(target.slow_memory, MIB);
	CHECK(goes_on(1, MIB, false));
	down_with_slow();
}

/* ---- connections ---- */

static unsigned as_many_as(const char *address, unsigned most)
{
	unsigned n = 0;

	while (n < most && (hosts[n] = from(address)))
		n++;
	return n;
}

static void close_all(unsigned n)
{
	while (n)
		host_close(hosts[--n]);
}

static void strangers_have_a_share_of_the_connections(void)
{
	up();
	nt_peers_limit(&target, 64, 0);
	unsigned n = as_many_as("192.0.2.1", HOSTS);

	SAME(n, 16);
	struct host *other = from("192.0.2.2");

	CHECK(other);
	SAME(come_in(hosts[0], SUBNQN), 0); /* it is admitted, and another one may connect */
	CHECK((hosts[n] = from("192.0.2.1")));
	CHECK(!from("192.0.2.1"));
	host_close(other);
	close_all(n + 1);
	down();
}

static void one_peer_does_not_have_all_connections(void)
{
	up();
	nt_peers_limit(&target, 64, 0);
	unsigned n = 0;

	for (; n < HOSTS && (hosts[n] = from("192.0.2.1")); n++)
		SAME(come_in(hosts[n], SUBNQN), 0);
	SAME(n, 48);
	struct host *other = from("192.0.2.2");

	CHECK(other);
	host_close(other);
	nt_peers_limit(&target, 64, 50);
	for (; n < HOSTS && (hosts[n] = from("192.0.2.1")); n++)
		SAME(come_in(hosts[n], SUBNQN), 0);
	SAME(n, 50);
	close_all(n);
	down();
}

static void however_few_there_are_a_host_gets_all_of_a_controller(void)
{
	up();
	nt_peers_limit(&target, 9, 0);
	struct host *admin = from("192.0.2.1");

	SAME(come_in(admin, SUBNQN), 0);
	SAME(as_many_as("192.0.2.1", 8), 8);
	close_all(8);
	host_close(admin);
	down();
}

static void a_network_of_ipv6_is_one_peer(void)
{
	char address[64];
	unsigned n = 0;

	up();
	nt_peers_limit(&target, 64, 0);
	for (; n < HOSTS; n++) {
		snprintf(address, sizeof(address), "2001:db8::%x:%x", n * 77, n + 1);
		if (!(hosts[n] = from(address)))
			break;
	}
	SAME(n, 16);
	struct host *other = from("2001:db8:0:1::1"), *v4 = from("::ffff:192.0.2.1"), *same = from("192.0.2.1");

	CHECK(other && v4 && same && v4->q.owner == same->q.owner && v4->q.owner != other->q.owner);
	host_close(other);
	host_close(v4);
	host_close(same);
	close_all(n);
	down();
}

static void where_all_places_are_taken_whoever_has_most_gives_up_its_oldest(void)
{
	char address[32];
	unsigned n = 0;

	up();
	nt_peers_limit(&target, 64, 0);
	n = as_many_as("192.0.2.1", HOSTS);
	for (unsigned k = 2; n < 32; k++) {
		snprintf(address, sizeof(address), "192.0.2.%u", k);
		CHECK((hosts[n++] = from(address)));
	}
	struct host *late = from("192.0.2.200");

	CHECK(late && hosts[0]->asked_to_close && !hosts[1]->asked_to_close);
	for (unsigned i = 16; i < 32; i++)
		CHECK(!hosts[i]->asked_to_close);
	SAME(come_in(late, SUBNQN), 0);
	host_close(late);
	close_all(n);
	SAME(target.guest_count[NT_GUEST_STRANGER], 0);
	down();
}

static void discovery_has_a_share_for_each_and_in_all(void)
{
	char address[32];
	unsigned n = 0;

	up();
	nt_peers_limit(&target, 64, 0);
	for (; n < HOSTS && (hosts[n] = from("192.0.2.1")); n++)
		if (come_in(hosts[n], NV_DISCOVERY_NQN))
			break;
	SAME(n, 4);
	host_close(hosts[n]);
	SAME(come_in(hosts[n] = from("192.0.2.1"), SUBNQN), 0); /* it may have more connections to a subsystem */
	host_close(hosts[n]);
	for (unsigned k = 2; n < 16; n++, k++) {
		snprintf(address, sizeof(address), "192.0.2.%u", k);
		SAME(come_in(hosts[n] = from(address), NV_DISCOVERY_NQN), 0);
	}
	struct host *late = from("192.0.2.200");

	SAME(come_in(late, NV_DISCOVERY_NQN), 0);
	CHECK(hosts[0]->asked_to_close && !hosts[1]->asked_to_close);
	host_close(late);
	close_all(n);
	SAME(target.guest_count[NT_GUEST_DISCOVERY], 0);
	for (unsigned i = 0; i < NT_PEER_BUCKETS; i++)
		CHECK(!target.peers[i]);
	down();
}

int main(void)
{
	RUN(a_host_with_many_controllers_has_one_share_of_the_memory);
	RUN(what_waits_is_served_in_turn);
	RUN(hosts_of_a_slow_namespace_have_equal_parts_of_half_of_the_memory);
	RUN(a_medium_that_goes_on_gets_all_that_waited);
	RUN(what_is_taken_before_a_namespace_is_found_slow_leaves_some_memory_to_others);
	RUN(requests_that_wait_for_memory_have_the_deadline_of_the_medium);
	RUN(late_answers_keep_a_namespace_slow_and_their_memory_counts);
	RUN(what_has_no_space_at_the_medium_counts_apart);
	RUN(strangers_have_a_share_of_the_connections);
	RUN(one_peer_does_not_have_all_connections);
	RUN(however_few_there_are_a_host_gets_all_of_a_controller);
	RUN(a_network_of_ipv6_is_one_peer);
	RUN(where_all_places_are_taken_whoever_has_most_gives_up_its_oldest);
	RUN(discovery_has_a_share_for_each_and_in_all);
	return 0;
}
