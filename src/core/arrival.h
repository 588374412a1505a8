// arrival.h - a frame that arrives for a raw packet queue pair or a work queue, and what the adapter does to it first
// follows: ibv_create_qp_ex(3), ibv_create_wq(3), ibv_poll_cq(3); IEEE 802.1Q, 802.3 3.2.9
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_ARRIVAL_H
#define VB_CORE_ARRIVAL_H

#include <infiniband/verbs.h>
#include <stdint.h>

#define VB_FCS_LEN 4u

/* What a program may ask for, of IBV_QP_CREATE_ and of IBV_WQ_FLAGS_. */
enum {
	VB_STRIP_CVLAN = 1 << 0,
	VB_SCATTER_FCS = 1 << 1,
};

#define VB_QP_ARRIVAL_FLAGS (IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SCATTER_FCS)
#define VB_WQ_ARRIVAL_FLAGS (IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS)

static inline uint8_t vb_arrival_of_qp(uint32_t create_flags)
{
	return (uint8_t)((create_flags & IBV_QP_CREATE_CVLAN_STRIPPING ? VB_STRIP_CVLAN : 0) |
	                 (create_flags & IBV_QP_CREATE_SCATTER_FCS ? VB_SCATTER_FCS : 0));
}

static inline uint8_t vb_arrival_of_wq(uint32_t flags)
{
	return (uint8_t)((flags & IBV_WQ_FLAGS_CVLAN_STRIPPING ? VB_STRIP_CVLAN : 0) |
	                 (flags & IBV_WQ_FLAGS_SCATTER_FCS ? VB_SCATTER_FCS : 0));
}

struct vb_arrival {
	uint8_t *frame; /* may be changed, and VB_FCS_LEN bytes behind it, too */
	uint32_t len;
	uint32_t flow_tag;     /* that its rule has */
	uint16_t cvlan;        /* of the tag that was taken away; 0: none was */
	unsigned int wc_flags; /* IBV_WC_IP_CSUM_OK, if its checksums are right */
};

/* The frame as the receive gets it. */
struct vb_arrival vb_arrive(uint8_t *frame, uint32_t len, uint32_t flow_tag, uint8_t wants);

/* Its successful completion. The VLAN is where other messages have their immediate data, and the tag of its rule is where
 * failed ones have a code. */
static inline void vb_arrival_complete(const struct vb_arrival *a, struct ibv_wc *wc)
{
	wc->byte_len = a->len;
	wc->wc_flags = a->wc_flags;
	wc->imm_data = a->cvlan;
	wc->vendor_err = a->flow_tag;
}

#endif
