// work.c - the simulated programs: their requests, queues and memory, and the expected completions
// follows: RFC 5040, 5; RFC 5042
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define STAG(i) (0x5a000000u | (i) << 8 | 0x11u)

static struct sim_node *peer_of(struct sim_node *n)
{
	return &n->sim->node[!n->id];
}

/* --- posting --- */

static uint32_t some_length(struct sim *sim)
{
	switch (sim_below(sim, 8)) {
	case 0:
		return 0;
	case 1:
		return sim_below(sim, 64);
	case 2:
	case 3:
		return sim_below(sim, 2000);
	case 4:
	case 5:
		return sim_below(sim, 9000);
	case 6:
		return sim_below(sim, 40000);
	default:
		return sim_below(sim, 4) ? sim_below(sim, 70000) : sim_below(sim, SIM_LENGTH_MAX + 1);
	}
}

static void init_region(struct sim_node *n, struct sim_request *r, uint8_t access)
{
	r->remote.access = access;
	r->remote.valid = true;
	r->remote.base = (uint64_t)sim_below(n->sim, UINT32_MAX) << 20;
	if (!sim_below(n->sim, 8)) /* up to the very end */
		r->remote.base = UINT64_MAX - r->work.length + (r->work.length ? 1 : 0);
	r->work.rkey = STAG((uint32_t)(r - n->requests));
	r->work.remote_addr = r->remote.base;
	sim_buffer_init(n->sim, &r->remote.buffer, r->work.length);
}

static void post_receive(struct sim_node *n, uint32_t consumer, uint32_t length)
{
	struct sim_receive *r = &n->receives[n->r_posted];

	sim_buffer_init(n->sim, &r->buffer, length + (sim_below(n->sim, 2) ? sim_below(n->sim, 3000) : 0));
	n->consumer[n->r_posted++] = consumer;
	if (n->sim->mode != SIM_STARVED ||
	    (n->r_open + 1 == n->r_posted && n->r_open < n->r_most && sim_below(n->sim, 4)))
		n->r_open++;
}

static void init_atomic(struct sim_node *n, struct sim_request *r)
{
	uint64_t value = ((uint64_t)sim_below(n->sim, UINT32_MAX) << 32) | sim_below(n->sim, UINT32_MAX);

	r->work.length = 8;
	init_region(n, r, VB_RIGHT_ATOMIC);
	r->original = value;
	r->work.swap_add = (uint64_t)sim_below(n->sim, UINT32_MAX) << 31;
	r->work.compare = sim_below(n->sim, 2) ? value : 5;
}

static void choose_verb(struct sim_node *n, struct sim_request *r)
{
	struct sim *sim = n->sim;

	switch (sim_below(sim, 12)) {
	case 0:
	case 1:
	case 2:
		r->work.verb = VB_VERB_WRITE;
		init_region(n, r, VB_RIGHT_WRITE);
		if (!sim_below(sim, 3))
			r->work.flags |= VB_WORK_IMM;
		r->takes_receive = r->work.flags & VB_WORK_IMM;
		break;
	case 3:
	case 4:
	case 5:
		r->work.verb = VB_VERB_READ;
		init_region(n, r, VB_RIGHT_READ);
		sim_fill(&r->remote.buffer, r->seed);
		break;
	case 6:
		r->work.verb = sim_below(sim, 2) ? VB_VERB_CMP_SWAP : VB_VERB_FETCH_ADD;
		init_atomic(n, r);
		break;
	case 7:
		r->work.verb = VB_VERB_LOCAL_INV;
		break;
	default:
		r->work.verb = VB_VERB_SEND;
		r->takes_receive = true;
		if (!sim_below(sim, 5)) {
			uint32_t length = r->work.length;

			r->work.flags |= VB_WORK_INV;
			r->work.length = 16;
			init_region(n, r, VB_RIGHT_WRITE);
			r->work.length = length;
			r->work.imm = r->work.rkey;
		}
	}
}

void sim_post(struct sim_node *n)
{
	struct sim *sim = n->sim;
	struct sim_request *r = &n->requests[n->posted];
	bool reads;

	*r = (struct sim_request){
	        .work = {.cookie = n->posted, .length = some_length(sim), .imm = sim_below(sim, UINT32_MAX)},
	        .seed = sim_below(sim, 65536)};
	choose_verb(n, r);
	reads = r->work.verb >= VB_VERB_READ && r->work.verb <= VB_VERB_FETCH_ADD;
	if (!sim_below(sim, 4))
		r->work.flags |= VB_WORK_SOLICITED;
	if (!sim_below(sim, 6))
		r->work.flags |= VB_WORK_FENCE;
	sim_buffer_init(sim, &r->local, r->work.length);
	if (!reads)
		sim_fill(&r->local, r->seed);
	if (r->takes_receive)
		post_receive(peer_of(n), n->posted, r->work.verb == VB_VERB_SEND ? r->work.length : 0);
	n->posted++;
}

/* --- queues --- */

static bool next_send(void *own, struct vb_work *work)
{
	struct sim_node *n = own;

	if (n->taken == n->posted)
		return false;
	*work = n->requests[n->taken++].work;
	return true;
}

