// mpa.h - MPA: request and reply frames, their negotiation, and the framing of FPDUs in the stream
// follows: RFC 5044, 4 (FPDUs, markers, CRC) and 7.1 (connection setup); RFC 6581, 4 to 9 (enhanced connection setup)
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_MPA_H
#define VB_FRAME_MPA_H

#include "frame/cursor.h"

#define VB_MPA_FRAME_LEN 20    /* before the private data */
#define VB_MPA_PRIVATE_MAX 512 /* including the words of RFC 6581 */
#define VB_MPA_ENHANCED_LEN 4  /* the words of RFC 6581: IRD and ORD */
#define VB_MPA_FRAME_MAX (VB_MPA_FRAME_LEN + VB_MPA_PRIVATE_MAX)
#define VB_MPA_ANY_DEPTH 0x3fff /* of IRD and ORD: not negotiated */
#define VB_MPA_INTERVAL 512u    /* bytes from one marker to the next */
#define VB_MPA_MARKER_LEN 4u
#define VB_MPA_CRC_LEN 4u
#define VB_MPA_LENGTH_LEN 2u
#define VB_MPA_ULPDU_MAX 0xffffu

/* The ready-to-receive messages of RFC 6581, 9.2, as a set. */
enum vb_mpa_rtr { VB_MPA_RTR_SEND = 1, VB_MPA_RTR_WRITE = 2, VB_MPA_RTR_READ = 4 };

struct vb_mpa_frame {
	bool reply;
	bool markers, crc;           /* M: the sender of the frame wants to receive markers. C: it requires a CRC */
	bool reject;                 /* R, of a reply */
	uint8_t revision;            /* 1 or 2 */
	bool enhanced;               /* S: the frame has the words of RFC 6581 */
	bool peer_to_peer;           /* A */
	uint8_t rtr;                 /* B, C, D: enum vb_mpa_rtr */
	uint16_t ird, ord;           /* 14 bits */
	const uint8_t *private_data; /* without the words of RFC 6581; points into the decoded bytes */
	uint16_t private_len;
};

/* X(name, text) */
#define VB_MPA_VERDICTS(X)                                                            \
	X(OK, "right")                                                                \
	X(SHORT, "more bytes have to come")                                           \
	X(KEY, "not an MPA frame")                                                    \
	X(WRONG_WAY, "a request where a reply is due, or a reply where a request is") \
	X(REVISION, "MPA revision not supported")                                     \
	X(LENGTH, "private data too long")                                            \
	X(ENHANCED, "no room for the words of the enhanced setup")                    \
	X(REJECT, "a request that rejects")

enum vb_mpa_verdict {
#define X(name, text) VB_MPA_##name,
	VB_MPA_VERDICTS(X)
#undef X
};

const char *vb_mpa_verdict_text(enum vb_mpa_verdict verdict);

/* Decodes the frame at the start of a stream, of which len bytes have arrived. Sets *frame, and *used to its length, if
 * the verdict is OK. Reports an error as soon as the arrived bytes show it, even if the frame is incomplete. */
enum vb_mpa_verdict vb_mpa_decode(struct vb_mpa_frame *frame, size_t *used, const uint8_t *bytes, size_t len,
                                  bool reply);
/* The length that a frame's first VB_MPA_FRAME_LEN bytes give for the rest of it. */
static inline uint16_t vb_mpa_private_len(const uint8_t bytes[VB_MPA_FRAME_LEN])
{
	return (uint16_t)(bytes[VB_MPA_FRAME_LEN - 2] << 8 | bytes[VB_MPA_FRAME_LEN - 1]);
}
void vb_mpa_encode(struct vb_writer *w, const struct vb_mpa_frame *frame);

/* The options of one side. */
struct vb_mpa_wish {
	uint8_t revision;  /* 1 or 2 */
	bool markers, crc; /* wants to receive markers; requires a CRC */
	bool peer_to_peer; /* the initiator will send an RTR message; the responder wants one if the peer supports it */
	uint8_t rtr;       /* enum vb_mpa_rtr: messages that it can send, or accept */
	uint16_t ird, ord; /* at most */
	bool strict;       /* the initiator: fails if the peer's IRD is below our ORD, instead of lowering our ORD */
};

struct vb_mpa_terms {
	bool crc, markers_in, markers_out;
	uint16_t ird, ord;
	uint8_t rtr; /* the initiator's first FPDU: one of enum vb_mpa_rtr, or 0 for none */
	bool hold;   /* the responder sends nothing before the first FPDU has arrived */
};

enum vb_mpa_refusal {
	VB_MPA_AGREED,
	VB_MPA_REJECTED, /* by the peer; its private data may give the reason */
	VB_MPA_NO_IRD,   /* insufficient IRD: RFC 6581, 8 (MPA error 6) */
	VB_MPA_NO_RTR,   /* no matching RTR option (MPA error 7) */
	VB_MPA_NEWER,    /* a reply of a later revision than the request's */
};

/* Makes the initiator's request; the caller owns private_data. */
void vb_mpa_request(struct vb_mpa_frame *request, const struct vb_mpa_wish *wish, const void *private_data,
                    uint16_t len);
/* The responder: computes the terms and the reply. */
enum vb_mpa_refusal vb_mpa_answer(struct vb_mpa_frame *reply, struct vb_mpa_terms *terms,
                                  const struct vb_mpa_wish *wish, const struct vb_mpa_frame *request);
/* The initiator: computes the terms from the reply to the request made from `wish`. */
enum vb_mpa_refusal vb_mpa_conclude(struct vb_mpa_terms *terms, const struct vb_mpa_wish *wish,
                                    const struct vb_mpa_frame *reply);

/* --- FPDUs: length of the ULPDU, ULPDU, pad, CRC --- */

static inline uint32_t vb_mpa_pad(uint32_t ulpdu)
{
	return -(VB_MPA_LENGTH_LEN + ulpdu) & 3;
}

static inline uint32_t vb_mpa_fpdu_len(uint32_t ulpdu)
{
	return VB_MPA_LENGTH_LEN + ulpdu + vb_mpa_pad(ulpdu) + VB_MPA_CRC_LEN;
}

/* RFC 5044, 4.5: the largest ULPDU whose FPDU fits in emss bytes, whatever the positions of its markers. */
uint32_t vb_mpa_mulpdu(uint32_t emss, bool markers);
/* Bytes of the stream that the first len bytes of an FPDU take, with markers. The FPDU starts at this position of the
 * stream. Each multiple of 512 has a marker. A marker directly behind an FPDU belongs to the next one. */
uint32_t vb_mpa_marked_len(uint64_t position, uint32_t len);
/* Inserts the markers in place. bytes has room for FPDU and markers; the FPDU is in the last len bytes of it. */
void vb_mpa_mark(uint8_t *bytes, uint32_t len, uint64_t position);
/* Removes the markers: then the FPDU is in bytes[0, len). Returns false if a marker does not point to its start. */
bool vb_mpa_unmark(uint8_t *bytes, uint32_t len, uint64_t position);
/* Write, and check, the CRC in the last bytes of an FPDU. marked_len: the FPDU's length with markers and CRC. */
void vb_mpa_seal(uint8_t *fpdu, uint32_t marked_len);
bool vb_mpa_sealed(const uint8_t *fpdu, uint32_t marked_len);

#endif
