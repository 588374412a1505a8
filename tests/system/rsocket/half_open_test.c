// half_open_test.c - peers that never confirm a connection, or never read, keep nobody else from a server
// follows: rsocket(7); IBA volume 1, 12.9 (REQ, REP, RTU)
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7473, ASKED = 600, FDS = 1024, FDS_MAX = 350, CONN_LEN = 40 };

static struct sockaddr_in server = {.sin_family = AF_INET};

struct shared {
	atomic_uint asked;
	atomic_bool attacked, over;
};
static struct shared *shared;

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* One exists, and is never connected; the others use its numbers. */
static uint32_t queue_pair(struct ibv_context *verbs)
{
	static struct ibv_qp *qp;
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	if (!qp) {
		attr.send_cq = attr.recv_cq = ibv_create_cq(verbs, 2, NULL, NULL, 0);
		qp = ibv_create_qp(ibv_alloc_pd(verbs), &attr);
		CHECK(qp);
	}
	return (qp->qp_num & ~0x3fffu) | ((qp->qp_num + shared->asked) & 0x3fff);
}

/* The private data of an rsocket. The memory that it names is never written. */
static void ask(struct rdma_event_channel *channel)
{
	uint8_t data[CONN_LEN] = {1, 0, 1, 0x80, [23] = 2, [38] = 1};
	struct rdma_conn_param param = {
	        .private_data = data, .private_data_len = sizeof(data), .retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;

	CHECK(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&server, 2000));
	while (!rdma_get_cm_event(channel, &ev)) {
		const enum rdma_cm_event_type what = ev->event;
		struct rdma_cm_id *of = ev->id;

		rdma_ack_cm_event(ev);
		if (what == RDMA_CM_EVENT_ADDR_RESOLVED && of == id)
			CHECK(!rdma_resolve_route(id, 2000));
		if (what == RDMA_CM_EVENT_ROUTE_RESOLVED && of == id)
			break;
	}
	param.qp_num = queue_pair(id->verbs);
	CHECK(!rdma_connect(id, &param));
}

/* Confirms its connection late, as a host does that has no time for its programs. */
static int late(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *ev;

	CHECK(channel);
	ask(channel);
	CHECK(!rdma_get_cm_event(channel, &ev));
	CHECK(ev->event == RDMA_CM_EVENT_CONNECT_RESPONSE);
	struct rdma_cm_id *id = ev->id;

	rdma_ack_cm_event(ev);
	sleep_ms(1000);
	CHECK(!rdma_establish(id));
	while (!shared->over)
		sleep_ms(20);
	_exit(0);
}

/* Its answers are ignored, so no RTU is sent. */
static int attacker(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(channel);
	for (int i = 0; i < ASKED; i++) {
		ask(channel);
		shared->asked++;
	}
	shared->attacked = true;
	while (!shared->over)
		sleep_ms(20);
	_exit(0);
}

static int genuine(void)
{
	char byte = 'x';
	int s;

	while (!shared->attacked)
		sleep_ms(10);
	for (int i = 0; i < 3; i++) {
		s = rsocket(AF_INET, SOCK_STREAM, 0);
		CHECK(s >= 0 && !rconnect(s, (struct sockaddr *)&server, sizeof(server)));
		CHECK(rsend(s, &byte, 1, 0) == 1 && rrecv(s, &byte, 1, 0) == 1);
		rclose(s);
	}
	return 0;
}

enum { READERS = 150 };

/* Connects, and never reads. */
static int glutton(void)
{
	int s;

	for (int i = 0; i < READERS; i++) {
		s = rsocket(AF_INET, SOCK_STREAM, 0);
		CHECK(s >= 0 && !rconnect(s, (struct sockaddr *)&server, sizeof(server)));
		shared->asked++;
	}
	shared->attacked = true;
	while (!shared->over)
		sleep_ms(20);
	_exit(0);
}

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static pid_t start(int (*what)(void))
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sleep_ms(300); /* the server listens */
		_exit(what()); /* no leak check: a thread of the parent does not exist here */
	}
	return pid;
}

