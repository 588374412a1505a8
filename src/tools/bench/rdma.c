// rdma.c - one end of a reliable connection, on public verbs
// follows: ibv_post_send(3), rdma_cm(7)
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/doctor/doctor.h"

#define RECEIVES (2 * BENCH_DEPTH)
#define SMALL_AT 4096u
#define LARGE_AT 8192u
#define EVENT_MS 5000

static bool bench_fail(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	return false;
}

/* The system's libraries, for hardware. */
static bool load_system(struct doc_verbs *v)
{
	void *ibverbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
	void *rdmacm = ibverbs ? dlopen("librdmacm.so.1", RTLD_NOW | RTLD_GLOBAL) : NULL;

	if (!rdmacm) {
		fprintf(stderr, "%s\n", dlerror());
		return false;
	}
#define BENCH_LOAD(name)                                   \
	v->name = dlsym(rdmacm, #name);                    \
	if (!v->name) {                                    \
		fprintf(stderr, "%s is missing\n", #name); \
		return false;                              \
	}
	DOC_VERBS(BENCH_LOAD)
#undef BENCH_LOAD
	return true;
}

bool bench_open_end(struct bench_end *e, uint32_t size, bool hardware)
{
	e->size = size;
	e->buf = aligned_alloc(4096, (LARGE_AT + (size_t)size + 4095) / 4096 * 4096);
	if (!e->buf)
		return bench_fail("memory", ENOMEM);
	memset(e->buf, BENCH_FILL, LARGE_AT + (size_t)size);
	if (!(hardware ? load_system(&e->v) : doc_verbs_load(&e->v)))
		return false;
	e->ch = e->v.rdma_create_event_channel();
	if (!e->ch || e->v.rdma_create_id(e->ch, &e->id, NULL, RDMA_PS_TCP))
		return bench_fail("rdma_create_id", errno);
	return true;
}

bool bench_await(struct bench_end *e, enum rdma_cm_event_type want, struct doc_event *event)
{
	struct doc_event own;
	int err = doc_verbs_event(&e->v, e->ch, EVENT_MS, event ? event : (event = &own));

	if (err)
		return bench_fail("the connection is not made", err);
	if (event->type == want)
		return true;
	fprintf(stderr, "the connection is not made: event %d of connection management, status %d\n", (int)event->type,
	        event->status);
	return false;
}

bool bench_make_queues(struct bench_end *e)
{
	struct ibv_qp_init_attr attr = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 2 * BENCH_DEPTH, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 2}};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	e->pd = e->v.ibv_alloc_pd(e->id->verbs);
	e->cq = e->pd ? e->v.ibv_create_cq(e->id->verbs, 4 * BENCH_DEPTH, NULL, NULL, 0) : NULL;
	if (!e->cq)
		return bench_fail("completion queue", errno);
	attr.send_cq = attr.recv_cq = e->cq;
	if (e->v.rdma_create_qp(e->id, e->pd, &attr))
		return bench_fail("queue pair", errno);
	e->mr = (e->v.ibv_reg_mr)(e->pd, e->buf, LARGE_AT + (size_t)e->size, access);
	if (!e->mr)
		return bench_fail("ibv_reg_mr", errno);
	for (unsigned i = 0; i < RECEIVES; i++)
		if (!bench_post_receive(e, i))
			return false;
	return true;
}

/* The operation byte has a place of its own. The rest of all messages goes to one place, which nobody reads. */
bool bench_post_receive(struct bench_end *e, unsigned slot)
{
	struct ibv_sge sge[2] = {{(uintptr_t)e->buf + slot, 1, e->mr->lkey},
	                         {(uintptr_t)e->buf + LARGE_AT, e->size, e->mr->lkey}};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = sge, .num_sge = 2}, *bad;
	int err = ibv_post_recv(e->id->qp, &wr, &bad);

	return !err || bench_fail("ibv_post_recv", err);
}

uint8_t bench_op_of(const struct bench_end *e, unsigned slot)
{
	return e->buf[slot];
}

uint64_t bench_large_address(const struct bench_end *e)
{
	return (uintptr_t)e->buf + LARGE_AT;
}

static bool bench_post(struct bench_end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(e->id->qp, wr, &bad);

	e->sending += !err;
	e->sent += !err && wr->opcode == IBV_WR_SEND;
	return !err || bench_fail("ibv_post_send", err);
}

bool bench_has_credit(const struct bench_end *e)
{
	return e->sent < e->credits + RECEIVES - BENCH_CREDIT_EACH;
}

/* A small message for each operation lies at its own place, so that no message changes while it is sent. */
bool bench_post_small(struct bench_end *e, enum bench_op op)
{
	uint8_t *at = e->buf + SMALL_AT + op * 1024;
	struct ibv_sge sge = {(uintptr_t)at, BENCH_SMALL < e->size ? BENCH_SMALL : e->size, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};

	*at = (uint8_t)op;
	return bench_post(e, &wr);
}

bool bench_post_large(struct bench_end *e, enum bench_way way, uint32_t len, uint64_t addr, uint32_t rkey)
{
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct ibv_sge sge = {bench_large_address(e), len, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = opcodes[way],
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .wr.rdma = {.remote_addr = addr, .rkey = rkey}};

	return bench_post(e, &wr);
}

bool bench_poll(struct bench_end *e, int *slot)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(e->cq, 1, &wc);

	*slot = -1;
	if (n < 0)
		return bench_fail("ibv_poll_cq", errno);
	if (n && wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a request failed with completion status %d\n", (int)wc.status);
		return false;
	}
	if (n && (wc.opcode & IBV_WC_RECV)) {
		*slot = (int)wc.wr_id;
		if (e->buf[*slot] == BENCH_CREDIT)
			e->credits += BENCH_CREDIT_EACH;
		else
			e->arrived++;
	} else if (n) {
		e->sending--;
		e->done++;
	}
	return true;
}
