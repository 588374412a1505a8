// rdmap.h - DDP segments and RDMAP messages, the properties of each opcode, Terminate codes
// follows: RFC 5041, 4 and 7.2; RFC 5040, 4 (4.8: Terminate); RFC 5044, 8; RFC 6581, 8 (MPA errors); RFC 7306, 4 to 6
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_RDMAP_H
#define VB_FRAME_RDMAP_H

#include "frame/cursor.h"

#define VB_DDP_VERSION 1
#define VB_RDMAP_VERSION 1
#define VB_DDP_TAGGED_LEN 14
#define VB_DDP_UNTAGGED_LEN 18
#define VB_READ_REQUEST_LEN 28
#define VB_ATOMIC_REQUEST_LEN 52
#define VB_ATOMIC_RESPONSE_LEN 12
#define VB_IMMEDIATE_LEN 8
#define VB_TERMINATE_MAX (4 + 2 + VB_DDP_UNTAGGED_LEN + VB_READ_REQUEST_LEN)

enum vb_ddp_queue { VB_QN_SEND, VB_QN_READ, VB_QN_TERMINATE, VB_QN_ATOMIC_RESPONSE, VB_QN_COUNT };

enum vb_rdmap_flag {
	VB_RDMAP_TAGGED = 1 << 0,
	VB_RDMAP_PAYLOAD = 1 << 1,  /* of any length, in any number of segments */
	VB_RDMAP_RECEIVES = 1 << 2, /* takes a receive */
	VB_RDMAP_SOLICITED = 1 << 3,
	VB_RDMAP_INVALIDATES = 1 << 4,
	VB_RDMAP_ANSWERED = 1 << 5,
	VB_RDMAP_RESPONSE = 1 << 6,
};

/* X(code, name, queue, body, flags). body: the length of the RDMAP header behind the DDP header. queue is 0 for tagged
 * messages. */
#define VB_RDMAP_OPCODES(X)                                                                           \
	X(0x0, WRITE, SEND, 0, VB_RDMAP_TAGGED | VB_RDMAP_PAYLOAD)                                    \
	X(0x1, READ_REQUEST, READ, VB_READ_REQUEST_LEN, VB_RDMAP_ANSWERED)                            \
	X(0x2, READ_RESPONSE, SEND, 0, VB_RDMAP_TAGGED | VB_RDMAP_PAYLOAD | VB_RDMAP_RESPONSE)        \
	X(0x3, SEND, SEND, 0, VB_RDMAP_PAYLOAD | VB_RDMAP_RECEIVES)                                   \
	X(0x4, SEND_INVALIDATE, SEND, 0, VB_RDMAP_PAYLOAD | VB_RDMAP_RECEIVES | VB_RDMAP_INVALIDATES) \
	X(0x5, SEND_SE, SEND, 0, VB_RDMAP_PAYLOAD | VB_RDMAP_RECEIVES | VB_RDMAP_SOLICITED)           \
	X(0x6, SEND_SE_INVALIDATE, SEND, 0,                                                           \
	  VB_RDMAP_PAYLOAD | VB_RDMAP_RECEIVES | VB_RDMAP_SOLICITED | VB_RDMAP_INVALIDATES)           \
	X(0x7, TERMINATE, TERMINATE, 0, 0)                                                            \
	X(0x8, IMMEDIATE, SEND, VB_IMMEDIATE_LEN, VB_RDMAP_RECEIVES)                                  \
	X(0x9, IMMEDIATE_SE, SEND, VB_IMMEDIATE_LEN, VB_RDMAP_RECEIVES | VB_RDMAP_SOLICITED)          \
	X(0xa, ATOMIC_REQUEST, READ, VB_ATOMIC_REQUEST_LEN, VB_RDMAP_ANSWERED)                        \
	X(0xb, ATOMIC_RESPONSE, ATOMIC_RESPONSE, VB_ATOMIC_RESPONSE_LEN, VB_RDMAP_RESPONSE)

enum vb_rdmap_opcode {
#define X(code, name, queue, body, flags) VB_RDMAP_##name = code,
	VB_RDMAP_OPCODES(X)
#undef X
};

struct vb_rdmap_info {
	const char *name; /* NULL: no such opcode */
	uint8_t queue, body, flags;
};

extern const struct vb_rdmap_info vb_rdmap_table[16];

/* The header of a DDP segment, with RDMAP's fields in it. */
struct vb_ddp {
	bool tagged, last;
	uint8_t dv, rv, opcode; /* versions of DDP and RDMAP */
	uint32_t stag;          /* untagged: the STag to invalidate, or 0 */
	uint64_t to;            /* tagged */
	uint32_t qn, msn, mo;   /* untagged */
};

struct vb_read_request {
	uint32_t sink_stag, length, stag;
	uint64_t sink_to, to;
};

enum vb_rdmap_atomic { VB_RDMAP_FETCH_ADD = 0, VB_RDMAP_CMP_SWAP = 2 };

struct vb_atomic_request {
	uint8_t op; /* enum vb_rdmap_atomic */
	uint32_t id, stag;
	uint64_t to, swap_add, swap_add_mask, compare, compare_mask;
};

struct vb_atomic_response {
	uint32_t id;
	uint64_t original;
};

/* Verbs use only the first 4 bytes; the other 4 are zeros. */
struct vb_immediate {
	uint32_t data, rest;
};

static inline uint32_t vb_ddp_len(bool tagged)
{
	return tagged ? VB_DDP_TAGGED_LEN : VB_DDP_UNTAGGED_LEN;
}

