// config.c - the configuration file, and the command line that replaces it
// follows: RFC 8259 (JSON); man/verbena-target.8 for its fields
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/gateway.h"
#include "target/server.h"
#include "target/size.h"

#define MEMORY_DEFAULT (64u << 20)
#define MEMORY_MIN (16u << 20)
#define MEMORY_MAX (1u << 31)

void nt_config_default(struct nt_config *c)
{
	*c = (struct nt_config){.memory = MEMORY_DEFAULT,
	                        .queues = 16,
	                        .limits = {.connections = NT_CONNECTIONS, .hello_ms = 10000, .stall_ms = 30000}};
}

static void free_addresses(struct nt_config_address *a, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(a[i].transport);
		free(a[i].address);
	}
	free(a);
}

void nt_config_free_ns(struct nt_config_ns *ns)
{
	free(ns->kind);
	free(ns->path);
	free(ns->ceph_conf);
	free(ns->ceph_user);
	free(ns->ceph_keyring);
	free(ns->gateway);
	memset(ns, 0, sizeof(*ns));
}

static void free_config_subsystem(struct nt_config_subsystem *s)
{
	for (size_t i = 0; i < s->ns_count; i++)
		nt_config_free_ns(&s->ns[i]);
	for (size_t i = 0; i < s->host_count; i++) {
		free(s->hosts[i].nqn);
		explicit_bzero(&s->hosts[i], sizeof(s->hosts[i]));
	}
	free(s->ns);
	free(s->hosts);
	free(s->nqn);
	free(s->serial);
	free(s->model);
}

void nt_config_free(struct nt_config *c)
{
	free_addresses(c->listen, c->listen_count);
	free_addresses(c->referrals, c->referral_count);
	for (size_t i = 0; i < c->subsystem_count; i++)
		free_config_subsystem(&c->subsystems[i]);
	free(c->subsystems);
	for (size_t i = 0; i < c->host_limit_count; i++)
		free(c->host_limits[i].nqn);
	free(c->host_limits);
	free(c->announce);
	memset(c, 0, sizeof(*c));
}

/* Appends an element to an array. The array may contain secrets, so the old one is wiped. */
static void *append_element(void *array, size_t *count, size_t size)
{
	void **base = array;
	void *more = calloc(*count + 1, size);

	if (!more)
		return NULL;
	if (*base) {
		memcpy(more, *base, *count * size);
		explicit_bzero(*base, *count * size);
		free(*base);
	}
	*base = more;
	return memset((uint8_t *)more + (*count)++ * size, 0, size);
}

struct nt_config_address *nt_config_listen(struct nt_config *c)
{
	return append_element(&c->listen, &c->listen_count, sizeof(*c->listen));
}

struct nt_config_subsystem *nt_config_subsystem(struct nt_config *c)
{
	return append_element(&c->subsystems, &c->subsystem_count, sizeof(*c->subsystems));
}

struct nt_config_ns *nt_config_ns(struct nt_config_subsystem *s)
{
	return append_element(&s->ns, &s->ns_count, sizeof(*s->ns));
}

bool nt_config_host(struct nt_config_subsystem *s, const char *nqn)
{
	struct nt_config_host *h = append_element(&s->hosts, &s->host_count, sizeof(*s->hosts));

	return h && (h->nqn = strdup(nqn));
}

/* ---- the file ---- */

struct reader {
	const char *file;
	char **why;
	bool failed;
};

static void config_error(struct reader *r, const char *where, const char *what)
{
	if (!r->failed && asprintf(r->why, "%s: %s", where, what) < 0)
		*r->why = NULL;
	r->failed = true;
}

static void get_text(struct reader *r, const char *key, json_object *v, char **out)
{
	if (!json_object_is_type(v, json_type_string) ||
	    strlen(json_object_get_string(v)) != (size_t)json_object_get_string_len(v)) {
		config_error(r, key, "must be a string");
		return;
	}
	free(*out);
	if (!(*out = strdup(json_object_get_string(v))))
		config_error(r, key, "no memory");
}

