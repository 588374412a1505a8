// open.c - redirects calls that open files and directories
// follows: open(2), fopen(3), opendir(3), scandir(3)
// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/shim/fabric.h"
#include "tools/shim/live.h"
#include "tools/shim/map.h"
#include "tools/shim/next.h"
#include "tools/shim/srp.h"

/* _FORTIFY_SOURCE turns open without a mode into these. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);

NEXT_OF(open)
NEXT_OF(open64)
NEXT_OF(openat)
NEXT_OF(openat64)
NEXT_OF(__open_2)
NEXT_OF(__open64_2)
NEXT_OF(__openat_2)
NEXT_OF(__openat64_2)
NEXT_OF(fopen)
NEXT_OF(fopen64)
NEXT_OF(freopen)
NEXT_OF(freopen64)
NEXT_OF(opendir)
NEXT_OF(scandir)
NEXT_OF(scandir64)
NEXT_OF(scandirat)
NEXT_OF(scandirat64)

/* Read-only sysfs attributes cannot be opened for writing even by root; files of the tree could. */
static bool is_denied(const char *mapped, const struct vb_shim_map_buf *buf, bool writes)
{
	if (mapped != buf->path || !writes || vb_shim_map_is_node(buf))
		return false;
	errno = EACCES;
	return true;
}

/* A file whose text is made when it is opened; -1: none. A counter has the numbers of running programs. A cheap test
 * first, because most paths are not. */
static int live_file(const struct vb_shim_map_buf *buf, int flags)
{
	if (flags & (O_PATH | O_DIRECTORY))
		return -1;
	if (!strstr(buf->path, "counters/"))
		return vb_shim_fabric(vb_shim_map_below(buf), flags & O_CLOEXEC);
	return vb_shim_live(vb_shim_map_below(buf), flags & O_CLOEXEC);
}

/* The path of add_target below the tree; NULL: it is another file. */
static const char *add_target_of(const char *mapped, const struct vb_shim_map_buf *buf)
{
	const char *rest = mapped == buf->path ? vb_shim_map_below(buf) : NULL;

	return vb_shim_srp_is_add_target(rest) ? rest : NULL;
}

static FILE *fopen_add_target(const char *rest)
{
	int fd = vb_shim_srp_open(rest, O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

APART static int open_mapped(int dirfd, const char *path, int flags, mode_t mode)
{
	struct vb_shim_map_buf buf;
	const char *p = vb_shim_map(dirfd, path, &buf);
	const char *target = (flags & O_ACCMODE) == O_WRONLY ? add_target_of(p, &buf) : NULL;

	if (target)
		return vb_shim_srp_open(target, flags & O_CLOEXEC);
	if (is_denied(p, &buf, (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC))))
		return -1;
	int live = p == buf.path ? live_file(&buf, flags) : -1;

	return live >= 0 ? live : NEXT(openat)(dirfd, p, flags, mode);
}

/* Reading a missing argument is harmless here, as it is in the C library. */
#define MODE(last)                                                                       \
	({                                                                               \
		va_list ap_;                                                             \
		va_start(ap_, last);                                                     \
		mode_t mode_ = (last & (O_CREAT | O_TMPFILE)) ? va_arg(ap_, mode_t) : 0; \
		va_end(ap_);                                                             \
		mode_;                                                                   \
	})

EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);

	return vb_shim_may_map(path) ? open_mapped(AT_FDCWD, path, flags, mode) : NEXT(open)(path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);

	return vb_shim_may_map(path) ? open_mapped(AT_FDCWD, path, flags | O_LARGEFILE, mode)
	                             : NEXT(open64)(path, flags, mode);
}

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);

	return vb_shim_may_map(path) ? open_mapped(dirfd, path, flags, mode) : NEXT(openat)(dirfd, path, flags, mode);
}

EXPORT int openat64(int dirfd, const char *path, int flags, ...)
{
	mode_t mode = MODE(flags);

	return vb_shim_may_map(path) ? open_mapped(dirfd, path, flags | O_LARGEFILE, mode)
	                             : NEXT(openat64)(dirfd, path, flags, mode);
}

EXPORT int __open_2(const char *path, int flags)
{
	return vb_shim_may_map(path) ? open_mapped(AT_FDCWD, path, flags, 0) : NEXT(__open_2)(path, flags);
}

EXPORT int __open64_2(const char *path, int flags)
{
	return vb_shim_may_map(path) ? open_mapped(AT_FDCWD, path, flags | O_LARGEFILE, 0)
	                             : NEXT(__open64_2)(path, flags);
}

