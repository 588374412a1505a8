// cmd_link.c - verbena link: adapters that a file names
// follows: verbena-link(1); rdma-link(8) of iproute2, whose words it uses
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/device.h"
#include "tools/control.h"
#include "tools/link_file.h"
#include "tools/verbena.h"
#include "util/env.h"
#include "util/settings.h"

#define TELL_MS 1000

enum { OK, FAILED, USAGE };

struct request {
	bool system, user, force, json;
	int argc; /* words that are no options */
	char *argv[16];
};

static int misuse(const char *why, const char *word)
{
	cmd_complain("link", "%s%s%s; 'verbena link --help' shows the usage", why, word ? ": " : "", word ? word : "");
	return USAGE;
}

static bool select_path(const struct request *r, char path[VB_LINKS_ROOM])
{
	const char *devices = vb_env("VERBENA_DEVICES");

	if (r->system || (!r->user && geteuid() == 0))
		vb_links_system_path(path);
	else if (!vb_links_user_path(path))
		return cmd_complain("link", "there is no home directory: set XDG_CONFIG_HOME or HOME, or say --system"),
		       false;
	if (devices && *devices)
		cmd_complain("link", "VERBENA_DEVICES is set, so programs with it do not read %s", path);
	return true;
}

/* --- show --- */

static const char *link_mtu_text(const struct vb_link *k, char text[16])
{
	if (!k || !k->mtu)
		return "auto";
	snprintf(text, 16, "%u", k->mtu);
	return text;
}

static void show_row(const struct request *r, bool first, const char *name, bool iwarp, const char *netdev,
                     const char *state, const struct vb_link *k)
{
	char mtu[16];

	if (!r->json) {
		printf("%-20s %-6s %-15s %-7s %-5s ", name, iwarp ? "iwarp" : "roce", netdev, state,
		       link_mtu_text(k, mtu));
		if (k)
			printf("line %u\n", k->line);
		else
			puts("automatic");
		return;
	}
	printf("%s{\"name\": ", first ? "" : ",\n ");
	cmd_print_json_string(name);
	printf(", \"type\": \"%s\", \"netdev\": ", iwarp ? "iwarp" : "roce");
	cmd_print_json_string(netdev);
	printf(", \"state\": \"%s\", \"mtu\": %u, \"line\": %u}", state, k ? k->mtu : 0, k ? k->line : 0);
}

static const char *device_state(struct vb_device *dev)
{
	struct ibv_port_attr port = {0};

	vb_query_port_attr(dev, 1, &port);
	return port.state == IBV_PORT_ACTIVE ? "active" : "down";
}

static unsigned show_present(const struct request *r, const struct vb_links *l, const char *only, bool seen[])
{
	struct ibv_device **list = vb_device_list(NULL);
	unsigned shown = 0;

	for (int i = 0; list && list[i]; i++) {
		struct vb_device *dev = vb_device_of(list[i]);
		struct vb_netdev nd;

		vb_device_netdev(dev, &nd);
		const struct vb_link *k = vb_links_of(l, nd.name, dev->iwarp);

		if (k)
			seen[k - l->link] = true;
		if (only && strcmp(only, list[i]->name) != 0)
			continue;
		show_row(r, !shown, list[i]->name, dev->iwarp, nd.name, device_state(dev), k);
		shown++;
	}
	if (list)
		vb_device_list_free(list);
	return shown;
}

static unsigned show_ib(const struct request *r, bool first, const struct vb_link_ib *k)
{
	if (!r->json) {
		printf("%-20s %-6s %s%s%s line %u\n", VB_LINKS_IB, "ib", k->fabric, *k->node ? " " : "", k->node,
		       k->line);
		return 1;
	}
	printf("%s{\"name\": \"" VB_LINKS_IB "\", \"type\": \"ib\", \"fabric\": ", first ? "" : ",\n ");
	cmd_print_json_string(k->fabric);
	fputs(", \"node\": ", stdout);
	cmd_print_json_string(k->node);
	fputs(", \"secret\": ", stdout);
	cmd_print_json_string(k->secret);
	printf(", \"line\": %u}", k->line);
	return 1;
}

