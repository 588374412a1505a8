// stat_rows.h - what running programs have: rows of JSON from their control sockets
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_STAT_ROWS_H
#define VB_TOOLS_STAT_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#define STAT_TIMEOUT_MS 2000

struct json_object;

struct stat_query {
	int pid;            /* 0: all programs */
	const char *device; /* NULL: all adapters */
};

struct stat_rows {
	struct json_object *rows; /* an array of objects, each with pid, user, program; the caller puts it */
	size_t programs;          /* found */
	bool silent;              /* a program did not answer; said on stderr */
	bool sockets;             /* rows have STAT_SOCKET, and an error is no answer */
};

#define STAT_SOCKET "socket" /* a member: the name of the program's control socket */

/* Asks for "devices", "qps", "cqs", "mrs", "connections" or "processes". name is the subcommand, for messages about programs
 * that do not answer; NULL: none. Returns 0
 * or an errno value, with nothing to free. */
int stat_rows_get(struct stat_rows *out, const char *name, const char *what, const struct stat_query *query);

/* The two parts of that, for programs that ctl_find has found: asks them; takes the rows of an answer to "devices" that a
 * program has given before. */
struct ctl_list;
struct ctl_program;
void stat_rows_ask(struct stat_rows *out, struct ctl_list *list, const char *name, const char *what,
                   const struct stat_query *query);
void stat_rows_take(struct stat_rows *out, struct ctl_program *p, const char *text, size_t len,
                    const struct stat_query *query);

/* One row for each adapter instead of one for each adapter and program: sums of the programs, and the adapters of this
 * machine that no program uses. Takes and replaces out->rows. */
void stat_rows_by_device(struct stat_rows *out, const struct stat_query *query);

/* The same two in one: asks for "devices", and adds what ended programs have counted, so that no counter goes back. As
 * stat_rows_get. stat_ended.c */
int stat_rows_devices(struct stat_rows *out, const char *name, const struct stat_query *query);

/* The rows of running programs, and the sums of each user and adapter with those of ended programs. The caller puts
 * both. */
int stat_rows_totals(struct stat_rows *out, const char *name, const struct stat_query *query,
                     struct json_object **totals);
/* Adds all numbers of an object to those of another. */
void stat_rows_add(struct json_object *sum, struct json_object *from);
/* The row of an adapter, which is added if there is none. */
struct json_object *stat_row_of(struct json_object *rows, const char *name);

/* Adds to each row of now that also is in before a member "rates": its counters' change per second. what as above, or
 * "adapters" for rows by device. */
void stat_rows_rates(struct json_object *now, struct json_object *before, const char *what, double seconds);

/* A number of a row: of its counters, of its rates; 0 if there is none. */
double stat_row_rate(struct json_object *row, const char *counter);
double stat_row_counter(struct json_object *row, const char *counter);
/* A text of a row, with characters that a terminal could obey replaced by '?'. */
const char *stat_row_text(struct json_object *row, const char *member, char *buf, size_t size);
long long stat_row_number(struct json_object *row, const char *member);

#endif
