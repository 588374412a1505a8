// env.c - a program with more rights than its caller's does not pass its caller's variables on
// follows: ld.so(8), which does the same to its own (LD_PRELOAD and so on)
// SPDX-License-Identifier: MIT
#include "util/env.h"

#include <string.h>

extern char **environ;

/* The name of the first variable that the environment has and that is Verbena's; false where there is none. */
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

/* What such a program executes may be the caller's equal in rights, so that the kernel does not say AT_SECURE there. */
__attribute__((constructor)) static void forget(void)
{
	char name[64];

	if (vb_env_is_hostile())
		while (find_ours(name, sizeof(name)) && !unsetenv(name))
			;
}
