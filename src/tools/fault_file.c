// fault_file.c - checks rules of fault injection, and passes them to a program that is started
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include "tools/fault_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/script.h"
#include "tools/verbena.h"
#include "util/env.h"

static bool is_right(const char *command, const char *name, const char *value, bool whole)
{
	struct vb_fault_script s;
	struct vb_fault_complaint c;
	bool right = whole ? vb_fault_read_env(value, &s, &c) : vb_fault_read_rules(name, value, &s, &c);

	if (!right)
		cmd_complain(command, "%s", c.line);
	else
		vb_fault_script_free(&s);
	return right;
}

bool fault_environment_is_right(const char *command)
{
	const char *value = vb_env("VERBENA_FAULT");

	return !value || !*value || is_right(command, "VERBENA_FAULT", value, true);
}

bool fault_to_environment(const char *command, const char *rule)
{
	const char *old = vb_env("VERBENA_FAULT");
	char *value;

	if (rule[0] == '@' || (old && old[0] == '@')) {
		if (old && *old) {
			cmd_complain(command, "--fault %s: a scenario file is given alone: put all rules into it",
			             rule);
			return false;
		}
		return is_right(command, "--fault", rule, true) && !setenv("VERBENA_FAULT", rule, 1);
	}
	if (!is_right(command, "--fault", rule, false))
		return false;
	if (asprintf(&value, "%s%s%s", old ? old : "", old && *old ? "; " : "", rule) < 0)
		return false;
	bool done = is_right(command, "VERBENA_FAULT", value, true) && !setenv("VERBENA_FAULT", value, 1);

	free(value);
	return done;
}
