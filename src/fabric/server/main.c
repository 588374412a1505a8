// main.c - verbena-fabric: a simulated InfiniBand subnet that programs attach to, and its commands
// follows: man/verbena-fabric.8
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fabric/server/peer.h"
#include "fabric/server/server.h"
#include "fabric/topology.h"

enum { TEXT_MOST = 256 << 20, EVENTS = 64, NS_PER_MS_ = 1000000 };

static const char usage[] =
        "usage: verbena-fabric TOPOLOGY [OPTION…] --socket PATH\n"
        "       verbena-fabric --generate SHAPE [OPTION…] --socket PATH\n"
        "       verbena-fabric --generate SHAPE --print\n"
        "       verbena-fabric ctl --socket PATH COMMAND…\n"
        "\n"
        "  TOPOLOGY            a file in the output format of ibnetdiscover\n"
        "  --generate SHAPE    switch:HOSTS, fat-tree:LEAVES,SPINES,HOSTS, torus:X,Y[,Z],HOSTS or\n"
        "                      dragonfly:GROUPS,ROUTERS,HOSTS; HOSTS are those of one switch\n"
        "  --socket PATH       programs reach it by VERBENA_FABRIC=PATH\n"
        "  --network NET/BITS  give each channel adapter an IPv4 address of it, in their order, for rdma_cm\n"
        "  --print             print the topology and end\n"
        "  --peer HOST[:PORT]=NODE,…\n"
        "                      a process on another host has these nodes; with * and [] as in file names\n"
        "  --own NODE,…        these are here; others are where --peer says, or where their switch is\n"
        "  --listen ADDRESS[:PORT]\n"
        "                      where peers reach this process (UDP; all addresses, port " PEER_PORT ")\n"
        "  --guests            programs of other hosts attach by VERBENA_FABRIC=udp:HOST; needs --secret\n"
        "  --join HOST[:PORT]  be such a host's part: the topology comes from there; --own names a CA\n"
        "  --linger SECONDS    end when no program has been there for so long\n"
        "  --secret FILE       only processes with the same bytes in FILE are peers\n"
        "\n"
        "Commands: link NODE PORT up|down, link NODE PORT [rate=MBIT] [latency=US], node NODE on|off, add FILE, describe NODE TEXT,\n"
        "counters NODE PORT [NAME=VALUE…], pkeys NODE PORT [P_KEY…], lid NODE PORT LID, trap NODE PORT NUMBER,\n"
        "address [NODE [ADDRESS|none]], capture [NODE [PORT]], show [NODE], peers, states, stat, print, stop\n";

