// timer.h - the thread that acts at the times of rules: steps of a scenario, held packets, ports and devices
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#ifndef VB_FAULT_TIMER_H
#define VB_FAULT_TIMER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the thread, unless it runs. It calls serve at once, then at the times that serve returns (CLOCK_MONOTONIC, ns;
 * UINT64_MAX: never) and that vb_fault_wake asks for. serve is called with no lock held. 0 or an errno. */
int vb_fault_timer_start(uint64_t (*serve)(uint64_t now));
/* Returns when the thread has ended. Does nothing if it does not run. Not under a lock that serve takes. */
void vb_fault_timer_stop(void);
/* Asks for a call of serve at this time (0: now). Any thread, under any lock. */
void vb_fault_wake(uint64_t at);
/* In a child of fork(), which has no such thread. */
void vb_fault_timer_in_child(void);

#endif
