// dmabuf_case.h - a test of dma-bufs for several makers of them: tests/system/local/regions.c, tests/interop/dmabuf.c
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_DMABUF_CASE_H
#define VB_TEST_DMABUF_CASE_H

#include <stddef.h>

/* The program's own: the descriptor of a new dma-buf of at least so many bytes. */
int dmabuf_new(size_t n);

void a_dma_buf_is_written_read_sent_and_received(void);

#endif
