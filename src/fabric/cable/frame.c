// frame.c - the form of datagrams between fabric processes
// see: fabric/cable/cable.h
// SPDX-License-Identifier: MIT
#include "fabric/cable/cable.h"

enum { MAGIC = 0x5646, TAG_AT = 24 };

void vb_cable_head_encode(uint8_t bytes[VB_CABLE_HEADER], const struct vb_cable_head *h)
{
	struct vb_writer w = vb_writer(bytes, VB_CABLE_HEADER);

	vb_put16(&w, MAGIC);
	vb_put8(&w, VB_CABLE_VERSION);
	vb_put8(&w, h->kind);
	vb_put16(&w, h->first);
	vb_put8(&w, h->port);
	vb_put8(&w, 0);
	vb_put(&w, 8, h->guid);
	vb_put(&w, 8, h->seq);
	vb_put(&w, 8, 0);
}

enum vb_cable_form vb_cable_head_decode(struct vb_cable_head *h, const uint8_t *datagram, size_t len)
{
	struct vb_reader r = vb_reader(datagram, len < VB_CABLE_HEADER ? len : VB_CABLE_HEADER);
	uint16_t magic = vb_get16(&r);
	uint8_t version = vb_get8(&r);

	h->kind = vb_get8(&r);
	h->first = vb_get16(&r);
	h->port = vb_get8(&r);
	vb_get8(&r);
	h->guid = vb_get64(&r);
	h->seq = vb_get64(&r);
	vb_get64(&r);
	if (r.failed || magic != MAGIC)
		return VB_CABLE_MALFORMED;
	if (version != VB_CABLE_VERSION)
		return VB_CABLE_OTHER_VERSION;
	return h->kind < VB_CABLE_HELLO || h->kind > VB_CABLE_TELL ? VB_CABLE_MALFORMED : VB_CABLE_WELL_FORMED;
}

static uint64_t tag_of(const struct vb_sip_key *key, const uint8_t *d, size_t len)
{
	return vb_siphash(key, d, TAG_AT, d + VB_CABLE_HEADER, len - VB_CABLE_HEADER);
}

void vb_cable_seal(const struct vb_sip_key *key, uint8_t *d, size_t len)
{
	struct vb_writer w = vb_writer(d + TAG_AT, VB_CABLE_HEADER - TAG_AT);

	vb_put(&w, 8, tag_of(key, d, len));
}

bool vb_cable_is_sealed(const struct vb_sip_key *key, const uint8_t *d, size_t len)
{
	struct vb_reader r = vb_reader(d + TAG_AT, VB_CABLE_HEADER - TAG_AT);

	return vb_get64(&r) == tag_of(key, d, len);
}

void vb_cable_line_encode(struct vb_writer *w, const struct vb_cable_line *l)
{
	vb_put(w, 8, l->guid);
	vb_put8(w, l->port);
	vb_put8(w, l->end.wants);
	vb_put8(w, l->end.widths);
	vb_put8(w, l->end.speeds);
	vb_put8(w, l->end.ext_speeds);
	vb_put_zeros(w, 3);
	vb_put32(w, l->end.downs);
}

void vb_cable_line_decode(struct vb_reader *r, struct vb_cable_line *l)
{
	l->guid = vb_get64(r);
	l->port = vb_get8(r);
	l->end.wants = vb_get8(r) & 1;
	l->end.widths = vb_get8(r);
	l->end.speeds = vb_get8(r);
	l->end.ext_speeds = vb_get8(r);
	vb_take(r, 3);
	l->end.downs = vb_get32(r);
}
