// host_test.c - queue pair 1 between programs of one host: routing of MADs, ports, restarts
// follows: IBA volume 1, 12; annex A11 (RDMA IP CM service)
// see: src/node/gsi.h
// SPDX-License-Identifier: MIT
#include "agent.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 18515

static uint8_t lo[16], nobody[16];

static void begin(void)
{
	own_network();
	v4(lo, "127.0.0.1");
}

static void two_programs_exchange_mads_by_service_and_by_lane(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	CHECK(a.lane && b.lane && a.lane != b.lane);
	serve(&b, VB_PS_TCP, PORT);
	uint64_t before = packets_of("lo");
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 9), 4711);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, &m, LONG_MS));
	CHECK(!memcmp(m.mad, mad, sizeof(mad)) && !memcmp(m.local, lo, 16) && !memcmp(m.remote, lo, 16));
	make_rep(mad, &b, comm_id_of(&a, 9), 4711);
	agent_send(&b, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	CHECK(!memcmp(m.mad, mad, sizeof(mad)));
	SAME(packets_of("lo"), before); /* everything stays in the broker */
	SAME(agent_count(&a), 0);
	SAME(agent_count(&b), 0);
	agent_end(&a);
	agent_end(&b);
}

static void who_asks_for_a_service_of_nobody_is_rejected(void)
{
	struct agent a;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 3), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	struct vb_cm_msg cm = cm_of(m.mad);
	SAME(cm.attr, VB_CM_REJ);
	SAME(cm.rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	SAME(cm.rej.remote_comm_id, comm_id_of(&a, 3));
	make_sidr_req(mad, PORT, comm_id_of(&a, 4));
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	cm = cm_of(m.mad);
	SAME(cm.attr, VB_CM_SIDR_REP);
	SAME(cm.sidr_rep.status, VB_CM_SIDR_INVALID_SERVICE_ID);
	agent_end(&a);
}

static void a_binding_alone_does_not_listen(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	SAME(agent_bind(&b, &(struct wanted){.ps = VB_PS_TCP, .port = PORT}, NULL, NULL), 0);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 3), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	SAME(cm_of(m.mad).rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	agent_end(&a);
	agent_end(&b);
}

static void a_listener_that_died_is_nobody(void)
{
	struct agent a, b, c;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 3), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, &m, LONG_MS));
	agent_kill(&b);
	CHECK(wait_lanes(1, LONG_MS));
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	SAME(cm_of(m.mad).rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	make_dreq(mad, comm_id_of(&b, 1), comm_id_of(&a, 3));
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	SAME(cm_of(m.mad).attr, VB_CM_DREP); /* a dead program has no connections */
	agent_start(&c);
	serve(&c, VB_PS_TCP, PORT); /* its port is free */
	agent_end(&a);
	agent_end(&c);
}

/* A datagram goes to one program, not to each program of the host. */
static void a_rejection_that_names_no_program_goes_to_who_has_the_request(void)
{
	struct agent a, b, c;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	agent_start(&c);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 5), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS));
	make_timeout(mad, comm_id_of(&a, 6));
	agent_send(&a, lo, lo, 0, mad, 1);
	make_timeout(mad, comm_id_of(&a, 5));
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS));
	SAME(agent_count(&a), 0);
	SAME(agent_count(&b), 0);
	SAME(agent_count(&c), 0);
	agent_end(&a);
	agent_end(&b);
	agent_end(&c);
}

static void an_id_or_an_address_of_somebody_else_is_not_sent_from(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN], elsewhere[16];

	begin();
	v4(elsewhere, "192.0.2.7");
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&b, 5), 1); /* b's lane */
	agent_send(&a, lo, lo, 0, mad, 1);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 5), 2);
	agent_send(&a, elsewhere, lo, 0, mad, 1);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 5), 3);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, &m, LONG_MS));
	SAME(cm_of(m.mad).tid, 3);
	SAME(agent_count(&b), 0);
	agent_end(&a);
	agent_end(&b);
}

