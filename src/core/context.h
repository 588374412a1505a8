// context.h - the lifetime of a context
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CONTEXT_H
#define VB_CORE_CONTEXT_H

#include "core/core.h"

/* Count the objects of a context. Dropping the last object frees the context if it was closed before. */
void vb_context_hold(struct vb_context *ctx);
void vb_context_drop(struct vb_context *ctx);

#endif
