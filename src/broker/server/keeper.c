// keeper.c - the process that owns the group of lane sockets
// follows: ARCHITECTURE.md, "The wire"; pipe(7), unix(7)
// SPDX-License-Identifier: MIT
#include "broker/server/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker/server/confine.h"
#include "broker/server/groups.h"
#include "broker/server/lanes.h"
#include "broker/server/relay.h"

#define SPARE 64         /* descriptors beside the sockets and channels: lifelines of earlier brokers whose programs live, above all */
#define MAX_NEWCOMERS 8
#define SLICE_NS 100000
#define NICE (-10)
#define LINGER_NS 10000  /* after the last datagram that was relayed: the next mostly follows at once */
#define BROKER_FD 3

enum source { SRC_LISTEN, SRC_NEWCOMER, SRC_BROKER, SRC_LIFELINE, SRC_LANE, SRC_CHANNEL };

/* Each broker gets a lifeline of its own, which it hands on to its user's programs: the keeper stays while somebody holds the
 * writing end of any, or the other end of a channel, or a broker is connected. It holds none itself, so the kernel tells it of the
 * last one's end, however
 * that came. */
struct keeper {
	struct vb_lane_group group;
	struct vb_groups groups;
	struct vb_relay relay;
	uint32_t nchannels;
	int64_t linger_until;            /* ns: datagrams are looked for without sleeping; 0: not now */
	struct vb_runtime place;         /* where it listens */
	dev_t sock_dev;
	ino_t sock_ino;
	uint64_t dev, ino;
	int epoll_fd, listen_fd;
	int broker;                      /* -1: none */
	int newcomers[MAX_NEWCOMERS];    /* have not said HELLO; the oldest first */
	int nnewcomers, nlifelines;
	bool met;                        /* the broker that forked us has said HELLO, or gone */
	int reserve;                     /* given up to turn a newcomer away when there are no descriptors left */
};

void vb_keeper_runtime(const struct vb_runtime *broker, struct vb_runtime *rt)
{
	struct stat st;

	*rt = *broker;
	if (stat("/proc/thread-self/ns/net", &st))
		st.st_ino = 0;
	snprintf(rt->name, sizeof(rt->name), "keeper-%llu.sock", (unsigned long long)st.st_ino);
}

int vb_keeper_send(int sock, const void *msg, size_t len, const int *fds, int nfds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 2)];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {.iov_base = (void *)msg, .iov_len = len};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)nfds);
	}
	return sendmsg(sock, &mh, MSG_NOSIGNAL) < 0 ? errno : 0;
}

/* ---- who is connected ---- */

static int watch_as(struct keeper *k, int fd, uint32_t events, enum source kind, uint32_t number)
{
	struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)kind << 32 | number};

	return epoll_ctl(k->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? errno : 0;
}

static int watch(struct keeper *k, int fd, uint32_t events, enum source kind)
{
	return watch_as(k, fd, events, kind, (uint32_t)fd);
}

static void forget_newcomer(struct keeper *k, int fd)
{
	for (int i = 0; i < k->nnewcomers; i++) {
		if (k->newcomers[i] != fd)
			continue;
		k->nnewcomers--;
		memmove(&k->newcomers[i], &k->newcomers[i + 1], (size_t)(k->nnewcomers - i) * sizeof(int));
		return;
	}
}

static void turn_away(struct keeper *k, int fd)
{
	forget_newcomer(k, fd);
	close(fd);
	k->met = true;
}

/* Only the user whose programs the sockets are for may have a say. */
static bool is_mine(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid() &&
	       vb_uid_is_known(cred.uid);
}

static void accept_one(struct keeper *k)
{
	int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE) && k->reserve >= 0) {
		close(k->reserve);
		fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		k->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return;
	}
	if (fd < 0)
		return;
	if (!is_mine(fd) || watch(k, fd, EPOLLIN, SRC_NEWCOMER)) {
		close(fd);
		return;
	}
	if (k->nnewcomers == MAX_NEWCOMERS)
		turn_away(k, k->newcomers[0]);
	k->newcomers[k->nnewcomers++] = fd;
}

