// relay.h - XRC between processes: a target passes requests on to the process of the SRQ that they name
// follows: IBA volume 1, annex A14 (XRC); docs/roce.md, "Extended reliable connections"
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_LOCAL_RELAY_H
#define VB_ENGINE_LOCAL_RELAY_H

#include "core/xrc.h"
#include "engine/local/peer.h"
#include "engine/refusal.h"

/*
 * Each packet or record of a request becomes one record in the ring to the process of the SRQ. A queue pair there, the
 * guest, executes it as any target does. Its PSN counts these records, and so does what it acknowledges.
 */
#define VB_RELAY_RECORDS 256u     /* the most that are not executed yet */
#define VB_RELAY_READ (64u << 10) /* bytes of a READ that are fetched at a time */

struct vb_relayed {
	unsigned type, flags; /* VB_REC_*, VB_RECF_* */
	uint32_t srqn, imm, length;
	struct vb_rec_ext ext;
	const void *payload;
	/* the target's: its PSN before the request, its count of messages (RoCE) or of requests (same host) before it */
	uint32_t psn, slot; /* slot: the requester's, of the result of an atomic */
	uint64_t count;
	bool alone; /* nothing is passed on behind it before it is executed */
};

/* Passes it on. False: not now; it will be asked for again. Under progress. */
bool vb_relay_put(struct vb_qp *qp, const struct vb_relayed *what);
/* The oldest request that is not executed yet. False: there is none. Under progress. */
bool vb_relay_oldest(const struct vb_qp *qp, uint32_t *psn, uint64_t *count);

enum vb_relay_result { VB_RELAY_DATA, VB_RELAY_WAIT, VB_RELAY_GONE };
/* Copies data for the answer to a READ that names an SRQ of another process. request: tells it from
 * other READs. total: bytes of the READ from addr on. WAIT: they are not here yet, and the target is asked for its answer
 * again when they are. to may be NULL. Under progress. */
enum vb_relay_result vb_relay_read(struct vb_qp *qp, uint64_t request, uint32_t srqn, uint32_t key, uint64_t addr,
                                   uint32_t total, void *to, uint32_t length);
/* Data for such a READ. Under progress. */
void vb_relay_data(struct vb_qp *qp, struct vb_peer *peer, const struct vb_rec *rec, const struct vb_rec_ext *ext,
                   const uint8_t *payload);

/* Looks after a target that waits for other processes. Under progress. Returns the amount of work. */
unsigned vb_relay_visit(struct vb_qp *qp);
/* Does the target refer to this peer? Under progress + sq_lock. */
bool vb_relay_refers(const struct vb_qp *qp, const struct vb_peer *peer);

/* Records about guests. Under progress. */
void vb_relay_asked(struct vb_peer *peer, bool leaves, const struct vb_rec *rec, const struct vb_rec_ext *ext);
void vb_relay_joined(struct vb_peer *peer, const struct vb_rec *rec);
/* Makes and ends the guests that were asked for. Progress thread, no lock held. path/local/guest.c */
void vb_guests_work(struct vb_node *node);

/* What the same-host responder does for a target that passes requests on. Under progress. responder.c */
void vb_local_ask_again(struct vb_qp *qp);
void vb_local_relayed_executed(struct vb_qp *qp);
/* The request with this PSN, before which `taken` requests were taken, found no receive. */
void vb_local_relayed_rnr(struct vb_qp *qp, uint32_t psn, uint64_t taken);
void vb_local_relayed_refused(struct vb_qp *qp, enum vb_refusal why);

#endif
