// fixture.c - one queue pair, its queues and its memory in the open; the other end is forged packet by packet
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>

#include "fixture.h"

static bool next_send(void *own, struct vb_work *work)
{
	struct fx *fx = own;

	if (fx->taken == fx->posts)
		return false;
	*work = fx->posted[fx->taken++];
	return true;
}

static void complete_send(void *own, const struct vb_work *work, enum vb_work_status status)
{
	struct fx *fx = own;

	CHECK(work->cookie == fx->dones);
	fx->done[fx->dones].cookie = work->cookie;
	fx->done[fx->dones++].status = status;
}

static bool fetch(void *own, const struct vb_work *work, uint32_t offset, void *dst, uint32_t len)
{
	struct fx *fx = own;

	if (fx->no_access >> work->cookie & 1)
		return false;
	memcpy(dst, fx->local[work->cookie] + offset, len);
	return true;
}

static bool scatter(void *own, const struct vb_work *work, uint32_t offset, const void *bytes, uint32_t len)
{
	struct fx *fx = own;

	if (fx->no_access >> work->cookie & 1)
		return false;
	CHECK(offset + len <= work->length);
	memcpy(fx->local[work->cookie] + offset, bytes, len);
	return true;
}

static enum vb_local local(void *own, const struct vb_work *work)
{
	struct fx *fx = own;

	fx->locals++;
	if (fx->later) {
		fx->later--;
		return VB_LOCAL_LATER;
	}
	return fx->no_access >> work->cookie & 1 ? VB_LOCAL_FAILED : VB_LOCAL_DONE;
}

static enum vb_roce_srq select_srq(void *own, uint32_t srqn, bool answer)
{
	struct fx *fx = own;

	*(answer ? &fx->selected_for_answer : &fx->selected) = srqn;
	return srqn == FX_SRQ || srqn == FX_SRQ + 1 ? VB_ROCE_SRQ_HERE : VB_ROCE_SRQ_NONE;
}

static bool oldest_passed(void *own, struct vb_psn *psn, uint32_t *msn)
{
	return false;
}

static bool take_receive(void *own, uint32_t *room)
{
	struct fx *fx = own;

	if (!fx->receives)
		return false;
	fx->receives--;
	*room = fx->room;
	return true;
}

static bool scatter_receive(void *own, uint32_t offset, const void *bytes, uint32_t len)
{
	struct fx *fx = own;

	CHECK(offset + len <= fx->room);
	if (!fx->receive_fault)
		memcpy(fx->inbox + offset, bytes, len);
	return !fx->receive_fault;
}

static void complete_receive(void *own, const struct vb_receipt *receipt)
{
	struct fx *fx = own;

	fx->receipt[fx->receipts++] = *receipt;
}

static uint32_t receives(void *own)
{
	struct fx *fx = own;

	return fx->count_receives ? fx->receives : UINT32_MAX;
}

static uint8_t *find(struct fx *fx, uint32_t rkey, uint64_t va, uint32_t len)
{
	if (!fx->key || rkey != fx->key || va < FX_VA || va - FX_VA > FX_REGION || len > FX_REGION - (va - FX_VA))
		return NULL;
	return fx->region + (va - FX_VA);
}

static bool check(void *own, uint32_t rkey, uint64_t va, uint32_t len, enum vb_right access)
{
	return find(own, rkey, va, len);
}

static bool write_remote(void *own, uint32_t rkey, uint64_t va, const void *bytes, uint32_t len, bool last)
{
	uint8_t *at = find(own, rkey, va, len);

	if (at)
		memcpy(at, bytes, len);
	return at;
}

static bool read_remote(void *own, uint32_t rkey, uint64_t va, void *dst, uint32_t len)
{
	const uint8_t *at = find(own, rkey, va, len);

	if (at)
		memcpy(dst, at, len);
	return at;
}

static enum vb_memory_result atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original)
{
	struct fx *fx = own;
	uint8_t *at = find(own, a->rkey, a->va, 8);
	uint64_t next;

	if (!at)
		return VB_MEMORY_DENIED;
	fx->atomics++;
	memcpy(original, at, 8);
	next = add ? *original + a->swap_add : *original == a->compare ? a->swap_add : *original;
	memcpy(at, &next, 8);
	return VB_MEMORY_OK;
}

static enum vb_memory_result atomic_write(void *own, uint32_t rkey, uint64_t va, uint64_t value)
{
	struct fx *fx = own;
	uint8_t *at = find(own, rkey, va, 8);

	if (!at)
		return VB_MEMORY_DENIED;
	if (va & 7)
		return VB_MEMORY_MISALIGNED;
	fx->words++;
	memcpy(at, &value, 8);
	return VB_MEMORY_OK;
}

static bool flush(void *own, const struct vb_reth *range, struct vb_feth flush)
{
	struct fx *fx = own;

	if (flush.type != 1 ||
	    !find(own, range->rkey, flush.level ? FX_VA : range->va, flush.level ? 1 : range->length))
		return false;
	fx->flushes++;
	fx->flushed = *range;
	return true;
}

static bool invalidate(void *own, uint32_t rkey)
{
	struct fx *fx = own;
	bool ok = rkey == fx->key;

	if (ok)
		fx->key = 0;
	return ok;
}

