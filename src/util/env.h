// env.h - environment variables, which a program with more privileges than its caller ignores
// follows: secure_getenv(3), getauxval(3) for AT_SECURE
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_ENV_H
#define VB_UTIL_ENV_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>

/* Was this program started with more privileges than its caller (set-user-ID, set-group-ID, file capabilities)? The
 * answer stays the same if the program changes its user, because its environment is still the caller's. */
static inline bool vb_env_is_hostile(void)
{
	return getauxval(AT_SECURE) != 0;
}

/* The value of an environment variable, or NULL. Always NULL in such a program. Nothing else in src/ calls getenv
 * (tests/attack/environment.sh). Allocates nothing and takes no lock. */
static inline const char *vb_env(const char *name)
{
	return vb_env_is_hostile() ? NULL : getenv(name);
}

#endif
