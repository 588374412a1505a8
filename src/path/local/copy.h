// copy.h - one copy between two programs' memories
// follows: process_vm_readv(2)
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_COPY_H
#define VB_PATH_LOCAL_COPY_H

#include "engine/local/peer.h"

extern const struct vb_copy_ops vb_copy_vm;   /* between programs */
extern const struct vb_copy_ops vb_copy_self; /* within this one */

/* May we copy from this process, and is it the one whose segment we have mapped? Reads the segment's head through its
 * own address there, so that a number that means another process in our pid namespace is found out. */
bool vb_copy_probe(int pid, uint64_t self, uint64_t incarnation);

#endif
