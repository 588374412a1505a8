// run_paths.h - where the launcher finds the libraries, and the program it is to run
// follows: ld.so(8), execvp(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_RUN_PATHS_H
#define VB_TOOLS_RUN_PATHS_H

#include <limits.h>
#include <stdbool.h>

#ifndef VB_LIBDIR
#define VB_LIBDIR "/usr/local/lib" /* src/util/meson.build knows the true one */
#endif

struct run_paths {
	char lib_dir[PATH_MAX]; /* holds libibverbs.so.1 and its like, and nothing else */
	char shim[PATH_MAX];	/* libverbena-paths.so; "" where there is none */
};

/* From where this executable stands: a build tree, or an installation. False where no libraries are. */
bool run_find_libraries(struct run_paths *paths);

/* The file execvp would run (mode X_OK), or the first of that name whether it can be run or not (F_OK); or false. */
bool run_find_program(const char *name, int mode, char path[PATH_MAX]);

/* Does it run with other privileges than its caller's, so that the dynamic linker ignores LD_LIBRARY_PATH? */
bool run_is_privileged(const char *path);

/* Puts item in front of a list in the environment, unless it stands first already. False without memory. */
bool run_prepend(const char *variable, const char *item);

#endif
