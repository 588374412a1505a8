// enable_loader.h - the file and the cache by which the dynamic linker finds Verbena's libraries
// follows: ld.so(8), ldconfig(8)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_ENABLE_LOADER_H
#define VB_TOOLS_ENABLE_LOADER_H

#include <limits.h>
#include <stdbool.h>

/* The name sorts before the distribution's files: ldconfig takes the first directory that has a library. */
#define ENABLE_CONF_DIR "/etc/ld.so.conf.d"
#define ENABLE_CONF ENABLE_CONF_DIR "/00-verbena.conf"

enum enable_found { ENABLE_NONE, ENABLE_OTHER, ENABLE_OURS };

/* Root's programs load what is in dir. So dir, its parents and its libraries must belong to root, and nobody else may
 * write there. False with a description in why. */
bool enable_dir_is_safe(const char *dir, char why[PATH_MAX + 128]);

/* Replaces the file as a whole; dir NULL: removes it. 0 or an errno value; ENOENT if there was none to remove. */
int enable_write_conf(const char *dir);

/* The directory that the file names. False if there is no such file. */
bool enable_read_conf(char dir[PATH_MAX]);

/* Runs ldconfig(8). False if it cannot be run or fails; it says why itself. */
bool enable_run_ldconfig(void);

/* Which libibverbs.so.1 the cache names first: that of dir, or another (its path is in other). */
enum enable_found enable_look_in_cache(const char *dir, char other[PATH_MAX]);

#endif
