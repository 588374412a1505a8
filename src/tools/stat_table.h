// stat_table.h - rows of programs' objects as a table
// follows: verbena-stat(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_STAT_TABLE_H
#define VB_TOOLS_STAT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct json_object;

/* Prints the rows of `what`, with rates in place of totals if there are some. bold: on a terminal. */
void stat_table_print(FILE *f, const char *what, struct json_object *rows, bool rates, bool bold);

/* Prints {"WHAT": [rows]}. */
void stat_table_json(FILE *f, const char *what, struct json_object *rows);

/* The text of one column in a row: "  12.3 Gb/s". What the columns are called, by index; NULL at the end. */
const char *stat_table_head(const char *what, unsigned column);
void stat_table_cell(const char *what, unsigned column, struct json_object *row, bool rates, char *buf, size_t size);
/* Is the column a number, and so aligned to the right? */
bool stat_table_is_number(const char *what, unsigned column);

#endif