static bool broker_lives(const struct keeper *k)
{
	struct pollfd p = {.fd = k->broker};

	return k->broker >= 0 && poll(&p, 1, 0) == 0;
}

static void lose_broker(struct keeper *k)
{
	if (k->broker >= 0)
		close(k->broker);
	k->broker = -1;
}

/* ---- what they ask ---- */

static struct vb_keeper_answer answer_of(const struct keeper *k, int err)
{
	return (struct vb_keeper_answer){.err = err, .n = k->group.n, .given = k->group.given};
}

/* A broker that does not take its answer is not waited for: 0 or an errno. */
static int answer(const struct keeper *k, int sock, int err, const int *fds, int nfds)
{
	struct vb_keeper_answer m = answer_of(k, err);

	return vb_keeper_send(sock, &m, sizeof(m), fds, nfds);
}

static int welcome(struct keeper *k, int sock)
{
	int pipe_fd[2];

	if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK))
		return errno;
	int err = watch(k, pipe_fd[0], 0, SRC_LIFELINE); /* the end is always told */
	if (err) {
		close(pipe_fd[0]);
	} else {
		const int fds[2] = {pipe_fd[1], k->group.fd[0]};
		k->nlifelines++;
		err = answer(k, sock, 0, fds, 2);
	}
	close(pipe_fd[1]);
	return err;
}

/* False: it has nothing to do here. */
static bool hello(struct keeper *k, int sock, const struct vb_keeper_ask *m)
{
	if (m->op != VB_KEEPER_HELLO)
		return false;
	int err = m->dev != k->dev || m->ino != k->ino ? EADDRINUSE : broker_lives(k) ? EBUSY : 0;
	if (!err)
		err = welcome(k, sock);
	if (!err) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)SRC_BROKER << 32 | (uint32_t)sock};
		lose_broker(k);
		k->broker = sock;
		return !epoll_ctl(k->epoll_fd, EPOLL_CTL_MOD, sock, &ev);
	}
	answer(k, sock, err, NULL, 0);
	return false;
}

/* ---- programs of other users ---- */

static bool is_relayed(const struct keeper *k, uint32_t socket)
{
	for (uint32_t lane = 1; lane < VB_LANE_COUNT; lane++)
		if (k->relay.channel[lane] >= 0 && vb_lanes_socket(&k->group, lane) == socket)
			return true;
	return false;
}

static void close_channel(struct keeper *k, uint32_t lane)
{
	uint32_t socket = vb_lanes_socket(&k->group, lane);

	if (k->relay.channel[lane] < 0)
		return;
	close(k->relay.channel[lane]);
	k->relay.channel[lane] = -1;
	k->nchannels--;
	vb_groups_forget(&k->groups, &k->group, lane);
	if (!is_relayed(k, socket)) /* programs never have it: so it is not watched by anybody else */
		epoll_ctl(k->epoll_fd, EPOLL_CTL_DEL, k->group.fd[socket], NULL);
}

/* The lane's datagrams come to us from now on: 0 or an errno. */
static int open_channel(struct keeper *k, uint32_t lane, int *theirs)
{
	uint32_t socket = vb_lanes_socket(&k->group, lane);
	int ours, err;

	close_channel(k, lane);
	err = vb_relay_channel(&ours, theirs);
	if (err)
		return err;
	if (vb_lanes_give(&k->group, lane, true) < 0)
		err = EBUSY;
	if (!err)
		err = watch_as(k, ours, 0, SRC_CHANNEL, lane); /* its end is always told */
	if (!err && !is_relayed(k, socket))
		err = watch_as(k, k->group.fd[socket], EPOLLIN, SRC_LANE, socket);
	if (err) {
		close(ours);
		close(*theirs);
		vb_lanes_take_back(&k->group, lane);
		return err;
	}
	k->relay.channel[lane] = ours;
	k->nchannels++;
	return 0;
}

static bool relay(struct keeper *k, uint32_t lane)
{
	int theirs, err = lane ? open_channel(k, lane, &theirs) : EINVAL;

	if (err)
		return !answer(k, k->broker, err, NULL, 0);
	bool sent = !answer(k, k->broker, 0, &theirs, 1);
	close(theirs);
	return sent;
}

/* ---- what a broker asks ---- */

