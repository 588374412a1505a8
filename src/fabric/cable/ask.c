// ask.c - what a fabric process with one channel adapter asks before a session, and what it is told
// see: fabric/cable/cable.h
// SPDX-License-Identifier: MIT
#include "fabric/cable/cable.h"

enum { TELL_HEAD = 16 };

_Static_assert(VB_CABLE_HEADER + TELL_HEAD + VB_CABLE_PIECE <= VB_CABLE_ASK_LEN,
               "an answer is no longer than its question");

static bool is_of_kind(struct vb_cable_head *h, uint8_t kind, const uint8_t *d, size_t len)
{
	return vb_cable_head_decode(h, d, len) == VB_CABLE_WELL_FORMED && h->kind == kind;
}

void vb_cable_ask_encode(uint8_t d[VB_CABLE_ASK_LEN], const struct vb_sip_key *key, const struct vb_cable_ask *a)
{
	const struct vb_cable_head h = {.kind = VB_CABLE_ASK, .seq = a->nonce};
	struct vb_writer w = vb_writer(d + VB_CABLE_HEADER, VB_CABLE_ASK_LEN - VB_CABLE_HEADER);

	vb_cable_head_encode(d, &h);
	vb_put32(&w, a->at);
	vb_put_bytes(&w, a->node, sizeof(a->node));
	vb_put_zeros(&w, VB_CABLE_ASK_LEN - VB_CABLE_HEADER - w.pos);
	vb_cable_seal(key, d, VB_CABLE_ASK_LEN);
}

bool vb_cable_ask_decode(struct vb_cable_ask *a, const uint8_t *d, size_t len)
{
	struct vb_cable_head h;

	if (len != VB_CABLE_ASK_LEN || !is_of_kind(&h, VB_CABLE_ASK, d, len))
		return false;
	struct vb_reader r = vb_reader(d + VB_CABLE_HEADER, len - VB_CABLE_HEADER);

	a->nonce = h.seq;
	a->at = vb_get32(&r);
	memcpy(a->node, vb_take(&r, sizeof(a->node)), sizeof(a->node));
	a->node[sizeof(a->node) - 1] = '\0';
	return true;
}

size_t vb_cable_tell_encode(uint8_t d[VB_CABLE_ASK_LEN], const struct vb_sip_key *key, const struct vb_cable_tell *t)
{
	const struct vb_cable_head h = {.kind = VB_CABLE_TELL, .seq = t->nonce};
	struct vb_writer w = vb_writer(d + VB_CABLE_HEADER, VB_CABLE_ASK_LEN - VB_CABLE_HEADER);

	vb_cable_head_encode(d, &h);
	vb_put32(&w, t->answer);
	vb_put32(&w, t->at);
	vb_put32(&w, t->whole);
	vb_put32(&w, 0);
	vb_put_bytes(&w, t->bytes, t->len);
	vb_cable_seal(key, d, VB_CABLE_HEADER + w.pos);
	return VB_CABLE_HEADER + w.pos;
}

bool vb_cable_tell_decode(struct vb_cable_tell *t, const uint8_t *d, size_t len)
{
	struct vb_cable_head h;

	if (len < VB_CABLE_HEADER + TELL_HEAD || len > VB_CABLE_HEADER + TELL_HEAD + VB_CABLE_PIECE ||
	    !is_of_kind(&h, VB_CABLE_TELL, d, len))
		return false;
	struct vb_reader r = vb_reader(d + VB_CABLE_HEADER, len - VB_CABLE_HEADER);

	t->nonce = h.seq;
	t->answer = vb_get32(&r);
	t->at = vb_get32(&r);
	t->whole = vb_get32(&r);
	vb_get32(&r);
	t->len = vb_left(&r);
	memcpy(t->bytes, vb_take(&r, t->len), t->len);
	return true;
}
