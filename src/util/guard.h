// guard.h - copies of the program's memory that survive unmapped pages
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_GUARD_H
#define VB_UTIL_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A region stays registered when the program unmaps it. Only these functions access registered memory. A handler for
 * SIGSEGV and SIGBUS, chained before the program's, makes them return false at a fault. Each registration and each new
 * connection checks that the handler is still installed, because a program may have installed its own over it.
 */
void vb_guard_install(void);

/* Copies n bytes. false: a page of either side is not mapped (some bytes may have been copied). */
bool vb_guard_copy(void *dst, const void *src, size_t n);

/*
 * The same, and computes a sum for the CRC of Ethernet during the copy: 16 bytes with the same remainder as all n
 * bytes. n is a multiple of 256, not 0. vb_crc32_summed completes the CRC. Call it only if vb_guard_can_sum.
 */
bool vb_guard_can_sum(void);
bool vb_guard_copy_sum(void *dst, const void *src, size_t n, uint64_t sum[2]);
/*
 * The same, but all but VB_GUARD_EDGE of the bytes go past the caches. These are whole cache lines: the bytes from
 * vb_guard_past(past) on, each as far behind past as it would be behind dst. Nothing else at past is written. dst gets the
 * first and the last VB_GUARD_EDGE bytes, which contain the others. past is a multiple of 4. A fence (_mm_sfence) must
 * follow before another processor reads the lines.
 */
#define VB_GUARD_EDGE 64u
static inline size_t vb_guard_past(const void *past)
{
	return VB_GUARD_EDGE - (uintptr_t)past % VB_GUARD_EDGE;
}
bool vb_guard_copy_sum_past(void *dst, void *past, const void *src, size_t n, uint64_t sum[2]);
/* Computes the sum without a copy. The same conditions. */
bool vb_guard_sum(const void *src, size_t n, uint64_t sum[2]);

/*
 * How many of the last bytes of [end - n, end) are stored after the rest, because programs poll the last one. x86 keeps
 * the order of stores: the bytes in the last aligned 8-byte word. Elsewhere: as many as one aligned store has, because
 * the stores of several may show the last byte first.
 */
size_t vb_guard_tail(uintptr_t end, size_t n);

/* The same as vb_guard_copy, but the last aligned word (at most 8 bytes) is stored after the rest, with release:
 * programs poll it. */
bool vb_guard_copy_tail(void *dst, const void *src, size_t n);

enum vb_placed {
	VB_PLACE_FAULT, /* a page is not mapped; some bytes may have been stored */
	VB_PLACE_DONE,
	VB_PLACE_HELD, /* *word was not `expected`: nothing was stored, or as much as an earlier attempt had stored */
};

/*
 * The same as vb_guard_copy_tail (n is not 0), but only if *word is `expected`, and with *done = value stored as the
 * last step. It is a restartable sequence (rseq(2)): a thread that is stopped or preempted before that step begins
 * again, so it reads *word again before it stores one byte more. Call it only if vb_guard_can_place.
 */
bool vb_guard_can_place(void);
enum vb_placed vb_guard_place(void *dst, const void *src, size_t n, const _Atomic uint32_t *word, uint32_t expected,
                              _Atomic uint64_t *done, uint64_t value);

/* 8-byte atomics on aligned memory. *old: the value before. */
bool vb_guard_cas(uint64_t *p, uint64_t compare, uint64_t swap, uint64_t *old);
bool vb_guard_add(uint64_t *p, uint64_t add, uint64_t *old);

#endif
