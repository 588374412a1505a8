// machine.h - functions that the files of the iWARP engine share
// follows: RFC 5040, RFC 5041, RFC 5044
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_IWARP_MACHINE_H
#define VB_ENGINE_IWARP_MACHINE_H

#include "engine/iwarp/state.h"
#include "frame/mpa.h"

#define VB_IW_NOBODY UINT32_MAX /* no request */
/* STag and offset of a write of length 0, whose sender announces with them that it accepts large FPDUs */
#define VB_IW_LARGE_STAG 0x56657262u
#define VB_IW_LARGE_TO 0x656e61206c617267u

static inline struct vb_work_sent *vb_iw_send_at(const struct vb_iw_qp *q, uint32_t i)
{
	return &q->sends[i & q->mask];
}

static inline bool vb_iw_is_atomic(const struct vb_work *work)
{
	return work->verb == VB_VERB_CMP_SWAP || work->verb == VB_VERB_FETCH_ADD;
}

static inline bool vb_iw_is_answered(const struct vb_work *work)
{
	return work->verb == VB_VERB_READ || vb_iw_is_atomic(work);
}

/* --- output.c: FPDUs that TCP has not accepted yet --- */

enum vb_iw_made { VB_IW_MADE, VB_IW_NOTHING, VB_IW_FULL, VB_IW_NO_MEMORY };

/* The contents of an FPDU: its header, then payload of a message. */
struct vb_iw_part {
	struct vb_ddp ddp;
	const uint8_t *body; /* the RDMAP header, behind the DDP header */
	uint32_t body_len, payload, offset, of;
	uint8_t source; /* enum vb_iw_source */
	bool last;
};

enum vb_iw_made vb_iw_put(struct vb_iw_qp *q, const struct vb_iw_part *part);
/* The payload length of a full FPDU. */
uint32_t vb_iw_most_payload(const struct vb_iw_qp *q, bool tagged);
/* Drops all output except an FPDU that was sent in part. */
void vb_iw_drop_output(struct vb_iw_qp *q);

/* --- requester.c --- */

enum vb_iw_made vb_iw_make_rtr(struct vb_iw_qp *q);
enum vb_iw_made vb_iw_make_request(struct vb_iw_qp *q);
void vb_iw_request_out(struct vb_iw_qp *q, const struct vb_iw_fpdu *f);
void vb_iw_retire(struct vb_iw_qp *q);
/* The oldest unanswered read or atomic, or NULL. */
struct vb_work_sent *vb_iw_oldest_read(struct vb_iw_qp *q, uint32_t *index);
void vb_iw_read_done(struct vb_iw_qp *q);

/* --- answer.c: the peer's reads and atomics --- */

enum vb_iw_made vb_iw_make_answer(struct vb_iw_qp *q);
void vb_iw_answer_out(struct vb_iw_qp *q, const struct vb_iw_fpdu *f);
/* Sends a Terminate, because the source of an answer is not accessible any more. */
void vb_iw_refuse_answer(struct vb_iw_qp *q, const struct vb_iw_answer *a);
int vb_iw_answer_source(struct vb_iw_qp *q, const struct vb_iw_answer *a, uint32_t offset, uint32_t len,
                        struct iovec *iov);
void vb_iw_ask_read(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body);
void vb_iw_ask_atomic(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body);

/* --- segment.c: DDP segments --- */

/* Makes all checks that need only the header. Returns false if the segment is refused or the stream starved. */
bool vb_iw_segment_begin(struct vb_iw_qp *q, struct vb_iw_segment *s);
/* Lists the memory for the payload from `done` on. Returns the number of pieces, or -1 if the segment was refused. */
int vb_iw_segment_pieces(struct vb_iw_qp *q, const struct vb_iw_segment *s, uint32_t done, uint32_t len,
                         struct iovec *iov);
/* Copies payload from the stage. Returns false if refused. */
bool vb_iw_segment_copy(struct vb_iw_qp *q, const struct vb_iw_segment *s, uint32_t done, const uint8_t *bytes,
                        uint32_t len);
/* Processes a complete segment. body: the RDMAP header of a segment without payload. */
void vb_iw_segment_end(struct vb_iw_qp *q, const struct vb_iw_segment *s, const uint8_t *body);
enum vb_term vb_iw_denied(struct vb_iw_qp *q, enum vb_iw_denial why, bool tagged);

/* --- ending.c --- */

/* Handles a violation: counts it, and sends a Terminate with the segment's header (NULL: without) and, for a Read
 * Request, with the RDMAP header in body if the standard requires it. */
void vb_iw_refuse(struct vb_iw_qp *q, uint64_t *counter, enum vb_term term, const struct vb_iw_segment *s,
                  const uint8_t *body, enum vb_refusal why);
/* Handles a local error: completes request `bad` (or VB_IW_NOBODY) with status, the taken receive with `receive`. */
void vb_iw_fail(struct vb_iw_qp *q, enum vb_term term, uint32_t bad, enum vb_work_status status,
                enum vb_work_status receive, enum vb_work_event event);
void vb_iw_heard_terminate(struct vb_iw_qp *q, const uint8_t *bytes, uint32_t len);
/* Builds the FPDU with the Terminate. */
enum vb_iw_made vb_iw_make_terminate(struct vb_iw_qp *q);

#endif
