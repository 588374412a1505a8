// net_test.c - queue pair 1 between hosts: network namespaces joined by a veth pair, with or without a broker
// follows: IBA volume 1, 13.5 (general services), 10.2.5 (queue keys); annex A17 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/icrc.h"
#include "frame/packet.h"

#define PORT 18515
#define ROCE 4791

/* The test runs on host A. B is a process that only holds its network. */
static pid_t host_b;
static uint8_t a4[16], b4[16], a6[16], b6[16], a_ll[16], b_ll[16];
static char runtime_b[4096];

static void run(const char *command)
{
	if (system(command) != 0)
		skip("this network cannot be set up here (ip from iproute2, as root)");
}

static void on_b(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "nsenter -t %d -n %s", (int)host_b, command);
	run(line);
}

static void hold_network(int ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (unshare(CLONE_NEWNET) || write(ready, "R", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void begin(void)
{
	char line[256], byte;
	int ready[2];

	own_network();
	CHECK(pipe(ready) == 0);
	host_b = fork();
	if (host_b == 0)
		hold_network(ready[1]);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		skip("no network namespaces here");
	close(ready[0]);
	snprintf(
	        line, sizeof(line),
	        "ip link add cable address 02:00:00:00:00:0a type veth peer name cable address 02:00:00:00:00:0b netns %d",
	        (int)host_b);
	run(line);
	run("ip addr add 192.0.2.1/24 dev cable");
	run("ip addr add 2001:db8::1/64 dev cable nodad");
	run("sysctl -qw net.ipv6.conf.cable.accept_dad=0 && ip link set cable up");
	on_b("ip link set lo up");
	on_b("ip addr add 192.0.2.2/24 dev cable");
	on_b("ip addr add 2001:db8::2/64 dev cable nodad");
	on_b("sh -c 'sysctl -qw net.ipv6.conf.cable.accept_dad=0 && ip link set cable up'");
	v4(a4, "192.0.2.1");
	v4(b4, "192.0.2.2");
	v6(a6, "2001:db8::1");
	v6(b6, "2001:db8::2");
	v6(a_ll, "fe80::ff:fe00:a");
	v6(b_ll, "fe80::ff:fe00:b");
	snprintf(runtime_b, sizeof(runtime_b), "%s/b", getenv("VERBENA_RUNTIME"));
	CHECK(mkdir(runtime_b, 0700) == 0);
}

static void start_on_b(struct agent *b)
{
	agent_start_at(b, host_b, runtime_b);
}

static uint64_t tag = 4711; /* another tag for each expected MAD */

/* The first MAD may be lost to an unknown neighbour, and repetitions may arrive late. */
static void expect(struct agent *from, const uint8_t *local, const uint8_t *remote, uint32_t ifindex,
                   const uint8_t *mad, struct agent *to, struct arrived *m)
{
	bool got = false;

	for (int i = 0; i < 100 && !got; i++) {
		agent_send(from, local, remote, ifindex, mad, 1);
		got = agent_take(to, m, 200) && cm_of(m->mad).tid >= tag;
	}
	CHECK(got);
	CHECK(!memcmp(m->mad, mad, VB_MAD_LEN));
	CHECK(!memcmp(m->local, remote, 16) && !memcmp(m->remote, local, 16));
}

static void exchange(struct agent *a, struct agent *b, const uint8_t *of_a, const uint8_t *of_b, uint32_t ifindex)
{
	uint8_t mad[VB_MAD_LEN];
	struct arrived m;

	make_req(mad, VB_PS_TCP, PORT, comm_id_of(a, 9), ++tag);
	expect(a, of_a, of_b, ifindex, mad, b, &m);
	CHECK(m.ifindex != 0);
	make_rep(mad, b, comm_id_of(a, 9), tag);
	expect(b, of_b, of_a, m.ifindex, mad, a, &m);
	SAME(m.ifindex, if_nametoindex("cable"));
}

static void programs_of_two_hosts_exchange_mads(void)
{
	struct agent a, b;

	begin();
	agent_start(&a);
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	uint64_t before = packets_of("cable");
	exchange(&a, &b, a4, b4, 0);
	CHECK(packets_of("cable") > before);
	before = packets_of("cable");
	exchange(&a, &b, a6, b6, 0);
	CHECK(packets_of("cable") > before);
	before = packets_of("cable");
	exchange(&a, &b, a_ll, b_ll, if_nametoindex("cable"));
	CHECK(packets_of("cable") > before);
	agent_end(&a);
	agent_end(&b);
}

static void nobody_there_rejects(void)
{
	struct agent a, b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN];
	bool got = false;

	begin();
	agent_start(&a);
	start_on_b(&b);
	make_req(mad, VB_PS_TCP, PORT, comm_id_of(&a, 3), 1);
	for (int i = 0; i < 100 && !got; i++) {
		agent_send(&a, a4, b4, 0, mad, 1);
		got = agent_take(&a, &m, 200);
	}
	CHECK(got);
	struct vb_cm_msg cm = cm_of(m.mad);
	SAME(cm.attr, VB_CM_REJ);
	SAME(cm.rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	CHECK(!memcmp(m.remote, b4, 16));
	agent_end(&a);
	agent_end(&b);
}

static void brokers_that_die_are_followed_by_others(void)
{
	struct agent a, b;

	begin();
	agent_start(&a);
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	exchange(&a, &b, a4, b4, 0);
	for (int i = 0; i < 3; i++) {
		char *of_a = strdup(getenv("VERBENA_RUNTIME"));
		pid_t pid = broker_pid();

		CHECK(pid && kill(pid, SIGKILL) == 0);
		setenv("VERBENA_RUNTIME", runtime_b, 1);
		pid = broker_pid();
		CHECK(pid && kill(pid, SIGKILL) == 0);
		setenv("VERBENA_RUNTIME", of_a, 1);
		free(of_a);
		for (int k = 0; k < 2; k++) /* the programs start a new broker themselves */
			sleep_ms(50);
		exchange(&a, &b, a4, b4, 0);
		exchange(&a, &b, a6, b6, 0);
	}
	agent_end(&a);
	agent_end(&b);
}

/* ---- a host without Verbena: the test itself, with a socket on the port ---- */

static int foreign;

static void be_foreign(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(ROCE)};

	begin();
	foreign = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(bind(foreign, (struct sockaddr *)&any, sizeof(any)) == 0);
	int pmtu = IP_PMTUDISC_DO;
	CHECK(setsockopt(foreign, IPPROTO_IP, IP_MTU_DISCOVER, &pmtu, sizeof(pmtu)) == 0);
}

struct spoilt {
	uint32_t qpn, qkey;
	uint16_t pkey;
	uint8_t opcode;
	bool icrc;
	size_t len; /* of the payload */
};

static const struct spoilt right = {1, VB_GSI_QKEY, 0xffff, VB_UD_SEND_ONLY, false, VB_MAD_LEN};

static void send_foreign(const struct spoilt *how, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_packet p = {
	        .bth = {.opcode = how->opcode, .migreq = true, .pkey = how->pkey, .dest_qpn = how->qpn},
	        .deth = {.qkey = how->qkey, .src_qpn = 1},
	};
	struct vb_flow flow = {.sport = ROCE, .dport = ROCE};
	struct sockaddr_storage to;
	uint8_t bytes[512] = {0};
	struct vb_writer w = vb_writer(bytes, sizeof(bytes));

	memcpy(flow.src, a4, 16);
	memcpy(flow.dst, b4, 16);
	vb_packet_encode(&w, &p);
	vb_put_bytes(&w, mad, how->len < VB_MAD_LEN ? how->len : VB_MAD_LEN);
	if (how->len > VB_MAD_LEN)
		vb_put_zeros(&w, how->len - VB_MAD_LEN);
	uint32_t crc = vb_icrc_start(&flow, 0, bytes, w.pos, w.pos + VB_ICRC_LEN);
	vb_icrc_encode(bytes + w.pos, crc);
	bytes[w.pos + 1] ^= how->icrc;
	bytes[w.pos + 2] ^= how->icrc;
	bytes[w.pos + 3] ^= how->icrc;
	socklen_t len = vb_gid_to_sockaddr(&to, b4, ROCE, 0);
	if (sendto(foreign, bytes, w.pos + VB_ICRC_LEN, 0, (struct sockaddr *)&to, len) < 0)
		SAME(errno, ECONNREFUSED); /* an ICMP error of an earlier one */
}

/* Receives a packet, with all checks of a foreign adapter. */
static bool take_foreign(uint8_t mad[VB_MAD_LEN], int ms)
{
	struct pollfd pfd = {.fd = foreign, .events = POLLIN};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct vb_packet p;
	struct vb_flow flow = {.dport = ROCE};
	uint8_t bytes[512];

	if (poll(&pfd, 1, ms) != 1)
		return false;
	ssize_t n = recvfrom(foreign, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &len);
	SAME(n, 12 + 8 + VB_MAD_LEN + 4);
	CHECK(vb_packet_decode(&p, bytes, (size_t)n) == VB_PACKET_OK);
	SAME(p.bth.opcode, VB_UD_SEND_ONLY);
	SAME(p.bth.dest_qpn, 1);
	SAME(p.bth.pkey, 0xffff);
	CHECK(p.bth.migreq);
	SAME(p.deth.qkey, VB_GSI_QKEY);
	SAME(p.deth.src_qpn, 1);
	SAME(p.payload_len, VB_MAD_LEN);
	CHECK(vb_gid_of_sockaddr(flow.src, (struct sockaddr *)&from));
	CHECK(!memcmp(flow.src, b4, 16));
	memcpy(flow.dst, a4, 16);
	flow.sport = ntohs(from.sin_port);
	SAME(vb_icrc_check(&flow, 0, bytes, (size_t)n), 0); /* with an identification of 0 */
	memcpy(mad, bytes + p.payload_at, VB_MAD_LEN);
	return true;
}

static void a_foreign_host_can_talk_to_it(void)
{
	struct agent b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN], out[VB_MAD_LEN];

	be_foreign();
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, 0x12345678, 8);
	send_foreign(&right, mad);
	CHECK(agent_take(&b, &m, LONG_MS));
	CHECK(!memcmp(m.mad, mad, sizeof(mad)) && !memcmp(m.local, b4, 16) && !memcmp(m.remote, a4, 16));
	make_rep(mad, &b, 0x12345678, 8);
	agent_send(&b, b4, a4, 0, mad, 1);
	CHECK(take_foreign(out, LONG_MS));
	CHECK(!memcmp(mad, out, sizeof(mad)));
	make_req(mad, VB_PS_TCP, PORT + 1, 0x12345679, 9);
	send_foreign(&right, mad);
	CHECK(take_foreign(out, LONG_MS));
	SAME(cm_of(out).rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	SAME(cm_of(out).rej.remote_comm_id, 0x12345679);
	make_dreq(mad, (b.lane == 1 ? 2 : 1) << 22 | 5, 0x12345679);
	send_foreign(&right, mad);
	CHECK(take_foreign(out, LONG_MS));
	SAME(cm_of(out).attr, VB_CM_DREP);
	agent_end(&b);
}

static void what_is_not_for_queue_pair_1_is_dropped(void)
{
	struct spoilt s;
	struct agent b;
	uint8_t mad[VB_MAD_LEN], noise[VB_MAD_LEN], out[VB_MAD_LEN];

	be_foreign();
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	make_req(mad, VB_PS_TCP, PORT, 0x12345678, 8);
#define WITH(field, value) (s = right, s.field = (value), &s)
	send_foreign(WITH(qpn, 2), mad);
	send_foreign(WITH(qpn, 0), mad);
	send_foreign(WITH(qkey, 0x80010001), mad);
	send_foreign(WITH(pkey, 0xfffe), mad);
	send_foreign(WITH(opcode, VB_UD_SEND_ONLY_IMM), mad);
	send_foreign(WITH(opcode, VB_RC_SEND_ONLY), mad);
	send_foreign(WITH(icrc, true), mad);
	send_foreign(WITH(len, 252), mad);
	send_foreign(WITH(len, 260), mad);
	send_foreign(WITH(len, 0), mad);
	for (int i = 0; i < VB_MAD_LEN; i++)
		noise[i] = (uint8_t)(i * 7);
	send_foreign(&right, noise);
	make_req(mad, VB_PS_TCP, PORT, 0x12345678, 9);
	send_foreign(&right, mad);
	struct arrived m;
	CHECK(agent_take(&b, &m, LONG_MS));
	SAME(cm_of(m.mad).tid, 9); /* nothing arrives before it */
	SAME(agent_count(&b), 0);
	CHECK(!take_foreign(out, 0)); /* and none was answered */
	agent_end(&b);
}

static void a_flood_leaves_room_for_programs(void)
{
	struct agent b, c;
	uint8_t mad[VB_MAD_LEN];
	unsigned seed = 1;

	be_foreign();
	start_on_b(&b);
	start_on_b(&c);
	serve(&b, VB_PS_TCP, PORT);
	pid_t flood = fork();
	if (flood == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			struct spoilt s = right;

			seed = seed * 1664525u + 1013904223u;
			make_req(mad, VB_PS_TCP, (uint16_t)(PORT + (seed >> 20) % 3), seed, seed);
			s.icrc = seed >> 30 == 1;
			s.qkey += seed >> 30 == 2;
			if (seed >> 30 == 3)
				memset(mad, (int)seed, 100);
			send_foreign(&s, mad);
		}
	}
	for (int i = 0; i < 100; i++) { /* a pair that continues beside it */
		uint32_t id = serve(&c, VB_PS_TCP, (uint16_t)(PORT + 100));

		agent_unbind(&c, id);
		agent_count(&b);
	}
	bool got = false;
	serve(&c, VB_PS_TCP, PORT + 200);
	make_req(mad, VB_PS_TCP, PORT + 200, comm_id_of(&b, 1), 1);
	for (int i = 0; i < 100 && !got; i++) {
		agent_send(&b, b4, b4, 0, mad, 1);
		got = agent_take(&c, NULL, 200);
	}
	CHECK(got);
	kill(flood, SIGKILL);
	waitpid(flood, NULL, 0);
	agent_end(&b);
	agent_end(&c);
}

