// request.h - the wrong request of a case, and the memory of both ends
// follows: ibv_post_send(3), ibv_reg_mr(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_REQUEST_H
#define VB_TEST_REQUEST_H

#include "ends.h"

/* What memory holds at first: the responder's, what is sent, and where answers are stored. */
enum { UNTOUCHED_BYTE = 0xa5, SENT_BYTE = 0x5a, SINK_BYTE = 0x33 };

struct memory {
	struct area data; /* the requester's; the responder's, for RDMA */
	struct area receives, spare;
	uint32_t lkey, spare_key;
};
void memory_map(struct memory *m);
/* Fills and registers the requester's memory. */
void memory_of_requester(struct memory *m, const struct device *d, const struct plan *p);
/* The same for the responder, and tells the other end in *hello. */
void memory_of_responder(struct memory *m, const struct device *d, const struct plan *p, struct hello *hello);
void memory_forget(struct memory *m);
/* Posts the receives of the case to the responder's queue pair. */
void request_post_receives(struct end *e, struct memory *m);
/* Deregisters what the case wants to be gone when the request arrives. */
void memory_take_away(struct memory *m, const struct plan *p);
/* Posts the request. Returns ibv_post_send's result, or -1 if the memory for it cannot be registered. *named: *bad_wr is
 * the request. */
int request_post(struct end *e, const struct memory *m, const struct hello *it, bool *named);

/* How much of the memory that the request should have changed has changed. */
enum change { CHANGE_NONE, CHANGE_PART, CHANGE_WHOLE, CHANGE_OUTSIDE };
enum change memory_changed(const struct memory *m, const struct plan *p);  /* the responder's */
enum change memory_answered(const struct memory *m, const struct plan *p); /* the requester's */

#endif