static uint64_t get_number(struct reader *r, const char *key, json_object *v, uint64_t least, uint64_t most)
{
	uint64_t n = 0;
	bool ok = json_object_is_type(v, json_type_int) && json_object_get_int64(v) >= 0;

	if (ok)
		n = (uint64_t)json_object_get_int64(v);
	else if (json_object_is_type(v, json_type_string))
		ok = nt_size_parse(json_object_get_string(v), &n);
	if (!ok || n < least || n > most)
		config_error(r, key, "must be a number within its limits");
	return n;
}

static bool get_bool(struct reader *r, const char *key, json_object *v)
{
	if (!json_object_is_type(v, json_type_boolean))
		config_error(r, key, "must be true or false");
	return json_object_get_boolean(v);
}

static size_t list_length(struct reader *r, const char *key, json_object *v)
{
	if (!json_object_is_type(v, json_type_array)) {
		config_error(r, key, "a list is wanted");
		return 0;
	}
	return json_object_array_length(v);
}

static enum nt_tls get_security(struct reader *r, const char *key, json_object *v)
{
	static const char *const names[] = {
	        [NT_TLS_OFF] = "off", [NT_TLS_ALLOWED] = "allowed", [NT_TLS_REQUIRED] = "required"};

	for (size_t i = 0; json_object_is_type(v, json_type_string) && i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(json_object_get_string(v), names[i]))
			return (enum nt_tls)i;
	config_error(r, key, "must be off, allowed or required");
	return NT_TLS_REQUIRED;
}

static void read_address(struct reader *r, json_object *o, struct nt_config_address *a)
{
	if (!json_object_is_type(o, json_type_object)) {
		config_error(r, "listen", "must be an object");
		return;
	}
	a->port = NT_PORT_DEFAULT;
	json_object_object_foreach(o, key, v)
	{
		if (!strcmp(key, "transport"))
			get_text(r, key, v, &a->transport);
		else if (!strcmp(key, "address"))
			get_text(r, key, v, &a->address);
		else if (!strcmp(key, "port"))
			a->port = (uint16_t)get_number(r, key, v, 0, 65535);
		else if (!strcmp(key, "tls"))
			a->tls = get_security(r, key, v);
		else
			config_error(r, key, "no such field");
	}
	if (!r->failed && !a->transport && !(a->transport = strdup("tcp")))
		config_error(r, "transport", "no memory");
	if (!r->failed && a->tls && strcmp(a->transport, "tcp"))
		config_error(r, "tls", "is for tcp alone");
#ifndef NT_HAVE_TLS
	if (a->tls)
		config_error(r, "tls", "built without OpenSSL");
#endif
	if (!r->failed && !a->address)
		config_error(r, "address", "is missing");
	if (!r->failed && strlen(a->address) > 256)
		config_error(r, "address", "is too long");
}

/* Reads {"riops": 1000, "rbps": "10M"}. */
static void read_limits(struct reader *r, const char *key, json_object *o, enum nt_limited of, struct nt_limits *l)
{
	char why[NT_LIMIT_WHY];

	if (!json_object_is_type(o, json_type_object)) {
		config_error(r, key, "must be an object");
		return;
	}
	json_object_object_foreach(o, name, v)
	{
		bool simple = json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_string);

		if (!nt_limit_set(l, of, name, simple ? json_object_get_string(v) : "?", why))
			config_error(r, key, why);
	}
}

/* Reads an object of limits by names of hosts; "default" is for each host that it does not name. */
static void read_host_limits(struct reader *r, const char *key, json_object *o, struct nt_config *c)
{
	if (!json_object_is_type(o, json_type_object)) {
		config_error(r, key, "must be an object");
		return;
	}
	json_object_object_foreach(o, nqn, v)
	{
		if (!strcmp(nqn, "default")) {
			read_limits(r, nqn, v, NT_OF_HOST, &c->each_host);
			continue;
		}
		struct nt_config_limits *l =
		        append_element(&c->host_limits, &c->host_limit_count, sizeof(*c->host_limits));

		if (!l || !(l->nqn = strdup(nqn)))
			config_error(r, key, "no memory");
		else if (!nv_nqn_valid(nqn, strlen(nqn) + 1))
			config_error(r, nqn, "is not a valid name of a host");
		else
			read_limits(r, nqn, v, NT_OF_HOST, &l->limits);
	}
}

