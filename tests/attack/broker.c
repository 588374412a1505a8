// broker.c - a hostile user against root's broker: sockets of the group, addresses, blocking closes, shares, lanes of
// ended programs
// see: SECURITY.md, "Users of one host"; src/broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frame/cm.h"

#define ATTACKER 65534
#define OTHER 47111
#define PORT 7471

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

static const uint8_t lo[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static const uint8_t elsewhere[16] = {[10] = 0xff, 0xff, 192, 0, 2, 7}; /* not an address of this host */
static const uint8_t invented[16] = {0xfe, 0x80, [15] = 9};             /* nor is this */

/* Root's broker and a program of root. */
static void begin(struct raw *root)
{
	struct rlimit lim;

	if (geteuid() != 0)
		skip("needs root to be another user");
	own_network();
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	lim.rlim_cur = lim.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	struct diary starter; /* starts the broker */
	join_as(&starter, 1);
	raw_open(root);
	SAME(raw_attach(root, lo), 0);
	leave(&starter);
}

static void end(struct raw *root)
{
	raw_close(root);
	CHECK(wait_gone(LONG_MS));
	CHECK(wait_no_keeper(LONG_MS));
}

/* True if the broker serves everybody: root's program gets an answer, and another user's program a lane. */
static int attaches(void *arg)
{
	struct raw r;

	(void)arg;
	raw_open(&r);
	int err = raw_attach(&r, lo);

	raw_close(&r);
	return err;
}

static void serves_all(struct raw *root)
{
	struct vb_msg_head m;
	char in[2048];

	CHECK(raw_say(root, VB_MSG_STATUS, &m, sizeof(m), NULL, 0));
	CHECK(raw_hear(root, VB_MSG_STATUS_END, in, sizeof(in), NULL, LONG_MS));
	ended_well(run_as(OTHER, attaches, NULL));
}

/* ---- the group's sockets ---- */

static int send_to_lane(uint32_t lane)
{
	struct sockaddr_in to = {
	        .sin_family = AF_INET, .sin_port = htons(4791), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint32_t qpn = lane << 14 | 9;
	uint8_t bth[12] = {4, 0, 0xff, 0xff, 0, (uint8_t)(qpn >> 16), (uint8_t)(qpn >> 8), (uint8_t)qpn};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	ssize_t n = sendto(fd, bth, sizeof(bth), 0, (struct sockaddr *)&to, sizeof(to));

	close(fd);
	return n == sizeof(bth) ? 0 : errno;
}

static int wire_of(struct raw *r, int fds[2])
{
	struct vb_msg_head m;
	union {
		struct vb_msg_roce_reply reply;
		char bytes[512];
	} in;

	CHECK(raw_say(r, VB_MSG_ROCE, &m, sizeof(m), NULL, 0));
	CHECK(raw_hear(r, VB_MSG_ROCE_REPLY, &in, sizeof(in), fds, LONG_MS) == sizeof(in.reply));
	return in.reply.err;
}

/* Attaches everything that it got to the socket of its lane, or removes the program that selects the socket. */
static int turns_the_group(void *arg)
{
	struct raw r;
	int fds[2], zero = 0;

	(void)arg;
	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	SAME(wire_of(&r, fds), 0);
	struct sock_filter mine[] = {BPF_STMT(BPF_RET | BPF_K, r.lane)};
	struct sock_fprog prog = {.len = 1, .filter = mine};
	int turned = 0;
	for (int fd = 3; fd < 64; fd++) {
		turned += !setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog));
		turned += !setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &zero, sizeof(zero));
	}
	raw_close(&r);
	return turned;
}

static void a_user_cannot_turn_the_group_to_himself(void)
{
	struct raw root;
	char bth[64];
	int fds[2];

	begin(&root);
	SAME(wire_of(&root, fds), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) { /* without this process's descriptors */
		int lane = (int)root.lane;

		for (int fd = 3; fd < 64; fd++)
			close(fd);
		ended_well(run_as(ATTACKER, turns_the_group, &lane));
		_exit(0);
	}
	ended_well(pid);
	for (int i = 0; i < 20; i++) {
		struct pollfd p = {.fd = fds[0], .events = POLLIN};

		SAME(send_to_lane(root.lane), 0);
		CHECK(poll(&p, 1, LONG_MS) == 1 && recv(fds[0], bth, sizeof(bth), 0) == 12);
	}
	close(fds[0]);
	close(fds[1]);
	end(&root);
}

