// topology.c - reads a fabric from the output format of ibnetdiscover
// follows: ibnetdiscover(8), the output format
// SPDX-License-Identifier: MIT
#include "fabric/topology.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#define LINE_MOST 1024
#define PORTS_MOST 254
#define CA_GUIDS 0x100000 /* of nodes without one */
#define SWITCH_GUIDS 0x200000

struct node {
	unsigned line;
	enum vb_node_type type;
	uint8_t ports;
	char id[VB_FABRIC_ID], desc[VB_SMP_DATA + 1];
	uint64_t guid, system_guid;
	uint32_t vendor_id;
	uint16_t device_id;
	struct vb_fabric_node *made;
};

struct cable {
	unsigned line;
	size_t node;
	uint8_t port, peer_port;
	char peer[VB_FABRIC_ID];
	uint64_t guid; /* of the port; 0: not said */
	char rate[12]; /* "": not said */
	uint64_t key;  /* of this end: for finding an end */
};

struct reader {
	struct vb_fabric *f;
	struct vb_topology_error *e;
	unsigned line;
	struct node *nodes;
	size_t node_count, node_room;
	struct cable *cables;
	size_t cable_count, cable_room;
	struct node next; /* what the lines before a node said about it */
	uint64_t guids[2];
};

__attribute__((format(printf, 3, 4))) static bool wrong(struct reader *r, unsigned line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->e->reason, sizeof(r->e->reason), fmt, ap);
	va_end(ap);
	r->e->line = line;
	return false;
}

static bool room_for(void **items, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return true;
	size_t more = *room ? 2 * *room : 64;
	void *grown = realloc(*items, more * size);

	if (!grown)
		return false;
	*items = grown;
	*room = more;
	return true;
}

static char *skip_space(char *s)
{
	while (*s == ' ' || *s == '\t')
		s++;
	return s;
}

/* "id" of at most size - 1 characters. Returns what follows it, or NULL. */
static char *take_quoted(char *s, char *out, size_t size)
{
	s = skip_space(s);
	char *end = *s == '"' ? strchr(s + 1, '"') : NULL;

	if (!end || (size_t)(end - s - 1) >= size || end == s + 1)
		return NULL;
	memcpy(out, s + 1, (size_t)(end - s - 1));
	out[end - s - 1] = '\0';
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ')
			return NULL;
	return end + 1;
}

/* [NUMBER]. Returns what follows it, or NULL. */
static char *take_port(char *s, unsigned long *num)
{
	char *end;

	if (*s != '[' || !isdigit((unsigned char)s[1]))
		return NULL;
	*num = strtoul(s + 1, &end, 10);
	return *end == ']' ? end + 1 : NULL;
}

/* --- lines --- */

static bool read_setting(struct reader *r, const char *line)
{
	const char *value = strchr(line, '=');
	char *end;

	if (!value)
		return wrong(r, r->line, "not a node, a port, NAME=VALUE or a comment");
	uint64_t v = strtoull(value + 1, &end, 0);
	if (end == value + 1)
		return wrong(r, r->line, "no number after =");
	if (!strncmp(line, "vendid", 6)) {
		if (v > 0xffffff)
			return wrong(r, r->line, "a vendor id has 24 bits");
		r->next.vendor_id = (uint32_t)v;
	} else if (!strncmp(line, "devid", 5)) {
		if (v > 0xffff)
			return wrong(r, r->line, "a device id has 16 bits");
		r->next.device_id = (uint16_t)v;
	} else if (!strncmp(line, "sysimgguid", 10)) {
		r->next.system_guid = v;
	} else if (!strncmp(line, "switchguid", 10) || !strncmp(line, "caguid", 6) || !strncmp(line, "rtguid", 6)) {
		if (!v)
			return wrong(r, r->line, "a GUID is not 0");
		r->next.guid = v;
	} else {
		return wrong(r, r->line,
		             "no such setting; there are vendid, devid, sysimgguid, switchguid, caguid, rtguid");
	}
	return true;
}

/* A node without a GUID has the one of its id, "S-0002c902…", or the next free one. */
static void choose_guid(struct reader *r, struct node *n)
{
	bool sw = n->type == VB_NODE_SWITCH;
	char *end = NULL;

	if (n->guid)
		return;
	if (n->id[0] && n->id[1] == '-')
		n->guid = strtoull(n->id + 2, &end, 16);
	if (n->guid && !*end)
		return;
	n->guid = r->guids[sw];
	r->guids[sw] += sw ? 1 : n->ports + 1u;
}

