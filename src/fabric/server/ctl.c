// ctl.c - commands of verbena-fabric ctl: administrators' accidents
// follows: man/verbena-fabric.8
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "fabric/server/server.h"
#include "fabric/topology.h"

enum { WORDS_MOST = 32 };

__attribute__((format(printf, 3, 4))) static int fails(FILE *out, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(out, fmt, ap);
	va_end(ap);
	fputc('\n', out);
	return rc;
}

/* Words; one in quotation marks may have spaces. */
static unsigned split_words(char *text, char *words[WORDS_MOST])
{
	unsigned n = 0;

	while (n < WORDS_MOST) {
		text += strspn(text, " \t\n");
		if (!*text)
			break;
		char end = *text == '"' ? '"' : ' ';
		text += end == '"';
		words[n++] = text;
		text += end == '"' ? strcspn(text, "\"") : strcspn(text, " \t\n");
		if (*text)
			*text++ = '\0';
	}
	return n;
}

static struct vb_fabric_node *node_for(struct server *s, const char *name, FILE *out)
{
	struct vb_fabric_node *n = vb_fabric_find(s->fabric, name);

	if (!n)
		fails(out, 0, "no node, or more than one, is called \"%s\"", name);
	return n;
}

/* One that this process has. */
static struct vb_fabric_node *own_node_for(struct server *s, const char *name, FILE *out)
{
	struct vb_fabric_node *n = node_for(s, name, out);

	if (n && n->away)
		fails(out, 0, "another process has \"%s\"", n->id);
	return n && !n->away ? n : NULL;
}

static struct vb_fabric_port *port_for(struct server *s, const char *name, const char *num, FILE *out)
{
	struct vb_fabric_node *n = own_node_for(s, name, out);
	char *end;
	unsigned long k = strtoul(num, &end, 10);
	struct vb_fabric_port *p = n && !*end && end != num && k ? vb_fabric_port(n, (unsigned)k) : NULL;

	if (n && !p)
		fails(out, 0, "\"%s\" has ports 1 to %u", n->id, n->ports);
	return p;
}

/* NAME=NUMBER. False: it is another name, or none that fits. */
static bool number_of(const char *word, const char *name, unsigned long most, unsigned long *number)
{
	size_t n = strlen(name);
	char *end;

	if (strncmp(word, name, n) != 0 || word[n] < '0' || word[n] > '9')
		return false;
	*number = strtoul(word + n, &end, 10);
	return !*end && *number <= most;
}

/* Both directions, if both ends are here. */
static int set_pace(struct vb_fabric_port *p, char **w, FILE *out)
{
	enum { LATENCY_MOST = 10000000, RATE_MOST = 1000000 };
	unsigned long rate = 0, latency = 0;
	bool made = true;

	for (; *w; w++)
		if (!number_of(*w, "rate=", RATE_MOST, &rate) && !number_of(*w, "latency=", LATENCY_MOST, &latency))
			return fails(out, EINVAL,
			             "a link goes up or down, or has rate=Mb/s and latency=µs, %d and %d at most",
			             RATE_MOST, LATENCY_MOST);
	made = vb_fabric_set_pace(p, (uint32_t)rate, latency * 1000);
	if (!p->peer->node->away)
		made &= vb_fabric_set_pace(p->peer, (uint32_t)rate, latency * 1000);
	return made ? 0 : fails(out, ENOMEM, "no memory");
}

static int ctl_link(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_port *p = port_for(s, w[1], w[2], out);
	bool down = !strcmp(w[3], "down");

	if (!p)
		return ENOENT;
	if (!p->peer)
		return fails(out, ENOTCONN, "port %u of \"%s\" has no cable", p->num, p->node->id);
	if (!down && strcmp(w[3], "up") != 0)
		return set_pace(p, w + 3, out);
	if (w[4])
		return fails(out, EINVAL, "a link goes up or down alone");
	vb_fabric_cut(p, down);
	return 0;
}