/* ---- addresses ---- */

struct port_and_address {
	uint8_t gid[16];
	uint16_t port;
	int go[2]; /* it listens, and may look */
};

/* Announces an address and listens there; returns how many requests it got. */
static int pretends(void *arg)
{
	struct port_and_address *what = arg;
	struct raw r;
	char in[1024], byte;
	int got = 0;

	raw_open(&r);
	SAME(raw_attach(&r, what->gid), 0);
	SAME(raw_listen(&r, 1, what->port), 0);
	CHECK(write(what->go[1], "L", 1) == 1 && recv(what->go[1], &byte, 1, 0) == 1);
	while (raw_hear(&r, VB_MSG_CM_RECV, in, sizeof(in), NULL, 200))
		got++;
	raw_close(&r);
	return got;
}

/* A request of root's program for that address, while the attacker announces it. */
static void is_not_for_the_attacker(const uint8_t gid[16])
{
	struct port_and_address what = {.port = PORT};
	struct raw root;
	char byte;

	begin(&root);
	memcpy(what.gid, gid, 16);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, what.go) == 0);
	pid_t pid = run_as(ATTACKER, pretends, &what);
	CHECK(read(what.go[0], &byte, 1) == 1);
	struct vb_msg_head open_it;
	CHECK(raw_say(&root, VB_MSG_CM_OPEN, &open_it, sizeof(open_it), NULL, 0));
	for (uint32_t i = 1; i < 10; i++)
		raw_request(&root, lo, gid, PORT, root.lane << 22 | i, i);
	serves_all(&root); /* the broker has handled everything */
	CHECK(write(what.go[0], "G", 1) == 1);
	ended_well(pid);
	end(&root);
}

static void an_address_of_another_host_is_not_a_user_s_to_announce(void)
{
	is_not_for_the_attacker(elsewhere);
}

static void an_address_of_nobody_is_not_either(void)
{
	is_not_for_the_attacker(invented);
}

/* Sends from another host's address, and with the id of another program's connection; then as itself. */
static int forges(void *arg)
{
	const uint32_t *roots_lane = arg;
	struct raw r;

	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	raw_request(&r, elsewhere, lo, PORT, r.lane << 22 | 1, 666);
	raw_request(&r, lo, lo, PORT, *roots_lane << 22 | 1, 667);
	raw_request(&r, lo, lo, PORT, r.lane << 22 | 2, 1);
	sleep_ms(500);
	raw_close(&r);
	return 0;
}

static void nobody_sends_from_what_is_not_his(void)
{
	union {
		struct vb_msg_cm_mad m;
		char bytes[1024];
	} in;
	struct vb_cm_msg cm;
	struct raw root;

	begin(&root);
	SAME(raw_listen(&root, 1, PORT), 0);
	pid_t pid = run_as(ATTACKER, forges, &root.lane);
	CHECK(raw_hear(&root, VB_MSG_CM_RECV, &in, sizeof(in), NULL, LONG_MS) == sizeof(in.m));
	CHECK(vb_cm_decode(&cm, in.m.mad, sizeof(in.m.mad)));
	SAME(cm.tid, 1);
	ended_well(pid);
	end(&root);
}

/* ---- blocking closes ---- */

enum how { IN_ATTACH, IN_ANOTHER_MESSAGE, NEVER_READ, MANY, TOO_MANY_TIMES };
struct lingering {
	enum how how;
	int done[2];
};

/* The broker stops reading from a program that does not read its answers, so that later messages stay in the socket. */
static void hold_the_broker_off(struct raw *r)
{
	struct vb_msg_head head;

	for (int i = 0; i < 60; i++)
		raw_say(r, VB_MSG_STATUS, &head, sizeof(head), NULL, 0);
}

