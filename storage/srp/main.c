// main.c - verbena-srp-target: serves files, block devices and memory as SCSI disks over SRP
// follows: man/verbena-srp-target.8
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/ring.h"
#include "srp/announce.h"
#include "srp/listener.h"
#include "srp/units.h"
#include "target/control.h"
#include "target/program.h"

#define PORT_DEFAULT 5555
#define LINGER_MS 200 /* for the last messages */
#define STOP_MS 5000  /* for requests in progress */

static const char usage[] =
        "usage: verbena-srp-target --export IMAGE… [--listen ADDRESS] [--port PORT] [--guid GUID]\n"
        "       verbena-srp-target list|add IMAGE [LUN]|remove LUN|resize LUN|stop [--port PORT]\n"
        "\n"
        "  --export IMAGE      a file, a block device, memory:SIZE or null:SIZE; each is a logical unit, from 0 on\n"
        "  --listen ADDRESS    default: 127.0.0.1; 0.0.0.0 or :: for all\n"
        "  --port PORT         default: 5555; 0 for any free port\n"
        "  --guid GUID         16 hexadecimal digits that identify the target; default: derived from the first image\n"
        "  --read-only         initiators cannot write\n"
        "  --mapped            write and read by the page cache\n"
        "  --buffered          do not use O_DIRECT\n"
        "  --block-size BYTES  512 to 4096\n"
        "  --state DIRECTORY   keeps persistent reservations that ask for it\n"
        "  --control PATH      the control socket\n"
        "  --threads           do not use io_uring\n"
        "  --announce[=CA:PORT]  answer those who look for targets on the InfiniBand fabric of this port\n";

struct options {
	const char *exports[SC_LUNS], *listen, *announce, *control;
	unsigned count;
	uint16_t port;
	uint64_t guid;
	bool has_guid, threads;
	struct sp_units units;
};

static struct {
	struct nt_loop *loop;
	struct nb_ring *ring;
	struct sp_target target;
	struct sp_listener *listener;
	struct sp_dm described;
	struct sp_announce *announce;
	struct sp_units units;
	struct nt_control *control;
	uint64_t now;
	bool stop;
} server;

static bool report_wrong(const char *what, const char *why)
{
	fprintf(stderr, "verbena-srp-target: %s: %s\n", what, why);
	return false;
}

/* ---- the command line ---- */

static bool parse_limited(const char *name, const char *text, int base, uint64_t most, uint64_t *out)
{
	return nt_number_parse(text, base, most, out) || report_wrong(name, text);
}

static bool take_option(int c, const char *value, struct options *o)
{
	uint64_t n = 0;

	switch (c) {
	case 'e':
		if (o->count == SC_LUNS)
			return report_wrong("--export", "too many");
		o->exports[o->count++] = value;
		return true;
	case 'l':
		o->listen = value;
		return true;
	case 'p':
		if (!parse_limited("--port", value, 10, 65535, &n))
			return false;
		o->port = (uint16_t)n;
		return true;
	case 'b':
		if (!parse_limited("--block-size", value, 10, 4096, &n))
			return false;
		o->units.block = (uint32_t)n;
		return true;
	case 'g':
		o->has_guid = true;
		return parse_limited("--guid", value, 16, UINT64_MAX, &o->guid);
	case 'r':
		return o->units.readonly = true;
	case 'm':
		return o->units.mapped = true;
	case 'u':
		return o->units.buffered = true;
	case 'T':
		return o->threads = true;
	case 's':
		return (o->units.state = value);
	case 'c':
		return (o->control = value);
	case 'a':
		return (o->announce = value ? value : "");
	default:
		return false;
	}
}

static bool parse_srp_options(int argc, char **argv, struct options *o)
{
	static const struct option options[] = {{"export", required_argument, NULL, 'e'},
	                                        {"listen", required_argument, NULL, 'l'},
	                                        {"port", required_argument, NULL, 'p'},
	                                        {"block-size", required_argument, NULL, 'b'},
	                                        {"guid", required_argument, NULL, 'g'},
	                                        {"state", required_argument, NULL, 's'},
	                                        {"read-only", no_argument, NULL, 'r'},
	                                        {"mapped", no_argument, NULL, 'm'},
	                                        {"buffered", no_argument, NULL, 'u'},
	                                        {"threads", no_argument, NULL, 'T'},
	                                        {"announce", optional_argument, NULL, 'a'},
	                                        {"control", required_argument, NULL, 'c'},
	                                        {"help", no_argument, NULL, 'h'},
	                                        {"version", no_argument, NULL, 'V'},
	                                        {NULL, 0, NULL, 0}};
	int c;

	*o = (struct options){.port = PORT_DEFAULT, .listen = "127.0.0.1"};
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'h' || c == 'V') {
			fputs(c == 'h' ? usage : "verbena-srp-target " VB_VERSION "\n", stdout);
			exit(0);
		}
		if (!take_option(c, optarg, o))
			return false;
	}
	return (optind == argc) == (o->count > 0); /* a target, or a command for one */
}

/* ---- logical units ---- */

