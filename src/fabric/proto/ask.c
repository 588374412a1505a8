// ask.c - a program's connection to the fabric process
// follows: unix(7), SCM_RIGHTS
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/proto/proto.h"
#include "util/env.h"

enum { REPLY_MS = 10000 };

const char *vb_fabric_socket(void)
{
	const char *path = vb_env("VERBENA_FABRIC");

	return path && *path ? path : NULL;
}

const char *vb_fabric_node_name(void)
{
	const char *name = vb_env("VERBENA_NODE");

	return name ? name : "";
}

int vb_fabric_connect_to(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(to.sun_path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(to.sun_path, path);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock >= 0 && connect(sock, (struct sockaddr *)&to, sizeof(to))) {
		int saved = errno;

		close(sock);
		errno = saved;
		return -1;
	}
	return sock;
}

int vb_fabric_try(int sock, const struct iovec *parts, size_t count, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr h = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};

	if (fd >= 0) {
		h.msg_control = &control;
		h.msg_controllen = sizeof(control);
		control.head = (struct cmsghdr){
		        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	return sendmsg(sock, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int vb_fabric_say_parts(int sock, const struct iovec *parts, size_t count, int fd)
{
	int rc;

	while ((rc = vb_fabric_try(sock, parts, count, fd)) == EAGAIN || rc == EINTR) {
		struct pollfd p = {.fd = sock, .events = POLLOUT};

		if (rc == EAGAIN)
			poll(&p, 1, -1);
	}
	return rc;
}

int vb_fabric_say(int sock, const void *msg, size_t len, int fd)
{
	return vb_fabric_say_parts(sock, &(struct iovec){(void *)msg, len}, 1, fd);
}

int vb_fabric_descriptor(struct msghdr *h)
{
	int fd = -1;

	for (struct cmsghdr *m = CMSG_FIRSTHDR(h); m; m = CMSG_NXTHDR(h, m))
		for (size_t i = 0; m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_RIGHTS &&
		                   CMSG_LEN((i + 1) * sizeof(int)) <= m->cmsg_len;
		     i++) {
			int got;

			memcpy(&got, CMSG_DATA(m) + i * sizeof(int), sizeof(got));
			if (fd < 0)
				fd = got;
			else
				close(got);
		}
	return fd;
}

long vb_fabric_hear(int sock, void *reply, size_t size, int *fd)
{
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = {reply, size};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct pollfd p = {.fd = sock, .events = POLLIN};
	int n = poll(&p, 1, REPLY_MS);

	if (n <= 0) {
		errno = n ? errno : ETIMEDOUT;
		return -1;
	}
	ssize_t len = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	if (len <= 0) {
		errno = len ? errno : ECONNRESET;
		return -1;
	}
	int got = vb_fabric_descriptor(&h);
	if (fd)
		*fd = got;
	else if (got >= 0)
		close(got);
	return len;
}

long vb_fabric_ask(uint32_t verb, unsigned port, const char *file, void *reply, size_t size)
{
	struct vb_fabric_ask ask = {.verb = verb, .port = port};
	const char *path = vb_fabric_socket();
	int sock;

	if (!path || strlen(vb_fabric_node_name()) >= sizeof(ask.node) || strlen(file) >= sizeof(ask.path)) {
		errno = path ? EINVAL : ENODEV;
		return -1;
	}
	strcpy(ask.node, vb_fabric_node_name());
	strcpy(ask.path, file);
	sock = vb_fabric_connect_to(path);
	if (sock < 0)
		return -1;
	int rc = vb_fabric_say(sock, &ask, sizeof(ask), -1);
	long n = rc ? -1 : vb_fabric_hear(sock, reply, size, NULL);
	int saved = rc ? rc : errno;
	close(sock);
	errno = saved;
	return n;
}
