// api_test.c - rsockets behave like sockets: both ends in one process, over the adapter with the given address
// follows: rsocket(7); POSIX socket calls
// SPDX-License-Identifier: MIT
#include "../../support/check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <rdma/rsocket.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

/* Later headers declare these. */
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, struct epoll_event *event);
int repoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);

/* Either family; the port has the same offset. */
union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};
static union address home;
static socklen_t home_len;
static const char *where;

static int new_socket(int type)
{
	return rsocket(home.any.sa_family, type, 0);
}

static int listener(union address *at)
{
	int l = new_socket(SOCK_STREAM), one = 1;
	socklen_t len = sizeof(*at);

	*at = home;
	CHECK(l >= 0 && !rsetsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	CHECK(!rbind(l, &at->any, home_len) && !rlisten(l, 8));
	CHECK(!rgetsockname(l, &at->any, &len) && len == home_len && at->v4.sin_port);
	return l;
}

struct pair {
	int a, b; /* the connecting side, the accepting side */
};

static struct pair connected(void)
{
	union address at, from, name;
	socklen_t len = sizeof(from);
	int l = listener(&at);
	struct pair p = {.a = new_socket(SOCK_STREAM)};

	/* The service thread accepts: one thread is enough. */
	CHECK(!rconnect(p.a, &at.any, home_len));
	p.b = raccept(l, &from.any, &len);
	CHECK(p.b >= 0 && from.any.sa_family == home.any.sa_family);
	len = sizeof(name);
	CHECK(!rgetsockname(p.a, &name.any, &len) && name.v4.sin_port == from.v4.sin_port);
	len = sizeof(name);
	CHECK(!rgetpeername(p.a, &name.any, &len) && name.v4.sin_port == at.v4.sin_port);
	CHECK(!rclose(l));
	return p;
}

static void finish(struct pair p)
{
	CHECK(!rclose(p.a) && !rclose(p.b));
}

static int events(int fd, short want, int timeout)
{
	struct pollfd p = {.fd = fd, .events = want};

	CHECK(rpoll(&p, 1, timeout) >= 0);
	return p.revents;
}

static void bytes_go_both_ways(void)
{
	struct pair p = connected();
	char buf[100];
	struct iovec out[] = {{(void *)"ab", 2}, {(void *)"", 0}, {(void *)"cdef", 4}}, in[] = {{buf, 1}, {buf + 1, 4}};

	CHECK(rwritev(p.a, out, 3) == 6);
	CHECK(rrecv(p.b, buf, 3, MSG_WAITALL) == 3 && !memcmp(buf, "abc", 3));
	CHECK(rsend(p.b, "xyz", 3, 0) == 3 && rread(p.a, buf, sizeof(buf)) == 3 && !memcmp(buf, "xyz", 3));
	CHECK(rreadv(p.b, in, 2) == 3 && !memcmp(buf, "def", 3));
	finish(p);
}

static void peeking_leaves_what_it_sees(void)
{
	struct pair p = connected();
	char buf[10];

	CHECK(rsend(p.a, "12345", 5, 0) == 5);
	CHECK(rrecv(p.b, buf, 1, MSG_PEEK) == 1 && *buf == '1');
	CHECK(rrecv(p.b, buf, 10, MSG_PEEK) == 5 && !memcmp(buf, "12345", 5));
	CHECK(rrecv(p.b, buf, 10, 0) == 5);
	CHECK(rrecv(p.b, buf, 10, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(rrecv(p.b, buf, 10, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN);
	finish(p);
}

static void a_full_connection_says_so(void)
{
	static char block[100000];
	struct pair p = connected();
	ssize_t n, all = 0, got = 0;

	CHECK(!rfcntl(p.a, F_SETFL, O_NONBLOCK) && (rfcntl(p.a, F_GETFL) & O_NONBLOCK));
	do {
		while ((n = rsend(p.a, block, sizeof(block), 0)) > 0)
			all += n;
		CHECK(n < 0 && errno == EAGAIN && all > 0);
	} while (events(p.a, POLLOUT, 200) == POLLOUT); /* data in flight has arrived, so there may be room again */
	while (got < all) {
		CHECK((n = rrecv(p.b, block, sizeof(block), 0)) > 0);
		got += n;
	}
	CHECK(events(p.a, POLLOUT, LONG_MS) == POLLOUT);
	finish(p);
}

/* The other end's last message may arrive a little after its end. */
static bool hangs_up(int fd)
{
	for (int i = 0; i < LONG_MS / 10; i++) {
		if (events(fd, POLLIN, LONG_MS) & POLLHUP)
			return true;
		usleep(10000);
	}
	return false;
}

static void half_a_close_leaves_the_other_half(void)
{
	struct pair p = connected();
	char c;

	CHECK(rsend(p.a, "q", 1, 0) == 1 && !rshutdown(p.a, SHUT_WR));
	CHECK(rsend(p.a, "q", 1, 0) < 0 && errno == EPIPE);
	CHECK(rrecv(p.b, &c, 1, 0) == 1 && rrecv(p.b, &c, 1, 0) == 0);
	CHECK(events(p.b, POLLIN | POLLOUT, LONG_MS) == (POLLIN | POLLOUT));
	CHECK(rsend(p.b, "r", 1, 0) == 1 && rrecv(p.a, &c, 1, 0) == 1 && c == 'r');
	CHECK(!rshutdown(p.b, SHUT_WR) && rrecv(p.a, &c, 1, 0) == 0);
	CHECK(hangs_up(p.a));
	finish(p);
}

static void *shut_writing(void *arg)
{
	return (void *)(intptr_t)rshutdown(*(int *)arg, SHUT_WR);
}

static ssize_t fill(int fd)
{
	static char block[5000];
	ssize_t n, all = 0;

	while ((n = rsend(fd, block, sizeof(block), MSG_DONTWAIT)) > 0)
		all += n;
	return all;
}

static ssize_t drain(int fd)
{
	char block[5000];
	ssize_t n, all = 0;

	while ((n = rrecv(fd, block, sizeof(block), 0)) > 0)
		all += n;
	CHECK(n == 0);
	return all;
}

static void both_halves_shut_at_once_lose_nothing(void)
{
	for (int i = 0; i < 10; i++) {
		struct pair p = connected();
		ssize_t to_b = fill(p.a), to_a = fill(p.b);
		pthread_t a, b;
		void *r;

		CHECK(!pthread_create(&a, NULL, shut_writing, &p.a) && !pthread_create(&b, NULL, shut_writing, &p.b));
		CHECK(drain(p.a) == to_a && drain(p.b) == to_b);
		CHECK(!pthread_join(a, &r) && !r && !pthread_join(b, &r) && !r);
		CHECK(hangs_up(p.a) && hangs_up(p.b));
		finish(p);
	}
}

static void what_was_sent_before_a_close_is_read_after_it(void)
{
	static char block[60000], in[60000];
	struct pair p = connected();

	memset(block, 'z', sizeof(block));
	CHECK(rsend(p.a, block, sizeof(block), 0) == sizeof(block) && !rclose(p.a));
	CHECK(rrecv(p.b, in, sizeof(in), MSG_WAITALL) == sizeof(in) && !memcmp(block, in, sizeof(in)));
	CHECK(rrecv(p.b, in, 1, 0) == 0);
	CHECK(rsend(p.b, "x", 1, 0) < 0 && (errno == ECONNRESET || errno == EPIPE));
	CHECK(!rclose(p.b) && rclose(p.b) < 0 && errno == EBADF);
}

static void nobody_there_is_a_refusal(void)
{
	union address at;
	int l = listener(&at), s, err;
	socklen_t len = sizeof(err);

	CHECK(!rclose(l));
	s = new_socket(SOCK_STREAM);
	CHECK(rconnect(s, &at.any, home_len) < 0 && errno == ECONNREFUSED && !rclose(s));

	s = new_socket(SOCK_STREAM | SOCK_NONBLOCK);
	CHECK(rconnect(s, &at.any, home_len) < 0 && errno == EINPROGRESS);
	CHECK(events(s, POLLOUT, LONG_MS) & (POLLERR | POLLOUT));
	CHECK(!rgetsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len) && err == ECONNREFUSED && !rclose(s));
}

static void connecting_and_accepting_need_not_block(void)
{
	union address at;
	int l = listener(&at), s = new_socket(SOCK_STREAM | SOCK_NONBLOCK), c, err = 1;
	socklen_t len = sizeof(err);
	char x;

	CHECK(!rfcntl(l, F_SETFL, O_NONBLOCK) && raccept(l, NULL, NULL) < 0 && errno == EAGAIN);
	CHECK(events(l, POLLIN, 0) == 0);
	CHECK(rconnect(s, &at.any, home_len) < 0 && errno == EINPROGRESS);
	CHECK(rrecv(s, &x, 1, 0) < 0 && errno == EAGAIN);
	CHECK(events(s, POLLOUT, LONG_MS) == POLLOUT);
	CHECK(!rgetsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len) && !err);
	CHECK(events(l, POLLIN, LONG_MS) == POLLIN && (c = raccept(l, NULL, NULL)) >= 0);
	CHECK(rconnect(s, &at.any, home_len) < 0 && errno == EISCONN);
	finish((struct pair){s, c});
	CHECK(!rclose(l));
}

static void *read_one(void *arg)
{
	char c;

	return (void *)(intptr_t)rrecv(*(int *)arg, &c, 1, 0);
}

static void a_reader_is_woken_by_data_and_by_a_close(void)
{
	struct pair p = connected();
	pthread_t t;
	void *r;

	CHECK(!pthread_create(&t, NULL, read_one, &p.b));
	usleep(200000);
	CHECK(events(p.b, POLLOUT, 0) == POLLOUT); /* another thread may poll meanwhile */
	CHECK(rsend(p.a, "x", 1, 0) == 1 && !pthread_join(t, &r) && r == (void *)1);
	CHECK(!pthread_create(&t, NULL, read_one, &p.b));
	usleep(200000);
	CHECK(!rshutdown(p.b, SHUT_RD) && !pthread_join(t, &r) && r == NULL);
	finish(p);
}

static void *wait_for_data(void *arg)
{
	return (void *)(intptr_t)events(*(int *)arg, POLLIN, LONG_MS);
}

static void all_that_poll_one_rsocket_are_woken(void)
{
	struct pair p = connected();
	pthread_t t[4];
	void *r;

	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&t[i], NULL, wait_for_data, &p.b));
	usleep(300000);
	CHECK(rsend(p.a, "x", 1, 0) == 1);
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(t[i], &r) && r == (void *)POLLIN);
	finish(p);
}

