// cmd_capture.c - verbena capture: records the frames of running programs
// follows: verbena-capture(1)
// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/device.h"
#include "tools/collect.h"
#include "tools/control.h"
#include "tools/verbena.h"

#define NAME "capture"
#define ASK_MS 3000
#define LOOK_MS 500 /* how often new programs are looked for */
#define KNOWN_MAX 4096u

struct capture {
	struct cap_options o;
	struct cap_collector *collector;
	int pid;
	double seconds; /* 0: without limit */
	unsigned n_known;
	bool busy;                 /* the program of --pid is captured by somebody else */
	char known[KNOWN_MAX][64]; /* the control sockets of programs that were asked */
};

static int64_t ms_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- programs --- */

static bool is_known(struct capture *c, const char *name)
{
	for (unsigned i = 0; i < c->n_known; i++)
		if (!strcmp(c->known[i], name))
			return true;
	if (c->n_known < KNOWN_MAX)
		snprintf(c->known[c->n_known++], sizeof(c->known[0]), "%s", name);
	return false;
}

/* The errno value in an answer; 0: none. */
static int error_in(const struct ctl_program *p)
{
	const char *at = p->text ? strstr(p->text, "\"errno\": ") : NULL;

	return at ? (int)strtol(at + strlen("\"errno\": "), NULL, 10) : 0;
}

static void attach_program(struct capture *c, struct ctl_list *list, struct ctl_program *p)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) {
		cmd_complain(NAME, "socketpair: %s", strerror(errno));
		return;
	}
	int err = ctl_ask_one(list, p, "capture", pair[1], ASK_MS);
	close(pair[1]);
	if (!err)
		err = error_in(p);
	if (!err) {
		cap_add(c->collector, pair[0], p->pid);
		return;
	}
	close(pair[0]);
	c->busy |= err == EBUSY;
	if (err == EBUSY)
		cmd_complain(NAME, "process %d is captured already, by another command", p->pid);
	else if (err == EOPNOTSUPP)
		cmd_complain(NAME, "process %d uses a Verbena that cannot be captured", p->pid);
	else if (err != ESRCH)
		cmd_complain(NAME, "process %d: %s", p->pid, strerror(err));
}

static void look_for_programs(struct capture *c)
{
	struct ctl_list list;
	int err = ctl_find(&list, c->pid, c->pid != 0);

	if (err)
		cmd_complain(NAME, "the list of programs cannot be read: %s", strerror(err));
	for (size_t i = 0; i < list.n; i++)
		if (!is_known(c, list.programs[i].name))
			attach_program(c, &list, &list.programs[i]);
	ctl_free(&list);
}

static bool is_there(int pid)
{
	struct ctl_list list;

	ctl_find(&list, pid, true);
	bool found = list.n != 0;

	ctl_free(&list);
	return found;
}

/* Says why the program of --pid cannot be captured. */
static void explain_missing(int pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &st))
		cmd_complain(NAME, "there is no process %d", pid);
	else if (geteuid() != 0 && st.st_uid != geteuid())
		cmd_complain(NAME, "process %d belongs to another user: only root can capture it", pid);
	else
		cmd_complain(NAME, "process %d has no open adapter of Verbena: 'verbena stat' shows programs that have",
		             pid);
}

/* --- options --- */

static bool bad_value(const char *option, const char *value, const char *what)
{
	cmd_complain(NAME, "%s '%s': not %s", option, value, what);
	return false;
}

static bool read_number(const char *option, const char *text, uint64_t most, uint64_t *n)
{
	char *end;

	errno = 0;
	*n = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 0) : 0;
	if (!isdigit((unsigned char)text[0]) || *end || errno || !*n || *n > most)
		return bad_value(option, text, "a number in its range");
	return true;
}

/* SIZE[,FILES], with K, M or G. */
static bool read_rotation(struct cap_options *o, char *text)
{
	char *comma = strchr(text, ','), *end;
	uint64_t files = 0;

	if (comma)
		*comma = '\0';
	errno = 0;
	uint64_t size = isdigit((unsigned char)text[0]) ? strtoull(text, &end, 10) : 0;
	unsigned shift = !size ? 0 : *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (!size || errno || size > (UINT64_MAX >> 32) || end[shift ? 1 : 0])
		return bad_value("--rotate", text, "a size in bytes, as 100M");
	o->rotate_size = size << shift;
	if (comma && !read_number("--rotate", comma + 1, 1000000, &files))
		return false;
	o->rotate_files = (uint32_t)files;
	return true;
}

static bool read_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	if (end == text || *end || !isfinite(*seconds) || *seconds <= 0 || *seconds > 1e9)
		return bad_value("--seconds", text, "a number of seconds");
	return true;
}

static bool adapter_exists(const char *name)
{
	int n;
	struct ibv_device **devices = vb_device_list(&n);
	bool found = false;

	for (int i = 0; devices && i < n; i++)
		found |= !strcmp(devices[i]->name, name);
	if (devices)
		vb_device_list_free(devices);
	if (!found)
		cmd_complain(NAME, "there is no adapter '%s': 'verbena devices' lists them", name);
	return found;
}

