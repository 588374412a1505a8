// window_test.c - what the window makes of a path: a long one that loses, a short one whose receiver has little room
// usage: window_test [-v]
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static struct sim sim;

/* Writes of 64 KiB from node 0 over this path; returns the share of the link, in percent. */
static double share(const char *name, uint64_t bits_per_us, uint64_t one_way, uint32_t lose, uint32_t queue,
                    uint32_t mtu, uint32_t writes)
{
	sim_init(&sim, 16);
	sim.stream = true;
	for (int id = 0; id < 2; id++) {
		struct vb_wire_config cfg = sim.node[id].qp.cfg;

		sim.net.link[id] = (struct net_link){.delay = one_way};
		cfg.mtu = mtu;
		cfg.max_window = 0;
		cfg.ack_delay = 0;
		cfg.timeout = 18; /* 1 s */
		sim.node[id].goal = id ? 0 : writes;
		vb_wire_init(&sim.node[id].qp, &cfg, &sim_ops, &sim.node[id], sim.node[id].sends, SIM_SENDS);
		vb_wire_start(&sim.node[id].qp);
	}
	sim.net.link[1].bits_per_us = bits_per_us;
	sim.net.link[1].lose = lose;
	sim.net.link[1].queue = queue;
	bool ok = sim_run(&sim);
	double percent = 100.0 * writes * 65536 * 8 * 1000 / (double)bits_per_us / (double)sim.now;
	const struct vb_wire_stats *s = &sim.node[0].qp.stats;

	printf("%-34s %5.1f %% of the link; sent %llu, again %llu, gaps %llu, probes %llu, window %u, rtt %llu us\n",
	       name, percent, (unsigned long long)s->sent_pkts, (unsigned long long)s->resent_pkts,
	       (unsigned long long)s->seq_naks_rcvd, (unsigned long long)s->probes, sim.node[0].qp.rq.window.packets,
	       (unsigned long long)sim.node[0].qp.rq.window.srtt / 1000);
	if (!ok)
		printf("%s\n", sim.problem);
	sim_free(&sim);
	return ok ? percent : -1;
}

/* Found here: probes that came before the first answer made the round trip impossible to time, for ever. */
static bool a_path_slower_than_the_first_patience_is_timed(void)
{
	return share("1 Gb/s, 200 ms, no loss", 1000, 100000000, 0, 0, 1024, 500) >= 1 &&
	       sim.node[0].qp.stats.probes < 10 && sim.node[0].qp.rq.window.srtt >= 200000000;
}

/* The bounds are what go-back-N reaches today, with some room: they notice a step back, they are not the aim. */
int main(void)
{
	bool ok = a_path_slower_than_the_first_patience_is_timed();

	ok &= share("1 Gb/s, 20 ms, no loss", 1000, 10000000, 0, 0, 1024, 2000) >= 40;
	ok &= share("1 Gb/s, 20 ms, 0.1 % loss", 1000, 10000000, 10, 0, 1024, 1000) >= 10;
	ok &= share("1 Gb/s, 20 ms, queue of 256 KiB", 1000, 10000000, 0, 262144, 1024, 1000) >= 5;
	ok &= share("40 Gb/s, 20 us, room for 128 KiB", 40000, 10000, 0, 131072, 4096, 4000) >= 60;
	ok &= share("40 Gb/s, 20 us, 1 % loss", 40000, 10000, 100, 0, 4096, 4000) >= 40;
	ok &= share("40 Gb/s, 20 us, 5 % loss", 40000, 10000, 500, 0, 4096, 2000) >= 8;
	return !ok;
}
