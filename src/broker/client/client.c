// client.c - a program's connection to the broker: found, started, lost and found again
// follows: broker/proto/proto.h
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/client/spawn.h"
#include "broker/client/incoming.h"
#include "broker/client/outgoing.h"
#include "util/lock.h"
#include "util/log.h"

#define CONNECT_MS 15000  /* bound of vb_broker_connect: beside programs that spin, others may not run for ten seconds */
#define FIRST_BACKOFF_MS 5
#define LAST_BACKOFF_MS 1000
#define LOCKED_MS 10      /* somebody else is starting a broker: look again */
#define READS_PER_DISPATCH 64

uint32_t vb_broker_proc_id(const struct vb_broker_client *c)
{
	return c->lane;
}

uint64_t vb_broker_incarnation(const struct vb_broker_client *c)
{
	return c->incarnation;
}

int vb_broker_pollfd(const struct vb_broker_client *c)
{
	return c->epoll_fd;
}

int vb_broker_timeout_ms(const struct vb_broker_client *c)
{
	if (c->state == ATTACHED)
		return -1;
	int64_t left = c->deadline - vb_broker_now_ms();
	return left < 0 ? 0 : (int)left;
}

static void watch(struct vb_broker_client *c, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};

	epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

static void unwatch_and_close(struct vb_broker_client *c, int *fd)
{
	if (*fd < 0)
		return;
	epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
	close(*fd);
	*fd = -1;
}

/* ---- losing and finding ---- */

static void set_state(struct vb_broker_client *c, enum client_state state, int in_ms)
{
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	c->state = state;
	vb_mutex_unlock(&c->lock);
	c->deadline = vb_broker_now_ms() + in_ms;
}

static void lose_socket(struct vb_broker_client *c)
{
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	c->state = AWAY;
	unwatch_and_close(c, &c->sock);
	c->want_out = false;
	c->due = false;
	vb_outgoing_drop(c); /* their callers repeat them when we are attached again */
	vb_mutex_unlock(&c->lock);
}

/* After a failure, of whatever kind. */
static void try_later(struct vb_broker_client *c)
{
	set_state(c, AWAY, c->backoff_ms);
	c->backoff_ms = c->backoff_ms * 2 > LAST_BACKOFF_MS ? LAST_BACKOFF_MS : c->backoff_ms * 2;
}

static int send_attach(struct vb_broker_client *c, int sock)
{
	struct {
		struct vb_msg_attach m;
		uint8_t gids[VB_MAX_GIDS][16];
	} out;
	union {
		char buf[CMSG_SPACE(sizeof(int) * 3)];
		struct cmsghdr align;
	} control = {0};
	const int fds[3] = {c->fds.seg_fd, c->fds.doorbell_fd, c->fds.wake_fd};

	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	size_t len = sizeof(out.m) + c->ngids * 16ull;
	out.m = (struct vb_msg_attach){
		.head = vb_outgoing_head(VB_MSG_ATTACH, len),
		.lane = c->lane, .incarnation = c->incarnation, .ngids = c->ngids,
	};
	memcpy(out.gids, c->gids, c->ngids * 16ull);
	c->gids_due = false;
	vb_mutex_unlock(&c->lock);

	struct iovec iov = {.iov_base = &out, .iov_len = len};
	struct msghdr mh = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(cm), fds, sizeof(fds));
	return sendmsg(sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

static void attach(struct vb_broker_client *c, int sock)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t len = sizeof(cred);

	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	c->asked = cred.uid;
	int err = send_attach(c, sock);

	if (err) {
		if (err == EBADF) /* the caller's descriptors: no broker will like them better */
			c->error = err;
		close(sock);
		try_later(c);
		return;
	}
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	c->sock = sock;
	c->want_out = false;
	vb_mutex_unlock(&c->lock);
	watch(c, sock, EPOLLIN);
	set_state(c, ATTACHING, VB_ATTACHING_MS);
}

