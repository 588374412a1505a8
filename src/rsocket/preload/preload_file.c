// preload_file.c - stdio streams over rsockets: the C library would call read and write directly
// follows: fdopen(3), fopencookie(3), dprintf(3)
// SPDX-License-Identifier: MIT
#undef _FORTIFY_SOURCE
#include "rsocket/preload/preload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "util/lock.h"

struct stream {
	struct stream *next;
	FILE *file;
	int fd;
	int busy; /* a thread reads or writes it, perhaps the one that calls exit() in a signal handler */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams; /* guarded by lock */

static void unlock_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void follow_stream_forks(void)
{
	pthread_atfork(NULL, NULL, unlock_in_child);
}

static ssize_t stream_read(void *cookie, char *buf, size_t len)
{
	struct stream *s = cookie;

	__atomic_fetch_add(&s->busy, 1, __ATOMIC_RELAXED);
	ssize_t n = read(s->fd, buf, len);
	__atomic_fetch_sub(&s->busy, 1, __ATOMIC_RELAXED);
	return n;
}

static ssize_t stream_write(void *cookie, const char *buf, size_t len)
{
	struct stream *s = cookie;

	__atomic_fetch_add(&s->busy, 1, __ATOMIC_RELAXED);
	ssize_t n = write(s->fd, buf, len);
	__atomic_fetch_sub(&s->busy, 1, __ATOMIC_RELAXED);
	return n < 0 ? 0 : n; /* fopencookie(3): 0 means an error */
}

static int stream_seek(void *cookie, off64_t *at, int whence)
{
	(void)cookie, (void)at, (void)whence;
	errno = ESPIPE;
	return -1;
}

static int stream_close(void *cookie)
{
	struct stream *s = cookie, **at;
	int r = close(s->fd);

	vb_mutex_lock(&lock, VB_RANK_PRE_FILE);
	for (at = &streams; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	vb_mutex_unlock(&lock);
	free(s);
	return r;
}

static FILE *open_stream(int fd, const char *mode)
{
	const cookie_io_functions_t calls = {stream_read, stream_write, stream_seek, stream_close};
	struct stream *s = malloc(sizeof(*s));
	FILE *file = s ? fopencookie(s, mode, calls) : NULL;

	if (!file) {
		free(s);
		return NULL;
	}
	file->_fileno = fd; /* for fileno(3) */
	vb_mutex_lock(&lock, VB_RANK_PRE_FILE);
	*s = (struct stream){.next = streams, .file = file, .fd = fd};
	streams = s;
	vb_mutex_unlock(&lock);
	return file;
}

static bool fd_is_rsocket(int fd)
{
	struct pre_sock *s = pre_get(fd);

	if (s)
		pre_put(s);
	return s;
}

PRE_EXPORT FILE *fdopen(int fd, const char *mode)
{
	pre_init();
	return fd_is_rsocket(fd) ? open_stream(fd, mode) : pre_real.fdopen(fd, mode);
}

PRE_EXPORT int vdprintf(int fd, const char *format, va_list args)
{
	char *text;
	int n, at = 0;

	pre_init();
	if (!fd_is_rsocket(fd))
		return pre_real.vdprintf(fd, format, args);
	n = vasprintf(&text, format, args);
	if (n < 0)
		return -1;
	while (at < n) {
		ssize_t put = write(fd, text + at, (size_t)(n - at));

		if (put < 0)
			break;
		at += (int)put;
	}
	free(text);
	return at < n ? -1 : n;
}

PRE_EXPORT int dprintf(int fd, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vdprintf(fd, format, args);
	va_end(args);
	return n;
}

/* Programs compiled with fortification call these. */
int __vdprintf_chk(int fd, int flag, const char *format, va_list args);
int __dprintf_chk(int fd, int flag, const char *format, ...);

PRE_EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list args)
{
	(void)flag;
	return vdprintf(fd, format, args);
}

PRE_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list args;
	int n;

	(void)flag;
	va_start(args, format);
	n = vdprintf(fd, format, args);
	va_end(args);
	return n;
}

/* Flushes the streams. The C library does so only after all destructors, when rsockets no longer work. */
__attribute__((destructor)) static void write_out(void)
{
	if (vb_mutex_trylock(&lock, VB_RANK_PRE_FILE))
		return;
	for (struct stream *s = streams; s; s = s->next) {
		if (ftrylockfile(s->file))
			continue;
		if (!__atomic_load_n(&s->busy, __ATOMIC_RELAXED))
			fflush_unlocked(s->file);
		funlockfile(s->file);
	}
	vb_mutex_unlock(&lock);
}
