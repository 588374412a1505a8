// tally.h - the counters of programs that have ended: a file in the directory of control sockets
// see: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_TALLY_H
#define VB_UTIL_TALLY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/control_dir.h"

/*
 * ended-NETNS has the sums of the programs that have ended, in the form of an answer to the verb "devices". A program
 * adds its numbers before its control socket goes, so a reader who finds the file unchanged after he has asked the
 * programs has counted each program once. SOCKET.shown has what a running program has answered last. If it is killed,
 * whoever finds its socket dead adds this.
 */
#define VB_TALLY_MAX 65536u /* bytes of a file */

/* Adds the counters in text, of the program with this control socket, to the file of its network namespace. Waits 100 ms
 * at most for another process that does the same. Returns 0 or an errno value: the numbers are lost then. Allocates
 * nothing by malloc(3). */
int vb_tally_add(int dir_fd, const char *name, const char *text);
/* Keeps the answer of a running program, which has this control socket. */
void vb_tally_keep(int dir_fd, const char *name, const char *text, size_t len);
/* The program with this control socket has ended: adds what it has answered last, once, and removes the socket. Both
 * stay for the next one who finds them while another process holds the lock. */
void vb_tally_end(int dir_fd, const char *name);
/* Reads the file of this network namespace into buf, with a zero byte at its end. Returns the length; 0 if there is none
 * of the directory's owner. */
size_t vb_tally_read(int dir_fd, uint64_t netns, char *buf, size_t size);

#endif