/* One line that says who is in the way and what to do; once, until a broker was found. */
static void say_refused(struct vb_broker_client *c, enum vb_log_level level, const struct vb_runtime *rt, const char *what, int err)
{
	bool denied = err == EPERM || err == EACCES || err == ENOTDIR || err == ENOENT;
	char text[PATH_MAX];
	bool known = denied && vb_runtime_complaint(rt, text, sizeof(text));

	if (!c->refused)
		vb_log(level, "broker: %s: %s: remove it, or set VERBENA_RUNTIME to a directory of yours", what,
		       known ? text : err == EPERM ? rt->dir : strerror(err));
	c->refused = true;
}

/* The broker that gave our lane was root's, and we cannot start one in its place. */
static int find_roots(struct vb_broker_client *c, int *sock)
{
	struct vb_runtime root;
	int err = vb_runtime_root(&root) ? vb_runtime_connect(&root, sock) : ENOENT;

	if (err == ENOENT && c->backoff_ms == LAST_BACKOFF_MS && !c->missed) {
		vb_log(VB_LOG_WARN, "broker: root's, which this program came to, has gone: it is waited for");
		c->missed = true;
	}
	return err == ENOENT ? EAGAIN : err;
}

/* Who has a lane goes to a broker of the user whose broker gave it: another one knows other lanes. */
static int find_giver(struct vb_broker_client *c, const struct vb_runtime *own, int *sock)
{
	if (c->giver != geteuid())
		return find_roots(c, sock);
	int err = vb_runtime_connect(own, sock);
	if (err == EPERM || err == EACCES)
		say_refused(c, VB_LOG_ERROR, own, "the socket in the runtime directory belongs to another user", err);
	return err;
}

/* Own user's broker first, then root's. 0, ENOENT when there is none, or another errno. */
static int find(struct vb_broker_client *c, int *sock)
{
	struct vb_runtime own, root;
	int err = vb_runtime_own(&own);

	if (!err && c->lane && !own.explicit_dir) /* in a directory that was named there is one broker, whosever */
		return find_giver(c, &own, sock);
	bool squatted = !err && vb_runtime_is_squatted(&own);

	if (!err)
		err = squatted ? ENOENT : vb_runtime_connect(&own, sock);
	if (err != ENOENT && err != EPERM && err != EACCES)
		return err;
	if (vb_runtime_root(&root)) {
		int root_err = vb_runtime_connect(&root, sock);
		if (!root_err && (squatted || err != ENOENT))
			say_refused(c, VB_LOG_WARN, &own, "root's is used, since this user's directory cannot be", err);
		if (!root_err || root_err == EAGAIN)
			return root_err;
	}
	if (err == EPERM || err == EACCES)
		say_refused(c, VB_LOG_ERROR, &own, "the socket in the runtime directory belongs to another user", err);
	return err;
}

static void spawn(struct vb_broker_client *c)
{
	int err = 0;

	if (!c->as_thread) {
		err = vb_spawn_process(&c->rt, c->lock_fd, &c->ready_fd);
		if (err)
			vb_log(VB_LOG_INFO, "broker: cannot be executed (%s): runs inside this program", strerror(err));
		c->as_thread = err != 0;
	}
	if (c->as_thread)
		err = vb_spawn_thread(&c->rt, c->lock_fd, &c->ready_fd);
	if (err) {
		vb_log(VB_LOG_WARN, "broker: cannot be started: %s", strerror(err));
		vb_runtime_unlock(&c->lock_fd);
		try_later(c);
		return;
	}
	watch(c, c->ready_fd, EPOLLIN);
	set_state(c, STARTING, VB_STARTED_MS);
}

/* No broker answers: start one, unless somebody else is doing it. */
static void start(struct vb_broker_client *c)
{
	int sock, err = vb_runtime_own(&c->rt);

	if (!err)
		err = vb_runtime_prepare(&c->rt);
	if (!err)
		err = vb_runtime_lock(&c->rt, &c->lock_fd);
	if (err == EWOULDBLOCK) {
		set_state(c, AWAY, LOCKED_MS);
		return;
	}
	if (err) {
		c->error = err;
		say_refused(c, VB_LOG_ERROR, &c->rt, "cannot be started", err);
		try_later(c);
		return;
	}
	err = vb_runtime_connect(&c->rt, &sock); /* it may have been started before we had the lock */
	if (!err) {
		vb_runtime_unlock(&c->lock_fd);
		attach(c, sock);
	} else if (err == ENOENT) {
		spawn(c);
	} else {
		vb_runtime_unlock(&c->lock_fd);
		try_later(c);
	}
}

