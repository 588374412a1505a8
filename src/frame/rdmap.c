// rdmap.c - encodes and decodes DDP segments and RDMAP messages
// follows: RFC 5041, 4 (DDP headers); RFC 5040, 4 (RDMAP headers); RFC 7306, 5 and 6 (atomics, immediate data)
// SPDX-License-Identifier: MIT
#include "frame/rdmap.h"

const struct vb_rdmap_info vb_rdmap_table[16] = {
#define X(code, name, queue, body, flags) [code] = {#name, VB_QN_##queue, (body), (flags)},
        VB_RDMAP_OPCODES(X)
#undef X
};

/* T, L, reserved, DV; RV, reserved, opcode; STag, TO or STag to invalidate, QN, MSN, MO. */
void vb_ddp_decode(struct vb_reader *r, struct vb_ddp *h)
{
	uint8_t ddp = vb_get8(r), rdmap = vb_get8(r);

	*h = (struct vb_ddp){
	        .tagged = ddp >> 7,
	        .last = ddp >> 6 & 1,
	        .dv = ddp & 3,
	        .rv = rdmap >> 6,
	        .opcode = rdmap & 15,
	};
	h->stag = vb_get32(r);
	if (h->tagged) {
		h->to = vb_get64(r);
		return;
	}
	h->qn = vb_get32(r);
	h->msn = vb_get32(r);
	h->mo = vb_get32(r);
}

void vb_ddp_encode(struct vb_writer *w, const struct vb_ddp *h)
{
	vb_put8(w, (uint8_t)(h->tagged << 7 | h->last << 6 | (h->dv & 3)));
	vb_put8(w, (uint8_t)((h->rv & 3) << 6 | (h->opcode & 15)));
	vb_put32(w, h->stag);
	if (h->tagged) {
		vb_put64(w, h->to);
		return;
	}
	vb_put32(w, h->qn);
	vb_put32(w, h->msn);
	vb_put32(w, h->mo);
}

/* Sink STag, sink TO; size; source STag, source TO. */
void vb_read_request_decode(struct vb_reader *r, struct vb_read_request *h)
{
	h->sink_stag = vb_get32(r);
	h->sink_to = vb_get64(r);
	h->length = vb_get32(r);
	h->stag = vb_get32(r);
	h->to = vb_get64(r);
}

void vb_read_request_encode(struct vb_writer *w, const struct vb_read_request *h)
{
	vb_put32(w, h->sink_stag);
	vb_put64(w, h->sink_to);
	vb_put32(w, h->length);
	vb_put32(w, h->stag);
	vb_put64(w, h->to);
}

/* Reserved and operation; identifier; STag, TO; data and mask to swap or add; data and mask to compare. */
void vb_atomic_request_decode(struct vb_reader *r, struct vb_atomic_request *h)
{
	h->op = vb_get32(r) & 15;
	h->id = vb_get32(r);
	h->stag = vb_get32(r);
	h->to = vb_get64(r);
	h->swap_add = vb_get64(r);
	h->swap_add_mask = vb_get64(r);
	h->compare = vb_get64(r);
	h->compare_mask = vb_get64(r);
}

void vb_atomic_request_encode(struct vb_writer *w, const struct vb_atomic_request *h)
{
	vb_put32(w, h->op & 15);
	vb_put32(w, h->id);
	vb_put32(w, h->stag);
	vb_put64(w, h->to);
	vb_put64(w, h->swap_add);
	vb_put64(w, h->swap_add_mask);
	vb_put64(w, h->compare);
	vb_put64(w, h->compare_mask);
}

void vb_atomic_response_decode(struct vb_reader *r, struct vb_atomic_response *h)
{
	h->id = vb_get32(r);
	h->original = vb_get64(r);
}

void vb_atomic_response_encode(struct vb_writer *w, const struct vb_atomic_response *h)
{
	vb_put32(w, h->id);
	vb_put64(w, h->original);
}

void vb_immediate_decode(struct vb_reader *r, struct vb_immediate *h)
{
	h->data = vb_get32(r);
	h->rest = vb_get32(r);
}

void vb_immediate_encode(struct vb_writer *w, const struct vb_immediate *h)
{
	vb_put32(w, h->data);
	vb_put32(w, h->rest);
}

/* --- Terminate --- */

enum { HEADER_M = 0x80, HEADER_D = 0x40, HEADER_R = 0x20, HEADERS = HEADER_M | HEADER_D | HEADER_R };
/* Linux's siw on a little-endian host sets these reserved bits: its bit-fields start at the low end of a byte. */
enum { SIW_M = 0x01, SIW_D = 0x02, SIW_R = 0x04, SIW_HEADERS = SIW_M | SIW_D | SIW_R };

const char *vb_term_text(uint16_t term)
{
	switch (term) {
#define X(layer, etype, code, name, text) \
	case VB_TERM_##name:              \
		return text;
		VB_TERMINATES(X)
#undef X
	}
	return "unknown";
}

/* deviates: reserved bits in place of the M, D and R bits identify a message from siw. It has layer and error type
 * swapped, too. A message of siw without headers cannot be recognised. */
static uint8_t right_siw(struct vb_terminate *t, uint8_t has)
{
	if (has & HEADERS || !(has & SIW_HEADERS))
		return has;
	t->term = (uint16_t)((t->term & 0xff) | (t->term & 0xf000) >> 4 | (t->term & 0x0f00) << 4);
	return (uint8_t)((has & SIW_M ? HEADER_M : 0) | (has & SIW_D ? HEADER_D : 0) | (has & SIW_R ? HEADER_R : 0));
}

/* Layer, error type, code; M, D, R, reserved; length of the segment, its DDP header, its RDMAP header. */
bool vb_terminate_decode(struct vb_terminate *t, const uint8_t *bytes, size_t len)
{
	struct vb_reader r = vb_reader(bytes, len);

	*t = (struct vb_terminate){.term = vb_get16(&r)};
	uint16_t control = vb_get16(&r);

	if (r.failed)
		return false;
	uint8_t has = right_siw(t, (uint8_t)(control >> 8));

	if (has & HEADER_D || has & HEADER_M)
		t->segment_len = vb_get16(&r);
	if (!(has & HEADER_D))
		return true;
	vb_ddp_decode(&r, &t->ddp);
	t->has_ddp = !r.failed;
	if (!t->has_ddp || !(has & HEADER_R) || t->ddp.opcode != VB_RDMAP_READ_REQUEST)
		return true;
	const uint8_t *rdma = vb_take(&r, sizeof(t->rdma));

	t->has_rdma = rdma;
	if (rdma)
		memcpy(t->rdma, rdma, sizeof(t->rdma));
	return true;
}

void vb_terminate_encode(struct vb_writer *w, const struct vb_terminate *t)
{
	vb_put16(w, t->term);
	vb_put16(w, (uint16_t)((t->has_ddp ? HEADER_M | HEADER_D : 0) | (t->has_ddp && t->has_rdma ? HEADER_R : 0))
	                            << 8 &
	                    0xffff);
	if (!t->has_ddp)
		return;
	vb_put16(w, t->segment_len);
	vb_ddp_encode(w, &t->ddp);
	if (t->has_rdma)
		vb_put_bytes(w, t->rdma, sizeof(t->rdma));
}