static void read_ns(struct reader *r, json_object *o, struct nt_config_ns *ns)
{
	char *uuid = NULL;

	if (!json_object_is_type(o, json_type_object)) {
		config_error(r, "namespaces", "must be an object");
		return;
	}
	ns->ana_group = 1;
	json_object_object_foreach(o, key, v)
	{
		if (!strcmp(key, "nsid"))
			ns->nsid = (uint32_t)get_number(r, key, v, 1, NT_NAMESPACES_MAX);
		else if (!strcmp(key, "backend"))
			get_text(r, key, v, &ns->kind);
		else if (!strcmp(key, "path"))
			get_text(r, key, v, &ns->path);
		else if (!strcmp(key, "size"))
			ns->size = get_number(r, key, v, 1, NB_SIZE_MAX);
		else if (!strcmp(key, "block_size"))
			ns->block = (uint32_t)get_number(r, key, v, 512, 4096);
		else if (!strcmp(key, "ana_group"))
			ns->ana_group = (uint32_t)get_number(r, key, v, 1, NT_ANA_GROUPS);
		else if (!strcmp(key, "readonly"))
			ns->readonly = get_bool(r, key, v);
		else if (!strcmp(key, "buffered"))
			ns->buffered = get_bool(r, key, v);
		else if (!strcmp(key, "ceph_conf"))
			get_text(r, key, v, &ns->ceph_conf);
		else if (!strcmp(key, "ceph_user"))
			get_text(r, key, v, &ns->ceph_user);
		else if (!strcmp(key, "ceph_keyring"))
			get_text(r, key, v, &ns->ceph_keyring);
		else if (!strcmp(key, "gateway"))
			get_text(r, key, v, &ns->gateway);
		else if (!strcmp(key, "wait_seconds"))
			ns->wait_ms = (uint32_t)get_number(r, key, v, 1, 3600) * 1000;
		else if (!strcmp(key, "uuid"))
			get_text(r, key, v, &uuid);
		else if (!strcmp(key, "limits"))
			read_limits(r, key, v, NT_OF_NAMESPACE, &ns->limits);
		else
			config_error(r, key, "no such field");
	}
	if (uuid && !(ns->has_uuid = nv_uuid_parse(uuid, ns->uuid)))
		config_error(r, "uuid", "is none");
	free(uuid);
	if (ns->gateway && !nt_gateway_valid(ns))
		config_error(r, "gateway", "must be a name of up to 63 letters and digits, for rbd");
	if (!ns->nsid || !ns->kind)
		config_error(r, ns->nsid ? "backend" : "nsid", "is missing");
}

bool nt_gateway_valid(const struct nt_config_ns *ns)
{
	return ng_name_valid(ns->gateway) && ns->kind && !strcmp(ns->kind, "rbd");
}

bool nt_config_read_ns(json_object *o, struct nt_config_ns *ns, char **why)
{
	struct reader r = {.why = why};

	*why = NULL;
	memset(ns, 0, sizeof(*ns));
	read_ns(&r, o, ns);
	if (r.failed)
		nt_config_free_ns(ns);
	return !r.failed;
}