static void send_lingering(enum how how, int fd)
{
	struct vb_msg_attach m = {0};
	struct vb_msg_head head;
	char in[2048];
	int fds[253];
	struct raw r;

	raw_open(&r);
	for (int i = 0; i < 253; i++)
		fds[i] = fd;
	if (how == IN_ANOTHER_MESSAGE)
		SAME(raw_attach(&r, lo), 0);
	hold_the_broker_off(&r);
	if (how == IN_ANOTHER_MESSAGE || how == NEVER_READ)
		raw_say(&r, VB_MSG_STATUS, &head, sizeof(head), fds, 1);
	else
		raw_say(&r, VB_MSG_ATTACH, &m, sizeof(m), fds, how == MANY ? 253 : 3);
	close(fd); /* the message in the socket has the last reference */
	if (how != NEVER_READ)
		while (raw_hear(&r, VB_MSG_STATUS_END, in, sizeof(in), NULL, 100))
			;
}

/* The other end of the connection stays open, so the broker has the last reference to this one. */
static int sends_what_lingers(void *arg)
{
	const struct lingering *attack = arg;
	enum how how = attack->how;
	int ready[2];
	char byte;

	CHECK(pipe(ready) == 0);
	for (int times = how == TOO_MANY_TIMES ? 50 : 1; times > 0; times--) {
		int fd = lingering_socket();
		pid_t pid = fork();
		if (pid == 0) {
			CHECK(read(ready[0], &byte, 1) == 1);
			send_lingering(how, fd);
			_exit(0);
		}
		close(fd);
		CHECK(write(ready[1], "G", 1) == 1);
		ended_well(pid);
	}
	CHECK(write(attack->done[1], "D", 1) == 1);
	for (;;)
		pause();
}

static void is_not_held_up(enum how how)
{
	struct lingering attack = {.how = how};
	struct raw root;
	char byte;

	begin(&root);
	CHECK(pipe(attack.done) == 0);
	pid_t pid = run_as(ATTACKER, sends_what_lingers, &attack);
	CHECK(read(attack.done[0], &byte, 1) == 1);
	serves_all(&root);
	serves_all(&root);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	serves_all(&root);
	end(&root);
}

static void a_descriptor_that_takes_an_hour_to_close_holds_nobody_up(void)
{
	is_not_held_up(IN_ATTACH);
}

static void nor_where_nobody_asked_for_it(void)
{
	is_not_held_up(IN_ANOTHER_MESSAGE);
}

static void nor_in_a_message_that_is_not_read(void)
{
	is_not_held_up(NEVER_READ);
}

static void nor_as_many_as_a_message_can_bring(void)
{
	is_not_held_up(MANY);
}

static void nor_time_and_again(void)
{
	is_not_held_up(TOO_MANY_TIMES);
}

/* ---- closes that never return: a FUSE file whose server does not answer FLUSH ---- */

static void answer_fuse(int dev, const struct fuse_in_header *in, const void *data, size_t len)
{
	struct fuse_out_header out = {.len = (uint32_t)(sizeof(out) + len), .unique = in->unique};
	struct iovec iov[] = {{&out, sizeof(out)}, {(void *)data, len}};

	if (writev(dev, iov, 2) < 0)
		_exit(1);
}

/* A file system with one file, its root, whose close never returns. */
static void serve_fuse(int dev)
{
	static char buf[1 << 20];

	for (ssize_t n; (n = read(dev, buf, sizeof(buf))) > 0;) {
		const struct fuse_in_header *in = (const struct fuse_in_header *)buf;
		struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096, .max_readahead = 4096};
		struct fuse_attr_out attr = {.attr_valid = 3600,
		                             .attr = {.ino = 1, .mode = S_IFREG | 0666, .nlink = 1}};
		struct fuse_open_out open_out = {.fh = 1};

		if (in->opcode == FUSE_INIT)
			answer_fuse(dev, in, &init, sizeof(init));
		else if (in->opcode == FUSE_GETATTR)
			answer_fuse(dev, in, &attr, sizeof(attr));
		else if (in->opcode == FUSE_OPEN)
			answer_fuse(dev, in, &open_out, sizeof(open_out));
	}
}

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	close(fd);
	return ok;
}

