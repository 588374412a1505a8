// env.c - a program with more privileges than its caller does not pass the caller's VERBENA_ variables on
// follows: ld.so(8), which removes its own variables (LD_PRELOAD and so on) in the same case
// SPDX-License-Identifier: MIT
#include "util/env.h"

#include <string.h>

extern char **environ;

/* Finds the first VERBENA_ variable in the environment and copies its name. Returns false if there is none. */
static bool find_ours(char *name, size_t size)
{
	for (char **e = environ; e && *e; e++) {
		size_t n = strcspn(*e, "=");

		if (strncmp(*e, "VERBENA_", 8) || n >= size)
			continue;
		memcpy(name, *e, n);
		name[n] = '\0';
		return true;
	}
	return false;
}

/* A program that this one executes may start without AT_SECURE (after setuid(2), say), and would use the variables. */
__attribute__((constructor)) static void env_forget(void)
{
	char name[64];

	if (vb_env_is_hostile())
		while (find_ours(name, sizeof(name)) && !unsetenv(name))
			;
}
