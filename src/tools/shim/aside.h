// aside.h - threads that see the kernel's own files and sockets for a while, past the shim
// see: ARCHITECTURE.md, "Hardware"
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_ASIDE_H
#define VB_SHIM_ASIDE_H

#include <stdbool.h>

/* Verbena's libraries call this, by its name, around calls of the system's libibverbs and librdmacm, which look for the
 * devices of the kernel. Calls may be nested. More than 64 threads at once are not served. */
void verbena_paths_aside(bool on);

/* Does this thread see past the shim? One load while no thread does. */
bool vb_shim_is_aside(void);

#endif