static int ctl_node(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_node *n = own_node_for(s, w[1], out);
	bool off = !strcmp(w[2], "off");

	if (!n)
		return ENOENT;
	if (!off && strcmp(w[2], "on") != 0)
		return fails(out, EINVAL, "a node goes on or off");
	vb_fabric_switch_off(n, off);
	return 0;
}

static int ctl_describe(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_node *n = own_node_for(s, w[1], out);

	if (!n)
		return ENOENT;
	if (strlen(w[2]) > VB_SMP_DATA)
		return fails(out, EINVAL, "a description has at most %d bytes", VB_SMP_DATA);
	vb_fabric_describe(n, w[2]);
	return 0;
}

static uint64_t *counter_named(struct vb_port_counters *c, const char *name, size_t len)
{
#define X(field, select, ext)                                     \
	if (strlen(#field) == len && !strncmp(#field, name, len)) \
		return &c->field;
	VB_PMA_FIELDS(X)
#undef X
	return NULL;
}

static int ctl_counters(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_port *p = port_for(s, w[1], w[2], out);

	if (!p)
		return ENOENT;
	for (unsigned i = 3; w[i]; i++) {
		size_t n = strcspn(w[i], "=");
		uint64_t *c = counter_named(&p->counters, w[i], n);
		char *end = NULL;
		uint64_t v = w[i][n] ? strtoull(w[i] + n + 1, &end, 0) : 0;

		if (!c || !end || *end || end == w[i] + n + 1)
			return fails(out, EINVAL, "%s: counters are set by NAME=VALUE", w[i]);
		*c = v;
	}
	joined_count(s);
#define X(field, select, ext) fprintf(out, "%-18s %" PRIu64 "\n", #field, p->counters.field);
	VB_PMA_FIELDS(X)
#undef X
	return 0;
}

/* The first keys of the table; those behind them are empty. */
static int set_pkeys(struct vb_fabric_port *p, char **keys, FILE *out)
{
	uint16_t table[VB_FABRIC_CA_PKEYS] = {0};
	unsigned most = vb_fabric_pkeys(p), n = 0;

	for (; keys[n]; n++) {
		char *end;
		unsigned long key = strtoul(keys[n], &end, 0);

		if (*end || end == keys[n] || key > 0xffff || n == most)
			return fails(out, EINVAL, "%s: a port has %u P_Keys of 16 bits", keys[n], most);
		table[n] = (uint16_t)key;
	}
	return vb_fabric_set_pkeys(p, table) ? 0 : fails(out, ENOMEM, "no memory");
}

static int ctl_pkeys(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_port *p = port_for(s, w[1], w[2], out);
	int rc = !p ? ENOENT : w[3] ? set_pkeys(p, w + 3, out) : 0;

	for (unsigned i = 0; !rc && i < vb_fabric_pkeys(p); i++)
		if (vb_fabric_pkey(p, i))
			fprintf(out, "%-3u 0x%04x\n", i, vb_fabric_pkey(p, i));
	return rc;
}

static int ctl_trap(struct server *s, char **w, FILE *out)
{
	static const unsigned known[] = {VB_TRAP_LINK_INTEGRITY, VB_TRAP_BUFFER_OVERRUN, VB_TRAP_FLOW_CONTROL,
	                                 VB_TRAP_LOCAL_CHANGE};
	struct vb_fabric_port *p = port_for(s, w[1], w[2], out);
	unsigned long trap = strtoul(w[3], NULL, 10);

	if (!p)
		return ENOENT;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i] == trap) {
			vb_fabric_trap(p, (unsigned)trap);
			return 0;
		}
	return fails(out, EINVAL, "traps that are made by a command: 129, 130, 131, 144");
}

