// srp_host.c - verbena-srp-host: logs in at SRP targets as Linux's ib_srp does when add_target is written, for NBD clients
// follows: man/verbena-srp-host.8; Linux Documentation/ABI/stable/sysfs-driver-ib_srp
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/srp_ask.h"
#include "tools/srp_host.h"

#define CLIENTS 32u
#define HOSTS 256u
#define MESSAGE 4097u
#define START_MS 20000 /* for nbdkit to serve a disk */
#define LOOK_MS 20
#define END_MS 2000

static const char usage[] =
        "usage: verbena-srp-host --directory DIRECTORY                   answers what is written to add_target\n"
        "       verbena-srp-host --directory DIRECTORY --add LINE        logs in, as if LINE had been written\n"
        "       verbena-srp-host --directory DIRECTORY --delete HOST     ends a login: host0\n"
        "\n"
        "  --directory DIRECTORY  default: the value of VERBENA_SRP\n";

/* Who writes lines: a program whose add_target is this connection. */
struct client {
	int fd;                 /* -1: nobody */
	char device[SH_DEVICE]; /* "": it has not said which */
	unsigned port;
};

static struct {
	struct client clients[CLIENTS];
	struct sh_host *hosts;
	unsigned count, next;
	int listener, signals;
	bool stop;
	char directory[PATH_MAX];
	/* The login in progress. As in the kernel there is one at a time. */
	struct {
		struct sh_host *host; /* NULL: none */
		struct client *client;
		pid_t pid;
		int pipe;
		bool starting; /* it is done, and its disks come */
		uint64_t until;
	} add;
} service = {.add.pipe = -1};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- clients ---- */

static void drop_client(struct client *c)
{
	close(c->fd);
	*c = (struct client){.fd = -1};
	if (service.add.client == c)
		service.add.client = NULL;
}

