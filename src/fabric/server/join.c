// join.c - programs that use a port by its verbs device: what they are told of the port, and of the ways from it
// follows: IBA volume 1, 14.2.5.6 (PortInfo), 18.2.4.3 (forwarding), 10.5 (multicast)
// SPDX-License-Identifier: MIT
#include <stdlib.h>

#include "fabric/server/server.h"
#include "frame/cursor.h"

/* A subnet manager changes many tables in a row: programs hear of all within this time (ns), and of no more than one
 * change in it. */
#define TELL_AFTER 1000000u
/* At least what a look at one way takes (ns). It leaves time for other work if a manager changes much and programs have many
 * ways. */
#define LOOK_TIME 1000u

struct way {
	struct vb_fabric_way_key key;
	uint32_t tag;
	struct vb_fabric_way_is told;
	unsigned ports[2];            /* there, and back: of when it was open last */
	struct vb_fabric_port **port; /* those of both, one after the other */
	struct traffic sum, counted;  /* what it has carried; how much of that its ports have counted */
};

struct joined {
	struct server *server;
	struct joined *next, **at;           /* of the server */
	struct joined *next_here, **at_here; /* of the port */
	struct client *client;
	struct vb_fabric_port *port;
	struct vb_fabric_port_is told;
	bool untold;      /* something has changed while the client was behind */
	struct way *ways; /* in no order; by_tag has their places + 1 */
	uint32_t count, room;
	struct groups groups;
	const struct vb_ib_traffic_map *sent; /* NULL: it tells nothing */
	uint32_t by_tag[VB_FABRIC_WAYS];
};

static void name_port(const struct server *s, const struct vb_fabric_port *p, uint8_t address[16])
{
	struct vb_writer w = vb_writer(address, 16);

	vb_put_bytes(&w, s->address, sizeof(s->address));
	vb_put64(&w, p->guid);
}

/* Extended speeds: one bit each for 14, 25, 50 and 100 Gb/s a lane. */
static uint8_t speed_of(const struct vb_port_info *i)
{
	return i->ext_active ? (uint8_t)(i->ext_active << 4) : i->speed_active;
}

void join_show_port(const struct server *s, const struct vb_fabric_port *p, struct vb_fabric_port_is *is)
{
	const struct vb_port_info *i = &p->info;

	*is = (struct vb_fabric_port_is){
	        .verb = VB_FABRIC_PORT_IS,
	        .flags = s->fabric->away || s->takes_guests ? VB_FABRIC_PORT_PARTS : 0,
	        .port = {.node_guid = p->node->guid,
	                 .system_guid = p->node->system_guid,
	                 .prefix = i->gid_prefix,
	                 .guids = {p->guid},
	                 .cap_mask = i->cap_mask,
	                 .vendor_id = p->node->vendor_id,
	                 .device_id = p->node->device_id,
	                 .reregisters = p->reregisters,
	                 .lid = i->lid,
	                 .sm_lid = i->sm_lid,
	                 .bad_pkeys = i->pkey_violations,
	                 .bad_qkeys = i->qkey_violations,
	                 .state = i->state,
	                 .phys = i->phys,
	                 .lmc = i->lmc,
	                 .sm_sl = i->sm_sl,
	                 .mtu = i->neighbor_mtu,
	                 .mtu_cap = i->mtu_cap,
	                 .vls = i->vl_cap,
	                 .subnet_timeout = i->subnet_timeout,
	                 .width = i->width_active,
	                 .speed = speed_of(i)},
	};
	for (unsigned k = 1; p->guids && k < VB_IB_GUIDS; k++)
		is->port.guids[k] = p->guids[k];
	for (unsigned k = 0; k < VB_IB_PKEYS; k++)
		is->port.pkey[k] = vb_fabric_pkey(p, k);
	name_port(s, p, is->port.address);
}

/* --- ways --- */

static struct way *way_of(struct joined *j, uint32_t tag)
{
	return tag < VB_FABRIC_WAYS && j->by_tag[tag] ? &j->ways[j->by_tag[tag] - 1] : NULL;
}