/* A connection of b with the foreign host: their ids. */
static uint32_t connect_foreign(struct agent *b, uint32_t of_foreign)
{
	uint8_t mad[VB_MAD_LEN], out[VB_MAD_LEN];
	struct arrived m;
	uint32_t of_b = comm_id_of(b, 7);

	make_req(mad, VB_PS_TCP, PORT, of_foreign, 8);
	send_foreign(&right, mad);
	CHECK(agent_take(b, &m, LONG_MS));
	struct vb_cm_msg rep = {
	        .attr = VB_CM_REP, .tid = 8, .rep = {.local_comm_id = of_b, .remote_comm_id = of_foreign}};
	vb_cm_encode(mad, &rep);
	agent_send(b, b4, a4, 0, mad, 1);
	do /* after the rest of another connection */
		CHECK(take_foreign(out, LONG_MS));
	while (cm_of(out).attr == VB_CM_DREQ);
	SAME(cm_of(out).attr, VB_CM_REP);
	return of_b;
}

static void dreq_comes(uint32_t of_b, uint32_t of_foreign)
{
	uint8_t out[VB_MAD_LEN];

	CHECK(take_foreign(out, LONG_MS));
	SAME(cm_of(out).attr, VB_CM_DREQ);
	SAME(cm_of(out).dreq.local_comm_id, of_b);
	SAME(cm_of(out).dreq.remote_comm_id, of_foreign);
}

