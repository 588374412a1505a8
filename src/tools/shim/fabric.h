// fabric.h - the files of a simulated InfiniBand subnet's CA, as the fabric process has them now
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_SHIM_FABRIC_H
#define VB_TOOLS_SHIM_FABRIC_H

/* A descriptor of a file below the tree (rest: from its "/" on) with its text of now. -1: it is no file of the fabric,
 * or the fabric does not answer. Keeps errno. */
int vb_shim_fabric(const char *rest, int cloexec);

#endif
