// client.c - a program's connection to the broker: finds or starts one, attaches, reconnects
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
#include "broker/client/network.h"
#include "broker/client/outgoing.h"
#include "util/lock.h"
#include "util/log.h"

#define CONNECT_MS \
	15000 /* limit of vb_broker_connect: next to spinning programs others may wait ten seconds for a processor */
#define FIRST_BACKOFF_MS 5
#define LAST_BACKOFF_MS 1000
#define LOCKED_MS 10 /* retry interval while another program starts a broker */
#define READS_PER_DISPATCH 64

uint32_t vb_broker_lane_number(const struct vb_broker_client *c)
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
	int64_t left = c->state == ATTACHED ? -1 : c->deadline - vb_broker_now_ms();
	int ms = c->state != ATTACHED && left < 0 ? 0 : (int)left;
	struct vb_broker_client *network = atomic_load_explicit(&c->network, memory_order_relaxed);
	int its = network ? vb_broker_timeout_ms(network) : -1;

	return its < 0 || (ms >= 0 && ms < its) ? ms : its;
}

static void client_watch(struct vb_broker_client *c, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};

	epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

static void client_close_fd(struct vb_broker_client *c, int *fd)
{
	if (*fd < 0)
		return;
	epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
	close(*fd);
	*fd = -1;
}

/* ---- connecting ---- */

static void client_set_state(struct vb_broker_client *c, enum client_state state, int in_ms)
{
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	c->state = state;
	vb_mutex_unlock(&c->lock);
	c->deadline = vb_broker_now_ms() + in_ms;
}

static void client_lose_socket(struct vb_broker_client *c)
{
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	c->state = AWAY;
	client_close_fd(c, &c->sock);
	c->want_out = false;
	c->roce_due = false;
	vb_outgoing_drop(c); /* their callers repeat them after reattaching */
	vb_mutex_unlock(&c->lock);
}

/* After any failure: retry with exponential backoff. */
static void client_try_later(struct vb_broker_client *c)
{
	client_set_state(c, AWAY, c->backoff_ms);
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
	        .lane = c->lane,
	        .incarnation = c->incarnation,
	        .ngids = c->ngids,
	        .network = vb_runtime_network(),
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

static void client_attach(struct vb_broker_client *c, int sock)
{
	struct ucred cred = {.uid = (uid_t)-1};
	socklen_t len = sizeof(cred);

	getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len);
	c->asked = cred.uid;
	int err = send_attach(c, sock);

	if (err) {
		if (err == EBADF) /* the caller's own descriptors are closed: a retry cannot help */
			c->error = err;
		close(sock);
		client_try_later(c);
		return;
	}
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	c->sock = sock;
	c->want_out = false;
	vb_mutex_unlock(&c->lock);
	client_watch(c, sock, EPOLLIN);
	client_set_state(c, ATTACHING, VB_ATTACHING_MS);
}

/* Logs one line that names the obstacle and the remedy; once, until a broker was found. */
static void log_refusal(struct vb_broker_client *c, enum vb_log_level level, const struct vb_runtime *rt,
                        const char *what, int err)
{
	bool denied = err == EPERM || err == EACCES || err == ENOTDIR || err == ENOENT;
	char text[PATH_MAX];
	bool known = denied && vb_runtime_has_complaint(rt, text, sizeof(text));

	if (!c->refused)
		vb_log(level, "broker: %s: %s%s: %sset VERBENA_RUNTIME to a directory of yours", what,
		       known          ? text
		       : err == EPERM ? rt->dir
		                      : strerror(err),
		       err == ENOENT ? " (in the way to the runtime directory)" : "",
		       known && !rt->explicit_dir ? "remove it, or " : "");
	c->refused = true;
}

static int find_runtime(const struct vb_broker_client *c, struct vb_runtime *rt)
{
	if (c->of_network)
		return vb_runtime_of_network(rt) ? 0 : EINVAL;
	return vb_runtime_own(rt);
}

/* Our lane is from root's broker, which we cannot start ourselves. */
static int find_broker_of_root(struct vb_broker_client *c, int *sock)
{
	struct vb_runtime root;
	int err = vb_runtime_root(&root) ? vb_runtime_connect(&root, sock) : ENOENT;

	if (err == ENOENT && c->backoff_ms == LAST_BACKOFF_MS && !c->missed) {
		vb_log(VB_LOG_WARN,
		       "broker: root's broker, which this program uses, has ended: waiting for it to be restarted");
		c->missed = true;
	}
	return err == ENOENT ? EAGAIN : err;
}

/* A program that has a lane reconnects only to a broker of the same user: other brokers know other lanes. */
static int find_own_broker(struct vb_broker_client *c, const struct vb_runtime *own, int *sock)
{
	if (c->giver != geteuid())
		return find_broker_of_root(c, sock);
	int err = vb_runtime_connect(own, sock);
	if (err == EPERM || err == EACCES)
		log_refusal(c, VB_LOG_ERROR, own, "the socket in the runtime directory belongs to another user", err);
	return err;
}

