// arrival.c - what the adapter does to a frame before its receive gets it
// follows: ibv_create_qp_ex(3), ibv_create_wq(3), ibv_poll_cq(3); IEEE 802.1Q, 802.3 3.2.9
// SPDX-License-Identifier: MIT
#include "core/arrival.h"

#include <string.h>

#include "frame/crc32.h"
#include "frame/ip_sums.h"

#define MACS 12u
#define TAG_LEN 4u

static void append_fcs(struct vb_arrival *a, uint32_t crc)
{
	for (unsigned i = 0; i < VB_FCS_LEN; i++)
		a->frame[a->len + i] = (uint8_t)(crc >> 8 * i);
	a->len += VB_FCS_LEN;
}

/* The outermost tag, if it is a customer's. */
static void strip_cvlan(struct vb_arrival *a)
{
	const uint8_t *tag = a->frame + MACS;

	if (a->len < MACS + TAG_LEN + 2 || tag[0] != 0x81 || tag[1] != 0x00)
		return;
	a->cvlan = (uint16_t)(tag[2] << 8 | tag[3]);
	memmove(a->frame + TAG_LEN, a->frame, MACS);
	a->frame += TAG_LEN;
	a->len -= TAG_LEN;
}

struct vb_arrival vb_arrive(uint8_t *frame, uint32_t len, uint32_t flow_tag, uint8_t wants)
{
	struct vb_arrival a = {.frame = frame, .len = len, .flow_tag = flow_tag};

	if (vb_ip_sums_right(frame, len))
		a.wc_flags = IBV_WC_IP_CSUM_OK;
	/* No interface hands out the FCS, so it is computed again: of the frame as it was on the wire. */
	uint32_t fcs = wants & VB_SCATTER_FCS ? vb_crc32(0, frame, len) : 0;

	if (wants & VB_STRIP_CVLAN)
		strip_cvlan(&a);
	if (wants & VB_SCATTER_FCS)
		append_fcs(&a, fcs);
	return a;
}
