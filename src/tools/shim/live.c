// live.c - the files of counters in the tree, with the numbers of the running programs
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband; docs/control.md
// SPDX-License-Identifier: MIT
#include "tools/shim/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/shim/next.h"
#include "util/control_dir.h"
#include "util/env.h"
#include "util/tally.h"

#define PATIENCE_MS 500
#define ANSWER_MAX 65536u
#define NAME_MAX_COUNTER 64
#define TRIES 10

/* A counter of an adapter. */
struct counter {
	char device[64], name[NAME_MAX_COUNTER];
};

/* The names that rxe gives to counters of ours. */
static const struct {
	const char *file, *counter;
} aliases[] = {{"sent_pkts", "port_xmit_packets"},
               {"rcvd_pkts", "port_rcv_packets"},
               {"out_of_seq_request", "out_of_sequence"},
               {"rcvd_rnr_err", "rnr_nak_retry_err"},
               {"send_rnr_err", "out_of_buffer"},
               {"rcvd_seq_err", "packet_seq_err"},
               {"completer_retry_err", "local_ack_timeout_err"}};

static bool is_word(const char *s)
{
	return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

/* Reads class/infiniband/DEVICE/ports/1/counters/NAME, or hw_counters. */
static bool read_path(const char *rest, struct counter *c)
{
	char kind[16];

	if (sscanf(rest, "/class/infiniband/%63[^/]/ports/1/%15[^/]/%63s", c->device, kind, c->name) != 3 ||
	    (strcmp(kind, "counters") && strcmp(kind, "hw_counters")) || !is_word(c->name) || strchr(c->device, '"'))
		return false;
	for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (!strcmp(aliases[i].file, c->name))
			snprintf(c->name, sizeof(c->name), "%s", aliases[i].counter);
	return true;
}

static int64_t ms_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Reads the answer to its end, or until the time is over. */
static bool read_all(int sock, char *buf, size_t size, int64_t until)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	size_t len = 0;

	for (int64_t left = until - ms_now(); left > 0 && len + 1 < size; left = until - ms_now()) {
		if (poll(&pfd, 1, (int)left) <= 0)
			continue;
		ssize_t n = recv(sock, buf + len, size - 1 - len, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0) {
			buf[len] = '\0';
			return len > 0 && n == 0;
		}
		len += (size_t)n;
	}
	return false;
}

/* Adds the counter of an answer to the verb "devices". The text is searched as our programs write it; other text gives
 * no number, or a wrong one. */
static bool add_counter(const char *text, const struct counter *c, uint64_t *sum)
{
	char key[NAME_MAX_COUNTER + 8], device[80];

	snprintf(device, sizeof(device), "\"device\": \"%s\"", c->device);
	snprintf(key, sizeof(key), "\"%s\": ", c->name);
	const char *at = strstr(text, device), *end = at ? strstr(at, "}}") : NULL;
	const char *value = at ? strstr(at, key) : NULL;
	if (!value || !end || value > end)
		return false;
	*sum += strtoull(value + strlen(key), NULL, 10);
	return true;
}

static bool add_counters(const char *text, const struct counter *c, unsigned n, uint64_t *sums)
{
	bool found = false;

	for (unsigned i = 0; i < n; i++)
		found |= add_counter(text, &c[i], &sums[i]);
	return found;
}

/* What is asked for: n counters, and their sums. */
struct question {
	const struct counter *c;
	unsigned n;
	uint64_t *sums;
	int64_t until;
};

static bool ask_program(int dir_fd, const char *name, const struct question *q, char *buf)
{
	static const char request[] = "devices\n";
	int sock;

	int err = vb_control_dir_connect(dir_fd, name, geteuid(), &sock);

	if (err == ECONNREFUSED)
		vb_tally_end(dir_fd, name);
	if (err)
		return false;
	bool found = send(sock, request, strlen(request), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)strlen(request) &&
	             read_all(sock, buf, ANSWER_MAX, q->until) && add_counters(buf, q->c, q->n, q->sums);
	close(sock);
	return found;
}

static bool shares_directory(void)
{
	const char *dir = vb_env("VERBENA_RUNTIME");

	return dir && *dir;
}

static bool ask_programs(DIR *dir, const struct question *q, char *buf)
{
	uint64_t ours = vb_control_netns();
	struct vb_control_name name;
	bool found = false;

	for (struct dirent *e; ms_now() < q->until && (e = readdir(dir));)
		if (vb_control_name_read(e->d_name, &name) && (shares_directory() || name.netns == ours))
			found |= ask_program(dirfd(dir), e->d_name, q, buf);
	return found;
}

/* The file of ended programs of this network namespace; "" if there is none. */
static void read_ended(DIR *dir, char *buf)
{
	if (!vb_tally_read(dirfd(dir), vb_control_netns(), buf, VB_TALLY_MAX))
		buf[0] = '\0';
}

/* A program adds its numbers to the file before it stops answering. So they were counted once if the file is the same
 * before and after the programs were asked. */
static bool sum_counters(DIR *dir, const struct counter *c, unsigned n, char *buf, uint64_t *sums)
{
	struct question q = {c, n, sums, ms_now() + PATIENCE_MS};
	char *before = buf + ANSWER_MAX, *after = before + VB_TALLY_MAX;
	bool found = false;

	read_ended(dir, before);
	for (int i = 0; i < TRIES; i++) {
		memset(sums, 0, n * sizeof(*sums));
		rewinddir(dir);
		found = ask_programs(dir, &q, buf);
		read_ended(dir, after);
		if (!strcmp(before, after))
			break;
		strcpy(before, after);
	}
	return add_counters(before, c, n, sums) || found;
}

/* False if there is nothing to add up: the sums are then zeros. */
static bool sum_programs(const struct counter *c, unsigned n, uint64_t *sums)
{
	bool found = false;
	int dir_fd;

	memset(sums, 0, n * sizeof(*sums));
	if (vb_control_dir_open(false, &dir_fd))
		return false;
	DIR *dir = fdopendir(dir_fd);
	char *buf = malloc(ANSWER_MAX + 2 * VB_TALLY_MAX);

	if (dir && buf)
		found = sum_counters(dir, c, n, buf, sums);
	free(buf);
	if (dir)
		closedir(dir);
	else
		close(dir_fd);
	return found;
}

APART void vb_shim_live_numbers(const char *device, const char *const *names, unsigned n, uint64_t *values)
{
	struct counter *c = calloc(n, sizeof(*c));
	int saved = errno;

	memset(values, 0, n * sizeof(*values));
	for (unsigned i = 0; c && i < n; i++) {
		snprintf(c[i].device, sizeof(c[i].device), "%s", device);
		snprintf(c[i].name, sizeof(c[i].name), "%s", names[i]);
	}
	if (c)
		sum_programs(c, n, values);
	free(c);
	errno = saved;
}

static int file_with(uint64_t n, int cloexec)
{
	char text[32];
	int fd = memfd_create("verbena-counter", cloexec ? MFD_CLOEXEC : 0);
	int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)n);

	if (fd >= 0 && write(fd, text, (size_t)len) == len && !lseek(fd, 0, SEEK_SET))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static int sum_file(const struct counter *c, int cloexec)
{
	uint64_t sum;

	return sum_programs(c, 1, &sum) ? file_with(sum, cloexec) : -1;
}

APART int vb_shim_live(const char *rest, int cloexec)
{
	struct counter c;
	int saved = errno;
	int fd = rest && read_path(rest, &c) ? sum_file(&c, cloexec) : -1;

	errno = saved;
	return fd;
}
