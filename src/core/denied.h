// denied.h - why a peer may not access memory of this process, for people
// see: docs/troubleshooting.md
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_DENIED_H
#define VB_CORE_DENIED_H

#include "core/buffer.h"

/* Says it with VERBENA_LOG=info. view: what the key stands for, or NULL. Returns false. buffer.c */
bool vb_access_denied(const struct vb_qp *qp, const struct vb_mr_view *view, uint32_t key, uint64_t addr,
                      uint64_t length, uint32_t access);

#endif
