// cmd_exporter.c - verbena exporter: serves counters of running programs to Prometheus
// follows: verbena-exporter(1); OpenMetrics 1.0.0
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/http_server.h"
#include "tools/metrics.h"
#include "tools/stat_options.h"
#include "tools/target_page.h"
#include "tools/verbena.h"

#define DEFAULT_ADDRESS "127.0.0.1:9975"
#define BACKLOG 64

static const char *const usage = "Usage: verbena exporter [--listen ADDRESS:PORT|unix:PATH] [--device NAME]\n"
                                 "Serves the counters of running programs to Prometheus, at /metrics, and those of\n"
                                 "verbena-target at /target/PORT, until it gets SIGTERM or SIGINT.\n"
                                 "\n"
                                 "  --listen ADDRESS:PORT   where to listen (default: " DEFAULT_ADDRESS ");\n"
                                 "                          [ADDRESS]:PORT for IPv6\n"
                                 "  --listen unix:PATH      listen on a Unix socket\n"
                                 "  --device NAME           only this adapter\n"
                                 "  --help                  show this\n"
                                 "\n"
                                 "Exit status: 0 after a signal, 1 failure, 2 wrong usage.\n";

static struct stat_query query;

static int metrics_page(const struct http_request *r, struct vb_text *body, const char **type)
{
	bool silent;

	if (!strcmp(r->path, "/")) {
		vb_text_put(body,
		            "<html><head><title>Verbena</title></head><body><a href=\"/metrics\">metrics</a></body>"
		            "</html>\n");
		*type = "text/html; charset=utf-8";
		return 200;
	}
	static const char target[] = "/target/";
	bool is_target = !strncmp(r->path, target, sizeof(target) - 1);
	int status = is_target                     ? target_page(r->path + sizeof(target) - 1, body)
	             : strcmp(r->path, "/metrics") ? 404
	                                           : 200;

	if (status != 200)
		return status;
	if (!is_target && metrics_write(body, "exporter", &query, &silent))
		return 500;
	*type = r->openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
	                       : "text/plain; version=0.0.4; charset=utf-8";
	return 200;
}

/* Removes a socket that nobody listens on any more. */
static void remove_dead_socket(const struct sockaddr_un *sun)
{
	struct stat st;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return;
	if (!lstat(sun->sun_path, &st) && S_ISSOCK(st.st_mode) &&
	    connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) && errno == ECONNREFUSED)
		unlink(sun->sun_path);
	close(fd);
}

static int listen_unix(const char *path, int *fd)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	if (!*path)
		return EINVAL;
	if (strlen(path) >= sizeof(sun.sun_path))
		return ENAMETOOLONG;
	strcpy(sun.sun_path, path);
	remove_dead_socket(&sun);
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0 || bind(*fd, (struct sockaddr *)&sun, sizeof(sun)) || listen(*fd, BACKLOG))
		return errno;
	return 0;
}

/* Splits ADDRESS:PORT; the address of IPv6 is in brackets. */
static bool split_address(const char *text, char host[256], const char **port)
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;

	if (!n || !colon[1] || n >= 256)
		return false;
	if (text[0] == '[' && text[n - 1] == ']') {
		text++;
		n -= 2;
	}
	snprintf(host, 256, "%.*s", (int)n, text);
	*port = colon + 1;
	return n > 0 && strtoul(*port, NULL, 10) <= UINT16_MAX;
}

static int bind_first(const struct addrinfo *list, int *fd)
{
	const int one = 1;
	int err = EADDRNOTAVAIL;

	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		*fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (*fd < 0) {
			err = errno;
			continue;
		}
		setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (!bind(*fd, a->ai_addr, a->ai_addrlen) && !listen(*fd, BACKLOG))
			return 0;
		err = errno;
		close(*fd);
		*fd = -1;
	}
	return err;
}

static int listen_tcp(const char *text, int *fd)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	                               .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *list;
	char host[256];
	const char *port;

	if (!split_address(text, host, &port) || getaddrinfo(host, port, &hints, &list))
		return EINVAL;
	int err = bind_first(list, fd);

	freeaddrinfo(list);
	return err;
}

static int signals_fd(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The address that the kernel has chosen, if the port was 0. */
static void say_where(const char *where, int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char host[128], port[16];

	if (!strncmp(where, "unix:", 5) || getsockname(fd, (struct sockaddr *)&ss, &len) ||
	    getnameinfo((struct sockaddr *)&ss, len, host, sizeof(host), port, sizeof(port),
	                NI_NUMERICHOST | NI_NUMERICSERV))
		fprintf(stderr, "verbena exporter: listening on %s\n", where);
	else
		fprintf(stderr, "verbena exporter: http://%s%s%s:%s/metrics\n", strchr(host, ':') ? "[" : "", host,
		        strchr(host, ':') ? "]" : "", port);
}

static int run_exporter(const char *where)
{
	bool is_unix = !strncmp(where, "unix:", 5);
	int fd = -1, stop = signals_fd();
	int err = stop < 0 ? errno : is_unix ? listen_unix(where + 5, &fd) : listen_tcp(where, &fd);

	if (err == EINVAL) {
		cmd_complain("exporter", "--listen needs ADDRESS:PORT with numbers, or unix:PATH, not '%s'", where);
		return 2;
	}
	if (err) {
		cmd_complain("exporter", "cannot listen on %s: %s", where, strerror(err));
		return 1;
	}
	say_where(where, fd);
	err = http_serve(fd, stop, metrics_page);
	if (is_unix)
		unlink(where + 5);
	if (err)
		cmd_complain("exporter", "%s", strerror(err));
	return err != 0;
}

int cmd_exporter(int argc, char **argv)
{
	const char *where = DEFAULT_ADDRESS, *value;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			fputs(usage, stdout);
			cmd_name_manual(stdout, "verbena-exporter");
			return 0;
		}
		if (stat_option(argv, &i, "--listen", &value)) {
			where = value ? value : "";
			continue;
		}
		int r = !strncmp(argv[i], "--device", 8) ? stat_option_query("exporter", argv, &i, &query) : 0;
		if (r < 0)
			return 2;
		if (!r) {
			cmd_complain("exporter", "unknown argument '%s'; 'verbena exporter --help' lists them",
			             argv[i]);
			return 2;
		}
	}
	return run_exporter(where);
}
