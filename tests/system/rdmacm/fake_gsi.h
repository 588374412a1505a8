// fake_gsi.h - a queue pair 1 within one process: what goes out comes in again, later and perhaps not
// see: node/gsi.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_FAKE_GSI_H
#define VB_TEST_FAKE_GSI_H

#include <stdatomic.h>

#include "node/gsi.h"

/* A program that links fake_gsi.c has it in place of the one of libibverbs. */
extern bool (*_Atomic fake_drop)(const uint8_t mad[VB_MAD_LEN]); /* true: this one is lost */
extern atomic_uint fake_speed;                                   /* how much faster its clock goes */
/* As if it had come from the network. */
void fake_inject(const uint8_t local[16], const uint8_t remote[16], const uint8_t *mad, size_t len);
/* All that was sent has been handed over, and its callbacks are done. */
void fake_settle(void);

#endif
