// node.c - the memory and queues of one end, and a model of their expected content
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define TOTAL (SIM_SOURCE + SIM_CONST + SIM_TARGET + 2 * SIM_SLOT * SIM_SLOTS + (SIM_REGIONS + 1) * SIM_GUARD)

static uint8_t arena[4][TOTAL], start[TOTAL];

/* The content of memory at the start of each run. */
static void fill(void)
{
	struct net net = {0};

	for (uint32_t i = 0; !start[TOTAL - 8] && i < TOTAL; i += 8) {
		uint64_t x = net_random(&net) | 1ull << 56;

		memcpy(start + i, &x, 8);
	}
}

uint32_t sim_key(int node, enum sim_region region)
{
	return 0x1000u + (uint32_t)node * 256 + region;
}

#define ONCE_SHIFT 16

uint32_t sim_key_once(const struct sim_node *n, enum sim_region region)
{
	return sim_key(!n->id, region) | (n->posted + 1) << ONCE_SHIFT;
}

/* Has the peer's request for which the key was made succeeded? */
static bool has_ended(const struct sim_node *n, uint32_t rkey)
{
	const struct sim_node *peer = &n->sim->node[!n->id];
	uint32_t nth = rkey >> ONCE_SHIFT;

	return nth && nth <= peer->posted && peer->requests[nth - 1].succeeded;
}

void sim_node_init(struct sim *sim, int id)
{
	static const uint32_t sizes[] = {SIM_SOURCE, SIM_CONST, SIM_TARGET, SIM_SLOT * SIM_SLOTS, SIM_SLOT * SIM_SLOTS};
	struct sim_node *n = &sim->node[id];
	uint32_t at = SIM_GUARD;

	n->sim = sim;
	n->id = id;
	n->memory = arena[id];
	n->model = arena[2 + id];
	n->requests = calloc(SIM_REQUESTS, sizeof(*n->requests));
	for (int r = 0; r < SIM_REGIONS; at += sizes[r++] + SIM_GUARD) {
		n->base[r] = at;
		n->size[r] = sizes[r];
	}
	fill();
	memcpy(n->memory, start, TOTAL);
	memcpy(n->model, start, TOTAL);
}

void sim_node_free(struct sim_node *n)
{
	for (uint32_t i = 0; i < n->posted; i++)
		free(n->requests[i].expected);
	free(n->requests);
	free(n->slots);
}

/* finished: all work is done, so nothing may differ. Otherwise only memory that nobody writes must be unchanged. */
void sim_check_memory(struct sim *sim, bool finished)
{
	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];

		if (finished) {
			SIM_MUST(sim, !memcmp(n->memory, n->model, TOTAL));
			continue;
		}
		SIM_MUST(sim, !memcmp(n->memory, n->model, n->base[SIM_R_TARGET]));
		for (int r = SIM_R_TARGET; r < SIM_REGIONS; r++) {
			uint32_t end = n->base[r] + n->size[r];

			SIM_MUST(sim, !memcmp(n->memory + end, n->model + end, SIM_GUARD));
		}
	}
}

/* --- send queue --- */

static struct sim_request *request_of(struct sim_node *n, const struct vb_work *work)
{
	struct sim_request *r = &n->requests[work->cookie];

	SIM_MUST(n->sim, work->cookie < n->posted && !memcmp(&r->work, work, sizeof(*work)));
	return r;
}

static bool next_send(void *own, struct vb_work *work)
{
	struct sim_node *n = own;

	if (n->taken == n->posted)
		return false;
	struct sim_request *r = &n->requests[n->taken++];

	*work = r->work;
	r->psn = n->psns_taken;
	r->psns = work->verb == VB_VERB_LOCAL_INV ? 0
	          : work->verb == VB_VERB_FLUSH   ? 1
	          : work->length                  ? (work->length + n->qp.cfg.mtu - 1) / n->qp.cfg.mtu
	                                          : 1;
	n->psns_taken += r->psns;
	return true;
}

static void check_read(struct sim_node *n, struct sim_request *r)
{
	uint32_t off = 0;

	for (uint32_t i = 0; i < r->sges; off += r->sge[i++].len) {
		SIM_MUST(n->sim, !memcmp(n->memory + r->sge[i].at, r->expected + off, r->sge[i].len));
		memcpy(n->model + r->sge[i].at, r->expected + off, r->sge[i].len);
	}
}

static void check_atomic(struct sim_node *n, struct sim_request *r)
{
	SIM_MUST(n->sim, !memcmp(n->memory + r->sge[0].at, &r->original, 8));
	memcpy(n->model + r->sge[0].at, &r->original, 8);
}