/* Mounts it as any user can, in a user namespace. -1: not supported here. */
static int fuse_file(void)
{
	char map[64], options[128], place[] = "/tmp/vb-fuse-XXXXXX";
	uid_t uid = getuid();
	gid_t gid = getgid();
	int dev, at = mkstemp(place);

	prctl(PR_SET_DUMPABLE, 1); /* makes its files in /proc its own again */
	if (at < 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (!write_text("/proc/self/uid_map", map) || !write_text("/proc/self/setgroups", "deny"))
		return -1;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	if (!write_text("/proc/self/gid_map", map))
		return -1;
	dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (dev < 0)
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=100000,user_id=0,group_id=0", dev);
	if (mount("none", place, "fuse", MS_NOSUID | MS_NODEV, options))
		return -1;
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve_fuse(dev);
		_exit(0);
	}
	close(dev);
	return open(place, O_RDWR | O_CLOEXEC);
}

static int sends_what_hangs(void *arg)
{
	const int *done = arg;

	setpgid(0, 0); /* end its server first: it could not end otherwise */
	int fd = fuse_file();

	if (fd < 0) {
		CHECK(write(done[1], "S", 1) == 1);
		return SKIPPED;
	}
	for (int i = 0; i < 60; i++) {
		struct vb_msg_attach m = {0};
		struct raw r;
		int fds[253];

		raw_open(&r);
		for (int n = 0; n < 253; n++)
			fds[n] = fd;
		raw_say(&r, VB_MSG_ATTACH, &m, sizeof(m), fds, i % 2 ? 3 : 253);
	}
	sleep_ms(500);
	CHECK(write(done[1], "D", 1) == 1);
	for (;;)
		pause();
}

static void a_file_that_nobody_can_close_holds_nobody_up(void)
{
	struct raw root;
	int done[2], status;
	char byte;

	begin(&root);
	CHECK(pipe(done) == 0);
	pid_t pid = run_as(ATTACKER, sends_what_hangs, done);
	CHECK(read(done[0], &byte, 1) == 1);
	for (int i = 0; i < 20; i++)
		serves_all(&root);
	pid_t broker = broker_pid();
	CHECK(wait_fds(broker, 40)); /* and the broker holds none of them */
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	serves_all(&root);
	end(&root);
	if (byte == 'S')
		skip("no FUSE for users here");
}

/* ---- shares ---- */

static int takes_all_lanes(void *arg)
{
	int *go = arg;
	int n = 0, err;
	char byte;
	struct raw r;

	do {
		raw_open(&r);
		err = raw_attach(&r, lo);
	} while (!err && ++n < 1200);
	CHECK(err == ENOSPC || err == ECONNRESET);
	CHECK(write(go[1], "T", 1) == 1 && recv(go[1], &byte, 1, 0) == 1);
	return 0;
}

static void who_takes_all_he_can_leaves_others_theirs(void)
{
	struct raw root, more[300];
	int go[2];
	char byte;

	begin(&root);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
	pid_t pid = run_as(ATTACKER, takes_all_lanes, go);
	CHECK(read(go[0], &byte, 1) == 1);
	serves_all(&root);
	for (int i = 0; i < 300; i++) {
		raw_open(&more[i]);
		SAME(raw_attach(&more[i], lo), 0);
	}
	for (int i = 0; i < 300; i++)
		raw_close(&more[i]);
	CHECK(write(go[0], "E", 1) == 1);
	ended_well(pid);
	end(&root);
}

/* An honest program on a busy machine, which attaches a moment after it has connected. */
static int attaches_slowly(void *arg)
{
	struct raw r;

	(void)arg;
	raw_open(&r);
	sleep_ms(300);
	int err = raw_attach(&r, lo);

	raw_close(&r);
	return err;
}

static int connects_and_says_nothing(void *arg)
{
	int *go = arg;
	struct raw r;

	CHECK(write(go[1], "T", 1) == 1);
	for (int64_t until = now_ms() + 3000; now_ms() < until;)
		raw_open(&r);
	return 0;
}

static void who_connects_without_end_is_in_nobody_else_s_way(void)
{
	struct raw root;
	int go[2];
	char byte;

	begin(&root);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
	pid_t pid = run_as(ATTACKER, connects_and_says_nothing, go);
	CHECK(read(go[0], &byte, 1) == 1);
	for (int i = 0; i < 5; i++)
		ended_well(run_as(OTHER, attaches_slowly, NULL));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	serves_all(&root);
	end(&root);
}