static void answer_dreq(uint32_t of_b, uint32_t of_foreign)
{
	struct vb_cm_msg drep = {.attr = VB_CM_DREP, .drep = {.local_comm_id = of_foreign, .remote_comm_id = of_b}};
	uint8_t mad[VB_MAD_LEN];

	vb_cm_encode(mad, &drep);
	send_foreign(&right, mad);
}

static bool broker_of_b_gone(void)
{
	char *of_a = strdup(getenv("VERBENA_RUNTIME"));

	setenv("VERBENA_RUNTIME", runtime_b, 1);
	bool gone = wait_gone(LONG_MS);
	setenv("VERBENA_RUNTIME", of_a, 1);
	free(of_a);
	return gone;
}

static void a_dead_programs_peer_is_told_until_it_answers(void)
{
	struct agent b, other;
	uint8_t out[VB_MAD_LEN];

	be_foreign();
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	uint32_t of_b = connect_foreign(&b, 4711);
	agent_kill(&b);
	for (int i = 0; i < 3; i++) /* as if lost */
		dreq_comes(of_b, 4711);
	answer_dreq(of_b, 4712); /* of another connection */
	dreq_comes(of_b, 4711);
	answer_dreq(of_b, 4711);
	CHECK(broker_of_b_gone());   /* it was the last */
	while (take_foreign(out, 0)) /* sent before the answer arrived */
		SAME(cm_of(out).attr, VB_CM_DREQ);

	start_on_b(&other); /* beside another one it continues in the same way */
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	of_b = connect_foreign(&b, 4713);
	agent_kill(&b);
	for (int i = 0; i < 2; i++)
		dreq_comes(of_b, 4713);
	answer_dreq(of_b, 4713);
	serve(&other, VB_PS_TCP, PORT);
	uint32_t other_id = connect_foreign(&other, 4714);
	agent_end(&other);
	dreq_comes(other_id, 4714); /* and the other was ended */
}

