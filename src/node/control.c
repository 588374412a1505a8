// control.c - the control socket: how a person asks a running program
// follows: unix(7); docs/control.md
// SPDX-License-Identifier: MIT
#include "node/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/proto/runtime.h"
#include "node/control_verbs.h"
#include "node/io.h"
#include "node/stat.h"
#include "util/control_dir.h"
#include "util/env.h"
#include "util/tally.h"
#include "util/log.h"
#include "util/timespec.h"
#include "util/units.h"

#define CLIENTS_MAX 8u
#define REQUEST_MAX 4096u
#define PATIENCE VB_S(5) /* ns: a client that has not sent its request, or not read the answer by then, is dropped */
#define RETRY VB_S(1)    /* ns: from a client that could not be accepted, for want of a descriptor, to the next try */
#define BACKLOG 16
#define SWEEP_MOST 16u /* names of other processes that a start looks at */

/* A connection. It belongs to the progress thread. */
struct client {
	struct vb_watch watch; /* watch.fd is -1: unused */
	struct vb_control *control;
	uint64_t until; /* ns */
	int fd;         /* received; or -1 */
	size_t got, sent;
	struct vb_text answer; /* empty while the request is incomplete */
	char request[REQUEST_MAX];
};

struct vb_control {
	struct vb_node *node;
	struct vb_watch listener, timer;
	bool paused;    /* nobody can be accepted: the listener is not watched */
	uint64_t retry; /* ns: when accepting is tried again; 0: not before a client goes */
	int dir_fd;
	pid_t pid; /* who may remove the name: not a child that does not know that it is one */
	char name[VB_CONTROL_NAME];
	struct client *clients[CLIENTS_MAX];
};

/* --- one client --- */

static unsigned client_count(const struct vb_control *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		n += c->clients[i] != NULL;
	return n;
}

/* The number is forgotten first, because a child of fork() closes those that it sees. */
static void close_number(int *at)
{
	int fd = *at;

	*at = -1;
	atomic_signal_fence(memory_order_seq_cst);
	if (fd >= 0)
		close(fd);
}

/* For the client that is dropped first, and the next try to accept one. */
static void set_timer(struct vb_control *c)
{
	uint64_t first = c->retry;
	struct itimerspec at = {0}; /* never */

	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (c->clients[i] && (!first || c->clients[i]->until < first))
			first = c->clients[i]->until;
	if (first)
		at.it_value = vb_timespec_of(first);
	timerfd_settime(c->timer.fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void resume_accepting(struct vb_control *c)
{
	c->retry = 0;
	if (c->paused && !vb_watch_change(c->node, &c->listener, EPOLLIN))
		c->paused = false;
}

static void client_free(struct client *cl)
{
	close_number(&cl->watch.fd);
	close_number(&cl->fd);
	vb_text_free(&cl->answer);
	free(cl);
}

static void client_drop(struct client *cl)
{
	struct vb_control *c = cl->control;

	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (c->clients[i] == cl)
			c->clients[i] = NULL;
	vb_watch_remove(c->node, &cl->watch);
	client_free(cl);
	resume_accepting(c);
	set_timer(c);
}

/* Sends what the socket takes. The answer's end is the end of the stream. */
static void push_answer(struct client *cl)
{
	while (cl->sent < cl->answer.len) {
		ssize_t n = send(cl->watch.fd, cl->answer.at + cl->sent, cl->answer.len - cl->sent,
		                 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			if (vb_watch_change(cl->control->node, &cl->watch, EPOLLOUT))
				client_drop(cl);
			return;
		}
		if (n <= 0)
			break;
		cl->sent += (size_t)n;
	}
	client_drop(cl);
}

static void begin_answer(struct client *cl)
{
	struct vb_control_call call = {
	        .node = cl->control->node, .fd = cl->fd, .out = &cl->answer, .args = cl->request};

	cl->fd = -1;
	vb_control_serve(&call);
	cl->fd = call.fd;
	if (cl->answer.len)
		push_answer(cl);
	else
		client_drop(cl);
}

/* The descriptor of the message; those beyond one are not received, because there is no room for them. */
static void keep_descriptor(struct client *cl, struct msghdr *msg)
{
	for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m; m = CMSG_NXTHDR(msg, m)) {
		if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_RIGHTS || m->cmsg_len < CMSG_LEN(sizeof(int)))
			continue;
		close_number(&cl->fd);
		memcpy(&cl->fd, CMSG_DATA(m), sizeof(cl->fd));
	}
}

static void read_request(struct client *cl)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {cl->request + cl->got, REQUEST_MAX - 1 - cl->got};
	struct msghdr msg = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t n = recvmsg(cl->watch.fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n >= 0)
		keep_descriptor(cl, &msg);
	if (n <= 0) {
		client_drop(cl);
		return;
	}
	char *end = memchr(cl->request + cl->got, '\n', (size_t)n);
	cl->got += (size_t)n;
	if (end) {
		*end = '\0';
		begin_answer(cl);
	} else if (cl->got == REQUEST_MAX - 1) {
		client_drop(cl);
	}
}

static void on_client(struct vb_watch *w, uint32_t events)
{
	struct client *cl = VB_UPCAST(w, struct client, watch);

	if (cl->answer.len)
		push_answer(cl);
	else
		read_request(cl);
}

static void on_timer(struct vb_watch *w, uint32_t events)
{
	struct vb_control *c = VB_UPCAST(w, struct vb_control, timer);
	uint64_t expired, now = vb_now();

	(void)!read(w->fd, &expired, sizeof(expired));
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (c->clients[i] && c->clients[i]->until <= now)
			client_drop(c->clients[i]);
	if (c->retry && c->retry <= now)
		resume_accepting(c);
	set_timer(c);
}

/* --- new clients --- */