/* Six programs that listen, request connections of each other, and read nothing. */
static int fills_the_queues(void *arg)
{
	int *go = arg;
	struct raw r[6];
	char byte;

	for (int i = 0; i < 6; i++) {
		raw_open(&r[i]);
		SAME(raw_attach(&r[i], lo), 0);
		SAME(raw_listen(&r[i], 1, (uint16_t)(PORT + 1 + i)), 0);
	}
	for (int i = 0; i < 6; i++)
		for (uint32_t n = 1; n < 17000; n++)
			raw_request(&r[0], lo, lo, (uint16_t)(PORT + 1 + i), r[0].lane << 22 | n, n);
	CHECK(write(go[1], "F", 1) == 1 && recv(go[1], &byte, 1, 0) == 1);
	return 0;
}

static void programs_that_do_not_read_leave_room_for_what_others_get(void)
{
	char in[1024], byte;
	struct raw root, peer;
	int go[2];

	begin(&root);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
	pid_t pid = run_as(ATTACKER, fills_the_queues, go);
	CHECK(read(go[0], &byte, 1) == 1);
	raw_open(&peer);
	SAME(raw_attach(&peer, lo), 0);
	SAME(raw_listen(&root, 1, PORT), 0);
	for (uint32_t i = 1; i < 500; i++) { /* more than its own reserve */
		raw_request(&peer, lo, lo, PORT, peer.lane << 22 | i, i);
	}
	for (uint32_t i = 1; i < 500; i++)
		CHECK(raw_hear(&root, VB_MSG_CM_RECV, in, sizeof(in), NULL, LONG_MS));
	CHECK(write(go[0], "E", 1) == 1);
	ended_well(pid);
	raw_close(&peer);
	end(&root);
}

static int binds_all_ports(void *arg)
{
	int *go = arg;
	uint32_t bound = 0;
	struct raw r[4];
	char byte;

	for (int i = 0; i < 4; i++) {
		raw_open(&r[i]);
		SAME(raw_attach(&r[i], lo), 0);
		for (uint32_t n = 1; n < 16000 && !raw_listen(&r[i], n, 0); n++)
			bound++;
	}
	CHECK(bound > 1000);
	CHECK(write(go[1], "B", 1) == 1 && recv(go[1], &byte, 1, 0) == 1);
	return 0;
}

static int listens_anywhere(void *arg)
{
	struct raw r;
	int err;

	(void)arg;
	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	err = raw_listen(&r, 1, 0);
	raw_close(&r);
	return err;
}

static void who_binds_all_ports_leaves_some(void)
{
	struct raw root;
	int go[2];
	char byte;

	begin(&root);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
	pid_t pid = run_as(ATTACKER, binds_all_ports, go);
	CHECK(read(go[0], &byte, 1) == 1);
	ended_well(run_as(OTHER, listens_anywhere, NULL));
	CHECK(write(go[0], "E", 1) == 1);
	ended_well(pid);
	end(&root);
}

static int binds(struct raw *r, uint32_t id, uint16_t port)
{
	struct vb_msg_cm_bind m = {.id = id, .port_space = VB_PS_TCP, .port = port, .reuse = 1};
	union {
		struct vb_msg_service_reply reply;
		char bytes[512];
	} in;

	CHECK(raw_say(r, VB_MSG_CM_BIND, &m, sizeof(m), NULL, 0));
	CHECK(raw_hear(r, VB_MSG_SERVICE_REPLY, &in, sizeof(in), NULL, LONG_MS) == sizeof(in.reply));
	return in.reply.err;
}

/* Binds one port as often as possible, then waits for the order to leave. */
static int binds_one_port(void *arg)
{
	uint32_t bound = 0;
	int *go = arg;
	struct raw r;
	char byte;

	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	for (uint32_t n = 1; n <= 16384; n++)
		bound += !binds(&r, n, PORT);
	SAME(bound, 64);
	CHECK(write(go[1], "B", 1) == 1 && recv(go[1], &byte, 1, 0) == 1);
	raw_close(&r);
	CHECK(write(go[1], "L", 1) == 1);
	return 0;
}

