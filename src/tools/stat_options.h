// stat_options.h - the options that stat, top and exporter share
// follows: verbena-stat(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_STAT_OPTIONS_H
#define VB_TOOLS_STAT_OPTIONS_H

#include <stdbool.h>

#include "tools/stat_rows.h"

/* If argv[*i] is "--option value" or "--option=value", sets *value, moves *i to the last word used, and returns true.
 * *value is NULL if the value is missing. */
bool stat_option(char **argv, int *i, const char *option, const char **value);

/* Handles --pid and --device. Returns 1 if it was one of them, 0 if not, and -1, after a message, if it is wrong. */
int stat_option_query(const char *name, char **argv, int *i, struct stat_query *query);

/* A number of seconds from 0.1 to 3600. False, after a message, if it is none. */
bool stat_option_seconds(const char *name, const char *option, const char *value, double *seconds);

/* With --pid: false, after a message, if there is no such program. */
bool stat_found_pid(const char *name, const struct stat_query *query, const struct stat_rows *rows);

/* With --device: false, after a message, if this host has no such adapter and no row is of one. Programs that share the
 * runtime directory may have adapters of another network namespace. */
bool stat_found_device(const char *name, const struct stat_query *query, bool has_rows);

#endif
