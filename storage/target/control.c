// control.c - the control socket: a request is one line, and the answer ends with the connection
// follows: unix(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "target/control.h"

#define ASKERS 8   /* at once, beside … */
#define LATER 256u /* … those whose answer takes time */
#define LINE 1024

struct asker {
	struct nt_watch watch;
	struct nt_control *control;
	struct asker *next;
	char line[LINE];
	size_t len;
	char *answer;
	size_t answer_len, sent;
	uint64_t number; /* no other asker has it */
	bool later;
};

struct nt_control {
	struct nt_loop *loop;
	nt_answer *answer;
	void *owner; /* for answer */
	struct nt_watch watch;
	struct asker *askers;
	uint32_t count, later; /* later: those of them whose answer takes time */
	struct asker *asking;  /* whose line is being answered */
	uint64_t asked;
	struct sockaddr_un address;
};

char nt_later[1];

/* ---- the socket ---- */

/* The directory belongs to us. So we use no other user's socket, and no other user connects to ours. */
static bool own_directory(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return false;
	return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
}

/* Is the peer our own user, or root? */
static bool is_trusted_peer(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) && (who.uid == geteuid() || !who.uid);
}

char *nt_control_path(const char *what, uint16_t port)
{
	const char *dir = secure_getenv("VERBENA_RUNTIME"), *xdg = secure_getenv("XDG_RUNTIME_DIR");
	char *own = NULL, *path = NULL;

	if (!dir || !*dir) {
		int n = geteuid() == 0 ? asprintf(&own, "/run/verbena")
		        : xdg && *xdg  ? asprintf(&own, "%s/verbena", xdg)
		                       : asprintf(&own, "/tmp/verbena-%u", (unsigned)geteuid());
		if (n < 0 || !own_directory(own)) {
			free(n < 0 ? NULL : own);
			return NULL;
		}
		dir = own;
	}
	if (asprintf(&path, "%s/%s-%u.sock", dir, what, port) < 0)
		path = NULL;
	free(own);
	return path;
}

static int socket_address(const char *path, struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(a->sun_path))
		return ENAMETOOLONG;
	strcpy(a->sun_path, path);
	return 0;
}

/* ---- clients ---- */

static void dismiss_asker(struct asker *a)
{
	struct nt_control *c = a->control;
	struct asker **at = &c->askers;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	c->count--;
	c->later -= a->later;
	nt_loop_remove(c->loop, &a->watch);
	close(a->watch.fd);
	free(a->answer);
	free(a);
}

/* An answer without text is a zero byte, because a target that has died answers nothing at all. */
static void give_answer(struct asker *a, char *answer)
{
	a->answer = answer;
	a->answer_len = answer ? strlen(answer) + !*answer : 0;
	nt_loop_change(a->control->loop, &a->watch, EPOLLOUT);
}

static void listen_to(struct asker *a)
{
	ssize_t n = recv(a->watch.fd, a->line + a->len, sizeof(a->line) - 1 - a->len, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		dismiss_asker(a);
		return;
	}
	a->len += (size_t)n;
	char *end = memchr(a->line, '\n', a->len);

	if (!end) {
		if (a->len >= sizeof(a->line) - 1)
			dismiss_asker(a);
		return;
	}
	*end = 0;
	a->control->asking = a;
	char *answer = a->control->answer(a->control->owner, a->line);

	if (answer == NT_LATER) { /* until then only its end is of interest */
		a->later = true;
		a->control->later++;
		nt_loop_change(a->control->loop, &a->watch, 0);
	} else
		give_answer(a, answer);
}

uint64_t nt_control_defer(struct nt_control *c)
{
	return c->later < LATER ? c->asking->number : 0;
}

void nt_control_answer(struct nt_control *c, uint64_t asker, char *answer)
{
	struct asker *a = c ? c->askers : NULL;

	while (a && a->number != asker)
		a = a->next;
	if (a)
		give_answer(a, answer);
	else
		free(answer);
}

