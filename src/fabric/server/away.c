// away.c - which nodes of the topology are in other processes: --peer and --own
// follows: man/verbena-fabric.8; fnmatch(3)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "fabric/server/peer.h"
#include "fabric/topology.h"

/* HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT. False: it is none of these. */
static bool split_host(const char *text, size_t len, char *host, size_t size, char port[8])
{
	const char *end = text + len, *colon = memchr(text, ':', len), *from = text, *to = colon ? colon : end;

	if (*text == '[') {
		from = text + 1;
		to = memchr(text, ']', len);
		colon = to && to + 1 < end && to[1] == ':' ? to + 1 : NULL;
		if (!to || (to + 1 < end && !colon))
			return false;
	}
	size_t n = colon ? (size_t)(end - colon - 1) : 0;

	if (to == from || (size_t)(to - from) >= size || n >= 8 || (colon && !n))
		return false;
	snprintf(host, size, "%.*s", (int)(to - from), from);
	snprintf(port, 8, "%.*s", n ? (int)n : (int)sizeof(PEER_PORT) - 1, n ? colon + 1 : PEER_PORT);
	return true;
}

bool peer_add(struct server *s, const char *text)
{
	const char *equals = strchr(text, '=');
	struct peer *p = equals && equals[1] ? calloc(1, sizeof(*p)) : NULL, **at = &s->peers;

	if (!p || !split_host(text, (size_t)(equals - text), p->host, sizeof(p->host), p->port)) {
		free(p);
		return false;
	}
	p->server = s;
	p->fd = -1;
	p->nodes = equals + 1;
	while (*at)
		at = &(*at)->next;
	*at = p;
	return true;
}

/* [::] means all addresses, those of IPv4 too: a peer of IPv4 gets a socket of that family. */
bool peers_listen(struct peer_settings *o, const char *text)
{
	struct in6_addr address;

	if (!split_host(text, strlen(text), o->address_room, sizeof(o->address_room), o->port))
		return false;
	bool all = inet_pton(AF_INET6, o->address_room, &address) == 1 && IN6_IS_ADDR_UNSPECIFIED(&address);

	o->address = all ? NULL : o->address_room;
	return true;
}

/* --- patterns --- */

static bool names(const struct vb_fabric_node *n, const char *pattern)
{
	char word[VB_SMP_DATA + 1];

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(n->desc, " "), n->desc);
	return !fnmatch(pattern, n->id, 0) || !fnmatch(pattern, n->desc, 0) || !fnmatch(pattern, word, 0);
}

/* A node that none of the patterns has named. */
static const char nobody[] = "";

/* Marks with `where` what the patterns name and nobody has marked. Returns the pattern that names nothing, or NULL. */
static const char *mark(struct vb_fabric *f, const void **marks, const char *patterns, const void *where, char *pattern,
                        size_t size)
{
	for (const char *at = patterns; *at;) {
		size_t n = strcspn(at, ",");
		bool any = false;

		snprintf(pattern, size, "%.*s", (int)n, at);
		for (size_t i = 0; i < f->count; i++) {
			if (!names(f->nodes[i], pattern))
				continue;
			any = true;
			if (marks[i] == nobody)
				marks[i] = where;
		}
		if (!any)
			return pattern;
		at += n + (at[n] == ',');
	}
	return NULL;
}

/* The switch that a channel adapter is on. */
static const struct vb_fabric_node *switch_of(const struct vb_fabric_node *n)
{
	for (unsigned k = 1; !n->sw && k <= n->ports; k++)
		if (n->port[k].peer && n->port[k].peer->node->sw)
			return n->port[k].peer->node;
	return NULL;
}

static size_t number_of_node(const struct vb_fabric *f, const struct vb_fabric_node *n)
{
	size_t i = 0;

	while (f->nodes[i] != n)
		i++;
	return i;
}

