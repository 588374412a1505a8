// cmd_stat.c - verbena stat: what running programs have and how much they send, as a table, JSON, or OpenMetrics
// follows: verbena-stat(1); rdma-resource(8), rdma-statistic(8)
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/metrics.h"
#include "tools/progress.h"
#include "tools/stat_options.h"
#include "tools/stat_table.h"
#include "tools/verbena.h"

static const char *const usage = "Usage: verbena stat [devices|qps|cqs|mrs|connections|processes] [OPTION...]\n"
                                 "Shows what the running programs of this user have; root sees those of all users.\n"
                                 "\n"
                                 "  devices      adapters: programs, queue pairs, counters (the default)\n"
                                 "  qps          queue pairs: type, state, path, peer, PSNs, counters\n"
                                 "  cqs          completion queues: size, entries, armed or not\n"
                                 "  mrs          memory regions: address, length, access, key\n"
                                 "  connections  communication ids of rdma_cm: state, addresses\n"
                                 "  processes    programs with an open adapter\n"
                                 "\n"
                                 "  --pid N           only this process\n"
                                 "  --device NAME     only this adapter\n"
                                 "  --rates SECONDS   watch so long, and show rates (devices, qps, processes)\n"
                                 "  --json            print JSON, with all counters\n"
                                 "  --openmetrics     print the counters as OpenMetrics text\n"
                                 "  --help            show this\n"
                                 "\n"
                                 "Exit status: 0 success, 1 failure or a program did not answer, 2 wrong usage.\n";

struct stat_options {
	const char *what;
	struct stat_query query;
	double seconds; /* 0: no rates */
	bool json, openmetrics, help;
};

static bool is_what(const char *word)
{
	static const char *const words[] = {"devices", "qps", "cqs", "mrs", "connections", "processes"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(words[i], word))
			return true;
	return false;
}

static bool read_word(char **argv, int *i, struct stat_options *o)
{
	const char *value;
	int r = stat_option_query("stat", argv, i, &o->query);

	if (r)
		return r > 0;
	if (stat_option(argv, i, "--rates", &value))
		return stat_option_seconds("stat", "--rates", value, &o->seconds);
	if (!strcmp(argv[*i], "--json")) {
		o->json = true;
	} else if (!strcmp(argv[*i], "--openmetrics")) {
		o->openmetrics = true;
	} else if (!strcmp(argv[*i], "--help") || !strcmp(argv[*i], "-h")) {
		o->help = true;
	} else if (!o->what && is_what(argv[*i])) {
		o->what = argv[*i];
	} else {
		cmd_complain("stat", "unknown argument '%s'; 'verbena stat --help' lists them", argv[*i]);
		return false;
	}
	return true;
}

static bool read_words(int argc, char **argv, struct stat_options *o)
{
	for (int i = 1; i < argc; i++)
		if (!read_word(argv, &i, o))
			return false;
	if (o->openmetrics && (o->json || o->what || o->seconds > 0)) {
		cmd_complain("stat",
		             "--openmetrics prints the counters of all adapters: it takes --pid and --device only");
		return false;
	}
	if (!o->what)
		o->what = "devices";
	if (o->seconds > 0 && strcmp(o->what, "devices") && strcmp(o->what, "qps") && strcmp(o->what, "processes")) {
		cmd_complain("stat", "--rates is for devices, qps and processes");
		return false;
	}
	return true;
}

static int get_rows(struct stat_rows *rows, const struct stat_options *o)
{
	bool devices = !strcmp(o->what, "devices");
	int err =
	        devices ? stat_rows_devices(rows, "stat", &o->query) : stat_rows_get(rows, "stat", o->what, &o->query);

	if (err)
		cmd_complain("stat", "the control sockets of running programs cannot be listed: %s", strerror(err));
	return err;
}

static double now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The rows, with rates if they are requested. */
static int get_with_rates(struct stat_rows *rows, const struct stat_options *o)
{
	struct stat_rows before;
	double from = now_seconds();

	if (o->seconds <= 0)
		return get_rows(rows, o);
	int err = get_rows(&before, o);
	if (err)
		return err;
	cmd_progress_sleep(o->seconds, "rates");
	err = get_rows(rows, o);
	if (!err)
		stat_rows_rates(rows->rows, before.rows, strcmp(o->what, "devices") ? o->what : "adapters",
		                now_seconds() - from);
	json_object_put(before.rows);
	return err;
}

static int print_openmetrics(const struct stat_options *o)
{
	struct vb_text text = {0};
	bool silent = false, found = false;
	int err = metrics_write(&text, "stat", &o->query, &silent);

	if (err) {
		cmd_complain("stat", "the counters of running programs cannot be read: %s", strerror(err));
	} else {
		found = stat_found_device("stat", &o->query,
		                          strstr(text.at, " device=") || strstr(text.at, "{device="));
		fwrite(text.at, 1, text.len, stdout);
	}
	vb_text_free(&text);
	return err || silent || !found;
}

static int show(const struct stat_options *o)
{
	struct stat_rows rows;

	if (get_with_rates(&rows, o))
		return 1;
	bool found = stat_found_pid("stat", &o->query, &rows) &&
	             stat_found_device("stat", &o->query, json_object_array_length(rows.rows) > 0);
	int status = rows.silent || !found;

	if (o->json)
		stat_table_json(stdout, o->what, rows.rows);
	else if (found)
		stat_table_print(stdout, o->what, rows.rows, o->seconds > 0, cmd_may_be_bold());
	json_object_put(rows.rows);
	return status;
}

int cmd_stat(int argc, char **argv)
{
	struct stat_options o = {0};

	if (!read_words(argc, argv, &o))
		return 2;
	if (o.help) {
		fputs(usage, stdout);
		cmd_name_manual(stdout, "verbena-stat");
		return 0;
	}
	return o.openmetrics ? print_openmetrics(&o) : show(&o);
}
