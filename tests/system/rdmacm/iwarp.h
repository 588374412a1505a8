// iwarp.h - what the tests of iWARP's connections have in common: what rdma_cm counts, and what is said with a connection
// see: path/iwarp/cm.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_IWARP_H
#define VB_TEST_IWARP_H

#include <stddef.h>

#include "cm.h"
#include "path/iwarp/cm.h"

struct vb_iwcm_stats stats(void);
/* Waits for the progress thread to come to it. */
void lives(uint64_t n);                   /* so many connections */
void reaches(uint64_t n, size_t counter); /* offset of the counter */
#define REACHES(n, name) reaches(n, offsetof(struct vb_iwcm_stats, name))
bool data_is(const struct rdma_cm_event *e, const char *text);
struct rdma_conn_param words(const char *text, uint8_t responder_resources, uint8_t initiator_depth);
unsigned descriptors(void); /* open ones of this process */

#endif