/* Those of its senders. */
static void add_senders(struct joined *j)
{
	uint32_t senders = traffic_senders(j->sent), tag;

	for (uint32_t i = 0; i < senders; i++) {
		struct traffic t;
		struct way *w = traffic_of_sender(j->sent, i, &tag, &t) ? way_of(j, tag) : NULL;

		for (int k = 0; w && k < 2; k++) {
			w->sum.packets[k] += t.packets[k];
			w->sum.bytes[k] += t.bytes[k];
		}
	}
}

static uint64_t grown(uint64_t now, uint64_t *counted)
{
	uint64_t by = now > *counted ? now - *counted : 0; /* less: a sender was about to leave its way */

	*counted += by;
	return by;
}

static void count_way(struct way *w)
{
	for (int k = 0; k < 2; k++) {
		uint64_t packets = grown(w->sum.packets[k], &w->counted.packets[k]),
		         bytes = grown(w->sum.bytes[k], &w->counted.bytes[k]);

		if (packets | bytes)
			vb_fabric_count(w->port + (k ? w->ports[0] : 0), w->ports[k], packets, bytes);
	}
}

/* What the program has sent until now. */
static void count_all(struct joined *j)
{
	if (!j->sent)
		return;
	for (uint32_t i = 0; i < j->count; i++)
		traffic_of_way(j->sent, j->ways[i].tag, &j->ways[i].sum);
	add_senders(j);
	for (uint32_t i = 0; i < j->count; i++)
		count_way(&j->ways[i]);
}

void joined_count(void *own)
{
	for (struct joined *j = ((struct server *)own)->joined; j; j = j->next)
		count_all(j);
}

bool join_counts(struct joined *j, int fd)
{
	if (j->sent)
		return false;
	j->sent = traffic_open(fd);
	return j->sent;
}

static void forget_ports(struct way *w)
{
	free(w->port);
	w->port = NULL;
	w->ports[0] = w->ports[1] = 0;
}

/* The answer of now. Without memory for its ports the way is open, and its packets are not counted. What a program sends before it
 * hears that its way is closed has passed the old ports. */
static void look(struct joined *j, struct way *w, struct vb_fabric_way_is *is)
{
	struct vb_fabric_way found[2];
	const struct vb_port_info *own = &j->port->info;

	*is = (struct vb_fabric_way_is){.verb = VB_FABRIC_WAY_IS, .tag = w->tag};
	is->why = vb_fabric_find_way(j->port, &w->key, found);
	is->slid = own->lid | (w->key.path_bits & ((1u << own->lmc) - 1));
	if (is->why != VB_WAY_OPEN)
		return;
	forget_ports(w);
	is->mtu = found[0].mtu;
	is->path_bits = (uint8_t)(w->key.dlid & ((1u << found[0].end->info.lmc) - 1));
	name_port(j->server, found[0].end, is->address);
	w->port = malloc((found[0].ports + found[1].ports + 1) * sizeof(*w->port));
	if (!w->port)
		return;
	memcpy(w->port, found[0].port, found[0].ports * sizeof(*w->port));
	memcpy(w->port + found[0].ports, found[1].port, found[1].ports * sizeof(*w->port));
	w->ports[0] = found[0].ports;
	w->ports[1] = found[1].ports;
}

static struct way *add_way(struct joined *j, uint32_t tag)
{
	if (j->count == j->room) {
		uint32_t room = j->room ? 2 * j->room : 16;
		struct way *more = realloc(j->ways, room * sizeof(*more));

		if (!more)
			return NULL;
		j->ways = more;
		j->room = room;
	}
	struct way *w = &j->ways[j->count++];
	*w = (struct way){.tag = tag};
	if (j->sent) /* it may be known from before, and was counted then */
		traffic_of_way(j->sent, tag, &w->counted);
	j->by_tag[tag] = j->count;
	return w;
}

