// map.c - which paths the shim redirects, and to where
// follows: path_resolution(7)
// SPDX-License-Identifier: MIT
#include "tools/shim/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/shim/aside.h"
#include "tools/shim/srp.h"
#include "util/runtime.h"

static const char sys_class[] = "/sys/class/infiniband", dev[] = "/dev/infiniband";
static const char scsi_host[] = "/sys/class/scsi_host";

static bool has_prefix(const char *s, const char *prefix)
{
	while (*prefix)
		if (*s++ != *prefix++)
			return false;
	return true;
}

/* As has_prefix(), but several slashes count as one. */
static bool has_path_prefix(const char *s, const char *prefix)
{
	for (; *prefix; prefix++, s++) {
		if (*s != *prefix)
			return false;
		while (*prefix == '/' && s[1] == '/')
			s++;
	}
	return true;
}

bool vb_shim_may_map(const char *path)
{
	if (!path || vb_shim_is_aside())
		return false;
	if (*path == '/')
		return has_path_prefix(path, sys_class) || has_path_prefix(path, dev) ||
		       (has_path_prefix(path, scsi_host) && vb_shim_srp_wanted());
	while (has_prefix(path, "./"))
		path += 2;
	return has_path_prefix(path, sys_class + 1) || has_path_prefix(path, dev + 1) ||
	       has_path_prefix(path, "class/infiniband") || has_prefix(path, "infiniband");
}

/* The directory of a relative path. By system call, because the shim replaces the library's readlink. */
static bool base_directory(int dirfd, char *buf, size_t size)
{
	char link[40] = "/proc/self/fd/";
	char digits[12];
	int i = sizeof(digits) - 1;

	if (dirfd == AT_FDCWD)
		return syscall(SYS_getcwd, buf, size) > 0;
	if (dirfd < 0)
		return false;
	digits[i] = '\0';
	do
		digits[--i] = (char)('0' + dirfd % 10);
	while ((dirfd /= 10));
	strcat(link, digits + i);
	long n = syscall(SYS_readlinkat, AT_FDCWD, link, buf, size - 1);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return true;
}

/* Removes double slashes, "." and "..". By name only: the redirected directories do not exist. */
static void normalise_path(char *path)
{
	char *out = path;

	for (const char *in = path; *in;) {
		size_t n;

		while (*in == '/')
			in++;
		n = strcspn(in, "/");
		if (n == 2 && in[0] == '.' && in[1] == '.') {
			while (out > path && *--out != '/')
				;
		} else if (n && !(n == 1 && in[0] == '.')) {
			*out++ = '/';
			memmove(out, in, n);
			out += n;
		}
		in += n;
	}
	if (out == path)
		*out++ = '/';
	*out = '\0';
}

/* Writes the normalised absolute form of a path to buf. */
static bool absolute_path(int dirfd, const char *path, char *buf, size_t size)
{
	size_t n = 0;

	if (*path != '/') {
		if (!base_directory(dirfd, buf, size))
			return false;
		n = strlen(buf);
		/* no directories: "pipe:[1]", "(unreachable)/x" */
		if (*buf != '/' || n + 1 >= size)
			return false;
		buf[n++] = '/';
	}
	size_t len = strlen(path);
	if (n + len >= size)
		return false;
	memcpy(buf + n, path, len + 1);
	normalise_path(buf);
	return true;
}

/* Replaces the first skip bytes of buf by the tree's path. */
static bool insert_tree(char *buf, size_t skip)
{
	char tree[PATH_MAX];
	size_t rest = strlen(buf + skip) + 1;

	if (vb_runtime_tree(tree, sizeof(tree)))
		return false;
	size_t n = strlen(tree);
	if (n + rest > PATH_MAX)
		return false;
	memmove(buf + n, buf + skip, rest);
	memcpy(buf, tree, n);
	return true;
}

const char *vb_shim_map(int dirfd, const char *path, struct vb_shim_map_buf *buf)
{
	int saved = errno;
	const char *result = path;

	if (vb_shim_may_map(path) && absolute_path(dirfd, path, buf->path, sizeof(buf->path))) {
		bool slash = path[strlen(path) - 1] == '/';

		if (vb_shim_may_map(buf->path)) {
			if (insert_tree(buf->path, has_prefix(buf->path, dev) ? 0 : strlen("/sys")))
				result = buf->path;
		} else if (*path == '/') {
			result = buf->path; /* ".." leads out of the redirected directories again */
		}
		size_t n = strlen(buf->path);
		if (slash && n > 1 && result == buf->path && n + 1 < sizeof(buf->path))
			memcpy(buf->path + n, "/", 2); /* the trailing slash requests a directory */
	}
	errno = saved;
	return result;
}

/* The part of a path below the tree, or NULL. */
static const char *below_tree(const char *path)
{
	char tree[PATH_MAX];

	if (vb_runtime_tree(tree, sizeof(tree)) || !has_prefix(path, tree))
		return NULL;
	return path + strlen(tree);
}

bool vb_shim_map_is_node(const struct vb_shim_map_buf *buf)
{
	const char *rest = below_tree(buf->path);

	return rest && has_prefix(rest, "/dev/infiniband/") && rest[strlen("/dev/infiniband/")];
}

const char *vb_shim_map_below(const struct vb_shim_map_buf *buf)
{
	return below_tree(buf->path);
}

void vb_shim_map_undo(char *path)
{
	int saved = errno;
	const char *rest = below_tree(path);

	if (rest && has_prefix(rest, sys_class + 4)) {
		memmove(path + 4, rest, strlen(rest) + 1);
		memcpy(path, "/sys", 4);
	} else if (rest && has_prefix(rest, dev)) {
		memmove(path, rest, strlen(rest) + 1);
	}
	errno = saved;
}

int vb_shim_map_tree_path(char *buf, size_t size, const char *name)
{
	int rc = vb_runtime_tree(buf, size);
	size_t n = rc ? 0 : strlen(buf);

	if (rc || n + strlen(name) + 2 > size)
		return rc ? rc : ENAMETOOLONG;
	buf[n] = '/';
	strcpy(buf + n + 1, name);
	return 0;
}
