// context.h - what keeps a context alive
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CONTEXT_H
#define VB_CORE_CONTEXT_H

#include "core/core.h"

/* An object of this context was made, or is gone. The last one to go frees a context that was closed before. */
void vb_context_hold(struct vb_context *ctx);
void vb_context_drop(struct vb_context *ctx);

#endif
