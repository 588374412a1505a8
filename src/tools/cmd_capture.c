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
#include "tools/progress.h"
#include "tools/verbena.h"

#define NAME "capture"
#define ASK_MS 3000      /* for the program of --pid */
#define ASK_FIRST_MS 500 /* for all programs together, before the first frame is taken */
#define ASK_LATER_MS 50  /* and later, while the rings of others fill */
#define LOOK_MS 500      /* how often new programs are looked for */
#define RETRY_MOST_MS 16000
#define KNOWN_MAX 4096u

/* A program that was asked. */
struct known {
	char name[64]; /* its control socket, in this user's directory */
	uid_t user;
	bool listed;  /* in the present list */
	bool settled; /* it has answered */
	int64_t retry_at;
	int pause_ms; /* until the next attempt, which doubles */
};

struct capture {
	struct cap_options o;
	struct cap_collector *collector;
	int pid;
	double seconds; /* 0: without limit */
	unsigned n_known;
	bool explained; /* why the program of --pid is not captured */
	struct known known[KNOWN_MAX];
};

static int64_t ms_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- programs --- */

/* Returns NULL if there are too many. */
static struct known *find_known(struct capture *c, const struct ctl_program *p)
{
	for (unsigned i = 0; i < c->n_known; i++)
		if (c->known[i].user == p->user && !strcmp(c->known[i].name, p->name))
			return &c->known[i];
	if (c->n_known == KNOWN_MAX)
		return NULL;
	struct known *k = &c->known[c->n_known++];

	*k = (struct known){.user = p->user, .pause_ms = LOOK_MS};
	snprintf(k->name, sizeof(k->name), "%s", p->name);
	return k;
}

static void forget_unlisted(struct capture *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->n_known; i++)
		if (c->known[i].listed)
			c->known[n++] = c->known[i];
	c->n_known = n;
}

/* The errno value in an answer; 0: none. */
static int error_in(const struct ctl_program *p)
{
	const char *at = p->text ? strstr(p->text, "\"errno\": ") : NULL;

	return at ? (int)strtol(at + strlen("\"errno\": "), NULL, 10) : 0;
}

/* A program that does not answer is asked again later: it may be stopped. */
static void ask_later(struct capture *c, struct known *k, int pid)
{
	if (k->pause_ms == LOOK_MS)
		cmd_complain(NAME, "process %d does not answer%s", pid, c->pid ? "" : "; it is asked again");
	k->settled = c->pid != 0;
	k->retry_at = ms_now() + k->pause_ms;
	k->pause_ms = 2 * k->pause_ms < RETRY_MOST_MS ? 2 * k->pause_ms : RETRY_MOST_MS;
}

static void attach_program(struct capture *c, struct ctl_list *list, struct ctl_program *p, struct known *k,
                           int timeout_ms)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) {
		cmd_complain(NAME, "socketpair: %s", strerror(errno));
		return;
	}
	int err = ctl_ask_one(list, p, "capture", pair[1], timeout_ms);
	close(pair[1]);
	if (!err)
		err = error_in(p);
	k->settled = true;
	if (!err) {
		cap_add(c->collector, pair[0], p->pid);
		return;
	}
	close(pair[0]);
	c->explained |= err == EBUSY || err == ETIMEDOUT || err == EAGAIN;
	if (err == ETIMEDOUT || err == EAGAIN) /* EAGAIN: it has not accepted earlier connections */
		ask_later(c, k, p->pid);
	else if (err == EBUSY)
		cmd_complain(NAME, "process %d is captured already, by another command", p->pid);
	else if (err == EOPNOTSUPP)
		cmd_complain(NAME, "process %d uses a Verbena that cannot be captured", p->pid);
	else if (err != ESRCH)
		cmd_complain(NAME, "process %d: %s", p->pid, strerror(err));
}

/* wait_ms: for all programs together. Those whose turn does not come are asked at the next look. */
static void look_for_programs(struct capture *c, int wait_ms)
{
	int64_t until = ms_now() + wait_ms;
	struct ctl_list list;
	int err = ctl_find(&list, c->pid, c->pid != 0);

	if (err)
		cmd_complain(NAME, "the list of programs cannot be read: %s", strerror(err));
	for (unsigned i = 0; i < c->n_known; i++)
		c->known[i].listed = false;
	for (size_t i = 0; i < list.n; i++) {
		struct known *k = find_known(c, &list.programs[i]);
		int64_t now = ms_now();

		if (!k)
			continue;
		k->listed = true;
		if (!k->settled && k->retry_at <= now && now < until)
			attach_program(c, &list, &list.programs[i], k, (int)(until - now));
	}
	if (!err)
		forget_unlisted(c);
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

static bool filter_is_right(const char *text)
{
	struct cap_filter *filter = cap_filter_new(NAME, text);

	cap_filter_free(filter);
	return filter != NULL;
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
	OPT_STATS,
	OPT_JSON
};

static const struct option options[] = {
        {"write", required_argument, NULL, 'w'},
        {"pid", required_argument, NULL, OPT_PID},
        {"device", required_argument, NULL, OPT_DEVICE},
        {"qp", required_argument, NULL, OPT_QP},
        {"filter", required_argument, NULL, OPT_FILTER},
        {"snaplen", required_argument, NULL, OPT_SNAPLEN},
        {"rotate", required_argument, NULL, OPT_ROTATE},
        {"no-payload", no_argument, NULL, OPT_NO_PAYLOAD},
        {"count", required_argument, NULL, OPT_COUNT},
        {"seconds", required_argument, NULL, OPT_SECONDS},
        {"stats", no_argument, NULL, OPT_STATS},
        {"json", no_argument, NULL, OPT_JSON},
        {0},
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
		return filter_is_right(optarg);
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
	case OPT_JSON:
		c->o.json = true;
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
	if (c->o.json && c->o.file && !strcmp(c->o.file, "-")) {
		cmd_complain(NAME, "--json and -w - both need standard output: give one of them a file");
		return false;
	}
	if (!c->o.file && !c->o.stats && !c->o.json) {
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

	cmd_progress_begin();
	while (!cap_is_stopped() && cap_step(c->collector, 50)) {
		int64_t now = ms_now();

		if (c->pid && !cap_sources(c->collector))
			break;
		if (c->seconds > 0 && (double)(now - begun) >= c->seconds * 1000)
			break;
		if (!c->pid && now - looked >= LOOK_MS) {
			look_for_programs(c, ASK_LATER_MS);
			looked = ms_now();
		}
		cap_show_progress(c->collector);
	}
	cmd_progress_clear();
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
		look_for_programs(c, c->pid ? ASK_MS : ASK_FIRST_MS);
		if (c->pid && !cap_sources(c->collector)) {
			if (!c->explained)
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
