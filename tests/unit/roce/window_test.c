// window_test.c - the share of a path that the window gets: on long or lossy paths, with small queues, beside others
// usage: window_test [TEXT]: only tests with TEXT in their names
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "path.h"

#define MS 1000000ull
#define US 1000ull
#define KIB 1024u

struct scenario {
	const char *name;
	struct path path;
	double least, least_other; /* percent; other: of the TCP, or of the second pair */
};

#define LONG .bits_per_us = 1000, .rtt = 20 * MS, .time = 4000 * MS, .from = 1000 * MS, .pairs = 1
#define FAR .bits_per_us = 1000, .rtt = 200 * MS, .time = 20000 * MS, .from = 5000 * MS, .pairs = 1
#define SHORT .bits_per_us = 40000, .rtt = 50 * US, .time = 60 * MS, .from = 10 * MS, .pairs = 1
#define SHARED .bits_per_us = 1000, .rtt = 20 * MS, .time = 120000 * MS, .from = 20000 * MS, .pairs = 1
#define ALONE .bits_per_us = 1000, .rtt = 20 * MS, .time = 60000 * MS, .from = 10000 * MS
#define TWO .bits_per_us = 1000, .rtt = 20 * MS, .time = 30000 * MS, .from = 10000 * MS, .pairs = 2
#define SMALL .mtu = 1024, .keep = 8192
#define LARGE .mtu = 4096, .keep = 4096

/* The bounds are below the present results, to notice regressions. */
static const struct scenario scenarios[] = {
        {"1 Gb/s, 20 ms, no loss, 1024", {LONG, SMALL}, 90},
        {"1 Gb/s, 20 ms, no loss, 4096", {LONG, LARGE}, 95},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024", {LONG, SMALL, .lose = 100}, 40},
        {"1 Gb/s, 20 ms, 0.1 % loss, 4096", {LONG, LARGE, .lose = 100}, 60},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, peer drops", {LONG, .mtu = 1024, .lose = 100}, 10},
        {"1 Gb/s, 20 ms, 0.1 % loss, 4096, peer drops", {LONG, .mtu = 4096, .lose = 100}, 30},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, reads", {LONG, SMALL, .lose = 100, .read = true}, 25},
        {"1 Gb/s, 20 ms, 0.1 % loss, 4096, reads", {LONG, LARGE, .lose = 100, .read = true}, 50},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, stalls 1 ms", {LONG, SMALL, .lose = 100, .stall = 1 * MS}, 35},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, stalls 3 ms", {LONG, SMALL, .lose = 100, .stall = 3 * MS}, 35},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, stalls 9 ms", {LONG, SMALL, .lose = 100, .stall = 9 * MS}, 30},
        {"1 Gb/s, 20 ms, 0.01 % loss, 1024", {LONG, SMALL, .lose = 10}, 75},
        {"1 Gb/s, 20 ms, 1 % loss, 4096", {LONG, LARGE, .lose = 1000}, 15},
        {"1 Gb/s, 20 ms, queue 256 KiB, 1024", {LONG, SMALL, .queue = 256 * KIB}, 55},
        {"1 Gb/s, 20 ms, queue 2.5 MB, 4096", {LONG, LARGE, .queue = 2500000}, 85},
        {"1 Gb/s, 200 ms, no loss, 1024", {FAR, SMALL}, 55},
        {"40 Gb/s, 50 us, no loss, 1024", {SHORT, SMALL}, 90},
        {"40 Gb/s, 50 us, no loss, 4096", {SHORT, LARGE}, 95},
        {"40 Gb/s, 50 us, 1 % loss, 1024", {SHORT, SMALL, .lose = 1000}, 20},
        {"40 Gb/s, 50 us, 1 % loss, 4096", {SHORT, LARGE, .lose = 1000}, 35},
        {"40 Gb/s, 50 us, 1 % loss, 1024, peer drops", {SHORT, .mtu = 1024, .lose = 1000}, 6},
        {"40 Gb/s, 50 us, 1 % loss, 4096, peer drops", {SHORT, .mtu = 4096, .lose = 1000}, 18},
        {"40 Gb/s, 50 us, 1 % loss, 4096, reads", {SHORT, LARGE, .lose = 1000, .read = true}, 20},
        {"40 Gb/s, 50 us, 5 % loss, 4096", {SHORT, LARGE, .lose = 5000}, 5},
        {"40 Gb/s, 20 us, room for 128 KiB, 4096",
         {.bits_per_us = 40000,
          .rtt = 20 * US,
          .time = 60 * MS,
          .from = 10 * MS,
          .pairs = 1,
          LARGE,
          .queue = 128 * KIB},
         85},
        {"beside a TCP, queue 2.5 MB, 1024", {SHARED, .tcp = TCP_RENO, SMALL, .queue = 2500000}, 40, 20},
        {"beside a TCP, queue 1.25 MB, 4096", {SHARED, .tcp = TCP_RENO, LARGE, .queue = 1250000}, 40, 20},
        {"beside a TCP, queue 625 KB, 4096", {SHARED, .tcp = TCP_RENO, LARGE, .queue = 625000}, 40, 20},
        {"beside a TCP, queue 250 KB, 4096", {SHARED, .tcp = TCP_RENO, LARGE, .queue = 250000}, 40, 10},
        {"beside a TCP, queue 2.5 MB, 4096, peer drops",
         {SHARED, .tcp = TCP_RENO, .mtu = 4096, .queue = 2500000},
         40,
         10},
        {"reno alone, queue 2.5 MB", {ALONE, .queue = 2500000, .tcp = TCP_RENO}, 0, 75},
        {"cubic alone, queue 2.5 MB", {ALONE, .queue = 2500000, .tcp = TCP_CUBIC}, 0, 80},
        {"BBR alone, queue 2.5 MB", {ALONE, .queue = 2500000, .tcp = TCP_BBR}, 0, 85},
        {"BBR alone, queue 2.5 MB, 0.1 % loss", {ALONE, .queue = 2500000, .tcp = TCP_BBR, .lose = 100}, 0, 85},
        {"cubic alone, queue 2.5 MB, 0.1 % loss", {ALONE, .queue = 2500000, .tcp = TCP_CUBIC, .lose = 100}, 0, 1},
        {"beside cubic, queue 2.5 MB, 1024", {SHARED, SMALL, .queue = 2500000, .tcp = TCP_CUBIC}, 40, 20},
        /* BBR holds two bandwidth-delay products whatever is lost, so little is left for a window that shrinks at a
         * loss */
        {"beside BBR, queue 2.5 MB, 1024", {SHARED, SMALL, .queue = 2500000, .tcp = TCP_BBR}, 0.3, 20},
        {"beside BBR, queue 2.5 MB, 0.1 % loss, 1024",
         {SHARED, SMALL, .queue = 2500000, .tcp = TCP_BBR, .lose = 100},
         0.3,
         20},
        {"beside cubic that was there before, 1024",
         {SHARED, SMALL, .queue = 2500000, .tcp = TCP_CUBIC, .pairs_at = 5000 * MS},
         40,
         15},
        {"two pairs, queue 1.25 MB, 4096", {TWO, LARGE, .queue = 1250000}, 30, 30},
};

