// header.h - the base transport header and its extensions, in host order
// follows: IBA volume 1, 9.2 (BTH), 9.3 (extended transport headers), 5.2 (their layout); annexes A14 (XRCETH), A17 (CNP), A19 (FLUSH)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_HEADER_H
#define VB_FRAME_HEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "frame/aeth.h"
#include "frame/cursor.h"
#include "frame/fields.h"
#include "frame/psn.h"

#define VB_BTH_LEN 12
#define VB_BTH_RESV8A \
	4 /* offset of FECN, BECN and reserved bits: switches may set them, so the ICRC does not cover them */
#define VB_ICRC_LEN 4

/* X(argument, name, field of struct vb_packet, bytes), in the order of the headers in a packet. */
#define VB_EXTENSIONS(X, arg)             \
	X(arg, DETH, deth, 8)             \
	X(arg, XRCETH, xrceth, 4)         \
	X(arg, FETH, feth, 4)             \
	X(arg, RETH, reth, 16)            \
	X(arg, ATOMIC, atomic, 28)        \
	X(arg, AETH, aeth, 4)             \
	X(arg, ATOMIC_ACK, atomic_ack, 8) \
	X(arg, IMMDT, immdt, 4)           \
	X(arg, IETH, ieth, 4)             \
	X(arg, CNP, cnp, 16)

enum vb_ext_number {
#define X(arg, name, field, len) VB_EXT_NUMBER_##name,
	VB_EXTENSIONS(X, )
#undef X
};

/* Set of extension headers. */
enum vb_ext {
#define X(arg, name, field, len) VB_EXT_##name = 1 << VB_EXT_NUMBER_##name,
	VB_EXTENSIONS(X, )
#undef X
};

/* Bytes of a BTH and these extension headers. A constant expression if ext is one. */
#define VB_EXT_LEN_IF(ext, name, field, len) +((ext)&VB_EXT_##name ? (len) : 0)
#define VB_HEADER_LEN(ext) (VB_BTH_LEN VB_EXTENSIONS(VB_EXT_LEN_IF, ext))

struct vb_bth {
	uint8_t opcode;
	uint8_t pad;  /* 0 to 3 bytes behind the payload */
	uint8_t tver; /* transport header version: 0 */
	bool solicited;
	bool migreq; /* 1 (migrated) in every packet without path migration. rxe sends 0 and accepts both */
	bool fecn, becn;
	bool ack_req;
	uint16_t pkey;
	uint32_t dest_qpn;
	struct vb_psn psn;
};

struct vb_deth {
	uint32_t qkey, src_qpn;
};

/* FLUSH (A19): numbers as in a program's ibv_wr_flush, but for the reserved ones. */
struct vb_feth {
	uint8_t type;  /* placement type, 4 bits: global visibility, persistence */
	uint8_t level; /* selectivity level, 2 bits: a range, or the whole region */
};

static inline struct vb_feth vb_feth_of(uint32_t word)
{
	return (struct vb_feth){word & 15, word >> 4 & 3};
}
static inline uint32_t vb_feth_word(struct vb_feth h)
{
	return (h.type & 15u) | (h.level & 3u) << 4;
}
/* Is it a placement type and a level that are not reserved? */
static inline bool vb_feth_is_known(struct vb_feth h)
{
	return h.type && h.type < 4 && h.level < 2;
}

struct vb_xrceth {
	uint32_t srqn;
};

struct vb_reth {
	uint64_t va;
	uint32_t rkey, length;
};

struct vb_atomic {
	uint64_t va;
	uint32_t rkey;
	uint64_t swap_add, compare; /* value to swap in or to add; value to compare with */
};

struct vb_atomic_ack {
	uint64_t original; /* the value before */
};

struct vb_immdt {
	uint32_t data; /* the first byte on the network is the highest: htonl gives a program's imm_data */
};

struct vb_ieth {
	uint32_t rkey;
};

struct vb_cnp {
	uint64_t reserved[2]; /* sent as zeros, ignored */
};

/* The destination queue pair, and the PSN, of an encoded BTH. */
static inline uint32_t vb_bth_dest_qpn(const uint8_t bth[VB_BTH_LEN])
{
	return (uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7];
}
static inline struct vb_psn vb_bth_psn(const uint8_t bth[VB_BTH_LEN])
{
	return vb_psn((uint32_t)bth[9] << 16 | (uint32_t)bth[10] << 8 | bth[11]);
}

void vb_bth_decode(struct vb_reader *r, struct vb_bth *h);
void vb_bth_encode(struct vb_writer *w, const struct vb_bth *h);
#define X(arg, name, field, len)                                             \
	void vb_##field##_decode(struct vb_reader *r, struct vb_##field *h); \
	void vb_##field##_encode(struct vb_writer *w, const struct vb_##field *h);
VB_EXTENSIONS(X, )
#undef X

#endif