static int ctl_lid(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_port *p = port_for(s, w[1], w[2], out);
	char *end;
	unsigned long lid = strtoul(w[3], &end, 0);

	if (!p)
		return ENOENT;
	if (*end || end == w[3] || !lid || lid >= VB_LID_MULTICAST || p->node->sw)
		return fails(out, EINVAL, "a port of a channel adapter has a LID from 1 to 0x%x", VB_LID_MULTICAST - 1);
	p->info.lid = (uint16_t)lid;
	s->fabric->changes++;
	return 0;
}

static void show_port(const struct vb_fabric_port *p, FILE *out)
{
	static const char *const states[] = {"?", "Down", "Init", "Armed", "Active"};
	char rate[16];

	fprintf(out, "  [%u] %-6s", p->num, states[p->info.state <= 4 ? p->info.state : 0]);
	if (p->peer)
		fprintf(out, " %s \"%s\"[%u]", vb_topology_rate_text(&p->info, rate), p->peer->node->id, p->peer->num);
	if (!p->node->sw)
		fprintf(out, " lid %u sm lid %u%s", p->info.lid, p->info.sm_lid, p->host ? " programs" : "");
	if (p->pace && (p->pace->mbit || p->pace->latency))
		fprintf(out, " rate %u Mb/s latency %" PRIu64 " us", p->pace->mbit, p->pace->latency / 1000);
	fprintf(out, "%s\n", p->cut ? " cut" : "");
}

static void show_node(const struct vb_fabric_node *n, FILE *out)
{
	fprintf(out, "%s \"%s\" # \"%s\" guid 0x%016" PRIx64 "%s",
	        n->sw                   ? "Switch"
	        : n->type == VB_NODE_CA ? "Ca"
	                                : "Rt",
	        n->id, n->desc, n->guid, n->off ? " off" : "");
	if (n->sw)
		fprintf(out, " lid %u", n->port[0].info.lid);
	fputs(n->away ? " away\n" : "\n", out);
	for (unsigned k = 1; !n->away && k <= n->ports; k++)
		if (n->port[k].peer)
			show_port(&n->port[k], out);
}

static int ctl_show(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_node *n = w[1] ? node_for(s, w[1], out) : NULL;

	if (w[1] && !n)
		return ENOENT;
	for (size_t i = 0; i < s->fabric->count; i++)
		if (!n || n == s->fabric->nodes[i])
			show_node(s->fabric->nodes[i], out);
	return 0;
}

/* How many ports with a cable are in each state. */
static int ctl_states(struct server *s, char **w, FILE *out)
{
	size_t count[5] = {0}, all = 0, nodes = 0;

	for (size_t i = 0; i < s->fabric->count; i++) {
		const struct vb_fabric_node *n = s->fabric->nodes[i];

		nodes += !n->away;
		for (unsigned k = 1; !n->away && k <= n->ports; k++) {
			if (!n->port[k].peer)
				continue;
			count[n->port[k].info.state <= 4 ? n->port[k].info.state : 0]++;
			all++;
		}
	}
	fprintf(out, "nodes %zu ports %zu down %zu init %zu armed %zu active %zu\n", nodes, all, count[1], count[2],
	        count[3], count[4]);
	return 0;
}

static int ctl_stat(struct server *s, char **w, FILE *out)
{
#define X(name) fprintf(out, "dropped_%-12s %" PRIu64 "\n", #name, s->fabric->drops.name);
	VB_FABRIC_DROPS(X)
#undef X
	fprintf(out, "%-20s %" PRIu64 "\n", "lost_for_programs", s->lost);
	fprintf(out, "%-20s %" PRIu64 "\n", "cm_forged", s->forged);
	fprintf(out, "%-20s %" PRIu64 "\n", "guests_refused", s->strangers);
	fprintf(out, "%-20s %" PRIu64 "\n", "lost_for_captures", s->captures_lost);
	fprintf(out, "%-20s %" PRIu64 "\n", "programs_refused", s->refused);
	fprintf(out, "%-20s %zu\n", "programs_kept_for", s->kept);
	fprintf(out, "%-20s %zu\n", "traps_pending", s->fabric->trap_count);
	return 0;
}

