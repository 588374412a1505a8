// mad.c - encodes and decodes the common header of management datagrams
// follows: IBA volume 1, 13.4.2 (MAD header)
// SPDX-License-Identifier: MIT
#include "frame/mad.h"

/* BaseVersion; MgmtClass; ClassVersion; R and Method; Status; ClassSpecific; TransactionID; AttributeID; reserved;
 * AttributeModifier. */
void vb_mad_decode(struct vb_reader *r, struct vb_mad *h)
{
	h->base_version = vb_get8(r);
	h->mgmt_class = vb_get8(r);
	h->class_version = vb_get8(r);
	h->method = vb_get8(r);
	h->status = vb_get16(r);
	h->class_specific = vb_get16(r);
	h->tid = vb_get64(r);
	h->attr_id = vb_get16(r);
	vb_get16(r);
	h->attr_mod = vb_get32(r);
}

void vb_mad_encode(struct vb_writer *w, const struct vb_mad *h)
{
	vb_put8(w, h->base_version);
	vb_put8(w, h->mgmt_class);
	vb_put8(w, h->class_version);
	vb_put8(w, h->method);
	vb_put16(w, h->status);
	vb_put16(w, h->class_specific);
	vb_put64(w, h->tid);
	vb_put16(w, h->attr_id);
	vb_put16(w, 0);
	vb_put32(w, h->attr_mod);
}
