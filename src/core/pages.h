// pages.h - can the adapter reach this memory?
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_PAGES_H
#define VB_CORE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Returns 0, or EFAULT if the first or the last page of this range is not mapped, or not writable although `writable`
 * is set. The kernel, which pins pages, refuses such a registration too. Pages between them are not checked, so that
 * the cost is constant. length is not 0.
 */
int vb_pages_check(uint64_t start, uint64_t length, bool writable);

#endif
