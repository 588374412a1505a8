// change.c - commands of the control socket that change namespaces and limits while hosts use them
// see: man/verbena-target.8
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target/server.h"

static char *say_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *say_error(const char *format, ...)
{
	char text[512], *answer = NULL;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return asprintf(&answer, "error: %s\n", text) < 0 ? NULL : answer;
}

static struct nt_subsystem *subsystem_named(struct nt_server *s, const char *nqn)
{
	struct nt_subsystem *x = nqn ? nt_subsystem_find(&s->target, nqn) : NULL;

	return x && !x->discovery ? x : NULL;
}

/* A number from 1 on, without anything behind it; 0: something else. */
static uint32_t nsid_of(const char *text)
{
	char *end;
	unsigned long n = text && *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;

	return n && n <= NT_NAMESPACES_MAX && !*end ? (uint32_t)n : 0;
}

/* ---- limits ---- */

#define LIMIT_USAGE \
	"limit namespace NQN NSID NAME=VALUE…, limit host HOSTNQN NAME=VALUE…|default, or limit hosts NAME=VALUE…"

static char *limit_namespace(struct nt_server *s, char *rest)
{
	const char *nqn = strtok_r(rest, " ", &rest), *number = strtok_r(NULL, " ", &rest);
	struct nt_subsystem *x = subsystem_named(s, nqn);
	uint32_t nsid = nsid_of(number);
	struct nt_namespace *ns = x && nsid ? x->ns[nsid] : NULL;
	char why[NT_LIMIT_WHY];

	if (!number || !*rest)
		return say_error(LIMIT_USAGE);
	if (!ns)
		return say_error("there is no namespace %.10s of %.223s", number, nqn);
	struct nt_limits l = ns->gate.limits;

	if (!nt_limits_parse(&l, NT_OF_NAMESPACE, rest, why))
		return say_error("%s", why);
	nt_limit_namespace(ns, &l);
	return strdup("ok\n");
}

static char *limit_host(struct nt_server *s, char *rest)
{
	const char *nqn = strtok_r(rest, " ", &rest);
	char why[NT_LIMIT_WHY];

	if (!nqn || !*rest)
		return say_error(LIMIT_USAGE);
	struct nt_limits l = *nt_limits_of_host(&s->target, nqn);
	bool own = strcmp(rest, "default");

	if (own && !nt_limits_parse(&l, NT_OF_HOST, rest, why))
		return say_error("%s", why);
	if (!nt_limit_host(&s->target, nqn, own ? &l : NULL))
		return say_error("%.223s is not a valid name of a host", nqn);
	return strdup("ok\n");
}

static char *limit_hosts(struct nt_server *s, const char *rest)
{
	struct nt_limits l = s->target.each_host;
	char why[NT_LIMIT_WHY];

	if (!*rest)
		return say_error(LIMIT_USAGE);
	if (!nt_limits_parse(&l, NT_OF_HOST, rest, why))
		return say_error("%s", why);
	nt_limit_each_host(&s->target, &l);
	return strdup("ok\n");
}

static char *change_limit(struct nt_server *s, char *rest)
{
	const char *what = strtok_r(rest, " ", &rest);

	if (what && !strcmp(what, "namespace"))
		return limit_namespace(s, rest);
	if (what && !strcmp(what, "host"))
		return limit_host(s, rest);
	if (what && !strcmp(what, "hosts"))
		return limit_hosts(s, rest);
	return say_error(LIMIT_USAGE);
}

/* ---- namespaces ---- */

void nt_config_drop_ns(struct nt_config *c, const char *nqn, uint32_t nsid)
{
	for (size_t i = 0; i < c->subsystem_count; i++) {
		struct nt_config_subsystem *s = &c->subsystems[i];

		for (size_t k = 0; !strcmp(s->nqn, nqn) && k < s->ns_count; k++) {
			if (s->ns[k].nsid != nsid)
				continue;
			nt_config_free_ns(&s->ns[k]);
			s->ns[k] = s->ns[--s->ns_count];
			return;
		}
	}
}

/* The configuration in force has what is served, so that reading the file again finds the differences. */
static struct nt_config_subsystem *configured(struct nt_server *s, const char *nqn)
{
	for (size_t i = 0; i < s->config.subsystem_count; i++)
		if (!strcmp(s->config.subsystems[i].nqn, nqn))
			return &s->config.subsystems[i];
	return NULL;
}

static struct json_object *json_value_of(const char *text)
{
	bool yes = !strcmp(text, "true");

