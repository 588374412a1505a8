// rs_linger.c - what was sent before a close, or before the end of the program, still arrives: the service thread sees to it
// follows: POSIX close(); socket(7) (SO_LINGER)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <stdlib.h>

/*
 * A close waits a little, and longer where the socket blocks: mostly all has arrived by then. What has not goes on without the
 * program, which does not see its rsocket any more; it is in the table until it is over. It ends with a program that leaves
 * by _exit().
 */
enum { CLOSE_MS = 2000, CLOSE_NONBLOCK_MS = 20, BEHIND_S = 60, EXIT_MS = 2000, AT_EXIT = 4096 };

/* One look; rs->lock is held. True: there is nothing more to wait for. */
static bool parted(struct rsocket *rs)
{
	rs_arm(rs);
	rs_process(rs);
	if (rs->state == RS_CONNECTED && !rs->goodbye_said && rs_tx_may_control(&rs->tx, 1))
		rs_send_control(rs, RS_CTRL_DISCONNECT);
	return rs->state != RS_CONNECTED || (rs->goodbye_said && rs_tx_idle(&rs->tx));
}

/* To the service thread; rs->lock is held. */
static bool hand_over(struct rsocket *rs)
{
	if (rs_service_add(rs, RS_WATCH_LINGER, rs->channel->fd))
		return false;
	if (rs_timer_set(rs, BEHIND_S)) {
		rs_service_del(rs->channel->fd);
		return false;
	}
	rs->lingering = true;
	return true;
}

bool rs_linger(struct rsocket *rs)
{
	int64_t ms = rs_nonblocking(rs, 0) ? CLOSE_NONBLOCK_MS : CLOSE_MS;
	struct rs_deadline until = rs_deadline_ms(rs->linger_on && rs->linger_s > 0 ? (int64_t)rs->linger_s * 1000 : ms);
	bool behind = false;

	pthread_mutex_lock(&rs->lock);
	if (rs->linger_on && !rs->linger_s)
		rs_abort(rs, &until);
	else
		rs_part(rs, &until);
	if (rs->state == RS_CONNECTED && !parted(rs))
		behind = hand_over(rs);
	pthread_mutex_unlock(&rs->lock);
	return behind;
}

void rs_linger_look(struct rsocket *rs, bool too_late)
{
	bool over;

	pthread_mutex_lock(&rs->lock);
	rs_drain(rs);
	over = rs->lingering && (too_late || parted(rs));
	if (over) {
		rs->lingering = false;
		rs_service_del(rs->channel->fd);
		rs_end_qp(rs);
	}
	pthread_mutex_unlock(&rs->lock);
	if (!over)
		return;
	rs_teardown(rs);
	rs_put(rs); /* the table's */
}

/* The program ends meanwhile: another thread may hold this lock for ever. */
static bool parted_or_busy(struct rsocket *rs, int *ms)
{
	bool over;

	if (pthread_mutex_trylock(&rs->lock)) {
		*ms = 1;
		return false;
	}
	rs_drain(rs);
	over = rs->type != SOCK_STREAM || parted(rs);
	pthread_mutex_unlock(&rs->lock);
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
			if (!all[i] || parted_or_busy(all[i], &ms))
				all[i] = NULL;
			else
				fds[waiting++] = (struct pollfd){.fd = all[i]->channel ? all[i]->channel->fd : -1,
				                                 .events = POLLIN};
		}
		if (waiting)
			poll(fds, waiting, ms);
	} while (waiting && rs_deadline_left(&until));
}

/* It takes no lock itself: exit() may have been called by a signal's handler, with any of them held. */
__attribute__((destructor)) static void at_exit(void)
{
	rs_service_finish(EXIT_MS);
}
