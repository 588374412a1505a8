// keeper.c - the process that owns the group of RoCE sockets
// follows: pipe(7), unix(7)
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
#include "util/units.h"

#define SPARE 64 /* descriptors for other uses: above all lifelines of earlier brokers whose programs still run */
#define MAX_NEWCOMERS 8
#define SLICE_NS VB_US(100)
#define TIMER_SLACK_NS VB_US(1)
#define NICE (-10)
#define LINGER_NS VB_US(10) /* busy polling after a relayed datagram: the next one mostly follows at once */
#define BROKER_FD 3

enum source { SRC_LISTEN, SRC_NEWCOMER, SRC_BROKER, SRC_LIFELINE, SRC_LANE, SRC_CHANNEL };

/* Each broker gets a lifeline of its own, and passes its writing end to its user's programs. The keeper runs while
 * any lifeline has a writing end, while a channel's other end is open, or while a broker is connected. It keeps no
 * writing end itself: so the kernel reports when the last one is closed, for whatever reason. */
struct keeper {
	struct vb_lane_group group;
	struct vb_groups groups;
	struct vb_relay relay;
	uint32_t nchannels;
	int64_t linger_until;    /* ns: busy polling until then; 0: no */
	struct vb_runtime place; /* where it listens for brokers */
	dev_t sock_dev;
	ino_t sock_ino;
	uint64_t dev, ino;
	int epoll_fd, listen_fd;
	int broker;                   /* connection to the broker; -1: none */
	int newcomers[MAX_NEWCOMERS]; /* connections that have not sent HELLO, the oldest first */
	int nnewcomers, nlifelines;
	bool met;    /* the broker that forked us has sent HELLO, or has ended */
	int reserve; /* a spare descriptor: closed to accept and reject a newcomer when no other is left */
};

void vb_keeper_runtime(const struct vb_runtime *broker, struct vb_runtime *rt)
{
	*rt = *broker;
	snprintf(rt->name, sizeof(rt->name), "keeper-%llu.sock", (unsigned long long)vb_runtime_network());
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

/* ---- connections ---- */

static int keeper_watch_as(struct keeper *k, int fd, uint32_t events, enum source kind, uint32_t number)
{
	struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)kind << 32 | number};

	return epoll_ctl(k->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? errno : 0;
}

static int keeper_watch(struct keeper *k, int fd, uint32_t events, enum source kind)
{
	return keeper_watch_as(k, fd, events, kind, (uint32_t)fd);
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

static void dismiss_newcomer(struct keeper *k, int fd)
{
	forget_newcomer(k, fd);
	close(fd);
	k->met = true;
}

/* Only a broker of this user may give commands. */
static bool is_own_user(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid() &&
	       vb_uid_is_known(cred.uid);
}

static void accept_newcomer(struct keeper *k)
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
	if (!is_own_user(fd) || keeper_watch(k, fd, EPOLLIN, SRC_NEWCOMER)) {
		close(fd);
		return;
	}
	if (k->nnewcomers == MAX_NEWCOMERS)
		dismiss_newcomer(k, k->newcomers[0]);
	k->newcomers[k->nnewcomers++] = fd;
}

static bool broker_lives(const struct keeper *k)
{
	struct pollfd p = {.fd = k->broker};

	return k->broker >= 0 && poll(&p, 1, 0) == 0;
}

static void drop_broker(struct keeper *k)
{
	if (k->broker >= 0)
		close(k->broker);
	k->broker = -1;
}

/* ---- answers ---- */

static struct vb_keeper_answer answer_of(const struct keeper *k, int err)
{
	return (struct vb_keeper_answer){.err = err, .n = k->group.n, .given = k->group.given};
}

/* Does not wait for a broker that does not read: returns 0 or an errno. */
static int send_answer(const struct keeper *k, int sock, int err, const int *fds, int nfds)
{
	struct vb_keeper_answer m = answer_of(k, err);

	return vb_keeper_send(sock, &m, sizeof(m), fds, nfds);
}

static int welcome_broker(struct keeper *k, int sock)
{
	int pipe_fd[2];

	if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK))
		return errno;
	int err = keeper_watch(k, pipe_fd[0], 0, SRC_LIFELINE); /* EPOLLHUP is always reported */
	if (err) {
		close(pipe_fd[0]);
	} else {
		const int fds[2] = {pipe_fd[1], k->group.fd[0]};
		k->nlifelines++;
		err = send_answer(k, sock, 0, fds, 2);
	}
	close(pipe_fd[1]);
	return err;
}

