// programs.h - asks the running programs of this user through their control sockets, all at once
// follows: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_PROGRAMS_H
#define VB_SHIM_PROGRAMS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

/* Does this network namespace belong to the host that we show? All do that share VERBENA_RUNTIME. */
bool vb_shim_is_our_netns(uint64_t netns);

/* The answer of a program, which ends with a zero byte; NULL: it has not answered in time, or with an error. name: of its
 * control socket. pid: as we see it. */
typedef void vb_shim_take(void *arg, const char *name, int pid, const char *text);

/*
 * Asks the programs whose sockets are in dir, for half a second at most while they are few. A program whose answer has
 * arrived by then is not kept from it by one that does not answer. Adds the numbers of ended programs to the sums
 * (util/tally.h). It allocates memory, so it is not for signal handlers.
 */
void vb_shim_ask_programs(DIR *dir, const char *request, vb_shim_take *take, void *arg);
/* Asks the program with this socket alone. Returns its answer, which the caller frees; or NULL. */
char *vb_shim_ask_program(DIR *dir, const char *name, const char *request);

#endif
