// machine.h - functions that the files of the RoCE engine share
// follows: IBA volume 1, 9.6 to 9.9
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_ROCE_MACHINE_H
#define VB_ENGINE_ROCE_MACHINE_H

#include <string.h>

#include "engine/roce/roce.h"
#include "frame/segment.h"

/* The opcodes of a queue pair: its service's, which XRC has instead of RC. */
static inline uint8_t vb_roce_service(const struct vb_roce_qp *qp)
{
	static const uint8_t services[] = {
	        [VB_ROCE_RC] = VB_SVC_RC, [VB_ROCE_UC] = VB_SVC_UC, [VB_ROCE_UD] = VB_SVC_UD};

	return qp->cfg.xrc ? VB_SVC_XRC : services[qp->cfg.type];
}

/* --- requester --- */

static inline struct vb_work_sent *vb_roce_send_at(struct vb_roce_qp *qp, uint32_t i)
{
	return &qp->sends[i & qp->mask];
}

static inline bool vb_roce_is_atomic(const struct vb_work_sent *s)
{
	return s->work.verb == VB_VERB_CMP_SWAP || s->work.verb == VB_VERB_FETCH_ADD;
}

/* Is the response that of a read of 0 bytes (IBA annexes A19, A20)? */
static inline bool vb_roce_is_placed(const struct vb_work_sent *s)
{
	return s->work.verb == VB_VERB_FLUSH || s->work.verb == VB_VERB_ATOMIC_WRITE;
}

/* Does the request need a response of its own, not just an acknowledgement? */
static inline bool vb_roce_is_answered(const struct vb_work_sent *s)
{
	return s->work.verb == VB_VERB_READ || vb_roce_is_atomic(s) || vb_roce_is_placed(s);
}

/* Is it a request of one packet with one response, whatever its length? */
static inline bool vb_roce_is_single(const struct vb_work_sent *s)
{
	return vb_roce_is_atomic(s) || vb_roce_is_placed(s);
}

static inline bool vb_roce_takes_receive(const struct vb_work_sent *s)
{
	return s->work.verb == VB_VERB_SEND || (s->work.verb == VB_VERB_WRITE && s->work.flags & VB_WORK_IMM);
}

/* The end of the READ request to which this packet of the response belongs. */
static inline uint64_t vb_roce_chunk_end(const struct vb_work_sent *s, uint64_t seq)
{
	uint64_t end = s->seq + ((seq - s->seq) / s->chunk + 1) * s->chunk;

	return end < s->seq + s->packets ? end : s->seq + s->packets;
}

static inline struct vb_psn vb_roce_send_psn(const struct vb_roce_qp *qp, uint64_t seq)
{
	return vb_psn(qp->cfg.sq_psn.v + (uint32_t)seq);
}

/* requester.c */
bool vb_roce_requester_middle(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);
uint32_t vb_roce_requester_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart);
bool vb_roce_requester_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);

/* complete.c: completes finished requests in order, after una has moved or sends have failed. */
void vb_roce_requester_retire(struct vb_roce_qp *qp);
/* Fails the oldest request, flushes the rest, and takes the QP to error. */
void vb_roce_requester_fail(struct vb_roce_qp *qp, enum vb_work_status status);
void vb_roce_requester_flush(struct vb_roce_qp *qp);

/* answer.c: acknowledgements and responses */
void vb_roce_requester_input(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload, uint64_t now);
/* Processes a full middle packet of a response. Returns false if it is not the next one, or needs the full checks. */
bool vb_roce_requester_input_middle(struct vb_roce_qp *qp, struct vb_psn psn, const uint8_t *payload, uint64_t now);

/* retry.c */
void vb_roce_requester_arm(struct vb_roce_qp *qp, uint64_t now);
/* Restarts timers and retries after an answer. */
void vb_roce_requester_progressed(struct vb_roce_qp *qp, uint64_t now);
/* Goes back to the oldest unanswered packet. Returns false if that was done for the same loss less than a round trip
 * ago. */
bool vb_roce_requester_go_back(struct vb_roce_qp *qp, bool refused, uint64_t now);
void vb_roce_requester_wait_rnr(struct vb_roce_qp *qp, uint8_t timer, uint64_t now);
void vb_roce_requester_timeout(struct vb_roce_qp *qp, uint64_t now);

/* mend.c: repeats una, which is missing at the peer. Returns false if it has already been repeated. */
bool vb_mend(struct vb_roce_qp *qp, uint64_t now);
/* Repeats una, because it was not answered in time. */
void vb_roce_mend_probe(struct vb_roce_qp *qp, uint64_t now);
/* Called when una has moved. */
void vb_roce_mend_progressed(struct vb_roce_qp *qp, uint64_t now);
/* Requests the response to una again, because later ones have arrived. Returns false if that was already done. */
bool vb_roce_mend_response(struct vb_roce_qp *qp, uint64_t now);
void vb_roce_mend_stop(struct vb_roce_qp *qp);

/* Stops timing packets that are repeated, because an answer may belong to either copy. If no round trip was measured
 * yet, the answer still gives an upper bound. */
static inline void vb_roce_untime(struct vb_roce_requester *rq)
{
	if (rq->window.srtt)
		rq->timed_n = 0;
	for (unsigned i = 0; i < VB_ROCE_TIMED; i++)
		rq->timed[i].guess = true;
}

