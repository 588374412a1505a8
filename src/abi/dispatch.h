// dispatch.h - finds the owner of an object: Verbena, or a real libibverbs behind the same symbols
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_DISPATCH_H
#define VB_ABI_DISPATCH_H

#include <stdbool.h>

#include "core/core.h"

#define VB_EXPORT __attribute__((visibility("default")))
/* The function impl becomes the dynamic symbol sym, "name@@NODE" (what programs link to) or "name@NODE" (old ones). */
#define VB_SYMVER(impl, sym) __asm__(".symver " #impl "," sym)

/* verbs_context.priv of Verbena's contexts points here. No other library uses this address, and it is readable. */
extern char vb_priv_mark[];

static inline bool vb_is_ours(const struct ibv_context *context)
{
	const struct verbs_context *vctx = VB_UPCAST(context, const struct verbs_context, context);

	return context->abi_compat == __VERBS_ABI_IS_EXTENDED && (const char *)vctx->priv == vb_priv_mark;
}

/* rdma-core's own devices have their driver's table right behind the public struct, ours have zeros (core/device.h). */
static inline bool vb_device_is_ours(const struct ibv_device *device)
{
	return !*(void *const *)(device + 1);
}

enum vb_owner { VB_OWNER_NONE, VB_OWNER_US, VB_OWNER_REAL };

static inline enum vb_owner vb_owner_of_context(const struct ibv_context *context)
{
	return !context ? VB_OWNER_NONE : vb_is_ours(context) ? VB_OWNER_US : VB_OWNER_REAL;
}

static inline enum vb_owner vb_owner_of_device(const struct ibv_device *device)
{
	return !device ? VB_OWNER_NONE : vb_device_is_ours(device) ? VB_OWNER_US : VB_OWNER_REAL;
}

/* The object that identifies the owner: a context, a device, or any object with a context. */
#define VB_BY_CONTEXT(c) vb_owner_of_context(c)
#define VB_BY_DEVICE(d) vb_owner_of_device(d)
#define VB_BY(obj) ((obj) ? vb_owner_of_context((obj)->context) : VB_OWNER_NONE)

#endif
