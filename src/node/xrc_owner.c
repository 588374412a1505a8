// xrc_owner.c - lets other processes of this user open the XRC targets of this one
// follows: ibv_open_qp(3), ibv_modify_qp(3), ibv_query_qp(3); unix(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/proto/runtime.h"
#include "core/verbs.h"
#include "frame/fields.h"
#include "node/xrc_far.h"
#include "util/log.h"
#include "util/runtime.h"
#include "util/thread_root.h"

/*
 * A thread serves them, because ibv_modify_qp may wait for the progress thread. It begins with the first target in a
 * domain of a file, and ends with the node.
 */
#define OPENERS 256u /* connections of other processes at a time */
#define BACKLOG 64
#define SHORTAGE 100 /* ms: until the next try, if a connection cannot be accepted */

struct opener {
	int fd, events;
	struct vb_qp *handle; /* NULL: it has not opened a target yet */
};

struct vb_xrc_owner {
	struct vb_node *node;
	pthread_t thread;
	int dir_fd, listener, wake;
	bool shortage; /* of descriptors or memory: the listener stays readable */
	pid_t pid;
	atomic_bool stop;
	bool orphan;   /* the node ended with a handle that the thread itself has closed */
	atomic_uint n; /* a child of fork() finds this many openers, at any moment */
	struct opener *openers[OPENERS];
};

/* --- names, for both ends --- */