/* --- responder --- */

/* responder.c: RC and UC */
void vb_roce_responder_input(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload, uint16_t port,
                             uint64_t now);
/* Processes an RC request with a reserved opcode. */
void vb_roce_responder_input_unknown(struct vb_roce_qp *qp, struct vb_psn psn);
/* Processes a full middle packet of a send or write. Returns false if it is not the next one, or needs the full
 * checks. */
bool vb_roce_responder_input_middle(struct vb_roce_qp *qp, enum vb_op op, struct vb_psn psn, bool ack_req,
                                    const uint8_t *payload, uint16_t port, uint64_t now);

/* ud.c */
void vb_roce_datagram_input(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload,
                            const struct vb_roce_from *from);

/* uc.c: is the packet from the peer, and part of a message that is whole so far? */
bool vb_roce_uc_in_sequence(struct vb_roce_qp *qp, const struct vb_packet *p, uint16_t port);

/* ahead.c: requests that arrive ahead of a missing one */
void vb_roce_ahead_keep(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload, uint64_t now);
/* Is the packet with the expected PSN kept? */
bool vb_roce_ahead_waits(const struct vb_roce_qp *qp);
/* Does this duplicate of an executed packet vouch for the kept packet with the expected PSN? */
bool vb_roce_ahead_vouches(const struct vb_roce_qp *qp, const struct vb_bth *bth, uint64_t now);
/* Returns the packet with the expected PSN, if it is kept. It is valid until the next vb_roce_ahead_keep. A disputed packet
 * is requested again. */
struct vb_roce_kept *vb_roce_ahead_take(struct vb_roce_qp *qp);
/* Drops all kept packets. */
void vb_roce_ahead_drop(struct vb_roce_qp *qp);
/* If no packet was added for a while: drops the kept ones, and frees the memory. */
void vb_roce_ahead_timeout(struct vb_roce_qp *qp, uint64_t now);
/* Drops kept packets with these PSNs, which are not ahead any more. */
void vb_roce_ahead_pass(struct vb_roce_qp *qp, struct vb_psn from, uint32_t count);

/* replay.c: stored reads and atomics */
bool vb_roce_resource_room(struct vb_roce_qp *qp);
bool vb_roce_resource_add(struct vb_roce_qp *qp, const struct vb_roce_resource *r);
struct vb_psn vb_roce_resource_before(struct vb_roce_qp *qp, struct vb_psn psn);
void vb_roce_resource_replay(struct vb_roce_qp *qp, const struct vb_packet *p);
struct vb_roce_resource *vb_roce_resource_unanswered(struct vb_roce_qp *qp);
void vb_roce_resource_sent(struct vb_roce_qp *qp, struct vb_roce_resource *r);

/* passed.c: passes on a request whose SRQ is elsewhere. Returns false if it cannot do so now. */
bool vb_roce_pass_on(struct vb_roce_qp *qp, const struct vb_packet *p, const uint8_t *payload);

/* reply.c */
void vb_roce_owe_ack(struct vb_roce_qp *qp, uint64_t now);
void vb_roce_owe_rnr(struct vb_roce_qp *qp);
void vb_roce_owe_nak(struct vb_roce_qp *qp, enum vb_nak nak, struct vb_psn psn);
bool vb_roce_reply_middle(struct vb_roce_qp *qp, struct vb_roce_out *out);
uint32_t vb_roce_reply_more(struct vb_roce_qp *qp, struct vb_roce_out *out, uint32_t n, uint32_t apart);
bool vb_roce_reply_output(struct vb_roce_qp *qp, struct vb_roce_out *out, uint64_t now);
/* Refuses a request: sends a NAK and takes the QP to error. */
void vb_roce_responder_refuse(struct vb_roce_qp *qp, enum vb_refusal why, struct vb_psn psn);

/* --- roce.c --- */

/* Completes the taken receive with an error. */
void vb_roce_end_receive(struct vb_roce_qp *qp, enum vb_work_status status);
/* Takes the whole QP to error. */
void vb_roce_kill(struct vb_roce_qp *qp, enum vb_work_event event);
/* The address in out of the payload of a packet with this opcode. Called before vb_roce_seal. */
uint8_t *vb_roce_payload(const struct vb_roce_out *out, uint8_t opcode);
/* Writes header and pad of a packet whose payload is already in out. */
void vb_roce_seal(struct vb_roce_qp *qp, struct vb_roce_out *out, struct vb_packet *p);
/* Allows n middle packets with this opcode to follow the packet in out. */
void vb_roce_run(struct vb_roce_out *out, uint32_t n, uint8_t opcode, struct vb_roce_resource *answered);
/* Writes the header of one of these middle packets. */
static inline void vb_roce_middle_bth(struct vb_roce_out *out, uint8_t *packet, struct vb_psn psn, bool ask_for_ack)
{
	struct vb_writer w = vb_writer(out->run.bth + 8, 4);

	vb_put32(&w, (uint32_t)ask_for_ack << 31 | psn.v);
	memcpy(packet, out->run.bth, VB_BTH_LEN);
}

/* Completes the next middle packet in out, whose payload is already there. */
void vb_roce_seal_middle(struct vb_roce_qp *qp, struct vb_roce_out *out, struct vb_psn psn, bool ask);

#endif
