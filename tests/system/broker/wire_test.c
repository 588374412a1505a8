// wire_test.c - programs, broker and keeper share UDP 4791: who receives what, and what continues when some of them die
// see: src/broker/server/keeper.h
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/server/keeper.h"
#include "broker/proto/proto.h"
#include "broker/proto/runtime.h"

#define PORT 4791

static int sender = -1;

static void send_to_lane(uint32_t lane)
{
	struct sockaddr_in to = {
	        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint32_t qpn = lane << 14 | 9;
	uint8_t bth[12] = {4, 0, 0xff, 0xff, 0, (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8), (uint8_t)qpn};

	if (sender < 0)
		sender = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sendto(sender, bth, sizeof(bth), 0, (struct sockaddr *)&to, sizeof(to)) < 0)
		SAME(errno, ECONNREFUSED); /* an ICMP error of an earlier one, when nobody had the port */
}

/* Reads all datagrams and returns their number. Each must be for this lane. */
static int take(int fd, uint32_t lane)
{
	uint8_t bth[64];
	int n = 0;

	while (recv(fd, bth, sizeof(bth), MSG_DONTWAIT) >= 8) {
		SAME((bth[5] << 16 | bth[6] << 8 | bth[7]) >> 14, lane);
		n++;
	}
	return n;
}

/* The same, once something has arrived. */
static int take_when_there(int fd, uint32_t lane)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, LONG_MS) == 1 ? take(fd, lane) : 0;
}

static uint32_t lane_of(const struct diary *d)
{
	return vb_broker_lane_number(d->c);
}

/* A duplicate of a program's socket, from its descriptors, to check the lane after its holder has gone. */
static int lane_of_program(const struct program *p)
{
	int pid_fd = (int)syscall(SYS_pidfd_open, p->pid, 0), fd = -1, proto;
	socklen_t len = sizeof(proto);

	CHECK(pid_fd >= 0);
	for (int i = 63; i > 2; i--) { /* descriptors inherited by the fork have lower numbers than its own */
		fd = (int)syscall(SYS_pidfd_getfd, pid_fd, i, 0);
		if (fd < 0)
			continue;
		if (!getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) && proto == IPPROTO_UDP)
			break;
		close(fd);
		fd = -1;
	}
	close(pid_fd);
	if (fd < 0)
		skip("another program's descriptors cannot be had here");
	return fd;
}

static bool reaches(const struct diary *d)
{
	send_to_lane(lane_of(d));
	return take_when_there(d->lane_fd, lane_of(d)) == 1;
}

/* In a separate network, with one socket per lane. */
static void begin(void)
{
	struct rlimit lim;

	own_network();
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	if (lim.rlim_max < 2 * 1100)
		skip("lanes would share sockets: needs RLIMIT_NOFILE of 2200");
	lim.rlim_cur = lim.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
}

/* Retries, because a refusal is repeated for a moment. */
static int wire_again(struct diary *d)
{
	sleep_ms(150);
	return wire(d);
}

static void end_all(void)
{
	CHECK(wait_gone(LONG_MS));
	CHECK(wait_no_keeper(LONG_MS));
}

static void each_program_receives_what_is_for_its_lane(void)
{
	struct diary a, b;

	begin();
	join_as(&a, 1);
	join_as(&b, 2);
	SAME(keeper_pid(), 0); /* nobody has asked for a socket yet */
	SAME(wire(&a), 0);
	CHECK(a.nlanes >= 16 && a.nlanes <= 1024);
	pid_t keeper = keeper_pid();
	CHECK(keeper > 0);
	CHECK(reaches(&a));
	send_to_lane(lane_of(&b)); /* there is no receiver yet */
	SAME(take(a.lane_fd, lane_of(&a)), 0);
	SAME(wire(&b), 0);
	SAME(take(b.lane_fd, lane_of(&b)), 0);
	CHECK(reaches(&b) && reaches(&a));
	send_to_lane(lane_of(&a));
	SAME(wire(&a), 0); /* again: the same socket, with its datagrams */
	SAME(take_when_there(a.lane_fd, lane_of(&a)), 1);
	SAME(keeper_pid(), keeper);
	SAME(waitpid(-1, NULL, WNOHANG | __WALL), -1);
	leave(&a);
	sleep_ms(300);
	CHECK(reaches(&b));
	SAME(keeper_pid(), keeper);
	leave(&b);
	end_all();
}

