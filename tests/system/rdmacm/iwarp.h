// iwarp.h - shared by the tests of iWARP's connections: counters, and private data
// see: path/iwarp/cm.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_IWARP_H
#define VB_TEST_IWARP_H

#include <stddef.h>

#include "cm.h"
#include "path/iwarp/cm.h"

struct vb_iwcm_stats stats(void);
/* Waits until the progress thread gets there. */
void lives(uint64_t n);                   /* waits for this number of connections */
void reaches(uint64_t n, size_t counter); /* offset of the counter */
#define REACHES(n, name) reaches(n, offsetof(struct vb_iwcm_stats, name))
bool data_is(const struct rdma_cm_event *e, const char *text);
struct rdma_conn_param words(const char *text, uint8_t responder_resources, uint8_t initiator_depth);
unsigned descriptors(void); /* open descriptors of this process */

#endif
