// tcp_pingpong.c - the one-way latency of plain TCP on 127.0.0.1 with 8 bytes, in µs
// follows: tcp(7). Takes the better of blocking in recv() and polling, as RDMA programs do.
// usage: tcp_pingpong; across a network, always polling: tcp_pingpong serve ADDRESS PORT [SIZE], then tcp_pingpong ask
// ADDRESS PORT [SIZE]
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { LARGEST = 1 << 20, TURNS = 20000, TURNS_MIN = 500 };

static int size = 8, turns = TURNS;

// Large messages go to and fro less often.
static void set_size(const char *text)
{
	size = atoi(text);
	if (size < 1 || size > LARGEST) {
		fprintf(stderr, "tcp_pingpong: a size is 1 to %d\n", LARGEST);
		exit(2);
	}
	if (size > 4096)
		turns = TURNS / (size / 4096) > TURNS_MIN ? TURNS / (size / 4096) : TURNS_MIN;
}

static void take(int fd, char *buf, int flags)
{
	for (int got = 0; got < size;) {
		ssize_t n = recv(fd, buf + got, (size_t)(size - got), flags);

		if (n == 0)
			exit(1);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			fail("recv");
		got += n > 0 ? (int)n : 0;
	}
}

static void give(int fd, const char *buf)
{
	if (send(fd, buf, (size_t)size, MSG_NOSIGNAL) != size)
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
	static char buf[LARGEST];

	for (int i = 0; i < turns; i++) {
		uint64_t start = now_ns();

		give(fd, buf);
		take(fd, buf, flags);
		took[i] = now_ns() - start;
	}
	return (double)median_u64(took, turns) / 2000;
}

static void echo(int fd, int n, int flags)
{
	static char buf[LARGEST];

	for (int i = 0; i < n; i++) {
		take(fd, buf, flags);
		give(fd, buf);
	}
}

static void on_a_path(bool serve, const char *address, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || inet_pton(AF_INET, address, &at.sin_addr) != 1)
		fail("tcp_pingpong: the address");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (serve ? bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1) || (fd = accept(fd, NULL, NULL)) < 0
	          : connect(fd, (struct sockaddr *)&at, sizeof(at)))
		fail("tcp_pingpong");
	no_delay(fd);
	if (serve)
		echo(fd, turns, MSG_DONTWAIT);
	else
		printf("%.3f\n", median_us(fd, MSG_DONTWAIT));
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int listener;

	if (argc == 5)
		set_size(argv[4]);
	if (argc == 4 || argc == 5) {
		on_a_path(!strcmp(argv[1], "serve"), argv[2], argv[3]);
		return 0;
	}
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&at, &len))
		fail("tcp_pingpong: listening on 127.0.0.1");
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		int fd = accept(listener, NULL, NULL);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (fd < 0)
			fail("accept");
		no_delay(fd);
		take_core(1);
		echo(fd, turns, 0);
		echo(fd, turns, MSG_DONTWAIT);
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
