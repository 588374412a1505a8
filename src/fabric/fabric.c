// fabric.c - nodes, cables, and the states of links
// follows: IBA volume 1, 7.2 (link states), 14.2.5.6 (PortInfo)
// SPDX-License-Identifier: MIT
#include "fabric/fabric.h"

#include <stdio.h>
#include <stdlib.h>

#include "fabric/internal.h"

struct vb_fabric *vb_fabric_new(const struct vb_fabric_ops *ops, void *own)
{
	struct vb_fabric *f = calloc(1, sizeof(*f));

	if (f) {
		f->ops = ops;
		f->own = own;
		f->next_tid = 1;
	}
	return f;
}

static void free_port(struct vb_fabric_port *p)
{
	free(p->pkeys);
	free(p->guids);
	free(p->sl2vl);
	free(p->vl_arb);
}

static void free_node(struct vb_fabric_node *n)
{
	for (unsigned i = 0; i <= n->ports; i++) {
		free_port(&n->port[i]);
		free(n->port[i].pace);
	}
	if (n->sw) {
		free(n->sw->lft);
		free(n->sw->mft);
		free(n->sw);
	}
	free(n);
}

void vb_fabric_free(struct vb_fabric *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->count; i++) {
		vb_trap_forget(f->nodes[i]);
		free_node(f->nodes[i]);
	}
	free(f->nodes);
	free(f->queue);
	free(f);
}

static struct vb_fabric_node **hash_place(const struct vb_fabric *f, const char *id)
{
	uint32_t h = 2166136261u;

	for (; *id; id++)
		h = (h ^ (uint8_t)*id) * 16777619u;
	return (struct vb_fabric_node **)&f->by_id[h % (sizeof(f->by_id) / sizeof(*f->by_id))];
}

static bool make_switch(struct vb_fabric_node *n)
{
	n->sw = calloc(1, sizeof(*n->sw));
	if (n->sw)
		n->sw->info = (struct vb_switch_info){.lft_cap = VB_FABRIC_LFT_CAP,
		                                      .mft_cap = VB_FABRIC_MFT_CAP,
		                                      .life_time = 18,
		                                      .enforce_cap = VB_FABRIC_SWITCH_PKEYS,
		                                      .caps = 0x1c};
	return n->sw;
}

void vb_fabric_port_defaults(struct vb_fabric_port *p)
{
	const struct vb_fabric_node *n = p->node;
	bool base = n->sw && !p->num, end = !n->sw || base;
	struct vb_port_info i = {.local_port = p->num,
	                         .width_enabled = 3,
	                         .width_supported = 3,
	                         .width_active = 2,
	                         .speed_supported = 7,
	                         .speed_enabled = 7,
	                         .speed_active = 4,
	                         .state = VB_PORT_DOWN,
	                         .phys = VB_PHYS_POLLING,
	                         .down_default = VB_PHYS_POLLING,
	                         .neighbor_mtu = 4,
	                         .mtu_cap = 4,
	                         .vl_cap = 4,
	                         .oper_vls = 4,
	                         .vl_arb_high_cap = 8,
	                         .vl_arb_low_cap = 8,
	                         .phys_errors = 8,
	                         .overrun_errors = 8};

	if (end) {
		i.gid_prefix = VB_FABRIC_LINK_LOCAL;
		i.cap_mask =
		        VB_CAP_TRAP | VB_CAP_SL_MAP | VB_CAP_SYSTEM_GUID | VB_CAP_EXT_SPEEDS | VB_CAP_CLIENT_REREGISTER;
		if (!base)
			i.cap_mask |= VB_CAP_AUTO_MIGRATION | VB_CAP_CM | VB_CAP_NOTICE;
		i.guid_cap = VB_FABRIC_GUIDS;
		i.subnet_timeout = 18;
		i.resp_time = 16;
	}
	if (base) {
		i.phys = VB_PHYS_UP;
		i.state =
		        VB_PORT_ACTIVE; /* deviates: 14.2.5.6 leaves the state of a base port 0 undefined; tools show it as Active */
		i.cap_mask &= ~VB_CAP_EXT_SPEEDS;
	}
	p->info = i;
}

