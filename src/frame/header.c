// header.c - encodes and decodes the base transport header and its extensions
// follows: IBA volume 1, 9.2 (BTH), 9.3 (extended transport headers), 5.2 (their layout); annexes A14 (XRCETH), A17 (CNP), A19 (FLUSH)
// SPDX-License-Identifier: MIT
#include "frame/header.h"

/* BTH: opcode; SE, M, PadCnt, TVer; P_Key; FECN, BECN, resv6; DestQP; A, resv7; PSN. */
__attribute__((hot)) void vb_bth_decode(struct vb_reader *r, struct vb_bth *h)
{
	h->opcode = vb_get8(r);
	uint8_t flags = vb_get8(r);

	h->solicited = flags >> 7;
	h->migreq = flags >> 6 & 1;
	h->pad = flags >> 4 & 3;
	h->tver = flags & 15;
	h->pkey = vb_get16(r);
	uint8_t resv8a = vb_get8(r);

	h->fecn = resv8a >> 7;
	h->becn = resv8a >> 6 & 1;
	h->dest_qpn = vb_get24(r);
	h->ack_req = vb_get8(r) >> 7;
	h->psn = vb_psn(vb_get24(r));
}

__attribute__((hot)) void vb_bth_encode(struct vb_writer *w, const struct vb_bth *h)
{
	vb_put8(w, h->opcode);
	vb_put8(w, (uint8_t)(h->solicited << 7 | h->migreq << 6 | (h->pad & 3) << 4 | (h->tver & 15)));
	vb_put16(w, h->pkey);
	vb_put8(w, (uint8_t)(h->fecn << 7 | h->becn << 6));
	vb_put24(w, h->dest_qpn);
	vb_put8(w, (uint8_t)(h->ack_req << 7));
	vb_put24(w, h->psn.v);
}

/* DETH: Q_Key; resv8; SrcQP. */
void vb_deth_decode(struct vb_reader *r, struct vb_deth *h)
{
	h->qkey = vb_get32(r);
	vb_get8(r);
	h->src_qpn = vb_get24(r);
}

void vb_deth_encode(struct vb_writer *w, const struct vb_deth *h)
{
	vb_put32(w, h->qkey);
	vb_put8(w, 0);
	vb_put24(w, h->src_qpn);
}

/* FETH: resv26; SEL; PLT. */
void vb_feth_decode(struct vb_reader *r, struct vb_feth *h)
{
	*h = vb_feth_of(vb_get32(r));
}

void vb_feth_encode(struct vb_writer *w, const struct vb_feth *h)
{
	vb_put32(w, vb_feth_word(*h));
}

/* XRCETH: resv8; XRCSRQ. */
void vb_xrceth_decode(struct vb_reader *r, struct vb_xrceth *h)
{
	vb_get8(r);
	h->srqn = vb_get24(r);
}

void vb_xrceth_encode(struct vb_writer *w, const struct vb_xrceth *h)
{
	vb_put8(w, 0);
	vb_put24(w, h->srqn);
}

/* RETH: VA; R_Key; DMALen. */
__attribute__((hot)) void vb_reth_decode(struct vb_reader *r, struct vb_reth *h)
{
	h->va = vb_get64(r);
	h->rkey = vb_get32(r);
	h->length = vb_get32(r);
}

__attribute__((hot)) void vb_reth_encode(struct vb_writer *w, const struct vb_reth *h)
{
	vb_put64(w, h->va);
	vb_put32(w, h->rkey);
	vb_put32(w, h->length);
}

/* AtomicETH: VA; R_Key; SwapDt; CmpDt. */
void vb_atomic_decode(struct vb_reader *r, struct vb_atomic *h)
{
	h->va = vb_get64(r);
	h->rkey = vb_get32(r);
	h->swap_add = vb_get64(r);
	h->compare = vb_get64(r);
}

void vb_atomic_encode(struct vb_writer *w, const struct vb_atomic *h)
{
	vb_put64(w, h->va);
	vb_put32(w, h->rkey);
	vb_put64(w, h->swap_add);
	vb_put64(w, h->compare);
}

/* AETH: syndrome; MSN. */
__attribute__((hot)) void vb_aeth_decode(struct vb_reader *r, struct vb_aeth *h)
{
	uint8_t syndrome = vb_get8(r);

	h->kind = syndrome >> 5;
	h->value = syndrome & 31;
	h->msn = vb_get24(r);
}

__attribute__((hot)) void vb_aeth_encode(struct vb_writer *w, const struct vb_aeth *h)
{
	vb_put8(w, (uint8_t)(h->kind << 5 | (h->value & 31)));
	vb_put24(w, h->msn);
}

/* AtomicAckETH: OrigRemDt. */
void vb_atomic_ack_decode(struct vb_reader *r, struct vb_atomic_ack *h)
{
	h->original = vb_get64(r);
}

void vb_atomic_ack_encode(struct vb_writer *w, const struct vb_atomic_ack *h)
{
	vb_put64(w, h->original);
}

/* ImmDt */
__attribute__((hot)) void vb_immdt_decode(struct vb_reader *r, struct vb_immdt *h)
{
	h->data = vb_get32(r);
}

__attribute__((hot)) void vb_immdt_encode(struct vb_writer *w, const struct vb_immdt *h)
{
	vb_put32(w, h->data);
}

/* IETH: R_Key. */
void vb_ieth_decode(struct vb_reader *r, struct vb_ieth *h)
{
	h->rkey = vb_get32(r);
}

void vb_ieth_encode(struct vb_writer *w, const struct vb_ieth *h)
{
	vb_put32(w, h->rkey);
}

/* CNP: reserved (A17.9.3). */
void vb_cnp_decode(struct vb_reader *r, struct vb_cnp *h)
{
	h->reserved[0] = vb_get64(r);
	h->reserved[1] = vb_get64(r);
}

void vb_cnp_encode(struct vb_writer *w, const struct vb_cnp *h)
{
	vb_put64(w, h->reserved[0]);
	vb_put64(w, h->reserved[1]);
}