static void nonsense_is_dropped(void)
{
	struct agent a, b;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	for (int i = 0; i < 500; i++) {
		for (int k = 0; k < VB_MAD_LEN; k++)
			mad[k] = (uint8_t)(i * 31 + k * 7);
		agent_send(&a, lo, lo, 0, mad, 1);
	}
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 3), 1);
	agent_send(&a, nobody, lo, 0, mad, 1); /* from and to invalid addresses */
	agent_send(&a, lo, nobody, 0, mad, 1);
	SAME(agent_bind(&a, &(struct wanted){.ps = VB_PS_TCP}, NULL, NULL), 0); /* answered after all that */
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS));
	SAME(agent_count(&b), 0);
	agent_end(&a);
	agent_end(&b);
}

static int bind_to(struct agent *a, const char *address, uint16_t port, bool reuse, uint32_t *id)
{
	struct wanted w = {.ps = VB_PS_TCP, .port = port, .reuse = reuse};

	if (address && strchr(address, ':'))
		v6(w.local, address);
	else if (address)
		v4(w.local, address);
	return agent_bind(a, &w, NULL, id);
}

static void a_port_has_one_owner_for_each_address(void)
{
	struct agent a, b;
	uint32_t id, other;

	begin();
	agent_start(&a);
	agent_start(&b);
	SAME(bind_to(&a, "10.1.1.1", PORT, false, &id), 0);
	SAME(bind_to(&b, "10.1.1.1", PORT, false, NULL), EADDRINUSE);
	SAME(bind_to(&a, "10.1.1.1", PORT, false, NULL), EADDRINUSE);
	SAME(bind_to(&b, "0.0.0.0", PORT, false, NULL), EADDRINUSE);
	SAME(bind_to(&b, "::", PORT, false, NULL), EADDRINUSE);
	SAME(bind_to(&b, "10.1.1.2", PORT, false, &other), 0);
	SAME(bind_to(&b, "fd00::1", PORT, false, NULL), 0);
	SAME(agent_bind(&b, &(struct wanted){.ps = VB_PS_UDP, .port = PORT}, NULL, NULL), 0);
	agent_unbind(&a, id);
	agent_unbind(&b, other);
	SAME(bind_to(&b, "fd00::2", PORT, false, NULL), 0); /* answered after it */
	SAME(bind_to(&a, "0.0.0.0", PORT, false, NULL), 0); /* no IPv6 binding conflicts with it */
	SAME(bind_to(&b, "10.1.1.1", PORT, false, NULL), EADDRINUSE);
	agent_end(&a);
	agent_end(&b);
}

static void both_may_reuse_a_port_until_one_listens(void)
{
	struct agent a, b, c;
	uint32_t first, second;

	begin();
	agent_start(&a);
	agent_start(&b);
	agent_start(&c);
	SAME(bind_to(&a, "0.0.0.0", PORT, true, &first), 0);
	SAME(bind_to(&b, "0.0.0.0", PORT, false, NULL), EADDRINUSE);
	SAME(bind_to(&b, "0.0.0.0", PORT, true, &second), 0);
	SAME(agent_listen(&a, first), 0);
	SAME(agent_listen(&b, second), EADDRINUSE);
	SAME(bind_to(&c, "0.0.0.0", PORT, true, NULL), EADDRINUSE);
	agent_unbind(&a, first);
	SAME(bind_to(&a, "0.0.0.0", PORT + 1, true, NULL), 0); /* answered after it */
	SAME(agent_listen(&b, second), 0);
	agent_end(&a);
	agent_end(&b);
	agent_end(&c);
}

static void each_family_has_any_address_of_its_own(void)
{
	struct wanted four = {.ps = VB_PS_TCP, .port = PORT, .v4_only = true};
	struct wanted six = {.ps = VB_PS_TCP, .port = PORT, .v6_only = true}, both = {.ps = VB_PS_TCP, .port = PORT};
	struct agent a, b;
	uint8_t mad[VB_MAD_LEN];
	uint32_t v4_id, v6_id;

	begin();
	agent_start(&a);
	agent_start(&b);
	SAME(agent_bind(&a, &six, NULL, &v6_id), 0);
	SAME(agent_bind(&b, &both, NULL, NULL), EADDRINUSE);
	SAME(agent_bind(&b, &four, NULL, &v4_id), 0);
	SAME(agent_bind(&a, &four, NULL, NULL), EADDRINUSE);
	SAME(agent_listen(&a, v6_id), 0);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&b, 1), 1);
	agent_send(&b, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS)); /* rejected: no listener has an IPv4 address */
	SAME(agent_listen(&b, v4_id), 0);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS));
	SAME(agent_count(&a), 0);
	agent_end(&a);
	agent_end(&b);
}

