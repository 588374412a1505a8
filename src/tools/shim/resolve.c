// resolve.c - redirects links, real paths, patterns and the working directory
// follows: readlink(2), realpath(3), glob(3), chdir(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/shim/map.h"
#include "tools/shim/next.h"

ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t size);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t len, size_t size);
char *__realpath_chk(const char *path, char *resolved, size_t size);

NEXT_OF(readlink)
NEXT_OF(readlinkat)
NEXT_OF(__readlink_chk)
NEXT_OF(__readlinkat_chk)
NEXT_OF(realpath)
NEXT_OF(__realpath_chk)
NEXT_OF(canonicalize_file_name)
NEXT_OF(chdir)
NEXT_OF(glob)
NEXT_OF(glob64)
NEXT_OF(access)

APART static ssize_t readlink_mapped(int dirfd, const char *path, char *out, size_t len)
{
	struct vb_shim_map_buf buf;
	const char *p = vb_shim_map(dirfd, path, &buf);

	if (p == buf.path && vb_shim_map_is_node(&buf)) {
		/* The program must see a character device, not a link. */
		if (!NEXT(access)(p, F_OK))
			errno = EINVAL;
		return -1;
	}
	return NEXT(readlinkat)(dirfd, p, out, len);
}

EXPORT ssize_t readlink(const char *path, char *buf, size_t len)
{
	return vb_shim_may_map(path) ? readlink_mapped(AT_FDCWD, path, buf, len) : NEXT(readlink)(path, buf, len);
}

EXPORT ssize_t readlinkat(int dirfd, const char *path, char *buf, size_t len)
{
	return vb_shim_may_map(path) ? readlink_mapped(dirfd, path, buf, len) : NEXT(readlinkat)(dirfd, path, buf, len);
}

EXPORT ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t size)
{
	return vb_shim_may_map(path) && len <= size ? readlink_mapped(AT_FDCWD, path, buf, len)
	                                            : NEXT(__readlink_chk)(path, buf, len, size);
}

EXPORT ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t len, size_t size)
{
	return vb_shim_may_map(path) && len <= size ? readlink_mapped(dirfd, path, buf, len)
	                                            : NEXT(__readlinkat_chk)(dirfd, path, buf, len, size);
}

/* Programs compare the result with the path that they gave: return it under the original name. */
APART static char *realpath_mapped(const char *path, char *resolved)
{
	struct vb_shim_map_buf buf;
	const char *p = vb_shim_map(AT_FDCWD, path, &buf);
	char *result;

	if (p == buf.path && vb_shim_map_is_node(&buf)) {
		if (NEXT(access)(p, F_OK))
			return NULL;
		result = resolved ? strcpy(resolved, buf.path) : strdup(buf.path);
	} else {
		result = NEXT(realpath)(p, resolved);
	}
	if (result)
		vb_shim_map_undo(result);
	return result;
}

EXPORT char *realpath(const char *path, char *resolved)
{
	return vb_shim_may_map(path) ? realpath_mapped(path, resolved) : NEXT(realpath)(path, resolved);
}

EXPORT char *__realpath_chk(const char *path, char *resolved, size_t size)
{
	return vb_shim_may_map(path) && size >= PATH_MAX ? realpath_mapped(path, resolved)
	                                                 : NEXT(__realpath_chk)(path, resolved, size);
}

EXPORT char *canonicalize_file_name(const char *path)
{
	return vb_shim_may_map(path) ? realpath_mapped(path, NULL) : NEXT(canonicalize_file_name)(path);
}

APART static int chdir_mapped(const char *path)
{
	struct vb_shim_map_buf buf;

	return NEXT(chdir)(vb_shim_map(AT_FDCWD, path, &buf));
}

EXPORT int chdir(const char *path)
{
	return vb_shim_may_map(path) ? chdir_mapped(path) : NEXT(chdir)(path);
}

/* glob opens directories inside the C library, where the shim replaces nothing: it gets the whole pattern redirected,
 * and its results are changed back. The tree's own path has no pattern characters, unless the user's directory has
 * some. */
#define GLOB(name, type)                                                                                            \
	APART static int name##_mapped(const char *pattern, int flags, int (*on_error)(const char *, int), type *g) \
	{                                                                                                           \
		struct vb_shim_map_buf buf;                                                                         \
		size_t old = flags & GLOB_APPEND ? g->gl_pathc : 0;                                                 \
		const char *p = vb_shim_map(AT_FDCWD, pattern, &buf);                                               \
		int rc = NEXT(name)(p, flags, on_error, g);                                                         \
		if (!rc && p == buf.path && *pattern == '/')                                                        \
			for (size_t i = old; i < g->gl_pathc; i++)                                                  \
				vb_shim_map_undo(g->gl_pathv[(flags & GLOB_DOOFFS ? g->gl_offs : 0) + i]);          \
		return rc;                                                                                          \
	}                                                                                                           \
	EXPORT int name(const char *pattern, int flags, int (*on_error)(const char *, int), type *g)                \
	{                                                                                                           \
		return vb_shim_may_map(pattern) && *pattern == '/' ? name##_mapped(pattern, flags, on_error, g)     \
		                                                   : NEXT(name)(pattern, flags, on_error, g);       \
	}
GLOB(glob, glob_t)
GLOB(glob64, glob64_t)