static void asker_ready(struct nt_watch *w, uint32_t events)
{
	struct asker *a = (struct asker *)(void *)w;

	if (!a->answer && (events & EPOLLIN)) {
		listen_to(a);
		return;
	}
	ssize_t n =
	        a->answer ? send(w->fd, a->answer + a->sent, a->answer_len - a->sent, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;

	if (n > 0)
		a->sent += (size_t)n;
	if ((n < 0 && !(a->answer && errno == EAGAIN)) || a->sent == a->answer_len)
		dismiss_asker(a);
}

static void somebody_asks(struct nt_watch *w, uint32_t events)
{
	struct nt_control *c = (struct nt_control *)(void *)((uint8_t *)w - offsetof(struct nt_control, watch));
	int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	bool may = fd >= 0 && is_trusted_peer(fd) && c->count - c->later < ASKERS;
	struct asker *a = may ? calloc(1, sizeof(*a)) : NULL;

	if (a) {
		a->control = c;
		a->number = ++c->asked;
		a->watch = (struct nt_watch){.fd = fd, .events = EPOLLIN, .ready = asker_ready};
	}
	if (!a || nt_loop_add(c->loop, &a->watch)) {
		free(a);
		if (fd >= 0)
			close(fd);
		return;
	}
	a->next = c->askers;
	c->askers = a;
	c->count++;
}

/* ---- opening and closing ---- */

/* Removes a socket without a listener; anything else with this name is not removed. */
static bool is_left(int error, const char *path)
{
	struct stat st;

	return error == ECONNREFUSED && !lstat(path, &st) && S_ISSOCK(st.st_mode) && st.st_uid == geteuid();
}

int nt_control_open(struct nt_loop *l, const char *path, nt_answer *answer, void *owner, struct nt_control **out)
{
	struct nt_control *c = calloc(1, sizeof(*c));
	int error = c ? socket_address(path, &c->address) : ENOMEM, fd;

	if (error) {
		free(c);
		return error;
	}
	c->loop = l;
	c->answer = answer;
	c->owner = owner;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && !connect(fd, (struct sockaddr *)&c->address, sizeof(c->address))) {
		close(fd);
		free(c);
		return EADDRINUSE; /* another process listens there */
	}
	if (fd >= 0 && is_left(errno, path))
		unlink(path);
	mode_t mask = umask(0177);

	error = fd < 0 || bind(fd, (struct sockaddr *)&c->address, sizeof(c->address)) || listen(fd, ASKERS) ? errno
	                                                                                                     : 0;
	umask(mask);
	c->watch = (struct nt_watch){.fd = fd, .events = EPOLLIN, .ready = somebody_asks};
	if (!error)
		error = nt_loop_add(l, &c->watch);
	if (error) {
		if (fd >= 0)
			close(fd);
		free(c);
		return error;
	}
	*out = c;
	return 0;
}

void nt_control_close(struct nt_control *c)
{
	if (!c)
		return;
	while (c->askers) {
		struct asker *a = c->askers;

		if (a->answer) /* the client that asked us to stop gets its answer */
			(void)!send(a->watch.fd, a->answer + a->sent, a->answer_len - a->sent,
			            MSG_NOSIGNAL | MSG_DONTWAIT);
		dismiss_asker(a);
	}
	nt_loop_remove(c->loop, &c->watch);
	close(c->watch.fd);
	unlink(c->address.sun_path);
	free(c);
}

static int ask_line(const char *program, const char *path, const char *line)
{
	struct sockaddr_un a;
	int error = socket_address(path, &a), fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char buf[4096];
	ssize_t n;
	bool first = true, refused = false;

	if (!error && (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a))))
		error = errno;
	if (!error && !is_trusted_peer(fd)) /* another user's socket is not used */
		error = EPERM;
	if (error) {
		fprintf(stderr, "%s: %s: %s\n", program, path, strerror(error));
		if (fd >= 0)
			close(fd);
		return 1;
	}
	/* the target may close the connection without reading */
	if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 || send(fd, "\n", 1, MSG_NOSIGNAL) < 0)
		refused = true;
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		refused |= first && n >= 6 && !memcmp(buf, "error:", 6);
		if (!first || *buf)
			fwrite(buf, 1, (size_t)n, stdout);
		first = false;
	}
	close(fd);
	return refused || first;
}

int nt_control_ask(const char *program, const char *path, int argc, char **argv)
{
	char line[LINE] = "";

	for (int i = 0; i < argc; i++) {
		if (strlen(line) + strlen(argv[i]) + 3 > sizeof(line) || strpbrk(argv[i], " \n")) {
			fprintf(stderr, "%s: %.60s: too long, or with a space\n", program, argv[i]);
			return 2;
		}
		strcat(strcat(line, i ? " " : ""), argv[i]);
	}
	return ask_line(program, path, line);
}