static void a_port_of_the_brokers_choice_is_ones_own(void)
{
	struct agent a, b;
	uint16_t ports[40], low, high;
	unsigned range[2] = {32768, 60999};
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	begin();
	if (f && fscanf(f, "%u %u", &range[0], &range[1]) != 2)
		range[0] = 32768, range[1] = 60999;
	low = (uint16_t)range[0], high = (uint16_t)range[1];
	agent_start(&a);
	agent_start(&b);
	for (int i = 0; i < 40; i++) {
		SAME(agent_bind(i % 2 ? &a : &b, &(struct wanted){.ps = VB_PS_TCP, .reuse = true}, &ports[i], NULL), 0);
		CHECK(ports[i] >= low && ports[i] <= high);
		for (int k = 0; k < i; k++)
			CHECK(ports[k] != ports[i]);
	}
	agent_end(&a);
	agent_end(&b);
}

static void a_listener_hears_what_is_for_its_address(void)
{
	struct agent a, any, one, other;
	uint8_t mad[VB_MAD_LEN];
	uint32_t id;

	begin();
	agent_start(&a);
	agent_start(&any);
	agent_start(&one);
	agent_start(&other);
	serve(&any, VB_PS_TCP, PORT);
	SAME(bind_to(&other, "10.9.9.9", PORT + 1, false, &id), 0);
	SAME(agent_listen(&other, id), 0);
	SAME(bind_to(&one, "127.0.0.1", PORT + 1, false, &id), 0);
	SAME(agent_listen(&one, id), 0);
	make_req(mad, VB_PS_TCP, PORT + 1, comm_id_of(&a, 1), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&one, NULL, LONG_MS));
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&any, NULL, LONG_MS));
	SAME(agent_count(&other) + agent_count(&one) + agent_count(&a), 0);
	agent_end(&a);
	agent_end(&any);
	agent_end(&one);
	agent_end(&other);
}

static void it_is_opened_once_and_again_after_a_close(void)
{
	struct agent a, b;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	SAME(agent_open(&a), EBUSY);
	serve(&a, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&b, 1), 1);
	agent_close(&a);
	SAME(agent_open(&a), 0);
	agent_send(&b, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS)); /* rejected: the close has removed its binding */
	serve(&a, VB_PS_TCP, PORT);
	agent_send(&b, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, NULL, LONG_MS));
	agent_end(&a);
	agent_end(&b);
}

static void a_child_has_its_own(void)
{
	struct agent a;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	serve(&a, VB_PS_TCP, PORT);
	uint32_t lane = agent_fork(&a);
	CHECK(lane != 0);
	CHECK(lane != a.lane % 251 + 1);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, NULL, LONG_MS)); /* the parent's still works */
	agent_end(&a);
}

static void a_timer_is_called_once_and_not_early(void)
{
	struct agent a;

	begin();
	agent_start(&a);
	int n = 0;
	for (int i = 0; i < 20 && !n; i++)
		n = agent_timer(&a, 20000000, 200);
	SAME(n, 1);
	SAME(agent_timer(&a, 3600ull * 1000000000, 50), 0);
	SAME(agent_timer(&a, 0, 50), 0);
	agent_end(&a);
}

static bool has_broker(void *arg)
{
	return broker_pid() != 0;
}

static bool wait_until(bool (*what)(void *), void *arg, int ms)
{
	for (int64_t until = now_ms() + ms; now_ms() < until; sleep_ms(10))
		if (what(arg))
			return true;
	return what(arg);
}