EXPORT int __openat_2(int dirfd, const char *path, int flags)
{
	return vb_shim_may_map(path) ? open_mapped(dirfd, path, flags, 0) : NEXT(__openat_2)(dirfd, path, flags);
}

EXPORT int __openat64_2(int dirfd, const char *path, int flags)
{
	return vb_shim_may_map(path) ? open_mapped(dirfd, path, flags | O_LARGEFILE, 0)
	                             : NEXT(__openat64_2)(dirfd, path, flags);
}

APART static FILE *fopen_mapped(const char *path, const char *mode, FILE *again)
{
	struct vb_shim_map_buf buf;
	const char *p = vb_shim_map(AT_FDCWD, path, &buf);
	const char *target = !again && mode[0] != 'r' && !strchr(mode, '+') ? add_target_of(p, &buf) : NULL;

	if (target)
		return fopen_add_target(target);
	if (is_denied(p, &buf, mode[0] != 'r' || strchr(mode, '+')))
		return NULL;
	int live = p == buf.path ? live_file(&buf, O_CLOEXEC) : -1;
	if (live >= 0)
		snprintf(buf.path, sizeof(buf.path), "/proc/self/fd/%d", live);
	FILE *f = again ? NEXT(freopen)(p, mode, again) : NEXT(fopen)(p, mode);
	if (live >= 0)
		close(live);
	return f;
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	return vb_shim_may_map(path) ? fopen_mapped(path, mode, NULL) : NEXT(fopen)(path, mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	return vb_shim_may_map(path) ? fopen_mapped(path, mode, NULL) : NEXT(fopen64)(path, mode);
}

EXPORT FILE *freopen(const char *path, const char *mode, FILE *f)
{
	return vb_shim_may_map(path) ? fopen_mapped(path, mode, f) : NEXT(freopen)(path, mode, f);
}

EXPORT FILE *freopen64(const char *path, const char *mode, FILE *f)
{
	return vb_shim_may_map(path) ? fopen_mapped(path, mode, f) : NEXT(freopen64)(path, mode, f);
}

APART static DIR *opendir_mapped(const char *path)
{
	struct vb_shim_map_buf buf;

	return NEXT(opendir)(vb_shim_map(AT_FDCWD, path, &buf));
}

EXPORT DIR *opendir(const char *path)
{
	return vb_shim_may_map(path) ? opendir_mapped(path) : NEXT(opendir)(path);
}

typedef int chooser(const struct dirent *);
typedef int order(const struct dirent **, const struct dirent **);
typedef int chooser64(const struct dirent64 *);
typedef int order64(const struct dirent64 **, const struct dirent64 **);

APART static int scandir_mapped(int dirfd, const char *path, struct dirent ***list, chooser *choose, order *compare)
{
	struct vb_shim_map_buf buf;

	return NEXT(scandirat)(dirfd, vb_shim_map(dirfd, path, &buf), list, choose, compare);
}

APART static int scandir64_mapped(int dirfd, const char *path, struct dirent64 ***list, chooser64 *choose,
                                  order64 *compare)
{
	struct vb_shim_map_buf buf;

	return NEXT(scandirat64)(dirfd, vb_shim_map(dirfd, path, &buf), list, choose, compare);
}

EXPORT int scandir(const char *path, struct dirent ***list, chooser *choose, order *compare)
{
	return vb_shim_may_map(path) ? scandir_mapped(AT_FDCWD, path, list, choose, compare)
	                             : NEXT(scandir)(path, list, choose, compare);
}

EXPORT int scandir64(const char *path, struct dirent64 ***list, chooser64 *choose, order64 *compare)
{
	return vb_shim_may_map(path) ? scandir64_mapped(AT_FDCWD, path, list, choose, compare)
	                             : NEXT(scandir64)(path, list, choose, compare);
}

EXPORT int scandirat(int dirfd, const char *path, struct dirent ***list, chooser *choose, order *compare)
{
	return vb_shim_may_map(path) ? scandir_mapped(dirfd, path, list, choose, compare)
	                             : NEXT(scandirat)(dirfd, path, list, choose, compare);
}

EXPORT int scandirat64(int dirfd, const char *path, struct dirent64 ***list, chooser64 *choose, order64 *compare)
{
	return vb_shim_may_map(path) ? scandir64_mapped(dirfd, path, list, choose, compare)
	                             : NEXT(scandirat64)(dirfd, path, list, choose, compare);
}
