// fake_gsi.h - a queue pair 1 within one process: sent MADs arrive again, with delay and possible loss
// see: node/gsi.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_FAKE_GSI_H
#define VB_TEST_FAKE_GSI_H

#include <stdatomic.h>

#include "node/gsi.h"

/* A program that links fake_gsi.c uses it instead of the one in libibverbs. */
extern bool (*_Atomic fake_drop)(const uint8_t mad[VB_MAD_LEN]); /* true: this one is lost */
extern atomic_uint fake_speed;                                   /* how much faster its clock goes */
/* Delivers a MAD as if it came from the network. */
void fake_inject(const uint8_t local[16], const uint8_t remote[16], const uint8_t *mad, size_t len);
/* Waits until all sent MADs were delivered and their callbacks have returned. */
void fake_settle(void);

#endif
