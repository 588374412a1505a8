// window_test.c - what the window makes of a path: long, lossy, with little room, shared with others
// usage: window_test [all]: the whole table
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "path.h"

#define MS 1000000ull
#define US 1000ull
#define KIB 1024u

/* At least these shares, in percent; others: the TCP, or the second pair. */
struct scenario {
	const char *name;
	struct path path;
	double least, least_other;
	bool long_one; /* only in the whole table */
};

#define LONG(...) {.bits_per_us = 1000, .rtt = 20 * MS, .time = 4000 * MS, .from = 1000 * MS, .pairs = 1, __VA_ARGS__}
#define SHORT(...) {.bits_per_us = 40000, .rtt = 50 * US, .time = 60 * MS, .from = 10 * MS, .pairs = 1, __VA_ARGS__}
#define SHARED(...) {.bits_per_us = 1000, .rtt = 20 * MS, .time = 200000 * MS, .from = 20000 * MS, .pairs = 1, .tcp = true, __VA_ARGS__}
#define SMALL .mtu = 1024, .keep = 8192
#define LARGE .mtu = 4096, .keep = 4096

static const struct scenario scenarios[] = {
        {"1 Gb/s, 20 ms, no loss, 1024", LONG(SMALL)},
        {"1 Gb/s, 20 ms, no loss, 4096", LONG(LARGE)},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024", LONG(SMALL, .lose = 100)},
        {"1 Gb/s, 20 ms, 0.1 % loss, 4096", LONG(LARGE, .lose = 100)},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, peer drops", LONG(.mtu = 1024, .lose = 100)},
        {"1 Gb/s, 20 ms, 0.1 % loss, 4096, peer drops", LONG(.mtu = 4096, .lose = 100)},
        {"1 Gb/s, 20 ms, 0.1 % loss, 1024, reads", LONG(SMALL, .lose = 100, .read = true)},
        {"1 Gb/s, 20 ms, 0.1 % loss, 4096, reads", LONG(LARGE, .lose = 100, .read = true)},
        {"1 Gb/s, 20 ms, 0.01 % loss, 1024", LONG(SMALL, .lose = 10)},
        {"1 Gb/s, 20 ms, 1 % loss, 4096", LONG(LARGE, .lose = 1000)},
        {"1 Gb/s, 20 ms, queue 256 KiB, 1024", LONG(SMALL, .queue = 256 * KIB)},
        {"1 Gb/s, 20 ms, queue 2.5 MB, 4096", LONG(LARGE, .queue = 2500000)},
        {"1 Gb/s, 200 ms, no loss, 1024", {.bits_per_us = 1000, .rtt = 200 * MS, .time = 20000 * MS, .from = 2000 * MS, .pairs = 1, SMALL}},
        {"40 Gb/s, 50 us, no loss, 1024", SHORT(SMALL)},
        {"40 Gb/s, 50 us, no loss, 4096", SHORT(LARGE)},
        {"40 Gb/s, 50 us, 1 % loss, 1024", SHORT(SMALL, .lose = 1000)},
        {"40 Gb/s, 50 us, 1 % loss, 4096", SHORT(LARGE, .lose = 1000)},
        {"40 Gb/s, 50 us, 1 % loss, 1024, peer drops", SHORT(.mtu = 1024, .lose = 1000)},
        {"40 Gb/s, 50 us, 1 % loss, 4096, peer drops", SHORT(.mtu = 4096, .lose = 1000)},
        {"40 Gb/s, 50 us, 1 % loss, 4096, reads", SHORT(LARGE, .lose = 1000, .read = true)},
        {"40 Gb/s, 50 us, 5 % loss, 4096", SHORT(LARGE, .lose = 5000)},
        {"40 Gb/s, 20 us, room for 128 KiB, 4096", {.bits_per_us = 40000, .rtt = 20 * US, .time = 60 * MS, .from = 10 * MS, .pairs = 1, LARGE, .queue = 128 * KIB}},
        {"beside a TCP, queue 2.5 MB, 1024", SHARED(SMALL, .queue = 2500000)},
        {"beside a TCP, queue 1.25 MB, 4096", SHARED(LARGE, .queue = 1250000)},
        {"beside a TCP, queue 625 KB, 4096", SHARED(LARGE, .queue = 625000)},
        {"beside a TCP, queue 250 KB, 4096", SHARED(LARGE, .queue = 250000)},
        {"beside a TCP, queue 2.5 MB, 4096, peer drops", SHARED(.mtu = 4096, .queue = 2500000)},
        {"two pairs, queue 1.25 MB, 4096", {.bits_per_us = 1000, .rtt = 20 * MS, .time = 30000 * MS, .from = 10000 * MS, .pairs = 2, LARGE, .queue = 1250000}},
};

static bool run(const struct scenario *s)
{
	struct path_result r = path_run(&s->path);
	double other = s->path.tcp ? r.tcp : r.share[1];

	printf("%-46s %5.1f %%", s->name, r.share[0]);
	if (s->path.tcp || s->path.pairs > 1)
		printf(", the other %5.1f %%", other);
	printf("; sent %llu, again %llu, gaps %llu, probes %llu, window %u, rtt %llu us, keeps %d\n",
	       (unsigned long long)r.stats.sent_pkts, (unsigned long long)r.stats.resent_pkts,
	       (unsigned long long)(r.stats.seq_naks_rcvd + r.stats.lost_responses), (unsigned long long)r.stats.probes,
	       r.requester.window.packets, (unsigned long long)r.requester.window.srtt / 1000, r.requester.keeps);
	fflush(stdout);
	return r.share[0] >= s->least && other >= s->least_other;
}

int main(int argc, char **argv)
{
	bool ok = true;

	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (argc < 2 || strstr(scenarios[i].name, argv[1]))
			ok &= run(&scenarios[i]);
	return !ok;
}
