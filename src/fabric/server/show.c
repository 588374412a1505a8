// show.c - a CA as programs see it: for libibumad, and as files of /sys/class/infiniband
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband; IBA volume 1, 14.2.5.6 (PortInfo)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "fabric/server/server.h"
#include "fabric/topology.h"

struct vb_fabric_node *server_ca(const struct server *s, const char *name)
{
	struct vb_fabric_node *n = *name ? vb_fabric_find(s->fabric, name) : NULL;

	for (size_t i = 0; !*name && !n && i < s->fabric->count; i++)
		if (s->fabric->nodes[i]->type == VB_NODE_CA && !s->fabric->nodes[i]->away)
			n = s->fabric->nodes[i];
	return n && n->type == VB_NODE_CA && !n->away ? n : NULL;
}

/* Gb/s of a link, in tenths. */
static unsigned rate_of(const struct vb_port_info *i)
{
	static const unsigned ext[] = {[1] = 140, [2] = 250, [4] = 500, [8] = 1000};

	return vb_topology_lanes(i) * (i->ext_active && i->ext_active < 9 ? ext[i->ext_active] : 25u * i->speed_active);
}

void show_ca(const struct server *s, const struct vb_fabric_node *n, struct vb_fabric_ca *ca)
{
	*ca = (struct vb_fabric_ca){
	        .type = n->type, .guid = n->guid, .system_guid = n->system_guid, .name = VB_FABRIC_DEVICE};
	ca->ports = n->ports > VB_FABRIC_PORTS ? VB_FABRIC_PORTS : n->ports;
	snprintf(ca->fw_ver, sizeof(ca->fw_ver), "%.19s", VB_VERSION);
	snprintf(ca->hca_type, sizeof(ca->hca_type), "verbena-fabric");
	snprintf(ca->hw_rev, sizeof(ca->hw_rev), "1");
	for (unsigned k = 1; k <= ca->ports; k++) {
		const struct vb_fabric_port *p = &n->port[k];
		struct vb_fabric_ca_port *o = &ca->port[k];

		*o = (struct vb_fabric_ca_port){.guid = p->guid,
		                                .prefix = p->info.gid_prefix,
		                                .lid = p->info.lid,
		                                .lmc = p->info.lmc,
		                                .sm_lid = p->info.sm_lid,
		                                .sm_sl = p->info.sm_sl,
		                                .state = p->info.state,
		                                .phys = p->info.phys,
		                                .rate = rate_of(&p->info) / 10,
		                                .cap_mask = p->info.cap_mask,
		                                .pkeys = vb_fabric_pkeys(p)};
		for (unsigned i = 0; i < o->pkeys; i++)
			o->pkey[i] = vb_fabric_pkey(p, i);
	}
}

/* --- files --- */

static void print_guid(FILE *out, uint64_t guid)
{
	fprintf(out, "%04x:%04x:%04x:%04x\n", (unsigned)(guid >> 48), (unsigned)(guid >> 32 & 0xffff),
	        (unsigned)(guid >> 16 & 0xffff), (unsigned)(guid & 0xffff));
}

static bool node_file(const struct vb_fabric_node *n, const char *name, FILE *out)
{
	if (!strcmp(name, "node_type"))
		fputs("1: CA\n", out);
	else if (!strcmp(name, "node_guid"))
		print_guid(out, n->guid);
	else if (!strcmp(name, "sys_image_guid"))
		print_guid(out, n->system_guid);
	else if (!strcmp(name, "node_desc"))
		fprintf(out, "%s\n", n->desc);
	else if (!strcmp(name, "fw_ver"))
		fputs(VB_VERSION "\n", out);
	else if (!strcmp(name, "hw_rev"))
		fputs("1\n", out);
	else if (!strcmp(name, "hca_type") || !strcmp(name, "board_id"))
		fputs("verbena-fabric\n", out);
	else
		return false;
	return true;
}

static void print_rate(const struct vb_port_info *i, FILE *out)
{
	unsigned rate = rate_of(i);

	fprintf(out, rate % 10 ? "%u.%u Gb/sec (%uX %s)\n" : "%u%.0u Gb/sec (%uX %s)\n", rate / 10, rate % 10,
	        vb_topology_lanes(i), vb_topology_speed(i));
}

