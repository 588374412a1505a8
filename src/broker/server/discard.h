// discard.h - closes descriptors from programs of other users without blocking on them
// follows: unix(7) (SCM_RIGHTS), socket(7) (SO_LINGER), close(2), unshare(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_DISCARD_H
#define VB_BROKER_SERVER_DISCARD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Closing a descriptor can take as long as its sender likes. A large memfd is freed page by page. A Unix socket frees
 * the messages that lie unread in it, and these may hold a TCP socket that waits for its peer (SO_LINGER).
 * Descriptors whose close can block although it is not the last one never reach this code: broker/server/take.h.
 */

/* Closes sockets, memfds, eventfds and pidfds. They belong to the callee, and are closed together at this thread's
 * next vb_discard_flush. A thread with its own descriptor table closes them last, when it exits: the kernel then
 * waits for no peer. */
void vb_discard(const int *fds, int n);
void vb_discard_flush(void);

/* Starts a detached thread with all signals blocked and a small stack. False if it cannot be created. */
bool vb_thread_start(void *(*run)(void *), void *arg);

#endif
