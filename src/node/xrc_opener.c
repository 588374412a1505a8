// xrc_opener.c - handles of XRC targets that other processes of this user have made
// follows: ibv_open_qp(3), ibv_modify_qp(3), ibv_query_qp(3); unix(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "frame/fields.h"
#include "node/xrc_far.h"

#define PATIENCE 30 /* s: a process that has not answered by then is not asked again */
#define EVENTS 32   /* taken in a row; the others wait until the progress thread comes back */
#define ERRNO_MAX 4095

/* The way to the target of another process. Its questions are asked under the handle's modify_lock. */
struct vb_xrc_far {
	struct vb_watch watch; /* of the target's events */
	struct vb_qp *handle;
	struct vb_node *node;
	int fd;    /* to the target's process; -1: it does not answer */
	pid_t pid; /* not a child that does not know that it is one */
};

/* --- questions --- */

static int connect_to(uint32_t lane, int *out)
{
	const struct timeval patience = {.tv_sec = PATIENCE};
	int dir_fd = vb_xrc_dir_open(), err = 0;
	struct sockaddr_un sun;

	if (dir_fd < 0)
		return EINVAL;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	vb_xrc_socket_of(&sun, dir_fd, lane);
	if (fd < 0)
		err = errno;
	else if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
	         setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) ||
	         connect(fd, (struct sockaddr *)&sun, sizeof(sun)) || !vb_xrc_is_ours(fd))
		err = EINVAL; /* there is no such process, or it has no targets for others */
	close(dir_fd);
	if (err && fd >= 0)
		close(fd);
	*out = err ? -1 : fd;
	return err;
}

/* events: a descriptor to send along, or -1. */
static int send_question(int fd, struct vb_xrc_ask *ask, int events)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {ask, sizeof(*ask)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (events >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_LEN(sizeof(int));
		struct cmsghdr *m = CMSG_FIRSTHDR(&msg);

		*m = (struct cmsghdr){
		        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(m), &events, sizeof(events));
	}
	return sendmsg(fd, &msg, MSG_NOSIGNAL) == sizeof(*ask) ? 0 : EIO;
}

/* Has every field a value that a queue pair can have? The program may use them as indexes. */
static bool is_possible(const struct ibv_qp_attr *a)
{
	const uint32_t numbers = a->rq_psn | a->sq_psn | a->dest_qp_num;

	return (unsigned)a->qp_state <= IBV_QPS_ERR && (unsigned)a->cur_qp_state <= IBV_QPS_ERR &&
	       (unsigned)a->path_mtu <= IBV_MTU_4096 && (unsigned)a->path_mig_state <= IBV_MIG_ARMED &&
	       numbers <= VB_QPN_MASK && a->port_num <= 1 && a->alt_port_num <= 1 && a->ah_attr.port_num <= 1 &&
	       a->timeout < 32 && a->min_rnr_timer < 32 && a->retry_cnt < 8 && a->rnr_retry < 8;
}

static bool is_answer(const struct vb_xrc_answer *a)
{
	return a->err >= 0 && a->err <= ERRNO_MAX && a->state <= IBV_QPS_ERR && is_possible(&a->attr);
}

/* After an error nobody knows which question the next answer is of. Under the handle's modify_lock. */
static int ask_far(struct vb_xrc_far *f, struct vb_xrc_ask *ask, int events, struct vb_xrc_answer *a)
{
	ssize_t n;

	VB_MAY_WAIT();
	if (f->fd < 0)
		return EIO;
	ask->version = VB_XRC_FAR_VERSION;
	int err = send_question(f->fd, ask, events);

	do
		n = err ? -1 : recv(f->fd, a, sizeof(*a), MSG_TRUNC);
	while (!err && n < 0 && errno == EINTR);
	if (n == sizeof(*a) && is_answer(a))
		return a->err;
	close(f->fd);
	f->fd = -1;
	return EIO;
}

static int ask_alone(struct vb_qp *h, struct vb_xrc_ask *ask, struct vb_xrc_answer *a)
{
	/* the others may end the target, and what this process has received must be acknowledged before */
	if (ask->question != VB_XRC_QUERY)
		vb_progress_surely(h->node);
	vb_mutex_lock(&h->modify_lock, VB_RANK_MODIFY);
	int err = ask_far(h->xrc.far, ask, -1, a);
	vb_mutex_unlock(&h->modify_lock);
	return err;
}

