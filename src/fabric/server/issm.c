// issm.c - IsSM: the capability of a port while a program keeps a file open, as /dev/infiniband/issmN does
// follows: Linux Documentation/infiniband/user_mad.rst (setting IsSM); inotify(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabric/server/server.h"

/* deviates: a second program that opens it gets no EAGAIN. The port is a subnet manager's until both have closed it. */

int issm_open(struct server *s)
{
	snprintf(s->issm_dir, sizeof(s->issm_dir), "%.4000s.issm", s->path);
	s->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (s->inotify < 0 || (mkdir(s->issm_dir, 0755) && errno != EEXIST))
		return errno;
	return 0;
}

static void file_of(const struct server *s, const struct vb_fabric_port *p, char *path, size_t size)
{
	snprintf(path, size, "%.4000s/%s-%u", s->issm_dir, p->node->id, p->num);
}

void issm_close(struct server *s)
{
	char path[PATH_MAX + 128];

	while (s->issms) {
		struct issm *i = s->issms;

		file_of(s, i->port, path, sizeof(path));
		unlink(path);
		s->issms = i->next;
		free(i);
	}
	rmdir(s->issm_dir);
	if (s->inotify >= 0)
		close(s->inotify);
}

int issm_path(struct server *s, struct vb_fabric_port *p, char *path, size_t size)
{
	struct issm *i = s->issms;

	file_of(s, p, path, size);
	if (strchr(p->node->id, '/'))
		return EINVAL;
	while (i && i->port != p)
		i = i->next;
	if (i)
		return 0;
	int fd = open(path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (fd < 0)
		return errno;
	close(fd);
	i = calloc(1, sizeof(*i));
	if (!i)
		return ENOMEM;
	i->port = p;
	i->watch = inotify_add_watch(s->inotify, path, IN_OPEN | IN_CLOSE);
	if (i->watch < 0) {
		free(i);
		return errno;
	}
	i->next = s->issms;
	s->issms = i;
	return 0;
}

static void count_open(struct server *s, const struct inotify_event *e)
{
	struct issm *i = s->issms;

	while (i && i->watch != e->wd)
		i = i->next;
	if (!i)
		return;
	if (e->mask & IN_OPEN)
		i->opened++;
	if ((e->mask & IN_CLOSE) && i->opened)
		i->opened--;
	uint32_t old = i->port->info.cap_mask;
	i->port->info.cap_mask = i->opened ? old | VB_CAP_SM : old & ~VB_CAP_SM;
	if (old != i->port->info.cap_mask) {
		i->port->node->fabric->changes++;
		vb_fabric_trap(i->port, VB_TRAP_LOCAL_CHANGE);
	}
}

void issm_event(struct server *s)
{
	char buf[4096] __attribute__((aligned(8)));
	ssize_t n = read(s->inotify, buf, sizeof(buf));

	for (ssize_t at = 0; at + (ssize_t)sizeof(struct inotify_event) <= n;) {
		const struct inotify_event *e = (const struct inotify_event *)(buf + at);

		count_open(s, e);
		at += (ssize_t)(sizeof(*e) + e->len);
	}
}
