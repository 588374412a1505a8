// stat_options.c - the options that stat, top and exporter share
// follows: verbena-stat(1)
// SPDX-License-Identifier: MIT
#include "tools/stat_options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "tools/verbena.h"

bool stat_option(char **argv, int *i, const char *option, const char **value)
{
	size_t n = strlen(option);

	if (strncmp(argv[*i], option, n) != 0)
		return false;
	if (argv[*i][n] == '=') {
		*value = argv[*i] + n + 1;
		return true;
	}
	if (argv[*i][n])
		return false;
	*value = argv[*i + 1];
	if (*value)
		++*i;
	return true;
}

static bool read_pid(const char *text, int *pid)
{
	char *end;
	long n;

	errno = 0;
	n = text ? strtol(text, &end, 10) : 0;
	if (!text || end == text || *end || errno || n <= 0 || n > INT_MAX)
		return false;
	*pid = (int)n;
	return true;
}

int stat_option_query(const char *name, char **argv, int *i, struct stat_query *query)
{
	const char *value;

	if (stat_option(argv, i, "--pid", &value)) {
		if (read_pid(value, &query->pid))
			return 1;
		cmd_complain(name, "--pid needs the number of a process");
		return -1;
	}
	if (stat_option(argv, i, "--device", &value)) {
		query->device = value;
		if (value && *value)
			return 1;
		cmd_complain(name, "--device needs the name of an adapter; 'verbena devices' lists them");
		return -1;
	}
	return 0;
}

bool stat_option_seconds(const char *name, const char *option, const char *value, double *seconds)
{
	char *end;

	*seconds = value ? strtod(value, &end) : 0;
	if (value && end != value && !*end && *seconds >= 0.1 && *seconds <= 3600)
		return true;
	cmd_complain(name, "%s needs a number of seconds from 0.1 to 3600", option);
	return false;
}

bool stat_found_pid(const char *name, const struct stat_query *query, const struct stat_rows *rows)
{
	if (!query->pid || rows->programs)
		return true;
	cmd_complain(name, "there is no process %d of yours with an open adapter; 'verbena stat processes' lists them",
	             query->pid);
	return false;
}

bool stat_found_device(const char *name, const struct stat_query *query, bool has_rows)
{
	int n;
	struct ibv_device **devices = query->device && !has_rows ? vb_device_list(&n) : NULL;
	bool found = !devices;

	for (int i = 0; devices && i < n; i++)
		found |= !strcmp(devices[i]->name, query->device);
	if (devices)
		vb_device_list_free(devices);
	if (!found)
		cmd_complain(name, "there is no adapter '%s' of Verbena's: 'verbena devices' lists them",
		             query->device);
	return found;
}