static void answer(struct client *c, int error)
{
	int32_t said = error;

	if (c && send(c->fd, &said, sizeof(said), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		drop_client(c);
}

static void accept_client(void)
{
	int fd = accept4(service.listener, NULL, NULL, SOCK_CLOEXEC);

	for (unsigned i = 0; fd >= 0 && i < CLIENTS; i++)
		if (service.clients[i].fd < 0) {
			service.clients[i].fd = fd;
			return;
		}
	if (fd >= 0)
		close(fd);
}

/* ---- logins ---- */

static void end_units(struct sh_host *h)
{
	uint64_t until = now_ms() + END_MS;
	bool left = true;

	for (unsigned i = 0; i < h->count; i++)
		if (h->units[i].nbdkit)
			kill(h->units[i].nbdkit, SIGTERM);
	while (left) {
		bool late = now_ms() > until;

		left = false;
		for (unsigned i = 0; i < h->count; i++) {
			struct sh_unit *u = &h->units[i];

			if (u->nbdkit && late)
				kill(u->nbdkit, SIGKILL);
			if (u->nbdkit && waitpid(u->nbdkit, NULL, late ? 0 : WNOHANG) == u->nbdkit)
				u->nbdkit = 0;
			left |= u->nbdkit != 0;
		}
		if (left)
			usleep(LOOK_MS * 1000);
	}
}

static void free_host(struct sh_host *h)
{
	end_units(h);
	sh_host_remove(h);
	free(h);
}

static void unlink_host(struct sh_host *h)
{
	struct sh_host **at = &service.hosts;

	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	service.count--;
	free_host(h);
}

static bool has_units(const struct sh_host *h)
{
	for (unsigned i = 0; i < h->count; i++)
		if (h->units[i].nbdkit)
			return true;
	return !h->count; /* a target without units has a login all the same */
}

/* The login in progress is over. */
static void conclude(int error, const char *why)
{
	struct sh_host *h = service.add.host;
	struct client *c = service.add.client;

	service.add.host = NULL;
	service.add.client = NULL;
	if (error) {
		fprintf(stderr, "verbena-srp-host: id_ext=%016llx: %s%s%s\n", (unsigned long long)h->line.id_ext, why,
		        *why ? ": " : "", strerror(error));
		free_host(h);
	} else {
		h->next = service.hosts;
		service.hosts = h;
		service.count++;
	}
	answer(c, error);
}

static const struct sh_host *same_host(const struct sh_host *h)
{
	for (const struct sh_host *o = service.hosts; o; o = o->next)
		if (!strcmp(o->device, h->device) && o->port == h->port && vd_srp_line_same(&o->line, &h->line))
			return o;
	return NULL;
}

static void take_line(struct client *c, const char *text)
{
	struct sh_host *h = calloc(1, sizeof(*h));
	char why[SH_WHY] = "";
	int error = h && service.count < HOSTS ? vd_srp_line_parse(text, &h->line, why, sizeof(why)) : ENOMEM;

	if (!error) {
		strcpy(h->device, c->device);
		h->port = c->port;
		error = same_host(h) ? EEXIST : sh_login(&h->line, &service.add.pid, &service.add.pipe);
	}
	if (error) {
		fprintf(stderr, "verbena-srp-host: add_target: %s%s%s\n", why, *why ? ": " : "", strerror(error));
		free(h);
		answer(c, error);
		return;
	}
	h->number = service.next++;
	service.add.host = h;
	service.add.client = c;
	service.add.starting = false;
}

static void start_units(const struct sh_found *found)
{
	struct sh_host *h = service.add.host;
	int error = sh_host_make(h);

	for (unsigned i = 0; !error && i < found->count && i < SH_UNITS; i++) {
		h->units[h->count] = (struct sh_unit){.lun = found->luns[i]};
		error = sh_unit_start(h, &h->units[h->count]);
		h->count += !error;
	}
	if (error) {
		conclude(error, "nbdkit");
		return;
	}
	service.add.starting = true;
	service.add.until = now_ms() + START_MS;
}

static void login_ended(void)
{
	struct sh_found found;
	bool whole = read(service.add.pipe, &found, sizeof(found)) == sizeof(found);

	close(service.add.pipe);
	service.add.pipe = -1;
	waitpid(service.add.pid, NULL, 0);
	if (!whole)
		conclude(ECONNRESET, "the login did not end");
	else if (found.error)
		conclude(found.error, found.why);
	else
		start_units(&found);
}

static void look_at_units(void)
{
	struct sh_host *h = service.add.host;
	bool late = now_ms() > service.add.until;

	for (unsigned i = 0; i < h->count; i++)
		if (h->units[i].nbdkit && !sh_unit_ready(h, &h->units[i]) && !late)
			return;
	unsigned ready = 0;

	for (unsigned i = 0; i < h->count; i++) {
		struct sh_unit *u = &h->units[i];
		char path[PATH_MAX];

		if (!u->ready)
			continue;
		ready++;
		sh_unit_path(h, u, "", path);
		printf("host%u unit %u: nbd+unix:///?socket=%s/%s\n", h->number, u->lun, service.directory, path);
	}
	fflush(stdout);
	conclude(h->count && !ready ? ENODEV : 0, "nbdkit serves no disk");
}

static int delete_host(const char *name)
{
	char own[16];

	for (struct sh_host *h = service.hosts; h; h = h->next) {
		snprintf(own, sizeof(own), "host%u", h->number);
		if (!strcmp(own, name)) {
			unlink_host(h);
			return 0;
		}
	}
	return ENOENT;
}

/* ---- events ---- */

static void hear_client(struct client *c)
{
	char text[MESSAGE + 1];
	ssize_t n = recv(c->fd, text, MESSAGE, MSG_DONTWAIT | MSG_TRUNC);

	if (n <= 0) {
		drop_client(c);
		return;
	}
	if (n >= (ssize_t)MESSAGE) {
		answer(c, EINVAL);
		return;
	}
	text[n] = '\0';
	if (*c->device)
		take_line(c, text);
	else if (!strncmp(text, "delete ", 7))
		answer(c, delete_host(text + 7));
	else if (sscanf(text, "add %63[^/ ] %u", c->device, &c->port) != 2)
		drop_client(c);
}

/* Notices the units of a login whose nbdkit has ended. */
static void reap_units(struct sh_host *h)
{
	for (unsigned i = 0; i < h->count; i++) {
		struct sh_unit *u = &h->units[i];

		if (!u->nbdkit || waitpid(u->nbdkit, NULL, WNOHANG) != u->nbdkit)
			continue;
		fprintf(stderr, "verbena-srp-host: host%u unit %u: nbdkit has ended\n", h->number, u->lun);
		u->nbdkit = 0;
		u->ready = false;
		sh_unit_remove(h, u);
	}
}

static void take_signal(void)
{
	struct signalfd_siginfo s;

	if (read(service.signals, &s, sizeof(s)) != sizeof(s))
		return;
	if (s.ssi_signo != SIGCHLD) {
		service.stop = true;
		return;
	}
	if (service.add.host)
		reap_units(service.add.host);
	for (struct sh_host *h = service.hosts, *next; h; h = next) {
		next = h->next;
		reap_units(h);
		if (!has_units(h))
			unlink_host(h);
	}
}

static void serve_turn(void)
{
	struct pollfd p[3 + CLIENTS] = {{service.listener, POLLIN, 0}, {service.signals, POLLIN, 0}, {-1, POLLIN, 0}};
	bool busy = service.add.host, starting = busy && service.add.starting;

	p[2].fd = busy && !starting ? service.add.pipe : -1;
	for (unsigned i = 0; i < CLIENTS; i++)
		p[3 + i] = (struct pollfd){busy ? -1 : service.clients[i].fd, POLLIN, 0};
	if (poll(p, 3 + CLIENTS, starting ? LOOK_MS : -1) < 0)
		return;
	if (p[1].revents)
		take_signal();
	if (p[2].revents)
		login_ended();
	else if (starting)
		look_at_units();
	for (unsigned i = 0; i < CLIENTS && !service.add.host; i++)
		if (p[3 + i].revents && service.clients[i].fd >= 0)
			hear_client(&service.clients[i]);
	if (p[0].revents)
		accept_client();
}

static bool open_service(const char *directory, const char **why)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = SH_ADD};
	sigset_t set;
	int error = sh_directory_enter(directory, why);

	if (error) {
		errno = error;
		return false;
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		service.clients[i].fd = -1;
	*why = "the signals";
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	service.signals = signalfd(-1, &set, SFD_CLOEXEC);
	*why = "the socket";
	unlink(SH_ADD);
	umask(077);
	service.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return getcwd(service.directory, sizeof(service.directory)) && service.signals >= 0 && service.listener >= 0 &&
	       !bind(service.listener, (struct sockaddr *)&at, sizeof(at)) && !listen(service.listener, (int)CLIENTS);
}

static int serve(const char *directory)
{
	const char *why;

	if (!open_service(directory, &why)) {
		fprintf(stderr, "verbena-srp-host: %s: %s: %s\n", directory, why, strerror(errno));
		return 1;
	}
	while (!service.stop)
		serve_turn();
	unlink(SH_ADD);
	if (service.add.host) {
		if (!service.add.starting) {
			kill(service.add.pid, SIGKILL);
			waitpid(service.add.pid, NULL, 0);
		}
		free_host(service.add.host);
	}
	while (service.hosts)
		unlink_host(service.hosts);
	rmdir(SH_HOSTS);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	        {"directory", required_argument, NULL, 'd'}, {"add", required_argument, NULL, 'a'},
	        {"delete", required_argument, NULL, 'r'},    {"help", no_argument, NULL, 'h'},
	        {"version", no_argument, NULL, 'V'},         {NULL, 0, NULL, 0}};
	const char *directory = secure_getenv("VERBENA_SRP"), *add = NULL, *delete = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'h' || c == 'V') {
			fputs(c == 'h' ? usage : "verbena-srp-host " VB_VERSION "\n", stdout);
			return 0;
		}
		if (c == '?')
			return fputs(usage, stderr), 2;
		*(c == 'd' ? &directory : c == 'a' ? &add : &delete) = optarg;
	}
	if (optind != argc || !directory || !*directory || (add && delete))
		return fputs(usage, stderr), 2;
	return add || delete ? vd_srp_ask(directory, add, delete) : serve(directory);
}
