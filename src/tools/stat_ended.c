// stat_ended.c - counters of adapters, with those of programs that have ended
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "tools/control.h"
#include "tools/stat_parse.h"
#include "tools/stat_rows.h"

#define FILE_ROWS 64  /* of one file; the rest is nothing that a program has written */
#define USER_ROWS 64u /* adapters of one user in the totals */
#define TRIES 4       /* programs that end while others are asked make the numbers differ */

static void take_text(void *arg, uid_t user, const char *text, size_t len)
{
	struct json_object *file = stat_parse(text, len), *list;

	if (json_object_object_get_ex(file, "devices", &list) && json_object_is_type(list, json_type_array))
		for (size_t i = 0; i < json_object_array_length(list) && i < FILE_ROWS; i++) {
			struct json_object *row = json_object_array_get_idx(list, i);

			if (!json_object_is_type(row, json_type_object))
				continue;
			json_object_object_add(row, "user", json_object_new_int64(user));
			json_object_array_add(arg, json_object_get(row));
		}
	json_object_put(file);
}

/* The rows of all files; NULL if the directories cannot be read. pid: ended programs are none of a program's. */
static struct json_object *ended_rows(const struct stat_query *query)
{
	struct json_object *rows = json_object_new_array();
	struct ctl_list list;

	if (query->pid)
		return rows;
	if (!ctl_find(&list, 0, false))
		ctl_ended(&list, take_text, rows);
	ctl_free(&list);
	return rows;
}

/* The counters of a row with a device that the query wants; NULL otherwise. */
static struct json_object *counters_of(struct json_object *row, const struct stat_query *query, const char **name)
{
	struct json_object *device, *counters;

	if (!json_object_object_get_ex(row, "device", &device) || !json_object_is_type(device, json_type_string) ||
	    !json_object_object_get_ex(row, "counters", &counters) || !json_object_is_type(counters, json_type_object))
		return NULL;
	*name = json_object_get_string(device);
	return query->device && strcmp(query->device, *name) != 0 ? NULL : counters;
}

static void add_counters(struct json_object *row, struct json_object *counters)
{
	struct json_object *sum;

	if (!json_object_object_get_ex(row, "counters", &sum))
		json_object_object_add(row, "counters", sum = json_object_new_object());
	stat_rows_add(sum, counters);
}

static void add_ended(struct json_object *rows, struct json_object *ended, const struct stat_query *query)
{
	const char *name;

	for (size_t i = 0; i < json_object_array_length(ended); i++) {
		struct json_object *counters = counters_of(json_object_array_get_idx(ended, i), query, &name);

		if (counters)
			add_counters(stat_row_of(rows, name), counters);
	}
}

/* Asks the programs, and reads the files of ended ones. A program adds its numbers to the file before it stops
 * answering. So they were counted once if the file is the same before and after the programs were asked. */
static int ask_all(struct stat_rows *out, const char *name, const struct stat_query *query, struct json_object **ended)
{
	struct json_object *before = ended_rows(query), *after = NULL;
	int err = 0;

	for (int i = 0; i < TRIES; i++) {
		err = stat_rows_get(out, name, "devices", query);
		if (err)
			break;
		after = ended_rows(query);
		if (i == TRIES - 1 || json_object_equal(before, after))
			break;
		json_object_put(out->rows);
		json_object_put(before);
		before = after;
	}
	json_object_put(before);
	*ended = after;
	return err;
}

/* --- totals by user and adapter --- */

struct totals {
	struct json_object *rows, *by_key, *users; /* users: how many rows each has */
};

static struct totals totals_new(void)
{
	return (struct totals){json_object_new_array(), json_object_new_object(), json_object_new_object()};
}

static void totals_free(struct totals *t)
{
	json_object_put(t->by_key);
	json_object_put(t->users);
	json_object_put(t->rows);
}

/* The row of this user and adapter. NULL: the user has too many. */
static struct json_object *total_of(struct totals *t, long long user, const char *device)
{
	char key[128], who[24];
	struct json_object *row, *n;

	snprintf(who, sizeof(who), "%lld", user);
	snprintf(key, sizeof(key), "%s %.100s", who, device);
	if (json_object_object_get_ex(t->by_key, key, &row))
		return row;
	int64_t rows = json_object_object_get_ex(t->users, who, &n) ? json_object_get_int64(n) : 0;
	if (rows >= USER_ROWS)
		return NULL;
	json_object_object_add(t->users, who, json_object_new_int64(rows + 1));
	row = json_object_new_object();
	json_object_object_add(row, "user", json_object_new_int64(user));
	json_object_object_add(row, "device", json_object_new_string(device));
	json_object_object_add(t->by_key, key, json_object_get(row));
	json_object_array_add(t->rows, row);
	return row;
}

static void add_totals(struct totals *t, struct json_object *rows, const struct stat_query *query)
{
	const char *name;

	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		struct json_object *from = json_object_array_get_idx(rows, i);
		struct json_object *counters = counters_of(from, query, &name);
		struct json_object *row = counters ? total_of(t, stat_row_number(from, "user"), name) : NULL;

		if (row)
			add_counters(row, counters);
	}
}

int stat_rows_devices(struct stat_rows *out, const char *name, const struct stat_query *query)
{
	struct json_object *ended;
	int err = ask_all(out, name, query, &ended);

	if (err)
		return err;
	struct totals t = totals_new();

	add_totals(&t, ended, query); /* bounds what a user can add */
	stat_rows_by_device(out, query);
	add_ended(out->rows, t.rows, query);
	totals_free(&t);
	json_object_put(ended);
	return 0;
}

int stat_rows_totals(struct stat_rows *out, const char *name, const struct stat_query *query,
                     struct json_object **totals)
{
	struct totals t;
	struct json_object *ended;
	int err = ask_all(out, name, query, &ended);

	if (err)
		return err;
	t = totals_new();
	add_totals(&t, ended, query);
	add_totals(&t, out->rows, query);
	json_object_put(ended);
	*totals = json_object_get(t.rows);
	totals_free(&t);
	return 0;
}