__attribute__((format(printf, 1, 2))) static int complain(const char *fmt, ...)
{
	va_list ap;

	fputs("verbena-fabric: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 1;
}

uint64_t server_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The whole file; NULL with a complaint. */
static char *read_whole(const char *path, size_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = NULL;
	size_t room = 0;
	ssize_t n = fd < 0 ? -1 : 1;

	*len = 0;
	while (n > 0 && *len < TEXT_MOST) {
		if (*len + 65536 > room) {
			char *grown = realloc(text, room = 2 * room + 131072);

			if (!grown) {
				n = -1;
				break;
			}
			text = grown;
		}
		n = read(fd, text + *len, room - *len);
		*len += n > 0 ? (size_t)n : 0;
	}
	int saved = errno;
	if (fd >= 0)
		close(fd);
	if (!n)
		return text;
	free(text);
	complain("%s: %s", path, n < 0 ? strerror(saved) : "too large");
	return NULL;
}

static bool load(struct server *s, const char *file, const char *shape)
{
	struct vb_topology_error e = {0};
	size_t len;
	bool right;

	if (shape) {
		right = vb_topology_generate(s->fabric, shape, &e);
	} else {
		char *text = read_whole(file, &len);

		if (!text)
			return false;
		right = vb_topology_read(s->fabric, text, len, &e);
		free(text);
	}
	if (!right && e.line)
		complain("%s:%u: %s", file, e.line, e.reason);
	else if (!right)
		complain("%s: %s", shape ? shape : file, e.reason);
	return right;
}

/* --- the loop --- */

/* ns. UINT64_MAX: for ever */
static uint64_t wait_ns(const struct server *s)
{
	const uint64_t deadlines[] = {vb_fabric_deadline(s->fabric),
	                              clients_deadline(s),
	                              joined_deadline(s),
	                              links_deadline(s),
	                              late_deadline(s),
	                              cms_deadline(s),
	                              peers_deadline(s),
	                              listener_deadline(s),
	                              s->linger && !s->clients && !s->keeps ? s->idle_since + s->linger : UINT64_MAX};
	uint64_t due = UINT64_MAX, now = server_now();

	for (size_t i = 0; i < sizeof(deadlines) / sizeof(*deadlines); i++)
		due = deadlines[i] < due ? deadlines[i] : due;
	return due == UINT64_MAX ? due : due <= now ? 0 : due - now;
}

/* Links that take time need waits below a millisecond. Kernels before 5.11, and emulators, have none. */
static int wait_for_events(const struct server *s, struct epoll_event *events)
{
	uint64_t ns = wait_ns(s), ms = ns / NS_PER_MS_ + (ns != 0);
	const struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	int n = s->late_heap.count ? epoll_pwait2(s->epoll, events, EVENTS, &t, NULL) : -1;

	if (n >= 0 || (s->late_heap.count && errno != ENOSYS))
		return n;
	return epoll_wait(s->epoll, events, EVENTS, ns == UINT64_MAX ? -1 : ms < INT_MAX ? (int)ms : INT_MAX);
}

static void turn(struct server *s)
{
	struct epoll_event events[EVENTS];
	int n = wait_for_events(s, events);

	s->now = server_now();
	vb_fabric_time(s->fabric, s->now);
	late_time(s); /* before what comes behind it */
	for (int i = 0; i < n; i++) {
		void *what = events[i].data.ptr;
		struct peer *p = peer_of(s, what);

		if (what == &s->listener)
			listener_event(s);
		else if (what == &s->inotify)
			issm_event(s);
		else if (what == s)
			s->stop = true;
		else if (what == &s->guests)
			guests_event(s);
		else if (p)
			peer_event(p);
		else if (!keep_ended(s, what))
			client_event(s, what, events[i].events);
	}
	/* after what has come: this process may have been without a processor, and what it waits for may be there */
	clients_time(s);
	cms_time(s);
	peers_time(s);
	joined_tell(s);
	links_time(s);
	listener_time(s);
	peers_tell(s);
	guests_leave(s);
	if (s->clients || s->keeps)
		s->idle_since = s->now;
	else if (s->linger && s->now - s->idle_since >= s->linger)
		s->stop = true;
}

static bool watch_fd(struct server *s, int fd, void *what)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = what};

	return fd >= 0 && !epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &e);
}

static int serve(struct server *s, const struct peer_settings *o)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	int signals = signalfd(-1, &set, SFD_CLOEXEC);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->now = s->idle_since = server_now();
	vb_fabric_time(s->fabric, s->now);
	if (peers_open(s, o))
		return 1;
	vb_fabric_train_all(s->fabric);
	raise_files();
	if (server_listen(s) < 0)
		return 1;
	int rc = issm_open(s);
	if (rc || !watch_fd(s, s->listener, &s->listener) || !watch_fd(s, s->inotify, &s->inotify) ||
	    !watch_fd(s, signals, s))
		return complain("%s: %s", s->issm_dir, strerror(rc ? rc : errno));
	while (!s->stop)
		turn(s);
	late_free(s);
	clients_close(s);
	keeps_close(s);
	cms_end(s);
	listener_close(s);
	issm_close(s);
	unlink(s->path);
	return 0;
}

static void free_agents(struct vb_fabric *f)
{
	for (size_t i = 0; i < f->count; i++)
		for (unsigned k = 1; k <= f->nodes[i]->ports; k++)
			vb_agents_free(f->nodes[i]->port[k].host);
}

