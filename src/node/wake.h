// wake.h - the wake descriptor, with which peers wake a progress thread, and which no peer can block
// follows: eventfd(2), preadv2(2), epoll(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_WAKE_H
#define VB_NODE_WAKE_H

/*
 * A program shares one eventfd with all its peers, including the counter and the O_NONBLOCK flag. A hostile peer may
 * fill or empty the counter, or make the description blocking. So peers do not write to it, and its owner never reads
 * it. It is a semaphore of 2^63 units, and its owner waits for edges with epoll. A peer rings by taking one unit with
 * RWF_NOWAIT, which never blocks, whatever other peers do. The kernel reports an edge for each unit that is taken (and
 * for each write). No peer can take all units.
 */

/* Makes a descriptor. -1 with errno on failure. */
int vb_wake_new(void);
/* Adds fd to epoll_fd with this tag. epoll reports each ring; fd must not be read. 0 or an errno. */
int vb_wake_watch(int epoll_fd, int fd, void *tag);
/* Rings. Any thread, under any lock; keeps errno. */
void vb_wake_ring(int fd);

#endif
