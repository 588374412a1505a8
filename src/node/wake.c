// wake.c - the wake descriptor, with which peers wake a progress thread, and which no peer can block
// follows: eventfd(2), preadv2(2), epoll(7)
// SPDX-License-Identifier: MIT
#include "node/wake.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/calls.h"

#define UNITS (1ull << 63)

/* RWF_NOWAIT is not supported. Linux before 5.9 and emulations of Linux lack it for eventfds. Then a plain read rings,
 * which does not block on an honest peer's eventfd. Support is tested with our own descriptor, because a peer's may be
 * of any kind. */
static atomic_bool plain;

static bool take_unit(int fd)
{
	uint64_t unit;
	const struct iovec to = {&unit, sizeof(unit)};

	return preadv2(fd, &to, 1, -1, RWF_NOWAIT) >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS);
}

int vb_wake_new(void)
{
	const uint64_t units = UNITS;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);

	if (fd >= 0 && write(fd, &units, sizeof(units)) != sizeof(units)) {
		close(fd);
		return -1;
	}
	atomic_store(&plain, fd >= 0 && !take_unit(fd));
	return fd;
}

/* At an edge epoll reports the events that are true then. For any value of the counter one of the two is true. */
int vb_wake_watch(int epoll_fd, int fd, void *tag)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = tag};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) ? errno : 0;
}

void vb_wake_ring(int fd)
{
	uint64_t unit;
	int saved = errno, cancel;

	vb_cancel_defer(&cancel);
	if (!take_unit(fd) && atomic_load_explicit(&plain, memory_order_relaxed))
		(void)!read(fd, &unit, sizeof(unit));
	errno = saved;
	vb_cancel_restore(cancel);
}
