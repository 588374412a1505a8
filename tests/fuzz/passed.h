// passed.h - XRC between processes beside the hostile peer of fuzz_ring.c: its targets, and its answers to ours
// see: src/path/local/relay.c, src/path/local/guest.c
// SPDX-License-Identifier: MIT
#ifndef VB_FUZZ_PASSED_H
#define VB_FUZZ_PASSED_H

#include "engine/local/relay.h"

#define PASSED(what) what

/* The file of the XRC domain, which gives it a name among processes. */
int passed_file(void);
/* No process has asked for anything yet. */
void passed_begin(struct vb_node *node);
/* Makes something more probable of what a record may be, as k says: for a guest, for an SRQ of the peer, a question for a
 * guest, an answer to our question, data for our READ. */
void passed_record(uint32_t k, struct vb_qp *target, uint32_t srqn, struct vb_rec *r, struct vb_rec_ext *x);
/* The progress thread works, or the peer says in its segment what its guest has done. No lock held. */
void passed_act(uint32_t k, struct vb_qp *target, struct vb_peer *peer);

#endif