static bool give(struct keeper *k, uint32_t lane)
{
	close_channel(k, lane);
	int fd = vb_lanes_give(&k->group, lane, false);

	return !answer(k, k->broker, fd < 0 ? EBUSY : 0, &fd, fd >= 0);
}

static bool serve(struct keeper *k, const struct vb_keeper_ask *m)
{
	if (m->lane >= VB_LANE_COUNT)
		return false;
	switch (m->op) {
	case VB_KEEPER_GIVE:
		return give(k, m->lane);
	case VB_KEEPER_RELAY:
		return relay(k, m->lane);
	case VB_KEEPER_TAKE_BACK:
		close_channel(k, m->lane);
		vb_lanes_take_back(&k->group, m->lane);
		return true;
	case VB_KEEPER_JOIN:
	case VB_KEEPER_LEAVE:
		if (k->relay.channel[m->lane] >= 0)
			vb_groups_set(&k->groups, &k->group, m->lane, m->group, m->ifindex, m->op == VB_KEEPER_JOIN);
		return true;
	default:
		return false;
	}
}

/* 1: a message, 0: none now, -1: the end, or nonsense. Descriptors are not asked for, so the kernel drops them. */
static int receive(int sock, struct vb_keeper_ask *m)
{
	struct {
		struct vb_keeper_ask m;
		char more;
	} in = {0};
	ssize_t n = recv(sock, &in, sizeof(in), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	*m = in.m;
	return n == sizeof(in.m) && in.m.magic == VB_KEEPER_MAGIC ? 1 : -1;
}

static void on_newcomer(struct keeper *k, int fd)
{
	struct vb_keeper_ask m;
	int got = receive(fd, &m);

	if (!got)
		return;
	if (got < 0 || !hello(k, fd, &m)) {
		if (k->broker == fd)
			k->broker = -1;
		turn_away(k, fd);
	} else {
		forget_newcomer(k, fd);
		k->met = true;
	}
}

static void on_broker(struct keeper *k)
{
	struct vb_keeper_ask m;
	int got = receive(k->broker, &m);

	if (got < 0 || (got > 0 && !serve(k, &m)))
		lose_broker(k);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void on_event(struct keeper *k, enum source kind, int fd)
{
	switch (kind) {
	case SRC_LISTEN:
		accept_one(k);
		break;
	case SRC_NEWCOMER:
		on_newcomer(k, fd);
		break;
	case SRC_BROKER:
		on_broker(k);
		break;
	case SRC_LIFELINE:
		close(fd);
		k->nlifelines--;
		break;
	case SRC_LANE:
		vb_relay_socket(&k->relay, (uint32_t)fd);
		k->linger_until = now_ns() + LINGER_NS;
		if (k->broker >= 0) /* it waits for answers: not behind a flood */
			on_broker(k);
		break;
	case SRC_CHANNEL: /* its program has gone, or wants no packets: what nobody reads must not fill a socket */
		close_channel(k, (uint32_t)fd);
		vb_lanes_take_back(&k->group, (uint32_t)fd);
		break;
	}
}

/* Who sleeps between two datagrams of one exchange makes it several times as slow. */
static int wait_event(struct keeper *k, struct epoll_event *ev)
{
	int n;

	while (k->linger_until) {
		n = epoll_wait(k->epoll_fd, ev, 1, 0);
		if (n)
			return n;
		if (now_ns() >= k->linger_until)
			k->linger_until = 0;
		else
			sched_yield();
	}
	return epoll_wait(k->epoll_fd, ev, 1, -1);
}

/* ---- its life ---- */

/* So many at most of root's, which relays. */
static uint32_t channels(void)
{
	struct rlimit lim = {.rlim_cur = 1024};

	getrlimit(RLIMIT_NOFILE, &lim);
	rlim_t n = lim.rlim_cur / VB_DESCRIPTORS_EACH; /* the broker serves no more programs */

	if (geteuid() != 0)
		return 0;
	return n < VB_LANE_COUNT - VB_FOREIGN_LANES ? (uint32_t)n : VB_LANE_COUNT - VB_FOREIGN_LANES;
}

/* The port first: who has it is the keeper, and what listens at the place beside it is a dead one's. */
static int set_up(struct keeper *k)
{
	k->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	k->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (k->epoll_fd < 0)
		return errno;
	int err = vb_lanes_open(&k->group, SPARE + channels());
	if (!err)
		err = vb_runtime_listen(&k->place, 0600, &k->listen_fd, &k->sock_dev, &k->sock_ino);
	if (!err)
		err = watch(k, k->listen_fd, EPOLLIN, SRC_LISTEN);
	if (!err)
		err = watch(k, BROKER_FD, EPOLLIN, SRC_NEWCOMER);
	k->newcomers[k->nnewcomers++] = BROKER_FD;
	return err;
}

/* Nothing of the broker's: what it has open, and what it was started with, must end with it. */
static void leave_descriptors(int sock)
{
	int null = open("/dev/null", O_RDWR);

	if (sock != BROKER_FD)
		dup2(sock, BROKER_FD);
	for (int i = 0; i < BROKER_FD; i++)
		dup2(null, i);
	if (syscall(SYS_close_range, BROKER_FD + 1, ~0U, 0U)) {
		long max = sysconf(_SC_OPEN_MAX);
		for (int fd = BROKER_FD + 1; fd < (max > 0 && max < 65536 ? max : 65536); fd++)
			close(fd);
	}
	fcntl(BROKER_FD, F_SETFD, FD_CLOEXEC);
	fcntl(BROKER_FD, F_SETFL, O_NONBLOCK); /* our end alone */
}

/* A signal for everybody is for the programs: when they have gone, it goes. */
static void leave_surroundings(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "verbena-keeper");
	if (chdir("/"))
		_exit(1);
}

/* It runs for microseconds, and programs that spin wait for that: a short slice lets it go first (Linux 6.12; before, it is
 * ignored). */
static void be_prompt(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr), .runtime = SLICE_NS};

	prctl(PR_SET_TIMERSLACK, 1000);
	attr.nice = getpriority(PRIO_PROCESS, 0);
	/* root's relays for programs that spin beside it: what an interrupt does for a program with a socket must not wait for them */
	if (geteuid() == 0 && attr.nice > NICE)
		attr.nice = NICE;
	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		setpriority(PRIO_PROCESS, 0, attr.nice);
}

