// verbena.h - the subcommands of the verbena tool
// follows: verbena(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_VERBENA_H
#define VB_TOOLS_VERBENA_H

#include <stdbool.h>
#include <stdio.h>

/* Prefixes in this folder: cmd_ the subcommands and what they share, run_ the parts of `verbena run`, enable_ those of
 * `verbena enable`, link_ the file of `verbena link`, ctl_ control sockets, stat_ and metrics_ what programs have, http_ the server, vb_ the tree. */

/* Each gets its name as argv[0] and returns the exit status. */
int cmd_capture(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_exporter(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_fault(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_link(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/* Is the standard output a terminal that knows bold text? */
bool cmd_may_be_bold(void);

/* Prints a text that may have bytes of other programs. What is no UTF-8, or a control character of 8 bits, is a question
 * mark. */
void cmd_print_utf8(FILE *f, const char *s);

/* Prints a string with its quotes. */
void cmd_print_json_string(const char *s);

/* Prints the help of the command argv[0] if its first argument is --help or -h. False if it is not. */
bool cmd_wants_help(int argc, char **argv);

/* Prints a line that names a manual page so that man(1) finds it, also in a build tree. */
void cmd_name_manual(FILE *f, const char *page);

/* Writes what is left of the standard output. Returns status, or 1 in place of 0 if the output could not be written. */
int cmd_finish(const char *name, int status);
int cmd_enable(int argc, char **argv);
int cmd_disable(int argc, char **argv);

/* Prints "verbena NAME: text" to stderr. */
void cmd_complain(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