static void who_leaves_or_dies_leaves_a_lane_that_collects_nothing(void)
{
	struct diary a, b;

	begin();
	join_as(&a, 1);
	join_as(&b, 1);
	SAME(wire(&a), 0);
	SAME(wire(&b), 0);
	int look = dup(b.lane_fd);
	uint32_t lane = lane_of(&b);
	send_to_lane(lane);
	leave(&b);
	CHECK(wait_lanes(1, LONG_MS));
	SAME(wire(&a), 0); /* answered after the messages to the keeper */
	send_to_lane(lane);
	SAME(take(look, lane), 0);
	close(look);
	leave(&a);
	end_all();
}

static void killed_programs_leave_no_keeper(void)
{
	struct program p[3];

	begin();
	for (int i = 0; i < 3; i++) {
		start_program(&p[i], 1, 0);
		SAME(wire_program(&p[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		end_program(&p[i], SIGKILL);
	end_all();
}

static void programs_and_broker_killed_together_leave_no_keeper(void)
{
	struct program p;
	char path[300];

	begin();
	start_program(&p, 1, 0);
	SAME(wire_program(&p), 0);
	pid_t broker = broker_pid();
	kill(p.pid, SIGSTOP); /* otherwise it would start another */
	kill(broker, SIGKILL);
	sleep_ms(50);
	CHECK(keeper_pid() > 0);
	end_program(&p, SIGKILL);
	CHECK(wait_no_keeper(LONG_MS));
	snprintf(path, sizeof(path), "%s/broker.sock", getenv("VERBENA_RUNTIME"));
	CHECK(unlink(path) == 0); /* left by the dead broker */
}

static void a_killed_broker_moves_no_lane(void)
{
	struct diary a, b, c;

	begin();
	join_as(&a, 1);
	join_as(&b, 2);
	SAME(wire(&a), 0);
	SAME(wire(&b), 0);
	pid_t keeper = keeper_pid();
	for (int round = 1; round <= 3; round++) {
		kill(broker_pid(), SIGKILL);
		/* without a broker, and with one that is just starting */
		for (int i = 0; i < 200; i++)
			CHECK(reaches(&a) && reaches(&b));
		CHECK(wait_for(&a, &a.reattached, round, LONG_MS));
		CHECK(wait_for(&b, &b.reattached, round, LONG_MS));
		CHECK(reaches(&a) && reaches(&b));
		join_as(&c, 3);
		SAME(wire(&c), 0);
		SAME(c.nlanes, a.nlanes);
		SAME(keeper_pid(), keeper);
		CHECK(reaches(&a) && reaches(&b) && reaches(&c));
		for (uint32_t lane = 1; lane < 1024; lane += 5)
			if (lane != lane_of(&a) && lane != lane_of(&b) && lane != lane_of(&c))
				send_to_lane(lane);
		SAME(take(a.lane_fd, lane_of(&a)) + take(b.lane_fd, lane_of(&b)) + take(c.lane_fd, lane_of(&c)), 0);
		leave(&c);
	}
	leave(&a);
	leave(&b);
	end_all();
}

static void a_lane_given_by_a_killed_broker_is_shut_by_the_next(void)
{
	struct diary a, b;

	begin();
	join_as(&a, 1);
	join_as(&b, 2);
	SAME(wire(&b), 0);
	SAME(wire(&a), 0);
	int look = dup(b.lane_fd);
	uint32_t lane = lane_of(&b);
	kill(broker_pid(), SIGKILL);
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	CHECK(wait_for(&b, &b.reattached, 1, LONG_MS));
	leave(&b);
	CHECK(wait_lanes(1, LONG_MS));
	SAME(wire(&a), 0);
	send_to_lane(lane);
	SAME(take(look, lane), 0);
	close(look);
	leave(&a);
	end_all();
}

static void a_lane_whose_holder_died_with_the_broker_is_shut(void)
{
	struct program p;
	struct diary a;

	begin();
	join_as(&a, 1);
	SAME(wire(&a), 0);
	start_program(&p, 2, 0);
	SAME(wire_program(&p), 0);
	int look = lane_of_program(&p);
	pid_t broker = broker_pid();
	kill(broker, SIGSTOP);
	end_program(&p, SIGKILL);
	kill(broker, SIGKILL);
	send_to_lane(p.lane);
	SAME(take_when_there(look, p.lane), 1); /* as long as nobody knows */
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	SAME(wire(&a), 0); /* answered behind what was told to the keeper */
	send_to_lane(p.lane);
	SAME(take(look, p.lane), 0);
	CHECK(reaches(&a));
	close(look);
	leave(&a);
	end_all();
}

/* The earlier broker's record of it is damaged, so the next broker takes it for dead until it returns. */
static void a_lane_that_was_shut_in_error_opens_when_its_holder_comes(void)
{
	struct diary a;
	char path[300], junk[64] = "junk";

	begin();
	join_as(&a, 1);
	SAME(wire(&a), 0);
	snprintf(path, sizeof(path), "%s/broker.sock.state", getenv("VERBENA_RUNTIME"));
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && pwrite(fd, junk, sizeof(junk), lane_of(&a) * 64) == 64);
	close(fd);
	kill(broker_pid(), SIGKILL);
	CHECK(reaches(&a));
	CHECK(wait_for(&a, &a.reattached, 1, LONG_MS));
	CHECK(reaches(&a));
	leave(&a);
	end_all();
}

static int bind_foreign(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = -1;

	for (int ms = 0; err && ms < LONG_MS; ms += 5) { /* earlier programs may still be closing their sockets */
		err = bind(fd, (struct sockaddr *)&any, sizeof(any));
		if (err)
			sleep_ms(5);
	}
	SAME(err, 0);
	return fd;
}

static void a_port_that_somebody_holds_is_reported_and_asked_for_again(void)
{
	struct diary a, b;

	begin();
	int foreign = bind_foreign();
	join_as(&a, 1);
	join_as(&b, 2);
	SAME(wire(&a), EADDRINUSE);
	CHECK(a.holder_known);
	SAME(a.holder_uid, geteuid());
	CHECK(wait_no_keeper(LONG_MS));
	SAME(wire(&b), EADDRINUSE); /* as it was */
	SAME(wire_again(&b), EADDRINUSE);
	send_to_lane(lane_of(&a));
	SAME(take_when_there(foreign, lane_of(&a)), 1);
	SAME(ask(&a, 1, lane_of(&b), 2), 0); /* everything else continues */
	CHECK(wait_for(&a, &a.replies, 1, LONG_MS));
	SAME(a.err, 0);
	close(foreign);
	SAME(wire_again(&a), 0);
	SAME(wire(&b), 0);
	CHECK(reaches(&a) && reaches(&b));
	leave(&a);
	leave(&b);
	end_all();
}

static void a_second_runtime_directory_does_not_get_into_the_group(void)
{
	char other[600], first[512];
	struct diary a, b;

	begin();
	snprintf(first, sizeof(first), "%s", getenv("VERBENA_RUNTIME"));
	snprintf(other, sizeof(other), "%s/other", first);
	join_as(&a, 1);
	SAME(wire(&a), 0);
	setenv("VERBENA_RUNTIME", other, 1);
	join_as(&b, 1);
	SAME(wire(&b), EADDRINUSE);
	SAME(wire(&b), EADDRINUSE); /* as it was */
	CHECK(b.holder_known);
	SAME(b.holder_uid, geteuid());
	CHECK(reaches(&a));
	setenv("VERBENA_RUNTIME", first, 1);
	leave(&a);
	end_all();
	setenv("VERBENA_RUNTIME", other, 1);
	SAME(wire_again(&b), 0);
	CHECK(reaches(&b));
	leave(&b);
	end_all();
}

static void another_user_s_keeper_is_left_alone(void)
{
	char other[512];
	struct program p;
	struct diary a;

	if (geteuid() != 0)
		skip("needs root to be another user");
	begin();
	snprintf(other, sizeof(other), "%s/other", getenv("VERBENA_RUNTIME"));
	CHECK(mkdir(other, 0700) == 0);
	if (chown(other, 64123, 64123))
		skip("only one user here");
	join_as(&a, 1);
	setenv("VERBENA_RUNTIME", other, 1);
	start_program(&p, 1, 64123);
	SAME(wire_program(&p), 0);
	SAME(wire(&a), EADDRINUSE);
	CHECK(a.holder_known);
	SAME(a.holder_uid, 64123);
	end_program(&p, 0);
	end_all();
	SAME(wire_again(&a), 0);
	leave(&a);
	CHECK(wait_no_keeper(LONG_MS));
}

static void killed_keepers_are_replaced_when_the_port_is_free(void)
{
	struct diary a, b;

	begin();
	join_as(&a, 1);
	join_as(&b, 1);
	SAME(wire(&a), 0);
	pid_t keeper = keeper_pid();
	kill(keeper, SIGTERM); /* it stays for programs, and ends with them */
	CHECK(!wait_no_keeper(100));
	kill(keeper, SIGKILL);
	CHECK(wait_no_keeper(LONG_MS));
	SAME(wire(&b), EADDRINUSE); /* a holds the port: its lane would not belong to a new group */
	leave(&a);
	SAME(wire_again(&b), 0);
	CHECK(keeper_pid() > 0 && keeper_pid() != keeper);
	CHECK(reaches(&b));
	leave(&b);
	end_all();
}

static void a_stopped_keeper_holds_nobody_up_for_long(void)
{
	struct diary a, b;

	begin();
	join_as(&a, 1);
	join_as(&b, 1);
	SAME(wire(&a), 0);
	kill(keeper_pid(), SIGSTOP);
	SAME(wire_once(&b), ETIMEDOUT);
	CHECK(reaches(&a));
	kill(keeper_pid(), SIGCONT);
	SAME(wire_again(&b), 0);
	CHECK(reaches(&a) && reaches(&b));
	leave(&a);
	leave(&b);
	end_all();
}

/* -1 if that is not allowed. */
static int try_keeper(void)
{
	struct vb_runtime rt, place;
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	struct timeval tv = {.tv_sec = LONG_MS / 1000};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	SAME(vb_runtime_own(&rt), 0);
	vb_keeper_runtime(&rt, &place);
	CHECK((size_t)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/%s", place.dir, place.name) <
	      sizeof(sun.sun_path));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	return connect(fd, (struct sockaddr *)&sun, sizeof(sun)) ? -1 : fd;
}

static int call_keeper(void)
{
	int fd = try_keeper();

	CHECK(fd >= 0);
	return fd;
}

/* Messages from a broken process of this user; no other user is listened to. */
static void nonsense_does_the_keeper_no_harm(void)
{
	struct vb_keeper_ask m = {.magic = VB_KEEPER_MAGIC};
	struct vb_keeper_answer in;
	uint8_t junk[256];
	struct diary a;
	struct stat st;

	begin();
	join_as(&a, 1);
	SAME(wire(&a), 0);
	int idle = call_keeper();
	for (unsigned i = 0; i < 300; i++) {
		int fd = call_keeper(), fds[2] = {0, fd};
		memset(junk, (int)i * 37, sizeof(junk));
		m.op = i % (VB_KEEPER_SETTLE + 2);
		m.lane = i * 0x01010101u;
		if (i % 3 == 0)
			memcpy(junk, &m, sizeof(m));
		vb_keeper_send(fd, junk, i % 3 == 0 ? sizeof(m) : i % sizeof(junk), fds, i % 7 ? 0 : 2);
		close(fd);
	}
	/* as a second broker of the same directory, while the first one lives */
	CHECK(stat(getenv("VERBENA_RUNTIME"), &st) == 0);
	m = (struct vb_keeper_ask){.magic = VB_KEEPER_MAGIC, .op = VB_KEEPER_HELLO, .dev = st.st_dev, .ino = st.st_ino};
	int fd = call_keeper();
	CHECK(send(fd, &m, sizeof(m), 0) == sizeof(m));
	CHECK(recv(fd, &in, sizeof(in), 0) == sizeof(in));
	SAME(in.err, EBUSY);
	SAME(recv(fd, &in, sizeof(in), 0), 0);
	close(fd);
	SAME(wire(&a), 0);
	CHECK(reaches(&a));
	leave(&a);
	end_all();
	close(idle);
}

static void another_user_is_not_listened_to(void)
{
	struct diary a;
	int status;

	if (geteuid() != 0)
		skip("needs root to be another user");
	begin();
	join_as(&a, 1);
	SAME(wire(&a), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (setuid(64123))
			_exit(SKIPPED);
		_exit(try_keeper() >= 0 || errno != EACCES);
	}
	waitpid(pid, &status, 0);
	if (WEXITSTATUS(status) != SKIPPED)
		SAME(status, 0);
	leave(&a);
	end_all();
}

/* ---- programs of another user, with root's broker ---- */

#define STRANGER 64123

/* Runs in its own process; main tells it when to continue. */
static void as_stranger(int (*run)(int from_main), int expect)
{
	int pair[2], status;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(pair[0]);
		sender = -1;
		if (setgid(STRANGER) || setuid(STRANGER))
			_exit(SKIPPED);
		_exit(run(pair[1]));
	}
	close(pair[1]);
	waitpid(pid, &status, 0);
	close(pair[0]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip("only one user here");
	SAME(status, expect << 8);
}

static void begin_with_strangers(struct diary *root)
{
	if (geteuid() != 0)
		skip("needs root to be another user");
	begin();
	join_as(root, 1);
	SAME(wire(root), 0);
	CHECK(!root->relayed);
}

/* One relayed datagram: its packets, all for this lane. */
static int take_relayed(const struct diary *d)
{
	struct {
		struct vb_relay_head head;
		uint8_t bytes[65536];
	} m;
	struct pollfd p = {.fd = d->lane_fd, .events = POLLIN};
	int n = 0;

	if (poll(&p, 1, LONG_MS) != 1)
		return 0;
	for (ssize_t len; (len = recv(d->lane_fd, &m, sizeof(m), MSG_DONTWAIT)) > (ssize_t)sizeof(m.head);) {
		size_t bytes = (size_t)len - sizeof(m.head), seg = m.head.seg ? m.head.seg : bytes;
		for (size_t off = 0; off < bytes; off += seg, n++)
			SAME((m.bytes[off + 5] << 16 | m.bytes[off + 6] << 8 | m.bytes[off + 7]) >> 14, lane_of(d));
	}
	return n;
}

static bool is_udp(int fd)
{
	int proto;
	socklen_t len = sizeof(proto);

	return !getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &proto, &len) && proto == IPPROTO_UDP;
}

static int receives_without_a_socket_of_the_group(int from_main)
{
	struct diary d;

	join_as(&d, 2);
	SAME(wire(&d), 0);
	CHECK(d.relayed && d.lifeline_fd < 0);
	for (int fd = 0; fd < 2000; fd++) /* inherited descriptors are the parent's */
		CHECK(fd == d.lane_fd ? !is_udp(fd) : true);
	CHECK(lane_of(&d) >= VB_FOREIGN_LANES);
	for (int i = 0; i < 100; i++) {
		send_to_lane(lane_of(&d));
		SAME(take_relayed(&d), 1);
	}
	leave(&d);
	return 0;
}

static void another_user_s_program_receives_without_a_socket_of_the_group(void)
{
	struct diary root;

	begin_with_strangers(&root);
	as_stranger(receives_without_a_socket_of_the_group, 0);
	CHECK(reaches(&root));
	leave(&root);
	end_all();
}

static int writes_to_its_channel(int from_main)
{
	struct diary d;

	join_as(&d, 2);
	SAME(wire(&d), 0);
	/* nothing can be sent to the keeper's end, above all no descriptor whose close takes an hour */
	CHECK(send(d.lane_fd, "x", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE);
	/* a channel that nobody reads only fills up */
	for (int i = 0; i < 200000; i++)
		send_to_lane(lane_of(&d));
	while (take_relayed(&d) > 0 && recv(d.lane_fd, NULL, 0, MSG_DONTWAIT | MSG_PEEK) >= 0)
		;
	send_to_lane(lane_of(&d));
	CHECK(take_relayed(&d) >= 1);
	leave(&d);
	return 0;
}

static void a_channel_that_is_not_read_or_written_to_harms_nobody(void)
{
	struct diary root;

	begin_with_strangers(&root);
	as_stranger(writes_to_its_channel, 0);
	CHECK(reaches(&root));
	leave(&root);
	end_all();
}

static int keeps_its_channel_when_it_leaves(int from_main)
{
	struct diary d;
	char byte;

	join_as(&d, 2);
	SAME(wire(&d), 0);
	int keep = dup(d.lane_fd);
	uint32_t lane = lane_of(&d);
	leave(&d);
	struct pollfd p = {.fd = keep, .events = POLLIN};
	SAME(poll(&p, 1, LONG_MS), 1); /* its end */
	send_to_lane(lane);
	sleep_ms(50);
	return recv(keep, &byte, 1, MSG_DONTWAIT) != 0;
}

static void a_channel_ends_with_the_lane(void)
{
	struct diary root;

	begin_with_strangers(&root);
	as_stranger(keeps_its_channel_when_it_leaves, 0);
	leave(&root);
	end_all();
}

static int outlives_broker_and_keeper(int from_main)
{
	struct diary d;

	join_as(&d, 2);
	SAME(wire(&d), 0);
	CHECK(send(from_main, "k", 1, 0) == 1); /* the broker is killed */
	CHECK(wait_for(&d, &d.reattached, 1, LONG_MS));
	send_to_lane(lane_of(&d));
	SAME(take_relayed(&d), 1); /* through the channel that it had */
	return 0;
}

static void a_channel_outlives_the_broker(void)
{
	struct diary root;
	int pair[2], status;
	char byte;

	begin_with_strangers(&root);
	pid_t broker = broker_pid();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(STRANGER) || setuid(STRANGER))
			_exit(SKIPPED);
		_exit(outlives_broker_and_keeper(pair[1]));
	}
	close(pair[1]);
	if (recv(pair[0], &byte, 1, 0) == 1)
		kill(broker, SIGKILL);
	CHECK(wait_for(&root, &root.reattached, 1, LONG_MS));
	waitpid(pid, &status, 0);
	SAME(status, 0);
	CHECK(reaches(&root));
	leave(&root);
	end_all();
}

static int is_relayed_to_by_the_next_keeper(int from_main)
{
	struct diary d;
	struct pollfd p = {.events = POLLIN};

	join_as(&d, 2);
	SAME(wire(&d), 0);
	CHECK(send(from_main, "k", 1, 0) == 1); /* the keeper is killed */
	p.fd = d.lane_fd;
	CHECK(poll(&p, 1, LONG_MS) == 1 && recv(d.lane_fd, &p, sizeof(p), MSG_DONTWAIT) == 0);
	SAME(wire_again(&d), 0); /* the first request: no descriptor of the broker holds the port */
	send_to_lane(lane_of(&d));
	SAME(take_relayed(&d), 1);
	leave(&d);
	return 0;
}

static void a_killed_keeper_is_replaced_where_all_is_relayed(void)
{
	struct diary root;
	int pair[2], status;
	char byte;

	if (geteuid() != 0)
		skip("needs root to be another user");
	begin();
	join_as(&root, 1); /* and has no socket of the group */
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(STRANGER) || setuid(STRANGER))
			_exit(SKIPPED);
		_exit(is_relayed_to_by_the_next_keeper(pair[1]));
	}
	close(pair[1]);
	if (recv(pair[0], &byte, 1, 0) == 1)
		kill(keeper_pid(), SIGKILL);
	waitpid(pid, &status, 0);
	close(pair[0]);
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip("only one user here");
	SAME(status, 0);
	leave(&root);
	end_all();
}

