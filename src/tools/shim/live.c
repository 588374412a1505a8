// live.c - the files of counters in the tree, with the numbers of the running programs
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband; docs/control.md
// SPDX-License-Identifier: MIT
#include "tools/shim/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/shim/next.h"
#include "tools/shim/programs.h"
#include "util/control_dir.h"
#include "util/tally.h"

#define NAME_MAX_COUNTER 64
#define PROGRAMS_MOST 4096u
#define TRIES 4

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

/* --- running and ended programs; follows util/tally.h --- */

/* A program of which something is known. */
struct known {
	char name[VB_CONTROL_NAME];
	bool silent; /* it runs, and has not answered: it has what it has answered last */
	bool found;  /* it has a counter that is asked for */
	bool in_sums;
};

/* What is asked for: n counters. Each known program has n values. */
struct question {
	const struct counter *c;
	unsigned n;
	uint64_t *sums, *values;
	struct known *known;
	size_t n_known;
	uint64_t adds;
	bool found;
	char *buf;
};

static void question_free(struct question *q)
{
	free(q->known);
	free(q->values);
	q->known = NULL;
	q->values = NULL;
	q->n_known = 0;
}

/* NULL if there is no memory. */
static struct known *known_new(struct question *q, const char *name)
{
	struct known *known = realloc(q->known, (q->n_known + 1) * sizeof(*known));

	if (known)
		q->known = known;
	uint64_t *values = realloc(q->values, (q->n_known + 1) * q->n * sizeof(*values));
	if (values)
		q->values = values;
	if (!known || !values)
		return NULL;
	memset(q->values + q->n_known * q->n, 0, q->n * sizeof(*values));
	known += q->n_known++;
	*known = (struct known){0};
	snprintf(known->name, sizeof(known->name), "%.63s", name);
	return known;
}

static struct known *known_named(struct question *q, const char *name)
{
	for (size_t i = 0; i < q->n_known; i++)
		if (!strcmp(q->known[i].name, name))
			return &q->known[i];
	return NULL;
}

static void take_answer(void *arg, const char *name, int pid, const char *text)
{
	struct question *q = arg;
	struct known *k = known_new(q, name);

	if (!k)
		return;
	k->silent = !text;
	k->found = text && add_counters(text, q->c, q->n, q->values + (k - q->known) * q->n);
}

/* Objects that exist: an ended program has none. */
static bool is_gauge(const char *name)
{
	return !strcmp(name, "qps") || !strcmp(name, "cqs") || !strcmp(name, "contexts");
}

/* What a program has kept that does not answer, or has ended and is not in the sums yet. */
static void take_kept(struct question *q, int dir_fd, const char *name)
{
	struct known *k = known_named(q, name);

	if (k && !k->silent)
		return;
	bool runs = k != NULL;

	if (!vb_tally_shown(dir_fd, name, q->buf, VB_TALLY_MAX) || (!k && !(k = known_new(q, name))))
		return;
	uint64_t *values = q->values + (k - q->known) * q->n;

	for (unsigned i = 0; i < q->n; i++)
		if (runs || !is_gauge(q->c[i].name))
			k->found |= add_counter(q->buf, &q->c[i], &values[i]);
}

static void read_kept(DIR *dir, struct question *q)
{
	struct vb_control_name parsed;
	char name[VB_CONTROL_NAME];

	rewinddir(dir);
	for (struct dirent *e; q->n_known < PROGRAMS_MOST && (e = readdir(dir));)
		if (vb_tally_shown_name(e->d_name, name) && vb_control_name_read(name, &parsed) &&
		    vb_shim_is_our_netns(parsed.netns))
			take_kept(q, dirfd(dir), name);
}

static bool read_ended_name(const char *text, uint64_t *netns)
{
	char again[48];

	if (sscanf(text, "ended-%" SCNu64, netns) != 1)
		return false;
	snprintf(again, sizeof(again), "ended-%" PRIu64, *netns);
	return !strcmp(again, text) && vb_shim_is_our_netns(*netns);
}

static void take_sums(struct question *q)
{
	for (size_t i = 0; i < q->n_known; i++)
		q->known[i].in_sums |= vb_tally_has(q->buf, q->known[i].name);
	q->found |= add_counters(q->buf, q->c, q->n, q->sums);
}

/* Returns how many programs the sums have. */
static uint64_t read_sums(DIR *dir, struct question *q, bool take)
{
	uint64_t netns, adds = 0;

	rewinddir(dir);
	for (struct dirent *e; (e = readdir(dir));) {
		if (!read_ended_name(e->d_name, &netns) || !vb_tally_read(dirfd(dir), netns, q->buf, VB_TALLY_MAX))
			continue;
		adds += vb_tally_adds(q->buf);
		if (take)
			take_sums(q);
	}
	return adds;
}

static void add_known(struct question *q)
{
	for (size_t i = 0; i < q->n_known; i++) {
		if (q->known[i].in_sums || !q->known[i].found)
			continue;
		q->found = true;
		for (unsigned k = 0; k < q->n; k++)
			q->sums[k] += q->values[i * q->n + k];
	}
}

static bool sum_counters(DIR *dir, struct question *q)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t before = read_sums(dir, q, false);

		vb_shim_ask_programs(dir, "devices\n", take_answer, q);
		read_kept(dir, q);
		q->found = false;
		memset(q->sums, 0, q->n * sizeof(*q->sums));
		uint64_t added = read_sums(dir, q, true) - before;
		add_known(q);
		question_free(q);
		if (added <= VB_TALLY_RECENT)
			break;
	}
	return q->found;
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
	struct question q = {.c = c, .n = n, .sums = sums, .buf = malloc(VB_TALLY_MAX)};

	if (dir && q.buf)
		found = sum_counters(dir, &q);
	free(q.buf);
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
