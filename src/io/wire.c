// wire.c - the sockets of this process: its lane of UDP port 4791, which the broker gives, and its senders
// follows: IBA annex A17 (RoCEv2); ARCHITECTURE.md, "The wire"
// SPDX-License-Identifier: MIT
#include "io/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "util/log.h"

#define ASK_AGAIN 1000000000ull /* ns: a refusal is worth this long */

enum vb_wire_mode vb_wire_mode(void)
{
	static atomic_int known; /* 1 + mode */
	int mode = atomic_load(&known) - 1;

	if (mode >= 0)
		return (enum vb_wire_mode)mode;
	const char *text = getenv("VERBENA_WIRE");

	mode = VB_WIRE_MODE_AUTO;
	if (text && !strcmp(text, "always"))
		mode = VB_WIRE_MODE_ALWAYS;
	else if (text && !strcmp(text, "never"))
		mode = VB_WIRE_MODE_NEVER;
	else if (text && *text && strcmp(text, "auto") != 0)
		vb_log(VB_LOG_ERROR, "VERBENA_WIRE is auto, always or never, not \"%s\"", text);
	atomic_store(&known, 1 + mode);
	return (enum vb_wire_mode)mode;
}

struct vb_wire_sockets *vb_wire_sockets_new(struct vb_node *node)
{
	struct vb_wire_sockets *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->node = node;
	s->lane_fd = s->lifeline_fd = -1;
	return s;
}

void vb_wire_sockets_free(struct vb_wire_sockets *s)
{
	if (!s)
		return;
	atomic_store(&s->up, false);
	for (int i = 0; i < VB_TX_COUNT; i++)
		vb_tx_free(s->tx[i]);
	vb_wire_rx_free(s->rx);
	vb_wire_forward_free(s);
	if (s->lane_fd >= 0) {
		/* others hold the lane too: closing alone would leave it in the set */
		epoll_ctl(s->node->io->epoll_fd, EPOLL_CTL_DEL, s->lane_fd, NULL);
		close(s->lane_fd);
	}
	if (s->lifeline_fd >= 0)
		close(s->lifeline_fd);
	free(s);
}

void vb_wire_in_child(struct vb_node *node)
{
	if (node->io->wire)
		atomic_store(&node->io->wire->up, false);
}

void vb_wire_watch(struct vb_node *node, bool watch)
{
	struct vb_wire_sockets *s = node->io->wire;
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &node->io->wire};

	/* out of the set altogether: one that asks for nothing is still told of each packet by its sender */
	if (s && s->lane_fd >= 0)
		epoll_ctl(node->io->epoll_fd, watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->lane_fd, &ev);
}

/* --- the lane --- */

/* Takes the descriptor over, whatever comes of it. */
static int open_lane(struct vb_node *node, struct vb_wire_sockets *s, int lane_fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &node->io->wire};
	bool whole = (s->rx = vb_wire_rx_new(lane_fd)) != NULL;
	int err = 0;

	for (int i = 0; i < VB_TX_COUNT; i++)
		whole = (s->tx[i] = vb_tx_new(s)) != NULL && whole;
	if (!whole) {
		vb_wire_rx_free(s->rx);
		s->rx = NULL;
		for (int i = 0; i < VB_TX_COUNT; i++) {
			vb_tx_free(s->tx[i]);
			s->tx[i] = NULL;
		}
		close(lane_fd);
		return ENOMEM;
	}
	vb_lock(&node->progress);
	s->lane_fd = lane_fd;
	if (atomic_load(&node->duty) == VB_DUTY_ADAPTER && epoll_ctl(node->io->epoll_fd, EPOLL_CTL_ADD, lane_fd, &ev))
		err = errno;
	vb_unlock(&node->progress);
	return err;
}

