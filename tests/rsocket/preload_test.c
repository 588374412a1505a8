// preload_test.c - a program that knows only sockets: TCP passes it, and so do rsockets by way of the preload library
// follows: POSIX socket calls, socket(7), tcp(7), epoll(7)
// SPDX-License-Identifier: MIT
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sockaddr_in home = {.sin_family = AF_INET};
static socklen_t home_len = sizeof(home);
static const char *where;

static int listener(struct sockaddr_in *at, int flags)
{
	int l = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1;
	socklen_t len = sizeof(*at);

	*at = home;
	CHECK(l >= 0 && !setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!bind(l, (struct sockaddr *)at, home_len) && !listen(l, 8));
	CHECK(!getsockname(l, (struct sockaddr *)at, &len) && at->sin_port);
	return l;
}

static int client(const struct sockaddr_in *at)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(s >= 0 && !connect(s, (const struct sockaddr *)at, home_len));
	return s;
}

/* --- the end --- */
enum { MUCH = 3000000 };

static void write_all(int fd, size_t n)
{
	static char block[10000];

	memset(block, 'm', sizeof(block));
	while (n) {
		ssize_t put = write(fd, block, n < sizeof(block) ? n : sizeof(block));

		CHECK(put > 0);
		n -= (size_t)put;
	}
}

static size_t read_all(int fd)
{
	static char block[50000];
	size_t all = 0;
	ssize_t n;

	while ((n = read(fd, block, sizeof(block))) > 0) {
		all += (size_t)n;
		usleep(1000);
	}
	CHECK(n == 0);
	return all;
}

static void exit_now(int sig)
{
	(void)sig;
	exit(0);
}

/* Another program, which leaves in a way of its own. */
static int leaver(const char *how, const char *port)
{
	struct sockaddr_in at = home;
	struct linger abort = {1, 0};
	int s;

	at.sin_port = htons((uint16_t)atoi(port));
	s = client(&at);
	if (!strcmp(how, "signal")) {
		struct itimerval soon = {{0, 0}, {0, 30000}};

		signal(SIGALRM, exit_now);
		CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
		for (;;)
			write_all(s, 1);
	}
	write_all(s, MUCH);
	if (!strcmp(how, "abort")) {
		CHECK(!setsockopt(s, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort)));
		close(s);
	}
	if (!strcmp(how, "close"))
		close(s);
	return 0;
}

static int left(const char *how, int l)
{
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char port[10];
	pid_t pid;

	CHECK(!getsockname(l, (struct sockaddr *)&at, &len));
	snprintf(port, sizeof(port), "%d", ntohs(at.sin_port));
	pid = fork();
	if (!pid)
		_exit(execl("/proc/self/exe", "preload_test", where, how, port, NULL));
	CHECK(pid > 0);
	return pid;
}

static void what_a_program_wrote_before_its_end_arrives(void)
{
	static const char *const ways[] = {"close", "exit", "signal", "signal", "signal"};
	struct sockaddr_in at;
	int l = listener(&at, 0), c, status;

	for (int i = 0; i < 5; i++) {
		pid_t pid = left(ways[i], l);
		size_t all;

		CHECK((c = accept(l, NULL, NULL)) >= 0);
		all = read_all(c);
		CHECK(i >= 2 || all == MUCH);
		CHECK(waitpid(pid, &status, 0) == pid && !status && !close(c));
	}
	CHECK(!close(l));
}

static void a_connection_that_is_aborted_is_reset(void)
{
	struct sockaddr_in at;
	int l = listener(&at, 0), c, status;
	pid_t pid = left("abort", l);
	char buf[20000];
	ssize_t n;

	CHECK((c = accept(l, NULL, NULL)) >= 0);
	while ((n = read(c, buf, sizeof(buf))) > 0)
		;
	CHECK(n < 0 && errno == ECONNRESET);
	CHECK(waitpid(pid, &status, 0) == pid && !status && !close(c) && !close(l));
}

int main(int argc, char **argv)
{
	where = argc > 1 ? argv[1] : "127.0.0.1";
	CHECK(inet_pton(AF_INET, where, &home.sin_addr) == 1);
	if (argc > 3)
		return leaver(argv[2], argv[3]);
	/* Another program may ask for one of them. */
#define R(t)                                       \
	do {                                       \
		if (argc < 3 || !strcmp(argv[2], #t)) \
			RUN(t);                    \
	} while (0)
	R(what_a_program_wrote_before_its_end_arrives);
	R(a_connection_that_is_aborted_is_reset);
	return 0;
}