struct settings {
	const char *file, *shape, *path, *network, *own, *secret, *join;
	bool print;
	struct peer_settings peers;
};

/* The file with what only the processes of one fabric know. */
static bool load_secret(struct settings *o)
{
	enum { SECRET_LEAST = 16 };
	size_t len;
	char *text = o->secret ? read_whole(o->secret, &len) : NULL;

	if (!o->secret)
		return true;
	if (text && len >= SECRET_LEAST) {
		o->peers.secret = text;
		o->peers.secret_len = len;
		return true;
	}
	if (text)
		complain("%s: a secret has at least %d bytes, such as head -c 32 /dev/urandom gives", o->secret,
		         SECRET_LEAST);
	free(text);
	return false;
}

static int print_or_serve(struct server *s, struct settings *o)
{
	char why[400];

	if (!address_number(s))
		return complain("--network %s: it has too few addresses for all channel adapters", o->network);
	if (o->print) {
		vb_topology_print(s->fabric, stdout);
		return 0;
	}
	const char *fault = peers_divide(s, o->own, why, sizeof(why));

	if (fault)
		return complain("%s", fault);
	return serve(s, &o->peers);
}

/* group_turn: other processes remember the last datagrams to groups, and must not take those after a restart for them. */
static bool draw_random_numbers(struct server *s)
{
	uint32_t turn;

	if (getrandom(s->address, sizeof(s->address), 0) != sizeof(s->address) ||
	    getrandom(&turn, sizeof(turn), 0) != sizeof(turn))
		return false;
	s->address[0] = 0xfc; /* no address of an interface, nor a group */
	if (s->fabric)
		s->fabric->group_turn = turn;
	return true;
}

static int run_fabric(struct server *s, struct settings *o)
{
	char *absolute = o->path && *o->path != '/' ? getcwd(NULL, 0) : NULL;
	int rc = 1;

	snprintf(s->path, sizeof(s->path), "%.2000s%s%.2000s", absolute ? absolute : "", absolute ? "/" : "",
	         o->path ? o->path : "");
	free(absolute);
	s->fabric = vb_fabric_new(&server_fabric_ops, s);
	if (!draw_random_numbers(s))
		return complain("no random numbers: %s", strerror(errno));
	if (o->network && address_network(s, o->network))
		complain("--network %s: an IPv4 network is written as 10.1.0.0/16", o->network);
	else if (s->fabric && load_secret(o) &&
	         (o->join ? !guest_start(s, o->join, &o->own, &o->peers) : load(s, o->file, o->shape)))
		rc = print_or_serve(s, o);
	if (s->fabric)
		free_agents(s->fabric);
	peers_close(s);
	vb_fabric_free(s->fabric);
	free(s->addresses);
	free((void *)o->peers.secret);
	return rc;
}

/* --- ctl --- */

/* The words of the command as one text, behind the verb. file: the text that "add" brings, NULL for others. */
static char *command_text(uint32_t verb, int argc, char **argv, const char *file)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	fwrite(&verb, sizeof(verb), 1, out);
	for (int i = 0; !file && i < argc; i++)
		fprintf(out, strchr(argv[i], ' ') || !*argv[i] ? "\"%s\" " : "%s ", argv[i]);
	if (file)
		fprintf(out, "add %s", file);
	fclose(out);
	return text;
}

static int print_reply(int sock)
{
	struct vb_fabric_reply r;
	char buf[4096];
	int fd = -1;
	long n = vb_fabric_hear(sock, &r, sizeof(r), &fd);
	ssize_t got;
	off_t at = 0;

	if (n != sizeof(r))
		return complain("the fabric does not answer: %s", n < 0 ? strerror(errno) : "another version?");
	while (fd >= 0 && (got = pread(fd, buf, sizeof(buf), at)) > 0) {
		fwrite(buf, 1, (size_t)got, r.error ? stderr : stdout);
		at += got;
	}
	if (fd >= 0)
		close(fd);
	return r.error ? 1 : 0;
}

