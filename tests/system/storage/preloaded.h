// preloaded.h - for libraries that are preloaded into a program, and show it device files that the kernel does not have
// follows: open(2), fstat(2); dlsym(3)
// SPDX-License-Identifier: MIT
// To be included first, once in a library
#ifndef VB_TEST_STORAGE_PRELOADED_H
#define VB_TEST_STORAGE_PRELOADED_H

#undef _FILE_OFFSET_BITS /* open(2) and open64(2) are two names here */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#define FDS 1024 /* descriptors of these files are smaller */

/* The function of the C library that one here stands for. */
#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))
#define STANDS __attribute__((visibility("default")))

/* Opens one of these files. Returns its descriptor; -2: another file. */
static int open_ours(const char *path);
/* Changes what fstat(2) says of a descriptor. */
static void show_ours(int fd, mode_t *mode, dev_t *rdev);

#define OPENS(name)                                                                   \
	STANDS int name(const char *path, int flags, ...)                             \
	{                                                                             \
		va_list ap;                                                           \
		int fd = open_ours(path);                                             \
                                                                                      \
		va_start(ap, flags);                                                  \
		mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0; \
		va_end(ap);                                                           \
		return fd != -2 ? fd : REAL(name)(path, flags, mode);                 \
	}
OPENS(open)
OPENS(open64)

/* … as programs with _FORTIFY_SOURCE call it */
int __open64_2(const char *path, int flags);
STANDS int __open64_2(const char *path, int flags)
{
	return open64(path, flags);
}

#define STATS(name, type)                                          \
	STANDS int name(int fd, struct type *st)                   \
	{                                                          \
		int e = REAL(name)(fd, st);                        \
                                                                   \
		if (!e)                                            \
			show_ours(fd, &st->st_mode, &st->st_rdev); \
		return e;                                          \
	}
STATS(fstat, stat)
STATS(fstat64, stat64)

#endif
