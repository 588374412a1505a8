// take.h - taking a message with descriptors from a program of another user
// follows: unix(7) (SCM_RIGHTS), close(2), unshare(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_TAKE_H
#define VB_BROKER_SERVER_TAKE_H

#include <stddef.h>
#include <sys/types.h>

/* How many threads may hang over what one user, and what all users have sent. */
#define VB_TAKERS_EACH 4
#define VB_TAKERS 1024

/*
 * Takes the next message of the socket, which is an ATTACH that brings descriptors, without ever having one of another kind than
 * is right: to close such a one, whoever has it, may take for ever (a file of a FUSE file system waits for its server, whatever
 * signal comes). A thread with a table of descriptors of its own takes the message, hands on the three that are right, and ends;
 * whatever it hangs over then is its own.
 * 0: *len bytes are in msg, and *wrong is NULL with the caller's fds, or says what is wrong. EAGAIN: too many threads hang
 * over what this user has sent, or none can be made. EBADMSG: no such message.
 */
int vb_take_attach(uid_t uid, int sock, void *msg, size_t size, size_t *len, int fds[3], const char **wrong);

#endif
