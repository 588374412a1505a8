// generate.c - fabrics of regular shapes: one switch, a fat tree, a torus, a dragonfly
// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdlib.h>

#include "fabric/topology.h"

#define NUMBERS_MOST 4
#define PORTS_MOST 254
#define VENDOR 0x005e4b /* no vendor's own management is expected of it */
#define SWITCH_GUID 0x005e4b0000000000ull
#define HOST_GUID 0x005e4b0100000000ull

struct shape {
	struct vb_fabric *f;
	struct vb_topology_error *e;
	unsigned long n[NUMBERS_MOST];
	unsigned numbers;
	unsigned switches, hosts; /* made so far */
};

__attribute__((format(printf, 2, 3))) static bool unable(struct shape *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->e->reason, sizeof(s->e->reason), fmt, ap);
	va_end(ap);
	s->e->line = 0;
	return false;
}

static bool fits_subnet(struct shape *s, unsigned long nodes)
{
	return nodes <= VB_FABRIC_NODES_MOST || unable(s, "%lu nodes are too many for one subnet", nodes);
}

static struct vb_fabric_node *make_node(struct shape *s, enum vb_node_type type, unsigned long ports, const char *desc)
{
	bool sw = type == VB_NODE_SWITCH;
	uint64_t guid = sw ? SWITCH_GUID + ++s->switches : HOST_GUID + ++s->hosts * 4ull;
	char id[VB_FABRIC_ID];

	snprintf(id, sizeof(id), "%c-%016llx", sw ? 'S' : 'H', (unsigned long long)guid);
	struct vb_fabric_node *n = vb_fabric_add(s->f, type, id, (uint8_t)ports, guid);
	if (!n) {
		unable(s, "no memory");
		return NULL;
	}
	n->vendor_id = VENDOR;
	n->device_id = sw ? 2 : 1;
	snprintf(n->desc, sizeof(n->desc), "%s", desc);
	return n;
}

static void cable(struct vb_fabric_node *a, unsigned long port_a, struct vb_fabric_node *b, unsigned long port_b)
{
	vb_fabric_connect(&a->port[port_a], &b->port[port_b]);
}

/* Hosts on the ports from `first` on. */
static bool make_hosts(struct shape *s, struct vb_fabric_node *sw, unsigned long first, unsigned long count)
{
	char desc[VB_FABRIC_ID];

	for (unsigned long i = 0; i < count; i++) {
		snprintf(desc, sizeof(desc), "host%u ib0", s->hosts + 1);
		struct vb_fabric_node *h = make_node(s, VB_NODE_CA, 1, desc);

		if (!h)
			return false;
		cable(sw, first + i, h, 1);
	}
	return true;
}

static struct vb_fabric_node *make_switch_named(struct shape *s, unsigned long ports, const char *kind)
{
	char desc[VB_FABRIC_ID];

	snprintf(desc, sizeof(desc), "%s%u", kind, s->switches + 1);
	return make_node(s, VB_NODE_SWITCH, ports, desc);
}

static bool one_switch(struct shape *s)
{
	struct vb_fabric_node *sw = make_switch_named(s, s->n[0], "switch");

	return sw && make_hosts(s, sw, 1, s->n[0]);
}

/* Each leaf has a cable to each spine: hosts on the first ports of a leaf, spines behind them. */
static bool fat_tree(struct shape *s)
{
	unsigned long leaves = s->n[0], spines = s->n[1], hosts = s->n[2];
	struct vb_fabric_node *spine[PORTS_MOST];

	if (hosts + spines > PORTS_MOST || leaves > PORTS_MOST)
		return unable(s, "a switch has at most %d ports", PORTS_MOST);
	if (!fits_subnet(s, leaves * (1 + hosts) + spines))
		return false;
	for (unsigned long k = 0; k < spines; k++)
		if (!(spine[k] = make_switch_named(s, leaves, "spine")))
			return false;
	for (unsigned long i = 0; i < leaves; i++) {
		struct vb_fabric_node *leaf = make_switch_named(s, hosts + spines, "leaf");

		if (!leaf || !make_hosts(s, leaf, 1, hosts))
			return false;
		for (unsigned long k = 0; k < spines; k++)
			cable(leaf, hosts + 1 + k, spine[k], i + 1);
	}
	return true;
}