static int show_links(const struct request *r)
{
	static bool seen[VB_LINKS_MAX];
	static struct vb_links l;
	const char *only = r->argc > 1 ? r->argv[1] : NULL, *devices = vb_env("VERBENA_DEVICES");
	char path[VB_LINKS_ROOM] = "";

	if (r->argc > 2)
		return misuse("show takes one name", NULL);
	vb_settings_check();
	l.automatic = true;
	unsigned wrong = devices && *devices ? 0 : vb_links_load(&l, path, false);

	if (r->json) {
		fputs("{\"file\": ", stdout);
		cmd_print_json_string(path);
		printf(", \"automatic\": %s, \"links\": [", l.automatic ? "true" : "false");
	} else if (*path) {
		printf("# %s, automatic adapters are %s\n", path, l.automatic ? "on" : "off");
	}
	unsigned shown = show_present(r, &l, only, seen);

	for (unsigned i = 0; i < l.n; i++)
		if (!seen[i] && (!only || !strcmp(only, l.link[i].name)))
			show_row(r, !shown++, l.link[i].name, l.link[i].iwarp, l.link[i].netdev, "absent", &l.link[i]);
	if (l.ib.line && (!only || !strcmp(only, VB_LINKS_IB)))
		shown += show_ib(r, !shown, &l.ib);
	if (r->json)
		puts("]}");
	if (only && !shown)
		return cmd_complain("link", "there is no adapter '%s'; 'verbena link show' lists them", only), FAILED;
	return wrong ? FAILED : OK;
}

/* --- add, set, del --- */

static void format_link(const struct vb_link *k, char line[256])
{
	int n = snprintf(line, 256, "link %s type %s netdev %s", k->name, k->iwarp ? "iwarp" : "roce", k->netdev);

	if (k->mtu)
		n += snprintf(line + n, 256 - (size_t)n, " mtu %u", k->mtu);
	snprintf(line + n, 256 - (size_t)n, "%s\n", k->down ? " state down" : "");
}

/* Reads the words after the name. seen has bit 0 for a type and bit 1 for an interface. */
static int read_words(const struct request *r, struct vb_link *k, unsigned *seen)
{
	for (int i = 2; i < r->argc; i++) {
		const char *key = r->argv[i];
		bool word = !strcmp(key, "up") || !strcmp(key, "down");
		const char *value = word ? key : i + 1 < r->argc ? r->argv[++i] : NULL;

		if (!value)
			return misuse("no value", key);
		if (word || !strcmp(key, "state")) {
			if (strcmp(value, "up") != 0 && strcmp(value, "down") != 0)
				return misuse("the state is up or down", value);
			k->down = !strcmp(value, "down");
		} else if (!strcmp(key, "type")) {
			if (strcmp(value, "roce") != 0 && strcmp(value, "iwarp") != 0)
				return misuse("the type is roce or iwarp, or ib in a line of its own", value);
			k->iwarp = !strcmp(value, "iwarp");
			*seen |= 1;
		} else if (!strcmp(key, "netdev")) {
			if (!vb_links_is_netdev(value))
				return misuse("no name of an interface", value);
			strcpy(k->netdev, value);
			*seen |= 2;
		} else if (!strcmp(key, "mtu")) {
			k->mtu = vb_links_mtu(value);
			if (!k->mtu && strcmp(value, "auto") != 0)
				return misuse("the mtu is 256, 512, 1024, 2048, 4096 or auto", value);
		} else if (!strcmp(key, "name") && !strcmp(r->argv[0], "set")) {
			if (!vb_links_is_name(value))
				return misuse("no name of an adapter", value);
			strcpy(k->name, value);
		} else {
			return misuse("unknown word", key);
		}
	}
	return OK;
}

/* May the line be written? old is the line that it replaces, or NULL. */
static bool fits_others(const struct link_file *f, const struct vb_link *k, const struct vb_link *old, bool force)
{
	const struct vb_link *name = vb_links_named(&f->links, k->name);
	const struct vb_link *same = vb_links_of(&f->links, k->netdev, k->iwarp);

	if ((name && name != old) || (f->links.ib.line && !strcmp(k->name, VB_LINKS_IB)))
		return cmd_complain("link", "there is an adapter '%s' already (%s:%u)", k->name, f->path,
		                    name ? name->line : f->links.ib.line),
		       false;
	if (same && same != old)
		return cmd_complain("link", "%s has the %s adapter '%s' already (%s:%u)", k->netdev,
		                    k->iwarp ? "iwarp" : "roce", same->name, f->path, same->line),
		       false;
	if (!force && !if_nametoindex(k->netdev))
		return cmd_complain("link", "there is no interface '%s' here; --force writes the line all the same",
		                    k->netdev),
		       false;
	if (!old && f->links.n == VB_LINKS_MAX)
		return cmd_complain("link", "%s names %d adapters already", f->path, VB_LINKS_MAX), false;
	return true;
}