static void wire_out_of_place_is_refused(void)
{
	struct {
		struct vb_msg_head head;
		char more[8];
	} m = {.head = {.type = VB_MSG_ROCE, .version = VB_PROTO_VERSION, .len = sizeof(m.head)}};
	struct vb_msg_error in;
	struct diary a;

	begin();
	join_as(&a, 1);
	for (int i = 0; i < 2; i++) {
		int fd = raw_connect();
		m.head.len = i ? sizeof(m) : sizeof(m.head);
		CHECK(send(fd, &m, m.head.len, 0) == (ssize_t)m.head.len);
		CHECK(recv(fd, &in, sizeof(in), 0) == sizeof(in) && in.head.type == VB_MSG_ERROR && in.err == EBADMSG);
		close(fd);
	}
	SAME(keeper_pid(), 0);
	leave(&a);
}

static void a_keeper_holds_nothing_of_the_broker_s_and_sleeps(void)
{
	char path[300], target[300];
	struct diary a;
	int sockets = 0, unix_like = 0;

	begin();
	join_as(&a, 1);
	SAME(wire(&a), 0);
	pid_t keeper = keeper_pid(), broker = broker_pid();
	CHECK(getsid(keeper) != getsid(0) && getsid(keeper) != getsid(broker));
	for (int fd = 0; fd < 1200; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)keeper, fd);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			continue;
		target[n] = 0;
		CHECK(fd > 2 || !strcmp(target, "/dev/null"));
		sockets += !strncmp(target, "socket:", 7);
		unix_like += strncmp(target, "socket:", 7) != 0;
	}
	SAME(sockets, a.nlanes + 3); /* its listener, and the connection to the broker */
	SAME(unix_like, 3 + 3);      /* and a reserve, epoll, one lifeline */
	CHECK(wait_idle(keeper));
	leave(&a);
	end_all();
}

