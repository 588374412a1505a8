// rs_service.c - the thread that drives connections, datagram look-ups and keep-alives in the background
// follows: rsocket(7)
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"
#include "util/thread_root.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static int epfd = -1, finish_fd = -1, finished_fd = -1;
enum { FINISH = UINT32_MAX }; /* not an rsocket's event: the program is ending */

/* An event names its rsocket by descriptor and serial, because the rsocket may be closed by the time the thread sees
 * it. */
static uint64_t event_tag(const struct rsocket *rs, enum rs_watch what)
{
	return (uint64_t)rs->serial << 32 | (uint64_t)what << 28 | (uint32_t)rs->fd;
}

/* Handles the timer. True if it ends the time of a closed rsocket. Always reads the timer, because it stays readable
 * otherwise. */
static bool timer_ready(struct rsocket *rs)
{
	bool late = false;
	uint64_t n;

	vb_mutex_lock(&rs->cm_lock, VB_RANK_RS_CM);
	vb_mutex_lock(&rs->lock, VB_RANK_RS);
	if (rs->keep_timer >= 0 && read(rs->keep_timer, &n, sizeof(n)) == sizeof(n)) {
		late = rs->lingering;
		if (!rs->closed && rs->state == RS_CONNECTED) {
			rs_process(rs);
			if (rs_tx_may_control(&rs->tx, 1))
				rs_send_control(rs, RS_CTRL_KEEPALIVE);
		}
	}
	vb_mutex_unlock(&rs->lock);
	if (rs->state == RS_LISTENING && !rs->closed)
		rs_half_open_look(rs);
	vb_mutex_unlock(&rs->cm_lock);
	return late;
}

static void handle_event(uint64_t what)
{
	struct rsocket *rs = rs_get_serial((int)(what & 0x0FFFFFFF), (uint32_t)(what >> 32));

	bool late = false;

	if (!rs)
		return;
	switch ((enum rs_watch)(what >> 28 & 15)) {
	case RS_WATCH_CM:
		rs_cm_ready(rs);
		break;
	case RS_WATCH_TIMER:
		late = timer_ready(rs);
		break;
	case RS_WATCH_UDP:
		rs_dgram_udp_ready(rs);
		break;
	case RS_WATCH_PATH:
		rs_dgram_path_ready(rs);
		break;
	case RS_WATCH_LINGER:
		break;
	}
	if (rs->lingering)
		rs_linger_look(rs, late);
	rs_put(rs);
}

static void finish_service(void)
{
	uint64_t n = 1;

	(void)!read(finish_fd, &n, sizeof(n));
	rs_linger_all();
	(void)!write(finished_fd, &n, sizeof(n));
}

void rs_service_finish(int ms)
{
	struct pollfd p = {.fd = finished_fd, .events = POLLIN};
	struct rs_deadline until = rs_deadline_ms(ms);
	uint64_t one = 1;

	if (epfd >= 0 && write(finish_fd, &one, sizeof(one)) == sizeof(one))
		while (poll(&p, 1, rs_deadline_left(&until)) < 0 && errno == EINTR)
			; /* signal handlers may still run while the program ends */
}

static void *run_service(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct epoll_event ev[8];
	int n;

	VB_THREAD_ROOT();
	for (;;) {
		n = epoll_wait(fd, ev, 8, -1);
		for (int i = 0; i < n; i++)
			if (ev[i].data.u64 == FINISH)
				finish_service();
			else
				handle_event(ev[i].data.u64);
	}
	return NULL;
}

static void close_service_fds(void)
{
	int *const fds[] = {&epfd, &finish_fd, &finished_fd};

	for (int i = 0; i < 3; i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

static int open_fds(void)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = FINISH};

	finish_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	finished_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	epfd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
	return finish_fd < 0 || finished_fd < 0 || epfd < 0 || epoll_ctl(epfd, EPOLL_CTL_ADD, finish_fd, &ev) ? errno
	                                                                                                      : 0;
}

static int start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&thread, NULL, run_service, (void *)(intptr_t)epfd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		pthread_detach(thread);
	return err;
}

static int start_service(void)
{
	int err = 0;

	vb_mutex_lock(&start_lock, VB_RANK_RS_START);
	if (epfd < 0) {
		err = open_fds();
		if (!err)
			err = start_thread();
		if (err)
			close_service_fds();
	}
	vb_mutex_unlock(&start_lock);
	return err;
}

/* The thread does not exist in a child of fork(). The child's first rsocket starts another one. */
void rs_service_forked(void)
{
	pthread_mutex_init(&start_lock, NULL);
	close_service_fds();
}

int rs_service_add(struct rsocket *rs, enum rs_watch what, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = event_tag(rs, what)};
	int err = start_service();

	if (err)
		return err;
	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) ? errno : 0;
}

void rs_service_pause(int fd, bool pause, struct rsocket *rs, enum rs_watch what)
{
	struct epoll_event ev = {.events = pause ? 0 : EPOLLIN, .data.u64 = event_tag(rs, what)};

	epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &ev);
}

void rs_service_del(int fd)
{
	epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL);
}

/* Sets the interval of the timer; 0: off. rs->lock is held. */
int rs_timer_set(struct rsocket *rs, int64_t ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	struct itimerspec every = {t, t};
	int err;

	if (rs->keep_timer < 0) {
		if (!ms)
			return 0;
		rs->keep_timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
		if (rs->keep_timer < 0)
			return errno;
		err = rs_service_add(rs, RS_WATCH_TIMER, rs->keep_timer);
		if (err) {
			close(rs->keep_timer);
			rs->keep_timer = -1;
			return err;
		}
	}
	timerfd_settime(rs->keep_timer, 0, &every, NULL);
	return 0;
}

/* Sets the timer according to SO_KEEPALIVE, TCP_KEEPIDLE and the state; rs->lock is held. */
int rs_keep_alive_set(struct rsocket *rs)
{
	if (rs->lingering || rs->state == RS_LISTENING) /* the timer has another use */
		return 0;
	return rs_timer_set(rs, rs->keep_alive && rs->state == RS_CONNECTED ? (int64_t)rs->keep_idle_s * 1000 : 0);
}
