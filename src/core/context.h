// context.h - the lifetime of a context
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CONTEXT_H
#define VB_CORE_CONTEXT_H

#include "core/core.h"
#include "core/device.h"
#include "fault/set.h"

/* Count the objects of a context. Dropping the last object frees the context if it was closed before. */
void vb_context_hold(struct vb_context *ctx);
void vb_context_drop(struct vb_context *ctx);

/* The errno value with which a rule of fault injection makes this call fail, or 0. */
static inline int vb_context_fault(const struct vb_context *ctx, enum vb_fault_action call)
{
	return vb_fault_is_armed(VB_FAULT_ARM_VERB) ? vb_fault_ask_verb(call, ctx->dev->dev.name) : 0;
}

#endif