static bool read_node(struct reader *r, char *line, enum vb_node_type type)
{
	struct node *n = &r->next;
	char *end, *s = line;

	while (isalpha((unsigned char)*s))
		s++;
	s = skip_space(s);
	unsigned long ports = strtoul(s, &end, 10);
	if (end == s)
		return wrong(r, r->line, "the number of ports is missing");
	if (ports < 1 || ports > PORTS_MOST)
		return wrong(r, r->line, "%lu ports; 1 to %d are possible", ports, PORTS_MOST);
	s = take_quoted(end, n->id, sizeof(n->id));
	if (!s)
		return wrong(r, r->line, "the name of the node is missing, or too long");
	s = strchr(s, '#');
	if (!s || !take_quoted(s + 1, n->desc, sizeof(n->desc)))
		memcpy(n->desc, n->id, sizeof(n->id));
	n->type = type;
	n->ports = (uint8_t)ports;
	n->line = r->line;
	choose_guid(r, n);
	if (!n->system_guid)
		n->system_guid = n->guid;
	if (r->node_count + r->f->count >= VB_FABRIC_NODES_MOST)
		return wrong(r, r->line, "more than %d nodes", VB_FABRIC_NODES_MOST);
	if (!room_for((void **)&r->nodes, r->node_count, &r->node_room, sizeof(*r->nodes)))
		return wrong(r, r->line, "no memory");
	r->nodes[r->node_count++] = *n;
	memset(n, 0, sizeof(*n));
	return true;
}

/* The last word of the comment, if it is a rate: lid 4 lmc 0 "name" lid 5 4xQDR */
static void read_rate(char *s, struct cable *c)
{
	struct vb_port_info none = {0};
	char *last = s ? s + strlen(s) : NULL;

	while (last && last > s && isspace((unsigned char)last[-1]))
		*--last = '\0';
	while (last && last > s && isalnum((unsigned char)last[-1]))
		last--;
	if (last && strlen(last) < sizeof(c->rate) && vb_topology_rate(&none, last))
		snprintf(c->rate, sizeof(c->rate), "%s", last);
}

/* [PORT](GUID) "PEER"[PORT](GUID) # … */
static bool read_cable(struct reader *r, char *line)
{
	struct cable c = {.line = r->line};
	unsigned long port, peer_port = 1;

	if (!r->node_count)
		return wrong(r, r->line, "a port before the first node");
	struct node *n = &r->nodes[r->node_count - 1];
	char *s = take_port(line, &port);
	if (!s)
		return wrong(r, r->line, "the number of the port is not right");
	if (port < 1 || port > n->ports)
		return wrong(r, r->line, "port %lu; \"%s\" has ports 1 to %u", port, n->id, n->ports);
	if (*s == '(') {
		c.guid = strtoull(s + 1, &s, 16);
		if (*s++ != ')')
			return wrong(r, r->line, "the GUID of the port is not right");
	}
	s = take_quoted(s, c.peer, sizeof(c.peer));
	if (!s)
		return wrong(r, r->line, "the other end of the cable is missing");
	if (*s == '[') {
		s = take_port(s, &peer_port);
		if (!s || peer_port < 1 || peer_port > PORTS_MOST)
			return wrong(r, r->line, "the number of the other port is not right");
	}
	read_rate(strchr(s, '#'), &c);
	c.node = r->node_count - 1;
	c.port = (uint8_t)port;
	c.peer_port = (uint8_t)peer_port;
	if (!room_for((void **)&r->cables, r->cable_count, &r->cable_room, sizeof(*r->cables)))
		return wrong(r, r->line, "no memory");
	r->cables[r->cable_count++] = c;
	return true;
}

static bool read_line(struct reader *r, char *line)
{
	static const struct {
		const char *word;
		enum vb_node_type type;
	} words[] = {{"Switch", VB_NODE_SWITCH}, {"Ca", VB_NODE_CA}, {"Hca", VB_NODE_CA}, {"Rt", VB_NODE_ROUTER}};

	line = skip_space(line);
	if (!*line || *line == '#')
		return true;
	if (*line == '[')
		return read_cable(r, line);
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		size_t n = strlen(words[i].word);

		if (!strncmp(line, words[i].word, n) && (line[n] == ' ' || line[n] == '\t'))
			return read_node(r, line, words[i].type);
	}
	return read_setting(r, line);
}