static void take_way(struct joined *j, const struct vb_fabric_way_ask *ask)
{
	struct way *w = way_of(j, ask->tag);

	if (w)
		count_all(j);
	else if (ask->tag < VB_FABRIC_WAYS)
		w = add_way(j, ask->tag);
	if (!w) {
		struct vb_fabric_way_is is = {.verb = VB_FABRIC_WAY_IS, .tag = ask->tag, .why = VB_WAY_TOO_MANY};

		client_post(j->client, &is, sizeof(is));
		return;
	}
	w->key = (struct vb_fabric_way_key){.dlid = ask->dlid,
	                                    .pkey = ask->pkey,
	                                    .path_bits = ask->path_bits,
	                                    .sl = ask->sl & 15,
	                                    .grh = ask->flags & VB_FABRIC_WAY_GRH,
	                                    .both = ask->flags & VB_FABRIC_WAY_BOTH};
	memcpy(w->key.dgid, ask->dgid, sizeof(w->key.dgid));
	look(j, w, &w->told);
	client_post(j->client, &w->told, sizeof(w->told));
}

static void forget_way(struct joined *j, uint32_t tag)
{
	struct way *w = way_of(j, tag);

	if (!w)
		return;
	if (j->sent) { /* it has no senders any more */
		traffic_of_way(j->sent, tag, &w->sum);
		count_way(w);
	}
	forget_ports(w);
	j->by_tag[tag] = 0;
	if (w != &j->ways[--j->count]) {
		*w = j->ways[j->count];
		j->by_tag[w->tag] = (uint32_t)(w - j->ways) + 1;
	}
}

/* --- multicast --- */

static void take_group(struct joined *j, const struct vb_fabric_group *ask)
{
	struct vb_fabric_group_is is = {.verb = VB_FABRIC_GROUP_IS, .tag = ask->tag};

	if (ask->verb == VB_FABRIC_ATTACH_GROUP)
		is.error = groups_attach(&j->groups, ask->mlid, ask->mgid);
	else
		is.error = groups_detach(&j->groups, ask->mlid, ask->mgid);
	client_post(j->client, &is, sizeof(is));
}

/* The size of the packet that it would be: 5.2. */
static uint32_t packet_bytes(const struct vb_fabric_data *m)
{
	enum { HEADERS = 8 + 40 + 12 + 8, IMM = 4, ICRC = 4 }; /* LRH, GRH, BTH, DETH */

	return HEADERS + (m->flags & VB_FABRIC_DATA_IMM ? IMM : 0) + ((m->length + 3) & ~3u) + ICRC;
}

static void take_cast(struct joined *j, const struct vb_fabric_data *from, size_t len)
{
	struct {
		struct vb_fabric_data head;
		uint8_t payload[VB_FABRIC_PAYLOAD];
	} m;
	const struct vb_port_info *own = &j->port->info;

	memcpy(&m, from, len);
	m.head.verb = VB_FABRIC_DATA;
	m.head.slid = own->lid | (m.head.path_bits & ((1u << own->lmc) - 1));
	struct vb_fabric_datagram d = {.slid = m.head.slid,
	                               .dlid = m.head.dlid,
	                               .pkey = m.head.pkey,
	                               .sl = m.head.sl & 15,
	                               .src_qpn = m.head.src_qpn,
	                               .length = m.head.length,
	                               .bytes = packet_bytes(&m.head),
	                               .grh = m.head.grh,
	                               .own = &m};

	if (vb_ib_is_group_lid(d.dlid))
		vb_fabric_multicast(j->port, &d);
}

static bool receives(const struct joined *j, const struct vb_fabric_datagram *d)
{
	return groups_have(&j->groups, d->dlid, d->grh + 24);
}

bool joined_are_attached(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	const struct joined *j = p->joined;

	while (j && !receives(j, d))
		j = j->next_here;
	return j;
}

void joined_deliver(void *own, struct vb_fabric_port *p, const struct vb_fabric_datagram *d)
{
	for (const struct joined *j = p->joined; j; j = j->next_here)
		if (receives(j, d))
			client_post_datagram(j->client, d->own, sizeof(struct vb_fabric_data) + d->length);
}