static void bindings_and_lanes_live_through_a_brokers_death(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];
	bool got = false;
	uint32_t id, reused;

	begin();
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	SAME(agent_bind(&b, &(struct wanted){.ps = VB_PS_UDP, .port = 0}, NULL, &id), 0);
	SAME(agent_bind(&b, &(struct wanted){.ps = VB_PS_TCP, .port = PORT + 1, .reuse = true}, NULL, &reused), 0);
	for (int round = 0; round < 3; round++) {
		pid_t old = broker_pid();

		CHECK(old && kill(old, SIGKILL) == 0);
		SAME(agent_bind(&a, &(struct wanted){.ps = VB_PS_TCP, .port = (uint16_t)(PORT + 10 + round)}, NULL,
		                NULL),
		     0);
		CHECK(wait_until(has_broker, NULL, LONG_MS) && broker_pid() != old);
		CHECK(wait_lanes(2, LONG_MS));
		make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), (uint64_t)round);
		got = false;
		for (int i = 0; i < 100 && !got; i++) { /* a datagram may be lost, or be late */
			agent_send(&a, lo, lo, 0, mad, 1);
			got = agent_take(&b, &m, 200) && cm_of(m.mad).tid == (uint64_t)round;
		}
		CHECK(got);
		agent_count(&b);
		SAME(agent_count(&a), 0); /* nothing was rejected meanwhile */
		make_rep(mad, &b, comm_id_of(&a, 9), 4711);
		agent_send(&b, lo, lo, 0, mad, 1);
		CHECK(agent_take(&a, &m, LONG_MS));
		SAME(agent_bind(&a, &(struct wanted){.ps = VB_PS_TCP, .port = PORT}, NULL, NULL), EADDRINUSE);
	}
	SAME(agent_listen(&b, reused), 0);
	agent_end(&a);
	agent_end(&b);
}

/* A program that binds many gets the next ones in advance. */
static void many_ports_in_a_row_are_different_across_a_brokers_death(void)
{
	enum { EACH = 50, ALL = 3 * EACH };
	struct agent a, b;
	static uint16_t ports[ALL];
	struct wanted one = {.ps = VB_PS_TCP}, other = {.ps = VB_PS_TCP};

	begin();
	v4(one.local, "10.1.1.1");
	v4(other.local, "10.1.1.2");
	agent_start(&a);
	agent_start(&b);
	for (int i = 0; i < ALL; i++) {
		if (i == EACH) {
			pid_t old = broker_pid();

			CHECK(old && kill(old, SIGKILL) == 0);
		}
		SAME(agent_bind(i < 2 * EACH || i % 2 ? &a : &b, &one, &ports[i], NULL), 0);
		CHECK(ports[i] != 0);
		for (int k = 0; k < i; k++)
			CHECK(ports[k] != ports[i]);
		if (i % 20 == 19)
			SAME(agent_bind(&a, &other, NULL, NULL), 0);
	}
	SAME(agent_bind(&a, &other, NULL, NULL), 0);
	agent_end(&a);
	agent_end(&b);
}

/* A program may close its listener and then tell another program that the port is free. */
static void a_closed_listeners_port_is_free_at_once(void)
{
	struct agent a, b;

	begin();
	agent_start(&a);
	agent_start(&b);
	for (int i = 0; i < 500; i++) {
		struct agent *it = i % 2 ? &a : &b;

		agent_unbind(it, serve(it, VB_PS_TCP, PORT));
	}
	agent_end(&a);
	agent_end(&b);
}

static long kilobytes_of(pid_t pid)
{
	char path[64], line[128];
	long kb = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmData: %ld", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

static void a_program_that_does_not_read_costs_little_and_holds_nobody_up(void)
{
	struct agent a, stopped, c;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&stopped);
	agent_start(&c);
	serve(&stopped, VB_PS_TCP, PORT);
	serve(&c, VB_PS_TCP, PORT + 1);
	long before = kilobytes_of(broker_pid());
	kill(stopped.pid, SIGSTOP);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	for (int i = 0; i < 10; i++)
		agent_send(&a, lo, lo, 0, mad, 5000);
	make_req(mad, VB_PS_TCP, PORT + 1, comm_id_of(&a, 1), 1);
	bool got = false;
	for (int i = 0; i < 100 && !got; i++) { /* after the flood there may be no room for it */
		agent_send(&a, lo, lo, 0, mad, 1);
		got = agent_take(&c, NULL, 200);
	}
	CHECK(got);
#ifdef VB_SANITIZED /* sanitizers add much to each small allocation */
	(void)before;
#else
	CHECK(kilobytes_of(broker_pid()) - before < 8192);
#endif
	kill(stopped.pid, SIGCONT);
	CHECK(agent_take(&stopped, NULL, LONG_MS));
	agent_end(&a);
	agent_end(&stopped);
	agent_end(&c);
}

