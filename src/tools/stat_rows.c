// stat_rows.c - what running programs have: rows of JSON from their control sockets
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include "tools/stat_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "tools/control.h"
#include "tools/stat_parse.h"
#include "tools/verbena.h"

/* A program may be hostile. Beyond this it has not answered. */
#define ROWS_MOST ((size_t)1 << 16)   /* of one program */
#define BYTES_MOST ((size_t)16 << 20) /* of all answers of one program */
#define DEVICES_MOST ((size_t)64)     /* node/stat.c gives no more */

static void read_program_name(int pid, char buf[64])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	FILE *f = fopen(path, "re");
	snprintf(buf, 64, "?");
	if (f && fgets(buf, 64, f))
		buf[strcspn(buf, "\n")] = '\0';
	if (f)
		fclose(f);
}

/* Says which program it is, before its own members. */
static struct json_object *row_of(const struct ctl_program *p, const char *name, struct json_object *from)
{
	struct json_object *row = json_object_new_object();

	json_object_object_add(row, "pid", json_object_new_int(p->pid));
	json_object_object_add(row, "user", json_object_new_int64(p->user));
	json_object_object_add(row, "program", json_object_new_string(name));
	json_object_object_foreach(from, key, value) if (!json_object_object_get_ex(row, key, NULL))
	        json_object_object_add(row, key, json_object_get(value));
	return row;
}

static bool is_wanted(struct json_object *row, const struct stat_query *query)
{
	struct json_object *device;

	if (!query->device || !json_object_object_get_ex(row, "device", &device))
		return true;
	return json_object_is_type(device, json_type_string) && !strcmp(json_object_get_string(device), query->device);
}

/* What a program may still give. */
struct budget {
	size_t rows, bytes;
};

static struct budget whole_budget(const char *what)
{
	return (struct budget){.rows = strcmp(what, "devices") ? ROWS_MOST : DEVICES_MOST, .bytes = BYTES_MOST};
}

static void take_list(struct stat_rows *out, struct ctl_program *p, struct json_object *list,
                      const struct stat_query *query, struct budget *left)
{
	char name[64];

	read_program_name(p->pid, name);
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *row = json_object_array_get_idx(list, i);

		if (!left->rows) {
			p->err = EMSGSIZE;
			return;
		}
		left->rows--;
		if (!json_object_is_type(row, json_type_object) || !is_wanted(row, query))
			continue;
		row = row_of(p, name, row);
		if (out->sockets)
			json_object_object_add(row, STAT_SOCKET, json_object_new_string(p->name));
		json_object_array_add(out->rows, row);
	}
}

/* Adds the rows of an answer. Returns where the next answer begins, or 0 if this was the last. */
static uint64_t take_rows(struct stat_rows *out, struct ctl_program *p, const char *what,
                          const struct stat_query *query, struct budget *left)
{
	struct json_object *answer, *list, *next;
	uint64_t from = 0;

	if (p->len > left->bytes) {
		p->err = EMSGSIZE;
		return 0;
	}
	left->bytes -= p->len;
	answer = stat_parse(p->text, p->len);
	if (!answer && out->sockets)
		p->err = stat_parse_error(p->text, p->len);
	ctl_forget(p);
	if (!answer)
		return 0;
	if (json_object_object_get_ex(answer, what, &list) && json_object_is_type(list, json_type_array))
		take_list(out, p, list, query, left);
	if (!p->err && json_object_object_get_ex(answer, "next", &next) && json_object_get_int64(next) > 0)
		from = (uint64_t)json_object_get_int64(next);
	json_object_put(answer);
	return from;
}

static void take_program(struct stat_rows *out, struct ctl_list *list, struct ctl_program *p, const char *what,
                         const struct stat_query *query)
{
	char request[64];
	struct budget left = whole_budget(what);
	uint64_t from = take_rows(out, p, what, query, &left), last = 0;
	int64_t until = ctl_now_ms() + STAT_TIMEOUT_MS, now;

	while (from > last) {
		snprintf(request, sizeof(request), "%s from=%" PRIu64, what, from);
		now = ctl_now_ms();
		if (ctl_ask_one(list, p, request, -1, now < until ? (int)(until - now) : 0))
			return;
		last = from;
		from = take_rows(out, p, what, query, &left);
	}
}

static void say_silent(struct stat_rows *out, const char *name, const struct ctl_program *p)
{
	out->silent = true;
	if (name)
		cmd_complain(name, "program %d did not answer: %s%s", p->pid, strerror(p->err),
		             p->err == ETIMEDOUT  ? " (it may be stopped)"
		             : p->err == EMSGSIZE ? " (it has more than is shown of one program)"
		                                  : "");
}