/* In posting order, once each; errors only where they are expected. */
static void complete_send(void *own, const struct vb_work *work, enum vb_work_status status)
{
	struct sim_node *n = own;
	struct sim_request *r = request_of(n, work);

	SIM_MUST(n->sim, work->cookie == n->completed && !r->completed++);
	n->completed++;
	if (status != VB_WORK_SUCCESS) {
		if (!n->failed && n->failure == VB_WORK_SUCCESS)
			n->failure = status;
		else
			SIM_MUST(n->sim, status == VB_WORK_WR_FLUSH_ERR);
		return;
	}
	SIM_MUST(n->sim, !r->bad && n->failure == VB_WORK_SUCCESS);
	r->succeeded = true;
	if (work->verb == VB_VERB_READ)
		check_read(n, r);
	if (work->verb == VB_VERB_CMP_SWAP || work->verb == VB_VERB_FETCH_ADD)
		check_atomic(n, r);
	if (work->verb == VB_VERB_FLUSH) /* the peer has executed as many: each of them once */
		SIM_MUST(n->sim, n->sim->node[!n->id].flushes >= ++n->flushed);
}

/* The pieces of a range of a list. */
static int pieces(struct sim_node *n, const struct sim_sge *sge, uint32_t sges, uint32_t offset, uint32_t len,
                  struct iovec *iov)
{
	int k = 0;

	for (uint32_t i = 0; i < sges && len; i++) {
		if (offset >= sge[i].len) {
			offset -= sge[i].len;
			continue;
		}
		uint32_t piece = sge[i].len - offset < len ? sge[i].len - offset : len;

		iov[k++] = (struct iovec){n->memory + sge[i].at + offset, piece};
		len -= piece;
		offset = 0;
	}
	SIM_MUST(n->sim, !len);
	return k;
}

static bool fetch(void *own, const struct vb_work *work, uint32_t offset, void *dst, uint32_t len)
{
	struct sim_node *n = own;
	struct sim_request *r = request_of(n, work);
	struct iovec iov[SIM_SGES];
	uint8_t *to = dst;

	SIM_MUST(n->sim, !r->completed);
	for (int i = 0, k = pieces(n, r->sge, r->sges, offset, len, iov); i < k; to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
	return true;
}

static void store(const struct iovec *iov, int k, const uint8_t *bytes)
{
	for (int i = 0; i < k; bytes += iov[i++].iov_len)
		memcpy(iov[i].iov_base, bytes, iov[i].iov_len);
}

static bool scatter(void *own, const struct vb_work *work, uint32_t offset, const void *bytes, uint32_t len)
{
	struct sim_node *n = own;
	struct sim_request *r = request_of(n, work);
	struct iovec iov[SIM_SGES];

	SIM_MUST(n->sim, !r->completed && work->verb >= VB_VERB_READ);
	store(iov, pieces(n, r->sge, r->sges, offset, len, iov), bytes);
	return true;
}

static enum vb_local local(void *own, const struct vb_work *work)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, work->cookie == n->completed);
	return VB_LOCAL_DONE;
}

/* --- receive queue --- */

static bool take_receive(void *own, uint32_t *room)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, !n->taking);
	if (n->r_taken == n->r_posted)
		return false;
	*room = n->receives[n->r_taken++].room;
	n->taking = true;
	return true;
}

static bool scatter_receive(void *own, uint32_t offset, const void *bytes, uint32_t len)
{
	struct sim_node *n = own;
	struct iovec iov[2];

	SIM_MUST(n->sim, n->taking);
	store(iov, pieces(n, n->receives[n->r_taken - 1].sge, 2, offset, len, iov), bytes);
	return true;
}

static void check_bytes(struct sim_node *n, const struct sim_receive *r, const struct sim_request *sent, uint32_t grh)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	struct iovec from[SIM_SGES], to[2];
	uint8_t want[SIM_SLOT], got[SIM_SLOT];
	uint32_t len = sent->work.length, at = 0;
	int k = pieces(peer, sent->sge, sent->sges, 0, len, from);

	for (int i = 0; i < k; at += from[i++].iov_len)
		memcpy(want + at, from[i].iov_base, from[i].iov_len);
	k = pieces(n, r->sge, 2, grh, len, to);
	at = 0;
	for (int i = 0; i < k; at += to[i++].iov_len) {
		memcpy(got + at, to[i].iov_base, to[i].iov_len);
		memcpy(n->model + ((uint8_t *)to[i].iov_base - n->memory), want + at, to[i].iov_len);
	}
	SIM_MUST(n->sim, !memcmp(want, got, len));
}

/* Reliable: exactly the next one. Unreliable: identified by its immediate data. */
static struct sim_request *sender_of(struct sim_node *n, const struct vb_receipt *receipt)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	uint32_t order = n->r_expected;

	if (n->sim->mode >= SIM_UNRELIABLE) /* a late packet starts the message again */
		order = receipt->imm;
	n->r_expected = order + 1;
	for (uint32_t i = 0; i < peer->posted; i++) {
		if (peer->requests[i].order == order + 1)
			return &peer->requests[i];
	}
	sim_fail(n->sim, "a receive that nobody sent");
	return NULL;
}