static void a_peer_that_never_answers_is_given_up(void)
{
	struct agent b;
	uint8_t out[VB_MAD_LEN];
	int n = 0;

	be_foreign();
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	connect_foreign(&b, 4711);
	agent_kill(&b);
	CHECK(broker_of_b_gone());
	while (take_foreign(out, 0))
		n++;
	SAME(n, 5);
}

/* Waits until all earlier packets were handled, and discards the answers. */
static void wait_for_broker(uint32_t probe)
{
	uint8_t mad[VB_MAD_LEN], out[VB_MAD_LEN];
	bool answered = false;

	make_req(mad, VB_PS_TCP, PORT + 1, probe, probe);
	for (int i = 0; i < 100 && !answered; i++) {
		send_foreign(&right, mad);
		while (!answered && take_foreign(out, 200))
			answered = cm_of(out).attr == VB_CM_REJ && cm_of(out).rej.remote_comm_id == probe;
	}
	CHECK(answered);
}

/* The n-th packet of a storm: requests with and without a listener, unexpected answers, noise. */
static void storm_mad(uint8_t mad[VB_MAD_LEN], uint32_t n)
{
	switch (n % 8) {
	case 0:
	case 1:
	case 2:
		make_req(mad, VB_PS_TCP, PORT, n, n);
		break;
	case 3:
		make_req(mad, VB_PS_TCP, (uint16_t)(PORT + 1 + n % 1000), n, n);
		break;
	case 4:
		make_sidr_req(mad, (uint16_t)(PORT + n / 8 % 2), n);
		break;
	case 5:
		make_dreq(mad, n * 0x9e3779b1u, n);
		break;
	case 6:
		make_rep(mad, &(struct agent){.lane = n}, n * 0x9e3779b1u, n);
		break;
	default:
		make_req(mad, VB_PS_TCP, PORT, n, n);
		for (int i = 0; i < 8; i++)
			mad[(n * 2654435761u >> 8) % VB_MAD_LEN] ^= (uint8_t)(n >> i);
	}
}

