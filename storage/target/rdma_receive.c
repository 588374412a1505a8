// rdma_receive.c - incoming capsules, and completions of output. Every byte of a capsule is untrusted
// follows: NVMe over Fabrics 1.1, 7.3.2 (capsules), 7.3.5 (data transfers); ibv_poll_cq(3)
// SPDX-License-Identifier: MIT
#include <string.h>
#include <time.h>

#include "target/rdma_conn.h"

#define BUDGET 64 /* completions of one connection before others are served */
#define BATCH 16
#define NS_PER_US 1000u
#define HOPE_US 200u    /* time of polling before the queue is armed */
#define MOVING_US 1000u /* … while data is sent: the polling thread may have to move it */
#define VAIN_MAX 6u     /* polls at least once in 64 times */

bool nt_rconn_receive(struct nt_rconn *c, uint16_t index)
{
	struct ibv_sge s = {
	        .addr = (uintptr_t)c->memory + (size_t)index * c->capsule, .length = c->capsule, .lkey = c->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = nt_rdma_wr(NT_RDMA_CAPSULE, index), .sg_list = &s, .num_sge = 1}, *bad;

	return !ibv_post_recv(c->id->qp, &wr, &bad);
}

static void receive_again(struct nt_rconn *c, uint16_t index)
{
	if (!c->failed && !nt_rconn_receive(c, index))
		nt_rconn_fail(c);
}

static const uint8_t *capsule_at(const struct nt_rconn *c, uint16_t index)
{
	return c->memory + (size_t)index * c->capsule;
}

/* ---- commands ---- */

static void take_capsule(struct nt_rconn *c, uint16_t index, uint32_t length)
{
	struct nt_request *r;

	c->current = index;
	c->fetched = false;
	if (length < NV_SQE_LEN || !nt_command(&c->q, capsule_at(c, index), length - NV_SQE_LEN, &r)) {
		nt_rconn_fail(c);
		return;
	}
	if (c->fetched)
		return;
	if (nt_capsule_waits(r))
		nt_ritem(r)->capsule = index + 1;
	else
		receive_again(c, index);
}

/*
 * True if the command must wait. A host that has received a response may use its slot and command id again, and the new
 * command may arrive before the completion of the response. Then the command waits for that.
 */
static bool too_early(const struct nt_rconn *c, uint16_t index, uint32_t length)
{
	const struct nt_queue *q = &c->q;
	uint16_t cid;

	if (!c->answering || length < NV_SQE_LEN)
		return false;
	cid = nv_get16(capsule_at(c, index) + 2);
	if (!q->connected || q->first.state != NT_FREE)
		return q->first.state != NT_FREE;
	return !q->unused || (q->cids && q->cids[cid / 64] >> cid % 64 & 1);
}

static void take_held(struct nt_rconn *c)
{
	while (c->held_count && !c->failed && !c->ending) {
		struct nt_rdma_held h = c->held[c->held_first];

		if (too_early(c, h.index, h.length))
			return;
		c->held_first = (c->held_first + 1) % c->depth;
		c->held_count--;
		take_capsule(c, h.index, h.length);
	}
}

static void capsule_arrived(struct nt_rconn *c, uint16_t index, uint32_t length)
{
	if (c->ending)
		return;
	if (!c->held_count && !too_early(c, index, length)) {
		take_capsule(c, index, length);
		return;
	}
	c->held[(c->held_first + c->held_count) % c->depth] = (struct nt_rdma_held){index, length};
	c->held_count++;
}

void nt_rconn_fetch(struct nt_request *r)
{
	struct nt_rconn *c = nt_rconn_of(r->queue);
	struct nt_rdma_item *i = nt_ritem(r);

	if (!r->in_capsule) {
		nt_rconn_queue(r);
		return;
	}
	uint16_t index = i->capsule ? i->capsule - 1 : c->current;

	memcpy(r->data, capsule_at(c, index) + NV_SQE_LEN, r->length);
	c->rdma->counts.in_capsule += r->length;
	if (!i->capsule)
		c->fetched = true;
	i->capsule = 0;
	receive_again(c, index);
	nt_fetched(r, 0);
}

/* ---- completions ---- */

static void work_finished(struct nt_rconn *c, enum nt_rdma_work work, uint32_t slot)
{
	struct nt_request *r = nt_slot(&c->q, slot);

	if (!r || r->state != (work == NT_RDMA_FETCH ? NT_FETCH : NT_RESPOND))
		return;
	nt_rconn_finished(c, r);
	if (work == NT_RDMA_RESPONSE) {
		c->answering--;
		nt_release(r);
		take_held(c);
		return;
	}
	nt_rconn_end_sink(r);
	c->rdma->counts.fetched += r->length;
	nt_fetched(r, 0);
}

/* A failed work request has ended the queue pair: a wrong key, an invalid address, a host that has gone, or a capsule
 * that is too large. */
static void handle_completion(struct nt_rconn *c, const struct ibv_wc *wc)
{
	enum nt_rdma_work work = wc->wr_id >> 32;
	uint32_t which = (uint32_t)wc->wr_id;

	if (wc->status == IBV_WC_LOC_PROT_ERR && work == NT_RDMA_DATA && nt_slot(&c->q, which))
		nt_map_lost(nt_slot(&c->q, which));
	if (wc->status != IBV_WC_SUCCESS)
		nt_rconn_fail(c);
	else if (work != NT_RDMA_CAPSULE)
		work_finished(c, work, which);
	else if (wc->opcode != IBV_WC_RECV || wc->wc_flags & IBV_WC_WITH_IMM) /* not a capsule */
		nt_rconn_fail(c);
	else
		capsule_arrived(c, (uint16_t)which, wc->byte_len);
}

static int poll_some(struct nt_rconn *c)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(c->cq, BATCH, wc);

	if (n < 0)
		nt_rconn_fail(c);
	for (int i = 0; i < n && !c->failed; i++)
		handle_completion(c, &wc[i]);
	return n;
}

static uint64_t poll_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Decides whether to keep polling. The next command of a busy host arrives soon, and a wake-up takes longer. The more
 * often polling is useless, the more rarely it is tried. */
static bool keeps_polling(struct nt_rconn *c)
{
	uint64_t now = poll_clock_ns();

	if (c->hoped && now >= c->hoped) {
		c->hoped = 0;
		c->vain += c->vain < VAIN_MAX;
		c->skip = (1u << c->vain) - 1;
		return false;
	}
	if (!c->hoped && c->skip) {
		c->skip--;
		return false;
	}
	if (!c->hoped)
		c->hoped = now + (c->posted ? MOVING_US : HOPE_US) * NS_PER_US;
	return true;
}

static bool came_to_something(struct nt_rconn *c)
{
	if (c->hoped)
		c->vain = 0;
	c->hoped = 0;
	return true;
}

bool nt_rconn_poll(struct nt_rconn *c)
{
	int total = 0, n;

	do {
		n = poll_some(c);
		total += n;
	} while (n == BATCH && total < BUDGET && !c->failed);
	if (c->failed || total > 0)
		return came_to_something(c);
	if (c->armed)
		return false;
	if (keeps_polling(c))
		return true;
	if (ibv_req_notify_cq(c->cq, 0)) {
		nt_rconn_fail(c);
		return true;
	}
	c->armed = true;
	return poll_some(c) != 0; /* completions from before the arming are not signaled */
}
