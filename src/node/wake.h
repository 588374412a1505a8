// wake.h - the descriptor by which programs of one host wake each other, and which none of them can jam
// follows: eventfd(2), preadv2(2), epoll(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_WAKE_H
#define VB_NODE_WAKE_H

/*
 * All peers of a program share one eventfd with it, and with that its counter and its O_NONBLOCK. A peer may fill the
 * counter, empty it, or make the description block. So nobody writes to it, and its owner never reads it. It is a
 * semaphore of 2^63 units. Its owner waits in epoll for edges. A peer rings by taking one unit with RWF_NOWAIT, which
 * never blocks, whatever the others do: the kernel reports an edge for each unit taken (and for each write). No peer
 * can take them all.
 */

/* A new one, or -1 and errno. */
int vb_wake_new(void);
/* Has epoll_fd report it, with this tag, each time it is rung; nothing is to be read then. 0 or an errno. */
int vb_wake_watch(int epoll_fd, int fd, void *tag);
/* Any thread, under any lock; keeps errno. */
void vb_wake_ring(int fd);

#endif
