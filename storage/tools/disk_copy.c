// disk_copy.c - verbena-disk read, write and copy: between disks and files
// follows: lseek(2) for holes
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <linux/fs.h>

#include "tools/disk.h"

#define CHUNK (512u << 10) /* at least one block */
#define CHUNKS 16          /* chunks in flight */

struct end {
	const char *name;
	struct vn_disk *disk; /* NULL: a file */
	struct vn_memory *memory;
	int fd;
	bool no_zeroes, regular, blank; /* blank: a new file, which reads as zeroes where nothing is written */
	uint64_t size;
	uint32_t block;
};

struct chunk {
	struct job *job;
	uint8_t *data;
	uint64_t at;
	uint32_t length;
	bool busy;
};

struct job {
	struct end from, to;
	const struct vd_settings *settings;
	struct chunk chunks[CHUNKS];
	uint32_t chunk;  /* bytes of a chunk: whole blocks of both ends */
	uint8_t *memory; /* used if the library provides no memory */
	uint64_t next, end, done, to_at;
	struct timespec begun;
	unsigned busy;
	bool json; /* prints the result */
	int error;
	const char *failed;
};

static void fail_job(struct job *j, const struct end *e, int error)
{
	if (j->error)
		return;
	j->error = error;
	j->failed = e->name;
}

static bool is_all_zeroes(const uint8_t *at, size_t n)
{
	return !*at && !memcmp(at, at + 1, n - 1);
}

/* ---- one chunk: read, then write ---- */

static void chunk_done(struct chunk *c)
{
	c->busy = false;
	c->job->busy--;
	c->job->done += c->length;
}

static void chunk_written(void *arg, int error)
{
	struct chunk *c = arg;

	if (error)
		fail_job(c->job, &c->job->to, error);
	chunk_done(c);
}

/* A target may support Write Zeroes, but not on this disk; then zeroes are written. */
static void chunk_zeroed(void *arg, int error)
{
	struct chunk *c = arg;
	struct job *j = c->job;
	uint32_t length = (c->length + j->to.block - 1) / j->to.block * j->to.block;

	if (error == -EOPNOTSUPP) {
		j->to.no_zeroes = true;
		error = vn_write(j->to.disk, c->data, length, j->to_at + c->at, 0, chunk_written, c);
		if (!error)
			return;
	}
	chunk_written(c, error);
}

