// metrics.c - counters of namespaces and hosts, for Prometheus
// follows: OpenMetrics 1.0.0
// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "target/server.h"

/* A quoted value; names of hosts and subsystems are from outside. */
static void put_label(FILE *f, const char *name, const char *value)
{
	fprintf(f, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', f);
		if (*value == '\n')
			fputs("\\n", f);
		else
			fputc(*value, f);
	}
	fputc('"', f);
}

static void put_family(FILE *f, const char *what, const char *name, const char *type, const char *unit,
                       const char *help)
{
	fprintf(f, "# TYPE verbena_target_%s_%s %s\n", what, name, type);
	if (unit)
		fprintf(f, "# UNIT verbena_target_%s_%s %s\n", what, name, unit);
	fprintf(f, "# HELP verbena_target_%s_%s %s\n", what, name, help);
}

/* ---- gates: of namespaces and of hosts ---- */

struct labelled {
	const char *subsystem; /* NULL: a host */
	uint32_t nsid;
	const char *host;
	const struct nt_gate *gate;
};

typedef void each_gate(FILE *f, const struct labelled *l);

static void put_sample(FILE *f, const struct labelled *l, const char *name, const char *label, const char *value,
                       uint64_t n)
{
	fprintf(f, "verbena_target_%s_%s{", l->subsystem ? "namespace" : "host", name);
	if (l->subsystem) {
		put_label(f, "subsystem", l->subsystem);
		fprintf(f, ",nsid=\"%" PRIu32 "\"", l->nsid);
	} else {
		put_label(f, "host", l->host);
	}
	if (label)
		fprintf(f, ",%s=\"%s\"", label, value);
	fprintf(f, "} %" PRIu64 "\n", n);
}

static const char *const ways[NT_DIRECTIONS] = {"read", "write"};

static void put_operations(FILE *f, const struct labelled *l)
{
	for (int i = 0; i < NT_DIRECTIONS; i++)
		put_sample(f, l, "operations_total", "direction", ways[i], l->gate->operations[i]);
}

static void put_bytes(FILE *f, const struct labelled *l)
{
	for (int i = 0; i < NT_DIRECTIONS; i++)
		put_sample(f, l, "data_bytes_total", "direction", ways[i], l->gate->bytes[i]);
}

static void put_waited(FILE *f, const struct labelled *l)
{
	put_sample(f, l, "waited_operations_total", NULL, NULL, l->gate->waited);
}

static void put_waiting(FILE *f, const struct labelled *l)
{
	put_sample(f, l, "waiting_operations", NULL, NULL,
	           l->gate->lines[NT_READS].count + l->gate->lines[NT_WRITES].count);
}

static void put_limits(FILE *f, const struct labelled *l)
{
	for (int i = 0; i < NT_RATES; i++)
		if (l->gate->limits.rate[i])
			put_sample(f, l, "limit", "limit", nt_rate_names[i], l->gate->limits.rate[i]);
}

static const struct {
	const char *name, *type, *unit, *help;
	each_gate *put;
} families[] = {
        {"operations", "counter", NULL, "Commands that have passed the limits.", put_operations},
        {"data_bytes", "counter", "bytes", "Their bytes.", put_bytes},
        {"waited_operations", "counter", NULL, "Commands that had to wait for a limit.", put_waited},
        {"waiting_operations", "gauge", NULL, "Commands that wait for a limit now.", put_waiting},
        {"limit", "gauge", NULL, "Limits in force, in operations or bytes per second.", put_limits},
};

static void each_namespace(FILE *f, const struct nt_target *t, each_gate *put)
{
	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
			if (s->ns[i])
				put(f, &(struct labelled){.subsystem = s->nqn, .nsid = i, .gate = &s->ns[i]->gate});
}

static void each_host(FILE *f, const struct nt_target *t, each_gate *put)
{
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (const struct nt_account *a = t->accounts[i]; a; a = a->next)
			put(f, &(struct labelled){.host = a->nqn, .gate = &a->gate});
}

/* ---- what only namespaces or only hosts have ---- */

static void put_of_namespace(FILE *f, const struct nt_namespace *ns, const char *name, uint64_t n)
{
	put_sample(f, &(struct labelled){.subsystem = ns->subsystem->nqn, .nsid = ns->nsid}, name, NULL, NULL, n);
}

static void put_size(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "size_bytes", ns->backend->size);
}

static void put_at_medium(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "at_medium_operations", ns->at_medium);
}

static void put_in_turn(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "in_turn_operations", ns->turns.count);
}

static void put_depth(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "depth", ns->gate.limits.depth ? ns->gate.limits.depth : NT_DEPTH);
}

static void put_late(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "late_operations_total", ns->backend->late);
}

static void put_shut_out(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "shut_out", ns->backend->fenced);
}