/* Tries the own user's broker, then root's. Returns 0, ENOENT when there is none, or another errno. */
static int find_broker(struct vb_broker_client *c, int *sock)
{
	struct vb_runtime own, root;
	int err = find_runtime(c, &own);

	if (!err && c->lane && !own.explicit_dir) /* VERBENA_RUNTIME names one directory: its broker is the only one */
		return find_own_broker(c, &own, sock);
	bool squatted = !err && vb_runtime_is_squatted(&own);

	if (!err)
		err = squatted ? ENOENT : vb_runtime_connect(&own, sock);
	if (err != ENOENT && err != EPERM && err != EACCES)
		return err;
	if (vb_runtime_root(&root)) {
		int root_err = vb_runtime_connect(&root, sock);
		if (!root_err && (squatted || err != ENOENT))
			log_refusal(c, VB_LOG_WARN, &own,
			            "root's broker is used, because this user's runtime directory cannot be used", err);
		if (!root_err || root_err == EAGAIN)
			return root_err;
	}
	if (err == EPERM || err == EACCES)
		log_refusal(c, VB_LOG_ERROR, &own, "the socket in the runtime directory belongs to another user", err);
	return err;
}

static void spawn_broker(struct vb_broker_client *c)
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
		client_try_later(c);
		return;
	}
	client_watch(c, c->ready_fd, EPOLLIN);
	client_set_state(c, STARTING, VB_STARTED_MS);
}

/* No broker answers: starts one, unless another program does. */
static void start_broker(struct vb_broker_client *c)
{
	int sock, err = find_runtime(c, &c->rt);

	if (!err)
		err = vb_runtime_prepare(&c->rt);
	if (!err)
		err = vb_runtime_lock(&c->rt, &c->lock_fd);
	if (err == EWOULDBLOCK) {
		client_set_state(c, AWAY, LOCKED_MS);
		return;
	}
	if (err) {
		c->error = err;
		log_refusal(c, VB_LOG_ERROR, &c->rt, "cannot be started", err);
		client_try_later(c);
		return;
	}
	err = vb_runtime_connect(&c->rt, &sock); /* another program may have started it before we got the lock */
	if (!err) {
		vb_runtime_unlock(&c->lock_fd);
		client_attach(c, sock);
	} else if (err == ENOENT) {
		spawn_broker(c);
	} else {
		vb_runtime_unlock(&c->lock_fd);
		client_try_later(c);
	}
}

static void client_step_away(struct vb_broker_client *c)
{
	int sock, err = find_broker(c, &sock);

	if (!err)
		client_attach(c, sock);
	else if (err == ENOENT)
		start_broker(c);
	else {
		if (err == EPERM || err == EACCES)
			c->error = EACCES;
		client_try_later(c);
	}
}

static void client_step_starting(struct vb_broker_client *c)
{
	char byte;
	ssize_t n = read(c->ready_fd, &byte, 1);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (vb_broker_now_ms() < c->deadline)
			return;
		/* the broker shares the lock and keeps it until it listens or dies: only close, an unlock would
		 * release it for both */
		client_close_fd(c, &c->ready_fd);
		close(c->lock_fd);
		c->lock_fd = -1;
		client_try_later(c);
		return;
	}
	client_close_fd(c, &c->ready_fd);
	if (n <= 0 && !c->as_thread) { /* executed, but ended before it listened */
		vb_log(VB_LOG_INFO, "broker: ended before it listened: runs inside this program");
		c->as_thread = true;
		spawn_broker(c);
		return;
	}
	vb_runtime_unlock(&c->lock_fd);
	if (n <= 0)
		client_try_later(c);
	else
		client_set_state(c, AWAY, 0);
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
	c->as_thread = false; /* try the executable again next time */
	client_set_state(c, ATTACHED, 0);
	if (!c->of_network)
		vb_client_find_network(c, m->network);
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (c->gids_due)
		vb_outgoing_flush(c);
	vb_mutex_unlock(&c->lock);
}

static void on_broker_error(struct vb_broker_client *c, struct vb_incoming *in)
{
	in->error.text[sizeof(in->error.text) - 1] = 0;
	c->error = in->error.err > 0 ? in->error.err : EPROTO;
	if (c->error == EAGAIN) { /* retried: it may have room then */
		vb_log(VB_LOG_INFO, "broker: %s", in->error.text);
		return;
	}
	if (!c->refused && c->of_network && c->error == EBUSY)
		vb_log(VB_LOG_ERROR,
		       "broker: another user's broker serves this network namespace in the runtime directory: no program of "
		       "other hosts can be reached. Set VERBENA_RUNTIME to a directory of yours");
	else if (!c->refused)
		vb_log(VB_LOG_ERROR, "broker: refused this program: %s (%s)%s", in->error.text, strerror(c->error),
		       c->lane && c->error == EBUSY
		               ? "; other programs on this host cannot reach this one until the holder ends"
		               : "");
	c->refused = true;
}

