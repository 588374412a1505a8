// main.c - verbena-target: serves files, block devices, memory and Ceph images as NVMe namespaces over the network
// follows: NVMe over Fabrics 1.1; man/verbena-target.8
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "target/program.h"
#include "target/server.h"
#include "target/size.h"

#define STOP_MS 5000 /* time for outstanding requests when the program must end */

void nt_say(const char *fmt, ...)
{
	char line[1024] = "verbena-target: ";
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(line + 16, sizeof(line) - 17, fmt, ap);
	va_end(ap);
	strcpy(line + (n < 0 ? 16 : n > (int)sizeof(line) - 19 ? (int)sizeof(line) - 2 : 16 + n), "\n");
	(void)!write(STDERR_FILENO, line, strlen(line));
}

/* ---- the command line ---- */

static const char usage[] =
        "usage: verbena-target --export IMAGE… [--listen ADDRESS] [--port PORT] [--nqn NQN] [--allow HOSTNQN]…\n"
        "       verbena-target --config FILE\n"
        "       verbena-target status|metrics|reload|stop [--port PORT]\n"
        "       verbena-target add|remove|limit|ana … [--port PORT]\n"
        "\n"
        "  --export IMAGE      a file, a block device, memory:SIZE, null:SIZE or\n"
        "                      rbd:POOL/IMAGE[@SNAP]; each is a namespace, from 1 on\n"
        "  --listen ADDRESS    default: 127.0.0.1; 0.0.0.0 or :: for all\n"
        "  --port PORT         default: 4420; 0 for any free port\n"
        "  --nqn NQN           the subsystem's name; default: derived from the first image\n"
        "  --allow HOSTNQN     only these hosts may connect; default: any\n"
        "  --transport NAME    tcp (default), rdma, or auto (both, if there is an RDMA adapter)\n"
        "  --read-only         hosts cannot write\n"
        "  --mapped            send reads from the page cache without a copy\n"
        "  --buffered          do not use O_DIRECT\n"
        "  --block-size BYTES  512 to 4096\n"
        "  --limit LIMITS      of each image, for example riops=1000,wbps=10M; see the manual page\n"
        "  --host-limit LIMITS of each host\n"
        "  --ceph-conf FILE    for rbd: the cluster's configuration; default: that of Ceph\n"
        "  --ceph-user ID      … the client without \"client.\"; default: admin\n"
        "  --ceph-keyring FILE … its key\n"
        "  --gateway NAME      … the name of this target among those that serve the images\n"
        "  --announce ADDRESS  … the address by which the others list it; default: that of --listen\n"
        "  --config FILE       a configuration in JSON; SIGHUP reads it again\n"
        "  --control PATH      the control socket\n"
        "  --threads           do not use io_uring\n";

struct options {
	const char *exports[64], *allow[64], *listen, *transport, *nqn, *config, *control, *ceph_conf, *ceph_user,
	        *ceph_keyring, *gateway, *announce;
	size_t export_count, allow_count;
	uint16_t port;
	uint32_t block;
	bool readonly, mapped, buffered, threads;
	struct nt_limits limits, each_host;
};

static bool report_bad(const char *what, const char *value)
{
	nt_say("%s: %s", what, value);
	return false;
}

static bool number_option(const char *name, const char *value, uint64_t most, uint64_t *out)
{
	return nt_number_parse(value, 10, most, out) || report_bad(name, value);
}

static bool limit_option(const char *name, const char *value, enum nt_limited of, struct nt_limits *l)
{
	char why[NT_LIMIT_WHY];

	return nt_limits_parse(l, of, value, why) || report_bad(name, why);
}