static bool run(const struct scenario *s)
{
	struct path_result r = path_run(&s->path);
	const struct vb_roce_stats *n = &r.stats;
	const struct vb_roce_window *w = &r.requester.window;
	double other = s->path.tcp ? r.tcp : r.share[1];

	printf("%-46s %5.1f %%", s->name, r.share[0]);
	if (s->path.tcp || s->path.pairs > 1)
		printf(", the other %4.1f %%", other);
	printf("; sent %llu, again %llu, gaps %llu, probes %llu, window %u, rtt %llu us%s\n",
	       (unsigned long long)n->sent_pkts, (unsigned long long)n->resent_pkts,
	       (unsigned long long)(n->seq_naks_rcvd + n->lost_responses), (unsigned long long)n->probes, w->packets,
	       (unsigned long long)w->srtt / 1000,
	       r.share[0] < s->least || other < s->least_other ? " TOO LITTLE" : "");
	fflush(stdout);
	return r.share[0] >= s->least && other >= s->least_other;
}

/* With a sanitizer not those of minutes: they are about shares, and execute the same code as the others. */
static bool is_wanted(const struct scenario *s, const char *text)
{
#ifdef VB_SANITIZED
	if (!text && s->path.time > 20000 * MS)
		return false;
#endif
	return !text || strstr(s->name, text);
}

int main(int argc, char **argv)
{
	bool ok = true;

	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (is_wanted(&scenarios[i], argc < 2 ? NULL : argv[1]))
			ok &= run(&scenarios[i]);
	return !ok;
}
