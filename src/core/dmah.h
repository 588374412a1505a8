// dmah.h - DMA handles: hints for the accesses of an adapter to a region
// follows: rdma-core 65, ibv_alloc_dmah(3), ibv_reg_mr_ex; PCI Express 6.2, TLP processing hints
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_DMAH_H
#define VB_CORE_DMAH_H

#include "core/core.h"

/* We build against the headers of 44.0. Later headers call these ibv_dmah, ibv_dmah_init_attr, ... */
struct vb_dmah {
	struct ibv_context *context;
};

enum {
	VB_DMAH_CPU_ID = 1 << 0,
	VB_DMAH_PH = 1 << 1,
	VB_DMAH_MEM_TYPE = 1 << 2,
};

struct vb_dmah_init_attr {
	uint32_t comp_mask; /* VB_DMAH_: which members are set */
	uint32_t cpu_id;
	uint8_t ph;
	uint8_t tph_mem_type; /* enum ibv_tph_mem_type: volatile, persistent */
};

/* May a region of this domain have the handle? 0, or EINVAL: it is none of the domain's context. */
int vb_dmah_check(const struct vb_dmah *dmah, const struct ibv_pd *pd);
/* Gives a new region its handle. */
void vb_dmah_join(struct vb_dmah *dmah, struct vb_mr *mr);
/* The region ends. */
void vb_dmah_leave(struct vb_mr *mr);

#endif
