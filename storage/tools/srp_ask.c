// srp_ask.c - asks a running verbena-srp-host by its socket
// see: man/verbena-srp-host.8. A message names the device of an add_target, or a login to end; then each message is a line
// SPDX-License-Identifier: MIT
#include "tools/srp_ask.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/srp_host.h"

static bool say(int fd, const char *text)
{
	return send(fd, text, strlen(text), MSG_NOSIGNAL) >= 0;
}

/* 0 or errno */
static int ask(int fd, const char *add, const char *host)
{
	char delete[64];
	int32_t error;

	snprintf(delete, sizeof(delete), "delete %.40s", host ? host : "");
	if ((add && !say(fd, "add ib0 1")) || !say(fd, add ? add : delete))
		return errno;
	ssize_t n = recv(fd, &error, sizeof(error), 0);

	return n == sizeof(error) ? error : n < 0 ? errno : EPIPE;
}

int vd_srp_ask(const char *directory, const char *add, const char *host)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), error = ENAMETOOLONG;

	if ((size_t)snprintf(to.sun_path, sizeof(to.sun_path), "%s/" SH_ADD, directory) < sizeof(to.sun_path))
		error = fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) ? errno : ask(fd, add, host);
	if (fd >= 0)
		close(fd);
	if (error)
		fprintf(stderr, "verbena-srp-host: %s: %s\n", add ? add : host, strerror(error));
	return error != 0;
}
