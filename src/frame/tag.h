// tag.h - the headers of tag matching, at the beginning of a SEND's payload
// follows: infiniband/tm_types.h; rdma-core's Documentation/tag_matching.md
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_TAG_H
#define VB_FRAME_TAG_H

#include "frame/cursor.h"

#define VB_TMH_LEN 16u
#define VB_RVH_LEN 16u
#define VB_TMH_OPCODE_AT 0u /* where the opcode is */

enum vb_tmh_opcode { VB_TMH_NO_TAG, VB_TMH_RNDV, VB_TMH_FIN, VB_TMH_EAGER };

/* The tag matching header. */
struct vb_tmh {
	uint8_t opcode; /* enum vb_tmh_opcode, or any other value */
	uint32_t app_ctx;
	uint64_t tag;
};

/* The header of a rendezvous, which follows: where the data is. */
struct vb_rvh {
	uint64_t va;
	uint32_t rkey, len;
};

static inline void vb_tmh_decode(struct vb_reader *r, struct vb_tmh *h)
{
	h->opcode = vb_get8(r);
	(void)vb_get24(r);
	h->app_ctx = vb_get32(r);
	h->tag = vb_get64(r);
}

static inline void vb_rvh_decode(struct vb_reader *r, struct vb_rvh *h)
{
	h->va = vb_get64(r);
	h->rkey = vb_get32(r);
	h->len = vb_get32(r);
}

#endif
