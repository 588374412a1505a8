// hold.c - the broker's hold on the group of RoCE sockets: finds or starts a keeper, asks it for sockets
// follows: unix(7)
// SPDX-License-Identifier: MIT
#include "broker/server/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "broker/server/keeper.h"
#include "broker/server/lanes.h"
#include "broker/server/ports.h"
#include "util/log.h"
#include "util/units.h"

#define KEEPER_S 1       /* timeout of a keeper's answer */
#define FIRST_ANSWER_S 5 /* timeout of a new keeper, which makes the sockets first */
#define TRIES 3
#define GOING_NS VB_MS(10) /* pause while another broker's connection to the keeper ends */
#define GOING_TRIES 100    /* how many such pauses */
#define TIMED_OUT_MS 1000
#define PAUSE_MS 100 /* after a failure: a program that asks endlessly must not keep others from being served */

void vb_hold_init(struct vb_hold *h, enum vb_lanes_mode mode)
{
	*h = (struct vb_hold){.mode = mode, .sock = -1, .lifeline = -1, .lane0 = -1};
}

static void hold_close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void vb_hold_close(struct vb_hold *h)
{
	if (h->group) {
		vb_lanes_close(h->group);
		free(h->group);
		h->lane0 = -1;
	}
	hold_close_fd(&h->lane0);
	hold_close_fd(&h->lifeline);
	hold_close_fd(&h->sock);
	void (*ended)(void *) = h->ended;
	void *of = h->ended_of;

	vb_hold_init(h, h->mode);
	h->ended = ended;
	h->ended_of = of;
	if (ended)
		ended(of);
}

/* ---- messages to and from the keeper ---- */

static void set_timeouts(int sock, int seconds)
{
	struct timeval tv = {.tv_sec = seconds};

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

static void close_fds(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

/* With a timeout SIGSTOP and SIGCONT interrupt recvmsg, too (signal(7)). */
static ssize_t receive_message(int sock, struct msghdr *mh)
{
	ssize_t len;

	do
		len = recvmsg(sock, mh, MSG_CMSG_CLOEXEC);
	while (len < 0 && errno == EINTR);
	return len;
}

/* Returns 0 with exactly want descriptors, ECONNRESET if the keeper has gone, or another errno. */
static int receive_answer(int sock, struct vb_keeper_answer *m, int *fds, int want)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * 2)];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = m, .iov_len = sizeof(*m)};
	struct msghdr mh = {
	        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)};
	int got[2], n = 0;

	ssize_t len = receive_message(sock, &mh);
	/* the keeper exited with unread messages: reported once, ahead of its last answer */
	if (len < 0 && errno == ECONNRESET)
		len = receive_message(sock, &mh);
	if (len <= 0)
		return len == 0 ? ECONNRESET : errno == EAGAIN ? ETIMEDOUT : errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(got, CMSG_DATA(c), (size_t)n * sizeof(int));
	}
	int err = 0;
	if (len != sizeof(*m) || (mh.msg_flags & MSG_TRUNC))
		err = EPROTO;
	else if (m->err)
		err = m->err > 0 ? m->err : EPROTO;
	else if ((mh.msg_flags & MSG_CTRUNC) || n != want)
		err = EMFILE;
	else if (!m->n || m->n > VB_LANE_COUNT || (m->n & (m->n - 1)))
		err = EPROTO;
	if (err)
		close_fds(got, n);
	else
		memcpy(fds, got, (size_t)n * sizeof(int));
	return err;
}

/* Receives the answer to HELLO. Owns sock in any case. */
static int finish_hello(struct vb_hold *h, int sock, int patience)
{
	struct vb_keeper_answer m;
	int fds[2];

	set_timeouts(sock, patience);
	int err = receive_answer(sock, &m, fds, 2);
	if (err) {
		close(sock);
		return err;
	}
	set_timeouts(sock, KEEPER_S);
	h->sock = sock;
	h->lifeline = fds[0];
	h->lane0 = fds[1];
	h->n = m.n;
	h->given = m.given;
	return 0;
}

static struct vb_keeper_ask ask_of(const struct vb_hold *h, enum vb_keeper_op op, uint32_t lane)
{
	return (struct vb_keeper_ask){.magic = VB_KEEPER_MAGIC, .op = op, .dev = h->dev, .ino = h->ino, .lane = lane};
}

/* ---- finding or starting a keeper ---- */

