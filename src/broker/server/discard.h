// discard.h - closing what came from programs of other users, without waiting for whatever that takes
// follows: unix(7) (SCM_RIGHTS), socket(7) (SO_LINGER), close(2), unshare(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_DISCARD_H
#define VB_BROKER_SERVER_DISCARD_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * To close a descriptor can take as long as its sender likes: a large memfd is freed page by page, and a Unix socket takes with it
 * the messages that lie unread in it, with a TCP socket in one that waits for its peer (SO_LINGER). What would hang at any close, and
 * not at the last one alone, never gets here: broker/server/take.h.
 */

/* Sockets, memfds, eventfds, pidfds, whose close does nothing but let go of them: a thread with a table of descriptors of its own
 * lets go last, when it ends; the kernel waits for no peer then. They are the callee's, and closed with the next
 * vb_discard_flush of this thread, which does it for all at once. */
void vb_discard(const int *fds, int n);
void vb_discard_flush(void);

/* A detached thread with all signals blocked and a small stack. False: there can be none. */
bool vb_thread_start(void *(*run)(void *), void *arg);

#endif
