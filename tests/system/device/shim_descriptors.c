// shim_descriptors.c - a descriptor that reuses the number of the shim's netlink socket belongs to the program
// follows: dup2(2), close_range(2)
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../support/check.h"

/* Data sent on a arrives at b, and is not treated as a request. */
static void reaches(int a, int b)
{
	struct nlmsghdr request = {
	        .nlmsg_len = sizeof(request), .nlmsg_type = 5 << 10 | 1, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP};
	char got[64];

	CHECK(send(a, &request, sizeof(request), 0) == sizeof(request));
	CHECK(recv(b, got, sizeof(got), MSG_DONTWAIT) == sizeof(request) && !memcmp(got, &request, sizeof(request)));
	CHECK(recv(a, got, sizeof(got), MSG_DONTWAIT) < 0);
	CHECK(sendto(a, "x", 1, 0, NULL, 0) == 1 && recv(b, got, sizeof(got), MSG_DONTWAIT) == 1);
}

static int netlink_socket(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);

	CHECK(fd >= 0);
	return fd;
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 2048; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void another_socket_on_its_number(void)
{
	int pair[2], fd = netlink_socket(), before = open_descriptors();

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	CHECK(dup2(pair[0], fd) == fd);
	reaches(fd, pair[1]);
	close(pair[0]);
	close(pair[1]);
	CHECK(open_descriptors() == before - 1); /* the shim's own end was closed */
	close(fd);
}

/* As a daemon closes all inherited descriptors. */
static void everything_closed_by_range(void)
{
	int pair[2], fd = netlink_socket();

	CHECK(!syscall(SYS_close_range, 3U, ~0U, 0U));
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	CHECK(pair[0] == fd || pair[1] == fd);
	reaches(pair[0], pair[1]);
	reaches(pair[1], pair[0]);
	/* the descriptor that reuses the number of the shim's end stays open */
	int high = fcntl(pair[0], F_DUPFD, 512);
	close(pair[0]);
	close(pair[1]);
	CHECK(fcntl(high, F_GETFD) >= 0);
	close(high);
}

static void closed_unseen(void)
{
	int fd[20];

	for (int i = 0; i < 20; i++) {
		int held = dup(0); /* the next socket has another number */

		fd[i] = netlink_socket();
		syscall(SYS_close, fd[i]);
		fd[i] = held;
	}
	for (int i = 0; i < 20; i++)
		close(fd[i]);
}

static void closed_and_made_again(void)
{
	for (int i = 0; i < 100; i++) {
		int fd = netlink_socket();
		char got[64];

		CHECK(send(fd, "x", 1, 0) == 1); /* not a request: ignored, as by the kernel */
		CHECK(recv(fd, got, sizeof(got), MSG_DONTWAIT) < 0);
		if (i % 2)
			close(fd);
		else
			syscall(SYS_close, fd);
	}
}

int main(void)
{
	if (!getenv("LD_PRELOAD"))
		SKIP("not under verbena run");
	RUN(another_socket_on_its_number);
	RUN(closed_and_made_again);
	RUN(closed_unseen);
	RUN(everything_closed_by_range);
	return 0;
}
