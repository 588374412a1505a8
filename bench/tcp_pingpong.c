// tcp_pingpong.c - the latency of plain TCP on 127.0.0.1: 8 bytes to and fro between two processes, one way, in µs
// follows: tcp(7); the better of waiting in recv() and of asking again and again, as RDMA programs do
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { SIZE = 8, TURNS = 20000 };

static void take(int fd, char *buf, int flags)
{
	for (int got = 0; got < SIZE;) {
		ssize_t n = recv(fd, buf + got, (size_t)(SIZE - got), flags);

		if (n == 0)
			exit(1);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			fail("recv");
		got += n > 0 ? (int)n : 0;
	}
}

static void give(int fd, const char *buf)
{
	if (send(fd, buf, SIZE, MSG_NOSIGNAL) != SIZE)
		fail("send");
}

static void no_delay(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static double median_us(int fd, int flags)
{
	static uint64_t took[TURNS];
	char buf[SIZE] = "";

	for (int i = 0; i < TURNS; i++) {
		uint64_t start = now_ns();

		give(fd, buf);
		take(fd, buf, flags);
		took[i] = now_ns() - start;
	}
	return (double)median_u64(took, TURNS) / 2000;
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		fail("tcp_pingpong: listening on 127.0.0.1");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		char buf[SIZE];
		int fd = accept(listener, NULL, NULL);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fd < 0)
			fail("accept");
		no_delay(fd);
		take_core(1);
		for (int i = 0; i < 2 * TURNS; i++) {
			take(fd, buf, i < TURNS ? 0 : MSG_DONTWAIT);
			give(fd, buf);
		}
		_exit(0);
	}
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, len))
		fail("connect");
	no_delay(fd);
	take_core(0);
	double waiting = median_us(fd, 0), asking = median_us(fd, MSG_DONTWAIT);
	printf("%.3f\n", waiting < asking ? waiting : asking);
	return 0;
}