/* All programs are asked at once, and those with more rows one after another. */
void stat_rows_ask(struct stat_rows *out, struct ctl_list *list, const char *name, const char *what,
                   const struct stat_query *query)
{
	ctl_ask(list, what, -1, STAT_TIMEOUT_MS);
	for (size_t i = 0; i < list->n; i++) {
		struct ctl_program *p = &list->programs[i];

		if (!p->err)
			take_program(out, list, p, what, query);
		if (p->err == ESRCH)
			continue;
		out->programs++;
		if (p->err) {
			say_silent(out, name, p);
		}
	}
}

void stat_rows_take(struct stat_rows *out, struct ctl_program *p, const char *text, size_t len,
                    const struct stat_query *query)
{
	struct json_object *answer = stat_parse(text, len), *list;
	struct budget left = whole_budget("devices");

	if (json_object_object_get_ex(answer, "devices", &list) && json_object_is_type(list, json_type_array))
		take_list(out, p, list, query, &left);
	json_object_put(answer);
}

static int ask_for(struct stat_rows *out, const char *name, const char *what, const struct stat_query *query)
{
	struct ctl_list list;
	int err = ctl_find(&list, query->pid, false);

	if (!err)
		stat_rows_ask(out, &list, name, what, query);
	ctl_free(&list);
	return err;
}

static struct json_object *copy_number(struct json_object *from, const char *key)
{
	struct json_object *value;

	return json_object_object_get_ex(from, key, &value) ? json_object_get(value) : json_object_new_int(0);
}

/* Other users write such numbers too. None is negative. */
static int64_t count_of(struct json_object *value)
{
	int64_t n = json_object_get_int64(value);

	return n < 0 ? 0 : n;
}

void stat_rows_add(struct json_object *sum, struct json_object *from)
{
	json_object_object_foreach(from, key, value)
	{
		struct json_object *old;
		int64_t n = count_of(value);

		if (json_object_object_get_ex(sum, key, &old) && __builtin_add_overflow(n, count_of(old), &n))
			n = INT64_MAX;
		json_object_object_add(sum, key, json_object_new_int64(n));
	}
}

static struct json_object *member_object(struct json_object *row, const char *key)
{
	struct json_object *value;

	if (json_object_object_get_ex(row, key, &value) && json_object_is_type(value, json_type_object))
		return value;
	value = json_object_new_object();
	json_object_object_add(row, key, value);
	return value;
}

/* A process: what it says about itself, and the sum of its adapters. */
static void add_process(struct stat_rows *out, const struct ctl_program *p, struct json_object *about,
                        struct json_object *devices)
{
	struct json_object *list, *row, *value;
	struct json_object *names = json_object_new_array();
	int64_t qps = 0, cqs = 0;
	char name[64];

	read_program_name(p->pid, name);
	row = row_of(p, name, about);
	if (!json_object_object_get_ex(devices, "devices", &list) || !json_object_is_type(list, json_type_array))
		list = NULL;
	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *d = json_object_array_get_idx(list, i);

		if (!json_object_is_type(d, json_type_object))
			continue;
		if (stat_row_number(d, "contexts") > 0)
			json_object_array_add(names, copy_number(d, "device"));
		qps += stat_row_number(d, "qps");
		cqs += stat_row_number(d, "cqs");
		if (json_object_object_get_ex(d, "counters", &value) && json_object_is_type(value, json_type_object))
			stat_rows_add(member_object(row, "counters"), value);
	}
	json_object_object_add(row, "devices", names);
	json_object_object_add(row, "qps", json_object_new_int64(qps));
	json_object_object_add(row, "cqs", json_object_new_int64(cqs));
	json_object_object_add(row, "mrs", copy_number(devices, "mrs"));
	if (json_object_object_get_ex(devices, "process", &value))
		json_object_object_add(row, "process", json_object_get(value));
	json_object_array_add(out->rows, row);
}

/* NULL if it is too long, too. */
static struct json_object *parse_devices(struct ctl_program *p)
{
	struct json_object *answer = stat_parse(p->text, p->len), *list;

	if (!json_object_object_get_ex(answer, "devices", &list) || !json_object_is_type(list, json_type_array) ||
	    json_object_array_length(list) <= DEVICES_MOST)
		return answer;
	p->err = EMSGSIZE;
	json_object_put(answer);
	return NULL;
}

static int ask_processes(struct stat_rows *out, const char *name, const struct stat_query *query)
{
	struct ctl_list list;
	int err = ctl_find(&list, query->pid, false);

	struct json_object **devices = calloc(list.n + 1, sizeof(struct json_object *));
	if (!err && !devices)
		err = ENOMEM;
	if (!err)
		ctl_ask(&list, "devices", -1, STAT_TIMEOUT_MS);
	for (size_t i = 0; !err && i < list.n; i++)
		devices[i] = list.programs[i].err ? NULL : parse_devices(&list.programs[i]);
	if (!err)
		ctl_ask(&list, "about", -1, STAT_TIMEOUT_MS);
	for (size_t i = 0; !err && i < list.n; i++) {
		struct ctl_program *p = &list.programs[i];
		struct json_object *about = p->err || !devices[i] ? NULL : stat_parse(p->text, p->len);

		out->programs += p->err != ESRCH;
		if (about)
			add_process(out, p, about, devices[i]);
		else if (p->err && p->err != ESRCH)
			say_silent(out, name, p);
		json_object_put(devices[i]);
		json_object_put(about);
	}
	free(devices);
	ctl_free(&list);
	return err;
}