static void show_state(struct vb_qp *h, uint32_t state)
{
	__atomic_store_n(&h->qp.state, (enum ibv_qp_state)state, __ATOMIC_RELAXED);
}

static int far_modify(struct vb_qp *h, const struct ibv_qp_attr *attr, int mask)
{
	struct vb_xrc_ask ask = {.question = VB_XRC_MODIFY, .mask = mask};
	struct vb_xrc_answer a;

	/* the struct of an older program ends before rate_limit */
	memcpy(&ask.attr, attr, mask & IBV_QP_RATE_LIMIT ? sizeof(*attr) : offsetof(struct ibv_qp_attr, rate_limit));
	int err = ask_alone(h, &ask, &a);

	if (!err)
		show_state(h, a.state);
	return err;
}

static int far_query(struct vb_qp *h, struct ibv_qp_attr *attr)
{
	struct vb_xrc_ask ask = {.question = VB_XRC_QUERY};
	struct vb_xrc_answer a;
	int err = ask_alone(h, &ask, &a);

	if (err)
		return err;
	memcpy(attr, &a.attr, offsetof(struct ibv_qp_attr, rate_limit));
	show_state(h, a.state);
	return 0;
}

/* --- events --- */

static bool is_of_a_target(uint32_t type)
{
	return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR ||
	       type == IBV_EVENT_COMM_EST || type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

/* The target's process ends: so does the target. */
static void target_is_gone(struct vb_xrc_far *f)
{
	struct vb_qp *h = f->handle;

	vb_watch_remove(f->node, &f->watch);
	show_state(h, IBV_QPS_ERR);
	vb_async_raise(VB_CONTEXT_OF(h), IBV_EVENT_QP_FATAL, &h->qp);
}

/* Progress thread. */
static void on_far_event(struct vb_watch *w, uint32_t events)
{
	struct vb_xrc_far *f = VB_UPCAST(w, struct vb_xrc_far, watch);

	for (unsigned i = 0; i < EVENTS; i++) {
		struct vb_xrc_event ev;
		ssize_t n = recv(w->fd, &ev, sizeof(ev), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n != sizeof(ev)) {
			target_is_gone(f);
			return;
		}
		if (is_of_a_target(ev.type))
			vb_async_raise(VB_CONTEXT_OF(f->handle), (enum ibv_event_type)ev.type, &f->handle->qp);
	}
}

/* --- beginning and end --- */

static int dial(struct vb_xrc_far *f, const struct vb_xrc_id *id)
{
	struct vb_xrc_ask ask = {.question = VB_XRC_OPEN, .qpn = f->handle->qp.qp_num, .id = *id};
	struct vb_xrc_answer a;
	int events[2], err = connect_to(VB_QP_LANE(ask.qpn), &f->fd);

	if (err)
		return err;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, events))
		return errno;
	f->watch = (struct vb_watch){.fd = events[0], .fn = on_far_event};
	err = ask_far(f, &ask, events[1], &a);
	close(events[1]);
	if (!err) {
		show_state(f->handle, a.state);
		err = vb_watch_add(f->node, &f->watch, EPOLLIN);
	}
	return err == EIO ? EINVAL : err; /* it has ended meanwhile */
}

static void far_free(struct vb_xrc_far *f)
{
	if (f->watch.fd >= 0)
		close(f->watch.fd);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

static int far_open(struct vb_qp *h, const struct vb_xrc_id *id)
{
	struct vb_xrc_far *f = calloc(1, sizeof(*f));

	if (!f)
		return ENOMEM;
	*f = (struct vb_xrc_far){.handle = h, .node = h->node, .watch.fd = -1, .fd = -1, .pid = getpid()};
	h->xrc.far = f; /* events may come from now on */
	int err = dial(f, id);

	if (err) {
		h->xrc.far = NULL;
		far_free(f);
	}
	return err;
}

/* Returns when the target's process has closed the handle. A child of fork() leaves it to its parent. */
static void far_close(struct vb_qp *h)
{
	struct vb_xrc_ask ask = {.question = VB_XRC_CLOSE};
	struct vb_xrc_far *f = h->xrc.far;
	struct vb_xrc_answer a;

	if (f->pid == getpid()) {
		vb_watch_remove(f->node, &f->watch);
		ask_alone(h, &ask, &a);
	}
	h->xrc.far = NULL;
	far_free(f);
}

const struct vb_xrc_far_ops vb_xrc_far_ops = {
        .offer = vb_xrc_offer, .open = far_open, .modify = far_modify, .query = far_query, .close = far_close};