static bool is_ib_request(const struct request *r)
{
	for (int i = 2; i + 1 < r->argc; i += 2)
		if (!strcmp(r->argv[i], "type") && !strcmp(r->argv[i + 1], "ib"))
			return true;
	return false;
}

/* A fabric of another host needs more than its address. Programs may have the rest in variables: --force. */
static bool reaches_fabric(const struct vb_link_ib *k, bool force)
{
	bool far = !strncmp(k->fabric, "udp:", 4);

	if (force)
		return true;
	if (far && (!*k->node || !*k->secret))
		return cmd_complain("link",
		                    "%s needs node and secret; --force writes the line all the same, for programs "
		                    "that have VERBENA_NODE and VERBENA_FABRIC_SECRET",
		                    k->fabric),
		       false;
	if (*k->secret && access(k->secret, R_OK))
		return cmd_complain("link", "%s: %s; --force writes the line all the same", k->secret, strerror(errno)),
		       false;
	return true;
}

/* The words stand in the line as they are, so they have no blanks and begin no comment. */
static int add_ib(const struct request *r, struct link_file *f)
{
	struct vb_link_ib k = {.line = 0};
	char line[512];

	for (int i = 2; i < r->argc; i += 2) {
		const char *value = i + 1 < r->argc ? r->argv[i + 1] : NULL;
		const char *why = NULL;

		if (strcmp(r->argv[i], "type") != 0)
			why = vb_links_set_ib(&k, r->argv[i], value);
		else if (!value || strcmp(value, "ib") != 0)
			why = "a setting is there twice";
		if (!why && strpbrk(value, " \t\n#"))
			why = "a value has a blank or #";
		if (why)
			return misuse(why, r->argv[i]);
	}
	if (strcmp(r->argv[1], VB_LINKS_IB) != 0)
		return misuse("an adapter of type ib is called " VB_LINKS_IB, NULL);
	if (!*k.fabric || !strcmp(k.fabric, "udp:"))
		return misuse("type ib needs a fabric: its socket, or udp:HOST", NULL);
	if (!reaches_fabric(&k, r->force))
		return FAILED;
	if (!select_path(r, f->path) || !link_file_open(f))
		return FAILED;
	if (f->links.ib.line || vb_links_named(&f->links, VB_LINKS_IB))
		return cmd_complain("link", "there is an adapter '" VB_LINKS_IB "' already (%s)", f->path), FAILED;
	snprintf(line, sizeof(line), "link " VB_LINKS_IB " type ib fabric %s%s%s%s%s\n", k.fabric,
	         *k.node ? " node " : "", k.node, *k.secret ? " secret " : "", k.secret);
	return link_file_store(f, 0, line) ? OK : FAILED;
}

static int add_link(const struct request *r, struct link_file *f)
{
	struct vb_link k = {.line = 0};
	unsigned seen = 0;
	char line[256];

	if (!vb_links_is_name(r->argv[1]))
		return misuse("no name of an adapter", r->argv[1]);
	if (is_ib_request(r))
		return add_ib(r, f);
	strcpy(k.name, r->argv[1]);
	int status = read_words(r, &k, &seen);

	if (status)
		return status;
	if (seen != 3)
		return misuse("add needs a type and a netdev", NULL);
	if (!select_path(r, f->path) || !link_file_open(f) || !fits_others(f, &k, NULL, r->force))
		return FAILED;
	format_link(&k, line);
	return link_file_store(f, 0, line) ? OK : FAILED;
}

/* An adapter without a line: automatic ones get their line with the first setting. */
static bool find_automatic(const char *name, struct vb_link *k)
{
	struct ibv_device **list = vb_device_list(NULL);
	bool found = false;

	for (int i = 0; list && list[i] && !found; i++) {
		struct vb_netdev nd;

		if (strcmp(list[i]->name, name) != 0)
			continue;
		vb_device_netdev(vb_device_of(list[i]), &nd);
		*k = (struct vb_link){.iwarp = vb_device_of(list[i])->iwarp};
		snprintf(k->name, sizeof(k->name), "%s", name);
		snprintf(k->netdev, sizeof(k->netdev), "%s", nd.name);
		found = true;
	}
	if (list)
		vb_device_list_free(list);
	return found;
}

