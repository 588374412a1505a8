// fd_watch.h - a descriptor of librdmacm's that the progress thread watches
// see: node/io.h (struct vb_watch)
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_FD_WATCH_H
#define VB_NODE_FD_WATCH_H

#include <stdint.h>

/* librdmacm.so.1 calls these functions in libibverbs.so.1: see node/gsi.h. */
struct vb_fd_watch;

/* fn runs in the progress thread with no lock held, when the descriptor has one of the events (EPOLL*); it must not block.
 * Keeps the node. Returns 0 or an errno. */
int vb_fd_watch_open(int fd, uint32_t events, void (*fn)(void *own, uint32_t events), void *own,
                     struct vb_fd_watch **out);
/* Any thread. */
void vb_fd_watch_change(struct vb_fd_watch *w, uint32_t events);
/* fn does not run after it returns, unless it is called from within fn. The caller keeps the descriptor. In a child of
 * fork() it frees the parent's watch. */
void vb_fd_watch_close(struct vb_fd_watch *w);

#endif