static bool take_target_option(int c, const char *value, struct options *o)
{
	uint64_t n = 0;

	switch (c) {
	case 'e':
		if (o->export_count == 64)
			return report_bad("--export", "too many");
		o->exports[o->export_count++] = value;
		return true;
	case 'a':
		if (o->allow_count == 64)
			return report_bad("--allow", "too many");
		o->allow[o->allow_count++] = value;
		return true;
	case 'l':
		o->listen = value;
		return true;
	case 'n':
		o->nqn = value;
		return true;
	case 'c':
		o->config = value;
		return true;
	case 'C':
		o->control = value;
		return true;
	case 'p':
		if (!number_option("--port", value, 65535, &n))
			return false;
		o->port = (uint16_t)n;
		return true;
	case 'b':
		if (!number_option("--block-size", value, 4096, &n))
			return false;
		o->block = (uint32_t)n;
		return true;
	case 't':
		o->transport = value;
		return !strcmp(value, "tcp") || !strcmp(value, "rdma") || !strcmp(value, "auto") ||
		       report_bad("no such transport", value);
	case 'L':
		return limit_option("--limit", value, NT_OF_NAMESPACE, &o->limits);
	case 'H':
		return limit_option("--host-limit", value, NT_OF_HOST, &o->each_host);
	case 'F':
		o->ceph_conf = value;
		return true;
	case 'U':
		o->ceph_user = value;
		return true;
	case 'K':
		o->ceph_keyring = value;
		return true;
	case 'G':
		o->gateway = value;
		return true;
	case 'A':
		o->announce = value;
		return nb_address_valid(value) || report_bad("--announce, not an address", value);
	case 'r':
		return o->readonly = true;
	case 'm':
		return o->mapped = true;
	case 'u':
		return o->buffered = true;
	case 'T':
		return o->threads = true;
	default:
		return false;
	}
}

static bool parse_options(int argc, char **argv, struct options *o)
{
	static const struct option options[] = {{"export", required_argument, NULL, 'e'},
	                                        {"allow", required_argument, NULL, 'a'},
	                                        {"listen", required_argument, NULL, 'l'},
	                                        {"nqn", required_argument, NULL, 'n'},
	                                        {"config", required_argument, NULL, 'c'},
	                                        {"control", required_argument, NULL, 'C'},
	                                        {"port", required_argument, NULL, 'p'},
	                                        {"block-size", required_argument, NULL, 'b'},
	                                        {"transport", required_argument, NULL, 't'},
	                                        {"read-only", no_argument, NULL, 'r'},
	                                        {"mapped", no_argument, NULL, 'm'},
	                                        {"buffered", no_argument, NULL, 'u'},
	                                        {"limit", required_argument, NULL, 'L'},
	                                        {"host-limit", required_argument, NULL, 'H'},
	                                        {"ceph-conf", required_argument, NULL, 'F'},
	                                        {"ceph-user", required_argument, NULL, 'U'},
	                                        {"ceph-keyring", required_argument, NULL, 'K'},
	                                        {"gateway", required_argument, NULL, 'G'},
	                                        {"announce", required_argument, NULL, 'A'},
	                                        {"threads", no_argument, NULL, 'T'},
	                                        {"help", no_argument, NULL, 'h'},
	                                        {"version", no_argument, NULL, 'V'},
	                                        {NULL, 0, NULL, 0}};
	int c;

	*o = (struct options){.port = NT_PORT_DEFAULT, .transport = "tcp"};
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'h' || c == 'V') {
			fputs(c == 'h' ? usage : "verbena-target " VB_VERSION "\n", stdout);
			exit(0);
		}
		if (!take_target_option(c, optarg, o))
			return false;
	}
	return true;
}

/* ---- from the command line to a configuration ---- */

static bool copy_text(char **to, const char *from)
{
	return !from || (*to = strdup(from));
}

static bool describe_export(const struct options *o, const char *what, struct nt_config_ns *ns)
{
	struct stat st;
	const char *colon = strchr(what, ':');
	size_t kind = colon ? (size_t)(colon - what) : 0;

	ns->ana_group = 1;
	ns->block = o->block;
	ns->readonly = o->readonly;
	ns->buffered = o->buffered;
	if (kind && (!strncmp(what, "memory", kind) || !strncmp(what, "null", kind))) {
		ns->kind = strndup(what, kind);
		return ns->kind && (nt_size_parse(colon + 1, &ns->size) || report_bad("no size", what));
	}
	if (kind == 3 && !strncmp(what, "rbd", kind)) {
		ns->kind = strndup(what, kind);
		ns->path = strdup(colon + 1);
		return ns->kind && ns->path && copy_text(&ns->ceph_conf, o->ceph_conf) &&
		       copy_text(&ns->ceph_user, o->ceph_user) && copy_text(&ns->ceph_keyring, o->ceph_keyring) &&
		       copy_text(&ns->gateway, o->gateway) &&
		       (!ns->gateway || nt_gateway_valid(ns) || report_bad("--gateway", "no such name is possible"));
	}
	if (stat(what, &st))
		return report_bad(what, strerror(errno));
	ns->path = realpath(what, NULL);
	ns->kind = strdup(S_ISBLK(st.st_mode) ? "block" : o->mapped ? "mapped" : "file");
	return ns->path && ns->kind;
}