enum {
	OPT_PID = 256,
	OPT_DEVICE,
	OPT_QP,
	OPT_FILTER,
	OPT_SNAPLEN,
	OPT_ROTATE,
	OPT_NO_PAYLOAD,
	OPT_COUNT,
	OPT_SECONDS,
	OPT_STATS
};

static const struct option options[] = {
        {"write", required_argument, NULL, 'w'},         {"pid", required_argument, NULL, OPT_PID},
        {"device", required_argument, NULL, OPT_DEVICE}, {"qp", required_argument, NULL, OPT_QP},
        {"filter", required_argument, NULL, OPT_FILTER}, {"snaplen", required_argument, NULL, OPT_SNAPLEN},
        {"rotate", required_argument, NULL, OPT_ROTATE}, {"no-payload", no_argument, NULL, OPT_NO_PAYLOAD},
        {"count", required_argument, NULL, OPT_COUNT},   {"seconds", required_argument, NULL, OPT_SECONDS},
        {"stats", no_argument, NULL, OPT_STATS},         {0},
};

static bool take_option(struct capture *c, int option)
{
	uint64_t n = 0;

	switch (option) {
	case 'w':
		c->o.file = optarg;
		return true;
	case OPT_PID:
		if (!read_number("--pid", optarg, INT_MAX, &n))
			return false;
		c->pid = (int)n;
		return true;
	case OPT_DEVICE:
		c->o.device = optarg;
		return adapter_exists(optarg);
	case OPT_QP:
		if (!read_number("--qp", optarg, 0xffffff, &n))
			return false;
		c->o.qpn = (uint32_t)n;
		return true;
	case OPT_FILTER:
		c->o.filter = optarg;
		return true;
	case OPT_SNAPLEN:
		if (!read_number("--snaplen", optarg, UINT32_MAX, &n))
			return false;
		c->o.snaplen = (uint32_t)n;
		return true;
	case OPT_ROTATE:
		return read_rotation(&c->o, optarg);
	case OPT_NO_PAYLOAD:
		c->o.no_payload = true;
		return true;
	case OPT_COUNT:
		return read_number("--count", optarg, UINT64_MAX, &c->o.count);
	case OPT_SECONDS:
		return read_seconds(optarg, &c->seconds);
	case OPT_STATS:
		c->o.stats = true;
		return true;
	default:
		cmd_complain(NAME, "unknown option, or one without its value; man verbena-capture describes them");
		return false;
	}
}

static bool read_options(struct capture *c, int argc, char **argv)
{
	int option;

	optind = 1;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "+w:", options, NULL)) != -1)
		if (!take_option(c, option))
			return false;
	if (optind < argc) {
		cmd_complain(NAME, "'%s': programs are not started here; verbena run --capture FILE PROGRAM does that",
		             argv[optind]);
		return false;
	}
	if (!c->o.file && !c->o.stats) {
		cmd_complain(NAME, "no file given: verbena capture -w FILE.pcapng, or -w - for standard output");
		return false;
	}
	if (c->o.file && !strcmp(c->o.file, "-") && (c->o.rotate_size || isatty(STDOUT_FILENO))) {
		cmd_complain(NAME, c->o.rotate_size
		                           ? "--rotate needs a file, not -"
		                           : "-w - does not write to a terminal: pipe it, as into tshark -i -");
		return false;
	}
	return true;
}

/* --- the capture --- */

static bool run_capture(struct capture *c)
{
	int64_t begun = ms_now(), looked = begun;

	while (!cap_is_stopped() && cap_step(c->collector, 50)) {
		int64_t now = ms_now();

		if (c->pid && !cap_sources(c->collector))
			break;
		if (c->seconds > 0 && (double)(now - begun) >= c->seconds * 1000)
			break;
		if (!c->pid && now - looked >= LOOK_MS) {
			look_for_programs(c);
			looked = now;
		}
	}
	return cap_end(c->collector);
}

int cmd_capture(int argc, char **argv)
{
	struct capture *c = calloc(1, sizeof(*c));
	int status = 1;

	if (!c)
		return 1;
	c->o.command = NAME;
	if (!read_options(c, argc, argv)) {
		status = 2;
	} else if (c->pid && !is_there(c->pid)) { /* before a file is overwritten */
		explain_missing(c->pid);
	} else {
		cap_catch_signals();
		c->collector = cap_new(&c->o);
	}
	if (c->collector) {
		look_for_programs(c);
		if (c->pid && !cap_sources(c->collector)) {
			if (!c->busy)
				explain_missing(c->pid);
			c->o.quiet = true;
			cap_end(c->collector);
		} else {
			cmd_complain(NAME, "capturing %zu programs%s", cap_sources(c->collector),
			             c->pid ? "" : ", and those that start");
			status = run_capture(c) ? 0 : 1;
		}
	}
	free(c);
	return status;
}
