// client_media.c - a disk with a failing medium: hosts get the right errors, and other disks are not affected
// follows: verbena_nvme.h
// SPDX-License-Identifier: MIT
// usage: client_media direct|cached|sometimes|full URL OTHER BAD. OTHER: a good disk of the target. BAD: the medium
// fails while this file exists. The disks are overwritten.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client_load.h"

#define PIECE 65536u
#define MANY 64u /* outstanding requests */
#define PASSED 400u

static const char *url, *other_url, *bad;
static uint8_t before[PIECE], after[PIECE], got[MANY][PIECE];
static unsigned ended;
static int worst, best;
static atomic_bool stop;
static atomic_ullong good; /* requests to the other disk */

static struct vn_disk *open_disk(const char *at, const char *host, unsigned retries)
{
	struct vn_options o;
	struct vn_disk *d;
	char why[200] = "";

	vn_options_init(&o);
	o.numeric = 1;
	o.host_nqn = host;
	o.retries = retries;
	if (vn_open(at, &o, &d, why, sizeof(why))) {
		fprintf(stderr, "%s: %s\n", at, why);
		exit(1);
	}
	return d;
}

static void close_disk(struct vn_disk *d)
{
	struct vn_statistics s;

	vn_statistics(d, &s);
	SAME(s.reconnects, 0);
	vn_close(d);
}

static void fails(bool from_now_on)
{
	if (!from_now_on)
		SAME(unlink(bad), 0);
	else
		close(open(bad, O_CREAT | O_WRONLY, 0600));
}

static void *undisturbed(void *arg)
{
	struct load l = {.depth = 8, .largest = 64 << 10, .seed = 815};

	l.disk = open_disk(other_url, "nqn.2026-01.test:other", 0);
	load_begin(&l);
	while (!stop) {
		load_run(&l, 50);
		good = l.ended;
	}
	load_end(&l);
	close_disk(l.disk);
	return NULL;
}

/* Requests to the other disk continue meanwhile. */
static void others_get_on(void)
{
	unsigned long long so_far = good;

	while (good < so_far + PASSED)
		usleep(1000);
}

/* ---- many at once ---- */

static void note(void *arg, int error)
{
	ended++;
	worst = error < worst ? error : worst;
	best = error > best ? error : best;
}

enum kind { READ, WRITE, FUA, COMPARE, ZEROES, KINDS };

static void begin(struct vn_disk *d, enum kind kind, unsigned i)
{
	uint64_t at = (uint64_t)i * PIECE;

	switch (kind) {
	case READ:
		SAME(vn_read(d, got[i], PIECE, at, 0, note, NULL), 0);
		break;
	case WRITE:
	case FUA:
		SAME(vn_write(d, after, PIECE, at, kind == FUA ? VN_FUA : 0, note, NULL), 0);
		break;
	case COMPARE:
		SAME(vn_compare(d, before, PIECE, at, 0, note, NULL), 0);
		break;
	default:
		SAME(vn_write_zeroes(d, PIECE, at, 0, note, NULL), 0);
	}
}

/* Many requests of one kind. Returns their common error. */
static int all(struct vn_disk *d, enum kind kind)
{
	ended = 0;
	worst = 0;
	best = -4096;
	for (unsigned i = 0; i < MANY; i++)
		begin(d, kind, i);
	while (ended < MANY)
		vn_poll(d, 1000);
	vn_poll(d, 0);
	SAME(ended, MANY);
	SAME((unsigned)-worst, (unsigned)-best);
	return worst;
}

static void holds(struct vn_disk *d, const uint8_t *what)
{
	SAME(all(d, READ), 0);
	for (unsigned i = 0; i < MANY; i++)
		CHECK(!memcmp(got[i], what, PIECE));
}

static void put(struct vn_disk *d, const uint8_t *what)
{
	for (unsigned i = 0; i < MANY; i++)
		SAME(vn_write_wait(d, what, PIECE, (uint64_t)i * PIECE, 0), 0);
	SAME(vn_flush_wait(d), 0);
}