static long resident_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %ld", &kib);
	fclose(f);
	CHECK(kib > 0);
	return kib;
}

static pid_t broker_of_b(void)
{
	char *of_a = strdup(getenv("VERBENA_RUNTIME"));

	setenv("VERBENA_RUNTIME", runtime_b, 1);
	pid_t pid = broker_pid();
	setenv("VERBENA_RUNTIME", of_a, 1);
	free(of_a);
	CHECK(pid > 0);
	return pid;
}

static void storm(uint32_t from, uint32_t to)
{
	uint8_t mad[VB_MAD_LEN];

	for (uint32_t n = from; n < to; n++) {
		storm_mad(mad, n);
		send_foreign(&right, mad);
		if (n % 64 == 63) /* as many as a socket holds, so that none is lost there */
			wait_for_broker(0x80000000u | n);
	}
}

/* The program reads everything and answers nothing. At the end it is stopped. */
static void a_storm_leaves_the_broker_small(void)
{
	uint8_t mad[VB_MAD_LEN];
	struct arrived m;
	struct agent b;

	be_foreign();
	start_on_b(&b);
	serve(&b, VB_PS_TCP, PORT);
	serve(&b, VB_PS_UDP, PORT);
	wait_for_broker(1);
	pid_t broker = broker_of_b();
	long before = resident_kib(broker);
	storm(0, 100000);
	long while_read = resident_kib(broker) - before;
	CHECK(kill(b.pid, SIGSTOP) == 0);
	storm(100000, 150000);
	long while_stopped = resident_kib(broker) - before;
	CHECK(kill(b.pid, SIGCONT) == 0);
	printf("the broker grew by %ld KiB, and by %ld KiB while its program was stopped\n", while_read, while_stopped);
	CHECK(broker_of_b() == broker);
#ifndef VB_SANITIZED /* sanitizers do not reuse memory soon */
	CHECK(while_read < 16384 && while_stopped < 16384);
#endif
	agent_count(&b);
	make_req(mad, VB_PS_TCP, PORT, 0x7fffffff, 0xfeed);
	bool got = false;
	for (int i = 0; i < 100 && !got; i++) { /* it continues normally */
		send_foreign(&right, mad);
		for (int k = 0; k < 100000 && !got && agent_take(&b, &m, 200); k++)
			got = cm_of(m.mad).tid == 0xfeed;
	}
	CHECK(got);
	agent_end(&b);
}

