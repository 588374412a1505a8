// copy.h - one copy between two programs' memories
// follows: process_vm_readv(2)
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_COPY_H
#define VB_PATH_LOCAL_COPY_H

#include "engine/local/peer.h"

extern const struct vb_copy_ops vb_copy_vm;   /* between programs */
extern const struct vb_copy_ops vb_copy_self; /* within this one */

/* May this process copy from pid, and is that the process whose segment is mapped? Reads the segment's header at its
 * address in that process, to detect a pid that means another process in our pid namespace. */
bool vb_copy_probe(int pid, uint64_t self, uint64_t incarnation);

#endif
