// rs_linger.c - the service thread delivers data that was sent before a close, or before the program ends
// follows: POSIX close(); socket(7) (SO_LINGER)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <stdlib.h>
#include <sys/resource.h>

/*
 * A close waits a little, and longer if the socket is blocking. By then most data has arrived. The service thread
 * delivers the rest. The program no longer sees the rsocket, but it stays in the table until the end. A program that
 * leaves by _exit() ends this too.
 */
enum { CLOSE_MS = 2000, CLOSE_NONBLOCK_MS = 20, BEHIND_MS = 60000, EXIT_MS = 2000, AT_EXIT = 4096 };

/* Checks once whether everything has arrived; rs->lock is held. True: there is nothing more to wait for. */
static bool has_parted(struct rsocket *rs)
{
	rs_arm(rs);
	rs_process(rs);
	if (rs->state == RS_CONNECTED && !rs->goodbye_said && rs_tx_may_control(&rs->tx, 1))
		rs_send_control(rs, RS_CTRL_DISCONNECT);
	return rs->state != RS_CONNECTED || (rs->goodbye_said && rs_tx_idle(&rs->tx));
}

/*
 * Bounds the descriptors of closed rsockets whose peers read nothing. As for connections that are not accepted, they
 * may use a share of all descriptors. If there are more, the oldest is given up.
 */
enum { SHARE_OF_FDS = 24, SHARE_MIN = 8 };
static pthread_mutex_t behind_lock = PTHREAD_MUTEX_INITIALIZER; /* taken after rs->lock */
static struct rsocket *behind;                                  /* linked by linger_next, the oldest first */
static unsigned behind_count, behind_generation;

static unsigned linger_share(void)
{
	struct rlimit fds;

	return getrlimit(RLIMIT_NOFILE, &fds) || fds.rlim_cur / SHARE_OF_FDS < SHARE_MIN
	               ? SHARE_MIN
	               : (unsigned)(fds.rlim_cur / SHARE_OF_FDS);
}

/* A child of fork() forgets the list, which is the parent's. */
static void lock_behind(void)
{
	if (behind_generation != rs_fork_generation) {
		behind_generation = rs_fork_generation;
		pthread_mutex_init(&behind_lock, NULL);
		behind = NULL;
		behind_count = 0;
	}
	vb_mutex_lock(&behind_lock, VB_RANK_RS_LINGER);
}

static void add_behind(struct rsocket *rs)
{
	struct rsocket **at = &behind, *oldest;

	lock_behind();
	while (*at)
		at = &(*at)->linger_next;
	*at = rs;
	rs->linger_next = NULL;
	oldest = behind;
	/* trylock, because the order of locks is reversed here; a holder of oldest->lock checks the rsocket anyway */
	if (++behind_count > linger_share() && !vb_mutex_trylock(&oldest->lock, VB_RANK_RS)) {
		rs_timer_set(oldest, 1);
		vb_mutex_unlock(&oldest->lock);
	}
	vb_mutex_unlock(&behind_lock);
}

static void remove_behind(struct rsocket *rs)
{
	struct rsocket **at = &behind;

	lock_behind();
	while (*at && *at != rs)
		at = &(*at)->linger_next;
	if (*at) {
		*at = rs->linger_next;
		behind_count--;
	}
	vb_mutex_unlock(&behind_lock);
}

/* Hands the rsocket over to the service thread; rs->lock is held. */
static bool hand_over(struct rsocket *rs)
{
	if (rs_service_add(rs, RS_WATCH_LINGER, rs->channel->fd))
		return false;
	if (rs_timer_set(rs, BEHIND_MS)) {
		rs_service_del(rs->channel->fd);
		return false;
	}
	rs->lingering = true;
	add_behind(rs);
	return true;
}

struct rs_deadline rs_patience(const struct rsocket *rs)
{
	int64_t ms = rs_nonblocking(rs, 0) ? CLOSE_NONBLOCK_MS : CLOSE_MS;

	return rs_deadline_ms(rs->linger_on && rs->linger_s > 0 ? (int64_t)rs->linger_s * 1000 : ms);
}

bool rs_linger(struct rsocket *rs)
{
	struct rs_deadline until = rs_patience(rs);
	bool goes_on = false;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->linger_on && !rs->linger_s)
		rs_abort(rs, &until);
	else
		rs_part(rs, &until);
	if (rs->state == RS_CONNECTED && !has_parted(rs))
		goes_on = hand_over(rs);
	vb_mutex_unlock(&rs->lock);
	return goes_on;
}

void rs_linger_look(struct rsocket *rs, bool too_late)
{
	bool over;

	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	rs_drain(rs);
	over = rs->lingering && (too_late || has_parted(rs));
	if (over) {
		rs->lingering = false;
		remove_behind(rs);
		rs_service_del(rs->channel->fd);
		rs_end_qp(rs);
	}
	vb_mutex_unlock(&rs->lock);
	if (!over)
		return;
	rs_teardown(rs);
	rs_put(rs); /* the table's reference */
}

/* Trylock, because the program is ending and another thread may hold this lock forever. */
static bool parted_or_busy(struct rsocket *rs, int *ms)
{
	bool over;

	if (vb_mutex_trylock(&rs->lock, VB_RANK_RS)) {
		*ms = 1;
		return false;
	}
	rs_drain(rs);
	over = rs->type != SOCK_STREAM || has_parted(rs);
	vb_mutex_unlock(&rs->lock);
	return over;
}

void rs_linger_all(void)
{
	static struct rsocket *all[AT_EXIT];
	static struct pollfd fds[AT_EXIT];
	struct rs_deadline until = rs_deadline_ms(EXIT_MS);
	unsigned n = rs_list(all, AT_EXIT), waiting;
	int ms;

	do {
		ms = rs_deadline_left(&until);
		waiting = 0;
		for (unsigned i = 0; i < n; i++) {
			if (all[i] && parted_or_busy(all[i], &ms)) {
				rs_put(all[i]);
				all[i] = NULL;
			}
			if (all[i])
				fds[waiting++] = (struct pollfd){.fd = all[i]->channel ? all[i]->channel->fd : -1,
				                                 .events = POLLIN};
		}
		if (waiting)
			poll(fds, waiting, ms);
	} while (waiting && rs_deadline_left(&until));
}

/* Takes no lock itself: a signal handler may have called exit() while its thread held any of them. */
__attribute__((destructor)) static void at_exit(void)
{
	rs_service_finish(EXIT_MS);
}
