// dmabuf.h - regions of dma-bufs
// follows: ibv_reg_dmabuf_mr(3)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_DMABUF_H
#define VB_CORE_DMABUF_H

#include <infiniband/verbs.h>

/* The rights that a dma-buf's region may grant, besides optional ones. */
#define VB_DMABUF_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

#endif