struct vb_fabric_node *vb_fabric_add(struct vb_fabric *f, enum vb_node_type type, const char *id, uint8_t ports,
                                     uint64_t guid)
{
	struct vb_fabric_node *n = calloc(1, sizeof(*n) + (ports + 1u) * sizeof(n->port[0]));

	if (n && f->count == f->room) {
		size_t room = f->room ? 2 * f->room : 64;
		struct vb_fabric_node **nodes = realloc(f->nodes, room * sizeof(*nodes));

		if (!nodes) {
			free(n);
			return NULL;
		}
		f->nodes = nodes;
		f->room = room;
	}
	if (!n || (type == VB_NODE_SWITCH && !make_switch(n))) {
		free(n);
		return NULL;
	}
	n->fabric = f;
	n->type = type;
	n->ports = ports;
	n->guid = n->system_guid = guid;
	snprintf(n->id, sizeof(n->id), "%s", id);
	snprintf(n->desc, sizeof(n->desc), "%s", id);
	for (unsigned i = 0; i <= ports; i++) {
		n->port[i].node = n;
		n->port[i].num = (uint8_t)i;
		n->port[i].guid = type == VB_NODE_SWITCH ? guid : guid + i;
		vb_fabric_port_defaults(&n->port[i]);
	}
	f->nodes[f->count++] = n;
	struct vb_fabric_node **place = hash_place(f, id);
	n->next_same = *place;
	*place = n;
	return n;
}

void vb_fabric_remove_after(struct vb_fabric *f, size_t count)
{
	while (f->count > count) {
		struct vb_fabric_node *n = f->nodes[--f->count], **at = hash_place(f, n->id);

		while (*at != n)
			at = &(*at)->next_same;
		*at = n->next_same;
		for (unsigned i = 1; i <= n->ports; i++)
			if (n->port[i].peer)
				n->port[i].peer->peer = NULL;
		free_node(n);
	}
}

struct vb_fabric_node *vb_fabric_by_id(const struct vb_fabric *f, const char *id)
{
	struct vb_fabric_node *n = *hash_place(f, id);

	while (n && strcmp(n->id, id) != 0)
		n = n->next_same;
	return n;
}

struct vb_fabric_node *vb_fabric_by_guid(const struct vb_fabric *f, uint64_t guid)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->nodes[i]->guid == guid)
			return f->nodes[i];
	return NULL;
}

static bool is_first_word(const char *desc, const char *name)
{
	size_t n = strcspn(desc, " ");

	return n == strlen(name) && !strncmp(desc, name, n);
}

struct vb_fabric_node *vb_fabric_find(const struct vb_fabric *f, const char *name)
{
	struct vb_fabric_node *found = vb_fabric_by_id(f, name), *word = NULL;
	unsigned n = 0, words = 0;

	if (found)
		return found;
	if (!strncmp(name, "0x", 2))
		return vb_fabric_by_guid(f, strtoull(name, NULL, 16));
	for (size_t i = 0; i < f->count; i++) {
		if (!strcmp(f->nodes[i]->desc, name)) {
			found = f->nodes[i];
			n++;
		} else if (is_first_word(f->nodes[i]->desc, name)) {
			word = f->nodes[i];
			words++;
		}
	}
	if (n)
		return n == 1 ? found : NULL;
	return words == 1 ? word : NULL;
}

struct vb_fabric_port *vb_fabric_port(struct vb_fabric_node *n, unsigned num)
{
	return num > n->ports || (!num && !n->sw) ? NULL : &n->port[num];
}

void vb_fabric_connect(struct vb_fabric_port *a, struct vb_fabric_port *b)
{
	a->peer = b;
	b->peer = a;
}

/* --- link states --- */

/* A state that did not come from a Set: the switch says so in SwitchInfo and by a trap. */
void vb_fabric_port_state(struct vb_fabric_port *p, uint8_t state)
{
	if (p->info.state == state)
		return;
	if (state == VB_PORT_DOWN)
		p->counters.link_downed++;
	p->info.state = state;
	p->node->fabric->changes++;
	if (p->node->sw && p->num) {
		p->node->sw->info.state_change = 1;
		vb_fabric_trap(&p->node->port[0], VB_TRAP_LINK_STATE);
	}
}