void vb_ddp_decode(struct vb_reader *r, struct vb_ddp *h);
void vb_ddp_encode(struct vb_writer *w, const struct vb_ddp *h);
void vb_read_request_decode(struct vb_reader *r, struct vb_read_request *h);
void vb_read_request_encode(struct vb_writer *w, const struct vb_read_request *h);
void vb_atomic_request_decode(struct vb_reader *r, struct vb_atomic_request *h);
void vb_atomic_request_encode(struct vb_writer *w, const struct vb_atomic_request *h);
void vb_atomic_response_decode(struct vb_reader *r, struct vb_atomic_response *h);
void vb_atomic_response_encode(struct vb_writer *w, const struct vb_atomic_response *h);
void vb_immediate_decode(struct vb_reader *r, struct vb_immediate *h);
void vb_immediate_encode(struct vb_writer *w, const struct vb_immediate *h);

/* --- Terminate --- */

enum vb_term_layer { VB_TERM_RDMAP, VB_TERM_DDP, VB_TERM_MPA };

/* X(layer, etype, code, name, text) */
#define VB_TERMINATES(X)                                                                     \
	X(RDMAP, 0, 0x00, LOCAL_CATASTROPHIC, "local catastrophic error")                    \
	X(RDMAP, 1, 0x00, PROTECTION_STAG, "invalid STag")                                   \
	X(RDMAP, 1, 0x01, PROTECTION_BOUNDS, "base or bounds violation")                     \
	X(RDMAP, 1, 0x02, PROTECTION_ACCESS, "access rights violation")                      \
	X(RDMAP, 1, 0x03, PROTECTION_STREAM, "STag not associated with the stream")          \
	X(RDMAP, 1, 0x04, PROTECTION_WRAP, "tagged offset wrap")                             \
	X(RDMAP, 1, 0x09, PROTECTION_INVALIDATE, "STag cannot be invalidated")               \
	X(RDMAP, 1, 0xff, PROTECTION_OTHER, "remote protection error")                       \
	X(RDMAP, 2, 0x05, OPERATION_VERSION, "invalid RDMAP version")                        \
	X(RDMAP, 2, 0x06, OPERATION_OPCODE, "unexpected opcode")                             \
	X(RDMAP, 2, 0x07, OPERATION_STREAM, "catastrophic error, of the stream")             \
	X(RDMAP, 2, 0x08, OPERATION_GLOBAL, "catastrophic error, global")                    \
	X(RDMAP, 2, 0x09, OPERATION_INVALIDATE, "STag cannot be invalidated (operation)")    \
	X(RDMAP, 2, 0xff, OPERATION_OTHER, "remote operation error")                         \
	X(DDP, 0, 0x00, DDP_CATASTROPHIC, "DDP: local catastrophic error")                   \
	X(DDP, 1, 0x00, TAGGED_STAG, "tagged buffer: invalid STag")                          \
	X(DDP, 1, 0x01, TAGGED_BOUNDS, "tagged buffer: base or bounds violation")            \
	X(DDP, 1, 0x02, TAGGED_STREAM, "tagged buffer: STag not associated with the stream") \
	X(DDP, 1, 0x03, TAGGED_WRAP, "tagged buffer: tagged offset wrap")                    \
	X(DDP, 1, 0x04, TAGGED_VERSION, "tagged buffer: invalid DDP version")                \
	X(DDP, 2, 0x01, UNTAGGED_QUEUE, "untagged buffer: invalid queue number")             \
	X(DDP, 2, 0x02, UNTAGGED_NO_BUFFER, "untagged buffer: none available")               \
	X(DDP, 2, 0x03, UNTAGGED_MSN, "untagged buffer: MSN out of range")                   \
	X(DDP, 2, 0x04, UNTAGGED_OFFSET, "untagged buffer: invalid message offset")          \
	X(DDP, 2, 0x05, UNTAGGED_TOO_LONG, "untagged buffer: message too long")              \
	X(DDP, 2, 0x06, UNTAGGED_VERSION, "untagged buffer: invalid DDP version")            \
	X(MPA, 0, 0x01, MPA_LOST, "MPA: connection closed, terminated or lost")              \
	X(MPA, 0, 0x02, MPA_CRC, "MPA: CRC error")                                           \
	X(MPA, 0, 0x03, MPA_MARKER, "MPA: marker and ULPDU length do not match")             \
	X(MPA, 0, 0x04, MPA_FRAME, "MPA: invalid request or reply frame")                    \
	X(MPA, 0, 0x05, MPA_CATASTROPHIC, "MPA: local catastrophic error")                   \
	X(MPA, 0, 0x06, MPA_IRD, "MPA: insufficient IRD resources")                          \
	X(MPA, 0, 0x07, MPA_RTR, "MPA: no matching RTR option")

/* Layer, error type and code as in the message: layer << 12 | etype << 8 | code. */
enum vb_term {
#define X(layer, etype, code, name, text) VB_TERM_##name = VB_TERM_##layer << 12 | (etype) << 8 | (code),
	VB_TERMINATES(X)
#undef X
};

/* The text of a Terminate code; "unknown" if it is not defined. */
const char *vb_term_text(uint16_t term);

struct vb_terminate {
	uint16_t term;          /* enum vb_term, or any other value from a peer */
	bool has_ddp, has_rdma; /* headers of the segment in error follow (RFC 5040, 4.8: HdrCt) */
	uint16_t segment_len;
	struct vb_ddp ddp;
	uint8_t rdma[VB_READ_REQUEST_LEN]; /* of a Read Request only */
};

/* Treats a truncated header as absent. Returns false if the message is too short for the code. */
bool vb_terminate_decode(struct vb_terminate *t, const uint8_t *bytes, size_t len);
void vb_terminate_encode(struct vb_writer *w, const struct vb_terminate *t);

#endif
