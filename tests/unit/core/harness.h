// harness.h - an adapter without node/ and engine/: what the tests of core/ stand on
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_CORE_HARNESS_H
#define VB_TEST_CORE_HARNESS_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../support/check.h"
#include "core/device.h"
#include "core/node.h"
#include "core/verbs.h"

#undef RUN /* each test begins with a new fake */
#define RUN(test)                         \
	do {                              \
		fake_reset();             \
		test();                   \
		printf("ok %s\n", #test); \
	} while (0)

/* Records the calls of core/ to the missing layers. */
struct fake {
	int nodes; /* vb_node_get minus vb_node_put */
	int kicks, settles, connects, resets, timers, progressed, responders, forgotten;
	atomic_int handovers;
	uint32_t quiesced_key, quiesced_qpn;
	bool locked_in_connect;       /* a call was made with a lock held */
	bool threads;                 /* other threads may hold locks that the caller must not */
	bool copies;                  /* other processes copy with every key */
	bool kick_completes;          /* vb_sq_kick sends everything, and it succeeds at once */
	int raw_error, flows_changed; /* what vb_raw_open returns; calls of vb_raw_flows_changed */
	void (*on_progress)(void);
	void (*on_quiesce)(void);
	void (*on_xrc_file)(void); /* other processes are asked for a domain */
};
extern struct fake fake;
extern struct vb_node fake_node;
extern struct vb_device fake_device; /* GID 0 is fe80::1, GID 1 is ::ffff:10.0.0.1, GID 2 a hole */

void fake_reset(void);

/* Another thread sleeps, or is about to. */
void wait_for_handover(void);

struct objects {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};
/* A context, a PD, a CQ of 63, and a QP of this type with 8 sends, 8 receives, 2 sges, 64 bytes inline. */
struct objects open_objects(enum ibv_qp_type type);
struct ibv_qp *make_qp(const struct objects *o, enum ibv_qp_type type, struct ibv_srq *srq);
void close_objects(struct objects *o);
/* Brings the QP through the states up to this one. */
void to_state(struct ibv_qp *qp, enum ibv_qp_state state);

#endif
