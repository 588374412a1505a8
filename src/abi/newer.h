// newer.h - the additions of rdma-core 59 to 65 to verbs.h that the calls here need
// follows: rdma-core 65, libibverbs/verbs.h (layouts only)
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_NEWER_H
#define VB_ABI_NEWER_H

#include <infiniband/verbs.h>

#include "core/cntr.h"
#include "core/dmah.h"

/* We build against the headers of 44.0. Later headers call these ibv_dmah, ibv_mr_init_attr, ... */
struct vb_buf;

enum {
	VB_REG_MR_IOVA = 1 << 0,
	VB_REG_MR_ADDR = 1 << 1,
	VB_REG_MR_FD = 1 << 2,
	VB_REG_MR_FD_OFFSET = 1 << 3,
	VB_REG_MR_DMAH = 1 << 4,
	VB_REG_MR_BUF = 1 << 5,
};

struct vb_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask; /* VB_REG_MR_ flags: which members are set */
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	struct vb_dmah *dmah;
	struct vb_buf *buf; /* from rdma-core 64 on: not read unless VB_REG_MR_BUF */
};

#endif
