// verbs.h - Verbena's libraries, loaded by a child of the doctor as a program under `verbena run` gets them
// follows: dlopen(3), ibv_post_send(3), rdma_cm(7)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_DOCTOR_VERBS_H
#define VB_TOOLS_DOCTOR_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

/* The functions that are no inline functions of the headers. */
#define DOC_VERBS(X)                 \
	X(ibv_alloc_pd)              \
	X(ibv_create_cq)             \
	X(ibv_reg_mr)                \
	X(rdma_create_event_channel) \
	X(rdma_create_id)            \
	X(rdma_destroy_id)           \
	X(rdma_bind_addr)            \
	X(rdma_listen)               \
	X(rdma_get_src_port)         \
	X(rdma_resolve_addr)         \
	X(rdma_resolve_route)        \
	X(rdma_create_qp)            \
	X(rdma_destroy_qp)           \
	X(rdma_connect)              \
	X(rdma_accept)               \
	X(rdma_get_cm_event)         \
	X(rdma_ack_cm_event)

struct doc_verbs {
#define DOC_MEMBER(name) __typeof__(name) *name;
	DOC_VERBS(DOC_MEMBER)
#undef DOC_MEMBER
};

/* Loads Verbena's libraries into this process. False after a line on standard error. */
bool doc_verbs_load(struct doc_verbs *v);

/* Waits for the next event of the channel, and acknowledges it. Returns 0 with the event, its status, and its id;
 * ETIMEDOUT after ms; or another errno value. */
struct doc_event {
	enum rdma_cm_event_type type;
	int status;
	uint8_t private_data[56]; /* the first bytes; the rest is zeros */
	struct rdma_cm_id *id;
};
int doc_verbs_event(const struct doc_verbs *v, struct rdma_event_channel *ch, int ms, struct doc_event *e);

/* Makes a reliable queue pair for a bound id, with a completion queue of its own for both directions. 0 or an errno
 * value. */
int doc_verbs_queue_pair(const struct doc_verbs *v, struct rdma_cm_id *id, struct ibv_pd **pd, struct ibv_cq **cq);

#endif
