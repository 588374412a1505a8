// sockets.c - the sockets of this process: its lane of UDP port 4791, which the broker provides, and its senders
// follows: IBA annex A17 (RoCEv2); docs/roce.md
// SPDX-License-Identifier: MIT
#include "path/roce/roce.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "broker/proto/proto.h"
#include "net/packet_ring.h"
#include "path/wire_mode.h"
#include "util/log.h"
#include "util/timespec.h"
#include "util/units.h"

#define ASK_AGAIN VB_S(1) /* ns; pause before we ask again after a refusal or a lost channel */

struct vb_roce_sockets *vb_roce_sockets_new(struct vb_node *node)
{
	struct vb_roce_sockets *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->node = node;
	s->lane_fd = s->lifeline_fd = -1;
	return s;
}

static struct vb_transport *transport_of_sockets(const struct vb_roce_sockets *s)
{
	return s ? &s->node->io->transport[s->framed ? VB_TRANSPORT_IB : VB_TRANSPORT_ROCE] : NULL;
}

void vb_roce_sockets_free(struct vb_roce_sockets *s)
{
	if (!s)
		return;
	atomic_store(&s->up, false);
	vb_roce_ring_close(s);
	for (int i = 0; i < VB_TX_COUNT; i++)
		vb_tx_free(s->tx[i]);
	vb_roce_rx_free(s->rx);
	vb_roce_forward_free(s);
	if (s->lane_fd >= 0) {
		/* the keeper has the same socket open, so close() alone would leave it in the epoll set */
		epoll_ctl(s->node->io->epoll_fd, EPOLL_CTL_DEL, s->lane_fd, NULL);
		close(s->lane_fd);
	}
	if (s->lifeline_fd >= 0)
		close(s->lifeline_fd);
	free(s);
}

void vb_roce_in_child(struct vb_node *node)
{
	if (node->io->roce)
		atomic_store(&node->io->roce->up, false);
}

void vb_roce_watch_sockets(struct vb_roce_sockets *s, bool watch)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = transport_of_sockets(s)};

	/* with an empty event mask instead, the kernel would still do the wake-up work for each packet */
	if (s && s->lane_fd >= 0 && !atomic_load(&s->lost_at))
		epoll_ctl(s->node->io->epoll_fd, watch ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->lane_fd, &ev);
	if (s && watch)
		vb_roce_ring_pause(s);
}

void vb_roce_watch(struct vb_node *node, bool watch)
{
	vb_roce_watch_sockets(node->io->roce, watch);
}

bool vb_roce_socket_crowded(int fd, bool relayed)
{
	uint32_t info[16] = {0};
	socklen_t len = sizeof(info);
	int waits = 0;

	if (relayed)
		return !ioctl(fd, FIONREAD, &waits) && waits > VB_RELAY_CHANNEL / 4;
	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len) || len < 2 * sizeof(info[0]))
		return false;
	return info[SK_MEMINFO_RMEM_ALLOC] > info[SK_MEMINFO_RCVBUF] / 4;
}

/* --- the lane --- */

/* Under progress. */
static int use_lane(struct vb_node *node, struct vb_roce_sockets *s, int lane_fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = transport_of_sockets(s)};

	s->lane_fd = lane_fd;
	if (!s->relayed && !s->framed)
		vb_packet_ring_forget(lane_fd);
	if (atomic_load(&node->owner) == VB_OWNER_THREAD && epoll_ctl(node->io->epoll_fd, EPOLL_CTL_ADD, lane_fd, &ev))
		return errno;
	return 0;
}

/* Takes ownership of the descriptor, also on failure. */
static int open_lane(struct vb_node *node, struct vb_roce_sockets *s, int lane_fd)
{
	bool whole = (s->rx = vb_roce_rx_new(lane_fd, s->relayed)) != NULL;

	for (int i = 0; i < VB_TX_COUNT; i++)
		whole = (s->tx[i] = vb_tx_new(s)) != NULL && whole;
	if (!whole) {
		vb_roce_rx_free(s->rx);
		s->rx = NULL;
		for (int i = 0; i < VB_TX_COUNT; i++) {
			vb_tx_free(s->tx[i]);
			s->tx[i] = NULL;
		}
		close(lane_fd);
		return ENOMEM;
	}
	vb_lock(&node->progress);
	int err = use_lane(node, s, lane_fd);

	vb_unlock(&node->progress);
	return err;
}

