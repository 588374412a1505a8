// hoard.c - a program of another user takes as much as it can of one resource: the others still get theirs
// see: src/broker/proto/proto.h; SECURITY.md
// SPDX-License-Identifier: MIT
#include "storm.h"

#include <errno.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/cm.h"

#define HOARDER 47121
#define OTHER 47122
#define LINKS_MOST 600

static struct link links[LINKS_MOST];
static uint8_t own_gid[16];
static pid_t hoarder;

/* ---- helpers ---- */

static bool say(const struct link *l, const void *msg, size_t len, const int *fds, int nfds)
{
	struct pollfd p = {.fd = l->sock, .events = POLLOUT};

	for (int i = 0; i < 100; i++) {
		if (link_send(l, msg, len, fds, nfds))
			return true;
		if (errno != EAGAIN)
			return false;
		poll(&p, 1, 100);
	}
	return false;
}

/* Asks once to attach. Returns 0, EAGAIN if the broker says so, or another error. */
static int attach_once(struct link *l, const void *msg, size_t len, const int fds[3])
{
	struct came m;
	bool gone;

	for (int i = 0; !link_open(l); i++) {
		if (i == 100)
			return ETIMEDOUT;
		sleep_ms(10);
	}
	if (!say(l, msg, len, fds, 3) || !link_take(l, &m, LONG_MS, &gone))
		return EPROTO;
	if (m.head.type == VB_MSG_ERROR)
		return m.error.err;
	if (m.head.type != VB_MSG_ATTACHED)
		return EPROTO;
	l->lane = m.attached.lane;
	return 0;
}

/* Attaches a program with n addresses, the first of which is own_gid. The broker has only so many threads that receive
 * the descriptors of one user, and asks to come again while they are busy; libibverbs does so too. */
static bool attach(struct link *l, const int fds[3], uint32_t ngids)
{
	static struct {
		struct vb_msg_attach m;
		uint8_t gids[VB_MAX_GIDS][16];
	} a;
	size_t len = sizeof(a.m) + ngids * 16ull;
	int err = EAGAIN;

	a.m = (struct vb_msg_attach){.head = head_for(VB_MSG_ATTACH, len), .ngids = ngids};
	for (uint32_t i = 0; i < ngids; i++)
		memcpy(a.gids[i], own_gid, 16), a.gids[i][4] = (uint8_t)i;
	for (int64_t until = now_ms() + LONG_MS; err == EAGAIN && now_ms() < until;) {
		err = attach_once(l, &a, len, fds);
		if (err == EAGAIN) {
			link_close(l);
			sleep_ms(10);
		}
	}
	return !err;
}

static int attach_all(int most, uint32_t ngids)
{
	int n = 0, fds[3];

	memset(own_gid, 0x48, sizeof(own_gid));
	own_gid[4] = 0;
	storm_fds(fds);
	while (n < most && attach(&links[n], fds, ngids))
		n++;
	return n;
}

/* Runs fn in a child of that user, which reports its result and lives until the test ends. */
static int start_user(uid_t uid, int (*run)(void))
{
	int pipe_fd[2], result = -1;

	CHECK(!pipe(pipe_fd));
	hoarder = fork();
	if (!hoarder) {
		close(pipe_fd[0]);
		CHECK(!setgroups(0, NULL) && !setresgid(uid, uid, uid) && !setresuid(uid, uid, uid));
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		result = run();
		CHECK(write(pipe_fd[1], &result, sizeof(result)) == sizeof(result));
		for (;;)
			pause();
	}
	close(pipe_fd[1]);
	CHECK(read(pipe_fd[0], &result, sizeof(result)) == sizeof(result));
	close(pipe_fd[0]);
	return result;
}

static void need_root(void)
{
	if (geteuid())
		skip("only root can be several users");
}

/* ---- descriptors in flight ---- */

/* Each program asks to meet the next ones, and reads no answer. */
static int meet_and_not_read(void)
{
	int n = attach_all(LINKS_MOST, 1);

	for (int i = 0; i < n; i++)
		for (int to = 1; to <= 40; to++) {
			struct vb_msg_meet m = {.head = head_for(VB_MSG_MEET, sizeof(m)),
			                        .qpn = links[(i + to) % n].lane << VB_LANE_SHIFT};

			memcpy(m.dgid, own_gid, 16);
			if (to % n)
				link_send(&links[i], &m, sizeof(m), NULL, 0);
		}
	sleep_ms(500);
	return n;
}

/* The kernel limits the descriptors that one user has sent and nobody has received; here root is the sender. */
static void answers_that_nobody_reads(void)
{
	struct rlimit few = {4096, 4096};
	struct diary a, b;

	need_root();
	CHECK(!setrlimit(RLIMIT_NOFILE, &few));
	join_as(&a, 1);
	join_as(&b, 2);
	int n = start_user(HOARDER, meet_and_not_read) + start_user(OTHER, meet_and_not_read);

	CHECK(n > 100);
	for (int i = 1; i <= 20; i++) {
		SAME(ask(&a, (uint64_t)i, vb_broker_lane_number(b.c), 2), 0);
		CHECK(wait_for(&a, &a.replies, i, LONG_MS) && a.err == 0);
		CHECK(wait_for(&b, &b.introductions, i, LONG_MS));
	}
	leave(&a);
	leave(&b);
}

