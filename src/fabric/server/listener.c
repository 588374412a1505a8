// listener.c - where programs connect: the socket's file, and what happens when there are no descriptors left
// follows: unix(7), accept(2), getrlimit(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/server/server.h"

#define PAUSE 100000000u /* ns; then it is tried again whether there is a descriptor */

/* A process that the kernel does not let raise it keeps what it has. */
void raise_files(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) || lim.rlim_cur == lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
}

static int cannot_listen(const char *path, const char *why)
{
	fprintf(stderr, "verbena-fabric: %s: %s\n", path, why);
	return -1;
}

static int open_spare(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* A socket that nobody listens on any more is replaced; a living one, or a file of another kind, is not. */
int server_listen(struct server *s)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct stat st;
	int fd;

	if (strlen(s->path) >= sizeof(at.sun_path))
		return cannot_listen(s->path, "the path is too long");
	strcpy(at.sun_path, s->path);
	fd = vb_fabric_connect_to(s->path);
	if (fd >= 0) {
		close(fd);
		return cannot_listen(s->path, "another fabric serves it");
	}
	if (errno == ECONNREFUSED && !lstat(s->path, &st) && S_ISSOCK(st.st_mode))
		unlink(s->path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t old = umask(0177); /* its user's programs */
	int rc = fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1024) ? errno : 0;
	umask(old);
	if (rc) {
		if (fd >= 0)
			close(fd);
		return cannot_listen(s->path, strerror(rc));
	}
	s->listener = fd;
	s->spare = open_spare();
	return 0;
}

static void watch(struct server *s, bool on)
{
	struct epoll_event e = {.events = on ? EPOLLIN : 0, .data.ptr = &s->listener};

	epoll_ctl(s->epoll, EPOLL_CTL_MOD, s->listener, &e);
	s->listen_at = on ? 0 : s->now + PAUSE;
}

static void note_refusal(struct server *s, int err)
{
	if (!s->refused++)
		fprintf(stderr, "verbena-fabric: a program cannot connect: %s\n", strerror(err));
}

/* With the spare descriptor the program is accepted and its connection closed, so that it does not wait for an answer. Without one
 * it waits, and this process does not ask the kernel again at once. */
static void turn_away(struct server *s, int err)
{
	int fd;

	if (s->spare < 0) {
		watch(s, false);
		return;
	}
	close(s->spare);
	fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0) {
		note_refusal(s, err);
		close(fd);
	}
	s->spare = open_spare();
	if (fd < 0)
		watch(s, false);
}

void listener_event(struct server *s)
{
	int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		if (!client_open(s, fd))
			note_refusal(s, ENOMEM);
	} else if (errno == EMFILE || errno == ENFILE) {
		turn_away(s, errno);
	} else if (errno == ENOMEM || errno == ENOBUFS) {
		watch(s, false);
	}
}

void listener_time(struct server *s)
{
	if (!s->listen_at || s->listen_at > s->now)
		return;
	if (s->spare < 0)
		s->spare = open_spare();
	watch(s, true);
}

uint64_t listener_deadline(const struct server *s)
{
	return s->listen_at ? s->listen_at : UINT64_MAX;
}

void listener_close(struct server *s)
{
	if (s->spare >= 0)
		close(s->spare);
	if (s->listener >= 0)
		close(s->listener);
	s->spare = s->listener = -1;
}
