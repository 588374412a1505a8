// async.h - removal of the asynchronous events of an object that is destroyed
// follows: ibv_get_async_event(3), notes
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_ASYNC_H
#define VB_CORE_ASYNC_H

#include "core/core.h"

/* Called before a QP, CQ, SRQ or WQ is freed, when nothing can raise events for it any more. Drops the events that the
 * program has not taken, and waits until the program has acknowledged the others. kind: any event type of such an
 * object. */
void vb_async_forget(struct vb_context *ctx, enum ibv_event_type kind, void *element);
/* Drops all events of a context that is closed. */
void vb_async_clear(struct vb_context *ctx);

#endif
