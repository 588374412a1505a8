// topology.h - a fabric from a text or from a generator, and as a text
// follows: ibnetdiscover(8), the output format
// SPDX-License-Identifier: MIT
#ifndef VB_FABRIC_TOPOLOGY_H
#define VB_FABRIC_TOPOLOGY_H

#include <stdio.h>

#include "fabric/fabric.h"

struct vb_topology_error {
	unsigned line; /* from 1; 0: it is not about a line */
	char reason[200];
};

/*
 * Adds the nodes and cables of a text to a fabric, whose nodes it may name; their links do not come up yet. Returns
 * false, and has changed nothing, if the text is wrong or there is no memory.
 */
bool vb_topology_read(struct vb_fabric *f, const char *text, size_t len, struct vb_topology_error *e);

/* Adds what "switch:HOSTS", "fat-tree:LEAVES,SPINES,HOSTS", "torus:X,Y[,Z],HOSTS" or "dragonfly:GROUPS,ROUTERS,HOSTS"
 * describe to an empty fabric. HOSTS are those of one switch. */
bool vb_topology_generate(struct vb_fabric *f, const char *what, struct vb_topology_error *e);

void vb_topology_print(const struct vb_fabric *f, FILE *out);

/* Links of a port of this width and speed: "4xQDR". False: there is no such one. */
bool vb_topology_rate(struct vb_port_info *i, const char *text);
/* What the link has: 4, "QDR", "4xQDR". */
unsigned vb_topology_lanes(const struct vb_port_info *i);
const char *vb_topology_speed(const struct vb_port_info *i);
const char *vb_topology_rate_text(const struct vb_port_info *i, char buf[16]);

#endif
