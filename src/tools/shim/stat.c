// stat.c - redirects calls that ask about files
// follows: stat(2), statx(2), access(2), getxattr(2), inotify_add_watch(2)
// SPDX-License-Identifier: MIT
#include <assert.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/shim/map.h"
#include "tools/shim/next.h"

static_assert(sizeof(struct stat) == sizeof(struct stat64), "one implementation serves both names");

/* Programs built before glibc 2.33 call these. */
int __xstat(int ver, const char *path, struct stat *st);
int __lxstat(int ver, const char *path, struct stat *st);
int __fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags);
int __xstat64(int ver, const char *path, struct stat64 *st);
int __lxstat64(int ver, const char *path, struct stat64 *st);
int __fxstatat64(int ver, int dirfd, const char *path, struct stat64 *st, int flags);

NEXT_OF(stat)
NEXT_OF(lstat)
NEXT_OF(fstatat)
NEXT_OF(stat64)
NEXT_OF(lstat64)
NEXT_OF(fstatat64)
NEXT_OF(statx)
NEXT_OF(__xstat)
NEXT_OF(__lxstat)
NEXT_OF(__fxstatat)
NEXT_OF(__xstat64)
NEXT_OF(__lxstat64)
NEXT_OF(__fxstatat64)
NEXT_OF(access)
NEXT_OF(faccessat)
NEXT_OF(euidaccess)
NEXT_OF(eaccess)
NEXT_OF(getxattr)
NEXT_OF(lgetxattr)
NEXT_OF(listxattr)
NEXT_OF(llistxattr)
NEXT_OF(inotify_add_watch)

/* An entry of dev/infiniband is a link in the tree, which no program may see. */
static int node_flags(const char *mapped, const struct vb_shim_map_buf *buf, int flags)
{
	return mapped == buf->path && vb_shim_map_is_node(buf) ? flags & ~AT_SYMLINK_NOFOLLOW : flags;
}

APART static int stat_mapped(int dirfd, const char *path, void *st, int flags)
{
	struct vb_shim_map_buf buf;
	const char *p = vb_shim_map(dirfd, path, &buf);

	return NEXT(fstatat)(dirfd, p, st, node_flags(p, &buf, flags));
}

#define STAT(name, type, flags)                                                                               \
	EXPORT int name(const char *path, type *st)                                                           \
	{                                                                                                     \
		return vb_shim_may_map(path) ? stat_mapped(AT_FDCWD, path, st, flags) : NEXT(name)(path, st); \
	}
STAT(stat, struct stat, 0)
STAT(lstat, struct stat, AT_SYMLINK_NOFOLLOW)
STAT(stat64, struct stat64, 0)
STAT(lstat64, struct stat64, AT_SYMLINK_NOFOLLOW)

#define XSTAT(name, type, flags)                                       \
	EXPORT int name(int ver, const char *path, type *st)           \
	{                                                              \
		if (vb_shim_may_map(path) || !NEXT(name))              \
			return stat_mapped(AT_FDCWD, path, st, flags); \
		return NEXT(name)(ver, path, st);                      \
	}
XSTAT(__xstat, struct stat, 0)
XSTAT(__lxstat, struct stat, AT_SYMLINK_NOFOLLOW)
XSTAT(__xstat64, struct stat64, 0)
XSTAT(__lxstat64, struct stat64, AT_SYMLINK_NOFOLLOW)

EXPORT int fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	return vb_shim_may_map(path) ? stat_mapped(dirfd, path, st, flags) : NEXT(fstatat)(dirfd, path, st, flags);
}

EXPORT int fstatat64(int dirfd, const char *path, struct stat64 *st, int flags)
{
	return vb_shim_may_map(path) ? stat_mapped(dirfd, path, st, flags) : NEXT(fstatat64)(dirfd, path, st, flags);
}