static void a_broker_inside_a_program_keeps_the_group_itself(void)
{
	struct diary a;
	struct program p;

	begin();
	int fds = count_fds(getpid());
	setenv("VERBENA_BROKER", "/nonexistent/verbena-broker", 1);
	join_as(&a, 1);
	SAME(broker_pid(), getpid());
	start_program(&p, 2, 0);
	SAME(wire_program(&p), 0);
	SAME(wire(&a), 0);
	SAME(keeper_pid(), 0);
	CHECK(reaches(&a));
	end_program(&p, SIGKILL);
	CHECK(wait_lanes(1, LONG_MS));
	CHECK(reaches(&a));
	leave(&a);
	CHECK(wait_gone(LONG_MS));
	if (sender >= 0)
		close(sender);
	sender = -1;
	SAME(count_fds(getpid()), fds);
	close(bind_foreign()); /* nothing holds the port */
}

static void programs_that_ask_one_after_the_other_always_get_their_lane(void)
{
	begin();
	setenv("VERBENA_BROKER_LINGER", "0", 1);
	for (int i = 0; i < 20; i++) {
		struct diary a;
		join_as(&a, 1);
		SAME(wire(&a), 0);
		leave(&a);
		if (i % 2)
			sleep_ms(i);
	}
	end_all();
}