static int write_fully(int fd, const uint8_t *at, size_t n, uint64_t offset, bool seekable)
{
	while (n) {
		ssize_t k = seekable ? pwrite(fd, at, n, (off_t)offset) : write(fd, at, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		at += k;
		offset += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

/* Fills the last block of a file with the bytes that the disk has there, which are preserved. */
static int fill_block(const struct end *to, struct chunk *c, uint64_t at)
{
	uint32_t beyond = c->length % to->block, n = c->length - beyond;
	uint8_t *block;
	int e;

	if (!beyond)
		return 0;
	block = calloc(1, to->block); /* zeroed: a target that reports success without data must not get our memory */
	if (!block)
		return -ENOMEM;
	e = vn_read_wait(to->disk, block, to->block, at + n);
	if (!e)
		memcpy(c->data + c->length, block + beyond, to->block - beyond);
	free(block);
	return e;
}

static void write_disk(struct chunk *c)
{
	struct job *j = c->job;
	struct end *to = &j->to;
	uint64_t at = j->to_at + c->at;
	uint32_t length = (c->length + to->block - 1) / to->block * to->block;
	int e = at > to->size || length > to->size - at ? -ENOSPC : fill_block(to, c, at);

	if (!e && j->settings->sparse && vn_info(to->disk)->write_zeroes && !to->no_zeroes &&
	    is_all_zeroes(c->data, length))
		e = vn_write_zeroes(to->disk, length, at, VN_DISCARD, chunk_zeroed, c);
	else if (!e)
		e = vn_write(to->disk, c->data, length, at, 0, chunk_written, c);
	if (e)
		chunk_written(c, e);
}

static void have_read(void *arg, int error)
{
	struct chunk *c = arg;
	struct job *j = c->job;

	if (error || j->error) {
		if (error)
			fail_job(j, &j->from, error);
		chunk_done(c);
	} else if (j->to.disk) {
		write_disk(c);
	} else if (j->to.blank && j->settings->sparse && is_all_zeroes(c->data, c->length)) {
		chunk_done(c);
	} else {
		chunk_written(c, write_fully(j->to.fd, c->data, c->length, j->to_at + c->at, j->to.regular));
	}
}

/* The offset of the next data in a file with holes. */
static uint64_t data_from(const struct job *j, uint64_t at)
{
	if (j->from.disk || !j->settings->sparse || !j->to.blank)
		return at;
	off_t n = lseek(j->from.fd, (off_t)at, SEEK_DATA);

	if (n < 0)
		return errno == ENXIO ? j->end : at;
	uint64_t whole = (uint64_t)n / j->chunk * j->chunk;

	return whole > at ? whole : at;
}

static ssize_t read_fully(int fd, uint8_t *at, size_t n, uint64_t offset, bool seekable)
{
	size_t got = 0;

	while (got < n) {
		ssize_t k =
		        seekable ? pread(fd, at + got, n - got, (off_t)(offset + got)) : read(fd, at + got, n - got);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			break;
		got += (size_t)k;
	}
	return (ssize_t)got;
}

static void read_file_chunk(struct chunk *c)
{
	struct job *j = c->job;
	ssize_t n = read_fully(j->from.fd, c->data, c->length, c->at, j->from.regular);

	if (n < 0) {
		have_read(c, (int)n);
	} else if ((uint32_t)n < c->length) { /* the end of the file, which may have shrunk */
		j->end = c->at + (uint64_t)n;
		c->length = (uint32_t)n;
		if (n)
			have_read(c, 0);
		else
			chunk_done(c);
	} else {
		have_read(c, 0);
	}
}

static void start_chunk(struct job *j, struct chunk *c)
{
	uint64_t at = data_from(j, j->next);
	int e;

	j->done += at - j->next;
	j->next = at;
	if (at >= j->end)
		return;
	c->at = at;
	c->length = j->end - at < j->chunk ? (uint32_t)(j->end - at) : j->chunk;
	c->busy = true;
	j->busy++;
	j->next += c->length;
	if (!j->from.disk) {
		read_file_chunk(c);
		return;
	}
	e = vn_read(j->from.disk, c->data, c->length, c->at, 0, have_read, c);
	if (e)
		have_read(c, e);
}

/* ---- all chunks ---- */

static void show_progress(const struct job *j, bool last)
{
	static time_t shown;
	time_t now = time(NULL);

	if (j->settings->quiet || !isatty(2) || (now == shown && !last))
		return;
	shown = now;
	if (j->end != UINT64_MAX && j->end) {
		unsigned percent = (unsigned)((double)j->done * 100 / (double)j->end);

		fprintf(stderr, "\r%3u%% [%-50.*s] %llu MiB%s", percent, (int)(percent / 2),
		        "##################################################", (unsigned long long)(j->done >> 20),
		        last ? "\n" : "");
	} else {
		fprintf(stderr, "\r%llu MiB%s", (unsigned long long)(j->done >> 20), last ? "\n" : "");
	}
}

static void wait_for_any(struct job *j)
{
	struct pollfd p[2];
	nfds_t n = 0;
	int k = 0;

	if (j->from.disk)
		k += vn_poll(j->from.disk, 0);
	if (j->to.disk)
		k += vn_poll(j->to.disk, 0);
	if (k || !j->busy)
		return;
	if (j->from.disk)
		p[n++] = (struct pollfd){.fd = vn_fd(j->from.disk), .events = POLLIN};
	if (j->to.disk)
		p[n++] = (struct pollfd){.fd = vn_fd(j->to.disk), .events = POLLIN};
	poll(p, n, 1000);
}

/* Allocates memory that a target on this host can map, if possible. It is freed with the disk that is closed last. */
static bool allocate_chunks(struct job *j)
{
	struct end *owner = j->to.disk ? &j->to : &j->from;
	void *at;

	j->chunk = CHUNK; /* blocks are powers of two */
	j->chunk = j->chunk < j->from.block ? j->from.block : j->chunk;
	j->chunk = j->chunk < j->to.block ? j->to.block : j->chunk;
	size_t size = (size_t)j->chunk * CHUNKS;

	if (!owner->disk || vn_allocate(owner->disk, size, &at, &owner->memory)) {
		if (posix_memalign((void **)&j->memory, 4096, size))
			return false;
		at = memset(j->memory, 0, size);
		if (owner->disk && vn_register(owner->disk, at, size, &owner->memory))
			owner->memory = NULL;
	}
	for (int i = 0; i < CHUNKS; i++)
		j->chunks[i] = (struct chunk){.job = j, .data = (uint8_t *)at + (size_t)j->chunk * i};
	if (owner != &j->from && j->from.disk && vn_register(j->from.disk, at, size, &j->from.memory))
		j->from.memory = NULL;
	return true;
}

static void run_job(struct job *j)
{
	/* writing to a pipe must be in order, so one chunk at a time */
	int chunks = !j->to.disk && !j->to.regular ? 1 : CHUNKS;

	while (j->busy || (j->next < j->end && !j->error)) {
		for (int i = 0; i < chunks && j->next < j->end && !j->error; i++)
			if (!j->chunks[i].busy)
				start_chunk(j, &j->chunks[i]);
		if (j->busy)
			wait_for_any(j);
		show_progress(j, false);
	}
	show_progress(j, true);
}

/* ---- source and destination ---- */

static bool open_disk(struct end *e, const char *url, const struct vd_settings *s)
{
	e->name = url;
	e->disk = vd_open(url, s);
	if (!e->disk)
		return false;
	e->size = vn_info(e->disk)->size;
	e->block = vn_info(e->disk)->block_size;
	return true;
}

static bool look_at(struct end *e)
{
	struct stat st;

	if (fstat(e->fd, &st))
		return false;
	e->regular = S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
	e->blank = S_ISREG(st.st_mode);
	e->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : UINT64_MAX;
	return !S_ISBLK(st.st_mode) || !ioctl(e->fd, BLKGETSIZE64, &e->size);
}

static bool open_source(struct end *e, const char *name, const struct vd_settings *s)
{
	if (vd_is_url(name))
		return open_disk(e, name, s);
	e->name = name;
	e->fd = open(name, O_RDONLY | O_CLOEXEC);
	if (e->fd < 0 || !look_at(e)) {
		vd_error(name, -errno);
		return false;
	}
	return true;
}

static bool is_same_file(const struct end *from, const char *name)
{
	struct stat a, b;

	return !from->disk && !fstat(from->fd, &a) && !stat(name, &b) && S_ISREG(a.st_mode) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

static bool open_destination(struct end *e, const char *name, const struct vd_settings *s, const struct end *from)
{
	uint64_t size = from->size;

	if (vd_is_url(name)) {
		if (!open_disk(e, name, s))
			return false;
		if (size != UINT64_MAX && size > e->size) {
			fprintf(stderr, "verbena-disk: %s: has %llu bytes, the source %llu\n", name,
			        (unsigned long long)e->size, (unsigned long long)size);
			return false;
		}
		return true;
	}
	e->name = name;
	if (is_same_file(from, name)) {
		fprintf(stderr, "verbena-disk: %s: is the source\n", name);
		return false;
	}
	/* write-only, so that a pipe without a reader gives an error */
	e->fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (e->fd < 0 || !look_at(e) || (e->blank && size != UINT64_MAX && ftruncate(e->fd, (off_t)size))) {
		vd_error(name, -errno);
		return false;
	}
	return true;
}

static void close_end(struct end *e)
{
	if (e->disk)
		vn_close(e->disk);
	else if (e->fd > 2)
		close(e->fd);
}

static void add_up(const struct end *e, struct vn_statistics *sum)
{
	struct vn_statistics s = {0};

	if (e->disk)
		vn_statistics(e->disk, &s);
	sum->bytes_copied += s.bytes_copied;
	sum->retries += s.retries;
	sum->reconnects += s.reconnects;
}

static void report_job(const struct job *j)
{
	struct vn_statistics s = {0};
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	add_up(&j->from, &s);
	add_up(&j->to, &s);
	printf("{\"bytes\": %llu, \"seconds\": %.3f, \"copied_bytes\": %llu, \"retries\": %llu, \"reconnects\": %llu}\n",
	       (unsigned long long)j->done,
	       (double)(now.tv_sec - j->begun.tv_sec) + (double)(now.tv_nsec - j->begun.tv_nsec) / 1e9,
	       (unsigned long long)s.bytes_copied, (unsigned long long)s.retries, (unsigned long long)s.reconnects);
}

static int finish_job(struct job *j)
{
	if (!j->error && j->to.disk) {
		int e = vn_flush_wait(j->to.disk);

		if (e)
			fail_job(j, &j->to, e);
	} else if (!j->error && j->to.regular && fsync(j->to.fd)) {
		fail_job(j, &j->to, -errno);
	}
	if (j->json && !j->error)
		report_job(j);
	close_end(&j->from);
	close_end(&j->to);
	free(j->memory);
	return j->error ? vd_error(j->failed, j->error) : 0;
}

static int perform_job(struct job *j)
{
	clock_gettime(CLOCK_MONOTONIC, &j->begun);
	if (allocate_chunks(j))
		run_job(j);
	else
		fail_job(j, &j->from, -ENOMEM);
	return finish_job(j);
}

int vd_copy(const char *from, const char *to, const struct vd_settings *s)
{
	struct job j = {.settings = s, .json = s->json, .from.fd = -1, .to.fd = -1};

	if (!open_source(&j.from, from, s) || !open_destination(&j.to, to, s, &j.from)) {
		close_end(&j.from);
		close_end(&j.to);
		return 1;
	}
	j.end = j.from.size;
	return perform_job(&j);
}

int vd_read(const char *url, uint64_t offset, uint64_t length, const struct vd_settings *s)
{
	struct job j = {.settings = s, .to = {.name = "standard output", .fd = 1}};

	if (!open_disk(&j.from, url, s))
		return 1;
	if (!length && offset <= j.from.size)
		length = j.from.size - offset;
	if (offset % j.from.block || length % j.from.block || offset > j.from.size || length > j.from.size - offset) {
		fprintf(stderr, "verbena-disk: not whole blocks of %u bytes on a disk of %llu\n", j.from.block,
		        (unsigned long long)j.from.size);
		vn_close(j.from.disk);
		return 1;
	}
	j.next = offset;
	j.end = offset + length;
	return perform_job(&j);
}

int vd_write(const char *url, uint64_t offset, const struct vd_settings *s)
{
	struct job j = {.settings = s, .from = {.name = "standard input", .fd = 0}};

	if (!open_disk(&j.to, url, s))
		return 1;
	if (offset % j.to.block || offset > j.to.size) {
		fprintf(stderr, "verbena-disk: not at a block of %u bytes\n", j.to.block);
		vn_close(j.to.disk);
		return 1;
	}
	j.to_at = offset;
	j.end = UINT64_MAX;
	return perform_job(&j);
}
