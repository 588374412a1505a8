// gateway_host.c - a host with a path to each of two gateways of one disk: a load that goes on by the other path, and a
// write that stays in a gateway while the other takes over
// see: ceph_gateways.sh
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"

#define THREADS 4
#define BLOCKS 256
#define BLOCK 4096
#define GIVE_UP_MS 60000

/* A path is opened again when it has broken. Nothing of it is sent again: that is for the host to decide. */
struct path {
	const char *url;
	pthread_rwlock_t lock; /* shared: the disk is in use; exclusive: it changes */
	struct vn_disk *disk;  /* NULL: not open */
	atomic_bool broken;
};

static struct path paths[2];
static atomic_uint preferred;
static atomic_bool ends, closes;
static atomic_uint writes, longest_ms;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void path_options(struct vn_options *o)
{
	vn_options_init(o);
	o->reconnect_ms = 0;
	o->retries = 0;
	o->connect_ms = 2000;
	o->io_ms = 2000;
	o->keep_alive_ms = 5000;
}

static void mend_path(struct path *p)
{
	struct vn_options o;
	struct vn_disk *disk = NULL;
	char why[200];

	path_options(&o);
	pthread_rwlock_wrlock(&p->lock);
	if (p->disk)
		vn_close(p->disk);
	p->disk = NULL;
	pthread_rwlock_unlock(&p->lock);
	if (vn_open(p->url, &o, &disk, why, sizeof(why)))
		return;
	pthread_rwlock_wrlock(&p->lock);
	p->disk = disk;
	p->broken = false;
	pthread_rwlock_unlock(&p->lock);
}

static void *mend_paths(void *arg)
{
	while (!closes) {
		struct path *p = arg;

		if (p->broken)
			mend_path(p);
		usleep(50000);
	}
	return NULL;
}

static int on_path(struct path *p, void *data, uint64_t at, bool write)
{
	pthread_rwlock_rdlock(&p->lock);
	int error = -ENOTCONN;

	if (p->disk)
		error = write ? vn_write_wait(p->disk, data, BLOCK, at, 0) : vn_read_wait(p->disk, data, BLOCK, at);
	if (error == -ENOTCONN || error == -ESHUTDOWN)
		p->broken = true;
	pthread_rwlock_unlock(&p->lock);
	return error;
}

/* By the path that worked last, else by the other, until it succeeds. */
static void do_block(void *data, uint64_t at, bool write)
{
	uint64_t since = now_ms();

	for (unsigned use = preferred;; use ^= 1) {
		int error = on_path(&paths[use], data, at, write);

		if (!error) {
			preferred = use;
			break;
		}
		if (now_ms() - since > GIVE_UP_MS)
			CHECK_FAILED("no path has worked for a minute: %d", error);
		usleep(20000);
	}
	unsigned took = (unsigned)(now_ms() - since), old = longest_ms;

	while (took > old && !atomic_compare_exchange_weak(&longest_ms, &old, took))
		;
}

static void fill(uint64_t *data, uint64_t thread, uint64_t block, uint64_t version)
{
	for (unsigned i = 0; i < BLOCK / 8; i++)
		data[i] = version ? thread << 56 | block << 40 | version << 12 | i : 0;
}

static void check_block(uint64_t thread, uint64_t block, uint64_t version)
{
	uint64_t is[BLOCK / 8], wanted[BLOCK / 8];

	do_block(is, (thread * BLOCKS + block) * BLOCK, false);
	fill(wanted, thread, block, version);
	if (memcmp(is, wanted, BLOCK))
		CHECK_FAILED("thread %u, block %u: version %u is there, not %u", (unsigned)thread, (unsigned)block,
		             (unsigned)(is[0] >> 12 & 0xfffffff), (unsigned)version);
}