/* The name is always the same for one image on one machine. */
static char *own_nqn(const struct nt_config_ns *ns)
{
	char seed[4096 + 256] = "", uuid[NV_UUID_TEXT], *nqn = NULL;
	uint8_t bytes[16];

	gethostname(seed, 255);
	strncat(seed, ns->path ? ns->path : ns->kind, sizeof(seed) - strlen(seed) - 1);
	nv_uuid_from(seed, 1, bytes);
	nv_uuid_format(bytes, uuid);
	return asprintf(&nqn, "nqn.2014-08.org.nvmexpress:uuid:%s", uuid) < 0 ? NULL : nqn;
}

static bool listen_by(struct nt_config *c, const struct options *o, const char *transport, bool optional)
{
	struct nt_config_address *a = nt_config_listen(c);

	if (!a)
		return false;
	a->transport = strdup(transport);
	a->address = strdup(o->listen ? o->listen : "127.0.0.1");
	a->port = o->port;
	a->optional = optional;
	a->second = !strcmp(transport, "iwarp");
	return a->transport && a->address;
}

static bool from_options(const struct options *o, struct nt_config *c)
{
	struct nt_config_subsystem *s = nt_config_subsystem(c);
	bool both = !strcmp(o->transport, "auto");

	if (!s || !listen_by(c, o, both ? "tcp" : o->transport, false) ||
	    (both && (!listen_by(c, o, "rdma", true) || !listen_by(c, o, "iwarp", true))))
		return false;
	for (size_t i = 0; i < o->export_count; i++) {
		struct nt_config_ns *ns = nt_config_ns(s);

		if (!ns || !describe_export(o, o->exports[i], ns))
			return false;
		ns->nsid = (uint32_t)i + 1;
		ns->limits = o->limits;
	}
	c->each_host = o->each_host;
	if (!copy_text(&c->announce, o->announce))
		return false;
	if (o->gateway && !o->nqn)
		return report_bad("--gateway", "needs --nqn, the same for all gateways");
	s->any_host = !o->allow_count;
	for (size_t i = 0; i < o->allow_count; i++)
		if (!nt_config_host(s, o->allow[i]))
			return false;
	s->nqn = o->nqn ? strdup(o->nqn) : own_nqn(s->ns);
	return s->nqn &&
	       (nv_nqn_valid(s->nqn, strlen(s->nqn) + 1) || report_bad("not a valid name of a subsystem", s->nqn));
}

static bool read_config(const char *file, struct nt_config *c)
{
	char *why;

	if (nt_config_read(file, c, &why))
		return true;
	nt_say("%s: %s", file, why ? why : "no memory");
	free(why);
	return false;
}

/* ---- status ---- */

static void print_urls(const struct nt_server *s)
{
	for (const struct nt_listener *l = s->listeners; l; l = l->next)
		for (size_t i = 0; i < s->config.subsystem_count; i++) {
			char other[257];
			const char *host = nt_listener_address(l);
			bool v6 = strchr(host, ':');

			if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::")) {
				nt_reachable_address(v6, other, sizeof(other));
				host = other;
			}
			v6 = strchr(host, ':');
			printf("nvme+%s://%s%s%s:%u/%s\n",
			       l->where.tls == NT_TLS_REQUIRED ? "tls" : nt_listener_transport(l), v6 ? "[" : "", host,
			       v6 ? "]" : "", nt_listener_port(l), s->config.subsystems[i].nqn);
		}
	fflush(stdout);
}

/* ---- the loop ---- */

static struct nt_server server;

static void reload_config(void)
{
	struct nt_config c;

	server.reload = false;
	if (!server.file) {
		nt_say("there is no configuration file to read again");
		return;
	}
	if (!read_config(server.file, &c))
		return;
	nt_reread(&server, nt_apply(&server, &c));
}

static void run_turn(uint64_t until)
{
	uint64_t next = until;

	nt_qos_tick(&server.target);
	nt_listeners_turn(&server, &next);
	nb_ring_flush(server.ring);
	uint64_t due = nt_target_tick(&server.target), late = nb_ring_turn(server.ring, nt_now());

	next = due < next ? due : next;
	next = late < next ? late : next;
	uint64_t now = nt_now(), wait = next <= now ? 0 : next - now;

	nt_loop_once(server.loop, next == UINT64_MAX ? -1 : wait > 60000 ? 60000 : (int)wait, &server.target.now);
}