/* A message of queue pair 1. False if it is malformed. */
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

/* False if the broker violates the protocol, or refuses this program. */
static bool on_broker_message(struct vb_broker_client *c, struct vb_incoming *in, const struct vb_broker_ops *ops,
                              void *arg)
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
			on_broker_error(c, in);
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
	default: /* unknown types are from a later version */
		vb_incoming_close(in);
		return true;
	}
	vb_incoming_close(in);
	return false;
}

/* Handles the messages that have arrived. Without ops (vb_broker_connect) it stops after ATTACHED and leaves the rest
 * to vb_broker_dispatch. */
static void client_step_connected(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg)
{
	struct vb_incoming in;

	for (int i = 0; i < READS_PER_DISPATCH; i++) {
		enum vb_incoming_result got = vb_incoming_receive(c->sock, &in);
		if (got == VB_INCOMING_NONE)
			break;
		if (got == VB_INCOMING_CLOSED || !on_broker_message(c, &in, ops, arg)) {
			client_lose_socket(c);
			client_try_later(c);
			return;
		}
		if (!ops && c->state == ATTACHED)
			return;
	}
	if (c->state == ATTACHING && vb_broker_now_ms() >= c->deadline) {
		client_lose_socket(c);
		client_try_later(c);
		return;
	}
	vb_mutex_lock(&c->lock, VB_RANK_BROKER);
	if (c->state == ATTACHED && c->want_out)
		vb_outgoing_flush(c);
	vb_mutex_unlock(&c->lock);
}

static void client_step(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg)
{
	switch (c->state) {
	case AWAY:
		if (vb_broker_now_ms() >= c->deadline)
			client_step_away(c);
		break;
	case STARTING:
		client_step_starting(c);
		break;
	case ATTACHING:
	case ATTACHED:
		client_step_connected(c, ops, arg);
		break;
	}
}

void vb_broker_dispatch(struct vb_broker_client *c, const struct vb_broker_ops *ops, void *arg)
{
	client_step(c, ops, arg);
	if (c->state == AWAY && vb_broker_now_ms() >= c->deadline)
		client_step(c, ops, arg); /* reconnect to a lost broker at once */
	struct vb_broker_client *network = atomic_load_explicit(&c->network, memory_order_relaxed);
	if (network)
		vb_broker_dispatch(network, ops, arg);
}

/* ---- connect and disconnect ---- */

static bool is_final_error(int err)
{
	return err && err != ECONNRESET && err != EAGAIN;
}

static int connect_until(struct vb_broker_client *c, int64_t until)
{
	while (c->state != ATTACHED) {
		client_step(c, NULL, NULL);
		if (c->state == ATTACHED)
			break;
		if (c->state == AWAY && is_final_error(c->error))
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

struct vb_broker_client *vb_client_new(const struct vb_attach_fds *fds)
{
	struct vb_broker_client *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll_fd < 0) {
		free(c);
		return NULL;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->fds = *fds;
	c->owner = getpid();
	c->sock = c->ready_fd = c->lock_fd = -1;
	c->pending_tail = &c->pending;
	c->backoff_ms = FIRST_BACKOFF_MS;
	return c;
}

int vb_broker_connect(const struct vb_attach_fds *fds, struct vb_broker_client **out)
{
	int64_t until = vb_broker_now_ms() + CONNECT_MS;
	struct vb_broker_client *c = vb_client_new(fds);

	if (!c)
		return errno;
	int err = connect_until(c, until);
	if (err) {
		vb_broker_disconnect(c);
		return err;
	}
	struct vb_broker_client *network = atomic_load_explicit(&c->network, memory_order_relaxed);
	if (network) /* without it there is no RoCE, but the same-host path; dispatch tries again */
		connect_until(network, until);
	*out = c;
	return 0;
}

static void send_detach(struct vb_broker_client *c)
{
	struct vb_msg_head bye = vb_outgoing_head(VB_MSG_DETACH, sizeof(bye));

	if (c->sock < 0)
		return;
	vb_outgoing_send(c->sock, &bye, sizeof(bye));
	shutdown(c->sock, SHUT_RDWR); /* forked children that inherited the socket would keep it open */
}

void vb_broker_disconnect(struct vb_broker_client *c)
{
	if (!c)
		return;
	vb_broker_disconnect(atomic_load(&c->network));
	/* a forked child shares the epoll set and the socket with its parent */
	if (c->owner == getpid())
		send_detach(c);
	vb_outgoing_drop(c);
	const int fds[] = {c->sock, c->ready_fd, c->lock_fd, c->epoll_fd};
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}