static void *load(void *arg)
{
	uint64_t thread = (uint64_t)(uintptr_t)arg, seed = thread + 1, versions[BLOCKS] = {0};
	uint64_t data[BLOCK / 8];

	while (!ends) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint64_t block = seed >> 33 & (BLOCKS - 1);

		if (seed >> 60 < 4) {
			check_block(thread, block, versions[block]);
			continue;
		}
		fill(data, thread, block, ++versions[block]);
		do_block(data, (thread * BLOCKS + block) * BLOCK, true);
		writes++;
	}
	for (uint64_t i = 0; i < BLOCKS; i++)
		check_block(thread, i, versions[i]);
	return NULL;
}

static int run_load(unsigned seconds)
{
	pthread_t threads[THREADS], menders[2];

	for (int i = 0; i < 2; i++) {
		pthread_rwlock_init(&paths[i].lock, NULL);
		paths[i].broken = true;
		mend_path(&paths[i]);
		CHECK(paths[i].disk);
		pthread_create(&menders[i], NULL, mend_paths, &paths[i]);
	}
	uint8_t zeros[BLOCK] = {0};

	for (uint64_t i = 0; i < THREADS * BLOCKS; i++)
		do_block(zeros, i * BLOCK, true);
	printf("ready\n");
	fflush(stdout);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, load, (void *)i);
	for (unsigned i = 0; i < seconds * 10 && !ends; i++)
		usleep(100000);
	ends = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	closes = true;
	for (int i = 0; i < 2; i++) {
		pthread_join(menders[i], NULL);
		if (paths[i].disk)
			vn_close(paths[i].disk);
	}
	printf("%u writes, each found; the longest request took %u ms\n", writes, longest_ms);
	return 0;
}

/* ---- the late write ---- */

static int late_error = 1;

static void late_done(void *arg, int error)
{
	(void)arg;
	late_error = error;
}

static void ask_for(const char *what)
{
	char line[10];

	printf("%s\n", what);
	fflush(stdout);
	CHECK(fgets(line, sizeof(line), stdin));
}

/* The first path's gateway is halted while a write is on its way there. The host sends it by the other path, then
 * something newer. What lands at the end must be the newer one. */
static int run_late(void)
{
	struct vn_options o, patient;
	struct vn_disk *a, *b;
	char why[200];
	uint64_t data[BLOCK / 8], late[BLOCK / 8], is[BLOCK / 8];

	path_options(&o);
	o.io_ms = o.keep_alive_ms = 0;
	vn_options_init(&patient);
	if (vn_open(paths[0].url, &o, &a, why, sizeof(why)) || vn_open(paths[1].url, &patient, &b, why, sizeof(why)))
		CHECK_FAILED("%s", why);
	fill(data, 9, 0, 1);
	for (int i = 0; vn_write_wait(a, data, BLOCK, 0, 0); i++) { /* perhaps it must become the owner first */
		CHECK(i < 600);
		usleep(100000);
	}
	ask_for("halt");
	fill(late, 9, 0, 2);
	CHECK(!vn_write(a, late, BLOCK, 0, 0, late_done, NULL));
	vn_poll(a, 500);
	SAME(late_error, 1);
	SAME(vn_write_wait(b, late, BLOCK, 0, 0), 0);
	fill(data, 9, 0, 3);
	SAME(vn_write_wait(b, data, BLOCK, 0, 0), 0);
	ask_for("continue");
	for (uint64_t until = now_ms() + 20000; late_error == 1 && now_ms() < until;)
		vn_poll(a, 100);
	printf("the late write ended with %d\n", late_error);
	sleep(1);
	SAME(vn_read_wait(b, is, BLOCK, 0), 0);
	printf("version %u\n", (unsigned)(is[0] >> 12 & 0xfffffff));
	vn_close(a);
	vn_close(b);
	return memcmp(is, data, BLOCK) ? 3 : 0;
}

static void end_load(int signal)
{
	(void)signal;
	ends = true;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		CHECK_FAILED("wanted: URL URL late|SECONDS");
	signal(SIGTERM, end_load);
	paths[0].url = argv[1];
	paths[1].url = argv[2];
	return strcmp(argv[3], "late") ? run_load((unsigned)strtoul(argv[3], NULL, 10)) : run_late();
}