static bool add_units(const struct options *o)
{
	char why[SP_WHY];

	server.units = o->units;
	server.units.target = &server.target;
	server.units.ring = server.ring;
	for (unsigned i = 0; i < o->count; i++)
		if (!sp_unit_add(&server.units, i, o->exports[i], why))
			return report_wrong(o->exports[i], why);
	uint64_t guid = o->has_guid ? o->guid : server.target.scsi.lus[0]->id;

	sc_put64(server.target.scsi.port, guid);     /* the identifier extension */
	sc_put64(server.target.scsi.port + 8, guid); /* the I/O controller's GUID */
	return true;
}

static char *answer_line(void *owner, char *line)
{
	if (!strcmp(line, "stop")) {
		server.stop = true;
		return strdup("ok\n");
	}
	return sp_units_answer(&server.units, line);
}

/* Without it the target serves nevertheless. */
static void open_control(const struct options *o)
{
	char *path = o->control ? strdup(o->control) : nt_control_path("srp-target", sp_listener_port(server.listener));
	int error = path ? nt_control_open(server.loop, path, answer_line, NULL, &server.control) : EACCES;

	if (error)
		report_wrong(path ? path : "the control socket", strerror(error));
	free(path);
}

static int ask_target(const struct options *o, int argc, char **argv)
{
	char *path = o->control ? strdup(o->control) : nt_control_path("srp-target", o->port);
	int status = path ? nt_control_ask("verbena-srp-target", path, argc, argv) : 1;

	free(path);
	return status;
}

/* ---- the loop ---- */

static void run_turn(uint64_t until)
{
	uint64_t next = sp_listener_turn(server.listener, server.now);

	sc_target_sweep(&server.target.scsi);

	nb_ring_flush(server.ring);
	next = next < until ? next : until;
	uint64_t now = nt_now();

	nt_loop_once(server.loop, next == UINT64_MAX ? -1 : next <= now ? 0 : (int)(next - now), &server.now);
}

/* Tells the initiators, ends the connections, and waits for requests in progress, within a limit. */
static bool stop_server(void)
{
	uint64_t until = nt_now() + LINGER_MS;

	sp_listener_stop(server.listener);
	while (nt_now() < until)
		run_turn(until);
	for (until = nt_now() + STOP_MS; !sp_listener_close(server.listener);) {
		if (nt_now() >= until)
			return report_wrong("stop", "a medium does not answer: the last writes to it may be lost");
		nb_ring_flush(server.ring);
		nt_loop_once(server.loop, 50, &server.now);
	}
	return true;
}

static bool announce_target(const struct options *o)
{
	const uint8_t *port = server.target.scsi.port;
	const char *why;
	uint64_t service_id;
	int error = sp_listener_open_ib(server.listener, &service_id);

	if (error)
		return report_wrong("--announce: listening on InfiniBand", strerror(error));
	server.described = (struct sp_dm){.id_ext = sc_get64(port),
	                                  .ioc_guid = sc_get64(port + 8),
	                                  .service_id = service_id,
	                                  .iu_len = SP_IU_MAX,
	                                  .rdma_len = SC_TRANSFER_MAX,
	                                  .depth = SP_CREDITS,
	                                  .name = "verbena-srp-target"};
	return !sp_announce_open(server.loop, o->announce, &server.described, &server.announce, &why) ||
	       report_wrong("--announce", why);
}

static bool set_up(const struct options *o)
{
	int error;

	server.now = nt_now();
	if ((error = nt_program_open(&server.loop, &server.ring, o->threads, &server.stop, NULL)))
		return report_wrong("the event loop", strerror(error));
	if (!add_units(o))
		return false;
	if ((error = sp_listener_open(server.loop, &server.target, o->listen, o->port, &server.listener)))
		return report_wrong(o->listen, strerror(error));
	return !o->announce || announce_target(o);
}

/* What add_target of Linux's ib_srp takes; for a listener on all addresses the reader has to put one in. */
static void print_target(const struct options *o)
{
	const uint8_t *port = server.target.scsi.port;
	bool v6 = strchr(o->listen, ':');

	printf("id_ext=%016llx,ioc_guid=%016llx,dest=%s%s%s:%u\n", (unsigned long long)sc_get64(port),
	       (unsigned long long)sc_get64(port + 8), v6 ? "[" : "", o->listen, v6 ? "]" : "",
	       sp_listener_port(server.listener));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct options o;

	if (!parse_srp_options(argc, argv, &o)) {
		fputs(usage, stderr);
		return 2;
	}
	if (optind < argc)
		return ask_target(&o, argc - optind, argv + optind);
	bool served = set_up(&o);

	if (served) {
		open_control(&o);
		print_target(&o);
		while (!server.stop)
			run_turn(UINT64_MAX);
		nt_control_close(server.control);
		if (!stop_server())
			_exit(1);
	}
	sp_announce_close(server.announce);
	sc_target_close(&server.target.scsi);
	sp_units_free(&server.units);
	nb_ring_close(server.ring);
	nt_loop_close(server.loop);
	if (nb_threads_left())
		_exit(!served);
	return !served;
}
