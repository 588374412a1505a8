// way.c - the way of data from a port to a LID, as packets would take it now
// follows: IBA volume 1, 18.2.4.3 (linear forwarding), 18.2.4.2 (SL to VL), 10.9 (partitions), 7.2.7 (link states), 16.1.3.5 (PortCounters)
// SPDX-License-Identifier: MIT
#include "fabric/internal.h"

/* What goes one way. */
struct leg {
	uint16_t dlid, pkey; /* pkey 0: none is checked */
	uint8_t sl;
	const struct vb_fabric_way *there; /* the way of what this answers; NULL: it is the first */
};

/* Has the data of the way there, which its answers follow, come in here? */
static bool is_reached(const struct vb_fabric_way *there, const struct vb_fabric_port *p)
{
	for (unsigned i = 1; there && i < there->ports; i += 2)
		if (there->port[i] == p)
			return true;
	return false;
}

/* 7.2.7: an Armed port only takes data, until some has come. */
static bool sends_data(const struct vb_fabric_way *there, const struct vb_fabric_port *p)
{
	return p->info.state == VB_PORT_ACTIVE || (p->info.state == VB_PORT_ARMED && is_reached(there, p));
}

/* in: where it has come into the node of out; out itself at the start. */
static enum vb_fabric_why cross(struct vb_fabric_way *w, const struct leg *l, struct vb_fabric_port *in,
                                struct vb_fabric_port *out)
{
	struct vb_fabric_port *next = out->peer;

	if (!next || !vb_fabric_is_up(out) || next->node->off)
		return VB_WAY_NO_LINK;
	if (!sends_data(l->there, out) || (!next->node->away && !vb_fabric_takes_data(next)))
		return VB_WAY_NOT_ACTIVE;
	if (!vb_fabric_has_vl(out, vb_fabric_vl_of(out, in, l->sl)))
		return VB_WAY_BAD_VL;
	if (l->pkey &&
	    (!vb_fabric_lets_pass(out, l->pkey, VB_ENFORCE_OUT) || !vb_fabric_lets_pass(next, l->pkey, VB_ENFORCE_IN)))
		return VB_WAY_BAD_PKEY;
	if (next->node->away)
		return VB_WAY_ELSEWHERE;
	w->port[w->ports++] = out;
	w->port[w->ports++] = next;
	if (!w->mtu || out->info.neighbor_mtu < w->mtu)
		w->mtu = out->info.neighbor_mtu;
	w->end = next;
	return VB_WAY_OPEN;
}

/* The links from `from` to the port with this LID. */
static enum vb_fabric_why one_way(struct vb_fabric_port *from, const struct leg *l, struct vb_fabric_way *w)
{
	enum vb_fabric_why why;

	*w = (struct vb_fabric_way){.end = from};
	if (from->node->off || !vb_fabric_is_up(from))
		return VB_WAY_NO_LINK;
	if (!sends_data(l->there, from))
		return VB_WAY_NOT_ACTIVE;
	if (vb_fabric_is_lid_of(from, l->dlid)) { /* 17.2.2: a port also reaches itself */
		w->mtu = from->info.neighbor_mtu;
		return VB_WAY_OPEN;
	}
	why = cross(w, l, from, from);
	for (unsigned hops = 0; why == VB_WAY_OPEN && w->end->node->sw; hops++) {
		struct vb_fabric_port *out = vb_fabric_lft_port(w->end->node, l->dlid);

		if (hops == VB_FABRIC_HOPS_MOST)
			return VB_WAY_LOOP;
		if (!out || !out->num) /* port 0 of a switch has no queue pairs for data */
			return VB_WAY_NO_ROUTE;
		why = cross(w, l, w->end, out);
	}
	if (why != VB_WAY_OPEN)
		return why;
	if (!vb_fabric_is_lid_of(w->end, l->dlid))
		return VB_WAY_NOT_THERE;
	return l->pkey && !vb_fabric_pkey_matches(w->end, l->pkey) ? VB_WAY_BAD_PKEY : VB_WAY_OPEN;
}

/* By its prefix or the link-local one. */
bool vb_fabric_has_gid(const struct vb_fabric_port *p, const uint8_t gid[16])
{
	struct vb_reader r = vb_reader(gid, 16);
	uint64_t prefix = vb_get64(&r), guid = vb_get64(&r);

	if (prefix != p->info.gid_prefix && prefix != VB_FABRIC_LINK_LOCAL)
		return false;
	for (unsigned i = 1; guid && p->guids && i < VB_FABRIC_GUIDS; i++)
		if (p->guids[i] == guid)
			return true;
	return guid == p->guid;
}

/* The P_Key with which a port answers this one: an entry of its table. */
static uint16_t answering_pkey(const struct vb_fabric_port *p, uint16_t pkey)
{
	for (unsigned i = 0; pkey && i < vb_fabric_pkeys(p); i++) {
		uint16_t own = vb_fabric_pkey(p, i);

		if ((own & 0x7fff) == (pkey & 0x7fff) && ((own | pkey) & 0x8000))
			return own;
	}
	return pkey;
}

enum vb_fabric_why vb_fabric_find_way(struct vb_fabric_port *from, const struct vb_fabric_way_key *k,
                                      struct vb_fabric_way way[2])
{
	const struct leg there = {.dlid = k->dlid, .pkey = k->pkey, .sl = k->sl};
	struct leg back = {.dlid = from->info.lid | (k->path_bits & ((1u << from->info.lmc) - 1)),
	                   .pkey = k->pkey,
	                   .sl = k->sl,
	                   .there = &way[0]};
	enum vb_fabric_why why = one_way(from, &there, &way[0]);

	way[1] = (struct vb_fabric_way){0};
	if (why == VB_WAY_OPEN && k->grh && !vb_fabric_has_gid(way[0].end, k->dgid))
		return VB_WAY_BAD_GID;
	if (why != VB_WAY_OPEN || way[0].end == from || (!k->both && !from->node->fabric->away))
		return why;
	if (!k->both) { /* packets that come back through another process cannot be met in shared memory */
		why = one_way(way[0].end, &back, &way[1]);
		way[1].ports = 0;
		return why == VB_WAY_ELSEWHERE ? why : VB_WAY_OPEN;
	}
	back.pkey = answering_pkey(way[0].end, k->pkey);
	why = one_way(way[0].end, &back, &way[1]);
	return why == VB_WAY_OPEN && way[1].end != from ? VB_WAY_NOT_THERE : why;
}

void vb_fabric_count(struct vb_fabric_port *const *port, unsigned ports, uint64_t packets, uint64_t bytes)
{
	for (unsigned i = 0; i < ports; i++) {
		struct vb_port_counters *c = &port[i]->counters;

		if (i & 1) {
			if (packets)
				vb_fabric_data_came(port[i]);
			c->rcv_pkts += packets;
			c->unicast_rcv += packets;
			c->rcv_data += bytes / 4;
		} else {
			c->xmit_pkts += packets;
			c->unicast_xmit += packets;
			c->xmit_data += bytes / 4;
		}
	}
}
