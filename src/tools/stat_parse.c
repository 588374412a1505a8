// stat_parse.c - the answer of a program, which may be hostile, as a JSON object
// SPDX-License-Identifier: MIT
#include "tools/stat_parse.h"

#include <errno.h>
#include <json-c/json.h>
#include <limits.h>

#define DEPTH 8

static struct json_object *parse_answer(const char *text, size_t len)
{
	struct json_tokener *tok = len < INT_MAX ? json_tokener_new_ex(DEPTH) : NULL;

	if (!tok)
		return NULL;
	struct json_object *o = json_tokener_parse_ex(tok, text, (int)len);
	json_tokener_free(tok);
	return o;
}

struct json_object *stat_parse_list(const char *text, size_t len)
{
	struct json_object *o = parse_answer(text, len);

	if (json_object_is_type(o, json_type_array))
		return o;
	json_object_put(o);
	return NULL;
}

struct json_object *stat_parse(const char *text, size_t len)
{
	struct json_object *o = parse_answer(text, len);

	if (json_object_is_type(o, json_type_object) && !json_object_object_get_ex(o, "error", NULL))
		return o;
	json_object_put(o);
	return NULL;
}

int stat_parse_error(const char *text, size_t len)
{
	struct json_object *o = parse_answer(text, len), *value;
	int err = EPROTO;

	if (json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, "errno", &value))
		err = json_object_get_int(value);
	json_object_put(o);
	return err == ESHUTDOWN ? ESRCH : err > 0 && err < 4096 ? err : EPROTO;
}
