// ring.c - descriptors of every kind as a peer's wake descriptor: waking the peer never blocks
// see: node/wake.h
// SPDX-License-Identifier: MIT
#include "node/wake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "../support/check.h"

static bool rung(int epoll)
{
	struct epoll_event ev;

	return epoll_wait(epoll, &ev, 1, 0) == 1 && ev.data.ptr == &errno;
}

static void each_ring_is_an_edge_whatever_the_counter_says(void)
{
	int fd = vb_wake_new(), epoll = epoll_create1(EPOLL_CLOEXEC);

	CHECK(fd >= 0 && epoll >= 0 && !vb_wake_watch(epoll, fd, &errno));
	rung(epoll); /* it was readable when it was added */
	CHECK(!rung(epoll));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			errno = 77;
			vb_wake_ring(fd);
			CHECK(errno == 77 && rung(epoll) && !rung(epoll));
		}
		vb_wake_ring(fd);
		vb_wake_ring(fd);
		CHECK(rung(epoll) && !rung(epoll));
		/* then with a full counter, and again after a peer has emptied it as far as it could */
		uint64_t v;

		for (uint64_t n = round ? 0 : UINT64_MAX - 1; n; n /= 2)
			while (write(fd, &n, sizeof(n)) == sizeof(n))
				;
		for (int i = 0; round == 1 && i < 100000; i++)
			CHECK(read(fd, &v, sizeof(v)) == sizeof(v));
		rung(epoll);
	}
	close(epoll);
	close(fd);
}

static void no_kind_of_descriptor_holds_up_who_rings(void)
{
	int pipes[2], pair[2], first = vb_wake_new();

	CHECK(first >= 0 && !pipe(pipes) && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	int pty = posix_openpt(O_RDWR | O_NOCTTY);
	const int kinds[] = {eventfd(0, 0),
	                     pipes[0],
	                     pipes[1],
	                     pair[0],
	                     timerfd_create(CLOCK_MONOTONIC, 0),
	                     inotify_init(),
	                     pty,
	                     open("/dev/zero", O_RDONLY),
	                     open("/proc/self/maps", O_RDONLY),
	                     -1};

	alarm(10); /* ends the test if one blocks */
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		vb_wake_ring(kinds[i]);
	alarm(0);
}

int main(void)
{
	each_ring_is_an_edge_whatever_the_counter_says();
	no_kind_of_descriptor_holds_up_who_rings();
	printf("ok each ring is an edge, whatever the counter says\nok no kind of descriptor holds up who rings\n");
}
