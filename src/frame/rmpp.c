// rmpp.c - encodes and decodes the header of the reliable multi-packet protocol
// follows: IBA volume 1, 13.6.2 (RMPP formats), 15.2.1.1 (SA), 13.4.6.3 (vendor classes)
// SPDX-License-Identifier: MIT
#include "frame/rmpp.h"

#include "frame/smp.h"

void vb_rmpp_decode(struct vb_rmpp *h, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_reader r = vb_reader(mad + VB_MAD_HEADER_LEN, VB_MAD_LEN - VB_MAD_HEADER_LEN);

	h->version = vb_get8(&r);
	h->type = vb_get8(&r);
	uint8_t v = vb_get8(&r);
	h->resp_time = v >> 3;
	h->flags = v & 7;
	h->status = vb_get8(&r);
	h->segment = vb_get32(&r);
	h->length = vb_get32(&r);
}

void vb_rmpp_encode(uint8_t mad[VB_MAD_LEN], const struct vb_rmpp *h)
{
	struct vb_writer w = vb_writer(mad + VB_MAD_HEADER_LEN, VB_MAD_LEN - VB_MAD_HEADER_LEN);

	vb_put8(&w, h->version);
	vb_put8(&w, h->type);
	vb_put8(&w, (uint8_t)(h->resp_time << 3 | (h->flags & 7)));
	vb_put8(&w, h->status);
	vb_put32(&w, h->segment);
	vb_put32(&w, h->length);
}

unsigned vb_rmpp_header_len(uint8_t mgmt_class)
{
	enum { DEVICE_ADMINISTRATION = 0x10, BIS = 0x12, VENDOR = 0x30, VENDOR_END = 0x4f };

	if (mgmt_class == VB_MAD_CLASS_SA || mgmt_class == DEVICE_ADMINISTRATION || mgmt_class == BIS)
		return 56;
	return mgmt_class >= VENDOR && mgmt_class <= VENDOR_END ? 40 : 0;
}
