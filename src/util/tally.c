// tally.c - the counters of programs that have ended: a file in the directory of control sockets
// see: docs/control.md
// SPDX-License-Identifier: MIT
#include "util/tally.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DEVICES_MOST 64u
#define COUNTERS_MOST 40u
#define TRIES 100 /* of a millisecond each */

struct tally_device {
	char name[64];
	unsigned n;
	struct {
		char name[32];
		uint64_t value;
	} counters[COUNTERS_MOST];
};

struct tally {
	unsigned n;
	struct tally_device devices[DEVICES_MOST];
};

/* --- texts --- */

static void file_name(char buf[VB_CONTROL_NAME], uint64_t netns)
{
	snprintf(buf, VB_CONTROL_NAME, "ended-%" PRIu64, netns);
}

static bool shown_name(char buf[VB_CONTROL_NAME + 8], const char *socket)
{
	struct vb_control_name name;

	return vb_control_name_read(socket, &name) &&
	       snprintf(buf, VB_CONTROL_NAME + 8, "%s.shown", socket) < VB_CONTROL_NAME + 8;
}

/* Copies the text in quotes at p. Returns what is behind it; NULL if it is too long, or has an escape. */
static const char *read_quoted(const char *p, char *buf, size_t size)
{
	size_t n = *p == '"' ? strcspn(p + 1, "\"\\") : size;

	if (n >= size || p[n + 1] != '"')
		return NULL;
	memcpy(buf, p + 1, n);
	buf[n] = '\0';
	return p + n + 2;
}

static struct tally_device *device_named(struct tally *t, const char *name)
{
	for (unsigned i = 0; i < t->n; i++)
		if (!strcmp(t->devices[i].name, name))
			return &t->devices[i];
	if (t->n == DEVICES_MOST)
		return NULL;
	struct tally_device *d = &t->devices[t->n++];

	snprintf(d->name, sizeof(d->name), "%s", name);
	return d;
}

static void add_one(struct tally_device *d, const char *name, uint64_t value)
{
	unsigned i = 0;

	while (i < d->n && strcmp(d->counters[i].name, name) != 0)
		i++;
	if (i == COUNTERS_MOST)
		return;
	if (i == d->n)
		snprintf(d->counters[d->n++].name, sizeof(d->counters[i].name), "%s", name);
	d->counters[i].value += value;
}

/* Reads "name": number pairs up to the end of the object. */
static void add_pairs(struct tally_device *d, const char *p)
{
	char name[32], *end;

	while ((p = read_quoted(p, name, sizeof(name))) && !strncmp(p, ": ", 2)) {
		add_one(d, name, strtoull(p + 2, &end, 10));
		if (strncmp(end, ", ", 2) != 0)
			return;
		p = end + 2;
	}
}

/* Adds the counters of each device, as node/stat.c writes them. Other text gives nothing, or other numbers. */
static void add_text(struct tally *t, const char *text)
{
	static const char device[] = "\"device\": ", counters[] = "\"counters\": {";
	char name[64];

	for (const char *p = strstr(text, device); p; p = strstr(p, device)) {
		p += strlen(device);
		const char *next = strstr(p, device), *at = strstr(p, counters);

		if (!at || (next && at > next) || !read_quoted(p, name, sizeof(name)))
			continue;
		struct tally_device *d = device_named(t, name);

		if (d)
			add_pairs(d, at + strlen(counters));
	}
}

/* Returns the length, or 0 if the file would be too long. */
static size_t write_text(char *buf, const struct tally *t)
{
	size_t n = (size_t)snprintf(buf, VB_TALLY_MAX, "{\"devices\": [");

	for (unsigned i = 0; i < t->n && n < VB_TALLY_MAX; i++) {
		const struct tally_device *d = &t->devices[i];

		n += (size_t)snprintf(buf + n, VB_TALLY_MAX - n, "%s{\"device\": \"%s\", \"counters\": {",
		                      i ? ",\n " : "\n ", d->name);
		for (unsigned k = 0; k < d->n && n < VB_TALLY_MAX; k++)
			n += (size_t)snprintf(buf + n, VB_TALLY_MAX - n, "%s\"%s\": %" PRIu64, k ? ", " : "",
			                      d->counters[k].name, d->counters[k].value);
		if (n < VB_TALLY_MAX)
			n += (size_t)snprintf(buf + n, VB_TALLY_MAX - n, "}}");
	}
	if (n < VB_TALLY_MAX)
		n += (size_t)snprintf(buf + n, VB_TALLY_MAX - n, "]}\n");
	return n < VB_TALLY_MAX ? n : 0;
}

