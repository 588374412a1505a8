// context.h - the lifetime of a context
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CONTEXT_H
#define VB_CORE_CONTEXT_H

#include "core/core.h"

/* Counts an object of this context that was made, or is gone. The last object frees a context that was closed
 * before. */
void vb_context_hold(struct vb_context *ctx);
void vb_context_drop(struct vb_context *ctx);

#endif