static int set_link(const struct request *r, struct link_file *f)
{
	struct vb_link k, probe = {.line = 0};
	unsigned seen = 0;
	char line[256];

	if (r->argc < 3)
		return misuse("set needs what is to change", NULL);
	int status = read_words(r, &probe, &seen);

	if (status)
		return status;
	if (!select_path(r, f->path) || !link_file_open(f))
		return FAILED;
	const struct vb_link *old = vb_links_named(&f->links, r->argv[1]);

	if (!old && !strcmp(r->argv[1], VB_LINKS_IB))
		return cmd_complain("link", "an adapter of type ib is not changed, but removed (del) and added again"),
		       FAILED;
	if (old)
		k = *old;
	else if (!find_automatic(r->argv[1], &k))
		return cmd_complain("link", "there is no adapter '%s'; 'verbena link show' lists them", r->argv[1]),
		       FAILED;
	read_words(r, &k, &seen);
	if (!fits_others(f, &k, old, r->force || !(seen & 2)))
		return FAILED;
	format_link(&k, line);
	return link_file_store(f, old ? old->line : 0, line) ? OK : FAILED;
}

static int delete_link(const struct request *r, struct link_file *f)
{
	struct vb_link k;

	if (r->argc > 2)
		return misuse("del takes one name", NULL);
	if (!select_path(r, f->path) || !link_file_open(f))
		return FAILED;
	const struct vb_link *old = vb_links_named(&f->links, r->argv[1]);

	if (f->links.ib.line && !strcmp(r->argv[1], VB_LINKS_IB))
		return link_file_store(f, f->links.ib.line, NULL) ? OK : FAILED;
	if (old)
		return link_file_store(f, old->line, NULL) ? OK : FAILED;
	if (find_automatic(r->argv[1], &k))
		cmd_complain("link", "'%s' is not named in %s; 'verbena link automatic off' ends automatic adapters",
		             r->argv[1], f->path);
	else
		cmd_complain("link", "there is no adapter '%s'; 'verbena link show' lists them", r->argv[1]);
	return FAILED;
}

static int set_automatic(const struct request *r, struct link_file *f)
{
	char line[32];

	if (r->argc != 2 || (strcmp(r->argv[1], "on") != 0 && strcmp(r->argv[1], "off") != 0))
		return misuse("automatic is on or off", NULL);
	if (!select_path(r, f->path) || !link_file_open(f))
		return FAILED;
	if (f->links.automatic == !strcmp(r->argv[1], "on"))
		return OK;
	snprintf(line, sizeof(line), "automatic %s\n", r->argv[1]);
	return link_file_store(f, f->links.automatic_line, line) ? OK : FAILED;
}

/* Running programs read the file now. One that does not answer reads it when it lists its devices. */
static void tell_programs(void)
{
	struct ctl_list list;

	if (ctl_find(&list, 0, true))
		return;
	ctl_ask(&list, "refresh", -1, TELL_MS);
	ctl_free(&list);
}

static int run_change(const struct request *r, int (*change)(const struct request *, struct link_file *))
{
	static struct link_file f = {.dir = -1};

	if (r->argc < 2)
		return misuse(change == set_automatic ? "automatic needs on or off" : "a name is missing", NULL);
	if (vb_env_is_hostile()) {
		cmd_complain("link", "this program runs with more privileges than its caller: it changes no file");
		return FAILED;
	}
	vb_settings_leave_to_program(); /* the change itself names wrong lines */
	int status = change(r, &f);

	link_file_close(&f);
	if (status == OK)
		tell_programs();
	if (status == OK && r->json) {
		fputs("{\"file\": ", stdout);
		cmd_print_json_string(f.path);
		puts("}");
	}
	return status;
}

static int read_link_options(int argc, char **argv, struct request *r)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json"))
			r->json = true;
		else if (!strcmp(argv[i], "--system"))
			r->system = true;
		else if (!strcmp(argv[i], "--user"))
			r->user = true;
		else if (!strcmp(argv[i], "--force"))
			r->force = true;
		else if (argv[i][0] == '-')
			return misuse("unknown option", argv[i]);
		else if (r->argc == 16)
			return misuse("too many words", argv[i]);
		else
			r->argv[r->argc++] = argv[i];
	}
	return r->system && r->user ? misuse("--system and --user exclude each other", NULL) : OK;
}

int cmd_link(int argc, char **argv)
{
	struct request r = {.argc = 0};
	int status = read_link_options(argc, argv, &r);
	const char *verb = r.argc ? r.argv[0] : "show";

	if (status)
		return status;
	if (!strcmp(verb, "show"))
		return show_links(&r);
	if (!strcmp(verb, "add"))
		return run_change(&r, add_link);
	if (!strcmp(verb, "set"))
		return run_change(&r, set_link);
	if (!strcmp(verb, "del") || !strcmp(verb, "delete"))
		return run_change(&r, delete_link);
	if (!strcmp(verb, "automatic"))
		return run_change(&r, set_automatic);
	return misuse("the first word is add, set, del, show or automatic", verb);
}