/* A busy machine may miss the time limit: then the request is rejected, and repeated. */
static void a_request_waits_for_a_listener_that_is_being_made_anew(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];
	bool got = false;
	uint64_t tag;

	begin();
	agent_start(&a);
	agent_start(&b);
	for (tag = 100; tag < 110 && !got; tag++) {
		agent_unbind(&b, serve(&b, VB_PS_TCP, PORT));
		agent_count(&b); /* the broker has read it */
		make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 3), tag);
		agent_send(&a, lo, lo, 0, mad, 1);
		make_sidr_req(mad, PORT, comm_id_of(&a, 4)); /* the port counts, not the port space */
		agent_send(&a, lo, lo, 0, mad, 1);
		uint32_t tcp = serve(&b, VB_PS_TCP, PORT), udp = serve(&b, VB_PS_UDP, PORT);

		got = agent_take(&b, &m, 1000) && cm_of(m.mad).tid == tag && agent_take(&b, &m, 1000) &&
		      cm_of(m.mad).attr == VB_CM_SIDR_REQ;
		agent_unbind(&b, tcp);
		agent_unbind(&b, udp);
	}
	CHECK(got);
	while (agent_take(&a, &m, 0))
		CHECK(cm_of(m.mad).tid != tag - 1);
	got = false;
	for (uint32_t i = 5; i < 10 && !got; i++) { /* rejected, as soon as the broker knows that no program listens */
		make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, i), 1);
		agent_send(&a, lo, lo, 0, mad, 1);
		got = agent_take(&a, &m, 3000) && cm_of(m.mad).attr == VB_CM_REJ;
	}
	CHECK(got);
	SAME(cm_of(m.mad).rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	agent_end(&a);
	agent_end(&b);
}

static void a_burst_waits_for_a_program_that_is_busy(void)
{
	struct agent a, b;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	kill(b.pid, SIGSTOP);
	agent_send(&a, lo, lo, 0, mad, 5000);
	kill(b.pid, SIGCONT);
	for (int i = 0; i < 5000; i++)
		CHECK(agent_take(&b, NULL, LONG_MS));
	agent_end(&a);
	agent_end(&b);
}

static void exchange(struct agent *a, struct agent *b, uint32_t rest)
{
	struct vb_cm_msg req = {.attr = VB_CM_REQ,
	                        .tid = rest,
	                        .req = {.local_comm_id = comm_id_of(a, rest),
	                                .local_qpn = 0x100 + rest,
	                                .service_id = vb_cm_service_id(VB_PS_TCP, PORT)}};
	struct vb_cm_msg rep = {.attr = VB_CM_REP,
	                        .tid = rest,
	                        .rep = {.local_comm_id = comm_id_of(b, rest),
	                                .remote_comm_id = comm_id_of(a, rest),
	                                .local_qpn = 0x200 + rest}};
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, &req);
	agent_send(a, lo, lo, 0, mad, 1);
	CHECK(agent_take(b, NULL, LONG_MS));
	vb_cm_encode(mad, &rep);
	agent_send(b, lo, lo, 0, mad, 1);
	CHECK(agent_take(a, NULL, LONG_MS));
}

static void check_dreq(struct agent *survivor, const struct agent *dead, uint32_t rest, uint32_t qpn)
{
	struct arrived m;

	CHECK(agent_take(survivor, &m, LONG_MS));
	struct vb_cm_msg cm = cm_of(m.mad);

	SAME(cm.attr, VB_CM_DREQ);
	SAME(cm.dreq.local_comm_id, comm_id_of(dead, rest));
	SAME(cm.dreq.remote_comm_id, comm_id_of(survivor, rest));
	SAME(cm.dreq.remote_qpn, qpn);
}

static void the_peers_of_a_killed_program_are_disconnected(void)
{
	struct agent a, b, c;
	uint8_t mad[VB_MAD_LEN];

	begin();
	agent_start(&a);
	agent_start(&b);
	agent_start(&c);
	serve(&b, VB_PS_TCP, PORT);
	exchange(&a, &b, 1);
	exchange(&c, &b, 2);
	exchange(&a, &b, 3); /* ended in order: not told again */
	make_dreq(mad, comm_id_of(&b, 3), comm_id_of(&a, 3));
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS));
	struct vb_cm_msg drep = {.attr = VB_CM_DREP,
	                         .drep = {.local_comm_id = comm_id_of(&b, 3), .remote_comm_id = comm_id_of(&a, 3)}};
	vb_cm_encode(mad, &drep);
	agent_send(&b, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, NULL, LONG_MS));
	agent_kill(&a); /* the requester */
	check_dreq(&b, &a, 1, 0x201);
	CHECK(!agent_take(&b, NULL, 200));
	agent_kill(&b); /* the responder */
	check_dreq(&c, &b, 2, 0x102);
	SAME(agent_count(&c), 0);
	agent_end(&c);
}