/* False if the connection is to be closed. */
static bool on_hello(struct keeper *k, int sock, const struct vb_keeper_ask *m)
{
	if (m->op != VB_KEEPER_HELLO)
		return false;
	int err = m->dev != k->dev || m->ino != k->ino ? EADDRINUSE : broker_lives(k) ? EBUSY : 0;
	if (!err)
		err = welcome_broker(k, sock);
	if (!err) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)SRC_BROKER << 32 | (uint32_t)sock};
		drop_broker(k);
		k->broker = sock;
		return !epoll_ctl(k->epoll_fd, EPOLL_CTL_MOD, sock, &ev);
	}
	send_answer(k, sock, err, NULL, 0);
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
	if (!is_relayed(k, socket)) /* no program has this socket, so it is in no other epoll set */
		epoll_ctl(k->epoll_fd, EPOLL_CTL_DEL, k->group.fd[socket], NULL);
}

/* From now on the keeper reads the lane's datagrams. Returns 0 or an errno. */
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
		err = keeper_watch_as(k, ours, 0, SRC_CHANNEL, lane); /* EPOLLHUP is always reported */
	if (!err && !is_relayed(k, socket))
		err = keeper_watch_as(k, k->group.fd[socket], EPOLLIN, SRC_LANE, socket);
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

static bool on_relay(struct keeper *k, uint32_t lane)
{
	int theirs, err = lane ? open_channel(k, lane, &theirs) : EINVAL;

	if (err)
		return !send_answer(k, k->broker, err, NULL, 0);
	bool sent = !send_answer(k, k->broker, 0, &theirs, 1);
	close(theirs);
	return sent;
}

/* ---- a broker's messages ---- */

static bool on_give(struct keeper *k, uint32_t lane)
{
	close_channel(k, lane);
	int fd = vb_lanes_give(&k->group, lane, false);

	return !send_answer(k, k->broker, fd < 0 ? EBUSY : 0, &fd, fd >= 0);
}

static bool on_broker_message(struct keeper *k, const struct vb_keeper_ask *m)
{
	if (m->lane >= VB_LANE_COUNT)
		return false;
	switch (m->op) {
	case VB_KEEPER_GIVE:
		return on_give(k, m->lane);
	case VB_KEEPER_RELAY:
		return on_relay(k, m->lane);
	case VB_KEEPER_TAKE_BACK:
		close_channel(k, m->lane);
		vb_groups_take_back(&k->group, m->lane, (enum vb_groups_left)m->left);
		return true;
	case VB_KEEPER_JOIN:
	case VB_KEEPER_LEAVE:
		if (k->relay.channel[m->lane] >= 0)
			vb_groups_set(&k->groups, &k->group, m->lane, m->group, m->ifindex, m->op == VB_KEEPER_JOIN);
		return true;
	case VB_KEEPER_SETTLE:
		return !send_answer(k, k->broker, 0, NULL, 0);
	default:
		return false;
	}
}

enum received { RECEIVED_NONE, RECEIVED_MESSAGE, RECEIVED_CLOSED };

