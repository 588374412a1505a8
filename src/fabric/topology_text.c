// topology_text.c - a fabric as a text, and the rates of links
// follows: ibnetdiscover(8), the output format; IBA volume 1, 14.2.5.6 (LinkWidth, LinkSpeed, LinkSpeedExt)
// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <stdlib.h>

#include "fabric/topology.h"

static const struct {
	const char *name;
	uint8_t speeds, ext;
} speeds[] = {{"SDR", 1, 0}, {"DDR", 3, 0}, {"QDR", 7, 0}, {"FDR10", 7, 0},
              {"FDR", 7, 1}, {"EDR", 7, 3}, {"HDR", 7, 7}, {"NDR", 7, 15}};

static const struct {
	unsigned lanes;
	uint8_t widths;
} widths[] = {{1, 1}, {2, 16 | 1}, {4, 2 | 1}, {8, 4 | 2 | 1}, {12, 8 | 2 | 1}};

bool vb_topology_rate(struct vb_port_info *i, const char *text)
{
	char *name;
	unsigned long lanes = strtoul(text, &name, 10);

	if (name == text || *name++ != 'x')
		return false;
	for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++)
		for (size_t s = 0; s < sizeof(speeds) / sizeof(*speeds); s++) {
			if (widths[w].lanes != lanes || strcmp(speeds[s].name, name) != 0)
				continue;
			i->width_supported = i->width_enabled = widths[w].widths;
			i->speed_supported = i->speed_enabled = speeds[s].speeds;
			i->ext_supported = i->ext_enabled = speeds[s].ext;
			return true;
		}
	return false;
}

unsigned vb_topology_lanes(const struct vb_port_info *i)
{
	return i->width_active == 8    ? 12
	       : i->width_active == 4  ? 8
	       : i->width_active == 2  ? 4
	       : i->width_active == 16 ? 2
	                               : 1;
}

const char *vb_topology_speed(const struct vb_port_info *i)
{
	if (i->ext_active)
		return i->ext_active == 8 ? "NDR" : i->ext_active == 4 ? "HDR" : i->ext_active == 2 ? "EDR" : "FDR";
	return i->speed_active == 4 ? "QDR" : i->speed_active == 2 ? "DDR" : "SDR";
}

const char *vb_topology_rate_text(const struct vb_port_info *i, char buf[16])
{
	snprintf(buf, 16, "%ux%s", vb_topology_lanes(i), vb_topology_speed(i));
	return buf;
}

/* What this end can; the link has the lower one of both ends. */
static const char *own_rate(const struct vb_port_info *i, char buf[16])
{
	for (size_t w = 0; w < sizeof(widths) / sizeof(*widths); w++)
		for (size_t s = 0; s < sizeof(speeds) / sizeof(*speeds); s++)
			if (widths[w].widths == i->width_supported && speeds[s].speeds == i->speed_supported &&
			    speeds[s].ext == i->ext_supported) {
				snprintf(buf, 16, "%ux%s", widths[w].lanes, speeds[s].name);
				return buf;
			}
	return "4xQDR";
}

static void print_port(const struct vb_fabric_port *p, FILE *out)
{
	const struct vb_fabric_port *q = p->peer;
	char rate[16];

	fprintf(out, "[%u]", p->num);
	if (!p->node->sw)
		fprintf(out, "(%" PRIx64 ")", p->guid);
	fprintf(out, "\t\"%s\"[%u]", q->node->id, q->num);
	if (!q->node->sw)
		fprintf(out, "(%" PRIx64 ")", q->guid);
	fprintf(out, "\t\t# \"%s\" lid %u %s\n", q->node->desc, q->node->sw ? q->node->port[0].info.lid : q->info.lid,
	        own_rate(&p->info, rate));
}

void vb_topology_print(const struct vb_fabric *f, FILE *out)
{
	for (size_t i = 0; i < f->count; i++) {
		const struct vb_fabric_node *n = f->nodes[i];
		const char *kind = n->type == VB_NODE_SWITCH ? "Switch" : n->type == VB_NODE_CA ? "Ca" : "Rt";

		fprintf(out,
		        "%svendid=0x%x\ndevid=0x%x\nsysimgguid=0x%" PRIx64 "\n%sguid=0x%" PRIx64
		        "\n%s\t%u \"%s\"\t\t# \"%s\"\n",
		        i ? "\n" : "", n->vendor_id, n->device_id, n->system_guid,
		        n->type == VB_NODE_SWITCH ? "switch"
		        : n->type == VB_NODE_CA   ? "ca"
		                                  : "rt",
		        n->guid, kind, n->ports, n->id, n->desc);
		for (unsigned k = 1; k <= n->ports; k++)
			if (n->port[k].peer)
				print_port(&n->port[k], out);
	}
}
