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

static json_object *controller_json(const struct nt_controller *c, uint64_t now)
{
	json_object *o = json_object_new_object();
	uint64_t queues = 0;

	for (uint32_t i = 1; i <= NT_QUEUES_MAX; i++)
		queues += c->queues[i] != NULL;
	add_number(o, "id", c->id);
	add_text(o, "host", c->hostnqn);
	add_text(o, "peer", c->admin ? c->admin->peer : "");
	add_text(o, "transport", c->admin ? c->admin->ops->name : "");
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
	json_object_object_add(o, "shut_out", json_object_new_boolean(ns->backend->fenced));
	add_number(o, "late", ns->backend->late);
	return o;
}

static json_object *subsystem_json(const struct nt_subsystem *s, uint64_t now)
{
	json_object *o = json_object_new_object(), *namespaces = json_object_new_array(),
	            *controllers = json_object_new_array();

	add_text(o, "nqn", s->nqn);
	for (uint32_t i = 1; i <= NT_NAMESPACES_MAX; i++)
		if (s->ns[i])
			json_object_array_add(namespaces, namespace_json(s->ns[i]));
	for (const struct nt_controller *c = s->controllers; c; c = c->next)
		json_object_array_add(controllers, controller_json(c, now));
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
		json_object_array_add(subsystems, subsystem_json(x, s->target.now));
	json_object_object_add(o, "listen", listen);
	json_object_object_add(o, "subsystems", subsystems);
	char *out = strdup(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
	                                                             JSON_C_TO_STRING_NOSLASHESCAPE));

	json_object_put(o);
	return out;
}
