// tally.h - the counters of programs that have ended: a file in the directory of control sockets
// see: docs/control.md
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_TALLY_H
#define VB_UTIL_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util/control_dir.h"

/*
 * SOCKET.shown has what a program has counted, in the form of an answer to the verb "devices": what it has answered last,
 * and when it ends, everything. ended-NETNS has the sums of the programs that have ended, and the names of the last
 * VB_TALLY_RECENT of them. A program that ends, or whoever finds its socket dead, adds SOCKET.shown to the sums and
 * removes it. So what a program has counted is in the sums if they have its name, otherwise in SOCKET.shown.
 *
 * A reader notes how many programs the sums have; asks the running ones; reads SOCKET.shown of those that do not answer;
 * and then reads the sums. He drops each answer of a program that the sums have. If more than VB_TALLY_RECENT programs
 * were added meanwhile, he begins anew. He takes no lock.
 */
#define VB_TALLY_MAX 65536u /* bytes of a file */
#define VB_TALLY_RECENT 64u

/* Keeps what a running program, which has this control socket, has counted. Two threads must not do that at once. Returns
 * 0 or an errno value: the file has what it had. Allocates nothing by malloc(3). */
int vb_tally_keep(int dir_fd, const char *name, const char *text, size_t len);
/* The program with this control socket has ended: adds what it has kept to the sums, once, and removes its files. They
 * stay for the next one who finds them while another process holds the lock for long, or the sums cannot be written.
 * Allocates nothing by malloc(3). */
void vb_tally_end(int dir_fd, const char *name);

/* Reads what this program has kept into buf, with a zero byte at its end. Returns the length; 0 if there is nothing. */
size_t vb_tally_shown(int dir_fd, const char *name, char *buf, size_t size);
/* Is this the name of such a file? Copies that of the control socket. */
bool vb_tally_shown_name(const char *file, char socket[VB_CONTROL_NAME]);
/* Reads the sums of this network namespace into buf, with a zero byte at its end. Returns the length; 0 if there is none
 * of the directory's owner. */
size_t vb_tally_read(int dir_fd, uint64_t netns, char *buf, size_t size);

/* How many programs these sums have; whether this is one of the last. */
uint64_t vb_tally_adds(const char *sum);
bool vb_tally_has(const char *sum, const char *name);

#endif