/* ---- the cases ---- */

static void what_fails_is_told_and_has_no_effect(struct vn_disk *d, struct vn_disk *twin)
{
	put(d, before);
	fails(true);
	for (enum kind kind = READ; kind < KINDS; kind++) {
		SAME((unsigned)-all(d, kind), EIO);
		others_get_on();
	}
	SAME((unsigned)-vn_read_wait(twin, got[0], PIECE, 0), EIO);
	fails(false);
	holds(d, before);
	holds(twin, before);
	put(twin, after);
	holds(d, after);
}

/* Writes go to the page cache and are lost there. Each host that flushes is told once. */
static void what_is_lost_is_told_to_each_host(struct vn_disk *d, struct vn_disk *twin)
{
	put(d, before);
	SAME(vn_flush_wait(twin), 0);
	fails(true);
	SAME(vn_write_wait(d, after, PIECE, 0, 0), 0);
	SAME(vn_write_wait(twin, after, PIECE, PIECE, 0), 0);
	SAME((unsigned)-vn_flush_wait(d), EIO);
	others_get_on();
	fails(false);
	SAME((unsigned)-vn_flush_wait(twin), EIO);
	SAME(vn_flush_wait(d), 0);
	SAME(vn_flush_wait(twin), 0);
	put(d, after);
	holds(twin, after);
}

static void broken(void (*test)(struct vn_disk *, struct vn_disk *))
{
	struct vn_disk *d = open_disk(url, "nqn.2026-01.test:one", test == what_is_lost_is_told_to_each_host ? 5 : 0),
	               *twin = open_disk(url, "nqn.2026-01.test:twin", 0);
	pthread_t thread;

	SAME(pthread_create(&thread, NULL, undisturbed, NULL), 0);
	others_get_on();
	test(d, twin);
	others_get_on();
	stop = true;
	pthread_join(thread, NULL);
	close_disk(d);
	close_disk(twin);
}

/* Occasional failures are retried, and do not reach the caller. */
static void sometimes(void)
{
	struct load l = {.depth = 16, .largest = 64 << 10, .seed = 4711};
	struct vn_statistics s;

	l.disk = open_disk(url, NULL, 8);
	load_begin(&l);
	fails(true);
	do {
		load_run(&l, 500);
		vn_statistics(l.disk, &s);
	} while (s.retries < 20);
	fails(false);
	load_end(&l);
	close_disk(l.disk);
}

/* A medium that is smaller than it reports: data that fitted is readable. */
static void full(void)
{
	struct vn_disk *d = open_disk(url, NULL, 5);
	uint64_t n = vn_info(d)->size / PIECE, taken = 0;
	uint8_t *there = calloc(n, 1);

	CHECK(there);
	for (uint64_t i = 0; i < n; i++) {
		int e = vn_write_wait(d, after, PIECE, i * PIECE, 0);

		CHECK(!e || e == -ENOSPC);
		taken += there[i] = !e;
	}
	CHECK(taken && taken < n);
	for (uint64_t i = 0; i < n; i++) {
		SAME(vn_read_wait(d, got[0], PIECE, i * PIECE), 0);
		CHECK(!there[i] || !memcmp(got[0], after, PIECE));
	}
	free(there);
	close_disk(d);
}

int main(int argc, char **argv)
{
	CHECK(argc == 5);
	url = argv[2];
	other_url = argv[3];
	bad = argv[4];
	memset(before, 0xa5, PIECE);
	memset(after, 0x5a, PIECE);
	if (!strcmp(argv[1], "direct"))
		broken(what_fails_is_told_and_has_no_effect);
	else if (!strcmp(argv[1], "cached"))
		broken(what_is_lost_is_told_to_each_host);
	else if (!strcmp(argv[1], "sometimes"))
		sometimes();
	else
		full();
	return 0;
}