struct vb_roce_sockets *vb_roce_sockets_of_port(struct vb_node *node, int fd)
{
	struct vb_roce_sockets *s = vb_roce_sockets_new(node);

	if (!s) {
		close(fd);
		return NULL;
	}
	s->framed = true;
	if (open_lane(node, s, fd)) {
		vb_roce_sockets_free(s);
		return NULL;
	}
	vb_roce_rx_frame(s->rx);
	atomic_store(&s->up, true);
	return s;
}

/* Replaces a channel that has ended, or will end soon, with a new one. */
static int reopen_lane(struct vb_node *node, struct vb_roce_sockets *s, int lane_fd)
{
	vb_lock(&node->progress);
	epoll_ctl(node->io->epoll_fd, EPOLL_CTL_DEL, s->lane_fd, NULL);
	close(s->lane_fd);
	vb_roce_rx_replace(s->rx, lane_fd);
	atomic_store(&s->lost_at, 0);
	int err = use_lane(node, s, lane_fd);

	vb_unlock(&node->progress);
	vb_roce_join_again(node);
	return err;
}

static void warn_no_lane(const struct vb_roce_grant *g)
{
	static atomic_bool said;

	if (atomic_exchange(&said, true))
		return;
	if (g->holder_known)
		vb_log(VB_LOG_ERROR,
		       "UDP port 4791 is held by a process of user %d: other hosts and programs of other users cannot be "
		       "reached. End it (verbena doctor names it); or, if it is that user's Verbena, end both programs and let "
		       "root start \"verbena-broker --stay\", which serves all users",
		       (int)g->holder_uid);
	else
		vb_log(VB_LOG_ERROR,
		       "no lane of UDP port 4791 (%s): other hosts and programs of other users cannot be reached%s",
		       strerror(g->err),
		       g->err == EADDRINUSE
		               ? ". rxe holds it (rmmod rdma_rxe), or another program (verbena doctor names it)"
		               : ". verbena doctor looks for the reason");
}

static void close_grant(const struct vb_roce_grant *g)
{
	if (g->lane_fd >= 0)
		close(g->lane_fd);
	if (g->lifeline_fd >= 0)
		close(g->lifeline_fd);
}

static int take_grant(struct vb_node *node, struct vb_roce_sockets *s, const struct vb_roce_grant *g)
{
	int err;

	if (s->rx) {
		err = reopen_lane(node, s, g->lane_fd);
	} else {
		s->relayed = g->relayed;
		s->nlanes = g->nlanes;
		s->split = g->split;
		err = open_lane(node, s, g->lane_fd);
	}
	if (s->rx && s->lifeline_fd < 0) /* also if epoll_ctl failed: the lane is then polled, and needs the lifeline */
		s->lifeline_fd = g->lifeline_fd;
	else if (g->lifeline_fd >= 0)
		close(g->lifeline_fd);
	return err;
}

void vb_roce_answered(struct vb_node *node, const struct vb_roce_grant *g)
{
	struct vb_io *io = node->io;
	struct vb_roce_sockets *s = io->roce;
	int err = g->err;

	/* We have the lane, and this answers a question that was repeated to a new broker. Ignore a refusal or a second
	 * socket. Accept a second channel, because it has ended the first. */
	if (s->asked == VB_LANE_HELD_BY_US && (err || !g->relayed)) {
		close_grant(g);
		return;
	}
	if (!err && s->rx && s->relayed != g->relayed) { /* the new broker runs as another user; keep the first grant */
		close_grant(g);
		err = EACCES;
	} else if (!err) {
		err = take_grant(node, s, g);
	}
	if (err && err != ETIMEDOUT)
		warn_no_lane(&(struct vb_roce_grant){
		        .err = err, .holder_known = g->holder_known, .holder_uid = g->holder_uid});
	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	vb_lock(&io->questions_lock);
	s->err = err;
	s->asked = err ? VB_LANE_REFUSED : VB_LANE_HELD_BY_US;
	s->asked_at = vb_now();
	s->unsent = false;
	atomic_store(&s->up, !err || s->rx);
	vb_unlock(&io->questions_lock);
	pthread_cond_broadcast(&io->meet_cond);
	vb_mutex_unlock(&io->meet_lock);
	io->resolve_news = true;
}