static void wipe_string(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

/* Reads a secret, or the name of the file that contains it. Our copy is wiped. json-c's own copy is not, so a separate
 * file is the better place for a secret. */
static void get_secret(struct reader *r, const char *key, json_object *v,
                       bool (*parse)(const char *text, struct nv_secret *s), struct nv_secret *out)
{
	char text[NV_SECRET_TEXT_MAX] = "", *value = NULL;

	get_text(r, key, v, &value);
	if (r->failed) {
		wipe_string(value);
		return;
	}
	int error = *value == '/' ? nv_secret_file(value, text) : 0;

	const char *stands_in = *value == '/' ? value : r->file;

	if (!error && nv_secret_exposed(stands_in))
		nt_say("%s: everybody can read the secret in it", stands_in);
	if (error)
		config_error(r, value, error == EPERM ? "everybody can write to it" : strerror(error));
	else if (!parse(*value == '/' ? text : value, out))
		config_error(r, key,
		             "must be DHHC-1:0N:BASE64: or NVMeTLSkey-1:0N:BASE64:, or a file that contains it");
	explicit_bzero(text, sizeof(text));
	wipe_string(value);
	explicit_bzero((char *)(uintptr_t)json_object_get_string(v), (size_t)json_object_get_string_len(v));
}

static uint8_t get_numbers(struct reader *r, const char *key, json_object *v, int (*number)(const char *name))
{
	uint8_t bits = 0;

	for (size_t i = 0, n = list_length(r, key, v); i < n && !r->failed; i++) {
		json_object *name = json_object_array_get_idx(v, i);
		int k = json_object_is_type(name, json_type_string) ? number(json_object_get_string(name)) : -1;

		if (k < 0)
			config_error(r, key, "an unknown name");
		else
			bits |= (uint8_t)(1u << k);
	}
	if (!r->failed && !bits)
		config_error(r, key, "names none");
	return bits;
}

/* Reads a host: a name, or an object with a name. */
static void read_host(struct reader *r, json_object *o, struct nt_config_host *h)
{
	if (!json_object_is_type(o, json_type_object)) {
		get_text(r, "hosts", o, &h->nqn);
		return;
	}
	json_object_object_foreach(o, key, v)
	{
		if (!strcmp(key, "nqn"))
			get_text(r, key, v, &h->nqn);
		else if (!strcmp(key, "secret"))
			get_secret(r, key, v, nv_secret_parse, &h->secrets.host);
		else if (!strcmp(key, "controller_secret"))
			get_secret(r, key, v, nv_secret_parse, &h->secrets.controller);
		else if (!strcmp(key, "tls_key"))
			get_secret(r, key, v, nv_tls_key_parse, &h->secrets.tls);
		else if (!strcmp(key, "hashes"))
			h->secrets.hashes = get_numbers(r, key, v, nv_hash_number);
		else if (!strcmp(key, "dh_groups"))
			h->secrets.groups = get_numbers(r, key, v, nv_dh_group_number);
		else
			config_error(r, key, "no such field");
	}
	if (!h->nqn)
		config_error(r, "hosts", "nqn is missing");
	if (h->secrets.controller.length && !h->secrets.host.length)
		config_error(r, "controller_secret", "needs a secret");
#ifndef NT_HAVE_AUTH
	if (h->secrets.host.length || h->secrets.tls.length)
		config_error(r, "secret", "built without OpenSSL");
#endif
}

/* Two entries for one host could contradict each other. */
static bool listed_twice(const struct nt_config_subsystem *s, const char *nqn)
{
	size_t n = 0;

	for (size_t i = 0; i < s->host_count; i++)
		n += s->hosts[i].nqn && !strcmp(s->hosts[i].nqn, nqn);
	return n > 1;
}

/* [FIRST, LAST] */
static void read_ids(struct reader *r, const char *key, json_object *v, struct nt_config_subsystem *s)
{
	if (list_length(r, key, v) != 2) {
		config_error(r, key, "must be two numbers, the first and the last");
		return;
	}
	s->first_id = (uint16_t)get_number(r, key, json_object_array_get_idx(v, 0), 1, NT_ID_MAX);
	s->last_id = (uint16_t)get_number(r, key, json_object_array_get_idx(v, 1), s->first_id, NT_ID_MAX);
}

static void read_subsystem(struct reader *r, json_object *o, struct nt_config_subsystem *s)
{
	if (!json_object_is_type(o, json_type_object)) {
		config_error(r, "subsystems", "must be an object");
		return;
	}
	json_object_object_foreach(o, key, v)
	{
		if (!strcmp(key, "nqn"))
			get_text(r, key, v, &s->nqn);
		else if (!strcmp(key, "serial"))
			get_text(r, key, v, &s->serial);
		else if (!strcmp(key, "model"))
			get_text(r, key, v, &s->model);
		else if (!strcmp(key, "cntlid"))
			read_ids(r, key, v, s);
		else if (!strcmp(key, "allow_any_host"))
			s->any_host = get_bool(r, key, v);
		else if (!strcmp(key, "require_authentication"))
			s->auth_required = get_bool(r, key, v);
		else if (!strcmp(key, "hosts")) {
			for (size_t i = 0, n = list_length(r, key, v); i < n && !r->failed; i++) {
				struct nt_config_host *h = append_element(&s->hosts, &s->host_count, sizeof(*s->hosts));

				if (h)
					read_host(r, json_object_array_get_idx(v, i), h);
				else
					config_error(r, key, "no memory");
				if (!r->failed && listed_twice(s, h->nqn))
					config_error(r, h->nqn, "is listed twice");
			}
		} else if (!strcmp(key, "namespaces")) {
			for (size_t i = 0, n = list_length(r, key, v); i < n && !r->failed; i++) {
				struct nt_config_ns *ns = nt_config_ns(s);

				if (ns)
					read_ns(r, json_object_array_get_idx(v, i), ns);
				else
					config_error(r, key, "no memory");
			}
		} else {
			config_error(r, key, "no such field");
		}
	}
	if (!s->nqn || !nv_nqn_valid(s->nqn, strlen(s->nqn) + 1))
		config_error(r, "nqn", s->nqn ? "is none" : "is missing");
#ifndef NT_HAVE_AUTH
	if (s->auth_required)
		config_error(r, "require_authentication", "built without OpenSSL");
#endif
}

static void read_addresses(struct reader *r, const char *key, json_object *v, struct nt_config_address **list,
                           size_t *count)
{
	for (size_t i = 0, n = list_length(r, key, v); i < n && !r->failed; i++) {
		struct nt_config_address *a = append_element(list, count, sizeof(**list));

		if (a)
			read_address(r, json_object_array_get_idx(v, i), a);
		else
			config_error(r, key, "no memory");
	}
}

static void read_announce(struct reader *r, const char *key, json_object *v, struct nt_config *c)
{
	get_text(r, key, v, &c->announce);
	if (!r->failed && c->announce && !nb_address_valid(c->announce))
		config_error(r, key, "must be an address");
}

static void read_config_object(struct reader *r, json_object *o, struct nt_config *c)
{
	if (!json_object_is_type(o, json_type_object)) {
		config_error(r, "configuration", "must be an object");
		return;
	}
	json_object_object_foreach(o, key, v)
	{
		if (!strcmp(key, "listen"))
			read_addresses(r, key, v, &c->listen, &c->listen_count);
		else if (!strcmp(key, "referrals"))
			read_addresses(r, key, v, &c->referrals, &c->referral_count);
		else if (!strcmp(key, "announce"))
			read_announce(r, key, v, c);
		else if (!strcmp(key, "host_limits"))
			read_host_limits(r, key, v, c);
		else if (!strcmp(key, "queues"))
			c->queues = (uint32_t)get_number(r, key, v, 1, NT_QUEUES_MAX);
		else if (!strcmp(key, "memory"))
			c->memory = (uint32_t)get_number(r, key, v, MEMORY_MIN, MEMORY_MAX);
		else if (!strcmp(key, "connections"))
			c->limits.connections = (uint32_t)get_number(r, key, v, 1, 65535);
		else if (!strcmp(key, "connections_per_host"))
			c->connections_per_host = (uint32_t)get_number(r, key, v, 1, 65535);
		else if (!strcmp(key, "stall_seconds"))
			c->limits.stall_ms = (uint32_t)get_number(r, key, v, 1, 3600) * 1000;
		else if (!strcmp(key, "subsystems")) {
			for (size_t i = 0, n = list_length(r, key, v); i < n && !r->failed; i++) {
				struct nt_config_subsystem *s = nt_config_subsystem(c);

				if (s)
					read_subsystem(r, json_object_array_get_idx(v, i), s);
				else
					config_error(r, key, "no memory");
				for (size_t k = 0; !r->failed && k + 1 < c->subsystem_count; k++)
					if (!strcmp(c->subsystems[k].nqn, s->nqn))
						config_error(r, s->nqn, "is there twice");
			}
		} else {
			config_error(r, key, "no such field");
		}
	}
}

bool nt_config_read(const char *file, struct nt_config *out, char **why)
{
	struct reader r = {.why = why, .file = file};
	struct stat st;

	*why = NULL;
	nt_config_default(out);
	if (!stat(file, &st) && S_ISREG(st.st_mode) && (st.st_mode & S_IWOTH)) {
		config_error(&r, file, "everybody can write to it");
		return false;
	}
	json_object *o = json_object_from_file(file);

	if (!o) {
		config_error(&r, file, json_util_get_last_err() ? json_util_get_last_err() : "is not JSON");
		return false;
	}
	read_config_object(&r, o, out);
	json_object_put(o);
	if (r.failed)
		nt_config_free(out);
	return !r.failed;
}