static void check_atomic(struct sim_node *n, const struct sim_request *r)
{
	uint64_t got;
	struct iovec iov[VB_IW_PIECES];
	uint8_t bytes[8], at = 0;
	int k = sim_pieces(&r->local, 0, 8, iov);

	for (int i = 0; i < k; i++) {
		memcpy(bytes + at, iov[i].iov_base, iov[i].iov_len);
		at = (uint8_t)(at + iov[i].iov_len);
	}
	memcpy(&got, bytes, 8);
	/* the value in the cell was changed in place: r->original is the result */
	uint64_t before = r->work.verb == VB_VERB_FETCH_ADD ? r->original - r->work.swap_add : got;

	SIM_MUST(n->sim, got == before);
	if (r->work.verb == VB_VERB_CMP_SWAP)
		SIM_MUST(n->sim, r->original == (got == r->work.compare ? r->work.swap_add : got));
}

static void complete_send(void *own, const struct vb_work *work, enum vb_work_status status)
{
	struct sim_node *n = own;
	struct sim_request *r = &n->requests[work->cookie];

	SIM_MUST(n->sim, work->cookie == n->completed && n->completed < n->taken);
	n->completed++;
	if (n->sim->verbose)
		fprintf(stderr, "  %d: request %u verb %d length %u: status %d\n", n->id, (unsigned)work->cookie,
		        work->verb, work->length, status);
	if (status != VB_WORK_SUCCESS) {
		if (!n->bad_seen)
			n->failure = status;
		n->bad_seen = true;
		return;
	}
	SIM_MUST(n->sim, !n->bad_seen);
	if (work->verb == VB_VERB_READ)
		SIM_MUST(n->sim, sim_filled(&r->local, work->length, r->seed));
	if (work->verb == VB_VERB_CMP_SWAP || work->verb == VB_VERB_FETCH_ADD)
		check_atomic(n, r);
}

static enum vb_local local(void *own, const struct vb_work *work)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, n->completed == work->cookie);
	return VB_LOCAL_DONE;
}

static bool take_receive(void *own, uint32_t *room)
{
	struct sim_node *n = own;

	if (n->r_taken == n->r_open)
		return false;
	*room = n->receives[n->r_taken++].buffer.length;
	return true;
}

static void check_receipt(struct sim_node *n, uint32_t i, const struct vb_receipt *receipt)
{
	const struct sim_request *r = &peer_of(n)->requests[n->consumer[i]];
	bool send = r->work.verb == VB_VERB_SEND;

	SIM_MUST(n->sim, receipt->length == r->work.length);
	SIM_MUST(n->sim, receipt->solicited == !!(r->work.flags & VB_WORK_SOLICITED));
	SIM_MUST(n->sim, receipt->flags == (r->work.flags & (VB_WORK_IMM | VB_WORK_INV)));
	SIM_MUST(n->sim, !receipt->flags || receipt->imm == r->work.imm);
	SIM_MUST(n->sim, receipt->write_imm == !send);
	SIM_MUST(n->sim, sim_filled(send ? &n->receives[i].buffer : &r->remote.buffer, r->work.length, r->seed));
	SIM_MUST(n->sim, !(r->work.flags & VB_WORK_INV) || !r->remote.valid);
}

static void complete_receive(void *own, const struct vb_receipt *receipt)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, n->r_completed < n->r_taken);
	if (receipt->status == VB_WORK_SUCCESS)
		check_receipt(n, n->r_completed, receipt);
	n->r_completed++;
}

static void failed(void *own, enum vb_work_event event)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, !n->failed && n->sim->mode != SIM_NORMAL);
	SIM_MUST(n->sim, n->completed == n->taken && n->r_completed == n->r_taken);
	n->failed = true;
	n->event = event;
}

/* --- memory --- */

static int source(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov)
{
	struct sim_node *n = own;
	struct sim_request *r = &n->requests[work->cookie];

	if (!r->sourced)
		SIM_MUST(n->sim, !(work->flags & VB_WORK_FENCE) || !n->qp.rq.rd);
	r->sourced = true;
	SIM_MUST(n->sim, n->completed <= work->cookie || n->failed);
	return sim_pieces(&r->local, offset, len, iov);
}

static int sink(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov)
{
	struct sim_node *n = own;

	return sim_pieces(&n->requests[work->cookie].local, offset, len, iov);
}

static void sink_name(void *own, const struct vb_work *work, uint32_t *stag, uint64_t *to)
{
	*stag = 0x77000000u | (uint32_t)work->cookie;
	*to = work->cookie << 36;
}

static int sink_receive(void *own, uint32_t offset, uint32_t len, struct iovec *iov)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, n->r_taken == n->r_completed + 1);
	return sim_pieces(&n->receives[n->r_taken - 1].buffer, offset, len, iov);
}

static struct sim_region *region_of(struct sim_node *n, uint32_t stag)
{
	struct sim_node *p = peer_of(n);
	uint32_t i = stag >> 8 & 0xffff;

	return i < p->posted && stag == STAG(i) && p->requests[i].remote.buffer.bytes ? &p->requests[i].remote : NULL;
}

