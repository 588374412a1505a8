// handler_test.c - a signal handler opens, uses and closes sockets while its thread does the same
// follows: signal-safety(7). With TCP the kernel ensures this, with the preload library we do
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 4, POOL = 8, EVERY_US = 500 };

static struct sockaddr_in at = {.sin_family = AF_INET};
static int pool_here[POOL], pool_there[POOL]; /* connections that the handler uses and closes, starting with the last */
static volatile sig_atomic_t left = POOL, handled, stop;
static int busy; /* a connection that main() uses all the time; the handler writes to it, too */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Only calls listed in signal-safety(7). */
static void on_timer(int sig)
{
	int saved = errno, s = socket(AF_INET, SOCK_STREAM, 0), d = socket(AF_INET, SOCK_DGRAM, 0), i = left - 1,
	    size = 0;
	struct pollfd p = {.events = POLLIN};
	socklen_t len = sizeof(size);
	char c = 'h';

	(void)sig;
	if (s >= 0 && !stop) {
		getsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, &len);
		close(s);
	}
	if (d >= 0)
		close(d);
	if (handled % 64 == 63 && i >= 0) {
		p.fd = pool_here[i];
		if (write(pool_here[i], &c, 1) == 1 && poll(&p, 1, 0) >= 0)
			(void)!recv(pool_here[i], &c, 1, MSG_DONTWAIT);
		shutdown(pool_here[i], SHUT_WR);
		close(pool_here[i]);
		close(pool_there[i]);
		left = i;
	}
	(void)!send(busy, "h", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	(void)!recv(busy, &c, 1, MSG_DONTWAIT);
	handled++;
	errno = saved;
}

static int listener(void)
{
	int l = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(at);

	CHECK(l >= 0 && !bind(l, (struct sockaddr *)&at, sizeof(at)) && !listen(l, 64));
	CHECK(!getsockname(l, (struct sockaddr *)&at, &len));
	return l;
}

static void connect_both(int l, int *here, int *there)
{
	*here = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(*here >= 0 && !connect(*here, (struct sockaddr *)&at, sizeof(at)));
	*there = accept(l, NULL, NULL);
	CHECK(*there >= 0);
}

static void every(long us)
{
	const struct itimerval t = {{0, us}, {0, us}};

	CHECK(!setitimer(ITIMER_REAL, &t, NULL));
}

/* malloc() and free(), opening and closing sockets, sending and receiving. */
static void work(int here, int there)
{
	void *p = malloc(100 + (size_t)handled % 5000);
	int d = socket(AF_INET, SOCK_DGRAM, 0);
	char c;

	CHECK(d >= 0);
	(void)!send(here, "m", 1, MSG_DONTWAIT);
	(void)!recv(there, &c, 1, MSG_DONTWAIT);
	(void)!send(there, "m", 1, MSG_DONTWAIT);
	(void)!read(here, &c, 1) /* there is an answer, or the handler has read it */;
	CHECK(!close(d));
	free(p);
}

static void a_handler_may_open_use_and_close_sockets(void)
{
	const struct sigaction act = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
	const struct timeval patience = {0, 20000};
	int l = listener(), there;
	unsigned rounds = 0;
	double end;

	for (int i = 0; i < POOL; i++)
		connect_both(l, &pool_here[i], &pool_there[i]);
	connect_both(l, &busy, &there);
	CHECK(!setsockopt(busy, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
	CHECK(!sigaction(SIGALRM, &act, NULL));
	every(EVERY_US);
	for (end = now() + SECONDS; now() < end; rounds++)
		work(busy, there);
	every(0);
	stop = 1;
	printf("# %d handlers in %u rounds, %d connections left\n", (int)handled, rounds, (int)left);
	CHECK(handled > 100 && rounds > 10 && left < POOL);
	CHECK(!close(l) && !close(busy) && !close(there));
}

/* Ends a hanging program, which nothing else could end. */
static bool ends_in_time(pid_t pid, int seconds)
{
	int status;

	for (int ms = 0; ms < seconds * 1000; ms += 20) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) && !WEXITSTATUS(status);
		usleep(20000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	fprintf(stderr, "still there after %d s\n", seconds);
	return false;
}

int main(int argc, char **argv)
{
	pid_t pid;

	CHECK(inet_pton(AF_INET, argc > 1 ? argv[1] : "127.0.0.1", &at.sin_addr) == 1);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		RUN(a_handler_may_open_use_and_close_sockets);
		return 0;
	}
	return !ends_in_time(pid, SECONDS + 40);
}