/* Root, and a user who may trace this program. A user may not trace a program that has more privileges than he, even if
 * it has his user id: one with a set-group-ID bit or file capabilities. */
static bool may_ask(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	if (cred.uid == 0)
		return true;
	return cred.uid == geteuid() && vb_uid_is_known(cred.uid) && !vb_env_is_hostile() &&
	       prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1;
}

static void client_new(struct vb_control *c, int sock)
{
	struct client *cl = may_ask(sock) ? calloc(1, sizeof(*cl)) : NULL;
	unsigned i = 0;

	if (!cl) {
		close(sock);
		return;
	}
	*cl = (struct client){.control = c, .fd = -1, .until = vb_now() + PATIENCE};
	cl->watch = (struct vb_watch){.fd = sock, .fn = on_client};
	if (vb_watch_add(c->node, &cl->watch, EPOLLIN)) {
		client_free(cl);
	} else {
		while (c->clients[i])
			i++;
		c->clients[i] = cl;
	}
	set_timer(c);
}

/* Accepts what it can. Returns 0 if nobody waits any more, EBUSY if all places are taken, or why the next client cannot be
 * accepted, such as EMFILE. */
static int accept_clients(struct vb_control *c)
{
	for (unsigned n = client_count(c); n < CLIENTS_MAX; n = client_count(c)) {
		int sock = accept4(c->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (sock < 0)
			return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? 0 : errno;
		client_new(c, sock);
		if (client_count(c) == n)
			return 0; /* it was refused; the next event shows whether there are more */
	}
	return EBUSY;
}

static void on_listener(struct vb_watch *w, uint32_t events)
{
	struct vb_control *c = VB_UPCAST(w, struct vb_control, listener);
	int err = accept_clients(c);

	/* Level-triggered: while nobody can be accepted, the socket would wake the thread all the time. */
	if (err && !vb_watch_change(c->node, w, 0))
		c->paused = true;
	if (err && err != EBUSY) {
		c->retry = vb_now() + RETRY;
		set_timer(c);
	}
}

/* --- start and end --- */

/* The socket gets its name when it listens: a start of another program would take it for one of an ended program before.
 * The umask, which bind applies, may lack bits that we need. Only this user writes in the directory. */
static int bind_and_listen(struct vb_control *c, int sock)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	char early[VB_CONTROL_NAME + 1];

	snprintf(early, sizeof(early), ".%s", c->name);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "/proc/thread-self/fd/%d/%s", c->dir_fd, early);
	if (fchmod(sock, 0600) || bind(sock, (struct sockaddr *)&sun, sizeof(sun)))
		return errno;
	if (!fchmodat(c->dir_fd, early, 0600, 0) && !listen(sock, BACKLOG) &&
	    !renameat(c->dir_fd, early, c->dir_fd, c->name))
		return 0;
	int err = errno;
	unlinkat(c->dir_fd, early, 0);
	return err;
}

/* It exists all the time, because it is needed when the program has no descriptors left. */
static int open_timer(struct vb_control *c)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (fd < 0)
		return errno;
	c->timer = (struct vb_watch){.fd = fd, .fn = on_timer};
	return vb_watch_add(c->node, &c->timer, EPOLLIN);
}

static int open_listener(struct vb_control *c)
{
	struct vb_control_name name = {.pid = getpid(), .netns = vb_control_netns()};
	int err = vb_control_dir_open(true, &c->dir_fd);

	if (err)
		return err;
	if (getrandom(&name.number, sizeof(name.number), GRND_NONBLOCK) != sizeof(name.number))
		return EAGAIN;
	vb_control_dir_sweep(c->dir_fd, geteuid(), SWEEP_MOST);
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return errno;
	vb_control_name_write(c->name, &name);
	c->pid = getpid();
	c->listener = (struct vb_watch){.fd = sock, .fn = on_listener};
	err = open_timer(c);
	if (!err)
		err = bind_and_listen(c, sock);
	return err ? err : vb_watch_add(c->node, &c->listener, EPOLLIN);
}

struct vb_control *vb_control_start(struct vb_node *node)
{
	struct vb_control *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	*c = (struct vb_control){.node = node, .listener.fd = -1, .timer.fd = -1, .dir_fd = -1};
	vb_control_add("about", vb_control_about);
	vb_stat_start();
	int err = open_listener(c);
	if (!err)
		return c;
	vb_log(VB_LOG_INFO, "no control socket: %s; 'verbena stat' will not see this program", strerror(err));
	vb_watch_remove(node, &c->timer);
	vb_control_stop(c);
	return NULL;
}

void vb_control_remove_name(struct vb_control *c)
{
	if (c && c->name[0] && c->pid == getpid() && vb_stat_end(c->node, c->dir_fd, c->name))
		vb_tally_end(c->dir_fd, c->name);
}

bool vb_control_place(const struct vb_control *c, int *dir_fd, const char **name)
{
	if (!c || !c->name[0] || c->dir_fd < 0 || c->pid != getpid())
		return false;
	*dir_fd = c->dir_fd;
	*name = c->name;
	return true;
}

void vb_control_stop(struct vb_control *c)
{
	if (!c)
		return;
	vb_control_remove_name(c);
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (c->clients[i])
			client_free(c->clients[i]);
	close_number(&c->listener.fd);
	close_number(&c->timer.fd);
	close_number(&c->dir_fd);
	free(c);
}

/* The parent's progress thread may have been in the middle of anything, such as of a text that grows, so nothing is
 * freed. */
void vb_control_in_child(struct vb_control *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		if (c->clients[i]) {
			close_number(&c->clients[i]->watch.fd);
			close_number(&c->clients[i]->fd);
		}
	close_number(&c->listener.fd);
	close_number(&c->timer.fd);
	close_number(&c->dir_fd);
}