/* The highest bit of what both ends can and want; 1 if they have none in common. */
static uint8_t highest_common(uint8_t a, uint8_t b)
{
	uint8_t both = a & b, top = 1;

	while (both >>= 1)
		top = (uint8_t)(top << 1);
	return top;
}

static void negotiate(struct vb_fabric_port *a, struct vb_fabric_port *b)
{
	uint8_t ext = a->info.ext_supported & a->info.ext_enabled & b->info.ext_supported & b->info.ext_enabled;
	uint8_t width = highest_common(a->info.width_enabled & a->info.width_supported,
	                               b->info.width_enabled & b->info.width_supported);
	uint8_t speed = highest_common(a->info.speed_enabled & a->info.speed_supported,
	                               b->info.speed_enabled & b->info.speed_supported);

	a->info.width_active = b->info.width_active = width;
	a->info.speed_active = b->info.speed_active = speed;
	a->info.ext_active = b->info.ext_active = ext ? highest_common(ext, ext) : 0;
}

static bool may_be_up(const struct vb_fabric_port *p)
{
	return !p->cut && !p->node->off && p->info.phys != VB_PHYS_DISABLED;
}

static void link_down(struct vb_fabric_port *p)
{
	p->downs += p->info.phys == VB_PHYS_UP;
	if (p->info.phys != VB_PHYS_DISABLED)
		p->info.phys = VB_PHYS_POLLING;
	vb_fabric_port_state(p, VB_PORT_DOWN);
}

void vb_fabric_train(struct vb_fabric_port *p)
{
	struct vb_fabric_port *q = p->peer;

	if ((p->node->sw && !p->num) || p->node->away)
		return;
	if (!q || !may_be_up(p) || !may_be_up(q)) {
		link_down(p);
		if (q)
			link_down(q);
		return;
	}
	if (p->info.phys == VB_PHYS_UP && q->info.phys == VB_PHYS_UP)
		return;
	negotiate(p, q);
	p->info.phys = q->info.phys = VB_PHYS_UP;
	vb_fabric_port_state(p, VB_PORT_INIT);
	vb_fabric_port_state(q, VB_PORT_INIT);
}

/* --- cables to nodes that are away --- */

void vb_fabric_give_away(struct vb_fabric_node *n, void *where)
{
	n->fabric->away += !n->away;
	n->away = true;
	n->where = where;
	for (unsigned i = 1; i <= n->ports; i++)
		n->port[i].cut = true; /* until the other process tells */
}

struct vb_fabric_end vb_fabric_end_of(const struct vb_fabric_port *p)
{
	const struct vb_port_info *i = &p->info;

	return (struct vb_fabric_end){.wants = may_be_up(p),
	                              .widths = i->width_enabled & i->width_supported,
	                              .speeds = i->speed_enabled & i->speed_supported,
	                              .ext_speeds = i->ext_enabled & i->ext_supported,
	                              .downs = p->downs};
}

/* What the other end causes is no news for it, so p->downs stays. */
void vb_fabric_end_told(struct vb_fabric_port *p, const struct vb_fabric_end *e)
{
	struct vb_fabric_port *q = p->peer;
	uint32_t downs = p->downs;

	q->cut = !e || !e->wants;
	if (e) {
		q->info.width_supported = q->info.width_enabled = e->widths;
		q->info.speed_supported = q->info.speed_enabled = e->speeds;
		q->info.ext_supported = q->info.ext_enabled = e->ext_speeds;
		if (vb_fabric_is_up(p) && e->downs != p->heard_downs) { /* it has been down meanwhile */
			link_down(p);
			link_down(q);
		}
		p->heard_downs = e->downs;
	}
	vb_fabric_train(p);
	p->downs = downs;
}

void vb_fabric_train_all(struct vb_fabric *f)
{
	for (size_t i = 0; i < f->count; i++)
		for (unsigned k = 1; k <= f->nodes[i]->ports; k++)
			if (f->nodes[i]->port[k].peer)
				vb_fabric_train(&f->nodes[i]->port[k]);
}

