// verbena.h - the subcommands of the verbena tool
// follows: verbena(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_VERBENA_H
#define VB_TOOLS_VERBENA_H

/* Prefixes in this folder: cmd_ the subcommands and what they share, run_ the parts of `verbena run`, ctl_ control
 * sockets, stat_ and metrics_ what programs have, http_ the server, vb_ the tree. */

/* Each gets its name as argv[0] and returns the exit status. */
int cmd_capture(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_exporter(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);

/* Prints "verbena NAME: text" to stderr. */
void cmd_complain(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
