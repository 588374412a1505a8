// fixture.h - one stream, its queues and its memory in the open; the other end is forged FPDU by FPDU
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_IWARP_FIXTURE_H
#define VB_TEST_IWARP_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#include "../../support/check.h"
#include "engine/iwarp/state.h"
#include "frame/mpa.h"

#define FX_VA 0x10000u /* bytes of the region */
#define FX_STAG 7u
#define FX_STRANGER 8u /* of another protection domain */
#define FX_READ_ONLY 9u
#define FX_REGION 16384u
#define FX_LOCAL 16384u
#define FX_SENDS 8u
#define FX_LIST 64u
#define FX_OUT (1u << 20)
#define FX_SINK_STAG 0x5151u
#define FX_SINK_TO(cookie) (0x700000u + (uint64_t)(cookie)*0x10000u)

struct fx {
	struct vb_iw_qp qp;
	struct vb_iw_config cfg;
	struct vb_work_sent sends[FX_SENDS];
	uint8_t *stage, *out;
	struct vb_work posted[FX_LIST];
	uint32_t posts, taken, locals, later;
	uint64_t no_access; /* a bit for each cookie whose memory is not accessible */
	struct {
		uint64_t cookie;
		enum vb_work_status status;
	} done[FX_LIST];
	uint32_t dones;
	uint8_t local[4][FX_LOCAL]; /* indexed by the low bits of the cookie */

	uint32_t receives, room, taken_receives; /* number posted; length of each */
	bool receive_fault, target_fault;
	uint8_t inbox[FX_LOCAL];
	struct vb_receipt receipt[FX_LIST];
	uint32_t receipts;

	uint8_t region[FX_REGION];
	bool invalid;
	uint32_t atomics, stores; /* stores: number of calls of copy_in */
	enum vb_work_event event[FX_LIST];
	uint32_t events;

	uint32_t sent_len;         /* of sent */
	uint64_t fed;              /* forged bytes of the stream */
	uint32_t msn[VB_QN_COUNT]; /* of the forged peer's queues */
	uint8_t sent[FX_OUT];      /* output */
};

/* Without CRC and markers, FPDUs of 1460 bytes, four reads in each direction, all access rights. */
void fx_config(struct vb_iw_config *cfg);
void fx_init(struct fx *fx, const struct vb_iw_config *cfg);
void fx_free(struct fx *fx);
struct vb_work *fx_post(struct fx *fx, uint8_t verb, uint32_t length);
/* Sends all output. */
void fx_output(struct fx *fx);

/* A valid header of the peer, the next one of its queue. */
struct vb_ddp fx_header(struct fx *fx, uint8_t opcode);
/* An FPDU for this stream, with its markers and CRC. */
uint32_t fx_forge(struct fx *fx, uint8_t *fpdu, const struct vb_ddp *h, const void *rest, uint32_t len);
/* Delivers it, in two parts if it is long. */
void fx_feed(struct fx *fx, const uint8_t *bytes, uint32_t len);
void fx_in(struct fx *fx, const struct vb_ddp *h, const void *rest, uint32_t len);

/* Checks that the last FPDU sent is this Terminate, and that the stream has ended. */
void fx_expect_terminate(struct fx *fx, enum vb_term term, struct vb_terminate *t);

#endif