static void failed(void *own, enum vb_work_event event)
{
	struct fx *fx = own;

	fx->event[fx->events++] = event;
}

static const struct vb_roce_ops ops = {
        .next_send = next_send,
        .complete_send = complete_send,
        .fetch = fetch,
        .scatter = scatter,
        .local = local,
        .select_srq = select_srq,
        .oldest_passed = oldest_passed,
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

void fx_config(struct vb_roce_config *cfg)
{
	*cfg = (struct vb_roce_config){
	        .type = VB_ROCE_RC,
	        .mtu = FX_MTU,
	        .qpn = 0x11,
	        .dest_qpn = 0x22,
	        .pkey = 0xffff,
	        .sq_psn = vb_psn(100),
	        .rq_psn = vb_psn(100),
	        .timeout = 8,
	        .retry_cnt = 1,
	        .rnr_retry = 1,
	        .min_rnr_timer = 12,
	        .max_rd_atomic = 4,
	        .max_dest_rd_atomic = 4,
	        .access = VB_RIGHT_READ | VB_RIGHT_WRITE | VB_RIGHT_ATOMIC | VB_RIGHT_FLUSH_GLOBAL,
	        .probe_min = 1000000000, /* out of the way */
	};
}

void fx_init_rtr(struct fx *fx, const struct vb_roce_config *cfg)
{
	memset(fx, 0, sizeof(*fx));
	fx->cfg = *cfg;
	fx->key = FX_KEY;
	fx->room = 4096;
	for (uint32_t i = 0; i < FX_REGION; i++)
		fx->region[i] = (uint8_t)(i / 7);
	vb_roce_init(&fx->qp, cfg, &ops, fx, fx->sends, FX_SENDS);
}

void fx_init_with(struct fx *fx, const struct vb_roce_config *cfg)
{
	fx_init_rtr(fx, cfg);
	vb_roce_start(&fx->qp);
}

void fx_init(struct fx *fx)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	fx_init_with(fx, &cfg);
}

struct vb_work *fx_post(struct fx *fx, enum vb_verb verb, uint32_t len)
{
	struct vb_work *work = &fx->posted[fx->posts];

	*work = (struct vb_work){
	        .cookie = fx->posts, .verb = (uint8_t)verb, .length = len, .remote_addr = FX_VA, .rkey = FX_KEY};
	memset(fx->local[fx->posts], (int)fx->posts, sizeof(fx->local[0]));
	fx->posts++;
	return work;
}

bool fx_out(struct fx *fx, struct vb_packet *p, uint8_t *payload, uint64_t now)
{
	uint8_t bytes[VB_ROCE_PACKET_MAX + VB_ICRC_LEN];
	struct vb_roce_out out = {.packet = bytes};

	memset(bytes, 0xee, sizeof(bytes));
	if (!vb_roce_output(&fx->qp, &out, now))
		return false;
	uint32_t len = out.header_len + out.payload_len + out.pad;

	CHECK(vb_packet_decode(p, bytes, len + VB_ICRC_LEN) == VB_PACKET_OK);
	CHECK(bytes[len] == 0xee && p->payload_at == out.header_len && out.pad == p->bth.pad);
	for (uint32_t i = 0; i < out.pad; i++)
		CHECK(!bytes[out.header_len + out.payload_len + i]);
	CHECK(p->payload_len == out.payload_len && p->bth.migreq && !p->bth.tver && p->bth.pkey == fx->cfg.pkey);
	if (payload)
		memcpy(payload, bytes + p->payload_at, p->payload_len);
	return true;
}

unsigned fx_drain(struct fx *fx, uint64_t now)
{
	struct vb_packet p;
	unsigned n = 0;

	while (fx_out(fx, &p, NULL, now))
		n++;
	return n;
}

struct vb_packet fx_packet(const struct fx *fx, uint8_t opcode, uint32_t psn, uint32_t len)
{
	struct vb_packet p = {
	        .bth = {.opcode = opcode, .pkey = 0xffff, .dest_qpn = fx->cfg.qpn, .psn = vb_psn(psn), .ack_req = true},
	        .info = vb_opcode_info(opcode),
	        .payload_len = len,
	        .feth = {1, 0},
	        .xrceth = {FX_SRQ},
	        .reth = {FX_VA, FX_KEY, len},
	        .atomic = {FX_VA, FX_KEY, 1, 0},
	        .aeth = {.value = VB_CREDITS_UNLIMITED},
	};

	return p;
}

void fx_in(struct fx *fx, const struct vb_packet *p, uint64_t now)
{
	uint8_t payload[4096], grh[40] = {0x45};

	memset(payload, (int)p->bth.psn.v, sizeof(payload));
	vb_roce_input(&fx->qp, p, payload, &(struct vb_roce_from){.grh = grh, .port = fx->port}, now);
}

void fx_ack(struct fx *fx, uint32_t psn, uint8_t credits, uint64_t now)
{
	fx_nak(fx, psn, VB_AETH_ACK, credits, now);
}

void fx_nak(struct fx *fx, uint32_t psn, uint8_t kind, uint8_t value, uint64_t now)
{
	struct vb_packet p = fx_packet(fx, VB_RC_ACK, psn, 0);

	p.bth.ack_req = false;
	p.aeth = (struct vb_aeth){.kind = kind, .value = value};
	fx_in(fx, &p, now);
}
