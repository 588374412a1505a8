// keep.c - what `verbena run` has started on this guest: the process stays while one of these programs runs
// follows: pidfd_open(2); unix(7), SO_PEERCRED
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabric/server/server.h"

enum { KEEPS_MOST = 4096 };

struct keep {
	struct keep *next;
	int pid_fd;
};

/* It is alive, because it waits for the answer. */
static int pid_fd_of(int sock)
{
	struct ucred who = {0};
	socklen_t len = sizeof(who);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len))
		return -1;
	if (!who.pid) { /* of another PID namespace */
		errno = ESRCH;
		return -1;
	}
	return (int)syscall(SYS_pidfd_open, who.pid, 0);
}

int keep_add(struct server *s, int sock)
{
	struct keep *k = s->kept < KEEPS_MOST ? calloc(1, sizeof(*k)) : NULL;
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = k};

	if (!k)
		return ENOMEM;
	k->pid_fd = pid_fd_of(sock);
	if (k->pid_fd < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, k->pid_fd, &e)) {
		int rc = errno;

		if (k->pid_fd >= 0)
			close(k->pid_fd);
		free(k);
		return rc;
	}
	k->next = s->keeps;
	s->keeps = k;
	s->kept++;
	return 0;
}

static void drop_keep(struct server *s, struct keep **at)
{
	struct keep *k = *at;

	*at = k->next;
	close(k->pid_fd);
	free(k);
	s->kept--;
}

bool keep_ended(struct server *s, const void *what)
{
	for (struct keep **at = &s->keeps; *at; at = &(*at)->next)
		if (*at == what) {
			drop_keep(s, at);
			return true;
		}
	return false;
}

void keeps_close(struct server *s)
{
	while (s->keeps)
		drop_keep(s, &s->keeps);
}
