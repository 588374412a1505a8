// arrival.c - what the adapter does to a frame before its receive gets it
// follows: ibv_create_qp_ex(3), ibv_create_wq(3), ibv_poll_cq(3); IEEE 802.1Q, 802.3 3.2.9
// SPDX-License-Identifier: MIT
#include "core/arrival.h"

#include <string.h>

#include "frame/crc32.h"
#include "frame/ip_sums.h"
#include "frame/vlan.h"

static void append_fcs(struct vb_arrival *a, uint32_t crc)
{
	for (unsigned i = 0; i < VB_FCS_LEN; i++)
		a->frame[a->len + i] = (uint8_t)(crc >> 8 * i);
	a->len += VB_FCS_LEN;
}

/* The outermost tag, if it is a customer's. */
static void strip_cvlan(struct vb_arrival *a)
{
	const uint8_t *tag = a->frame + VB_MACS_LEN;

	if (a->len < VB_MACS_LEN + VB_VLAN_TAG_LEN + 2 || vb_load16(tag) != VB_ETHERTYPE_CVLAN)
		return;
	a->cvlan = vb_load16(tag + 2);
	memmove(a->frame + VB_VLAN_TAG_LEN, a->frame, VB_MACS_LEN);
	a->frame += VB_VLAN_TAG_LEN;
	a->len -= VB_VLAN_TAG_LEN;
}

void vb_arrive(struct vb_arrival *a, uint32_t wants)
{
	bool right = a->unsummed ? vb_ip_sums_finish(a->frame, a->len) : vb_ip_sums_right(a->frame, a->len);
	/* No interface hands out the FCS, so it is computed again: of the frame as it was on the wire. */
	uint32_t fcs = wants & IBV_WQ_FLAGS_SCATTER_FCS ? vb_crc32(0, a->frame, a->len) : 0;

	a->wc_flags = right ? IBV_WC_IP_CSUM_OK : 0;
	if (wants & IBV_WQ_FLAGS_CVLAN_STRIPPING)
		strip_cvlan(a);
	if (wants & IBV_WQ_FLAGS_SCATTER_FCS)
		append_fcs(a, fcs);
}