EXPORT int __fxstatat(int ver, int dirfd, const char *path, struct stat *st, int flags)
{
	if (vb_shim_may_map(path) || !NEXT(__fxstatat))
		return stat_mapped(dirfd, path, st, flags);
	return NEXT(__fxstatat)(ver, dirfd, path, st, flags);
}

EXPORT int __fxstatat64(int ver, int dirfd, const char *path, struct stat64 *st, int flags)
{
	if (vb_shim_may_map(path) || !NEXT(__fxstatat64))
		return stat_mapped(dirfd, path, st, flags);
	return NEXT(__fxstatat64)(ver, dirfd, path, st, flags);
}

APART static int statx_mapped(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
	struct vb_shim_map_buf buf;
	const char *p = vb_shim_map(dirfd, path, &buf);

	return NEXT(statx)(dirfd, p, node_flags(p, &buf, flags), mask, stx);
}

EXPORT int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
	return vb_shim_may_map(path) ? statx_mapped(dirfd, path, flags, mask, stx)
	                             : NEXT(statx)(dirfd, path, flags, mask, stx);
}

APART static int access_mapped(int dirfd, const char *path, int mode, int flags)
{
	struct vb_shim_map_buf buf;

	return NEXT(faccessat)(dirfd, vb_shim_map(dirfd, path, &buf), mode, flags);
}

EXPORT int access(const char *path, int mode)
{
	return vb_shim_may_map(path) ? access_mapped(AT_FDCWD, path, mode, 0) : NEXT(access)(path, mode);
}

EXPORT int faccessat(int dirfd, const char *path, int mode, int flags)
{
	return vb_shim_may_map(path) ? access_mapped(dirfd, path, mode, flags)
	                             : NEXT(faccessat)(dirfd, path, mode, flags);
}

EXPORT int euidaccess(const char *path, int mode)
{
	return vb_shim_may_map(path) ? access_mapped(AT_FDCWD, path, mode, AT_EACCESS) : NEXT(euidaccess)(path, mode);
}

EXPORT int eaccess(const char *path, int mode)
{
	return vb_shim_may_map(path) ? access_mapped(AT_FDCWD, path, mode, AT_EACCESS) : NEXT(eaccess)(path, mode);
}

/* ls -l reads access control lists. */
#define GETXATTR(name)                                                                                  \
	APART static ssize_t name##_mapped(const char *path, const char *key, void *value, size_t size) \
	{                                                                                               \
		struct vb_shim_map_buf buf;                                                             \
		return NEXT(name)(vb_shim_map(AT_FDCWD, path, &buf), key, value, size);                 \
	}                                                                                               \
	EXPORT ssize_t name(const char *path, const char *key, void *value, size_t size)                \
	{                                                                                               \
		return vb_shim_may_map(path) ? name##_mapped(path, key, value, size)                    \
		                             : NEXT(name)(path, key, value, size);                      \
	}
GETXATTR(getxattr)
GETXATTR(lgetxattr)

#define LISTXATTR(name)                                                                                        \
	APART static ssize_t name##_mapped(const char *path, char *list, size_t size)                          \
	{                                                                                                      \
		struct vb_shim_map_buf buf;                                                                    \
		return NEXT(name)(vb_shim_map(AT_FDCWD, path, &buf), list, size);                              \
	}                                                                                                      \
	EXPORT ssize_t name(const char *path, char *list, size_t size)                                         \
	{                                                                                                      \
		return vb_shim_may_map(path) ? name##_mapped(path, list, size) : NEXT(name)(path, list, size); \
	}
LISTXATTR(listxattr)
LISTXATTR(llistxattr)

APART static int watch_mapped(int fd, const char *path, uint32_t mask)
{
	struct vb_shim_map_buf buf;

	return NEXT(inotify_add_watch)(fd, vb_shim_map(AT_FDCWD, path, &buf), mask);
}

EXPORT int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	return vb_shim_may_map(path) ? watch_mapped(fd, path, mask) : NEXT(inotify_add_watch)(fd, path, mask);
}
