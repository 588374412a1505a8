// status.c - the target's status for clients of the control socket
// follows: RFC 8259
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <string.h>

#include "target/server.h"

static void add_text(json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

static void add_number(json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_count(void *o, const char *key, uint64_t value)
{
	add_number(o, key, value);
}

static json_object *limits_json(const struct nt_limits *l)
{
	json_object *o = json_object_new_object();

	for (int i = 0; i < NT_RATES; i++)
		if (l->rate[i])
			add_number(o, nt_rate_names[i], l->rate[i]);
	if (nt_limits_any(l))
		add_number(o, "burst", l->burst_ms ? l->burst_ms : NT_BURST_MS);
	return o;
}

/* What has passed the limits of a host or namespace, and what waits there. */
static void add_gate(json_object *o, const struct nt_gate *g)
{
	add_number(o, "reads", g->operations[NT_READS]);
	add_number(o, "writes", g->operations[NT_WRITES]);
	add_number(o, "read_bytes", g->bytes[NT_READS]);
	add_number(o, "written_bytes", g->bytes[NT_WRITES]);
	add_number(o, "waited", g->waited);
	add_number(o, "waiting", g->lines[NT_READS].count + g->lines[NT_WRITES].count);
	json_object_object_add(o, "limits", limits_json(&g->limits));
}

static json_object *hosts_json(const struct nt_target *t)
{
	json_object *hosts = json_object_new_array();

	for (uint32_t i = 0; i < NT_PEER_BUCKETS; i++)
		for (const struct nt_account *a = t->accounts[i]; a; a = a->next) {
			json_object *o = json_object_new_object();

			add_text(o, "nqn", a->nqn);
			add_number(o, "controllers", a->controllers);
			add_gate(o, &a->gate);
			add_number(o, "weight", a->gate.limits.weight ? a->gate.limits.weight : 1);
			json_object_object_add(o, "own_limits", json_object_new_boolean(a->own));
			json_object_array_add(hosts, o);
		}
	return hosts;
}

/* The target knows which ways it offers, and which one the host has taken. */
const char *nt_why_this_way(const struct nt_server *s, const struct nt_queue *q)
{
	bool rdma = false;

	if (strcmp(q->ops->name, "tcp"))
		return "the host has chosen RDMA";
	for (const struct nt_listener *l = s->listeners; l; l = l->next)
		rdma |= l->rdma && !l->leaving;
	return rdma ? "the host has chosen TCP, or RDMA did not work for it" : "RDMA is not offered here";
}

static json_object *controller_json(const struct nt_server *s, const struct nt_controller *c)
{
	uint64_t now = s->target.now;
	json_object *o = json_object_new_object();
	uint64_t queues = 0;

	for (uint32_t i = 1; i <= NT_QUEUES_MAX; i++)
		queues += c->queues[i] != NULL;
	add_number(o, "id", c->id);
	add_text(o, "host", c->hostnqn);
	add_text(o, "peer", c->admin ? c->admin->peer : "");
	add_text(o, "transport", c->admin ? c->admin->ops->name : "");
	add_text(o, "device", c->admin ? c->admin->device : "");
	add_text(o, "way", c->admin && c->admin->way ? c->admin->way : "");
	add_text(o, "why", c->admin ? nt_why_this_way(s, c->admin) : "");
	json_object_object_add(o, "authenticated", json_object_new_boolean(c->admin && c->admin->proven));
	add_number(o, "queues", queues);
	add_number(o, "seconds", (now - c->connected_at) / 1000);
	add_number(o, "reads", c->reads);
	add_number(o, "writes", c->writes);
	add_number(o, "read_bytes", c->read_blocks * 512);
	add_number(o, "written_bytes", c->written_blocks * 512);
	add_number(o, "errors", c->errors);
	add_number(o, "memory", c->memory);
	return o;
}

const char *nt_writer_name(const struct nb_backend *b)
{
	static const char *const writers[] = {
	        [NB_HERE] = "here", [NB_OTHER] = "another", [NB_MOVING] = "moving", [NB_AWAY] = "unknown"};

	return writers[b->access];
}

static json_object *namespace_json(const struct nt_namespace *ns)
{
	json_object *o = json_object_new_object();
	char uuid[NV_UUID_TEXT];

	nv_uuid_format(ns->uuid, uuid);
	add_number(o, "nsid", ns->nsid);
	add_text(o, "uuid", uuid);
	add_text(o, "backend", ns->backend->kind->name);
	add_number(o, "size", ns->backend->size);
	add_number(o, "block_size", ns->backend->block);
	json_object_object_add(o, "readonly", json_object_new_boolean(ns->backend->readonly));
	add_number(o, "ana_group", ns->ana_group);
	add_number(o, "copied", ns->backend->copied);
	add_gate(o, &ns->gate);
	add_number(o, "at_medium", ns->at_medium);
	add_number(o, "in_turn", ns->turns.count);
	add_number(o, "depth", ns->gate.limits.depth ? ns->gate.limits.depth : NT_DEPTH);
	if (ns->backend->parts) {
		add_text(o, "writer", nt_writer_name(ns->backend));
		add_number(o, "gateway_part", ns->backend->part);
	}
	json_object_object_add(o, "shut_out", json_object_new_boolean(ns->backend->fenced));
	json_object_object_add(o, "slow", json_object_new_boolean(ns->slow));
	add_number(o, "late", ns->backend->late);
	return o;
}

static json_object *subsystem_json(const struct nt_server *server, const struct nt_subsystem *s)
{
	json_object *o = json_object_new_object(), *namespaces = json_object_new_array(),
	            *controllers = json_object_new_array();

	add_text(o, "nqn", s->nqn);
	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
		if (s->ns[i])
			json_object_array_add(namespaces, namespace_json(s->ns[i]));
	for (const struct nt_controller *c = s->controllers; c; c = c->next)
		json_object_array_add(controllers, controller_json(server, c));
	json_object_object_add(o, "namespaces", namespaces);
	json_object_object_add(o, "controllers", controllers);
	return o;
}

char *nt_status_json(const struct nt_server *s)
{
	json_object *o = json_object_new_object(), *listen = json_object_new_array(),
	            *subsystems = json_object_new_array();

	add_text(o, "version", VB_VERSION);
	add_text(o, "backend_calls", nb_ring_name(s->ring));
	add_number(o, "memory", s->target.memory);
	add_number(o, "memory_used", nt_pool_used(s->target.pool));
	add_number(o, "memory_slow", s->target.slow_memory);
	add_number(o, "opening", nt_opening_count(s));
	for (const struct nt_listener *l = s->listeners; l; l = l->next) {
		json_object *at = json_object_new_object();

		add_text(at, "transport", nt_listener_transport(l));
		add_text(at, "address", nt_listener_address(l));
		add_number(at, "port", nt_listener_port(l));
		add_number(at, "connections", nt_listener_connections(l));
		nt_listener_count(l, add_count, at);
		json_object_array_add(listen, at);
	}
	for (const struct nt_subsystem *x = s->target.subsystems; x; x = x->next)
		json_object_array_add(subsystems, subsystem_json(s, x));
	json_object_object_add(o, "listen", listen);
	json_object_object_add(o, "hosts", hosts_json(&s->target));
	json_object_object_add(o, "subsystems", subsystems);
	char *out = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
	                                                             JSON_C_TO_STRING_NOSLASHESCAPE));

	json_object_put(o);
	return out;
}
