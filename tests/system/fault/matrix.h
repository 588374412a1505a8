// matrix.h - two connected queue pairs of one process, on any path
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_FAULT_MATRIX_H
#define VB_TEST_FAULT_MATRIX_H

#include "../../support/check.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

enum way { LOCAL, ROCE, IWARP };
enum { SLOTS = 16, SLOT_BYTES = 128, MESSAGE_BYTES = 64 };

/* End 0 sends, end 1 receives. */
struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq[2];
	struct ibv_mr *mr;
	struct ibv_qp *qp[2];
	struct ibv_ah *ah;                  /* UD */
	bool extended;                      /* CQs of ibv_create_cq_ex, with extended polling */
	struct rdma_event_channel *channel; /* iWARP */
	struct rdma_cm_id *id[2], *listener;
	unsigned char out[SLOTS][SLOT_BYTES], in[SLOTS][SLOT_BYTES];
};

struct done {
	int id;
	enum ibv_wc_status status;
};

void pair_open(struct pair *p, enum way way, enum ibv_qp_type type, bool extended);
void pair_close(struct pair *p);
struct ibv_context *pair_context(const struct pair *p);
enum ibv_qp_state pair_state(struct pair *p, int end);
/* Post message or receive number i. Return what the call returns. */
int pair_send(struct pair *p, int i);
int pair_receive(struct pair *p, int i);
bool pair_poll(struct pair *p, int end, struct done *d);
struct done pair_await(struct pair *p, int end);
/* Is what the receive has taken one of our messages, unchanged? */
bool pair_is_whole(struct pair *p, int receive);
/* Opens the device of this name. */
struct ibv_context *pair_device(const char *name);
/* Asks this process's own control socket. */
void pair_ask(const char *request, char *text, size_t size);
/* How often this process's rules have acted, as its control socket says. */
long pair_hits(void);

#endif