static bool is_idle(void)
{
	for (const struct nt_subsystem *s = server.target.subsystems; s; s = s->next)
		for (const struct nt_controller *c = s->controllers; c; c = c->next)
			for (uint32_t i = 0; i <= NT_QUEUES_MAX; i++)
				if (c->queues[i] && c->queues[i]->in_use > (i ? 0 : c->aer_count))
					return false;
	return true;
}

/* Finishes outstanding requests, within a limited time, then ends all connections. */
static void stop_server(void)
{
	uint64_t until = nt_now() + STOP_MS;

	server.target.stopping = true; /* … and nothing waits for a limit any more */
	for (struct nt_listener *l = server.listeners; l; l = l->next)
		nt_listener_stop(l);
	while (!is_idle() && nt_now() < until)
		run_turn(nt_now() + 50);
	for (struct nt_listener *l = server.listeners; l; l = l->next)
		l->leaving = true;
	for (until = nt_now() + STOP_MS; server.listeners && nt_now() < until;)
		run_turn(nt_now() + 50);
	bool ended = !server.listeners;

	while (ended && server.target.subsystems)
		nt_subsystem_remove(server.target.subsystems);
	if (!ended || !nb_ring_drain(server.ring, STOP_MS)) {
		nt_say("a medium does not answer: the last writes to it may be lost");
		_exit(1);
	}
	if (nt_opening_count(&server)) /* threads that wait for a cluster use the ring */
		_exit(0);
}

static void open_control(const struct options *o, uint16_t port)
{
	char *path = o->control ? strdup(o->control) : nt_control_path("target", port);
	int error = path ? nt_control_open(server.loop, path, nt_answer_line, &server, &server.control) : EACCES;

	if (error)
		nt_say("no control socket%s%s: %s", path ? " at " : "", path ? path : "", strerror(error));
	free(path);
}

/* 0: the system chooses the port. */
static uint16_t named_port(const struct nt_config *c)
{
	return c->listen_count ? c->listen[0].port : 0;
}

static bool set_up_server(const struct options *o, struct nt_config *c)
{
	int error;

	server.file = o->config;
	error = nt_program_open(&server.loop, &server.ring, o->threads, &server.stop, &server.reload);
	if (!error)
		error = nt_target_init(&server.target, c->memory);
	if (error) {
		nt_say("%s", strerror(error));
		return false;
	}
	server.target.say = nt_say;
#ifdef NT_HAVE_AUTH
	server.target.auth = &nt_dhchap;
#endif
	server.target.now = server.target.started = nt_now();
	if (o->control || named_port(c)) /* media of other machines may take a while */
		open_control(o, named_port(c));
	return !nt_apply(&server, c) && server.listeners;
}

static int ask_target(const struct options *o, int argc, char **argv)
{
	char *path = o->control ? strdup(o->control) : nt_control_path("target", o->port);
	int status = path ? nt_control_ask("verbena-target", path, argc, argv) : 1;

	free(path);
	return status;
}

int main(int argc, char **argv)
{
	struct options o;
	struct nt_config c;

	if (!parse_options(argc, argv, &o)) {
		fputs(usage, stderr);
		return 2;
	}
	if (optind < argc)
		return ask_target(&o, argc - optind, argv + optind);
	if (!o.config == !o.export_count) {
		fputs(usage, stderr);
		return 2;
	}
	nt_config_default(&c);
	if (o.config ? !read_config(o.config, &c) : !from_options(&o, &c)) {
		nt_config_free(&c);
		return 1;
	}
	bool served = set_up_server(&o, &c);

	if (served) {
		if (!o.control && !named_port(&server.config))
			open_control(&o, nt_listener_port(server.listeners));
		print_urls(&server);
		server.serving = true;
		while (!server.stop) {
			run_turn(UINT64_MAX);
			if (server.reload)
				reload_config();
		}
	}
	nt_control_close(server.control);
	server.control = NULL;
	nt_config_free(&c);
	if (server.loop && server.ring && server.target.pool) {
		stop_server();
		nt_target_fini(&server.target);
	}
	nt_config_free(&server.config);
	nb_ring_close(server.ring);
	nt_loop_close(server.loop);
	int status = !served && !server.stop;

	if (nb_threads_left())
		_exit(status);
	return status;
}