/* Root's longest wait for an answer while other programs come and go, in ms. */
static int64_t wait_of(struct raw *root)
{
	int64_t start = now_ms();
	struct vb_msg_head m;
	char in[2048];

	CHECK(raw_say(root, VB_MSG_STATUS, &m, sizeof(m), NULL, 0));
	CHECK(raw_hear(root, VB_MSG_STATUS_END, in, sizeof(in), NULL, LONG_MS));
	return now_ms() - start;
}

static void who_has_bound_one_port_all_the_time_leaves_at_once(void)
{
	struct raw root;
	pid_t pid[2];
	int go[2][2];
	char byte;

	begin(&root);
	for (int i = 0; i < 2; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go[i]) == 0);
		pid[i] = run_as(i ? OTHER : ATTACKER, binds_one_port, go[i]);
	}
	for (int i = 0; i < 2; i++)
		CHECK(read(go[i][0], &byte, 1) == 1);
	for (int i = 0; i < 2; i++) {
		CHECK(write(go[i][0], "E", 1) == 1 && read(go[i][0], &byte, 1) == 1);
		int64_t ms = wait_of(&root);
		printf("     root waits %lld ms\n", (long long)ms);
		CHECK(ms < 2000);
		ended_well(pid[i]);
	}
	serves_all(&root);
	end(&root);
}

static void nor_do_two_users_take_all_ports(void)
{
	struct raw root;
	pid_t pid[2];
	int go[2][2];
	char byte;

	begin(&root);
	for (int i = 0; i < 2; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go[i]) == 0);
		pid[i] = run_as(ATTACKER - (uid_t)i, binds_all_ports, go[i]);
	}
	for (int i = 0; i < 2; i++)
		CHECK(read(go[i][0], &byte, 1) == 1);
	ended_well(run_as(OTHER, listens_anywhere, NULL));
	for (uint32_t n = 1; n <= 1000; n++)
		SAME(raw_listen(&root, n, 0), 0);
	for (int i = 0; i < 2; i++) {
		CHECK(write(go[i][0], "E", 1) == 1);
		ended_well(pid[i]);
	}
	end(&root);
}

/* Requests connections to ports that are bound without a listener. */
static int asks_himself(void *arg)
{
	struct raw r;
	int *go = arg;
	char byte;

	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	for (uint32_t i = 1; i <= 6; i++) {
		SAME(binds(&r, i, (uint16_t)(PORT + i)), 0);
		for (uint32_t n = 1; n <= 20; n++)
			raw_request(&r, lo, lo, (uint16_t)(PORT + i), r.lane << 22 | (i * 100 + n), n);
	}
	SAME(binds(&r, 7, PORT + 7), 0); /* the broker has handled them */
	CHECK(write(go[1], "W", 1) == 1 && recv(go[1], &byte, 1, 0) == 1);
	return 0;
}

