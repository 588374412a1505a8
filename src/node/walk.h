// walk.h - a look at what node->progress guards, in the middle of a program's traffic
// see: docs/locking.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_WALK_H
#define VB_NODE_WALK_H

struct vb_node;

/*
 * Calls fn under node->progress. A thread of the program that polls has that lock as its favourite (util/lock.h), and would
 * lose it for long if the progress thread took it. So the polling thread itself makes the call, with its next poll; only
 * if it polls no more, the progress thread does. fn must be short: it delays the program's traffic. Progress thread, no
 * lock held.
 */
void vb_walk(struct vb_node *node, void (*fn)(struct vb_node *node, void *arg), void *arg);
/* Makes the call that is waiting, if there is one. Under progress. */
void vb_walk_now(struct vb_node *node);

#endif
