// env.h - environment variables, which a program with more privileges than its caller ignores
// follows: secure_getenv(3), getauxval(3) for AT_SECURE
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_ENV_H
#define VB_UTIL_ENV_H

#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>

/* Was this program started with more privileges than its caller (set-user-ID, set-group-ID, file capabilities)? This
 * holds until it ends, whatever user it becomes, because its environment is the caller's. */
static inline bool vb_env_is_hostile(void)
{
	return getauxval(AT_SECURE) != 0;
}

/* The value of an environment variable, or NULL: always NULL in such a program. Nothing else in src/ calls getenv
 * (tests/system/device/environment.sh looks). No allocation and no lock. */
static inline const char *vb_env(const char *name)
{
	return vb_env_is_hostile() ? NULL : getenv(name);
}

#endif