static void nobody_answers_before_a_program_asks_for_it(void)
{
	struct agent b;
	struct arrived m;
	uint8_t mad[VB_MAD_LEN], out[VB_MAD_LEN];

	be_foreign();
	start_on_b(&b);
	make_req(mad, VB_PS_TCP, PORT, 0x12345678, 8);
	agent_close(&b);
	bool answered = true;
	for (int i = 0; i < 50 && answered; i++) { /* the broker may not have read it yet */
		send_foreign(&right, mad);
		answered = take_foreign(out, 200);
	}
	CHECK(!answered);
	SAME(agent_open(&b), 0);
	serve(&b, VB_PS_TCP, PORT);
	CHECK(!agent_take(&b, &m, 50)); /* MADs that arrived meanwhile are not for it */
	send_foreign(&right, mad);
	CHECK(agent_take(&b, &m, LONG_MS));
	agent_end(&b);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"programs of two hosts exchange MADs", programs_of_two_hosts_exchange_mads},
	        {"nobody there rejects", nobody_there_rejects},
	        {"brokers that die are followed by others", brokers_that_die_are_followed_by_others},
	        {"a foreign host can talk to it", a_foreign_host_can_talk_to_it},
	        {"what is not for queue pair 1 is dropped", what_is_not_for_queue_pair_1_is_dropped},
	        {"a flood leaves room for programs", a_flood_leaves_room_for_programs},
	        {"a dead program's peer is told until it answers", a_dead_programs_peer_is_told_until_it_answers},
	        {"a peer that never answers is given up", a_peer_that_never_answers_is_given_up},
	        {"a storm leaves the broker small", a_storm_leaves_the_broker_small},
	        {"nobody answers before a program asks for it", nobody_answers_before_a_program_asks_for_it},
	};

	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
