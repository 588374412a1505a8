// disk_bench.c - verbena-disk bench: requests per second and their latency
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/disk.h"

/* Latencies are counted in steps of an eighth of a power of two of nanoseconds. */
#define STEPS 8
#define BUCKETS (64 * STEPS)

struct slot {
	struct bench *bench;
	uint8_t *data;
	uint64_t since;
	bool writes;
};

struct bench {
	struct vn_disk *disk;
	const struct vd_settings *settings;
	uint64_t blocks, next, random, until, begun, ended;
	uint64_t reads, written, busy, total_ns, longest;
	uint64_t histogram[BUCKETS];
	int error;
};

static uint64_t bench_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* xorshift64*, good enough here */
static uint64_t draw_random(struct bench *b)
{
	b->random ^= b->random >> 12;
	b->random ^= b->random << 25;
	b->random ^= b->random >> 27;
	return b->random * 0x2545f4914f6cdd1du;
}

static unsigned bucket_of_ns(uint64_t ns)
{
	unsigned power = ns < STEPS ? 3 : 63u - (unsigned)__builtin_clzll(ns);

	return ns < STEPS ? (unsigned)ns : power * STEPS + (unsigned)(ns >> (power - 3) & (STEPS - 1));
}

static double bucket_us(unsigned n)
{
	unsigned power = n / STEPS;

	return power < 3 ? (double)n / 1000 : (double)((uint64_t)(STEPS + n % STEPS) << (power - 3)) / 1000;
}

static void slot_done(void *arg, int error);

static void begin_slot(struct slot *s)
{
	struct bench *b = s->bench;
	size_t size = b->settings->size;
	uint64_t at = (b->settings->sequential ? b->next++ : draw_random(b)) % b->blocks * size;
	int e;

	s->writes = draw_random(b) % 100 < b->settings->write_percent;
	s->since = bench_clock_ns();
	e = s->writes ? vn_write(b->disk, s->data, size, at, 0, slot_done, s)
	              : vn_read(b->disk, s->data, size, at, 0, slot_done, s);
	if (e)
		b->error = e;
	else
		b->busy++;
}

static void slot_done(void *arg, int error)
{
	struct slot *s = arg;
	struct bench *b = s->bench;
	uint64_t now = bench_clock_ns(), ns = now - s->since;

	b->busy--;
	if (error) {
		b->error = error;
		return;
	}
	b->ended = now;
	b->histogram[bucket_of_ns(ns)]++;
	b->total_ns += ns;
	b->longest = ns > b->longest ? ns : b->longest;
	b->reads += !s->writes;
	b->written += s->writes;
	if (now < b->until && !b->error)
		begin_slot(s);
}

static double latency_percentile(const struct bench *b, double part)
{
	uint64_t n = 0, all = b->reads + b->written;

	for (unsigned i = 0; i < BUCKETS; i++) {
		n += b->histogram[i];
		if (n && (double)n >= part * (double)all)
			return bucket_us(i);
	}
	return 0;
}

static void report_bench(const struct bench *b)
{
	static const struct {
		const char *name;
		double part;
	} p[] = {{"50", 0.5}, {"90", 0.9}, {"99", 0.99}, {"99.9", 0.999}};
	double s = (double)(b->ended - b->begun) / 1e9, n = (double)(b->reads + b->written),
	       mb = n * (double)b->settings->size / 1e6;
	struct vn_statistics st;
	bool json = b->settings->json;

	vn_statistics(b->disk, &st);
	printf(json ? "{\"transport\": \"%s\", \"size\": %zu, \"depth\": %u, \"pattern\": \"%s\", \"write_percent\": "
	              "%u, \"seconds\": %.3f, \"iops\": %.0f, \"mb_s\": %.1f, "
	              "\"latency_us\": {\"mean\": %.1f"
	            : "%s, %zu bytes, %u outstanding, %s, %u%% writes, %.1f s: %.0f requests/s, %.1f MB/s\nlatency in "
	              "us: mean %.1f",
	       vn_transport_name(b->disk), b->settings->size, b->settings->depth,
	       b->settings->sequential ? "sequential" : "random", b->settings->write_percent, s, s > 0 ? n / s : 0,
	       s > 0 ? mb / s : 0, n > 0 ? (double)b->total_ns / n / 1000 : 0);
	for (size_t i = 0; i < sizeof(p) / sizeof(*p); i++)
		printf(json ? ", \"p%s\": %.1f" : ", %s%% %.1f", p[i].name, latency_percentile(b, p[i].part));
	printf(json ? ", \"max\": %.1f}, \"copied_bytes\": %llu, \"retries\": %llu, \"reconnects\": %llu}\n"
	            : ", longest %.1f\n%llu bytes copied, %llu retries, %llu reconnects\n",
	       (double)b->longest / 1000, (unsigned long long)st.bytes_copied, (unsigned long long)st.retries,
	       (unsigned long long)st.reconnects);
}

static void run_bench(struct bench *b, struct slot *slots)
{
	b->begun = bench_clock_ns();
	b->until = b->begun + (uint64_t)b->settings->seconds * 1000000000;
	for (unsigned i = 0; i < b->settings->depth && !b->error; i++)
		begin_slot(&slots[i]);
	while (b->busy)
		vn_poll(b->disk, -1);
}

int vd_bench(const char *url, const struct vd_settings *s)
{
	struct bench b = {.settings = s, .random = 88172645463325252u};
	struct slot *slots = calloc(s->depth, sizeof(*slots));
	struct vn_memory *memory;
	void *data = NULL;
	size_t bytes = s->size * s->depth;

	b.disk = slots ? vd_open(url, s) : NULL;
	if (!b.disk) {
		free(slots);
		return 1;
	}
	b.error = vn_allocate(b.disk, bytes, &data, &memory);
	if (!b.error)
		memset(data, 0x5a, bytes);
	b.blocks = vn_info(b.disk)->size / s->size;
	for (unsigned i = 0; i < s->depth; i++)
		slots[i] = (struct slot){.bench = &b, .data = (uint8_t *)data + i * s->size};
	if (!b.error && (!b.blocks || s->size % vn_info(b.disk)->block_size))
		b.error = -EINVAL;
	if (!b.error)
		run_bench(&b, slots);
	if (b.error)
		vd_error(url, b.error);
	else
		report_bench(&b);
	vn_close(b.disk);
	free(slots);
	return !!b.error;
}