static void step_away(struct vb_broker_client *c)
{
	int sock, err = find(c, &sock);

	if (!err)
		attach(c, sock);
	else if (err == ENOENT)
		start(c);
	else {
		if (err == EPERM || err == EACCES)
			c->error = EACCES;
		try_later(c);
	}
}

static void step_starting(struct vb_broker_client *c)
{
	char byte;
	ssize_t n = read(c->ready_fd, &byte, 1);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (vb_broker_now_ms() < c->deadline)
			return;
		/* it has the lock, too, and keeps it until it listens or dies: no unlock, which would take it from both */
		unwatch_and_close(c, &c->ready_fd);
		close(c->lock_fd);
		c->lock_fd = -1;
		try_later(c);
		return;
	}
	unwatch_and_close(c, &c->ready_fd);
	if (n <= 0 && !c->as_thread) { /* it was executed, but could not run */
		vb_log(VB_LOG_INFO, "broker: ended at once: runs inside this program");
		c->as_thread = true;
		spawn(c);
		return;
	}
	vb_runtime_unlock(&c->lock_fd);
	if (n <= 0)
		try_later(c);
	else
		set_state(c, AWAY, 0);
}

/* ---- receiving ---- */

static void on_attached(struct vb_broker_client *c, const struct vb_incoming *in)
{
	const struct vb_msg_attached *m = &in->attached;

	if (!c->lane) {
		c->lane = m->lane;
		c->incarnation = m->incarnation;
		c->giver = c->asked;
	}
	c->backoff_ms = FIRST_BACKOFF_MS;
	c->error = 0;
	c->refused = c->missed = false;
	c->as_thread = false; /* the next may be executable again */
	set_state(c, ATTACHED, 0);
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (c->gids_due)
		vb_outgoing_flush(c);
	vb_mutex_unlock(&c->lock);
}

static void on_error(struct vb_broker_client *c, struct vb_incoming *in)
{
	in->error.text[sizeof(in->error.text) - 1] = 0;
	c->error = in->error.err > 0 ? in->error.err : EPROTO;
	if (c->error == EAGAIN) { /* it is asked again, and may have room then */
		vb_log(VB_LOG_INFO, "broker: %s", in->error.text);
		return;
	}
	if (!c->refused)
		vb_log(VB_LOG_ERROR, "broker: refused: %s (%s)%s", in->error.text, strerror(c->error),
		       c->lane && c->error == EBUSY ? "; programs on this host cannot meet this one until that one ends" : "");
	c->refused = true;
}

/* Of queue pair 1. False: no such message can be. */
static bool on_gsi(struct vb_broker_client *c, const struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg)
{
	bool mad = in->head.type == VB_MSG_CM_RECV;

	if (c->state != ATTACHED || in->head.len != (mad ? sizeof(in->mad) : sizeof(in->service)))
		return false;
	if (mad && ops && ops->mad)
		ops->mad(arg, &in->mad);
	else if (!mad && ops && ops->service_reply)
		ops->service_reply(arg, &in->service);
	return true;
}

/* False: the broker makes no sense. */
static bool on_message(struct vb_broker_client *c, struct vb_incoming *in, const struct vb_broker_ops *ops, void *arg)
{
	bool first = !c->lane;

	switch (in->head.type) {
	case VB_MSG_ATTACHED:
		vb_incoming_close(in);
		if (c->state != ATTACHING || in->head.len != sizeof(in->attached) || !in->attached.lane)
			return false;
		if (c->lane && in->attached.lane != c->lane)
			return false;
		on_attached(c, in);
		if (!first && ops)
			ops->reattached(arg);
		return true;
	case VB_MSG_ERROR:
		vb_incoming_close(in);
		if (in->head.len == sizeof(in->error))
			on_error(c, in);
		return false;
	case VB_MSG_MEET_REPLY:
	case VB_MSG_INTRODUCED:
		if (c->state != ATTACHED || !ops || !vb_incoming_peer(in, ops, arg))
			break;
		return true;
	case VB_MSG_ROCE_REPLY:
		if (c->state != ATTACHED || !ops || !vb_incoming_roce(in, ops, arg))
			break;
		return true;
	case VB_MSG_CM_RECV:
	case VB_MSG_SERVICE_REPLY:
		vb_incoming_close(in);
		return on_gsi(c, in, ops, arg);
	default: /* of a later broker */
		vb_incoming_close(in);
		return true;
	}
	vb_incoming_close(in);
	return false;
}

