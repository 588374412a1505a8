// take.h - receives a message with descriptors from a program of another user, in a thread of its own
// follows: unix(7), SCM_RIGHTS; close(2), unshare(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_TAKE_H
#define VB_BROKER_SERVER_TAKE_H

#include <stddef.h>
#include <sys/types.h>

/* How many threads may be blocked by descriptors of one user, and of all users. */
#define VB_TAKERS_EACH 4
#define VB_TAKERS 1024

/*
 * Receives the next message of the socket, an ATTACH with descriptors. The broker must not own a descriptor of a
 * wrong kind: closing it may block forever (a file of a FUSE file system waits for its server, and no signal
 * interrupts that). So a thread with its own descriptor table receives the message, passes on the three descriptors
 * if they are right, and exits. Only that thread can block.
 * Returns 0: *len bytes are in msg; *wrong is NULL and fds are the caller's, or *wrong says what is wrong with them.
 * EAGAIN: too many threads are blocked by descriptors of this user, or no thread can be created. EBADMSG: the message
 * is malformed.
 */
int vb_take_attach(uid_t uid, int sock, void *msg, size_t size, size_t *len, int fds[3], const char **wrong);

#endif
