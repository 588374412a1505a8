// wake.h - the descriptor by which programs of one host wake each other, and which none of them can block
// follows: eventfd(2), preadv2(2), epoll(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_WAKE_H
#define VB_NODE_WAKE_H

/*
 * All peers of a program share one eventfd with it, including its counter and its O_NONBLOCK flag. A peer may fill the
 * counter, empty it, or make the description blocking. So no process writes to it, and its owner never reads it. It is
 * a semaphore of 2^63 units, and its owner waits for edges with epoll. A peer rings by taking one unit with RWF_NOWAIT,
 * which never blocks, whatever other peers do: the kernel reports an edge for each unit taken (and for each write). No
 * peer can take all units.
 */

/* Makes a descriptor. -1 with errno on failure. */
int vb_wake_new(void);
/* Adds fd to epoll_fd with this tag. Each ring is reported; it must not be read then. 0 or an errno. */
int vb_wake_watch(int epoll_fd, int fd, void *tag);
/* Rings. Any thread, under any lock; keeps errno. */
void vb_wake_ring(int fd);

#endif
