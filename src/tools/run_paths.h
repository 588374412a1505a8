// run_paths.h - where the launcher finds Verbena's libraries and the program to run
// follows: ld.so(8), execvp(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_RUN_PATHS_H
#define VB_TOOLS_RUN_PATHS_H

#include <limits.h>
#include <stdbool.h>

#ifndef VB_LIBDIR
#define VB_LIBDIR "/usr/local/lib" /* src/util/meson.build defines the configured one */
#endif

struct run_paths {
	char lib_dir[PATH_MAX]; /* contains only libibverbs.so.1 and Verbena's other replacement libraries */
	char shim[PATH_MAX];    /* libverbena-paths.so, or "" if there is none */
	char memory[PATH_MAX];  /* libverbena-memory.so, the same */
	char fabric[PATH_MAX];  /* contains only libibumad.so.3, which is for VERBENA_FABRIC; or "" */
};

/* Finds the libraries relative to this executable: in a build tree or an installation. False if there are none. */
bool run_find_libraries(struct run_paths *paths);

/* Finds verbena-fabric, so too. */
bool run_find_fabric(char path[PATH_MAX]);

/* Finds the file that execvp would run (mode X_OK), or the first file of that name (mode F_OK). False if there is
 * none. */
bool run_find_program(const char *name, int mode, char path[PATH_MAX]);

/* True if it runs with other privileges than its caller's: the dynamic linker then ignores LD_LIBRARY_PATH. */
bool run_is_privileged(const char *path);

/* Why no dynamic linker will load Verbena's libraries into it, as the end of a sentence about it; or NULL. */
const char *run_elf_refusal(const char *path);

/* Puts item in front of a list in the environment, unless it is first already. False if there is no memory. */
bool run_prepend(const char *variable, const char *item);

#endif
