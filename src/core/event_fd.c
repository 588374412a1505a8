// event_fd.c - the descriptor on which a program waits for events: an epoll descriptor around a counting eventfd
// follows: eventfd(2), epoll(7); ibv_get_cq_event(3), ibv_get_async_event(3) (O_NONBLOCK)
// SPDX-License-Identifier: MIT
#include "core/event_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/node.h"
#include "util/calls.h"

int vb_event_fd_open(int *epfd, int *evfd)
{
	struct epoll_event ev = {.events = EPOLLIN};
	/* Blocking, so that SA_RESTART of the program's signal handlers applies to a waiting read. */
	int e = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	int p = e < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);

	if (p < 0 || epoll_ctl(p, EPOLL_CTL_ADD, e, &ev)) {
		int err = errno;

		vb_event_fd_close(p, e);
		return err;
	}
	*epfd = p;
	*evfd = e;
	return 0;
}

void vb_event_fd_close(int epfd, int evfd)
{
	if (epfd >= 0)
		close(epfd);
	if (evfd >= 0)
		close(evfd);
}

void vb_event_fd_add(int evfd)
{
	const uint64_t one = 1;
	int saved = errno, cancel;

	vb_cancel_defer(&cancel);
	while (write(evfd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	vb_cancel_restore(cancel);
	errno = saved;
}

/* 0, EAGAIN, or another errno. Linux before 5.8 cannot do this with an eventfd: EOPNOTSUPP. */
static int take_nowait(int evfd)
{
	uint64_t unit;
	struct iovec iov = {&unit, sizeof(unit)};

	if (preadv2(evfd, &iov, 1, -1, RWF_NOWAIT) == sizeof(unit))
		return 0;
	return errno == ENOSYS || errno == EINVAL || errno == ESPIPE ? EOPNOTSUPP : errno;
}

static int take_read(int evfd)
{
	uint64_t unit;

	return read(evfd, &unit, sizeof(unit)) == sizeof(unit) ? 0 : errno;
}

static int try_take(int evfd)
{
	struct pollfd pfd = {.fd = evfd, .events = POLLIN};
	int err = take_nowait(evfd);

	if (err != EOPNOTSUPP)
		return err;
	/* If two threads see the same unit here, one of them waits for the next unit. */
	return poll(&pfd, 1, 0) > 0 ? take_read(evfd) : EAGAIN;
}

void vb_event_fd_remove(int evfd, unsigned n)
{
	int saved = errno, cancel, err = 0;

	vb_cancel_defer(&cancel);
	while (n && !(err = take_nowait(evfd)))
		n--;
	if (n && err == EOPNOTSUPP) {
		fcntl(evfd, F_SETFL, O_NONBLOCK); /* vb_event_fd_take repeats a read that begins meanwhile */
		while (n && !take_read(evfd))
			n--;
		fcntl(evfd, F_SETFL, 0);
	}
	vb_cancel_restore(cancel);
	errno = saved;
}

int vb_event_fd_take(struct vb_node *node, int epfd, int evfd)
{
	int err = try_take(evfd);

	if (err != EAGAIN)
		return err;
	int flags = fcntl(epfd, F_GETFL);
	if (flags < 0 || flags & O_NONBLOCK)
		return flags < 0 ? errno : EAGAIN;
	VB_MAY_WAIT();
	vb_progress_handover(node);
	while ((err = take_read(evfd)) == EAGAIN)
		sched_yield();
	return err;
}
