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
#define TRIES 20 /* of a millisecond each */
#define SHOWN_NAME (VB_CONTROL_NAME + 16)

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
	uint64_t adds; /* programs that were added */
	unsigned n_recent;
	char recent[VB_TALLY_RECENT][VB_CONTROL_NAME]; /* the last ones of them, in order */
};

/* --- texts --- */

static void file_name(char buf[VB_CONTROL_NAME], uint64_t netns)
{
	snprintf(buf, VB_CONTROL_NAME, "ended-%" PRIu64, netns);
}

static bool shown_name(char buf[SHOWN_NAME], const char *socket)
{
	struct vb_control_name name;

	return vb_control_name_read(socket, &name) && snprintf(buf, SHOWN_NAME, "%s.shown", socket) < SHOWN_NAME;
}

bool vb_tally_shown_name(const char *file, char socket[VB_CONTROL_NAME])
{
	size_t len = strlen(file), end = strlen(".shown");
	struct vb_control_name name;

	if (len <= end || len - end >= VB_CONTROL_NAME || strcmp(file + len - end, ".shown") != 0)
		return false;
	memcpy(socket, file, len - end);
	socket[len - end] = '\0';
	return vb_control_name_read(socket, &name);
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

/* Which programs a sum has. */
static const char adds_key[] = "], \"adds\": ", recent_key[] = ", \"recent\": [";

uint64_t vb_tally_adds(const char *sum)
{
	const char *at = strstr(sum, adds_key);

	return at ? strtoull(at + strlen(adds_key), NULL, 10) : 0;
}

bool vb_tally_has(const char *sum, const char *name)
{
	const char *at = strstr(sum, recent_key);
	char quoted[VB_CONTROL_NAME + 4];

	snprintf(quoted, sizeof(quoted), "\"%.*s\"", VB_CONTROL_NAME, name);
	return at && strstr(at, quoted);
}

static bool push_recent(struct tally *t, const char *name)
{
	struct vb_control_name parsed;

	if (strlen(name) >= VB_CONTROL_NAME || !vb_control_name_read(name, &parsed))
		return false;
	if (t->n_recent == VB_TALLY_RECENT)
		memmove(t->recent[0], t->recent[1], --t->n_recent * sizeof(t->recent[0]));
	strcpy(t->recent[t->n_recent++], name);
	return true;
}

static void read_recent(struct tally *t, const char *sum)
{
	const char *p = strstr(sum, recent_key);
	char name[VB_CONTROL_NAME];

	t->adds = vb_tally_adds(sum);
	p = p ? p + strlen(recent_key) : NULL;
	while (p && (p = read_quoted(p, name, sizeof(name))) && push_recent(t, name))
		p = strncmp(p, ", ", 2) ? NULL : p + 2;
}

static size_t write_recent(char *buf, size_t n, const struct tally *t)
{
	n += (size_t)snprintf(buf + n, VB_TALLY_MAX - n, "%s%" PRIu64 "%s", adds_key, t->adds, recent_key);
	for (unsigned i = 0; i < t->n_recent && n < VB_TALLY_MAX; i++)
		n += (size_t)snprintf(buf + n, VB_TALLY_MAX - n, "%s\"%s\"", i ? ", " : "", t->recent[i]);
	return n;
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
		n = write_recent(buf, n, t);
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

static int write_all(int fd, const char *text, size_t len)
{
	ssize_t n = write(fd, text, len);

	return n == (ssize_t)len ? 0 : n < 0 ? errno : ENOSPC;
}

/* A file appears whole: readers take no lock. Root gives it to the owner of the directory. */
static int replace_file(int dir_fd, const char *name, const char *text, size_t len)
{
	char early[SHOWN_NAME + 8];
	uid_t owner = owner_of(dir_fd);

	snprintf(early, sizeof(early), "%s.new", name);
	unlinkat(dir_fd, early, 0);
	int fd = openat(dir_fd, early, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno;
	int err = write_all(fd, text, len);
	if (!err && owner != geteuid() && fchown(fd, owner, (gid_t)-1))
		err = errno;
	if (close(fd) && !err) /* a network file system may write here */
		err = errno;
	if (!err && renameat(dir_fd, early, dir_fd, name))
		err = errno;
	if (err)
		unlinkat(dir_fd, early, 0);
	return err;
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

/* All that a program has left. */
static void remove_program(int dir_fd, const char *name)
{
	char file[SHOWN_NAME + 8];

	if (shown_name(file, name)) {
		unlinkat(dir_fd, file, 0);
		strcat(file, ".new");
		unlinkat(dir_fd, file, 0);
	}
	unlinkat(dir_fd, name, 0);
}

static bool was_added(const struct tally *t, const char *name)
{
	for (unsigned i = 0; i < t->n_recent; i++)
		if (!strcmp(t->recent[i], name))
			return true;
	return false;
}

/* Like read_file; *len is 0 if there is no such file of ours. Returns an errno value if there may be one: what it has must
 * not be lost because a program has no descriptors left. */
static int read_for_sum(int dir_fd, const char *name, char *buf, size_t *len)
{
	errno = 0;
	*len = read_file(dir_fd, name, owner_of(dir_fd), buf, VB_TALLY_MAX);
	if (*len)
		return 0;
	return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO || errno == EINTR ? errno : 0;
}

/*
 * The new sum is a file that has the program's numbers and its name, and appears at once. So whoever is killed here, or
 * has no room for the file, leaves a program that is either in the sum, by its name, or not. What he could not remove is
 * removed by the next one, before the name leaves the list. Under the directory's lock. Returns 0, or why the program's
 * numbers must stay where they are.
 */
static int add_locked(int dir_fd, const char *name, const struct vb_control_name *parsed, struct work *w)
{
	char sum[VB_CONTROL_NAME], file[SHOWN_NAME];
	struct tally *t = &w->tally;
	size_t len = 0;
	int err = shown_name(file, name) ? read_for_sum(dir_fd, file, w->shown, &len) : 0;

	if (err || !len)
		return err; /* 0: it has shown nothing */
	file_name(sum, parsed->netns);
	err = read_for_sum(dir_fd, sum, w->text, &len);
	if (err)
		return err;
	add_text(t, w->text);
	read_recent(t, w->text);
	if (was_added(t, name))
		return 0;
	if (t->n_recent)
		remove_program(dir_fd, t->recent[t->n_recent - 1]);
	add_text(t, w->shown);
	t->adds++;
	push_recent(t, name);
	len = write_text(w->text, t);

	/* more than there is room for was not written by our programs */
	return len ? replace_file(dir_fd, sum, w->text, len) : 0;
}

int vb_tally_keep(int dir_fd, const char *name, const char *text, size_t len)
{
	char file[SHOWN_NAME];

	if (len >= VB_TALLY_MAX)
		return EFBIG;
	return shown_name(file, name) ? replace_file(dir_fd, file, text, len) : EINVAL;
}

void vb_tally_end(int dir_fd, const char *name)
{
	struct work *w = work_new();
	struct vb_control_name parsed;
	int lock = lock_directory(dir_fd);

	/* a name that is none is one that a start has not finished with */
	if (w && lock >= 0 && (!vb_control_name_read(name, &parsed) || !add_locked(dir_fd, name, &parsed, w)))
		remove_program(dir_fd, name);
	if (lock >= 0)
		close(lock);
	if (w)
		munmap(w, sizeof(*w));
}

size_t vb_tally_shown(int dir_fd, const char *name, char *buf, size_t size)
{
	char file[SHOWN_NAME];

	return shown_name(file, name) ? read_file(dir_fd, file, owner_of(dir_fd), buf, size) : 0;
}

size_t vb_tally_read(int dir_fd, uint64_t netns, char *buf, size_t size)
{
	char name[VB_CONTROL_NAME];

	file_name(name, netns);
	return read_file(dir_fd, name, owner_of(dir_fd), buf, size);
}