	return yes || !strcmp(text, "false") ? json_object_new_boolean(yes) : json_object_new_string(text);
}

/* Makes the object that the configuration would have: NAME=VALUE…, limits among them. NULL and *bad: a word that is
 * not of this form. */
static struct json_object *object_of(char *words, const char **bad)
{
	struct json_object *o = json_object_new_object(), *limits = json_object_new_object();

	*bad = NULL;
	for (char *word; !*bad && (word = strtok_r(words, " ", &words));) {
		char *value = strchr(word, '=');

		if (!value) {
			*bad = word;
			break;
		}
		*value++ = 0;
		json_object_object_add(nt_limit_known(word) ? limits : o, word, json_value_of(value));
	}
	json_object_object_add(o, "limits", limits);
	if (*bad) {
		json_object_put(o);
		return NULL;
	}
	return o;
}

/* The target's working directory is another one than that of its client. */
static bool is_path(const char *kind)
{
	return !strcmp(kind, "file") || !strcmp(kind, "block") || !strcmp(kind, "mapped");
}

static char *add_described(struct nt_server *s, struct nt_subsystem *x, struct nt_config_ns *ns)
{
	struct nt_config_subsystem *c = configured(s, x->nqn);

	if (ns->path && *ns->path != '/' && is_path(ns->kind))
		return say_error("path=%.200s: must begin with /", ns->path);
	if (x->ns[ns->nsid])
		return say_error("there is a namespace %u already", ns->nsid);
	if (nt_is_opening(s, x->nqn, ns->nsid))
		return say_error("namespace %u is being opened", ns->nsid);
	struct nt_config_ns *entry = c ? nt_config_ns(c) : NULL;

	if (!entry)
		return say_error("no memory");
	bool later = nt_opens_later(s, ns);
	uint64_t asker = later ? nt_control_defer(s->control) : 0;

	if (later && !asker) {
		c->ns_count--;
		return say_error("too many images are being opened");
	}
	int error = later ? nt_open_later(s, x, ns, asker) : nt_apply_ns(s, x, ns);

	if (error) {
		c->ns_count--;
		return say_error("namespace %u (%s%s%.200s): %s", ns->nsid, ns->kind, ns->path ? " " : "",
		                 ns->path ? ns->path : "", strerror(error));
	}
	*entry = *ns;
	memset(ns, 0, sizeof(*ns));
	return later ? NT_LATER : strdup("ok\n");
}

static char *add_namespace(struct nt_server *s, char *rest)
{
	const char *nqn = strtok_r(rest, " ", &rest), *bad;
	struct nt_subsystem *x = subsystem_named(s, nqn);

	if (!nqn || !*rest)
		return say_error("add NQN nsid=N backend=KIND path=PATH|size=SIZE NAME=VALUE…");
	if (!x)
		return say_error("there is no subsystem %.223s", nqn);
	struct json_object *o = object_of(rest, &bad);
	struct nt_config_ns ns;
	char *why;

	if (!o)
		return say_error("%.100s: must be NAME=VALUE", bad);
	bool right = nt_config_read_ns(o, &ns, &why);

	json_object_put(o);
	char *answer = right ? add_described(s, x, &ns) : say_error("%s", why ? why : "no memory");

	if (right)
		nt_config_free_ns(&ns);
	else
		free(why);
	return answer;
}

static char *remove_namespace(struct nt_server *s, char *rest)
{
	const char *nqn = strtok_r(rest, " ", &rest), *number = strtok_r(NULL, " ", &rest);
	struct nt_subsystem *x = subsystem_named(s, nqn);
	uint32_t nsid = nsid_of(number);

	if (!number || *rest)
		return say_error("remove NQN NSID");
	if (!x || !nsid || !(x->ns[nsid] || nt_is_opening(s, nqn, nsid)))
		return say_error("there is no namespace %.10s of %.223s", number, nqn);
	if (x->ns[nsid]) /* otherwise it is not served when it is open */
		nt_namespace_remove(x->ns[nsid]);
	nt_listeners_let_go();
	nt_config_drop_ns(&s->config, nqn, nsid);
	return strdup("ok\n");
}

char *nt_change(struct nt_server *s, char *line)
{
	const char *command = strtok_r(line, " ", &line);

	if (command && !strcmp(command, "limit"))
		return change_limit(s, line);
	if (command && !strcmp(command, "add"))
		return add_namespace(s, line);
	if (command && !strcmp(command, "remove"))
		return remove_namespace(s, line);
	return NULL;
}
