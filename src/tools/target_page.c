// target_page.c - what a running verbena-target counts, for verbena exporter
// follows: verbena-target(8), CONTROL SOCKET
// SPDX-License-Identifier: MIT
#include "tools/target_page.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "util/runtime.h"

#define PATIENCE_S 2

/* The path of the control socket of the target at this port. False: the text is no port. */
static bool target_socket(const char *port, struct sockaddr_un *sun)
{
	size_t n = strspn(port, "0123456789");
	char dir[sizeof(sun->sun_path)];

	*sun = (struct sockaddr_un){.sun_family = AF_UNIX};
	return n && n <= 5 && !port[n] && !vb_runtime_path(dir, sizeof(dir)) &&
	       snprintf(sun->sun_path, sizeof(sun->sun_path), "%s/target-%s.sock", dir, port) <
	               (int)sizeof(sun->sun_path);
}

/* Only a target of this user, or of root, is believed. */
static bool is_trusted_target(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) && (who.uid == geteuid() || !who.uid);
}

static time_t seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static bool read_answer(int fd, struct vb_text *body)
{
	static const char request[] = "metrics\n", end[] = "# EOF\n";
	char some[4097];
	time_t until = seconds_now() + PATIENCE_S;
	ssize_t n;

	if (send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) != sizeof(request) - 1)
		return false;
	while ((n = recv(fd, some, sizeof(some) - 1, 0)) > 0 && seconds_now() <= until && !body->failed) {
		some[n] = '\0';
		vb_text_put(body, some);
	}
	return !n && !body->failed && body->len >= sizeof(end) - 1 &&
	       !strcmp(body->at + body->len - (sizeof(end) - 1), end);
}

int target_page(const char *port, struct vb_text *body)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	struct sockaddr_un sun;
	int status = 404;

	if (!target_socket(port, &sun))
		return status;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return 500;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* also of connect */
	if (!connect(fd, (const struct sockaddr *)&sun, sizeof(sun)) && is_trusted_target(fd))
		status = read_answer(fd, body) ? 200 : 500;
	close(fd);
	return status;
}