static void kill_broker(void)
{
	pid_t old = broker_pid();

	CHECK(old && kill(old, SIGKILL) == 0);
}

static void connect_both(struct agent *a, struct agent *b, uint32_t rest)
{
	exchange(a, b, rest);
	agent_connected(a, lo, lo, comm_id_of(a, rest), comm_id_of(b, rest), 0x200 + rest);
	agent_connected(b, lo, lo, comm_id_of(b, rest), comm_id_of(a, rest), 0x100 + rest);
}

static void the_peers_of_one_that_dies_under_another_broker_are_disconnected(void)
{
	struct agent a, b, c;

	begin();
	agent_start(&a);
	agent_start(&b);
	agent_start(&c);
	serve(&b, VB_PS_TCP, PORT);
	connect_both(&a, &b, 1);
	connect_both(&c, &b, 2);
	kill_broker();
	CHECK(agent_found(&a, 1) && agent_found(&b, 1) && agent_found(&c, 1));
	agent_kill(&a);
	check_dreq(&b, &a, 1, 0x201);
	kill_broker(); /* not from the last broker, but from the program */
	CHECK(agent_found(&b, 2) && agent_found(&c, 2));
	agent_kill(&b);
	check_dreq(&c, &b, 2, 0x102);
	agent_end(&c);
}

static bool is_alone(void *arg)
{
	return lanes_held() == 1;
}

static bool nobody_is_there(void *arg)
{
	return broker_pid() && !lanes_held();
}

static void a_peer_that_comes_back_late_is_disconnected(void)
{
	struct agent a, b;

	begin();
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	connect_both(&a, &b, 1);
	kill(b.pid, SIGSTOP);
	kill_broker();
	CHECK(agent_found(&a, 1));
	CHECK(is_alone(NULL));
	agent_kill(&a);
	CHECK(wait_until(nobody_is_there, NULL, LONG_MS));
	kill(b.pid, SIGCONT);
	check_dreq(&b, &a, 1, 0x201);
	agent_end(&b);
}

/* Sends mad from a to b when a has found the broker of this round, and b has not. A busy machine may miss the time for
 * which the MAD is kept: then returns false, and the test repeats with another broker. */
static bool reaches_the_late(struct agent *a, struct agent *b, const uint8_t mad[VB_MAD_LEN], int round)
{
	struct arrived m;

	kill(b->pid, SIGSTOP);
	kill_broker();
	CHECK(agent_found(a, round));
	CHECK(is_alone(NULL));
	int64_t sent = now_ms();
	agent_send(a, lo, lo, 0, mad, 1);
	SAME(agent_bind(a, &(struct wanted){.ps = VB_PS_IB}, NULL, NULL), 0); /* answered after it */
	kill(b->pid, SIGCONT);
	CHECK(agent_found(b, round));
	bool in_time = now_ms() - sent < 4000;
	while (agent_take(b, &m, in_time ? LONG_MS : 0))
		if (!memcmp(m.mad, mad, sizeof(m.mad)))
			return true;
	CHECK(!in_time);
	return false;
}

static void what_is_for_one_that_comes_back_late_waits(void)
{
	struct agent a, b;
	uint8_t mad[VB_MAD_LEN];
	bool req = false, dreq = false;

	begin();
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	for (int round = 1; round <= 6 && !dreq; round++) {
		if (!req)
			make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), (uint64_t)round);
		else
			make_dreq(mad, comm_id_of(&b, 1), comm_id_of(&a, (uint32_t)round));
		bool got = reaches_the_late(&a, &b, mad, round);

		dreq = req && got;
		req |= got;
	}
	if (!dreq)
		skip("this machine is too busy");
	agent_end(&a);
	agent_end(&b);
}

