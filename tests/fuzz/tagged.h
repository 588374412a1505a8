// tagged.h - an SRQ of tag matching among the fuzzed queue pairs: its tags, the headers of messages, its state at the end
// follows: rdma-core's Documentation/tag_matching.md
// SPDX-License-Identifier: MIT
#ifndef VB_FUZZ_TAGGED_H
#define VB_FUZZ_TAGGED_H

#include <assert.h>
#include <endian.h>
#include <infiniband/tm_types.h>
#include <string.h>

#include "core/tm.h"
#include "core/verbs.h"

static struct ibv_srq *tagged_srq(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = 8, .max_sge = 2},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	                                 .srq_type = IBV_SRQT_TM,
	                                 .pd = pd,
	                                 .cq = cq,
	                                 .tm_cap = {8, 8}};
	struct ibv_srq *srq = vb_create_srq_ex(ctx, &a);

	assert(srq);
	return srq;
}

/* Adds or removes a tag, or reports unexpected messages. */
static void tagged_op(struct ibv_srq *srq, uint32_t k, struct ibv_sge *sge)
{
	struct ibv_ops_wr wr = {.wr_id = 2000,
	                        .opcode = (enum ibv_ops_wr_opcode)(k & 3),
	                        .flags = (int)(k >> 2 & 3),
	                        .tm = {.unexpected_cnt = k >> 4 & 7,
	                               .handle = k >> 8,
	                               .add = {.recv_wr_id = 1500,
	                                       .sg_list = sge,
	                                       .num_sge = 1,
	                                       .tag = k >> 4 & 3,
	                                       .mask = k & 64 ? 3 : 2}}},
	                  *bad;

	vb_post_srq_ops(srq, &wr, &bad);
}

/* The headers of a message, as far as they fit. */
static void tagged_head(uint8_t *at, uint32_t room, uint32_t k, uint64_t va, uint32_t rkey, uint32_t len)
{
	struct {
		struct ibv_tmh tmh;
		struct ibv_rvh rvh;
	} h = {.tmh = {.opcode = (uint8_t)(k & 3), .tag = htobe64(k >> 2 & 3)},
	       .rvh = {.va = htobe64(va), .rkey = htobe32(rkey), .len = htobe32(len)}};

	memcpy(at, &h, room < sizeof(h) ? room : sizeof(h));
}

/* Its queue pairs have ended: no tag is in use. */
static void tagged_at_rest(struct ibv_srq *srq)
{
	struct vb_tm *tm = vb_srq(srq)->tm;

	assert(!tm->waiting && !atomic_load(&tm->waits));
	for (uint32_t i = 0; i < tm->max_tags; i++)
		assert(tm->tag[i].state == VB_TAG_FREE || tm->tag[i].state == VB_TAG_LISTED);
}

#endif