/* It takes the socket out of the group, so the other one has to join again. The broker reads its messages and its end at once. */
static void who_leaves_a_group_of_a_shared_socket_and_ends_is_heard_of(void)
{
	struct vb_msg_roce_group m = {.group = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
	struct diary a, b;

	own_network();
	setenv("VERBENA_LANES", "2", 1);
	join_as(&a, 1);
	join_as(&b, 2);
	SAME(wire(&a), 0);
	SAME(wire(&b), 0);
	CHECK(a.nlanes == (geteuid() ? 2 : 4) && !a.introductions);
	pid_t broker = broker_pid();

	CHECK(!kill(broker, SIGSTOP));
	SAME(vb_broker_post(b.c, VB_MSG_ROCE_GROUP, &m, sizeof(m), false), 0);
	leave(&b);
	CHECK(!kill(broker, SIGCONT));
	CHECK(wait_for(&a, &a.introductions, 1, LONG_MS));
	leave(&a);
	end_all();
}

static void with_few_descriptors_the_group_is_smaller(void)
{
	struct rlimit few = {.rlim_cur = 150, .rlim_max = 150};
	struct diary a;

	own_network();
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	join_as(&a, 1);
	SAME(wire(&a), 0);
	SAME(a.nlanes, 64);
	CHECK(reaches(&a));
	leave(&a);
	end_all();
}

static const struct test tests[] = {
        {"each program receives what is for its lane", each_program_receives_what_is_for_its_lane},
        {"who leaves or dies leaves a lane that collects nothing",
         who_leaves_or_dies_leaves_a_lane_that_collects_nothing},
        {"killed programs leave no keeper", killed_programs_leave_no_keeper},
        {"programs and broker killed together leave no keeper", programs_and_broker_killed_together_leave_no_keeper},
        {"a killed broker moves no lane", a_killed_broker_moves_no_lane},
        {"a lane given by a killed broker is shut by the next", a_lane_given_by_a_killed_broker_is_shut_by_the_next},
        {"a lane whose holder died with the broker is shut", a_lane_whose_holder_died_with_the_broker_is_shut},
        {"a lane that was shut in error opens when its holder comes",
         a_lane_that_was_shut_in_error_opens_when_its_holder_comes},
        {"a port that somebody holds is reported and asked for again",
         a_port_that_somebody_holds_is_reported_and_asked_for_again},
        {"a second runtime directory does not get into the group",
         a_second_runtime_directory_does_not_get_into_the_group},
        {"another user's keeper is left alone", another_user_s_keeper_is_left_alone},
        {"killed keepers are replaced when the port is free", killed_keepers_are_replaced_when_the_port_is_free},
        {"a stopped keeper holds nobody up for long", a_stopped_keeper_holds_nobody_up_for_long},
        {"nonsense does the keeper no harm", nonsense_does_the_keeper_no_harm},
        {"another user is not listened to", another_user_is_not_listened_to},
        {"WIRE out of place is refused", wire_out_of_place_is_refused},
        {"a keeper holds nothing of the broker's and sleeps", a_keeper_holds_nothing_of_the_broker_s_and_sleeps},
        {"a broker inside a program keeps the group itself", a_broker_inside_a_program_keeps_the_group_itself},
        {"with few descriptors the group is smaller", with_few_descriptors_the_group_is_smaller},
        {"who leaves a group of a shared socket and ends is heard of",
         who_leaves_a_group_of_a_shared_socket_and_ends_is_heard_of},
        {"programs that ask one after the other always get their lane",
         programs_that_ask_one_after_the_other_always_get_their_lane},
        {"another user's program receives without a socket of the group",
         another_user_s_program_receives_without_a_socket_of_the_group},
        {"a channel that is not read, or written to, harms nobody",
         a_channel_that_is_not_read_or_written_to_harms_nobody},
        {"a channel ends with the lane", a_channel_ends_with_the_lane},
        {"a channel outlives the broker", a_channel_outlives_the_broker},
        {"a killed keeper is replaced where all is relayed", a_killed_keeper_is_replaced_where_all_is_relayed},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