static bool read_lines(struct reader *r, const char *text, size_t len)
{
	char line[LINE_MOST];

	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;

		r->line++;
		if (n >= sizeof(line))
			return wrong(r, r->line, "a line of more than %d characters", LINE_MOST - 1);
		memcpy(line, text + at, n);
		line[n] = '\0';
		if (strlen(line) != n)
			return wrong(r, r->line, "a zero byte");
		if (n && line[n - 1] == '\r')
			line[n - 1] = '\0';
		if (!read_line(r, line))
			return false;
		at += n + 1;
	}
	return true;
}

/* --- the whole --- */

static int by_id(const void *a, const void *b)
{
	const struct node *x = *(const struct node *const *)a, *y = *(const struct node *const *)b;
	int c = strcmp(x->id, y->id);

	return c ? c : (x->line > y->line) - (x->line < y->line);
}

static int by_guid(const void *a, const void *b)
{
	const struct node *x = *(const struct node *const *)a, *y = *(const struct node *const *)b;

	if (x->guid != y->guid)
		return x->guid < y->guid ? -1 : 1;
	return (x->line > y->line) - (x->line < y->line);
}

/* No name and no GUID twice: neither in the text nor in the fabric. sorted: by name afterwards. */
static bool nodes_differ(struct reader *r, struct node **sorted)
{
	qsort(sorted, r->node_count, sizeof(struct node *), by_guid);
	for (size_t i = 0; i < r->node_count; i++) {
		if (i && sorted[i]->guid == sorted[i - 1]->guid)
			return wrong(r, sorted[i]->line, "the GUID 0x%" PRIx64 " is that of line %u too",
			             sorted[i]->guid, sorted[i - 1]->line);
		if (r->f->count && vb_fabric_by_guid(r->f, sorted[i]->guid))
			return wrong(r, sorted[i]->line, "the fabric has the GUID 0x%" PRIx64 " already",
			             sorted[i]->guid);
	}
	qsort(sorted, r->node_count, sizeof(struct node *), by_id);
	for (size_t i = 0; i < r->node_count; i++) {
		if (i && !strcmp(sorted[i]->id, sorted[i - 1]->id))
			return wrong(r, sorted[i]->line, "\"%s\" is in line %u already", sorted[i]->id,
			             sorted[i - 1]->line);
		if (vb_fabric_by_id(r->f, sorted[i]->id))
			return wrong(r, sorted[i]->line, "the fabric has \"%s\" already", sorted[i]->id);
	}
	return true;
}

static struct node *node_named(const struct reader *r, struct node *const *sorted, const char *id)
{
	size_t low = 0, high = r->node_count;

