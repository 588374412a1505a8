// broker.c - the broker's event loop: accepts programs, runs timers, decides when to exit
// follows: epoll(7)
// SPDX-License-Identifier: MIT
#include "broker/server/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "broker/server/discard.h"
#include "broker/server/lanes.h"
#include "util/log.h"

#define EVENTS_PER_TURN 32
#define ACCEPTS_PER_TURN 16
#define TAKES_PER_TURN 4 /* for each the broker waits until a thread has run */
#define DESCRIPTORS_OWN 64
#define LOCK_PAUSE_MS 10 /* before another try to take the start lock */

int vb_broker_watch(struct vb_broker *b, int fd, uint32_t events, enum vb_source kind, uint32_t number, uint32_t gen)
{
	struct epoll_event ev = {.events = events, .data.u64 = vb_source_key(kind, number, gen)};

	return epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? errno : 0;
}

/* Limits programs so that the broker always has free descriptors: without one, those in a received message are lost. */
static uint32_t max_lanes(void)
{
	struct rlimit lim = {.rlim_cur = 1024};

	getrlimit(RLIMIT_NOFILE, &lim);
	if (lim.rlim_cur > VB_LANE_COUNT * VB_DESCRIPTORS_EACH + DESCRIPTORS_OWN + VB_MAX_PENDING)
		return VB_LANE_COUNT - 1;
	return lim.rlim_cur > 4 * DESCRIPTORS_OWN ? (uint32_t)(lim.rlim_cur - 2 * DESCRIPTORS_OWN) / VB_DESCRIPTORS_EACH
	                                          : DESCRIPTORS_OWN / 4;
}

/* The group has been closed. Our own socket of it has to go too: it would keep the port from the next keeper. */
static void group_ended(void *of)
{
	struct vb_broker *b = of;

	if (b->gsi && b->gsi->roce)
		vb_gsi_roce_lost(b, b->gsi->roce);
}

int vb_broker_init(struct vb_broker *b, const struct vb_broker_config *config)
{
	uint32_t start = 0;

	memset(b, 0, sizeof(*b));
	b->config = *config;
	b->network = vb_runtime_network();
	b->listen_fd = b->state.fd = -1;
	vb_hold_init(&b->hold, config->lanes);
	b->hold.ended = group_ended;
	b->hold.ended_of = b;
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++)
		b->reserved[i].pid_fd = -1;
	/* not where the last broker started: packets for its lanes may still be in flight */
	if (getrandom(&start, sizeof(start), 0) != sizeof(start))
		start = (uint32_t)vb_broker_now_ms();
	vb_table_init(&b->table, start);
	b->began_at = vb_broker_now_ms();
	b->exit_at = b->began_at + VB_GRACE_MS;
	b->max_lanes = max_lanes();
	b->takes_left = TAKES_PER_TURN;
	b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (b->epoll_fd < 0)
		return errno;
	b->addresses = vb_addresses_open();
	if (b->addresses)
		vb_broker_watch(b, vb_addresses_fd(b->addresses), EPOLLIN, VB_SRC_ADDRESSES, 0, 0);
	return 0;
}

void vb_broker_fini(struct vb_broker *b, bool keep_state)
{
	vb_state_close(&b->state, &b->config.rt, keep_state); /* first: sessions closed below must stay in the state */
	if (!keep_state)
		vb_gsi_off_port(b);
	vb_hold_close(&b->hold); /* before the sessions: their lanes must not be taken back */
	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++)
		if (b->sessions[i])
			vb_session_close(b, b->sessions[i], false);
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++)
		if (b->table.lanes[i].state != VB_LANE_FREE)
			vb_lane_release(b, i, VB_GROUPS_MAYBE);
	vb_gsi_close(b);
	vb_table_close(&b->table);
	vb_addresses_close(b->addresses);
	vb_discard_flush();
	close(b->epoll_fd);
}

/* ---- shortage of descriptors ---- */

void vb_broker_stall(struct vb_broker *b)
{
	if (!b->retry_at)
		b->retry_at = vb_broker_now_ms() + VB_STALL_MS;
}

static void set_listen_events(struct vb_broker *b, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = vb_source_key(VB_SRC_LISTEN, 0, 0)};

	epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, b->listen_fd, &ev);
}

static void retry_stalled(struct vb_broker *b)
{
	b->retry_at = 0;
	if (b->accept_paused) {
		b->accept_paused = false;
		set_listen_events(b, EPOLLIN);
	}
	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++) {
		if (!b->sessions[i] || !b->sessions[i]->stalled)
			continue;
		b->sessions[i]->stalled = false;
		vb_session_flush(b, b->sessions[i]);
	}
}

/* ---- events ---- */

/* Accepts a few at most, so that a program that connects endlessly does not keep others from being served. */
static void accept_some(struct vb_broker *b)
{
	struct vb_session *s;

	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int sock = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (sock >= 0) {
			if (vb_session_open(b, sock, &s) == 0)
				vb_session_readable(b, s); /* most have sent their first message already */
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
			b->accept_paused = true;
			set_listen_events(b, 0);
			vb_broker_stall(b);
		}
		if (errno != ECONNABORTED && errno != EINTR)
			return;
	}
}