/* Adapters that nobody has named are where their switches are. */
static void give_marked(struct vb_fabric *f, const void *const *marks)
{
	const struct vb_fabric_node *last = NULL;
	const void *where = NULL;

	for (size_t i = 0; i < f->count; i++) {
		struct vb_fabric_node *n = f->nodes[i];
		const struct vb_fabric_node *sw = marks[i] == nobody ? switch_of(n) : NULL;
		const void *mine = marks[i];

		if (sw && sw != last) {
			where = marks[number_of_node(f, sw)];
			last = sw;
		}
		if (sw)
			mine = where;
		if (mine && mine != nobody)
			vb_fabric_give_away(n, (void *)mine);
	}
}

/* --- cables --- */

static bool leads_to(const struct vb_fabric_port *p, const struct peer *to)
{
	return p->peer && !p->node->away && p->peer->node->away && p->peer->node->where == to;
}

/* Our ends of the cables to a peer; ends NULL: how many they are. */
static size_t ends_to(const struct server *s, const struct peer *to, struct peer_end *ends)
{
	size_t n = 0;

	for (size_t i = 0; i < s->fabric->count; i++)
		for (unsigned k = 1; k <= s->fabric->nodes[i]->ports; k++) {
			struct vb_fabric_port *p = &s->fabric->nodes[i]->port[k];

			if (!leads_to(p, to))
				continue;
			if (ends)
				ends[n] = (struct peer_end){.port = p};
			n++;
		}
	return n;
}

const char *peer_find_ends(struct peer *p)
{
	p->end_count = ends_to(p->server, p, NULL);
	p->ends = calloc(p->end_count + 1, sizeof(*p->ends));
	if (!p->ends)
		return "no memory for cables to";
	ends_to(p->server, p, p->ends);
	return p->end_count ? NULL : "no cable leads to";
}

const char *peers_divide(struct server *s, const char *own, char *why, size_t size)
{
	const void **marks = s->peers || own ? malloc((s->fabric->count + 1) * sizeof(*marks)) : NULL;
	const char *unknown = NULL;

	if (!s->peers && !own)
		return NULL;
	if (!marks)
		return "no memory";
	for (size_t i = 0; i < s->fabric->count; i++)
		marks[i] = nobody;
	if (own)
		unknown = mark(s->fabric, marks, own, NULL, why, size);
	for (struct peer *p = s->peers; p && !unknown; p = p->next)
		unknown = mark(s->fabric, marks, p->nodes, p, why, size);
	if (!unknown)
		give_marked(s->fabric, marks);
	free(marks);
	if (unknown) {
		snprintf(why + strlen(why), size - strlen(why), ": no node has such a name");
		return why;
	}
	if (s->fabric->away == s->fabric->count)
		return "no node is left for this process";
	for (struct peer *p = s->peers; p; p = p->next) {
		const char *fault = peer_find_ends(p);

		if (!fault)
			continue;
		snprintf(why, size, "%s %.200s", fault, p->host);
		return why;
	}
	return NULL;
}

static uint64_t fabric_digest(const struct vb_fabric *f)
{
	static const struct vb_sip_key key = {{1, 1}};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return 0;
	vb_topology_print(f, out);
	fclose(out);
	uint64_t digest = vb_siphash(&key, NULL, 0, text, len);

	free(text);
	return digest;
}

/* Both processes must know the same nodes and cables. */
uint64_t peers_digest(const struct server *s)
{
	return fabric_digest(s->fabric);
}

/* As the process that has read it prints it: LIDs, which the text also has, change. */
uint64_t topology_digest(const char *text, size_t len)
{
	static const struct vb_fabric_ops none;
	struct vb_fabric *f = vb_fabric_new(&none, NULL);
	struct vb_topology_error e;
	uint64_t digest = f && vb_topology_read(f, text, len, &e) ? fabric_digest(f) : 0;

	vb_fabric_free(f);
	return digest;
}
