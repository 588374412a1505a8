// stat_parse.h - the answer of a program, which may be hostile, as a JSON object
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_STAT_PARSE_H
#define VB_TOOLS_STAT_PARSE_H

#include <stddef.h>

struct json_object;

/* Returns NULL if the text is not a JSON object, or is nested more deeply than our answers. {"error": ...} is NULL
 * too. */
struct json_object *stat_parse(const char *text, size_t len);
/* The same for an array. */
struct json_object *stat_parse_list(const char *text, size_t len);
/* Of a text that stat_parse does not accept: the error that the program names; ESRCH: it is about to end; EPROTO. */
int stat_parse_error(const char *text, size_t len);

#endif