static struct vb_session *session_of(struct vb_broker *b, uint64_t data)
{
	struct vb_session *s = b->sessions[vb_source_number(data) % VB_MAX_SESSIONS];

	return s && s->gen == (uint32_t)data ? s : NULL;
}

static void on_session_event(struct vb_broker *b, struct vb_session *s, uint32_t events)
{
	if (events & EPOLLOUT)
		s->full = false;
	if (events & EPOLLIN && s->interest & EPOLLIN)
		vb_session_readable(b, s);
	else if (events & (EPOLLHUP | EPOLLERR))
		vb_session_close(b, s, !s->detached);
	else
		vb_session_flush(b, s);
}

static void on_event(struct vb_broker *b, uint64_t data, uint32_t events)
{
	uint32_t number = vb_source_number(data);
	struct vb_session *s;

	switch (vb_source_kind(data)) {
	case VB_SRC_LISTEN:
		accept_some(b);
		break;
	case VB_SRC_STOP:
		b->stop = true;
		break;
	case VB_SRC_SOCK:
		s = session_of(b, data);
		if (s)
			on_session_event(b, s, events);
		break;
	case VB_SRC_PID:
		/* the pidfd tells of an exit even if a forked child keeps the socket open */
		s = session_of(b, data);
		if (s)
			vb_session_close(b, s, true);
		break;
	case VB_SRC_RESERVED:
		if (b->table.lanes[number % VB_LANE_COUNT].state == VB_LANE_RESERVED)
			vb_lane_release(b, number % VB_LANE_COUNT, VB_GROUPS_MAYBE);
		break;
	case VB_SRC_GSI:
		vb_gsi_readable(b);
		break;
	case VB_SRC_ADDRESSES:
		vb_addresses_changed(b->addresses);
		break;
	}
}

/* ---- time ---- */

static void earliest_time(int64_t *when, int64_t t)
{
	if (t && (!*when || t < *when))
		*when = t;
}

/* Takes back lanes that an earlier broker gave and whose holders have not reattached. */
static void sweep_lanes(struct vb_broker *b)
{
	b->sweep_at = 0;
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++) {
		if (b->table.lanes[i].state != VB_LANE_FREE || !vb_lane_set_has(&b->hold.given, i))
			continue;
		vb_hold_take_back(&b->hold, i, VB_GROUPS_MAYBE);
		vb_lane_set_add(&b->swept, i);
	}
}

/* Runs the timers that are due. Returns when the next one is due; 0: none. */
static int64_t run_timers(struct vb_broker *b, int64_t now)
{
	int64_t when = 0;

	if (b->retry_at && now >= b->retry_at)
		retry_stalled(b);
	for (uint32_t i = 0; b->npending && i < VB_MAX_SESSIONS; i++) {
		if (!b->sessions[i] || b->sessions[i]->lane)
			continue;
		if (now >= b->sessions[i]->deadline)
			vb_session_close(b, b->sessions[i], false);
		else
			earliest_time(&when, b->sessions[i]->deadline);
	}
	for (uint32_t i = 1; b->table.reserved && i < VB_LANE_COUNT; i++) {
		if (b->table.lanes[i].state != VB_LANE_RESERVED || b->reserved[i].pid_fd >= 0)
			continue;
		if (now >= b->reserved[i].deadline)
			vb_lane_release(b, i, VB_GROUPS_MAYBE);
		else
			earliest_time(&when, b->reserved[i].deadline);
	}
	if (b->hold.unchecked) {
		b->hold.unchecked = false;
		b->sweep_at = now + VB_FOREIGN_MS;
	}
	if (b->sweep_at && now >= b->sweep_at)
		sweep_lanes(b);
	earliest_time(&when, vb_gsi_timer(b, now));
	if (b->nsessions || b->table.reserved || b->config.stay || vb_gsi_is_busy(b))
		b->exit_at = 0;
	else if (!b->exit_at)
		b->exit_at = now + b->config.linger_ms;
	earliest_time(&when, b->retry_at);
	earliest_time(&when, b->exit_at);
	earliest_time(&when, b->sweep_at);
	return when;
}

/* ---- exit ---- */

/* Exits only if no program has connected meanwhile. A program that connects after the last accept gets a reset and
 * retries. */
static bool try_leave(struct vb_broker *b)
{
	int lock = -1, err = vb_runtime_lock(&b->config.rt, &lock);

	if (err == EWOULDBLOCK) { /* a program is about to start a broker, or to connect */
		b->exit_at = vb_broker_now_ms() + LOCK_PAUSE_MS;
		return false;
	}
	accept_some(b);
	if (b->nsessions || b->accept_paused) {
		vb_runtime_unlock(&lock);
		return false;
	}
	vb_runtime_unlink(&b->config.rt, b->sock_dev, b->sock_ino);
	vb_discard(&b->listen_fd, 1); /* connections not accepted yet may carry descriptors */
	vb_broker_fini(b, false);
	vb_runtime_remove_lock(&b->config.rt, &lock);
	return true;
}

