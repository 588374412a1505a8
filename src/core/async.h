// async.h - asynchronous events of an object that goes away
// follows: ibv_get_async_event(3), notes
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_ASYNC_H
#define VB_CORE_ASYNC_H

#include "core/core.h"

/* Called before a QP, CQ or SRQ is freed, when nothing can raise events for it any more. Drops the events that the
 * program has not taken, and waits until the program has acknowledged those that it took. kind: any event type of
 * such an object. */
void vb_async_forget(struct vb_context *ctx, enum ibv_event_type kind, void *element);
/* At the end of a context: drops everything. */
void vb_async_clear(struct vb_context *ctx);

#endif
