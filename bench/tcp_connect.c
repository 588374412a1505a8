// tcp_connect.c - the cost of a plain TCP connection: connect, accept, 64 bytes to and fro, close
// follows: tcp(7). Prints microseconds per connection, for N connections made one after the other.
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect.h"

enum { BYTES = 64 };

static void all(int fd, char *p, ssize_t (*move)(int, void *, size_t))
{
	for (size_t n = 0; n < BYTES;) {
		ssize_t r = move(fd, p + n, BYTES - n);

		if (r <= 0)
			fail("exchange");
		n += (size_t)r;
	}
}

static ssize_t put(int fd, void *p, size_t n)
{
	return write(fd, p, n);
}

static void serve(int listener, int n)
{
	char data[BYTES];

	for (int i = 0; i < n; i++) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			fail("accept");
		all(fd, data, read);
		all(fd, data, put);
		close(fd);
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1000, listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	char data[BYTES] = "hello";

	if (n < 1)
		return fprintf(stderr, "usage: tcp_connect CONNECTIONS\n"), 2;
	if (listener < 0 || bind(listener, (struct sockaddr *)&a, len) || listen(listener, 128) ||
	    getsockname(listener, (struct sockaddr *)&a, &len))
		fail("listen");
	if (!fork_child())
		serve(listener, n);
	uint64_t start = now_ns();

	for (int i = 0; i < n; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0 || connect(fd, (struct sockaddr *)&a, len))
			fail("connect");
		all(fd, data, put);
		all(fd, data, read);
		close(fd);
	}
	printf("%.3f\n", (double)(now_ns() - start) / 1000 / n);
	reap(1);
	return 0;
}