/* The descriptor stays open until reopen_lane, so that its number is not reused before. */
void vb_roce_lost(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;

	if (atomic_load(&s->lost_at))
		return;
	epoll_ctl(node->io->epoll_fd, EPOLL_CTL_DEL, s->lane_fd, NULL);
	atomic_store(&s->lost_at, vb_now());
	vb_progress_wake(node);
}

uint64_t vb_roce_lost_at(const struct vb_node *node)
{
	return node->io->roce ? atomic_load(&node->io->roce->lost_at) : 0;
}

void vb_roce_ask_again(struct vb_node *node)
{
	struct vb_roce_sockets *s = node->io->roce;
	uint64_t at = vb_roce_lost_at(node), now = at ? vb_now() : 0;

	if (!at || now < at)
		return;
	vb_lock(&node->io->questions_lock);
	/* never two questions at once, because the second answer would end the channel of the first */
	s->unsent |= s->asked != VB_LANE_ASKED;
	s->asked = VB_LANE_ASKED;
	vb_unlock(&node->io->questions_lock);
	vb_roce_send_question(node);
	atomic_store(&s->lost_at, now + ASK_AGAIN);
}

void vb_roce_reattached(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_lock(&io->questions_lock);
	io->roce->unsent = io->roce->asked == VB_LANE_ASKED;
	vb_unlock(&io->questions_lock);
	vb_roce_send_question(node);
	if (io->roce->relayed || vb_roce_sharing(io->roce))
		vb_roce_join_again(node); /* the old broker may have left messages unread */
}

void vb_roce_send_question(struct vb_node *node)
{
	struct vb_io *io = node->io;

	vb_lock(&io->questions_lock);
	bool unsent = io->roce->unsent;

	io->roce->unsent = false;
	vb_unlock(&io->questions_lock);
	if (unsent)
		vb_broker_roce(io->broker); /* if the broker is down, vb_roce_reattached asks again */
}

/* Returns the last answer; EAGAIN if the broker has not answered yet. */
static int roce_answer(struct vb_io *io)
{
	const struct vb_roce_sockets *s = io->roce;

	vb_lock(&io->questions_lock);
	int err = s->asked == VB_LANE_HELD_BY_US ? 0 : s->asked == VB_LANE_ASKED ? EAGAIN : s->err;

	vb_unlock(&io->questions_lock);
	return err;
}

/* Marks the question as unsent if it is due. Returns true if it must be sent. */
static bool ask_for_lane(struct vb_io *io)
{
	struct vb_roce_sockets *s = io->roce;

	vb_lock(&io->questions_lock);
	if (s->asked == VB_LANE_UNASKED ||
	    (s->asked == VB_LANE_REFUSED && vb_now() - s->asked_at > ASK_AGAIN && s->lane_fd < 0)) {
		s->asked = VB_LANE_ASKED;
		s->unsent = true;
	}
	bool unsent = s->unsent;

	vb_unlock(&io->questions_lock);
	return unsent;
}

/* Sends the question and waits for its answer. */
static int await_roce(struct vb_node *node, const struct timespec *until)
{
	struct vb_io *io = node->io;
	int err;

	vb_roce_send_question(node);
	vb_mutex_lock(&io->meet_lock, VB_RANK_MEETING);
	while ((err = roce_answer(io)) == EAGAIN)
		if (pthread_cond_timedwait(&io->meet_cond, &io->meet_lock, until))
			break;
	vb_mutex_unlock(&io->meet_lock);
	return err;
}

int vb_roce_bring_up(struct vb_node *node, unsigned wait_ms)
{
	const struct timespec pause = {0, ASK_AGAIN / 4};
	uint64_t end = vb_now() + VB_MS(wait_ms);
	struct timespec until;
	int err;

	if (wait_ms)
		VB_MAY_WAIT();
	if (vb_wire_mode() == VB_WIRE_MODE_NEVER)
		return ENETUNREACH;
	if (atomic_load_explicit(&node->io->roce->up, memory_order_acquire))
		return 0;
	until = vb_timespec_after(VB_MS(wait_ms));
	for (;;) {
		bool unsent = ask_for_lane(node->io);

		if (!wait_ms) {
			if (unsent)
				vb_questions_note(node);
			return roce_answer(node->io);
		}
		err = await_roce(node, &until);
		if (err != ETIMEDOUT)
			return err;
		if (vb_now() >= end)
			break;
		nanosleep(&pause, NULL); /* the keeper was too busy to answer the broker; ask again */
	}
	warn_no_lane(&(struct vb_roce_grant){.err = err});
	return err;
}