static void options_are_remembered(void)
{
	int s = new_socket(SOCK_STREAM), v = 50000, got = 0;
	struct linger l = {1, 3};
	struct timeval tv = {0, 50000};
	socklen_t len = sizeof(got);
	struct pair p;
	char c;

	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)) &&
	      !rsetsockopt(s, SOL_SOCKET, SO_RCVBUF, &v, sizeof(v)));
	CHECK(!rgetsockopt(s, SOL_SOCKET, SO_RCVBUF, &got, &len) && got == 100000);
	v = 64;
	CHECK(!rsetsockopt(s, SOL_RDMA, RDMA_SQSIZE, &v, sizeof(v)) &&
	      !rgetsockopt(s, SOL_RDMA, RDMA_SQSIZE, &got, &len) && got == 64);
	v = 1;
	CHECK(!rsetsockopt(s, IPPROTO_TCP, TCP_NODELAY, &v, sizeof(v)) &&
	      !rgetsockopt(s, IPPROTO_TCP, TCP_NODELAY, &got, &len) && got == 1);
	CHECK(!rsetsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	CHECK(rsetsockopt(s, IPPROTO_TCP, 9999, &v, sizeof(v)) < 0 && errno == ENOPROTOOPT);
	CHECK(rsetsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &v, 1) < 0 && errno == EINVAL);
	CHECK(!rclose(s));
	p = connected();
	CHECK(!rsetsockopt(p.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	CHECK(rrecv(p.b, &c, 1, 0) < 0 && errno == EAGAIN);
	CHECK(rsetsockopt(p.b, SOL_RDMA, RDMA_SQSIZE, &v, sizeof(v)) < 0 && errno == EINVAL);
	CHECK(!rsetsockopt(p.b, IPPROTO_TCP, TCP_KEEPIDLE, &v, sizeof(v)) &&
	      !rsetsockopt(p.b, SOL_SOCKET, SO_KEEPALIVE, &v, sizeof(v)));
	sleep(2); /* two keep-alives that the program does not see */
	CHECK(rsend(p.b, "k", 1, 0) == 1 && rrecv(p.a, &c, 1, 0) == 1 && events(p.a, POLLIN, 0) == 0);
	finish(p);
}

/* Another program: sends a byte, and waits for its end. */
static int victim(const char *port)
{
	union address at = home;
	int s = new_socket(SOCK_STREAM);

	at.v4.sin_port = htons((uint16_t)atoi(port));
	if (s < 0 || rconnect(s, &at.any, home_len) || rsend(s, "x", 1, 0) != 1)
		return 1;
	return pause();
}

/* Runs this program again, which connects, sends a byte and lives until it is killed. That byte has arrived. */
static pid_t sender(int *c)
{
	union address at;
	int l = listener(&at);
	char x, port[10];
	pid_t pid;

	snprintf(port, sizeof(port), "%d", ntohs(at.v4.sin_port));
	pid = fork();
	if (!pid)
		_exit(execl("/proc/self/exe", "api_test", where, port, NULL));
	CHECK(pid > 0 && (*c = raccept(l, NULL, NULL)) >= 0 && rrecv(*c, &x, 1, 0) == 1 && !rclose(l));
	return pid;
}

static void a_killed_peer_ends_the_stream(void)
{
	int c, status;
	pid_t pid = sender(&c);
	char x;

	CHECK(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid);
	CHECK(rrecv(c, &x, 1, 0) <= 0);
	CHECK(!rclose(c));
}

static void *ask_until_closed(void *arg)
{
	while (rfcntl(*(int *)arg, F_GETFL) >= 0)
		usleep(100);
	return (void *)(intptr_t)errno;
}

/* Data that has not arrived yet is delivered after the close. ThreadSanitizer sees the threads involved. */
static void a_close_that_goes_on_behind_is_one_to_all_threads(void)
{
	int c, status;
	pid_t pid = sender(&c);
	pthread_t t;
	void *r;

	CHECK(!kill(pid, SIGSTOP) && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(!rfcntl(c, F_SETFL, O_NONBLOCK) && rsend(c, "xyz", 3, 0) == 3);
	CHECK(!pthread_create(&t, NULL, ask_until_closed, &c));
	CHECK(!rclose(c) && !pthread_join(t, &r) && (intptr_t)r == EBADF);
	CHECK(!kill(pid, SIGKILL) && waitpid(pid, &status, 0) == pid);
}

static void a_child_is_told_that_it_has_no_rsockets(void)
{
	struct pair p = connected();
	int status;
	char c;
	pid_t pid = fork();

	if (!pid) {
		bool ok = rsend(p.a, "x", 1, 0) < 0 && errno == ENOTSUP && rrecv(p.a, &c, 1, 0) < 0 && !rclose(p.a) &&
		          rclose(p.a) < 0;

		_exit(ok ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(rsend(p.a, "y", 1, 0) == 1 && rrecv(p.b, &c, 1, 0) == 1 && c == 'y');
	finish(p);
}

static void *ask_for_names(void *arg)
{
	union address name;
	socklen_t len;

	do
		len = sizeof(name);
	while (!rgetsockname(*(int *)arg, &name.any, &len) &&
	       (!rgetpeername(*(int *)arg, &name.any, &len) || errno == ENOTCONN));
	return (void *)(intptr_t)errno;
}

/* Fails, always under ThreadSanitizer, if addresses are read while a connection changes. */
static void names_may_be_asked_for_until_it_is_closed(void)
{
	for (int i = 0; i < 10; i++) {
		union address at;
		int l = listener(&at), s = new_socket(SOCK_STREAM | SOCK_NONBLOCK);
		pthread_t t;
		void *r;

		CHECK(!pthread_create(&t, NULL, ask_for_names, &s));
		CHECK(rconnect(s, &at.any, home_len) < 0 && errno == EINPROGRESS);
		CHECK(events(s, POLLOUT, LONG_MS) == POLLOUT);
		CHECK(!rclose(s) && !pthread_join(t, &r) && (intptr_t)r == EBADF && !rclose(l));
	}
}

static void mapped_memory_is_written_directly(void)
{
	static char target[10000], data[10000];
	union address at;
	int l, entries = 4;
	struct pair p;
	char c;

	l = listener(&at);
	p.a = new_socket(SOCK_STREAM);
	CHECK(!rsetsockopt(p.a, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)));
	CHECK(!rconnect(p.a, &at.any, home_len) && (p.b = raccept(l, NULL, NULL)) >= 0);
	CHECK(riomap(p.a, target, sizeof(target), PROT_WRITE, 0, 0) < 0 && errno == ENOMEM); /* b offers no table */
	CHECK(riomap(p.b, target, sizeof(target), PROT_WRITE, 0, 5000) == 5000);
	CHECK(rsend(p.b, "m", 1, 0) == 1 && rrecv(p.a, &c, 1, 0) == 1);
	memset(data, 'd', sizeof(data));
	CHECK(riowrite(p.a, data, 9999, 5001, 0) == 9999);
	CHECK(riowrite(p.a, data, 1, 4999, 0) == 0);
	CHECK(rsend(p.a, "w", 1, 0) == 1 && rrecv(p.b, &c, 1, 0) == 1 && c == 'w');
	CHECK(!target[0] && !memcmp(target + 1, data, 9999));
	CHECK(!riounmap(p.b, target, sizeof(target)) && riounmap(p.b, target, sizeof(target)) < 0);
	finish(p);
	CHECK(!rclose(l));
}

static void datagrams_keep_their_bounds(void)
{
	int a = new_socket(SOCK_DGRAM), b = new_socket(SOCK_DGRAM);
	union address to = home, from;
	socklen_t len = sizeof(to);
	static char big[20000];
	char buf[100];

	CHECK(a >= 0 && b >= 0 && !rbind(b, &to.any, home_len));
	CHECK(!rgetsockname(b, &to.any, &len));
	for (int i = 0; i < 50; i++) { /* the first goes by UDP, later ones by UD */
		CHECK(rsendto(a, &i, sizeof(i), 0, &to.any, home_len) == sizeof(i));
		len = sizeof(from);
		CHECK(events(b, POLLIN, LONG_MS) == POLLIN);
		CHECK(rrecvfrom(b, buf, sizeof(buf), 0, &from.any, &len) == sizeof(i) && *(int *)buf == i);
		CHECK(rsendto(b, buf, 3, 0, &from.any, len) == 3 && rrecv(a, buf, 2, 0) == 2);
	}
	CHECK(rsendto(a, big, sizeof(big), 0, &to.any, home_len) == sizeof(big));
	CHECK(rrecv(b, big, sizeof(big), 0) == sizeof(big));
	CHECK(rrecv(b, buf, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(!rclose(a) && !rclose(b));
}

static void messages_are_scattered_and_gathered(void)
{
	struct pair p = connected();
	char buf[8] = {0};
	struct iovec out[] = {{(void *)"he", 2}, {(void *)"llo", 3}}, in[] = {{buf, 4}, {buf + 4, 4}};
	struct msghdr send = {.msg_iov = out, .msg_iovlen = 2}, recv = {.msg_iov = in, .msg_iovlen = 2};

	CHECK(rsendmsg(p.a, &send, 0) == 5);
	CHECK(rrecvmsg(p.b, &recv, 0) == 5 && !memcmp(buf, "hello", 5));
	CHECK(rrecvmsg(p.b, &recv, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	CHECK(rwrite(p.b, "back", 4) == 4 && rread(p.a, buf, 8) == 4 && !memcmp(buf, "back", 4));
	CHECK(rwrite(-1, "x", 1) < 0 && errno == EBADF);
	finish(p);
}

static int selected(struct pair p, bool *readable, bool *writable, struct timeval wait)
{
	fd_set r, w;
	int n, nfds = (p.a > p.b ? p.a : p.b) + 1;

	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(p.b, &r);
	FD_SET(p.a, &w);
	n = rselect(nfds, &r, *writable ? &w : NULL, NULL, &wait);
	*readable = n > 0 && FD_ISSET(p.b, &r);
	*writable = n > 0 && *writable && FD_ISSET(p.a, &w);
	return n;
}

static void select_sees_both_directions(void)
{
	struct pair p = connected();
	bool r, w = true;
	fd_set none;
	struct timeval now = {0};

	CHECK(selected(p, &r, &w, now) == 1 && !r && w);
	w = false;
	CHECK(selected(p, &r, &w, (struct timeval){.tv_usec = 20000}) == 0 && !r);
	CHECK(rsend(p.a, "s", 1, 0) == 1);
	CHECK(selected(p, &r, &w, (struct timeval){.tv_sec = LONG_MS / 1000}) == 1 && r);
	w = true;
	CHECK(selected(p, &r, &w, now) == 2 && r && w);
	FD_ZERO(&none);
	CHECK(rselect(-1, &none, NULL, NULL, &now) < 0 && errno == EINVAL);
	finish(p);
}

static void a_polled_set_stays_between_calls(void)
{
	struct pair p = connected();
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = 77}, got[4];
	int set = repoll_create(EPOLL_CLOEXEC);
	char c;

	CHECK(set >= 0 && repoll_wait(set, got, 4, 0) == 0);
	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, p.b, &e));
	CHECK(repoll_ctl(set, EPOLL_CTL_ADD, p.b, &e) < 0 && errno == EEXIST);
	CHECK(repoll_ctl(set, EPOLL_CTL_DEL, p.a, NULL) < 0 && errno == ENOENT);
	CHECK(repoll_wait(set, got, 4, 20) == 0);
	CHECK(rsend(p.a, "e", 1, 0) == 1);
	for (int i = 0; i < 2; i++) /* as long as it exists */
		CHECK(repoll_wait(set, got, 4, LONG_MS) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 77);
	CHECK(rrecv(p.b, &c, 1, 0) == 1 && repoll_wait(set, got, 4, 0) == 0);
	e.events = EPOLLIN | EPOLLOUT;
	e.data.u64 = 78;
	CHECK(!repoll_ctl(set, EPOLL_CTL_MOD, p.b, &e));
	CHECK(repoll_wait(set, got, 4, LONG_MS) == 1 && got[0].events == EPOLLOUT && got[0].data.u64 == 78);
	CHECK(!repoll_ctl(set, EPOLL_CTL_DEL, p.b, NULL) && repoll_wait(set, got, 4, 0) == 0);
	CHECK(repoll_wait(set, got, 0, 0) < 0 && errno == EINVAL);
	CHECK(!rclose(set) && repoll_wait(set, got, 4, 0) < 0 && errno == EINVAL);
	finish(p);
}

static void *wait_for_set(void *arg)
{
	struct epoll_event got;

	return (void *)(intptr_t)(repoll_wait(*(int *)arg, &got, 1, LONG_MS) == 1 && got.events & EPOLLOUT);
}

static void a_set_is_changed_while_somebody_waits(void)
{
	struct pair p = connected();
	struct epoll_event e = {.events = EPOLLOUT};
	int set = repoll_create(0);
	pthread_t t;
	void *r;

	CHECK(set >= 0 && !pthread_create(&t, NULL, wait_for_set, &set));
	usleep(100000);
	CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, p.a, &e) && !pthread_join(t, &r) && r);
	CHECK(!rclose(set));
	finish(p);
}

static void set_home(void)
{
	if (inet_pton(AF_INET6, where, &home.v6.sin6_addr) == 1) {
		home.v6.sin6_family = AF_INET6;
		home_len = sizeof(home.v6);
	} else {
		home.v4.sin_family = AF_INET;
		home_len = sizeof(home.v4);
		CHECK(inet_pton(AF_INET, where, &home.v4.sin_addr) == 1);
	}
}

int main(int argc, char **argv)
{
	where = argc > 1 ? argv[1] : "127.0.0.1";
	set_home();
	if (argc > 2)
		return victim(argv[2]);
	RUN(bytes_go_both_ways);
	RUN(peeking_leaves_what_it_sees);
	RUN(a_full_connection_says_so);
	RUN(half_a_close_leaves_the_other_half);
	RUN(both_halves_shut_at_once_lose_nothing);
	RUN(what_was_sent_before_a_close_is_read_after_it);
	RUN(nobody_there_is_a_refusal);
	RUN(connecting_and_accepting_need_not_block);
	RUN(a_reader_is_woken_by_data_and_by_a_close);
	RUN(all_that_poll_one_rsocket_are_woken);
	RUN(options_are_remembered);
	RUN(a_child_is_told_that_it_has_no_rsockets);
	RUN(names_may_be_asked_for_until_it_is_closed);
	RUN(mapped_memory_is_written_directly);
	RUN(datagrams_keep_their_bounds);
	RUN(messages_are_scattered_and_gathered);
	RUN(select_sees_both_directions);
	RUN(a_polled_set_stays_between_calls);
	RUN(a_set_is_changed_while_somebody_waits);
	RUN(a_killed_peer_ends_the_stream);
	RUN(a_close_that_goes_on_behind_is_one_to_all_threads);
	return 0;
}
