// stat_ended.c - counters of adapters, with those of programs that have ended
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <string.h>

#include "tools/control.h"
#include "tools/stat_parse.h"
#include "tools/stat_rows.h"

#define TRIES 4 /* programs that end while others are asked make the numbers differ */

static void take_text(void *arg, const char *text, size_t len)
{
	struct json_object *file = stat_parse(text, len), *list;

	if (json_object_object_get_ex(file, "devices", &list) && json_object_is_type(list, json_type_array))
		for (size_t i = 0; i < json_object_array_length(list); i++)
			json_object_array_add(arg, json_object_get(json_object_array_get_idx(list, i)));
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

static void add_ended(struct json_object *rows, struct json_object *ended, const struct stat_query *query)
{
	struct json_object *device, *counters, *sum;

	for (size_t i = 0; i < json_object_array_length(ended); i++) {
		struct json_object *from = json_object_array_get_idx(ended, i);

		if (!json_object_object_get_ex(from, "device", &device) ||
		    !json_object_is_type(device, json_type_string) ||
		    (query->device && strcmp(query->device, json_object_get_string(device)) != 0) ||
		    !json_object_object_get_ex(from, "counters", &counters) ||
		    !json_object_is_type(counters, json_type_object))
			continue;
		struct json_object *row = stat_row_of(rows, json_object_get_string(device));

		if (!json_object_object_get_ex(row, "counters", &sum))
			json_object_object_add(row, "counters", sum = json_object_new_object());
		stat_rows_add(sum, counters);
	}
}

/* A program adds its numbers to the file before it stops answering. So they were counted once if the file is the same
 * before and after the programs were asked. */
int stat_rows_devices(struct stat_rows *out, const char *name, const struct stat_query *query,
                      struct json_object **each)
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
	if (!err) {
		if (each)
			*each = json_object_get(out->rows);
		stat_rows_by_device(out, query);
		add_ended(out->rows, after, query);
		json_object_put(after);
	}
	json_object_put(before);
	return err;
}