/* Returns 0, ENOENT (no listener, or none of ours: binding the port will tell), or another errno. */
static int connect_keeper(const struct vb_runtime *rt, int *sock)
{
	struct vb_runtime place;
	int err;

	vb_keeper_runtime(rt, &place);
	err = vb_runtime_connect(&place, sock);
	if (err)
		return err == EAGAIN ? ETIMEDOUT : err == EACCES || err == EPERM ? ENOENT : err;
	fcntl(*sock, F_SETFL, fcntl(*sock, F_GETFL) & ~O_NONBLOCK);
	set_timeouts(*sock, KEEPER_S);
	return 0;
}

/* Returns 0, ENOENT (no keeper), ECONNRESET (it is exiting), EBUSY (it serves another broker of ours), EADDRINUSE, or
 * another errno. */
static int join_keeper_once(struct vb_hold *h, const struct vb_runtime *rt)
{
	struct vb_keeper_ask m = ask_of(h, VB_KEEPER_HELLO, 0);
	int sock = -1, err = connect_keeper(rt, &sock);

	if (err)
		return err;
	err = vb_keeper_send(sock, &m, sizeof(m), NULL, 0);
	if (err) {
		close(sock);
		return err == EPIPE ? ECONNRESET : err;
	}
	return finish_hello(h, sock, KEEPER_S);
}

static int join_keeper(struct vb_hold *h, const struct vb_runtime *rt)
{
	const struct timespec pause = {0, GOING_NS};
	int err = ECONNRESET, resets = 0;

	/* a program may learn of a killed broker before the keeper does */
	for (int i = 0; i < GOING_TRIES && resets < TRIES && (err == ECONNRESET || err == EBUSY); i++) {
		if (err == EBUSY)
			nanosleep(&pause, NULL);
		err = join_keeper_once(h, rt);
		resets += err == ECONNRESET;
	}
	h->unchecked |= !err;
	return err == ECONNRESET || err == EBUSY ? EADDRINUSE : err;
}

static int start_keeper(struct vb_hold *h, const struct vb_runtime *rt)
{
	struct vb_keeper_ask m = ask_of(h, VB_KEEPER_HELLO, 0);
	struct vb_runtime place;
	int sock, err;

	vb_keeper_runtime(rt, &place);
	err = vb_keeper_start(&place, &m, &sock);

	return err ? err : finish_hello(h, sock, FIRST_ANSWER_S);
}

/* Uses at most half of the program's descriptor limit, which is not ours to raise. */
static int open_group_inside(struct vb_hold *h)
{
	struct rlimit lim = {.rlim_cur = 1024};
	int pipe_fd[2] = {-1, -1}, err = 0;

	getrlimit(RLIMIT_NOFILE, &lim);
	h->group = calloc(1, sizeof(*h->group));
	if (!h->group)
		err = ENOMEM;
	if (!err && pipe2(pipe_fd, O_CLOEXEC))
		err = errno;
	hold_close_fd(&pipe_fd[0]); /* nobody waits for the end of this lifeline */
	h->lifeline = pipe_fd[1];
	if (!err)
		err = vb_lanes_open(h->group,
		                    lim.rlim_cur > 2 * VB_LANE_COUNT ? VB_LANE_COUNT : (uint32_t)lim.rlim_cur / 2);
	if (err) {
		vb_hold_close(h);
		return err;
	}
	h->n = h->group->n;
	h->lane0 = h->group->fd[0];
	return 0;
}

static int find_identity(struct vb_hold *h, const struct vb_runtime *rt)
{
	struct stat st;

	if (stat(rt->dir, &st))
		return errno;
	h->dev = st.st_dev;
	h->ino = st.st_ino;
	return 0;
}

static int acquire_group(struct vb_hold *h, const struct vb_runtime *rt, struct vb_holder *who)
{
	if (h->n)
		return 0;
	if (h->mode == VB_LANES_NONE)
		return EOPNOTSUPP;
	if (vb_broker_now_ms() < h->again_at) {
		*who = h->failed_for;
		return h->failed;
	}
	int err = find_identity(h, rt);
	if (!err)
		err = join_keeper(h, rt);
	if (err == ENOENT)
		err = h->mode == VB_LANES_KEEPER ? start_keeper(h, rt) : open_group_inside(h);
	if (err == EADDRINUSE)
		who->known = vb_port_holder(VB_ROCE_PORT, &who->uid);
	if (err) {
		vb_log(VB_LOG_INFO, "broker: no sockets on UDP port %d: %s", VB_ROCE_PORT, strerror(err));
		h->again_at = vb_broker_now_ms() + PAUSE_MS;
		h->failed = err;
		h->failed_for = *who;
	}
	return err;
}