/* --- the connection --- */

struct joined *join_open(struct server *s, struct vb_fabric_port *p, struct client *c)
{
	struct joined *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->server = s;
	j->port = p;
	j->client = c;
	j->next = s->joined;
	j->at = &s->joined;
	if (j->next)
		j->next->at = &j->next;
	j->next_here = p->joined;
	j->at_here = (struct joined **)&p->joined;
	if (j->next_here)
		j->next_here->at_here = &j->next_here;
	s->joined = p->joined = j;
	join_show_port(s, p, &j->told);
	client_post(c, &j->told, sizeof(j->told));
	return j;
}

void join_close(struct joined *j)
{
	count_all(j);
	traffic_close(j->sent);
	*j->at = j->next;
	if (j->next)
		j->next->at = j->at;
	*j->at_here = j->next_here;
	if (j->next_here)
		j->next_here->at_here = j->at_here;
	for (uint32_t i = 0; i < j->count; i++)
		free(j->ways[i].port);
	free(j->ways);
	groups_free(&j->groups);
	free(j);
}

bool join_take(struct joined *j, const void *bytes, size_t n)
{
	const struct vb_fabric_way_ask *ask = bytes;
	const struct vb_fabric_data *d = bytes;

	if (n < sizeof(ask->verb))
		return false;
	if ((ask->verb == VB_FABRIC_ATTACH_GROUP || ask->verb == VB_FABRIC_DETACH_GROUP) &&
	    n == sizeof(struct vb_fabric_group)) {
		take_group(j, bytes);
		return true;
	}
	if (ask->verb == VB_FABRIC_DATAGRAM && n >= sizeof(*d) && d->length <= VB_FABRIC_PAYLOAD &&
	    n == sizeof(*d) + d->length) {
		take_cast(j, d, n);
		return true;
	}
	if (ask->verb == VB_FABRIC_WAY && n == sizeof(*ask)) {
		take_way(j, ask);
		return true;
	}
	if (ask->verb == VB_FABRIC_FORGET && n == sizeof(*ask)) {
		forget_way(j, ask->tag);
		return true;
	}
	if (ask->verb == VB_FABRIC_TRAFFIC && n == sizeof(struct vb_fabric_counts)) {
		count_all(j);
		return true;
	}
	return false;
}

/* --- changes --- */

/* A program that does not read is told the last state alone, as soon as it reads again. */
static void tell(struct joined *j)
{
	struct vb_fabric_port_is now;

	j->untold = client_is_behind(j->client);
	if (j->untold)
		return;
	count_all(j);
	join_show_port(j->server, j->port, &now);
	if (memcmp(&now, &j->told, sizeof(now)) != 0) {
		j->told = now;
		client_post(j->client, &now, sizeof(now));
	}
	for (uint32_t i = 0; i < j->count && !j->untold; i++) {
		struct way *w = &j->ways[i];
		struct vb_fabric_way_is is;

		look(j, w, &is);
		if (!memcmp(&is, &w->told, sizeof(is)))
			continue;
		w->told = is;
		client_post(j->client, &is, sizeof(is));
		j->untold = client_is_behind(j->client);
	}
}

void join_caught_up(struct joined *j)
{
	if (j->untold)
		tell(j);
}

void joined_tell(struct server *s)
{
	if (s->fabric->changes == s->changes_told || !s->joined) {
		s->changes_told = s->fabric->changes;
		s->tell_at = 0;
		return;
	}
	if (!s->tell_at)
		s->tell_at = s->now + TELL_AFTER + s->ways_told * LOOK_TIME;
	if (s->now < s->tell_at)
		return;
	s->changes_told = s->fabric->changes;
	s->tell_at = 0;
	s->ways_told = 0;
	for (struct joined *j = s->joined; j; j = j->next) {
		tell(j);
		s->ways_told += j->count;
	}
}

uint64_t joined_deadline(const struct server *s)
{
	return s->tell_at ? s->tell_at : UINT64_MAX;
}
