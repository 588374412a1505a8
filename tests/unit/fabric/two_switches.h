// two_switches.h - a small subnet whose tables are written and whose ports are Active, for tests of data
// SPDX-License-Identifier: MIT
#ifndef TESTS_UNIT_FABRIC_TWO_SWITCHES_H
#define TESTS_UNIT_FABRIC_TWO_SWITCHES_H

#include <stdlib.h>

#include "../../support/check.h"
#include "fabric/topology.h"

enum { LIDS = 64 };

/* The switch leads to no LID. */
static void clear_routes(struct vb_fabric_switch *sw)
{
	sw->lft = malloc(LIDS);
	CHECK(sw->lft);
	memset(sw->lft, 255, LIDS);
	sw->lft_len = LIDS;
	sw->info.lft_top = LIDS - 1;
}

/* Hosts 0 and 1 are on switch 0, host 2 on switch 1. They have LIDs 10, 20 and 30, each with an LMC of 1. */
static struct vb_fabric *two_switches(struct vb_fabric_node *sw[2], struct vb_fabric_port *host[3])
{
	static const struct vb_fabric_ops ops;
	static const char text[] = "Switch 4 \"s0\"\n[1] \"h0\"[1]\n[2] \"h1\"[1]\n[3] \"s1\"[3]\n"
	                           "\nSwitch 4 \"s1\"\n[1] \"h2\"[1]\n\nCa 1 \"h0\"\n\nCa 1 \"h1\"\n\nCa 1 \"h2\"\n";
	static const uint8_t to[2][3] = {{1, 2, 3}, {3, 3, 1}};
	struct vb_fabric *f = vb_fabric_new(&ops, NULL);
	struct vb_topology_error e;
	char name[3] = "h0";

	CHECK(f && vb_topology_read(f, text, sizeof(text) - 1, &e));
	sw[0] = vb_fabric_find(f, "s0");
	sw[1] = vb_fabric_find(f, "s1");
	vb_fabric_train_all(f);
	clear_routes(sw[0]->sw);
	clear_routes(sw[1]->sw);
	for (int i = 0; i < 3; i++) {
		name[1] = (char)('0' + i);
		host[i] = &vb_fabric_find(f, name)->port[1];
		host[i]->info.lid = (uint16_t)(10 * (i + 1));
		host[i]->info.lmc = 1;
		for (int s = 0; s < 2; s++)
			sw[s]->sw->lft[host[i]->info.lid] = sw[s]->sw->lft[host[i]->info.lid + 1] = to[s][i];
	}
	for (size_t i = 0; i < f->count; i++)
		for (unsigned k = 1; k <= f->nodes[i]->ports; k++)
			if (f->nodes[i]->port[k].peer)
				f->nodes[i]->port[k].info.state = VB_PORT_ACTIVE;
	return f;
}

static inline uint16_t *keys_of(struct vb_fabric_port *p, uint16_t first, uint16_t second)
{
	p->pkeys = calloc(VB_FABRIC_CA_PKEYS, sizeof(*p->pkeys));
	CHECK(p->pkeys);
	p->pkeys[0] = first;
	p->pkeys[1] = second;
	return p->pkeys;
}

#endif
