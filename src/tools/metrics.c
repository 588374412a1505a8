// metrics.c - counters of running programs as text for Prometheus
// follows: OpenMetrics 1.0.0
// SPDX-License-Identifier: MIT
#include "tools/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "core/counts.h"
#include "tools/verbena.h"

#define PAGE_ROWS 2048u /* of each user, if the page has no room for all */

/* A family: its name without _total, the counter that it shows, its unit. */
struct family {
	const char *name, *counter, *unit, *help;
};

static const struct family families[] = {
        {"verbena_port_xmit_data_bytes", "xmit_bytes", "bytes", "Payload sent (port_xmit_data, here in bytes)."},
        {"verbena_port_rcv_data_bytes", "rcv_bytes", "bytes", "Payload received (port_rcv_data, here in bytes)."},
#define X(name, text) {"verbena_" #name, #name, NULL, text},
        VB_COUNTS_EVENTS(X)
#undef X
};

static const struct family gauges[] = {
        {"verbena_qps", "qps", NULL, "Queue pairs."},
        {"verbena_cqs", "cqs", NULL, "Completion queues."},
        {"verbena_contexts", "contexts", NULL, "Open contexts."},
};

static void put_label(struct vb_text *out, const char *name, const char *value)
{
	vb_text_format(out, "%s=\"", name);
	for (; *value; value++) {
		char one[3] = {*value == '"' || *value == '\\' ? '\\' : *value, *value, '\0'};

		if (one[0] != '\\')
			one[1] = '\0';
		vb_text_put(out, one);
	}
	vb_text_put(out, "\"");
}

static void put_head(struct vb_text *out, const struct family *f, const char *type)
{
	vb_text_format(out, "# TYPE %s %s\n", f->name, type);
	if (f->unit)
		vb_text_format(out, "# UNIT %s %s\n", f->name, f->unit);
	vb_text_format(out, "# HELP %s %s\n", f->name, f->help);
}

static void put_sample(struct vb_text *out, const struct family *f, const char *suffix, struct json_object *row,
                       long long value)
{
	char text[128];

	vb_text_format(out, "%s%s{", f->name, suffix);
	put_label(out, "device", stat_row_text(row, "device", text, sizeof(text)));
	vb_text_format(out, ",pid=\"%lld\",", stat_row_number(row, "pid"));
	put_label(out, "program", stat_row_text(row, "program", text, sizeof(text)));
	vb_text_format(out, "} %lld\n", value);
}

static long long counter_of(struct json_object *row, const char *name)
{
	struct json_object *counters;

	return json_object_object_get_ex(row, "counters", &counters) ? stat_row_number(counters, name) : 0;
}

static void put_families(struct vb_text *out, struct json_object *rows)
{
	size_t n = json_object_array_length(rows);

	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		put_head(out, &families[f], "counter");
		for (size_t i = 0; i < n; i++) {
			struct json_object *row = json_object_array_get_idx(rows, i);

			put_sample(out, &families[f], "_total", row, counter_of(row, families[f].counter));
		}
	}
	for (size_t f = 0; f < sizeof(gauges) / sizeof(gauges[0]); f++) {
		put_head(out, &gauges[f], "gauge");
		for (size_t i = 0; i < n; i++) {
			struct json_object *row = json_object_array_get_idx(rows, i);

			put_sample(out, &gauges[f], "", row, stat_row_number(row, gauges[f].counter));
		}
	}
}

/* The rows, but of each user `most` at most. */
static struct json_object *first_rows(struct json_object *rows, size_t most)
{
	struct json_object *taken = json_object_new_array(), *users = json_object_new_object(), *old;
	char user[32];

	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		struct json_object *row = json_object_array_get_idx(rows, i);

		snprintf(user, sizeof(user), "%lld", stat_row_number(row, "user"));
		int64_t n = json_object_object_get_ex(users, user, &old) ? json_object_get_int64(old) : 0;

		if ((size_t)n >= most)
			continue;
		json_object_object_add(users, user, json_object_new_int64(n + 1));
		json_object_array_add(taken, json_object_get(row));
	}
	json_object_put(users);
	return taken;
}

/* Sums of each user and adapter, with those of programs that have ended. */
static void put_devices(struct vb_text *out, struct json_object *rows)
{
	char text[128], name[96];

	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
		snprintf(name, sizeof(name), "verbena_device_%s", families[f].name + strlen("verbena_"));
		const struct family of = {name, families[f].counter, families[f].unit, families[f].help};

		put_head(out, &of, "counter");
		for (size_t i = 0; i < json_object_array_length(rows); i++) {
			struct json_object *row = json_object_array_get_idx(rows, i);

			vb_text_format(out, "%s_total{", name);
			put_label(out, "device", stat_row_text(row, "device", text, sizeof(text)));
			vb_text_format(out, ",user=\"%lld\"} %lld\n", stat_row_number(row, "user"),
			               counter_of(row, of.counter));
		}
	}
}

static void put_page(struct vb_text *out, const struct stat_rows *r, struct json_object *rows,
                     struct json_object *devices)
{
	vb_text_format(out,
	               "# TYPE verbena_programs gauge\n# HELP verbena_programs Running programs with an open adapter.\n"
	               "verbena_programs %zu\n"
	               "# TYPE verbena_programs_silent gauge\n"
	               "# HELP verbena_programs_silent 1 if a program did not answer.\nverbena_programs_silent %d\n",
	               r->programs, r->silent);
	put_families(out, rows);
	put_devices(out, devices);
	vb_text_put(out, "# EOF\n");
}

/* Rows for which the page has no room are of users with very many, who may be hostile, so they are left out. */
int metrics_write(struct vb_text *out, const char *name, const struct stat_query *query, bool *silent)
{
	struct stat_rows r;
	struct json_object *totals;
	int err = stat_rows_totals(&r, name, query, &totals);

	if (err)
		return err;
	put_page(out, &r, r.rows, totals);
	for (size_t most = PAGE_ROWS; out->failed && most; most /= 2) {
		struct json_object *rows = first_rows(r.rows, most), *sums = first_rows(totals, most);

		r.silent = true;
		vb_text_free(out);
		put_page(out, &r, rows, sums);
		json_object_put(rows);
		json_object_put(sums);
		if (name && !out->failed)
			cmd_complain(name, "too many adapters are in use: %zu of each user's are shown", most);
	}
	json_object_put(totals);
	*silent = r.silent;
	json_object_put(r.rows);
	return out->failed ? ENOMEM : 0;
}
