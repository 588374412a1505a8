// arrival.h - a frame that arrives for a raw packet queue pair or a work queue, and what the adapter does to it first
// follows: ibv_create_qp_ex(3), ibv_create_wq(3), ibv_poll_cq(3); IEEE 802.1Q, 802.3 3.2.9
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_ARRIVAL_H
#define VB_CORE_ARRIVAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define VB_FCS_LEN 4u

/* What a program may ask for. A queue pair has other bits for it than a work queue, but is asked only when it is made. */
#define VB_ARRIVAL_FLAGS (IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS)
#define VB_QP_ARRIVAL_FLAGS (IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_SCATTER_FCS)

static inline uint32_t vb_arrival_of_qp(uint32_t create_flags)
{
	return (create_flags & IBV_QP_CREATE_CVLAN_STRIPPING ? IBV_WQ_FLAGS_CVLAN_STRIPPING : 0u) |
	       (create_flags & IBV_QP_CREATE_SCATTER_FCS ? IBV_WQ_FLAGS_SCATTER_FCS : 0u);
}

struct vb_arrival {
	uint8_t *frame; /* may be changed, and VB_FCS_LEN bytes behind it, too */
	uint32_t len;
	bool unsummed;         /* the kernel has left the checksum of TCP or UDP to the interface */
	uint16_t cvlan;        /* of the tag that was taken away; 0: none was */
	uint32_t flow_tag;     /* that its rule has */
	unsigned int wc_flags; /* IBV_WC_IP_CSUM_OK, if its checksums are right */
};

/* Makes of a frame on the wire what the receive gets. wants: VB_ARRIVAL_FLAGS. */
void vb_arrive(struct vb_arrival *a, uint32_t wants);

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