static void leave_for_another(struct vb_broker *b)
{
	bool keep = b->table.held || b->table.reserved;
	int lock = -1;

	/* without the lock a new broker may have its socket there already: the unlink then finds another inode and
	 * leaves it */
	vb_runtime_lock(&b->config.rt, &lock);
	vb_runtime_unlink(&b->config.rt, b->sock_dev, b->sock_ino);
	vb_discard(&b->listen_fd, 1); /* connections not accepted yet may carry descriptors */
	vb_broker_fini(b, keep);
	if (keep)
		vb_runtime_unlock(&lock);
	else
		vb_runtime_remove_lock(&b->config.rt, &lock);
}

static void broker_serve(struct vb_broker *b)
{
	struct epoll_event events[EVENTS_PER_TURN];

	for (;;) {
		int64_t now = vb_broker_now_ms();
		int64_t when = run_timers(b, now);
		if (b->exit_at && now >= b->exit_at) {
			if (try_leave(b))
				return;
			continue;
		}
		if (b->stop) {
			leave_for_another(b);
			return;
		}
		vb_discard_flush();
		b->takes_left = TAKES_PER_TURN;
		int wait = !when ? -1 : when <= now ? 0 : (int)(when - now);
		int n = epoll_wait(b->epoll_fd, events, EVENTS_PER_TURN, wait);
		for (int i = 0; i < n; i++)
			on_event(b, events[i].data.u64, events[i].events);
	}
}

/* ---- start ---- */

static bool reserve_saved_lane(void *arg, const struct vb_state_lane *lane, int pid_fd)
{
	struct vb_broker *b = arg;

	if (vb_table_reserve(&b->table, lane->lane, lane->uid, lane->incarnation))
		return false;
	if (pid_fd >= 0 && vb_broker_watch(b, pid_fd, EPOLLIN, VB_SRC_RESERVED, lane->lane, 0)) {
		vb_table_free(&b->table, lane->lane, 0);
		return false;
	}
	b->reserved[lane->lane] =
	        (struct vb_reserved){.pid_fd = pid_fd, .deadline = vb_broker_now_ms() + VB_FOREIGN_MS};
	return true;
}

static int wait_for_lock(const struct vb_runtime *rt, int *lock)
{
	int64_t until = vb_broker_now_ms() + VB_STARTED_MS;
	struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000};
	int err;

	while ((err = vb_runtime_lock(rt, lock)) == EWOULDBLOCK && vb_broker_now_ms() < until)
		nanosleep(&pause, NULL);
	return err;
}

/* A keeper outlives its broker: takes over the one of an earlier broker. */
static void adopt_lanes(struct vb_broker *b)
{
	if (!vb_hold_adopt(&b->hold, &b->config.rt))
		return;
	vb_gsi_on_port(b);
	if (!b->state.followed)
		return;
	b->hold.unchecked = false;
	sweep_lanes(b);
}

static int broker_begin(struct vb_broker *b)
{
	struct vb_broker_config *c = &b->config;
	int sock, err = 0;

	if (c->lock_fd < 0)
		err = wait_for_lock(&c->rt, &c->lock_fd);
	if (err)
		return err;
	err = vb_runtime_connect(&c->rt, &sock);
	if (err != ENOENT) { /* another broker is alive, or its socket is not ours to replace */
		if (!err)
			close(sock);
		return EADDRINUSE;
	}
	vb_state_open(&b->state, &c->rt, reserve_saved_lane, b, &b->table.next);
	err = vb_runtime_listen(&c->rt, vb_runtime_clients(), &b->listen_fd, &b->sock_dev, &b->sock_ino);
	if (!err)
		err = vb_broker_watch(b, b->listen_fd, EPOLLIN, VB_SRC_LISTEN, 0, 0);
	if (!err)
		adopt_lanes(b);
	if (!err && c->stop_fd >= 0)
		err = vb_broker_watch(b, c->stop_fd, EPOLLIN, VB_SRC_STOP, 0, 0);
	return err;
}

int vb_broker_run(const struct vb_broker_config *config)
{
	struct vb_broker *b = malloc(sizeof(*b));
	int err = b ? vb_broker_init(b, config) : ENOMEM;

	if (err) {
		free(b);
		return err;
	}
	err = vb_runtime_prepare(&b->config.rt);
	if (!err)
		err = broker_begin(b);
	vb_runtime_unlock(&b->config.lock_fd);
	if (b->config.ready_fd >= 0) {
		if (!err && write(b->config.ready_fd, "R", 1) != 1)
			vb_log(VB_LOG_INFO, "broker: the program that started this broker has ended");
		close(b->config.ready_fd);
	}
	if (err) {
		if (b->listen_fd >= 0)
			close(b->listen_fd);
		vb_broker_fini(b, true);
	} else {
		broker_serve(b);
	}
	free(b);
	return err;
}
