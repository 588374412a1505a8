// guard.h - copies that touch the program's memory and survive a page that is not there
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_GUARD_H
#define VB_UTIL_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A region stays registered when the program unmaps it. These functions are the only ones that touch such memory; a
 * handler for SIGSEGV and SIGBUS, chained before the program's, makes them return false when the fault is theirs.
 * Installing is repeated (cheaply) with each region and connection: a program may have put its own handler over ours.
 */
void vb_guard_install(void);

/* Copies n bytes. false: a page of either side is not mapped (some bytes may have been copied). */
bool vb_guard_copy(void *dst, const void *src, size_t n);

/*
 * The same, which for the CRC of Ethernet adds the bytes up on the way: sum is 16 bytes with the same remainder as all
 * n, a multiple of 256 that is not 0. frame/crc32.h goes on from there. Only where vb_guard_can_sum.
 */
bool vb_guard_can_sum(void);
bool vb_guard_copy_sum(void *dst, const void *src, size_t n, uint64_t sum[2]);
/* Adds them up where they are. */
bool vb_guard_sum(const void *src, size_t n, uint64_t sum[2]);

/* The same as vb_guard_copy, but the last aligned word (at most 8 bytes) is stored after the rest, with release:
 * programs poll it. */
bool vb_guard_copy_tail(void *dst, const void *src, size_t n);

/* 8-byte atomics on aligned memory. *old: what stood there. */
bool vb_guard_cas(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *old);
bool vb_guard_add(uint64_t *p, uint64_t add, uint64_t *old);

#endif