static enum vb_iw_denial check(void *own, uint32_t stag, uint64_t to, uint64_t len, enum vb_right access)
{
	const struct sim_region *r = region_of(own, stag);

	if (!r || !r->valid)
		return VB_IW_INVALID_STAG;
	if (to - r->base > r->buffer.length || len > r->buffer.length - (to - r->base))
		return VB_IW_BOUNDS;
	return r->access & access ? VB_IW_GRANTED : VB_IW_ACCESS;
}

static int target(void *own, uint32_t stag, uint64_t to, uint32_t len, enum vb_right access, struct iovec *iov)
{
	const struct sim_region *r = region_of(own, stag);

	return check(own, stag, to, len, access) ? -1 : sim_pieces(&r->buffer, (uint32_t)(to - r->base), len, iov);
}

static enum vb_memory_result atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original)
{
	struct sim_node *n = own;
	struct sim_request *r;

	if (check(n, a->rkey, a->va, 8, VB_RIGHT_ATOMIC))
		return VB_MEMORY_DENIED;
	r = &peer_of(n)->requests[a->rkey >> 8 & 0xffff];
	*original = r->original;
	if (add)
		r->original += a->swap_add;
	else if (r->original == a->compare)
		r->original = a->swap_add;
	return VB_MEMORY_OK;
}

static bool invalidate(void *own, uint32_t stag)
{
	struct sim_region *r = region_of(own, stag);

	if (!r || !r->valid)
		return false;
	r->valid = false;
	return true;
}

static bool ends_at(const struct sim_region *r, const uint8_t *end)
{
	for (uint32_t i = r->buffer.n; i > 0; i--)
		if (r->buffer.piece[i - 1].length)
			return end == r->buffer.bytes + r->buffer.piece[i - 1].at + r->buffer.piece[i - 1].length;
	return false;
}

/* last: the last segment of a write that ends at the end of a region. */
static void note_last(struct sim_node *n, const struct iovec *iov, int count)
{
	struct sim_node *p = peer_of(n);
	const uint8_t *end = (const uint8_t *)iov[count - 1].iov_base + iov[count - 1].iov_len;

	for (uint32_t i = 0; i < p->posted; i++) {
		struct sim_region *r = &p->requests[i].remote;

		if (r->buffer.bytes && ends_at(r, end)) {
			SIM_MUST(n->sim, !r->last_stored);
			r->last_stored = true;
			return;
		}
	}
	sim_fail(n->sim, "the last byte of no write");
}

static bool copy_in(void *own, const struct iovec *iov, int n, const void *bytes, uint32_t len, bool last)
{
	const uint8_t *from = bytes;

	for (int i = 0; i < n; from += iov[i++].iov_len) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		len -= (uint32_t)iov[i].iov_len;
	}
	SIM_MUST(((struct sim_node *)own)->sim, !len);
	if (last)
		note_last(own, iov, n);
	return true;
}

static bool copy_out(void *own, const struct iovec *iov, int n, void *bytes, uint32_t len)
{
	uint8_t *to = bytes;

	for (int i = 0; i < n; to += iov[i++].iov_len) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		len -= (uint32_t)iov[i].iov_len;
	}
	SIM_MUST(((struct sim_node *)own)->sim, !len);
	return true;
}

const struct vb_iw_ops sim_ops = {
        .next_send = next_send,
        .complete_send = complete_send,
        .local = local,
        .take_receive = take_receive,
        .complete_receive = complete_receive,
        .atomic = atomic,
        .invalidate = invalidate,
        .failed = failed,
        .source = source,
        .sink = sink,
        .sink_name = sink_name,
        .sink_receive = sink_receive,
        .check = check,
        .target = target,
        .copy_in = copy_in,
        .copy_out = copy_out,
};

/* --- checks at the end --- */

static void check_request(struct sim *sim, const struct sim_request *r, bool done)
{
	SIM_MUST(sim, sim_guarded(&r->local) && sim_guarded(&r->remote.buffer));
	if (r->remote.frozen)
		SIM_MUST(sim, !memcmp(r->remote.frozen, r->remote.buffer.bytes, r->remote.buffer.total));
	if (r->work.verb != VB_VERB_READ && r->work.verb != VB_VERB_CMP_SWAP && r->work.verb != VB_VERB_FETCH_ADD)
		SIM_MUST(sim, sim_filled(&r->local, r->work.length, r->seed));
	if (r->work.verb == VB_VERB_READ)
		SIM_MUST(sim, sim_filled(&r->remote.buffer, r->work.length, r->seed));
	if (done && r->work.verb == VB_VERB_WRITE) {
		SIM_MUST(sim, sim_filled(&r->remote.buffer, r->work.length, r->seed));
		SIM_MUST(sim, r->remote.last_stored == !!r->work.length);
	}
}

void sim_check_memory(struct sim *sim, bool all_done)
{
	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];

		for (uint32_t i = 0; i < n->posted; i++)
			check_request(sim, &n->requests[i], all_done);
		for (uint32_t i = 0; i < n->r_posted; i++)
			SIM_MUST(sim, sim_guarded(&n->receives[i].buffer));
	}
}