/* ---- multicast groups ---- */

static int join_groups(const struct link *l, int n)
{
	int sent = 0;

	for (int i = 0; i < n; i++) {
		struct vb_msg_roce_group m = {.head = head_for(VB_MSG_ROCE_GROUP, sizeof(m)), .ifindex = 1, .join = 1};

		gid_v4(m.group, "239.7.0.0");
		m.group[15] = (uint8_t)i;
		sent += say(l, &m, sizeof(m), NULL, 0);
	}
	return sent;
}

static bool wire_up(struct link *l)
{
	struct vb_msg_head ask = head_for(VB_MSG_ROCE, sizeof(ask));
	struct came m;
	bool gone;

	if (!say(l, &ask, sizeof(ask), NULL, 0) || !link_take(l, &m, LONG_MS, &gone) ||
	    m.head.type != VB_MSG_ROCE_REPLY || m.wire.err || m.nfds != 1)
		return false;
	l->relay = m.fds[0];
	return true;
}

static int join_all_groups(void)
{
	int n = attach_all(300, 1), wired = 0;

	for (int i = 0; i < n; i++)
		wired += wire_up(&links[i]) && join_groups(&links[i], 20) == 20;
	return wired;
}

/* A datagram to the group arrives through the channel. */
static int join_one_group(void)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(4791), .sin_addr = {htonl(0xef070000)}};
	uint8_t packet[16] = {4, [5] = 0xff, 0xff, 0xff}, got[256];
	int udp = socket(AF_INET, SOCK_DGRAM, 0);
	struct in_addr lo = {htonl(INADDR_LOOPBACK)};

	if (attach_all(1, 1) != 1 || !wire_up(&links[0]) || join_groups(&links[0], 1) != 1)
		return 1;
	setsockopt(udp, IPPROTO_IP, IP_MULTICAST_IF, &lo, sizeof(lo));
	for (int64_t until = now_ms() + LONG_MS / 2; now_ms() < until;) {
		struct pollfd p = {.fd = links[0].relay, .events = POLLIN};

		sendto(udp, packet, sizeof(packet), 0, (struct sockaddr *)&in, sizeof(in));
		if (poll(&p, 1, 50) == 1 && recv(links[0].relay, got, sizeof(got), MSG_DONTWAIT) > 0)
			return 0;
	}
	return 2;
}

static void groups_for_everybody(void)
{
	struct diary root;

	need_root();
	own_network();
	join_as(&root, 1);
	SAME(wire(&root), 0);
	SAME(start_user(HOARDER, join_all_groups), 300);
	SAME(start_user(OTHER, join_one_group), 0);
	leave(&root);
}

/* ---- the broker's time ---- */

#define CONNECTIONS 8192

static uint32_t ngids;

/* Programs with many addresses each, and one with many connections to an address that nobody has. It dies, and all its
 * peers are told. */
static int connect_often_and_die(void)
{
	int n = attach_all(400, ngids);

	for (uint32_t i = 1; i <= CONNECTIONS; i++) {
		struct vb_msg_cm_at_death m = {.head = head_for(VB_MSG_CM_AT_DEATH, sizeof(m)),
		                               .local_id = links[0].lane << 22 | i,
		                               .remote_id = i};

		memcpy(m.local, own_gid, 16);
		memcpy(m.remote, own_gid, 16);
		m.remote[5] = 1;
		CHECK(say(&links[0], &m, sizeof(m), NULL, 0));
	}
	link_close(&links[0]);
	return n;
}

static long long time_of(pid_t pid)
{
	long long ns = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	FILE *f = fopen(path, "re");
	CHECK(f && fscanf(f, "%lld", &ns) == 1);
	fclose(f);
	return ns;
}

/* The processor time of the broker, in ms. */
static long long time_for(uint32_t gids)
{
	struct diary root;

	join_as(&root, 1);
	pid_t broker = broker_pid();
	ngids = gids;
	SAME(start_user(HOARDER, connect_often_and_die), 400);
	long long before = time_of(broker);

	sleep_ms(3000);
	long long ms = (time_of(broker) - before) / 1000000;

	printf("# %u addresses each: %lld ms\n", gids, ms);
	kill(hoarder, SIGKILL);
	CHECK(wait_lanes(1, LONG_MS));
	leave(&root);
	CHECK(wait_gone(2 * LONG_MS));
	return ms;
}

/* A look-up takes hardly longer if programs announce many addresses. */
static void many_addresses(void)
{
	need_root();
	long long few = time_for(1), many = time_for(VB_MAX_GIDS);

	CHECK(many < 8 * few + 100);
}

static const struct test tests[] = {
        {"other users' programs that read no answers keep nobody from meeting", answers_that_nobody_reads},
        {"one user's programs leave others multicast groups", groups_for_everybody},
        {"many addresses, and many connections of a program that dies, cost the broker little time", many_addresses},
};

int main(int argc, char **argv)
{
	static struct storm_news here;

	news = &here;
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