static void put_slow(FILE *f, const struct nt_namespace *ns)
{
	put_of_namespace(f, ns, "slow", ns->slow);
}

static void put_writer(FILE *f, const struct nt_namespace *ns)
{
	if (ns->backend->parts)
		put_sample(f, &(struct labelled){.subsystem = ns->subsystem->nqn, .nsid = ns->nsid}, "writer", "writer",
		           nt_writer_name(ns->backend), 1);
}

static const struct {
	const char *name, *type, *unit, *help;
	void (*put)(FILE *f, const struct nt_namespace *ns);
} of_namespaces[] = {
        {"size_bytes", "gauge", "bytes", "Its size.", put_size},
        {"at_medium_operations", "gauge", NULL, "Commands at the medium now.", put_at_medium},
        {"in_turn_operations", "gauge", NULL, "Commands that wait for their turn at the medium now.", put_in_turn},
        {"depth", "gauge", NULL, "How many commands the medium gets at once.", put_depth},
        {"late_operations", "counter", NULL, "Requests that a cluster has not answered in time.", put_late},
        {"shut_out", "gauge", NULL, "1: the cluster has blocklisted this target.", put_shut_out},
        {"slow", "gauge", NULL, "1: requests wait at the medium, which completes none.", put_slow},
        {"writer", "gauge", NULL, "Who writes an image that several targets serve.", put_writer},
};

static void put_of_namespaces(FILE *f, const struct nt_target *t)
{
	for (size_t k = 0; k < sizeof(of_namespaces) / sizeof(*of_namespaces); k++) {
		put_family(f, "namespace", of_namespaces[k].name, of_namespaces[k].type, of_namespaces[k].unit,
		           of_namespaces[k].help);
		for (const struct nt_subsystem *s = t->subsystems; s; s = s->next)
			for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
				if (s->ns[i])
					of_namespaces[k].put(f, s->ns[i]);
	}
}

static void put_of_hosts(FILE *f, const struct nt_target *t)
{
	put_family(f, "host", "controllers", "gauge", NULL, "Its controllers.");
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (const struct nt_account *a = t->accounts[i]; a; a = a->next)
			put_sample(f, &(struct labelled){.host = a->nqn}, "controllers", NULL, NULL, a->controllers);
	put_family(f, "host", "weight", "gauge", NULL, "Its share beside other hosts.");
	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (const struct nt_account *a = t->accounts[i]; a; a = a->next)
			put_sample(f, &(struct labelled){.host = a->nqn}, "weight", NULL, NULL,
			           a->gate.limits.weight ? a->gate.limits.weight : 1);
}

static void put_memory(FILE *f, const struct nt_target *t)
{
	const struct {
		const char *name, *help;
		uint64_t n;
	} of[] = {{"bytes", "Memory for data in flight.", t->memory},
	          {"used_bytes", "Of it in use.", nt_pool_used(t->pool)},
	          {"slow_bytes", "Of it in use by requests to slow namespaces, and by what was answered late.",
	           t->slow_memory}};

	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		put_family(f, "memory", of[i].name, "gauge", "bytes", of[i].help);
		fprintf(f, "verbena_target_memory_%s %" PRIu64 "\n", of[i].name, of[i].n);
	}
}

/* ---- associations: the way of each host ---- */

static void put_associations(FILE *f, const struct nt_server *server)
{
	const struct nt_target *t = &server->target;

	put_family(f, "association", "way", "gauge", NULL,
	           "Hosts that are connected, the way that each has taken, and why.");
	for (const struct nt_subsystem *s = t->subsystems; s; s = s->next)
		for (const struct nt_controller *c = s->controllers; c; c = c->next) {
			if (!c->admin)
				continue;
			fputs("verbena_target_association_way{", f);
			put_label(f, "subsystem", s->nqn);
			fprintf(f, ",controller=\"%u\",", c->id);
			put_label(f, "host", c->hostnqn);
			fprintf(f, ",transport=\"%s\",", c->admin->ops->name);
			put_label(f, "device", c->admin->device);
			fputc(',', f);
			put_label(f, "way", c->admin->way ? c->admin->way : "");
			fputc(',', f);
			put_label(f, "why", nt_why_this_way(server, c->admin));
			fputs("} 1\n", f);
		}
}

char *nt_metrics(const struct nt_server *s)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++) {
		put_family(f, "namespace", families[i].name, families[i].type, families[i].unit, families[i].help);
		each_namespace(f, &s->target, families[i].put);
		put_family(f, "host", families[i].name, families[i].type, families[i].unit, families[i].help);
		each_host(f, &s->target, families[i].put);
	}
	put_of_namespaces(f, &s->target);
	put_of_hosts(f, &s->target);
	put_memory(f, &s->target);
	put_associations(f, s);
	fputs("# EOF\n", f);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}
