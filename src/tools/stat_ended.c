// stat_ended.c - counters of adapters, with those of programs that have ended
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tools/control.h"
#include "tools/stat_parse.h"
#include "tools/stat_rows.h"
#include "util/tally.h"

#define FILE_ROWS 64  /* of one file; the rest is nothing that a program has written */
#define USER_ROWS 64u /* adapters of one user in the totals */
#define TRIES 4       /* more programs have ended meanwhile than the sums name */

/* What is known of running and ended programs. */
struct snapshot {
	struct stat_rows *out;
	struct ctl_list list;
	const struct stat_query *query;
	struct json_object *ended;  /* rows of the sums, and of ended programs that are not in them */
	struct json_object *recent; /* programs that are in the sums */
	int64_t adds;               /* how many are */
};

/* Adds the rows of a file to an array. socket: NULL, or of the program that has written it. */
static void take_rows_of(struct json_object *rows, uid_t user, const char *socket, struct json_object *file)
{
	struct json_object *list;

	if (!json_object_object_get_ex(file, "devices", &list) || !json_object_is_type(list, json_type_array))
		return;
	for (size_t i = 0; i < json_object_array_length(list) && i < FILE_ROWS; i++) {
		struct json_object *row = json_object_array_get_idx(list, i);

		if (!json_object_is_type(row, json_type_object))
			continue;
		json_object_object_add(row, "user", json_object_new_int64(user));
		json_object_object_del(row, STAT_SOCKET);
		if (socket)
			json_object_object_add(row, STAT_SOCKET, json_object_new_string(socket));
		json_object_array_add(rows, json_object_get(row));
	}
}

static void program_key(char key[96], long long user, const char *socket)
{
	snprintf(key, 96, "%lld %.64s", user, socket);
}

static int64_t adds_of(struct json_object *file)
{
	struct json_object *adds;

	return json_object_object_get_ex(file, "adds", &adds) ? json_object_get_int64(adds) & INT32_MAX : 0;
}

static void take_recent(struct json_object *recent, uid_t user, struct json_object *file)
{
	struct json_object *list;
	char key[96];

	if (!json_object_object_get_ex(file, "recent", &list) || !json_object_is_type(list, json_type_array))
		return;
	for (size_t i = 0; i < json_object_array_length(list) && i < VB_TALLY_RECENT; i++) {
		struct json_object *name = json_object_array_get_idx(list, i);

		if (!json_object_is_type(name, json_type_string))
			continue;
		program_key(key, user, json_object_get_string(name));
		json_object_object_add(recent, key, json_object_new_boolean(true));
	}
}

static void count_adds(void *arg, uid_t user, const char *name, const char *text, size_t len)
{
	struct snapshot *s = arg;
	struct json_object *file = stat_parse(text, len);

	s->adds -= adds_of(file);
	json_object_put(file);
}

static void take_sums(void *arg, uid_t user, const char *name, const char *text, size_t len)
{
	struct snapshot *s = arg;
	struct json_object *file = stat_parse(text, len);

	s->adds += adds_of(file);
	take_recent(s->recent, user, file);
	take_rows_of(s->ended, user, NULL, file);
	json_object_put(file);
}

static struct ctl_program *program_named(struct ctl_list *list, uid_t user, const char *name)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->programs[i].user == user && !strcmp(list->programs[i].name, name))
			return &list->programs[i];
	return NULL;
}

/* A program that does not answer has what it has answered last. One that has ended may not be in the sums yet. */
static void take_shown(void *arg, uid_t user, const char *name, const char *text, size_t len)
{
	struct snapshot *s = arg;
	struct ctl_program *p = program_named(&s->list, user, name);

	if (p && !p->err)
		return;
	if (p && p->err != ESRCH) {
		stat_rows_take(s->out, p, text, len, s->query);
		return;
	}
	struct json_object *file = s->query->pid ? NULL : stat_parse(text, len);

	take_rows_of(s->ended, user, name, file);
	json_object_put(file);
}

/* Removes the rows of programs that are in the sums. */
static struct json_object *without_recent(struct json_object *rows, struct json_object *recent)
{
	struct json_object *kept = json_object_new_array(), *socket;
	char key[96];

	for (size_t i = 0; i < json_object_array_length(rows); i++) {
		struct json_object *row = json_object_array_get_idx(rows, i);

		if (json_object_object_get_ex(row, STAT_SOCKET, &socket)) {
			program_key(key, stat_row_number(row, "user"), json_object_get_string(socket));
			if (json_object_object_get_ex(recent, key, NULL))
				continue;
			json_object_object_del(row, STAT_SOCKET);
		}
		json_object_array_add(kept, json_object_get(row));
	}
	json_object_put(rows);
	return kept;
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

/* Follows util/tally.h. */
static int take_snapshot(struct snapshot *s, const char *name)
{
	int err = ctl_find(&s->list, s->query->pid, false);

	if (!err) {
		if (!s->query->pid)
			ctl_ended(&s->list, count_adds, s);
		stat_rows_ask(s->out, &s->list, name, "devices", s->query);
		ctl_shown(&s->list, take_shown, s);
		if (!s->query->pid) /* ended programs are none of a program's */
			ctl_ended(&s->list, take_sums, s);
	}
	ctl_free(&s->list);
	return err;
}

static void free_snapshot(struct snapshot *s)
{
	json_object_put(s->out->rows);
	json_object_put(s->ended);
	json_object_put(s->recent);
	s->out->rows = NULL;
}

/* Returns 0 or an errno value, with nothing to free. */
static int ask_all(struct stat_rows *out, const char *name, const struct stat_query *query, struct json_object **ended)
{
	struct snapshot s;

	for (int i = 0;; i++) {
		*out = (struct stat_rows){.rows = json_object_new_array(), .sockets = true};
		s = (struct snapshot){.out = out,
		                      .query = query,
		                      .ended = json_object_new_array(),
		                      .recent = json_object_new_object()};
		int err = take_snapshot(&s, i ? NULL : name);

		if (err) {
			free_snapshot(&s);
			return err;
		}
		if (i == TRIES - 1 || (s.adds >= 0 && s.adds <= VB_TALLY_RECENT))
			break;
		free_snapshot(&s);
	}
	out->rows = without_recent(out->rows, s.recent);
	*ended = without_recent(s.ended, s.recent);
	json_object_put(s.recent);
	return 0;
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