bool vb_hold_adopt(struct vb_hold *h, const struct vb_runtime *rt)
{
	return h->mode != VB_LANES_NONE && !find_identity(h, rt) && !join_keeper(h, rt);
}

/* ---- lanes ---- */

static int give_from_own_group(struct vb_hold *h, uint32_t lane, bool relay, int *fd)
{
	if (relay)
		return EOPNOTSUPP;
	int sock = vb_lanes_give(h->group, lane, false);

	if (sock < 0)
		return EBUSY;
	*fd = fcntl(sock, F_DUPFD_CLOEXEC, 3);
	return *fd < 0 ? errno : 0;
}

static int ask_keeper_to_give(struct vb_hold *h, uint32_t lane, bool relay, int *fd)
{
	struct vb_keeper_ask m = ask_of(h, relay ? VB_KEEPER_RELAY : VB_KEEPER_GIVE, lane);
	struct vb_keeper_answer in;

	if (h->group)
		return give_from_own_group(h, lane, relay, fd);
	int err = vb_keeper_send(h->sock, &m, sizeof(m), NULL, 0);
	return err ? err : receive_answer(h->sock, &in, fd, 1);
}

/* The keeper gets no processor time: does not wait for it again at once. */
static void rest(struct vb_hold *h, int err, const struct vb_holder *holder)
{
	h->again_at = vb_broker_now_ms() + TIMED_OUT_MS;
	h->failed = err;
	h->failed_for = *holder;
}

int vb_hold_give(struct vb_hold *h, const struct vb_runtime *rt, uint32_t lane, bool relay, int *fd,
                 struct vb_holder *holder)
{
	bool timed_out = false;
	int err = EPIPE;

	*holder = (struct vb_holder){0};
	for (int i = 0; i < 2 && (err == EPIPE || err == ECONNRESET); i++) {
		err = acquire_group(h, rt, holder);
		if (!err) {
			vb_lane_set_add(&h->given,
			                lane); /* even if the answer gets lost: the lane is taken back then */
			err = ask_keeper_to_give(h, lane, relay, fd);
			timed_out = err == ETIMEDOUT;
		}
		/* the keeper has died, or its answers no longer match our questions: start afresh */
		if (err && h->n && !h->group && err != EMFILE && err != EBUSY)
			vb_hold_close(h);
	}
	if (timed_out)
		rest(h, err, holder);
	if (err != EADDRINUSE)
		*holder = (struct vb_holder){0};
	return err;
}

void vb_hold_take_back(struct vb_hold *h, uint32_t lane, enum vb_groups_left left)
{
	struct vb_keeper_ask m = ask_of(h, VB_KEEPER_TAKE_BACK, lane);

	if (!h->n || !vb_lane_set_has(&h->given, lane))
		return;
	vb_lane_set_remove(&h->given, lane);
	m.left = left;
	if (h->group)
		vb_groups_take_back(h->group, lane, left);
	else if (vb_keeper_send(h->sock, &m, sizeof(m), NULL, 0))
		vb_hold_close(h);
}

/* The keeper serves messages in order. */
void vb_hold_settle(struct vb_hold *h)
{
	struct vb_keeper_ask m = ask_of(h, VB_KEEPER_SETTLE, 0);
	struct vb_keeper_answer in;
	int none[2];

	if (!h->n || h->group)
		return;
	int err = vb_keeper_send(h->sock, &m, sizeof(m), NULL, 0);

	if (!err)
		err = receive_answer(h->sock, &in, none, 0);
	if (err)
		vb_hold_close(h);
	if (err == ETIMEDOUT)
		rest(h, err, &(struct vb_holder){0});
}

void vb_hold_group(struct vb_hold *h, uint32_t lane, const uint8_t group[16], uint32_t ifindex, bool join)
{
	struct vb_keeper_ask m = ask_of(h, join ? VB_KEEPER_JOIN : VB_KEEPER_LEAVE, lane);

	m.ifindex = ifindex;
	memcpy(m.group, group, sizeof(m.group));
	if (h->n && !h->group && vb_keeper_send(h->sock, &m, sizeof(m), NULL, 0))
		vb_hold_close(h);
}