	while (low < high) {
		size_t mid = (low + high) / 2;
		int c = strcmp(sorted[mid]->id, id);

		if (!c)
			return sorted[mid];
		if (c < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

static uint64_t end_key(const struct reader *r, const struct node *n, uint8_t port)
{
	return (uint64_t)(n - r->nodes) << 8 | port;
}

static int by_key(const void *a, const void *b)
{
	const struct cable *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->line > y->line) - (x->line < y->line);
}

static struct cable *cable_at(const struct reader *r, uint64_t key)
{
	struct cable want = {.key = key, .line = 0};
	size_t low = 0, high = r->cable_count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (by_key(&r->cables[mid], &want) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < r->cable_count && r->cables[low].key == key ? &r->cables[low] : NULL;
}

static bool fits_old_node(struct reader *r, const struct cable *c)
{
	struct vb_fabric_node *old = vb_fabric_by_id(r->f, c->peer);
	struct vb_fabric_port *p = old && c->peer_port ? vb_fabric_port(old, c->peer_port) : NULL;

	if (!old)
		return wrong(r, c->line, "the cable ends nowhere: there is no \"%s\"", c->peer);
	if (old->away)
		return wrong(r, c->line, "another process has \"%s\"", c->peer);
	if (!p)
		return wrong(r, c->line, "\"%s\" has ports 1 to %u", c->peer, old->ports);
	return !p->peer || wrong(r, c->line, "port %u of \"%s\" has a cable already", c->peer_port, c->peer);
}

static bool cable_fits(struct reader *r, struct node *const *sorted, const struct cable *c)
{
	const struct node *n = &r->nodes[c->node], *peer = node_named(r, sorted, c->peer);

	if (!peer)
		return fits_old_node(r, c);
	if (c->peer_port > peer->ports)
		return wrong(r, c->line, "\"%s\" has ports 1 to %u", c->peer, peer->ports);
	if (peer == n && c->peer_port == c->port)
		return wrong(r, c->line, "the cable ends where it begins");
	const struct cable *back = cable_at(r, end_key(r, peer, c->peer_port));
	if (back && (strcmp(back->peer, n->id) != 0 || back->peer_port != c->port))
		return wrong(r, c->line, "line %u says that port %u of \"%s\" leads to port %u of \"%s\"", back->line,
		             c->peer_port, c->peer, back->peer_port, back->peer);
	return true;
}

/* Two cables may claim one port that has no line of its own. */
static bool end_is_free(struct reader *r, const struct cable *c, struct vb_fabric_port *a, struct vb_fabric_port *b)
{
	if (!a->peer && !b->peer)
		return true;
	return (a->peer == b && b->peer == a) ||
	       wrong(r, c->line, "port %u of \"%s\" has two cables", c->peer_port, c->peer);
}

static bool cables_fit(struct reader *r, struct node *const *sorted)
{
	for (size_t i = 0; i < r->cable_count; i++)
		r->cables[i].key = end_key(r, &r->nodes[r->cables[i].node], r->cables[i].port);
	if (r->cable_count)
		qsort(r->cables, r->cable_count, sizeof(*r->cables), by_key);
	for (size_t i = 1; i < r->cable_count; i++)
		if (r->cables[i].key == r->cables[i - 1].key)
			return wrong(r, r->cables[i].line, "port %u has a cable in line %u already", r->cables[i].port,
			             r->cables[i - 1].line);
	for (size_t i = 0; i < r->cable_count; i++)
		if (!cable_fits(r, sorted, &r->cables[i]))
			return false;
	return true;
}

static bool make_nodes(struct reader *r)
{
	for (size_t i = 0; i < r->node_count; i++) {
		struct node *n = &r->nodes[i];

		n->made = vb_fabric_add(r->f, n->type, n->id, n->ports, n->guid);
		if (!n->made)
			return wrong(r, n->line, "no memory");
		memcpy(n->made->desc, n->desc, sizeof(n->desc));
		n->made->system_guid = n->system_guid;
		n->made->vendor_id = n->vendor_id;
		n->made->device_id = n->device_id;
	}
	return true;
}

static bool make_cables(struct reader *r, struct node *const *sorted)
{
	for (size_t i = 0; i < r->cable_count; i++) {
		const struct cable *c = &r->cables[i];
		const struct node *peer = node_named(r, sorted, c->peer);
		struct vb_fabric_node *end = peer ? peer->made : vb_fabric_by_id(r->f, c->peer);
		struct vb_fabric_port *a = &r->nodes[c->node].made->port[c->port], *b = &end->port[c->peer_port];

		if (!end_is_free(r, c, a, b))
			return false;
		if (!a->peer)
			vb_fabric_connect(a, b);
		if (c->guid && r->nodes[c->node].type != VB_NODE_SWITCH)
			a->guid = c->guid;
		if (c->rate[0]) {
			vb_topology_rate(&a->info, c->rate);
			vb_topology_rate(&b->info, c->rate);
		}
	}
	return true;
}

static bool check_and_make(struct reader *r, struct node **sorted)
{
	size_t before = r->f->count;

	for (size_t i = 0; i < r->node_count; i++)
		sorted[i] = &r->nodes[i];
	if (!nodes_differ(r, sorted) || !cables_fit(r, sorted))
		return false;
	if (make_nodes(r) && make_cables(r, sorted))
		return true;
	vb_fabric_remove_after(r->f, before);
	return false;
}

bool vb_topology_read(struct vb_fabric *f, const char *text, size_t len, struct vb_topology_error *e)
{
	struct reader r = {.f = f, .e = e, .guids = {CA_GUIDS + f->count * 256, SWITCH_GUIDS + f->count * 256}};
	bool right = read_lines(&r, text, len);

	if (right && !r.node_count)
		right = wrong(&r, 0, "no node in it");
	if (right) {
		struct node **sorted = calloc(r.node_count, sizeof(*sorted));

		right = sorted ? check_and_make(&r, sorted) : wrong(&r, 0, "no memory");
		free(sorted);
	}
	free(r.nodes);
	free(r.cables);
	return right;
}