/* Root's program binds a port, gets a request, and then listens: the request has waited. */
static void requests_that_wait_leave_room_for_others(void)
{
	char in[1024], byte;
	struct raw root, peer;
	int go[2];

	begin(&root);
	raw_open(&peer);
	SAME(raw_attach(&peer, lo), 0);
	SAME(binds(&root, 1, PORT), 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
	pid_t pid = run_as(ATTACKER, asks_himself, go);
	CHECK(read(go[0], &byte, 1) == 1);
	raw_request(&peer, lo, lo, PORT, peer.lane << 22 | 1, 1);
	SAME(binds(&peer, 1, PORT + 9), 0); /* the broker has handled it */
	struct vb_msg_cm_binding listen = {.id = 1};
	CHECK(raw_say(&root, VB_MSG_CM_LISTEN, &listen, sizeof(listen), NULL, 0));
	CHECK(raw_hear(&root, VB_MSG_CM_RECV, in, sizeof(in), NULL, LONG_MS));
	CHECK(write(go[0], "E", 1) == 1);
	ended_well(pid);
	raw_close(&peer);
	end(&root);
}

/* ---- deaths ---- */

static void says_connection(struct raw *r, const uint8_t local[16], const uint8_t remote[16], uint32_t id,
                            uint32_t remote_id)
{
	struct vb_msg_cm_at_death m = {.local_id = r->lane << 22 | id, .remote_id = remote_id, .remote_qpn = 9};

	memcpy(m.local, local, 16);
	memcpy(m.remote, remote, 16);
	CHECK(raw_say(r, VB_MSG_CM_AT_DEATH, &m, sizeof(m), NULL, 0));
}

/* Many lanes with many addresses, which makes searches slow. */
static int announces_a_lot_and_stays(void *arg)
{
	struct {
		struct vb_msg_attach m;
		uint8_t gids[VB_MAX_GIDS][16];
	} out = {.m = {.ngids = VB_MAX_GIDS}};
	char in[1024];

	for (int i = 0; i < VB_MAX_GIDS; i++) {
		memcpy(out.gids[i], invented, 16);
		out.gids[i][14] = (uint8_t)i;
	}
	for (int i = 0; i < 60; i++) {
		struct raw r;

		raw_open(&r);
		const int fds[] = {r.fds.seg_fd, r.fds.doorbell_fd, r.fds.wake_fd};
		CHECK(raw_say(&r, VB_MSG_ATTACH, &out, sizeof(out), fds, 3));
		CHECK(raw_hear(&r, VB_MSG_ATTACHED, in, sizeof(in), NULL, LONG_MS));
	}
	CHECK(write(((int *)arg)[1], "T", 1) == 1);
	for (;;)
		pause();
}

/* 16384 connections, alternately to this host and elsewhere, and one id for all that have different addresses. */
static int dies_with_connections(void *arg)
{
	int *go = arg;
	struct vb_msg_head m;
	uint8_t far[16];
	char in[2048], byte;
	struct raw r;

	memcpy(far, elsewhere, 16);
	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	for (uint32_t n = 1; n <= 16384; n++) {
		far[13] = (uint8_t)(n >> 14);
		far[14] = (uint8_t)(n >> 7);
		far[15] = (uint8_t)(n & 127);
		says_connection(&r, lo, n % 2 ? far : lo, n, n % 2 ? 77 : r.lane << 22 | n);
	}
	CHECK(raw_say(&r, VB_MSG_STATUS, &m, sizeof(m), NULL, 0));
	CHECK(raw_hear(&r, VB_MSG_STATUS_END, in, sizeof(in), NULL, LONG_MS));
	CHECK(write(go[1], "C", 1) == 1 && recv(go[1], &byte, 1, 0) == 1);
	raw_close(&r);
	CHECK(write(go[1], "D", 1) == 1);
	return 0;
}

static void a_death_with_many_connections_holds_nobody_up(void)
{
	int64_t longest = 0;
	struct raw root;
	pid_t pid[8];
	int go[8][2], there[2];
	char byte;

	begin(&root);
	CHECK(pipe(there) == 0);
	pid_t crowd = run_as(OTHER - 1, announces_a_lot_and_stays, there);
	CHECK(read(there[0], &byte, 1) == 1);
	for (int i = 0; i < 8; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, go[i]) == 0);
		pid[i] = run_as(i % 2 ? OTHER : ATTACKER, dies_with_connections, go[i]);
	}
	for (int i = 0; i < 8; i++)
		CHECK(read(go[i][0], &byte, 1) == 1);
	for (int i = 0; i < 8; i++)
		CHECK(write(go[i][0], "E", 1) == 1);
	for (int i = 0; i < 8; i++)
		CHECK(read(go[i][0], &byte, 1) == 1);
	for (int64_t until = now_ms() + 3000; now_ms() < until;) {
		int64_t ms = wait_of(&root);

		longest = ms > longest ? ms : longest;
	}
	printf("     root waits %lld ms at most\n", (long long)longest);
	CHECK(longest < 1000);
	for (int i = 0; i < 8; i++)
		ended_well(pid[i]);
	kill(crowd, SIGKILL);
	waitpid(crowd, NULL, 0);
	serves_all(&root);
	end(&root);
}

/* More than one round of work, from an address that goes with the program. */
static void yet_all_peers_are_told_of_a_death(void)
{
	bool told[1001] = {false};
	struct vb_cm_msg cm;
	struct raw root, dead;
	union {
		struct vb_msg_cm_mad m;
		char bytes[1024];
	} in;

	begin(&root);
	SAME(raw_listen(&root, 1, PORT), 0);
	raw_open(&dead);
	SAME(raw_attach(&dead, invented), 0);
	for (uint32_t n = 1; n <= 1000; n++)
		says_connection(&dead, invented, lo, n, root.lane << 22 | n);
	raw_close(&dead);
	for (uint32_t n = 1; n <= 1000; n++) {
		CHECK(raw_hear(&root, VB_MSG_CM_RECV, &in, sizeof(in), NULL, LONG_MS) == sizeof(in.m));
		CHECK(vb_cm_decode(&cm, in.m.mad, sizeof(in.m.mad)));
		uint32_t id = cm.dreq.remote_comm_id & 0x3fffff;
		CHECK(cm.attr == VB_CM_DREQ && id >= 1 && id <= 1000 && !told[id]);
		told[id] = true;
	}
	end(&root);
}

