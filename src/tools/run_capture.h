// run_capture.h - verbena run --capture: records the frames of the program and of its children
// follows: verbena-run(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_RUN_CAPTURE_H
#define VB_TOOLS_RUN_CAPTURE_H

/* Starts the program, which exec_program does in a child, and writes the frames to this file until the program ends.
 * Returns the program's exit status, as a shell shows it; 125 if the capture has failed and the program has not. */
int run_captured(const char *file, char **argv, int (*exec_program)(char **argv));

#endif
