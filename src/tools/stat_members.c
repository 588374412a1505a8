// stat_members.c - reads members of a row, which may be of any type
// SPDX-License-Identifier: MIT
#include <json-c/json.h>
#include <stdio.h>

#include "tools/stat_rows.h"

static double member_number(struct json_object *row, const char *object, const char *member)
{
	struct json_object *o, *value;

	return json_object_object_get_ex(row, object, &o) && json_object_object_get_ex(o, member, &value)
	               ? json_object_get_double(value)
	               : 0;
}

double stat_row_rate(struct json_object *row, const char *counter)
{
	return member_number(row, "rates", counter);
}

double stat_row_counter(struct json_object *row, const char *counter)
{
	return member_number(row, "counters", counter);
}

long long stat_row_number(struct json_object *row, const char *member)
{
	struct json_object *value;

	return json_object_object_get_ex(row, member, &value) ? json_object_get_int64(value) : 0;
}

const char *stat_row_text(struct json_object *row, const char *member, char *buf, size_t size)
{
	struct json_object *value;
	const char *text = "";

	if (json_object_object_get_ex(row, member, &value))
		text = json_object_get_string(value);
	snprintf(buf, size, "%s", text ? text : "");
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f)
			*c = '?';
	return buf;
}
