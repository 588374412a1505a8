// tree_files.c - files, links and directories below one directory, each changed atomically
// follows: rename(2)
// SPDX-License-Identifier: MIT
#include "tools/tree_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAME ".same"

static const char new_file[] = VB_TREE_ASIDE "/new", old_entry[] = VB_TREE_ASIDE "/old";

static void tree_fail(struct vb_tree *t)
{
	if (!t->err)
		t->err = errno;
}

void vb_tree_dir(struct vb_tree *t, const char *path)
{
	char part[PATH_MAX];

	for (size_t i = 1; !t->err && i <= strlen(path) && i < sizeof(part); i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		/* whatever the umask: programs of other users read root's tree */
		if (!mkdirat(t->fd, part, 0755))
			fchmodat(t->fd, part, 0755, 0);
		else if (errno != EEXIST)
			tree_fail(t);
	}
}

/* Runs put(). If the parent is missing, creates it and tries again. */
static bool with_parent(struct vb_tree *t, const char *path, int (*put)(struct vb_tree *, const char *))
{
	char parent[PATH_MAX];
	const char *slash = strrchr(path, '/');

	if (!put(t, path))
		return true;
	if (errno != ENOENT || !slash)
		return false;
	snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	vb_tree_dir(t, parent);
	return !t->err && !put(t, path);
}

static int move_new(struct vb_tree *t, const char *path)
{
	return renameat(t->fd, new_file, t->fd, path);
}

ssize_t vb_tree_read(int dirfd, const char *path, char *buf, size_t size)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t n = read(fd, buf, size - 1);
	int saved = errno;
	close(fd);
	errno = saved;
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

static bool has_text(struct vb_tree *t, const char *path, const char *text)
{
	char old[1024];
	size_t len = strlen(text);

	return vb_tree_read(t->fd, path, old, sizeof(old)) == (ssize_t)len && !memcmp(old, text, len);
}

static bool write_new(struct vb_tree *t, const char *text)
{
	size_t len = strlen(text);

	unlinkat(t->fd, new_file, 0);
	int fd = openat(t->fd, new_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return false;
	fchmod(fd, 0444);
	bool done = write(fd, text, len) == (ssize_t)len;
	int saved = errno;
	close(fd);
	errno = saved;
	return done;
}

/* Files with the same content are hard links: most GIDs and counters are zero, and on tmpfs each file takes a page. */
static bool link_new(struct vb_tree *t, const char *text)
{
	char same[64];
	uint64_t h = VB_FNV_START;

	for (const char *s = text; *s; s++)
		h = (h ^ (uint8_t)*s) * VB_FNV_PRIME;
	snprintf(same, sizeof(same), SAME "/%016llx", (unsigned long long)h);
	if (!has_text(t, same, text) && (!write_new(t, text) || !with_parent(t, same, move_new)))
		return false;
	unlinkat(t->fd, new_file, 0);
	return !linkat(t->fd, same, t->fd, new_file, 0);
}

void vb_tree_file(struct vb_tree *t, const char *path, const char *text)
{
	if (t->err || has_text(t, path, text))
		return;
	/* Some file systems have no hard links, and all limit their number. */
	if ((!link_new(t, text) && !write_new(t, text)) || !with_parent(t, path, move_new))
		tree_fail(t);
}

void vb_tree_link(struct vb_tree *t, const char *path, const char *target)
{
	char old[PATH_MAX];
	ssize_t n = readlinkat(t->fd, path, old, sizeof(old));

	if (t->err || (n == (ssize_t)strlen(target) && !memcmp(old, target, (size_t)n)))
		return;
	unlinkat(t->fd, new_file, 0);
	if (symlinkat(target, t->fd, new_file) || !with_parent(t, path, move_new))
		tree_fail(t);
}

void vb_tree_move(struct vb_tree *t, const char *from, const char *to)
{
	if (!t->err && renameat(t->fd, from, t->fd, to))
		tree_fail(t);
}

static void remove_below(int fd, const char *name)
{
	if (!unlinkat(fd, name, 0) || (errno != EISDIR && errno != EPERM))
		return;
	int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = sub < 0 ? NULL : fdopendir(sub);
	if (!dir) {
		if (sub >= 0)
			close(sub);
		return;
	}
	for (struct dirent *e; (e = readdir(dir));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			remove_below(dirfd(dir), e->d_name);
	closedir(dir);
	unlinkat(fd, name, AT_REMOVEDIR);
}

void vb_tree_discard(int dirfd, const char *name)
{
	remove_below(dirfd, name);
}

void vb_tree_remove(struct vb_tree *t, const char *path)
{
	if (t->err)
		return;
	/* Renamed first, so that readers lose the whole directory at once. */
	if (renameat(t->fd, path, t->fd, old_entry) && errno != ENOENT) {
		remove_below(t->fd, old_entry);
		if (renameat(t->fd, path, t->fd, old_entry) && errno != ENOENT)
			tree_fail(t);
	}
	if (!faccessat(t->fd, old_entry, F_OK, AT_SYMLINK_NOFOLLOW))
		remove_below(t->fd, old_entry);
}

void vb_tree_prune(struct vb_tree *t, const char *path, bool (*keep)(const char *, const void *), const void *arg)
{
	char entry[PATH_MAX];
	int fd = t->err ? -1 : openat(t->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(dir));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || keep(e->d_name, arg))
			continue;
		snprintf(entry, sizeof(entry), "%s/%s", path, e->d_name);
		vb_tree_remove(t, entry);
	}
	closedir(dir);
}