/* ---- lanes of ended programs ---- */

static int dies(void *arg)
{
	struct raw r;

	raw_open(&r);
	SAME(raw_attach(&r, lo), 0);
	CHECK(write(*(int *)arg, &r.lane, sizeof(r.lane)) == sizeof(r.lane));
	CHECK(write(*(int *)arg, &r.incarnation, sizeof(r.incarnation)) == sizeof(r.incarnation));
	return 0;
}

struct dead {
	uint32_t lane;
	uint64_t incarnation;
};

static int inherits(void *arg)
{
	const struct dead *dead = arg;
	struct raw r;

	raw_open(&r);
	SAME(raw_claim(&r, dead->lane, dead->incarnation), EBUSY);
	raw_close(&r);
	raw_open(&r);
	SAME(raw_claim(&r, dead->lane, 4711), EBUSY);
	raw_close(&r);
	for (int i = 0; i < 1500; i++) { /* by attaching and detaching */
		raw_open(&r);
		SAME(raw_attach(&r, lo), 0);
		CHECK(r.lane != dead->lane);
		raw_close(&r);
	}
	return 0;
}

static void nobody_inherits_the_lane_of_who_has_just_died(void)
{
	struct raw root;
	struct dead dead;
	int tell[2];

	begin(&root);
	CHECK(pipe(tell) == 0);
	ended_well(run_as(OTHER, dies, &tell[1]));
	CHECK(read(tell[0], &dead.lane, sizeof(dead.lane)) == sizeof(dead.lane));
	CHECK(read(tell[0], &dead.incarnation, sizeof(dead.incarnation)) == sizeof(dead.incarnation));
	ended_well(run_as(ATTACKER, inherits, &dead));
	end(&root);
}

static const struct test tests[] = {
        {"a user cannot turn the group to himself", a_user_cannot_turn_the_group_to_himself},
        {"an address of another host is not a user's to announce",
         an_address_of_another_host_is_not_a_user_s_to_announce},
        {"an address of nobody is not, either", an_address_of_nobody_is_not_either},
        {"nobody sends from what is not his", nobody_sends_from_what_is_not_his},
        {"a descriptor that takes an hour to close holds nobody up",
         a_descriptor_that_takes_an_hour_to_close_holds_nobody_up},
        {"nor where nobody asked for it", nor_where_nobody_asked_for_it},
        {"nor in a message that is not read", nor_in_a_message_that_is_not_read},
        {"nor as many as a message can bring", nor_as_many_as_a_message_can_bring},
        {"nor time and again", nor_time_and_again},
        {"a file that nobody can close holds nobody up", a_file_that_nobody_can_close_holds_nobody_up},
        {"who takes all he can leaves others theirs", who_takes_all_he_can_leaves_others_theirs},
        {"who connects without end is in nobody else's way", who_connects_without_end_is_in_nobody_else_s_way},
        {"programs that do not read leave room for what others get",
         programs_that_do_not_read_leave_room_for_what_others_get},
        {"who binds all ports leaves some", who_binds_all_ports_leaves_some},
        {"nor do two users take all ports", nor_do_two_users_take_all_ports},
        {"who has bound one port all the time leaves at once", who_has_bound_one_port_all_the_time_leaves_at_once},
        {"requests that wait leave room for others", requests_that_wait_leave_room_for_others},
        {"a death with many connections holds nobody up", a_death_with_many_connections_holds_nobody_up},
        {"yet all peers are told of a death", yet_all_peers_are_told_of_a_death},
        {"nobody inherits the lane of who has just died", nobody_inherits_the_lane_of_who_has_just_died},
};

int main(int argc, char **argv)
{
	return run_tests(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
