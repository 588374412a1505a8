// links_file.c - which file names the adapters, and who may have written it
// follows: verbena-link(1), FILES; XDG Base Directory Specification
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/env.h"
#include "util/links.h"
#include "util/log.h"

void vb_links_system_path(char path[VB_LINKS_ROOM])
{
	strcpy(path, "/etc/verbena/devices.conf");
}

bool vb_links_user_path(char path[VB_LINKS_ROOM])
{
	const char *config = vb_env("XDG_CONFIG_HOME"), *home = vb_env("HOME");
	int n = -1;

	if (config && *config == '/')
		n = snprintf(path, VB_LINKS_ROOM, "%s/verbena/devices.conf", config);
	else if (home && *home == '/')
		n = snprintf(path, VB_LINKS_ROOM, "%s/.config/verbena/devices.conf", home);
	return n > 0 && n < VB_LINKS_ROOM;
}

/* A file that exists and cannot be read is chosen too: it is named, and the other one is not taken for it. */
bool vb_links_chosen_path(char path[VB_LINKS_ROOM])
{
	struct stat st;

	if (vb_links_user_path(path) && (!stat(path, &st) || (errno != ENOENT && errno != ENOTDIR && errno != EACCES)))
		return true;
	vb_links_system_path(path);
	return !stat(path, &st) || (errno != ENOENT && errno != ENOTDIR);
}

/* Root's file, or in a program without more privileges than its caller the user's. */
static const char *distrust_file(const struct stat *st)
{
	if (!S_ISREG(st->st_mode))
		return "it is no regular file";
	if (st->st_mode & 022)
		return "others can write it (chmod go-w)";
	if (st->st_uid && (vb_env_is_hostile() || st->st_uid != geteuid()))
		return "it belongs to another user (chown)";
	if (st->st_size > VB_LINKS_FILE_MAX)
		return "it has more than 64 KiB";
	return NULL;
}

int vb_links_read(const char *path, char **text, size_t *len, const char **why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err = 0;
	struct stat st;
	ssize_t got = 1;
	size_t n = 0;

	if (fd < 0 || fstat(fd, &st)) {
		err = errno;
		*why = strerror(err);
		if (fd >= 0)
			close(fd);
		return err;
	}
	*why = distrust_file(&st);
	char *buf = *why ? NULL : malloc(VB_LINKS_FILE_MAX + 1);

	while (buf && got && n <= VB_LINKS_FILE_MAX) {
		got = read(fd, buf + n, VB_LINKS_FILE_MAX + 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			err = errno;
			break;
		}
		n += (size_t)got;
	}
	close(fd);
	if (!buf)
		return *why ? EPERM : (*why = strerror(ENOMEM), ENOMEM);
	if (!err && n > VB_LINKS_FILE_MAX)
		err = EFBIG;
	if (err) {
		*why = strerror(err);
		free(buf);
		return err;
	}
	*text = buf;
	*len = n;
	return 0;
}

static void log_line(void *arg, unsigned line, const char *why)
{
	vb_log(VB_LOG_ERROR, "%s:%u: %s; the line is left out (verbena link show)", (const char *)arg, line, why);
}

unsigned vb_links_load(struct vb_links *l, char path[VB_LINKS_ROOM], bool named)
{
	const char *why;
	char *text;
	size_t len;

	l->automatic = true;
	l->automatic_line = l->n = 0;
	l->ib.line = 0;
	if (!vb_links_chosen_path(path)) {
		*path = '\0';
		return 0;
	}
	int err = vb_links_read(path, &text, &len, &why);

	if (err) {
		if (err == ENOENT) /* removed in this moment */
			return 0;
		if (named)
			vb_log(VB_LOG_ERROR, "%s: %s; the file is not used", path, why);
		return 1;
	}
	unsigned wrong = vb_links_parse(l, text, len, named ? log_line : NULL, path);

	free(text);
	return wrong;
}

int vb_links_load_from(struct vb_links *l, const char *path, unsigned *wrong)
{
	const char *why;
	char *text;
	size_t len;
	int err = vb_links_read(path, &text, &len, &why);

	if (err)
		return err;
	*wrong = vb_links_parse(l, text, len, NULL, NULL);
	free(text);
	return 0;
}
