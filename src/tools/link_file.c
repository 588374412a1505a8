// link_file.c - changes the file that names adapters, one command at a time
// follows: verbena-link(1); flock(2), rename(2)
// SPDX-License-Identifier: MIT
#include "tools/link_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/progress.h"
#include "tools/verbena.h"

#define LOCK_TRIES 200 /* of 50 ms */
#define FILE_NAME "devices.conf"
#define NEW_NAME ".devices.conf.new" /* one name: only the holder of the lock makes it, and a remainder is replaced */

static bool fail_link_file(const char *path, const char *why)
{
	cmd_complain("link", "%s: %s", path, why);
	return false;
}

/* Makes the folders of a path, as mkdir -p does. */
static bool make_folders(char *path)
{
	for (char *slash = path; (slash = strchr(slash, '/')); slash++) {
		if (slash == path)
			continue;
		*slash = '\0';
		int rc = mkdir(path, 0755);

		*slash = '/';
		if (rc && errno != EEXIST && errno != EROFS && errno != EACCES)
			return false;
	}
	return true;
}

/* The folder itself is locked, so that no file for the lock is left. */
static bool lock_folder(struct link_file *f)
{
	const struct timespec pause = {0, 50000000};
	char *slash = strrchr(f->path, '/');

	if (!make_folders(f->path))
		return fail_link_file(f->path, strerror(errno));
	*slash = '\0';
	f->dir = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*slash = '/';
	if (f->dir < 0)
		return fail_link_file(f->path, strerror(errno));
	cmd_progress_begin();
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (!flock(f->dir, LOCK_EX | LOCK_NB)) {
			cmd_progress_clear();
			return true;
		}
		if (errno != EWOULDBLOCK && errno != EINTR)
			return fail_link_file(f->path, strerror(errno));
		cmd_progress_show("... waits for another command that changes the file");
		nanosleep(&pause, NULL);
	}
	return fail_link_file(f->path, "another command has had it locked for ten seconds");
}

static void complain_line(void *arg, unsigned line, const char *why)
{
	cmd_complain("link", "%s:%u: %s", (const char *)arg, line, why);
}

bool link_file_open(struct link_file *f)
{
	const char *why;

	f->dir = -1;
	f->text = NULL;
	f->len = 0;
	if (!lock_folder(f))
		return false;
	int err = vb_links_read(f->path, &f->text, &f->len, &why);

	if (err && err != ENOENT)
		return fail_link_file(f->path, why);
	if (!vb_links_parse(&f->links, f->text ? f->text : "", f->len, complain_line, f->path))
		return true;
	cmd_complain("link", "%s was not changed: correct it first", f->path);
	return false;
}

static bool write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t put = write(fd, p, n);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		p += put;
		n -= (size_t)put;
	}
	return true;
}

/* The bytes of line `number`, or the end of the file. */
static void find_line(const struct link_file *f, unsigned number, size_t *from, size_t *to)
{
	*from = number ? 0 : f->len;
	for (unsigned i = 1; number && i < number && *from < f->len; i++)
		*from += strcspn(f->text + *from, "\n") + 1;
	*to = number ? *from + strcspn(f->text + *from, "\n") + 1 : f->len;
}

/* Other lines, comments among them, stay as they are. */
static char *edited_text(const struct link_file *f, unsigned number, const char *line, size_t *len)
{
	size_t from = 0, to = 0, n = line ? strlen(line) : 0;

	find_line(f, number, &from, &to);
	char *out = malloc(f->len + n + 1);

	if (!out)
		return NULL;
	if (from)
		memcpy(out, f->text, from);
	if (n)
		memcpy(out + from, line, n);
	if (to < f->len)
		memcpy(out + from + n, f->text + to, f->len - to);
	*len = from + n + f->len - to;
	return out;
}

bool link_file_store(struct link_file *f, unsigned number, const char *line)
{
	size_t len = 0;

	if (f->text) { /* the file has no zero byte, and every line a newline */
		char *more = realloc(f->text, f->len + 1);

		if (!more)
			return fail_link_file(f->path, strerror(errno));
		f->text = more;
		f->text[f->len] = '\0';
	}
	char *text = edited_text(f, number, line, &len);
	int fd = text && len <= VB_LINKS_FILE_MAX
	                 ? openat(f->dir, NEW_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644)
	                 : -1;

	if (text && len > VB_LINKS_FILE_MAX)
		errno = EFBIG;
	bool done = fd >= 0 && !fchmod(fd, 0644) && write_all(fd, text, len) && !fsync(fd);
	int err = errno;

	free(text);
	if (fd >= 0 && close(fd) && done) {
		done = false;
		err = errno;
	}
	if (done && renameat(f->dir, NEW_NAME, f->dir, FILE_NAME)) {
		done = false;
		err = errno;
	}
	if (!done && fd >= 0)
		unlinkat(f->dir, NEW_NAME, 0);
	if (!done)
		return fail_link_file(f->path, strerror(err));
	fsync(f->dir); /* the name; the bytes are on the disk */
	return true;
}

void link_file_close(struct link_file *f)
{
	if (f->dir >= 0)
		close(f->dir);
	free(f->text);
}