/* Ports 1 and 2: to the next and from the previous one in x; 3 and 4 in y; 5 and 6 in z; then hosts. */
static bool torus(struct shape *s)
{
	bool three = s->numbers == 4;
	unsigned long d[3] = {s->n[0], s->n[1], three ? s->n[2] : 1}, hosts = s->n[s->numbers - 1];
	unsigned long step[3] = {1, d[0], d[0] * d[1]}, count = d[0] * d[1] * d[2];

	if (hosts + 6 > PORTS_MOST)
		return unable(s, "a switch has at most %d ports", PORTS_MOST);
	if (!fits_subnet(s, count * (1 + hosts)))
		return false;
	size_t first = s->f->count;
	for (unsigned long i = 0; i < count; i++)
		if (!make_switch_named(s, 6 + hosts, "switch"))
			return false;
	struct vb_fabric_node **sw = s->f->nodes + first;
	for (unsigned long i = 0; i < count; i++)
		for (unsigned k = 0; k < 3; k++) {
			unsigned long at = i / step[k] % d[k], next = i - at * step[k] + (at + 1) % d[k] * step[k];

			if (d[k] > 1)
				cable(sw[i], 2 * k + 1, sw[next], 2 * k + 2);
		}
	for (unsigned long i = 0; i < count; i++)
		if (!make_hosts(s, s->f->nodes[first + i], 7, hosts))
			return false;
	return true;
}

/* All routers of a group are joined, and each group with each other by one cable, spread over its routers. */
static bool dragonfly(struct shape *s)
{
	unsigned long groups = s->n[0], routers = s->n[1], hosts = s->n[2];
	unsigned long global = (groups - 1 + routers - 1) / routers, ports = hosts + routers - 1 + global;
	size_t first = s->f->count;

	if (ports > PORTS_MOST || !ports)
		return unable(s, "a switch has 1 to %d ports", PORTS_MOST);
	if (!fits_subnet(s, groups * routers * (1 + hosts)))
		return false;
	for (unsigned long i = 0; i < groups * routers; i++)
		if (!make_switch_named(s, ports, "router"))
			return false;
	struct vb_fabric_node **sw = s->f->nodes + first;
	for (unsigned long g = 0; g < groups; g++)
		for (unsigned long a = 0; a < routers; a++)
			for (unsigned long b = a + 1; b < routers; b++)
				cable(sw[g * routers + a], hosts + b, sw[g * routers + b], hosts + a + 1);
	for (unsigned long g = 0; g < groups; g++)
		for (unsigned long h = g + 1; h < groups; h++) /* cable h - 1 of group g, cable g of group h */
			cable(sw[g * routers + (h - 1) % routers], hosts + routers + (h - 1) / routers,
			      sw[h * routers + g % routers], hosts + routers + g / routers);
	for (unsigned long i = 0; i < groups * routers; i++)
		if (!make_hosts(s, s->f->nodes[first + i], 1, hosts))
			return false;
	return true;
}

static const struct {
	const char *name, *usage;
	unsigned fewest, most;
	bool (*make)(struct shape *s);
} shapes[] = {{"switch", "HOSTS", 1, 1, one_switch},
              {"fat-tree", "LEAVES,SPINES,HOSTS", 3, 3, fat_tree},
              {"torus", "X,Y[,Z],HOSTS", 3, 4, torus},
              {"dragonfly", "GROUPS,ROUTERS,HOSTS", 3, 3, dragonfly}};

/* Numbers of 1 to PORTS_MOST. */
static bool take_numbers(struct shape *s, const char *text, const char *name)
{
	for (char *end; s->numbers < NUMBERS_MOST; text = end + 1) {
		unsigned long v = strtoul(text, &end, 10);

		if (end == text || *text < '0' || *text > '9' || v < 1 || v > PORTS_MOST)
			return unable(s, "%s: numbers of 1 to %d, separated by commas", name, PORTS_MOST);
		s->n[s->numbers++] = v;
		if (!*end)
			return true;
		if (*end != ',')
			return unable(s, "%s: numbers are separated by commas", name);
	}
	return unable(s, "%s: too many numbers", name);
}

bool vb_topology_generate(struct vb_fabric *f, const char *what, struct vb_topology_error *e)
{
	struct shape s = {.f = f, .e = e};
	size_t n = strcspn(what, ":");

	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		if (strlen(shapes[i].name) != n || strncmp(shapes[i].name, what, n) != 0)
			continue;
		if (!take_numbers(&s, what[n] ? what + n + 1 : "", shapes[i].name))
			return false;
		if (s.numbers < shapes[i].fewest || s.numbers > shapes[i].most)
			return unable(&s, "%s:%s is how it is written", shapes[i].name, shapes[i].usage);
		return shapes[i].make(&s);
	}
	return unable(&s, "no such shape; there are switch, fat-tree, torus, dragonfly");
}