void vb_fabric_cut(struct vb_fabric_port *p, bool cut)
{
	p->cut = cut;
	vb_fabric_train(p);
}

/* What a node forgets when its power goes. What its cables cost stays. */
static void reset_node(struct vb_fabric_node *n)
{
	vb_trap_forget(n);
	for (unsigned i = 0; i <= n->ports; i++) {
		struct vb_fabric_port *p = &n->port[i];
		struct vb_port_info old = p->info;

		free_port(p);
		p->pkeys = NULL;
		p->guids = NULL;
		p->sl2vl = p->vl_arb = NULL;
		p->lease_end = 0;
		p->downs++;
		vb_fabric_port_defaults(p);
		p->info.width_supported = p->info.width_enabled = old.width_supported;
		p->info.speed_supported = p->info.speed_enabled = old.speed_supported;
		p->info.ext_supported = p->info.ext_enabled = old.ext_supported;
		memset(&p->counters, 0, sizeof(p->counters));
	}
	if (n->sw) {
		free(n->sw->lft);
		free(n->sw->mft);
		free(n->sw);
		if (!make_switch(n))
			abort(); /* what was just freed is enough */
	}
}

void vb_fabric_switch_off(struct vb_fabric_node *n, bool off)
{
	if (n->off == off)
		return;
	n->off = off;
	n->fabric->changes++;
	for (unsigned i = 1; off && i <= n->ports; i++)
		if (n->port[i].peer)
			link_down(n->port[i].peer);
	if (off)
		reset_node(n);
	for (unsigned i = 1; !off && i <= n->ports; i++)
		if (n->port[i].peer)
			vb_fabric_train(&n->port[i]);
}

void vb_fabric_hand_over(struct vb_fabric_node *n, void *where)
{
	for (unsigned i = 1; i <= n->ports; i++)
		vb_fabric_cut(&n->port[i], true);
	reset_node(n);
	vb_fabric_give_away(n, where);
	n->fabric->changes++;
}

void vb_fabric_take_back(struct vb_fabric_node *n)
{
	n->fabric->away -= n->away;
	n->away = false;
	n->where = NULL;
	n->fabric->changes++;
	for (unsigned i = 1; i <= n->ports; i++)
		if (n->port[i].peer)
			vb_fabric_cut(&n->port[i], true);
	reset_node(n);
	for (unsigned i = 1; i <= n->ports; i++)
		vb_fabric_cut(&n->port[i], false);
}

void vb_fabric_describe(struct vb_fabric_node *n, const char *desc)
{
	snprintf(n->desc, sizeof(n->desc), "%s", desc);
	vb_fabric_trap(&n->port[n->sw ? 0 : 1], VB_TRAP_LOCAL_CHANGE);
}

/* --- P_Keys --- */

unsigned vb_fabric_pkeys(const struct vb_fabric_port *p)
{
	return p->node->sw && p->num ? VB_FABRIC_SWITCH_PKEYS : VB_FABRIC_CA_PKEYS;
}

uint16_t vb_fabric_pkey(const struct vb_fabric_port *p, unsigned index)
{
	if (index >= vb_fabric_pkeys(p))
		return 0;
	return p->pkeys ? p->pkeys[index] : index ? 0 : 0xffff;
}

bool vb_fabric_set_pkeys(struct vb_fabric_port *p, const uint16_t *table)
{
	size_t size = vb_fabric_pkeys(p) * sizeof(*table);

	if (!p->pkeys && !(p->pkeys = malloc(size)))
		return false;
	memcpy(p->pkeys, table, size);
	p->node->fabric->changes++;
	return true;
}

bool vb_fabric_pkey_matches(const struct vb_fabric_port *p, uint16_t pkey)
{
	for (unsigned i = 0; (pkey & 0x7fff) && i < vb_fabric_pkeys(p); i++) {
		uint16_t own = vb_fabric_pkey(p, i);

		if ((own & 0x7fff) == (pkey & 0x7fff) && ((own | pkey) & 0x8000))
			return true;
	}
	return false;
}