static void echo_one(int l)
{
	char byte;
	int s = raccept(l, NULL, NULL);

	CHECK(s >= 0);
	if (rrecv(s, &byte, 1, 0) == 1)
		rsend(s, &byte, 1, 0);
	rclose(s);
}

static void who_never_confirms_keeps_nobody_away_and_takes_few_descriptors(void)
{
	const struct rlimit few = {FDS, FDS};
	pid_t bad = start(attacker), good = start(genuine);
	int l = rsocket(AF_INET, SOCK_STREAM, 0), status;
	struct pollfd p = {.fd = l, .events = POLLIN};
	unsigned most = 0, now;

	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	CHECK(l >= 0 && !rbind(l, (struct sockaddr *)&server, sizeof(server)) && !rlisten(l, 511));
	while (!waitpid(good, &status, WNOHANG)) {
		if (rpoll(&p, 1, 20) > 0)
			echo_one(l);
		now = open_fds();
		most = now > most ? now : most;
	}
	printf("# at most %u descriptors with %u unconfirmed requests\n", most, shared->asked);
	CHECK(!status && most <= FDS_MAX);
	shared->over = true;
	CHECK(waitpid(bad, &status, 0) == bad && !status);
	rclose(l);
}

static void who_confirms_late_is_accepted_though_the_backlog_is_short(void)
{
	int l = rsocket(AF_INET, SOCK_STREAM, 0), s, status;
	struct pollfd p = {.fd = l, .events = POLLIN};
	pid_t peer;

	shared->over = false;
	server.sin_port = htons(PORT + 2);
	CHECK(l >= 0 && !rbind(l, (struct sockaddr *)&server, sizeof(server)) && !rlisten(l, 1));
	peer = start(late);
	CHECK(rpoll(&p, 1, LONG_MS) == 1);
	s = raccept(l, NULL, NULL);
	CHECK(s >= 0);
	shared->over = true;
	CHECK(waitpid(peer, &status, 0) == peer && !status);
	rclose(s);
	rclose(l);
}

/* Sends as much as it accepts at once, and then closes. */
static void serve_and_close(int s)
{
	static const char page[65536];

	CHECK(!rfcntl(s, F_SETFL, O_NONBLOCK));
	while (rsend(s, page, sizeof(page), 0) > 0)
		;
	alarm(LONG_MS / 1000);
	CHECK(!rshutdown(s, SHUT_WR)); /* does not wait for a peer that does not read */
	alarm(0);
	rclose(s);
}

static void who_is_stopped_holds_nobody_up_and_leaves_few_descriptors_behind(void)
{
	int l = rsocket(AF_INET, SOCK_STREAM, 0), s[READERS];
	unsigned before, now;
	pid_t bad;

	shared->asked = 0;
	shared->attacked = shared->over = false;
	server.sin_port = htons(PORT + 1);
	CHECK(l >= 0 && !rbind(l, (struct sockaddr *)&server, sizeof(server)) && !rlisten(l, 16));
	bad = start(glutton);
	for (int n = 0; n < READERS; n++)
		CHECK((s[n] = raccept(l, NULL, NULL)) >= 0);
	while (!shared->attacked)
		sleep_ms(10);
	before = open_fds();
	CHECK(!kill(bad, SIGSTOP));
	for (int n = 0; n < READERS; n++)
		serve_and_close(s[n]);
	for (int ms = 0; (now = open_fds()) > FDS_MAX && ms < LONG_MS / 2; ms += 50)
		sleep_ms(50);
	printf("# %u descriptors of %u remain for %d peers that take nothing\n", now, before, READERS);
	CHECK(now <= FDS_MAX);
	CHECK(!kill(bad, SIGKILL) && waitpid(bad, NULL, 0) == bad);
	rclose(l);
}

int main(int argc, char **argv)
{
	CHECK(argc > 1 && inet_pton(AF_INET, argv[1], &server.sin_addr) == 1);
	server.sin_port = htons(PORT);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	RUN(who_confirms_late_is_accepted_though_the_backlog_is_short);
	RUN(who_never_confirms_keeps_nobody_away_and_takes_few_descriptors);
	RUN(who_is_stopped_holds_nobody_up_and_leaves_few_descriptors_behind);
	return 0;
}