static void say(int err, uid_t holder_uid, int holder_pid)
{
	static atomic_bool said;

	if (atomic_exchange(&said, true))
		return;
	if (holder_pid)
		vb_log(VB_LOG_WARN, "UDP port 4791 is held by process %d of uid %d: other hosts cannot be reached", holder_pid,
		       (int)holder_uid);
	else
		vb_log(VB_LOG_WARN, "no lane of UDP port 4791 (%s%s): other hosts cannot be reached", strerror(err),
		       err == EADDRINUSE ? "; does rxe, or another user's Verbena, hold it?" : "");
}

void vb_wire_answered(struct vb_node *node, int err, int lane_fd, int lifeline_fd, uid_t holder_uid, int holder_pid)
{
	struct vb_io *io = node->io;
	struct vb_wire_sockets *s = io->wire;

	if (s->asked == VB_LANE_HELD_BY_US) { /* asked twice, over two brokers: of which the second may have said no */
		if (!err) {
			close(lane_fd);
			close(lifeline_fd);
		}
		return;
	}
	if (!err) {
		s->lifeline_fd = lifeline_fd;
		err = open_lane(node, s, lane_fd);
	}
	if (err && err != ETIMEDOUT)
		say(err, holder_uid, holder_pid);
	pthread_mutex_lock(&io->meet_lock);
	s->err = err;
	s->asked = err ? VB_LANE_REFUSED : VB_LANE_HELD_BY_US;
	s->asked_at = vb_now();
	atomic_store(&s->up, !err);
	pthread_cond_broadcast(&io->meet_cond);
	pthread_mutex_unlock(&io->meet_lock);
	io->way_news = true;
}

void vb_wire_reattached(struct vb_node *node)
{
	struct vb_io *io = node->io;

	pthread_mutex_lock(&io->meet_lock);
	if (io->wire->asked == VB_LANE_ASKED)
		vb_broker_wire(io->broker);
	pthread_mutex_unlock(&io->meet_lock);
}

static void after(struct timespec *t, unsigned ms)
{
	clock_gettime(CLOCK_MONOTONIC, t);
	t->tv_sec += ms / 1000;
	t->tv_nsec += ms % 1000 * 1000000l;
	if (t->tv_nsec >= 1000000000l) {
		t->tv_sec++;
		t->tv_nsec -= 1000000000l;
	}
}

/* Asks where it must, and waits. Under meet_lock. */
static int ask(struct vb_node *node, const struct timespec *until, bool wait)
{
	struct vb_io *io = node->io;
	struct vb_wire_sockets *s = io->wire;

	if (s->asked == VB_LANE_UNASKED || (s->asked == VB_LANE_REFUSED && vb_now() - s->asked_at > ASK_AGAIN && s->lane_fd < 0)) {
		s->asked = VB_LANE_ASKED;
		vb_broker_wire(io->broker); /* away: asked again when it is back */
	}
	while (s->asked == VB_LANE_ASKED && wait)
		if (pthread_cond_timedwait(&io->meet_cond, &io->meet_lock, until))
			break;
	return s->asked == VB_LANE_HELD_BY_US ? 0 : s->asked == VB_LANE_ASKED ? EAGAIN : s->err;
}

int vb_wire_up(struct vb_node *node, unsigned wait_ms)
{
	const struct timespec pause = {0, ASK_AGAIN / 4};
	uint64_t end = vb_now() + wait_ms * 1000000ull;
	struct timespec until;
	int err;

	if (vb_wire_mode() == VB_WIRE_MODE_NEVER)
		return ENETUNREACH;
	if (atomic_load_explicit(&node->io->wire->up, memory_order_acquire))
		return 0;
	after(&until, wait_ms);
	for (;;) {
		pthread_mutex_lock(&node->io->meet_lock);
		err = ask(node, &until, wait_ms);
		pthread_mutex_unlock(&node->io->meet_lock);
		if (err != ETIMEDOUT || !wait_ms)
			return err;
		if (vb_now() >= end)
			break;
		nanosleep(&pause, NULL); /* who owns the sockets was too busy to answer the broker */
	}
	say(err, 0, 0);
	return err;
}