static bool port_table(const struct vb_fabric_port *p, const char *name, FILE *out)
{
	unsigned i;
	char end;

	if (sscanf(name, "pkeys/%u%c", &i, &end) == 1 && i < vb_fabric_pkeys(p)) {
		fprintf(out, "0x%04x\n", vb_fabric_pkey(p, i));
		return true;
	}
	if (sscanf(name, "gids/%u%c", &i, &end) != 1 || i >= VB_FABRIC_GUIDS)
		return false;
	uint64_t prefix = p->info.gid_prefix, guid = i ? p->guids ? p->guids[i] : 0 : p->guid;
	prefix = guid ? prefix : 0;
	for (int shift = 48; shift >= 0; shift -= 16)
		fprintf(out, "%04x:", (unsigned)(prefix >> shift & 0xffff));
	print_guid(out, guid);
	return true;
}

static bool port_file(const struct vb_fabric_port *p, const char *name, FILE *out)
{
	static const char *const states[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE"};
	static const char *const phys[] = {"<unknown>", "Sleep", "Polling", "Disabled", "PortConfigurationTraining",
	                                   "LinkUp"};
	const struct vb_port_info *i = &p->info;

	if (!strcmp(name, "state"))
		fprintf(out, "%u: %s\n", i->state, states[i->state <= 4 ? i->state : 0]);
	else if (!strcmp(name, "phys_state"))
		fprintf(out, "%u: %s\n", i->phys, phys[i->phys <= 5 ? i->phys : 0]);
	else if (!strcmp(name, "rate"))
		print_rate(i, out);
	else if (!strcmp(name, "lid"))
		fprintf(out, "0x%x\n", i->lid);
	else if (!strcmp(name, "lid_mask_count"))
		fprintf(out, "%u\n", i->lmc);
	else if (!strcmp(name, "sm_lid"))
		fprintf(out, "0x%x\n", i->sm_lid);
	else if (!strcmp(name, "sm_sl"))
		fprintf(out, "%u\n", i->sm_sl);
	else if (!strcmp(name, "cap_mask"))
		fprintf(out, "0x%08x\n", i->cap_mask);
	else if (!strcmp(name, "link_layer"))
		fputs("InfiniBand\n", out);
	else
		return port_table(p, name, out);
	return true;
}

static const char *const node_files[] = {"node_type", "node_guid", "sys_image_guid", "node_desc",
                                         "fw_ver",    "hw_rev",    "hca_type",       "board_id"};
static const char *const port_files[] = {"state",  "phys_state", "rate",     "lid",       "lid_mask_count",
                                         "sm_lid", "sm_sl",      "cap_mask", "link_layer"};

static void list_files(const struct vb_fabric_node *n, FILE *out)
{
	for (size_t i = 0; i < sizeof(node_files) / sizeof(*node_files); i++)
		fprintf(out, "%s\n", node_files[i]);
	for (unsigned k = 1; k <= n->ports; k++) {
		for (size_t i = 0; i < sizeof(port_files) / sizeof(*port_files); i++)
			fprintf(out, "ports/%u/%s\n", k, port_files[i]);
		for (unsigned i = 0; i < vb_fabric_pkeys(&n->port[k]); i++)
			fprintf(out, "ports/%u/pkeys/%u\n", k, i);
		for (unsigned i = 0; i < VB_FABRIC_GUIDS; i++)
			fprintf(out, "ports/%u/gids/%u\n", k, i);
	}
}

int show_file(const struct server *s, struct vb_fabric_node *n, const char *path, FILE *out)
{
	unsigned num;
	int at = 0;

	if (!*path) {
		list_files(n, out);
		return 0;
	}
	if (sscanf(path, "ports/%u/%n", &num, &at) == 1 && at) {
		struct vb_fabric_port *p = vb_fabric_port(n, num);

		return p && port_file(p, path + at, out) ? 0 : ENOENT;
	}
	return node_file(n, path, out) ? 0 : ENOENT;
}
