// copy.h - one copy between two programs' memories
// follows: process_vm_readv(2)
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_COPY_H
#define VB_PATH_LOCAL_COPY_H

#include "engine/local/peer.h"

extern const struct vb_copy_ops vb_copy_vm;   /* between programs */
extern const struct vb_copy_ops vb_copy_self; /* within this one */

/* Returns true if this process may copy from pid and pid is the owner of the mapped segment. Reads the segment's header
 * at its address in that process: in our pid namespace the pid may belong to another process. */
bool vb_copy_probe(int pid, uint64_t self, uint64_t incarnation);

#endif