__attribute__((noreturn)) static void be_keeper(const struct vb_runtime *rt, const struct vb_keeper_ask *of, int sock)
{
	static struct keeper k;
	struct epoll_event ev;

	k = (struct keeper){.dev = of->dev, .ino = of->ino, .place = *rt, .listen_fd = -1, .broker = -1};
	vb_relay_init(&k.relay, &k.group);
	leave_surroundings();
	leave_descriptors(sock);
	be_prompt();
	int err = set_up(&k);
	vb_confine_keeper();
	if (err) {
		vb_lanes_close(&k.group);
		answer(&k, BROKER_FD, err, NULL, 0);
		_exit(1);
	}
	/* one event at a time: no other then speaks of a descriptor that has been closed */
	while (!k.met || k.broker >= 0 || k.nlifelines || k.nchannels)
		if (wait_event(&k, &ev) == 1)
			on_event(&k, (enum source)(ev.data.u64 >> 32), (int)(uint32_t)ev.data.u64);
	/* the place before the port: who finds the port free makes a keeper of his own there */
	vb_runtime_unlink(&k.place, k.sock_dev, k.sock_ino);
	vb_lanes_close(&k.group);
	_exit(0);
}

int vb_keeper_start(const struct vb_runtime *rt, const struct vb_keeper_ask *hello_msg, int *sock)
{
	int pair[2], status;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return errno;
	int err = vb_keeper_send(pair[0], hello_msg, sizeof(*hello_msg), NULL, 0);
	pid_t pid = err ? -1 : fork();
	if (pid == 0) {
		setsid();
		pid = fork(); /* init adopts the keeper */
		if (pid)
			_exit(pid < 0);
		be_keeper(rt, hello_msg, pair[1]);
	}
	if (!err && pid < 0)
		err = errno;
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!err && pid > 0 && status)
		err = EAGAIN;
	close(pair[1]);
	if (err) {
		close(pair[0]);
		return err;
	}
	*sock = pair[0];
	return 0;
}