int vb_xrc_dir_open(void)
{
	char dir[256];
	int err = vb_runtime_dir(dir, sizeof(dir));

	if (err) {
		errno = err;
		return -1;
	}
	return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void name_of(char *name, size_t size, uint32_t lane)
{
	snprintf(name, size, VB_XRC_NAME, (unsigned long long)vb_runtime_network(), lane);
}

void vb_xrc_socket_of(struct sockaddr_un *sun, int dir_fd, uint32_t lane)
{
	char name[48];

	name_of(name, sizeof(name), lane);
	*sun = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(sun->sun_path, sizeof(sun->sun_path), "/proc/thread-self/fd/%d/%s", dir_fd, name);
}

bool vb_xrc_is_ours(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && cred.uid == geteuid() &&
	       vb_uid_is_known(cred.uid);
}

/* --- one opener --- */

static void close_if_any(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Under progress + sq_lock. An opener that does not read its events loses them. */
static void tell_opener(struct vb_qp *handle, enum ibv_event_type type)
{
	const struct opener *op = handle->qp.qp_context;
	const struct vb_xrc_event ev = {.type = (uint32_t)type};

	if (send(op->events, &ev, sizeof(ev), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		vb_log(VB_LOG_DEBUG, "an opener of XRC target %u does not take event %u", handle->qp.qp_num, type);
}

static void opener_end(struct opener *op)
{
	if (op->handle)
		vb_xrc_handle_close(op->handle);
	close_if_any(op->fd);
	close_if_any(op->events);
	free(op);
}

/* The descriptor that came with the question; those beyond one are not received. */
static int descriptor_of(struct msghdr *msg)
{
	int fd = -1;

	for (struct cmsghdr *m = CMSG_FIRSTHDR(msg); m; m = CMSG_NXTHDR(msg, m))
		if (m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS && m->cmsg_len >= CMSG_LEN(sizeof(int)))
			memcpy(&fd, CMSG_DATA(m), sizeof(fd));
	return fd;
}

/* Events are sent under locks of the data path. Sending to such a socket need not wait. */
static bool takes_events(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain == AF_UNIX &&
	       !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_SEQPACKET;
}

/* Returns false if the connection is over. */
static bool hear_question(struct opener *op, struct vb_xrc_ask *ask)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {ask, sizeof(*ask)};
	struct msghdr msg = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
	ssize_t n = recvmsg(op->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int fd = n < 0 ? -1 : descriptor_of(&msg);

	if (n != sizeof(*ask) || (msg.msg_flags & MSG_TRUNC) || ask->version != VB_XRC_FAR_VERSION ||
	    (fd >= 0 && (op->events >= 0 || !takes_events(fd)))) {
		close_if_any(fd);
		return false;
	}
	if (fd >= 0)
		op->events = fd;
	return true;
}

static int open_for(struct vb_xrc_owner *o, struct opener *op, const struct vb_xrc_ask *ask)
{
	if (op->handle || op->events < 0 || ask->qpn > VB_QPN_MASK)
		return EINVAL;
	return vb_xrc_handle_for(o->node, &ask->id, ask->qpn, tell_opener, op, &op->handle);
}

/* The opener's CLOSE is answered when the handle is closed, as ibv_destroy_qp returns then. */
static int close_for(struct opener *op)
{
	struct vb_qp *handle = op->handle;

	op->handle = NULL;
	if (handle)
		vb_xrc_handle_close(handle);
	return 0;
}

static void answer_question(struct vb_xrc_owner *o, struct opener *op, struct vb_xrc_ask *ask, struct vb_xrc_answer *a)
{
	struct ibv_qp_init_attr init;
	struct vb_qp *h = op->handle;

	if (ask->question == VB_XRC_OPEN)
		a->err = open_for(o, op, ask);
	else if (ask->question == VB_XRC_MODIFY && h)
		a->err = vb_modify_qp(&h->qp, &ask->attr, ask->mask);
	else if (ask->question == VB_XRC_QUERY && h)
		a->err = vb_query_qp(&h->qp, &a->attr, ask->mask, &init);
	else if (ask->question == VB_XRC_CLOSE)
		a->err = close_for(op);
	else
		a->err = EINVAL;
	if (op->handle)
		a->state = __atomic_load_n(&op->handle->qp.state, __ATOMIC_RELAXED);
}

/* Returns false if the connection is over. */
static bool serve_opener(struct vb_xrc_owner *o, struct opener *op)
{
	struct vb_xrc_answer a = {0};
	struct vb_xrc_ask ask;

	if (!hear_question(op, &ask))
		return false;
	answer_question(o, op, &ask, &a);
	return send(op->fd, &a, sizeof(a), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(a);
}

/* --- all openers --- */

static void accept_opener(struct vb_xrc_owner *o)
{
	int fd = accept4(o->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	o->shortage = fd < 0 && errno != EAGAIN && errno != ECONNABORTED;
	struct opener *op = fd >= 0 && o->n < OPENERS && vb_xrc_is_ours(fd) ? calloc(1, sizeof(*op)) : NULL;

	if (!op) {
		close_if_any(fd);
		return;
	}
	*op = (struct opener){.fd = fd, .events = -1};
	o->openers[o->n] = op;
	o->n++;
}

/* An opener that goes leaves its place to the last one. */
static void serve_all(struct vb_xrc_owner *o, const struct pollfd *ready, unsigned n)
{
	for (unsigned i = n; i-- && !o->orphan;)
		if (ready[i].revents && !serve_opener(o, o->openers[i])) {
			struct opener *gone = o->openers[i];

			o->openers[i] = o->openers[o->n - 1];
			o->n--;
			opener_end(gone);
		}
}

static void owner_free(struct vb_xrc_owner *o)
{
	while (o->n) {
		struct opener *gone = o->openers[o->n - 1];

		o->n--;
		opener_end(gone);
	}
	close_if_any(o->listener);
	close_if_any(o->wake);
	close_if_any(o->dir_fd);
	free(o);
}

static void *owner_thread(void *arg)
{
	struct vb_xrc_owner *o = arg;
	struct pollfd p[2 + OPENERS];

	VB_THREAD_ROOT();
	vb_lock_never_favourite();
	while (!atomic_load(&o->stop) && !o->orphan) {
		unsigned n = o->n;

		p[0] = (struct pollfd){.fd = o->wake, .events = POLLIN};
		p[1] = (struct pollfd){.fd = n < OPENERS && !o->shortage ? o->listener : -1, .events = POLLIN};
		for (unsigned i = 0; i < n; i++)
			p[2 + i] = (struct pollfd){.fd = o->openers[i]->fd, .events = POLLIN};
		int ready = poll(p, 2 + n, o->shortage ? SHORTAGE : -1);

		o->shortage = false;
		if (ready <= 0)
			continue;
		serve_all(o, p + 2, n);
		if (p[1].revents && !o->orphan)
			accept_opener(o);
	}
	if (o->orphan)
		owner_free(o);
	return NULL;
}

/* --- beginning and end --- */

/* The lane is this process's, so what has the name is of a process that has ended. */
static int listen_as(struct vb_xrc_owner *o)
{
	struct sockaddr_un sun;
	char name[48];

	o->dir_fd = vb_xrc_dir_open();
	if (o->dir_fd < 0)
		return errno;
	o->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	o->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (o->listener < 0 || o->wake < 0)
		return errno;
	name_of(name, sizeof(name), o->node->lane);
	unlinkat(o->dir_fd, name, 0);
	vb_xrc_socket_of(&sun, o->dir_fd, o->node->lane);
	if (fchmod(o->listener, 0600) || bind(o->listener, (struct sockaddr *)&sun, sizeof(sun)) ||
	    listen(o->listener, BACKLOG))
		return errno;
	return 0;
}

static int start_owner_thread(struct vb_xrc_owner *o)
{
	pthread_attr_t attr;
	sigset_t all, old;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* as in node/thread.c */
	sigdelset(&all, SIGBUS);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 512 << 10);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&o->thread, &attr, owner_thread, o);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (!err)
		pthread_setname_np(o->thread, "verbena-xrc");
	return err;
}

/* Under ctx_lock. */
static struct vb_xrc_owner *owner_new(struct vb_node *node)
{
	struct vb_xrc_owner *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	*o = (struct vb_xrc_owner){.node = node, .pid = getpid(), .dir_fd = -1, .listener = -1, .wake = -1};
	int err = listen_as(o);

	if (!err)
		err = start_owner_thread(o);
	if (!err)
		return o;
	vb_log(VB_LOG_INFO, "other processes cannot open the XRC targets of this one: %s", strerror(err));
	owner_free(o);
	return NULL;
}

void vb_xrc_offer(struct vb_node *node)
{
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	if (!node->io->xrc)
		node->io->xrc = owner_new(node);
	vb_mutex_unlock(&node->ctx_lock);
}

void vb_xrc_owner_remove_name(const struct vb_xrc_owner *o)
{
	char name[48];

	if (!o || o->pid != getpid())
		return;
	name_of(name, sizeof(name), o->node->lane);
	unlinkat(o->dir_fd, name, 0);
}

void vb_xrc_owner_stop(struct vb_xrc_owner *o)
{
	if (!o)
		return;
	vb_xrc_owner_remove_name(o);
	if (pthread_equal(pthread_self(), o->thread)) {
		pthread_detach(o->thread);
		o->orphan = true;
		return;
	}
	atomic_store(&o->stop, true);
	eventfd_write(o->wake, 1);
	pthread_join(o->thread, NULL);
	owner_free(o);
}

/* What the parent's thread was doing is unknown, so nothing is freed. The connections are the parent's, and end with it. */
void vb_xrc_owner_in_child(struct vb_xrc_owner *o)
{
	if (!o)
		return;
	close_if_any(o->listener);
	for (unsigned i = 0; i < o->n && i < OPENERS; i++) {
		close_if_any(o->openers[i]->fd);
		close_if_any(o->openers[i]->events);
	}
}