/* --- files --- */

static size_t read_file(int dir_fd, const char *name, uid_t user, char *buf, size_t size)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n = -1;

	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == user)
		n = read(fd, buf, size - 1);
	close(fd);
	if (n <= 0)
		return 0;
	buf[n] = '\0';
	return (size_t)n;
}

static uid_t owner_of(int dir_fd)
{
	struct stat st;

	return fstat(dir_fd, &st) ? (uid_t)-1 : st.st_uid;
}

/* A file appears whole: readers take no lock. Root gives it to the owner of the directory. */
static int replace_file(int dir_fd, const char *name, const char *text, size_t len)
{
	char early[VB_CONTROL_NAME + 16];
	uid_t owner = owner_of(dir_fd);

	snprintf(early, sizeof(early), "%s.new", name);
	unlinkat(dir_fd, early, 0);
	int fd = openat(dir_fd, early, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno;
	bool good = write(fd, text, len) == (ssize_t)len && (owner == geteuid() || !fchown(fd, owner, (gid_t)-1));

	close(fd);
	if (good && !renameat(dir_fd, early, dir_fd, name))
		return 0;
	unlinkat(dir_fd, early, 0);
	return EIO;
}

/* The directory itself is the lock. Root does not wait for another user. */
static int lock_directory(int dir_fd)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	int tries = owner_of(dir_fd) == geteuid() ? TRIES : 1;
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 1; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (i == tries) {
			close(fd);
			return -1;
		}
		nanosleep(&ms, NULL);
	}
	return fd;
}

/* Not from malloc(3): a program may end in a signal handler. */
struct work {
	struct tally tally;
	char text[VB_TALLY_MAX], shown[VB_TALLY_MAX];
};

static struct work *work_new(void)
{
	void *p = mmap(NULL, sizeof(struct work), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Under the directory's lock. */
static int add_locked(int dir_fd, uint64_t netns, const char *text, struct work *w)
{
	char name[VB_CONTROL_NAME];

	file_name(name, netns);
	if (read_file(dir_fd, name, owner_of(dir_fd), w->text, VB_TALLY_MAX))
		add_text(&w->tally, w->text);
	add_text(&w->tally, text);
	size_t len = write_text(w->text, &w->tally);

	return len ? replace_file(dir_fd, name, w->text, len) : EFBIG;
}

int vb_tally_add(int dir_fd, const char *name, const char *text)
{
	struct work *w = work_new();
	char file[VB_CONTROL_NAME + 8];
	struct vb_control_name parsed;
	int lock = lock_directory(dir_fd), err = EAGAIN;

	if (w && lock >= 0 && vb_control_name_read(name, &parsed) && shown_name(file, name)) {
		unlinkat(dir_fd, file, 0); /* first: what is in it must not be added again */
		err = add_locked(dir_fd, parsed.netns, text, w);
	}
	if (lock >= 0)
		close(lock);
	if (w)
		munmap(w, sizeof(*w));
	return err;
}

void vb_tally_keep(int dir_fd, const char *name, const char *text, size_t len)
{
	char file[VB_CONTROL_NAME + 8];

	if (len < VB_TALLY_MAX && shown_name(file, name))
		replace_file(dir_fd, file, text, len);
}

void vb_tally_end(int dir_fd, const char *name)
{
	struct work *w = work_new();
	char file[VB_CONTROL_NAME + 8];
	struct vb_control_name parsed;
	int lock = lock_directory(dir_fd);

	if (w && lock >= 0 && shown_name(file, name) && vb_control_name_read(name, &parsed)) {
		size_t len = read_file(dir_fd, file, owner_of(dir_fd), w->shown, VB_TALLY_MAX);

		unlinkat(dir_fd, file, 0);
		if (len)
			add_locked(dir_fd, parsed.netns, w->shown, w);
	}
	if (lock >= 0) { /* also a name that a start has not finished with */
		unlinkat(dir_fd, name, 0);
		close(lock);
	}
	if (w)
		munmap(w, sizeof(*w));
}

size_t vb_tally_read(int dir_fd, uint64_t netns, char *buf, size_t size)
{
	char name[VB_CONTROL_NAME];

	file_name(name, netns);
	return read_file(dir_fd, name, owner_of(dir_fd), buf, size);
}
