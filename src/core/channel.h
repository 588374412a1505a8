// channel.h - a completion queue's side of its completion channel
// follows: ibv_get_cq_event(3), ibv_destroy_cq(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_CHANNEL_H
#define VB_CORE_CHANNEL_H

#include "core/core.h"

/* Queues one completion event of cq. Any thread, cq->lock not held. */
void vb_channel_notify(struct vb_channel *ch, struct vb_cq *cq);
/* Drops the events of cq that the program has not taken. None follow, because the caller is destroying cq. */
void vb_channel_forget(struct vb_channel *ch, struct vb_cq *cq);

#endif
