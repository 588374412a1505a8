// settings.h - a VERBENA_ variable with a value that is not allowed is named, once
// follows: verbena(7), ENVIRONMENT
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_SETTINGS_H
#define VB_UTIL_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* Logs one line for each VERBENA_ variable whose value is not allowed: its name, the value, what is allowed, and what
 * is used instead; and for each wrong line of the file that names adapters (util/links.h). Only the first call in a process does this. The broker's variables are among them, because the
 * broker's own standard error is /dev/null. Keeps errno. */
void vb_settings_check(void);

/* What this variable may have, if this value of it is not allowed; NULL if it is. */
const char *vb_settings_refusal(const char *name, const char *value);

/* The launcher's choice: the program that this process becomes names the variables, not the launcher. */
void vb_settings_leave_to_program(void);

/* Copies a value without control characters, and no more of it than there is room for. Returns shown. size > 0. */
const char *vb_settings_shown(const char *value, char *shown, size_t size);

/* Finds the first word of a value of VERBENA_DEVICES that names no adapter (its length in *len), or NULL. NULL for a
 * value that is NULL. */
const char *vb_settings_devices_word(const char *list, size_t *len);

#endif