/* RECEIVED_CLOSED also for a malformed message. There is no buffer for descriptors, so the kernel drops them. */
static enum received receive_ask(int sock, struct vb_keeper_ask *m)
{
	struct {
		struct vb_keeper_ask m;
		char more;
	} in = {0};
	ssize_t n = recv(sock, &in, sizeof(in), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? RECEIVED_NONE : RECEIVED_CLOSED;
	*m = in.m;
	return n == sizeof(in.m) && in.m.magic == VB_KEEPER_MAGIC ? RECEIVED_MESSAGE : RECEIVED_CLOSED;
}

static void on_newcomer(struct keeper *k, int fd)
{
	struct vb_keeper_ask m;
	enum received got = receive_ask(fd, &m);

	if (got == RECEIVED_NONE)
		return;
	if (got == RECEIVED_CLOSED || !on_hello(k, fd, &m)) {
		if (k->broker == fd)
			k->broker = -1;
		dismiss_newcomer(k, fd);
	} else {
		forget_newcomer(k, fd);
		k->met = true;
	}
}

static void on_broker(struct keeper *k)
{
	struct vb_keeper_ask m;
	enum received got = receive_ask(k->broker, &m);

	if (got == RECEIVED_CLOSED || (got == RECEIVED_MESSAGE && !on_broker_message(k, &m)))
		drop_broker(k);
}

static int64_t keeper_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void keeper_on_event(struct keeper *k, enum source kind, int fd)
{
	switch (kind) {
	case SRC_LISTEN:
		accept_newcomer(k);
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
		k->linger_until = keeper_now_ns() + LINGER_NS;
		if (k->broker >= 0) /* it waits for answers: serve it between datagrams of a flood */
			on_broker(k);
		break;
	case SRC_CHANNEL: /* its program has ended, or closed the channel: a socket that nobody reads must not fill up */
		close_channel(k, (uint32_t)fd);
		vb_lanes_take_back(&k->group, (uint32_t)fd);
		break;
	}
}

/* Sleeping between two datagrams of one exchange would make it several times as slow. */
static int keeper_wait(struct keeper *k, struct epoll_event *ev)
{
	int n;

	while (k->linger_until) {
		n = epoll_wait(k->epoll_fd, ev, 1, 0);
		if (n)
			return n;
		if (keeper_now_ns() >= k->linger_until)
			k->linger_until = 0;
		else
			sched_yield();
	}
	return epoll_wait(k->epoll_fd, ev, 1, -1);
}

/* ---- start and end ---- */

/* How many channels fit. Only root's keeper relays. */
static uint32_t max_channels(void)
{
	struct rlimit lim = {.rlim_cur = 1024};

	getrlimit(RLIMIT_NOFILE, &lim);
	rlim_t n = lim.rlim_cur / VB_DESCRIPTORS_EACH; /* more programs do not fit into the broker either */

	if (geteuid() != 0)
		return 0;
	return n < VB_LANE_COUNT - VB_FOREIGN_LANES ? (uint32_t)n : VB_LANE_COUNT - VB_FOREIGN_LANES;
}

/* Binds the port first: its holder is the keeper, and a socket in the listener's place is then a dead keeper's. */
static int keeper_set_up(struct keeper *k)
{
	k->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	k->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (k->epoll_fd < 0)
		return errno;
	int err = vb_lanes_open(&k->group, SPARE + max_channels());
	if (!err)
		err = vb_runtime_listen(&k->place, 0600, &k->listen_fd, &k->sock_dev, &k->sock_ino);
	if (!err)
		err = keeper_watch(k, k->listen_fd, EPOLLIN, SRC_LISTEN);
	if (!err)
		err = keeper_watch(k, BROKER_FD, EPOLLIN, SRC_NEWCOMER);
	k->newcomers[k->nnewcomers++] = BROKER_FD;
	return err;
}

/* Closes everything that is the broker's: its descriptors and its standard files must end with it. */
static void replace_descriptors(int sock)
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
	fcntl(BROKER_FD, F_SETFL, O_NONBLOCK); /* changes our end only */
}

/* Blocks all signals: those for a process group or session are meant for the programs. The keeper exits when they
 * have ended. */
static void keeper_detach(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	prctl(PR_SET_NAME, "verbena-keeper");
	if (chdir("/"))
		_exit(1);
}

/* The keeper runs for microseconds at a time, and spinning programs delay it. A short slice lets it run first (Linux
 * 6.12; earlier kernels ignore it). */
static void raise_priority(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr), .runtime = SLICE_NS};

	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	attr.nice = getpriority(PRIO_PROCESS, 0);
	/* root's keeper relays for programs that spin: like an interrupt handler, it must not wait for them */
	if (geteuid() == 0 && attr.nice > NICE)
		attr.nice = NICE;
	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		setpriority(PRIO_PROCESS, 0, attr.nice);
}

__attribute__((noreturn)) static void keeper_main(const struct vb_runtime *rt, const struct vb_keeper_ask *of, int sock)
{
	static struct keeper k;
	struct epoll_event ev;

	k = (struct keeper){.dev = of->dev, .ino = of->ino, .place = *rt, .listen_fd = -1, .broker = -1};
	vb_relay_init(&k.relay, &k.group);
	keeper_detach();
	replace_descriptors(sock);
	raise_priority();
	int err = keeper_set_up(&k);
	vb_confine_keeper();
	if (err) {
		vb_lanes_close(&k.group);
		send_answer(&k, BROKER_FD, err, NULL, 0);
		_exit(1);
	}
	/* one event at a time, so that no later event names a descriptor that was closed */
	while (!k.met || k.broker >= 0 || k.nlifelines || k.nchannels)
		if (keeper_wait(&k, &ev) == 1)
			keeper_on_event(&k, (enum source)(ev.data.u64 >> 32), (int)(uint32_t)ev.data.u64);
	/* the listener's path before the port: a broker that finds the port free starts a keeper at that path */
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
		keeper_main(rt, hello_msg, pair[1]);
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