int stat_rows_get(struct stat_rows *out, const char *name, const char *what, const struct stat_query *query)
{
	*out = (struct stat_rows){.rows = json_object_new_array()};
	int err = !strcmp(what, "processes") ? ask_processes(out, name, query) : ask_for(out, name, what, query);

	if (err) {
		json_object_put(out->rows);
		out->rows = NULL;
	}
	return err;
}

/* --- by device --- */

struct json_object *stat_row_of(struct json_object *rows, const char *name)
{
	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		struct json_object *row = json_object_array_get_idx(rows, i), *device;

		if (json_object_object_get_ex(row, "device", &device) && !strcmp(json_object_get_string(device), name))
			return row;
	}
	struct json_object *row = json_object_new_object();

	json_object_object_add(row, "device", json_object_new_string(name));
	json_object_array_add(rows, row);
	return row;
}

static void add_idle_devices(struct json_object *rows, const struct stat_query *query)
{
	int n;
	struct ibv_device **devices = vb_device_list(&n);

	for (int i = 0; devices && i < n; i++)
		if (!query->device || !strcmp(query->device, devices[i]->name))
			stat_row_of(rows, devices[i]->name);
	if (devices)
		vb_device_list_free(devices);
}

static void add_to_device(struct json_object *sum, struct json_object *row)
{
	struct json_object *numbers = json_object_new_object(), *counters;

	/* a program that has closed the adapter still has what it has counted */
	json_object_object_add(numbers, "programs", json_object_new_int(stat_row_number(row, "contexts") > 0));
	json_object_object_add(numbers, "qps", copy_number(row, "qps"));
	json_object_object_add(numbers, "cqs", copy_number(row, "cqs"));
	stat_rows_add(sum, numbers);
	json_object_put(numbers);
	if (json_object_object_get_ex(row, "counters", &counters) && json_object_is_type(counters, json_type_object))
		stat_rows_add(member_object(sum, "counters"), counters);
}

void stat_rows_by_device(struct stat_rows *out, const struct stat_query *query)
{
	struct json_object *sums = json_object_new_array(), *old = out->rows, *device;

	add_idle_devices(sums, query);
	for (size_t i = 0; i < json_object_array_length(old); i++) {
		struct json_object *row = json_object_array_get_idx(old, i);

		if (json_object_object_get_ex(row, "device", &device) && json_object_is_type(device, json_type_string))
			add_to_device(stat_row_of(sums, json_object_get_string(device)), row);
	}
	json_object_put(old);
	out->rows = sums;
}

/* --- rates --- */

/* What a row is about. */
static void row_key(struct json_object *row, const char *what, char *buf, size_t size)
{
	struct json_object *device;
	bool has_device = json_object_object_get_ex(row, "device", &device);

	snprintf(buf, size, "%lld/%lld/%s", !strcmp(what, "adapters") ? 0 : stat_row_number(row, "pid"),
	         !strcmp(what, "qps") ? stat_row_number(row, "qpn") : 0,
	         has_device ? json_object_get_string(device) : "");
}

/* A hostile program may give something else than an object. */
static bool get_counters(struct json_object *row, struct json_object **counters)
{
	return json_object_object_get_ex(row, "counters", counters) && json_object_is_type(*counters, json_type_object);
}

static struct json_object *rates_between(struct json_object *now, struct json_object *before, double seconds)
{
	struct json_object *rates = json_object_new_object(), *old;

	json_object_object_foreach(now, key, value)
	{
		int64_t n = json_object_get_int64(value);

		if (!json_object_object_get_ex(before, key, &old))
			continue;
		int64_t change = n - json_object_get_int64(old);
		json_object_object_add(rates, key, json_object_new_double(change > 0 ? (double)change / seconds : 0));
	}
	return rates;
}

void stat_rows_rates(struct json_object *now, struct json_object *before, const char *what, double seconds)
{
	struct json_object *index = json_object_new_object(), *old, *a, *b;
	char key[256];

	for (size_t i = 0; i < json_object_array_length(before); i++) {
		struct json_object *row = json_object_array_get_idx(before, i);

		row_key(row, what, key, sizeof(key));
		json_object_object_add(index, key, json_object_get(row));
	}
	for (size_t i = 0; i < json_object_array_length(now); i++) {
		struct json_object *row = json_object_array_get_idx(now, i);

		row_key(row, what, key, sizeof(key));
		if (json_object_object_get_ex(index, key, &old) && get_counters(row, &a) && get_counters(old, &b))
			json_object_object_add(row, "rates", rates_between(a, b, seconds));
	}
	json_object_put(index);
}