static void complete_receive(void *own, const struct vb_receipt *receipt)
{
	struct sim_node *n = own;
	struct sim *sim = n->sim;
	struct sim_receive *r = &n->receives[n->r_taken - 1];
	uint32_t grh = sim->mode == SIM_DATAGRAMS ? 40 : 0;

	SIM_MUST(sim, n->taking && n->r_completed < n->r_taken);
	n->taking = false;
	n->r_completed++;
	if (receipt->status != VB_WORK_SUCCESS) {
		SIM_MUST(sim, sim->mode == SIM_REFUSED || sim->mode == SIM_BLACKHOLE);
		return;
	}
	struct sim_request *sent = sender_of(n, receipt);

	if (!sent)
		return;
	SIM_MUST(sim, receipt->length == sent->work.length + grh);
	SIM_MUST(sim, receipt->flags == (sent->work.flags & (VB_WORK_IMM | VB_WORK_INV)));
	SIM_MUST(sim, !receipt->flags || receipt->imm == sent->work.imm);
	SIM_MUST(sim, receipt->solicited == !!(sent->work.flags & VB_WORK_SOLICITED));
	SIM_MUST(sim, receipt->write_imm == (sent->work.verb == VB_VERB_WRITE));
	if (!receipt->write_imm)
		check_bytes(n, r, sent, grh);
	if (grh) {
		SIM_MUST(sim, n->memory[r->sge[0].at] == 0x45 || r->sge[0].len < 40);
		memcpy(n->model + r->sge[0].at, n->memory + r->sge[0].at, r->sge[0].len < 40 ? r->sge[0].len : 40);
		if (r->sge[0].len < 40)
			memcpy(n->model + r->sge[1].at, n->memory + r->sge[1].at, 40 - r->sge[0].len);
	}
}

static uint32_t receives(void *own)
{
	struct sim_node *n = own;

	return n->sim->seed % 3 ? n->r_posted - n->r_taken : UINT32_MAX;
}

/* --- memory that the peer may access --- */

static uint8_t *allowed(struct sim_node *n, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access)
{
	uint32_t key = rkey & ((1u << ONCE_SHIFT) - 1);

	for (int r = SIM_R_CONST; !has_ended(n, rkey) && r <= SIM_R_TARGET; r++) {
		if (key != sim_key(n->id, r) || (r == SIM_R_CONST && access != VB_RIGHT_READ))
			continue;
		if (va < n->base[r] || va - n->base[r] > n->size[r] || len > n->size[r] - (va - n->base[r]))
			return NULL;
		return n->memory + va;
	}
	return NULL;
}

static bool check(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access)
{
	return allowed(own, rkey, va, len, access);
}

static bool write_remote(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len, bool last)
{
	uint8_t *at = allowed(own, rkey, va, len, VB_RIGHT_WRITE);

	if (at)
		memcpy(at, bytes, len);
	return at;
}

static bool read_remote(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len)
{
	const uint8_t *at = allowed(own, rkey, va, len, VB_RIGHT_READ);

	if (at)
		memcpy(dst, at, len);
	return at;
}

static enum vb_memory_result atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original)
{
	uint8_t *at = allowed(own, a->rkey, a->va, 8, VB_RIGHT_ATOMIC);
	uint64_t next;

	if (!at)
		return VB_MEMORY_DENIED;
	memcpy(original, at, 8);
	next = add ? *original + a->swap_add : *original == a->compare ? a->swap_add : *original;
	memcpy(at, &next, 8);
	return VB_MEMORY_OK;
}

static enum vb_memory_result atomic_write(void *own, uint32_t rkey, uint64_t va, uint64_t value)
{
	uint8_t *at = allowed(own, rkey, va, 8, VB_RIGHT_WRITE);

	if (!at)
		return VB_MEMORY_DENIED;
	if (va & 7)
		return VB_MEMORY_MISALIGNED;
	memcpy(at, &value, 8);
	return VB_MEMORY_OK;
}

static bool flush(void *own, const struct vb_reth *range, struct vb_feth flush)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, flush.type == VB_RIGHT_FLUSH_GLOBAL >> VB_RIGHT_FLUSH_SHIFT);
	n->flushes++;
	return allowed(own, range->rkey, range->va, range->length, VB_RIGHT_FLUSH_GLOBAL);
}

static bool invalidate(void *own, uint32_t rkey)
{
	return true;
}

static void failed(void *own, enum vb_work_event event)
{
	struct sim_node *n = own;

	SIM_MUST(n->sim, !n->failed);
	n->failed = true;
	n->event = event;
}

const struct vb_roce_ops sim_ops = {
        .next_send = next_send,
        .complete_send = complete_send,
        .fetch = fetch,
        .scatter = scatter,
        .local = local,
        .take_receive = take_receive,
        .scatter_receive = scatter_receive,
        .complete_receive = complete_receive,
        .receives = receives,
        .check = check,
        .write = write_remote,
        .read = read_remote,
        .atomic = atomic,
        .atomic_write = atomic_write,
        .flush = flush,
        .invalidate = invalidate,
        .failed = failed,
};
