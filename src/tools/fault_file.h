// fault_file.h - what `verbena run --fault` and `verbena fault` share
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_FAULT_FILE_H
#define VB_TOOLS_FAULT_FILE_H

#include <stdbool.h>

/* Adds a rule (or @FILE) to the environment's VERBENA_FAULT, if it makes sense. Otherwise complains for this command. */
bool fault_to_environment(const char *command, const char *rule);
/* Is the environment's own VERBENA_FAULT right? Otherwise complains. */
bool fault_environment_is_right(const char *command);

#endif