static int ctl_print(struct server *s, char **w, FILE *out)
{
	vb_topology_print(s->fabric, out);
	return 0;
}

static int ctl_add(struct server *s, const char *text, FILE *out)
{
	struct vb_topology_error e;

	if (!vb_topology_read(s->fabric, text, strlen(text), &e))
		return fails(out, EINVAL, "line %u: %s", e.line, e.reason);
	vb_fabric_train_all(s->fabric);
	if (!address_number(s))
		return fails(out, ENOSPC, "the network has no address left for all channel adapters");
	return 0;
}

static int ctl_addresses(struct server *s, char **w, FILE *out)
{
	struct vb_fabric_node *n = w[1] ? node_for(s, w[1], out) : NULL;

	return w[1] && !n ? ENOENT : ctl_address(s, n, w[1] ? w[2] : NULL, out);
}

static int ctl_stop(struct server *s, char **w, FILE *out)
{
	s->stop = true;
	return 0;
}

static const struct {
	const char *name, *usage;
	unsigned fewest, most; /* words after the name */
	int (*run)(struct server *s, char **w, FILE *out);
} commands[] = {{"link", "NODE PORT up|down|[rate=MBIT] [latency=US]", 3, 4, ctl_link},
                {"node", "NODE on|off", 2, 2, ctl_node},
                {"describe", "NODE TEXT", 2, 2, ctl_describe},
                {"counters", "NODE PORT [NAME=VALUE…]", 2, WORDS_MOST - 2, ctl_counters},
                {"pkeys", "NODE PORT [P_KEY…]", 2, WORDS_MOST - 2, ctl_pkeys},
                {"lid", "NODE PORT LID", 3, 3, ctl_lid},
                {"trap", "NODE PORT NUMBER", 3, 3, ctl_trap},
                {"address", "[NODE [ADDRESS|none]]", 0, 2, ctl_addresses},
                {"show", "[NODE]", 0, 1, ctl_show},
                {"peers", "", 0, 0, ctl_peers},
                {"states", "", 0, 0, ctl_states},
                {"stat", "", 0, 0, ctl_stat},
                {"print", "", 0, 0, ctl_print},
                {"stop", "", 0, 0, ctl_stop}};

int ctl_capture(struct server *s, char *words, struct vb_fabric_node **n, struct vb_fabric_port **p, FILE *out)
{
	char *w[WORDS_MOST + 1] = {0};
	unsigned count = split_words(words, w);

	*n = NULL;
	*p = NULL;
	if (count > 2)
		return fails(out, EINVAL, "capture [NODE [PORT]] is how it is written");
	if (count == 2 && !(*p = port_for(s, w[0], w[1], out)))
		return ENOENT;
	if (count && !(*n = own_node_for(s, w[0], out)))
		return ENOENT;
	return 0;
}

int ctl_command(struct server *s, char *command, FILE *out)
{
	char *words[WORDS_MOST + 1] = {0};

	if (!strncmp(command, "add ", 4))
		return ctl_add(s, command + 4, out);
	unsigned n = split_words(command, words);
	for (size_t i = 0; n && i < sizeof(commands) / sizeof(*commands); i++) {
		if (strcmp(commands[i].name, words[0]) != 0)
			continue;
		if (n - 1 < commands[i].fewest || n - 1 > commands[i].most)
			return fails(out, EINVAL, "%s %s is how it is written", commands[i].name, commands[i].usage);
		return commands[i].run(s, words, out);
	}
	fails(out, 0, "no such command; there are:\n  capture [NODE [PORT]]");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		fprintf(out, "  %s %s\n", commands[i].name, commands[i].usage);
	return fails(out, EINVAL, "  add FILE");
}