/* Reads what is there. Without ops (vb_broker_connect) it stops after ATTACHED: the rest is for dispatch. */
static void step_connected(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg)
{
	struct vb_incoming in;

	for (int i = 0; i < READS_PER_DISPATCH; i++) {
		int got = vb_incoming_receive(c->sock, &in);
		if (!got)
			break;
		if (got < 0 || !on_message(c, &in, ops, arg)) {
			lose_socket(c);
			try_later(c);
			return;
		}
		if (!ops && c->state == ATTACHED)
			return;
	}
	if (c->state == ATTACHING && vb_broker_now_ms() >= c->deadline) {
		lose_socket(c);
		try_later(c);
		return;
	}
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (c->state == ATTACHED && c->want_out)
		vb_outgoing_flush(c);
	vb_mutex_unlock(&c->lock);
}

static void step(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg)
{
	switch (c->state) {
	case AWAY:
		if (vb_broker_now_ms() >= c->deadline)
			step_away(c);
		break;
	case STARTING:
		step_starting(c);
		break;
	case ATTACHING:
	case ATTACHED:
		step_connected(c, ops, arg);
		break;
	}
}

void vb_broker_dispatch(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg)
{
	step(c, ops, arg);
	if (c->state == AWAY && vb_broker_now_ms() >= c->deadline)
		step(c, ops, arg); /* a lost broker is looked for at once */
}

/* ---- life ---- */

static bool is_final(int err)
{
	return err && err != ECONNRESET && err != EAGAIN;
}

static int connect_until(struct vb_broker_client *c, int64_t until)
{
	while (c->state != ATTACHED) {
		step(c, NULL, NULL);
		if (c->state == ATTACHED)
			break;
		if (c->state == AWAY && is_final(c->error))
			return c->error;
		int64_t left = until - vb_broker_now_ms();
		if (left <= 0)
			return ETIMEDOUT;
		int wait = vb_broker_timeout_ms(c);
		struct pollfd p = {.fd = c->epoll_fd, .events = POLLIN};
		poll(&p, 1, wait < left ? wait : (int)left);
	}
	return 0;
}

int vb_broker_connect(const struct vb_attach_fds *fds, struct vb_broker_client **out)
{
	struct vb_broker_client *c = calloc(1, sizeof(*c));

	if (!c)
		return ENOMEM;
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll_fd < 0) {
		int err = errno;
		free(c);
		return err;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->fds = *fds;
	c->owner = getpid();
	c->sock = c->ready_fd = c->lock_fd = -1;
	c->pending_tail = &c->pending;
	c->backoff_ms = FIRST_BACKOFF_MS;
	int err = connect_until(c, vb_broker_now_ms() + CONNECT_MS);
	if (err) {
		vb_broker_disconnect(c);
		return err;
	}
	*out = c;
	return 0;
}

static void say_goodbye(struct vb_broker_client *c)
{
	struct vb_msg_head bye = vb_outgoing_head(VB_MSG_DETACH, sizeof(bye));

	if (c->sock < 0)
		return;
	vb_outgoing_send(c->sock, &bye, sizeof(bye));
	shutdown(c->sock, SHUT_RDWR); /* children that inherited it would keep it open */
}

void vb_broker_disconnect(struct vb_broker_client *c)
{
	if (!c)
		return;
	/* in a child the epoll set and the socket are the parent's, too */
	if (c->owner == getpid())
		say_goodbye(c);
	vb_outgoing_drop(c);
	const int fds[] = {c->sock, c->ready_fd, c->lock_fd, c->epoll_fd};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
