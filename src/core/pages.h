// pages.h - can the adapter reach this memory?
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_PAGES_H
#define VB_CORE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * 0, or EFAULT if the first or the last page of this range is not mapped, or does not grant what is asked: there the
 * kernel, which pins, refuses a registration. Constant cost: pages between them are not looked at. length is not 0.
 */
int vb_pages_check(uint64_t start, uint64_t length, bool writable);

#endif