static int run_ctl(const char *path, int argc, char **argv)
{
	bool add = argc == 2 && !strcmp(argv[0], "add"), capture = !strcmp(argv[0], "capture");
	size_t len = 0;
	char *file = add ? read_whole(argv[1], &len) : NULL;

	if (add && !file)
		return 1;
	if (!path)
		return complain("ctl: --socket or VERBENA_FABRIC says which fabric");
	if (add)
		file[len] = '\0'; /* read_whole leaves room */
	char *text = command_text(capture ? VB_FABRIC_CAPTURE : VB_FABRIC_CTL, argc - capture, argv + capture, file);
	free(file);
	if (text && strlen(text + sizeof(uint32_t)) > VB_FABRIC_CTL_MOST) {
		free(text);
		return complain("ctl: a command has at most %d bytes, with the file that it adds", VB_FABRIC_CTL_MOST);
	}
	int sock = text ? vb_fabric_connect_to(path) : -1;
	int rc = sock < 0 ? errno : vb_fabric_say(sock, text, sizeof(uint32_t) + strlen(text + sizeof(uint32_t)), -1);
	rc = rc ? complain("%s: %s", path, strerror(rc)) : print_reply(sock);
	if (!rc && capture)
		rc = capture_write(sock);
	if (sock >= 0)
		close(sock);
	free(text);
	return rc;
}

/* Returns false if the option is not right. */
static bool fabric_option(struct server *s, struct settings *o, int c)
{
	switch (c) {
	case 's':
		o->path = optarg;
		return true;
	case 'g':
		o->shape = optarg;
		return true;
	case 'n':
		o->network = optarg;
		return true;
	case 'p':
		o->print = true;
		return true;
	case 'P':
		return peer_add(s, optarg);
	case 'o':
		o->own = optarg;
		return true;
	case 'l':
		return peers_listen(&o->peers, optarg);
	case 'S':
		o->secret = optarg;
		return true;
	case 'G':
		s->takes_guests = true;
		return true;
	case 'j':
		o->join = optarg;
		return true;
	case 'L':
		s->linger = strtoul(optarg, NULL, 10) * 1000000000ull;
		return s->linger;
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
	        {"socket", required_argument, NULL, 's'}, {"generate", required_argument, NULL, 'g'},
	        {"print", no_argument, NULL, 'p'},        {"network", required_argument, NULL, 'n'},
	        {"peer", required_argument, NULL, 'P'},   {"own", required_argument, NULL, 'o'},
	        {"listen", required_argument, NULL, 'l'}, {"secret", required_argument, NULL, 'S'},
	        {"guests", no_argument, NULL, 'G'},       {"join", required_argument, NULL, 'j'},
	        {"linger", required_argument, NULL, 'L'}, {"help", no_argument, NULL, 'h'},
	        {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0}};
	struct server s = {.inotify = -1, .listener = -1, .spare = -1};
	struct settings o = {.peers.port = PEER_PORT};
	bool ctl = argc > 1 && !strcmp(argv[1], "ctl");
	int c;

	if (ctl) {
		argc--;
		argv++;
	}
	while ((c = getopt_long(argc, argv, ctl ? "+" : "", options, NULL)) != -1) {
		if (c == 'h' || c == 'V') {
			fputs(c == 'h' ? usage : "verbena-fabric " VB_VERSION "\n", stdout);
			return 0;
		}
		if (!fabric_option(&s, &o, c)) {
			fputs(usage, stderr);
			return 2;
		}
	}
	if (ctl && optind < argc)
		return run_ctl(o.path ? o.path : vb_fabric_socket(), argc - optind, argv + optind);
	if (ctl || (o.join && (o.shape || s.peers || s.takes_guests || !o.own)) || (s.takes_guests && !o.secret) ||
	    (o.shape || o.join ? optind != argc : optind != argc - 1) || (!o.path && !o.print)) {
		fputs(usage, stderr);
		return 2;
	}
	o.file = argv[optind];
	return run_fabric(&s, &o);
}
