// gateway_host.c - a host with a path to each of two gateways of one disk: a load that goes on by the other path, with the
// longest interruption; and a write that stays in a gateway while the other takes over
// see: ceph_gateways.sh
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../../support/check.h"
#include "client/verbena_nvme.h"

#define THREADS 4
#define BLOCKS 256u
#define BLOCK 4096u

static struct vn_disk *disk; /* of the load: with all paths */
static atomic_bool ends, asked;
static atomic_uint writes, longest_ms;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The library finds a path: there is no error. */
static void do_part(void *data, size_t length, uint64_t at, bool write)
{
	uint64_t since = now_ms();
	int error = write ? vn_write_wait(disk, data, length, at, 0) : vn_read_wait(disk, data, length, at);
	unsigned took = (unsigned)(now_ms() - since), old = longest_ms;

	if (error)
		CHECK_FAILED("%s: %d", write ? "write" : "read", error);
	while (took > old && !atomic_compare_exchange_weak(&longest_ms, &old, took))
		;
}

static void fill(uint64_t *data, uint64_t thread, uint64_t block, uint64_t version)
{
	for (unsigned i = 0; i < BLOCK / 8; i++)
		data[i] = version ? thread << 56 | block << 40 | version << 12 | i : 0;
}

static void check_block(const uint64_t *is, uint64_t thread, uint64_t block, uint64_t version)
{
	uint64_t wanted[BLOCK / 8];

	fill(wanted, thread, block, version);
	if (memcmp(is, wanted, BLOCK))
		CHECK_FAILED("thread %u, block %u: version %u is there, not %u", (unsigned)thread, (unsigned)block,
		             (unsigned)(is[0] >> 12 & 0xfffffff), (unsigned)version);
}

/* In one request: on a busy machine a request takes tens of milliseconds. */
static void check_all(uint64_t thread, const uint64_t versions[BLOCKS])
{
	uint64_t *is = malloc(BLOCKS * BLOCK);

	CHECK(is);
	do_part(is, BLOCKS * BLOCK, thread * BLOCKS * BLOCK, false);
	for (uint64_t i = 0; i < BLOCKS; i++)
		check_block(is + i * BLOCK / 8, thread, i, versions[i]);
	free(is);
}

static void *load(void *arg)
{
	uint64_t thread = (uint64_t)(uintptr_t)arg, seed = thread + 1, versions[BLOCKS] = {0};
	uint64_t data[BLOCK / 8];

	while (!ends) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint64_t block = seed >> 33 & (BLOCKS - 1);

		if (seed >> 60 < 4) {
			do_part(data, BLOCK, (thread * BLOCKS + block) * BLOCK, false);
			check_block(data, thread, block, versions[block]);
			continue;
		}
		fill(data, thread, block, ++versions[block]);
		do_part(data, BLOCK, (thread * BLOCKS + block) * BLOCK, true);
		writes++;
	}
	check_all(thread, versions);
	return NULL;
}

static void tell_paths(void)
{
	struct vn_path_info p[2];
	size_t n = vn_paths(disk, p, 2);

	printf("longest request %u ms\n", atomic_exchange(&longest_ms, 0));
	for (size_t i = 0; i < n && i < 2; i++)
		printf("port %s: %s, %s, %llu commands\n", p[i].service, p[i].why, p[i].transport,
		       (unsigned long long)p[i].commands);
	fflush(stdout);
}

static int run_load(const char *url, unsigned seconds)
{
	pthread_t threads[THREADS];
	uint8_t *zeros = calloc(BLOCKS, BLOCK);
	char why[200];
	static const unsigned char id[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
	struct vn_options o;

	vn_options_init(&o);
	o.host_nqn = "nqn.2026-01.test:host1"; /* of reserve.py */
	o.host_id = id;
	if (vn_open(url, &o, &disk, why, sizeof(why)))
		CHECK_FAILED("%s: %s", url, why);
	CHECK(zeros);
	for (uint64_t i = 0; i < THREADS; i++)
		do_part(zeros, BLOCKS * BLOCK, i * BLOCKS * BLOCK, true);
	free(zeros);
	printf("ready\n");
	tell_paths();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, load, (void *)i);
	for (unsigned i = 0; i < seconds * 10 && !ends; i++) {
		usleep(100000);
		if (atomic_exchange(&asked, false))
			tell_paths();
	}
	ends = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	tell_paths();
	vn_close(disk);
	printf("%u writes, each found\n", writes);
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
static int run_late(const char *first, const char *second)
{
	struct vn_options o, patient;
	struct vn_disk *a, *b;
	char why[200];
	uint64_t data[BLOCK / 8], late[BLOCK / 8], is[BLOCK / 8];

	vn_options_init(&o);
	o.retries = o.reconnect_ms = o.io_ms = o.keep_alive_ms = 0;
	vn_options_init(&patient);
	if (vn_open(first, &o, &a, why, sizeof(why)) || vn_open(second, &patient, &b, why, sizeof(why)))
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

static void take_signal(int signal)
{
	if (signal == SIGTERM)
		ends = true;
	else
		asked = true;
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 4)
		CHECK_FAILED("wanted: URL SECONDS, or URL URL late");
	signal(SIGTERM, take_signal);
	signal(SIGUSR1, take_signal);
	return argc == 4 ? run_late(argv[1], argv[2]) : run_load(argv[1], (unsigned)strtoul(argv[2], NULL, 10));
}
