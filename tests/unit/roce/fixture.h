// fixture.h - one queue pair, its queues and its memory in the open; the other end is forged packet by packet
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WIRE_FIXTURE_H
#define VB_TEST_WIRE_FIXTURE_H

#include "../../support/check.h"
#include "engine/roce/roce.h"

#define FX_MTU 256u
#define FX_VA 0x10000u /* bytes of the region */
#define FX_KEY 7u
#define FX_REGION 4096u
#define FX_SENDS 16u
#define FX_LIST 64u
#define FX_SRQ 5u /* XRC: the SRQs are this one and the next */

struct fx {
	struct vb_roce_qp qp;
	struct vb_roce_config cfg;
	struct vb_work_sent sends[FX_SENDS];
	struct vb_work posted[FX_LIST];
	uint32_t posts, taken;
	uint64_t no_access; /* a bit for each cookie whose local memory is not accessible */
	struct {
		uint64_t cookie;
		enum vb_work_status status;
	} done[FX_LIST];
	uint32_t dones;
	uint8_t local[FX_LIST][4096]; /* indexed by cookie */

	uint32_t receives, room; /* number posted; length of each */
	bool count_receives, receive_fault;
	uint8_t inbox[8192];
	struct vb_receipt receipt[FX_LIST];
	uint32_t receipts;

	uint8_t region[FX_REGION];
	uint32_t key; /* 0: invalidated */
	uint32_t atomics, locals, later;
	uint32_t words, flushes;                /* atomic writes and flushes that were executed */
	struct vb_reth flushed;                 /* the range of the last flush */
	uint32_t selected, selected_for_answer; /* the last SRQ that a request named; that an answer was for */
	uint16_t port;                          /* source port of forged packets */
	enum vb_work_event event[FX_LIST];
	uint32_t events;
};

/* RC, both PSNs 100, timer 4.096 us * 2^8, retries 1, started. */
void fx_config(struct vb_roce_config *cfg);
void fx_init(struct fx *fx);
void fx_init_with(struct fx *fx, const struct vb_roce_config *cfg);
/* Not started. */
void fx_init_rtr(struct fx *fx, const struct vb_roce_config *cfg);

/* Posts a request and returns it for changes before the next call. Its memory contains its cookie. */
struct vb_work *fx_post(struct fx *fx, enum vb_verb verb, uint32_t len);
/* The next packet sent, with its payload; false: none. */
bool fx_out(struct fx *fx, struct vb_packet *p, uint8_t *payload, uint64_t now);
/* Sends all output unchecked. */
unsigned fx_drain(struct fx *fx, uint64_t now);

/* A valid packet of the peer. */
struct vb_packet fx_packet(const struct fx *fx, uint8_t opcode, uint32_t psn, uint32_t len);
void fx_in(struct fx *fx, const struct vb_packet *p, uint64_t now);
void fx_ack(struct fx *fx, uint32_t psn, uint8_t credits, uint64_t now);
void fx_nak(struct fx *fx, uint32_t psn, uint8_t kind, uint8_t value, uint64_t now);

#endif
