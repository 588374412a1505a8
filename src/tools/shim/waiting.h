// waiting.h - answers that a socket has no room for: a socket pair takes few datagrams (unix(7), max_dgram_qlen)
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_WAITING_H
#define VB_SHIM_WAITING_H

#include <stddef.h>

enum { VB_SHIM_SLOTS = 256 };

/* Sends a datagram through fd, behind those of this slot that wait; or keeps it. As with the kernel, a program that does
 * not read loses answers: those beyond 4 MiB. */
void vb_shim_waiting_put(unsigned slot, int fd, const void *buf, size_t len);
/* Sends what there is room for now: before the program reads, so that it finds what it reads, and afterwards, so that a
 * program which polls finds the rest. */
void vb_shim_waiting_send(unsigned slot, int fd);
/* Forgets what waits. */
void vb_shim_waiting_drop(unsigned slot);

#endif
