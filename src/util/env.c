// env.c - a program with more privileges than its caller removes the caller's variables of RDMA libraries
// follows: ld.so(8), which removes its own variables (LD_PRELOAD and so on) in the same case
// SPDX-License-Identifier: MIT
#include "util/env.h"

#include <string.h>

extern char **environ;

/* Ours, and those of the system's libibverbs and its drivers, which load and append to the files that these name. */
static bool is_for_rdma(const char *name)
{
	static const char *const prefixes[] = {"VERBENA_", "RDMAV_", "IBV_", "VERBS_", "MLX", "QELR_", "SYSFS_PATH"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* Finds the first such variable in the environment and copies its name. Returns false if there is none. */
static bool find_rdma(char *name, size_t size)
{
	for (char **e = environ; e && *e; e++) {
		size_t n = strcspn(*e, "=");

		if ((*e)[n] != '=' || !is_for_rdma(*e) || n >= size)
			continue;
		memcpy(name, *e, n);
		name[n] = '\0';
		return true;
	}
	return false;
}

/* A program that this one executes may start without AT_SECURE (after setuid(2), say), and would use the variables. The
 * system's libibverbs uses its own if the real and the effective user are the same, whatever AT_SECURE is. */
__attribute__((constructor)) static void env_forget(void)
{
	char name[64];

	if (vb_env_is_hostile())
		while (find_rdma(name, sizeof(name)) && !unsetenv(name))
			;
}