static void where_the_port_is_somebody_elses_the_host_works_all_the_same(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(4791)};
	struct agent a, b;
	uint8_t mad[VB_MAD_LEN];

	begin();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0);
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, NULL, LONG_MS));
	close(fd);
	agent_end(&a);
	agent_end(&b);
}

static void programs_that_want_the_wire_have_it(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];

	begin();
	setenv("VERBENA_WIRE", "always", 1);
	agent_start(&a);
	agent_start(&b);
	serve(&b, VB_PS_TCP, PORT);
	uint64_t before = packets_of("lo");
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 1), 1);
	agent_send(&a, lo, lo, 0, mad, 1);
	CHECK(agent_take(&b, &m, LONG_MS));
	CHECK(!memcmp(m.mad, mad, sizeof(mad)) && !memcmp(m.remote, lo, 16));
	make_rep(mad, &b, comm_id_of(&a, 1), 1);
	agent_send(&b, lo, lo, 0, mad, 1);
	CHECK(agent_take(&a, &m, LONG_MS));
	CHECK(packets_of("lo") >= before + 2);
	agent_end(&a);
	agent_end(&b);
}

static void the_port_is_free_when_the_last_has_gone(void)
{
	struct agent a;

	begin();
	agent_start(&a);
	serve(&a, VB_PS_TCP, PORT); /* answered: the broker has read everything */
	CHECK(keeper_pid() != 0);
	agent_end(&a);
	CHECK(wait_gone(LONG_MS));
	CHECK(wait_no_keeper(LONG_MS));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"two programs exchange MADs by service and by lane",
	         two_programs_exchange_mads_by_service_and_by_lane},
	        {"who asks for a service of nobody is rejected", who_asks_for_a_service_of_nobody_is_rejected},
	        {"a binding alone does not listen", a_binding_alone_does_not_listen},
	        {"a listener that died is nobody", a_listener_that_died_is_nobody},
	        {"a rejection that names no program goes to who has the request",
	         a_rejection_that_names_no_program_goes_to_who_has_the_request},
	        {"an id or an address of somebody else is not sent from",
	         an_id_or_an_address_of_somebody_else_is_not_sent_from},
	        {"nonsense is dropped", nonsense_is_dropped},
	        {"a port has one owner for each address", a_port_has_one_owner_for_each_address},
	        {"both may reuse a port until one listens", both_may_reuse_a_port_until_one_listens},
	        {"each family has any address of its own", each_family_has_any_address_of_its_own},
	        {"a port of the broker's choice is one's own", a_port_of_the_brokers_choice_is_ones_own},
	        {"many ports in a row are different, across a broker's death",
	         many_ports_in_a_row_are_different_across_a_brokers_death},
	        {"a listener hears what is for its address", a_listener_hears_what_is_for_its_address},
	        {"it is opened once, and again after a close", it_is_opened_once_and_again_after_a_close},
	        {"a child has its own", a_child_has_its_own},
	        {"a timer is called once, and not early", a_timer_is_called_once_and_not_early},
	        {"bindings and lanes live through a broker's death", bindings_and_lanes_live_through_a_brokers_death},
	        {"a closed listener's port is free at once", a_closed_listeners_port_is_free_at_once},
	        {"a program that does not read costs little and holds nobody up",
	         a_program_that_does_not_read_costs_little_and_holds_nobody_up},
	        {"a request waits for a listener that is being made anew",
	         a_request_waits_for_a_listener_that_is_being_made_anew},
	        {"a burst waits for a program that is busy", a_burst_waits_for_a_program_that_is_busy},
	        {"the peers of a killed program are disconnected", the_peers_of_a_killed_program_are_disconnected},
	        {"the peers of one that dies under another broker are disconnected",
	         the_peers_of_one_that_dies_under_another_broker_are_disconnected},
	        {"a peer that comes back late is disconnected", a_peer_that_comes_back_late_is_disconnected},
	        {"what is for one that comes back late waits", what_is_for_one_that_comes_back_late_waits},
	        {"where the port is somebody else's, the host works all the same",
	         where_the_port_is_somebody_elses_the_host_works_all_the_same},
	        {"programs that want the wire have it", programs_that_want_the_wire_have_it},
	        {"the port is free when the last has gone", the_port_is_free_when_the_last_has_gone},
	};

	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
