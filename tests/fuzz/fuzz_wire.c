// fuzz_wire.c - a hostile peer on the wire: after a valid connection any packets, in any order, at any time. Each
// request completes once and in order, nothing is stored beyond a packet's own bytes, timers do not spin, and we live
// follows: IBA volume 1, 9.6 to 9.9
// build: tests/fuzz/run 60 wire
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define POSTS_MAX 40u
#define RECEIVES_MAX 32u

static struct fx fx;
static uint64_t now;
static uint32_t given;
static uint8_t slots[16 * VB_ROCE_SLOT(FX_MTU)];

static void check(void)
{
	const struct vb_roce_requester *rq = &fx.qp.rq;
	const struct vb_roce_responder *rs = &fx.qp.rs;

	CHECK(rq->una <= rq->seq && rq->seq <= rq->high && rq->high <= rq->taken_seq);
	CHECK(rq->tail - rq->head <= FX_SENDS && rq->cur - rq->head <= rq->tail - rq->head);
	CHECK(rq->rd <= fx.cfg.max_rd_atomic && rq->window.packets >= 1);
	CHECK(rs->res_tail - rs->res_head <= fx.cfg.max_dest_rd_atomic);
	uint32_t unanswered = 0;

	for (uint32_t i = rs->res_head; i != rs->res_tail; i++)
		unanswered += rs->res[i % VB_ROCE_MAX_RESOURCES].next != rs->res[i % VB_ROCE_MAX_RESOURCES].end;
	CHECK(rs->unanswered == (fx.qp.dead && !rs->closed ? 0 : unanswered));
	CHECK(fx.dones <= fx.taken && fx.taken <= fx.posts && fx.receipts <= given);
	CHECK(fx.events <= 1 && (!fx.events || fx.dones == fx.taken || fx.cfg.type != VB_ROCE_RC));
	CHECK(fx.events || !fx.qp.dead);
	uint32_t kept = 0;

	for (uint32_t i = 0; i < sizeof(slots) / VB_ROCE_SLOT(FX_MTU); i++)
		kept += ((const struct vb_roce_kept *)(const void *)(slots + i * VB_ROCE_SLOT(FX_MTU)))->used;
	CHECK(kept == rs->kept && (!kept || kept <= fx.qp.ahead.n));
	CHECK(!rq->mending || (rq->mend_seq <= rq->una && rq->mend_to <= rq->high && rq->mend_end <= rq->high));
	CHECK(rq->got_to <= rq->high && rq->executed <= rq->high);
}

static void setup(struct vb_reader *r)
{
	struct vb_roce_config cfg;

	fx_config(&cfg);
	cfg.type = vb_get8(r) % 8;
	if (cfg.type > VB_ROCE_UD)
		cfg.type = VB_ROCE_RC;
	cfg.sq_psn = vb_psn(vb_get8(r) * 0x10101u);
	cfg.rq_psn = vb_psn(vb_get8(r) * 0x10101u);
	cfg.max_rd_atomic = vb_get8(r) % 6;
	cfg.max_dest_rd_atomic = vb_get8(r) % 6;
	cfg.access = vb_get8(r);
	cfg.max_window = vb_get8(r);
	cfg.ack_delay = vb_get8(r) * 256u;
	cfg.retry_cnt = cfg.rnr_retry = vb_get8(r) % 8;
	cfg.probe_min = 1000;
	fx_init_with(&fx, &cfg);
	uint8_t how = vb_get8(r);

	fx.count_receives = how & 1;
	memset(slots, 0, sizeof(slots));
	if (how & 2)
		vb_roce_keep_ahead(&fx.qp, &(struct vb_roce_ahead){slots, how & 4 ? 16 : 4});
	now = 1;
	given = 0;
}

static void post(struct vb_reader *r)
{
	uint8_t verb = vb_get8(r) % 6;
	uint32_t len = vb_get16(r) % 4096;

	if (fx.posts >= POSTS_MAX)
		return;
	fx_post(&fx, verb, verb == VB_VERB_CMP_SWAP || verb == VB_VERB_FETCH_ADD ? 8 : len)->flags = vb_get8(r);
}

/* A PSN that is near to one that matters, most times. */
static uint32_t psn_of(struct vb_reader *r)
{
	uint8_t how = vb_get8(r);

	if (how < 100)
		return fx.qp.rs.epsn.v + how % 10 - 5;
	if (how < 200)
		return fx.cfg.sq_psn.v + (uint32_t)fx.qp.rq.una + how % 20 - 5;
	if (how < 220)
		return fx.cfg.sq_psn.v + (uint32_t)fx.qp.rq.high - how % 4;
	return how < 230 ? fx.qp.rs.epsn.v : vb_get24(r);
}

static void forge(struct vb_reader *r)
{
	uint8_t opcode = vb_get8(r), shape = vb_get8(r);
	uint32_t psn = psn_of(r);

	if (!vb_opcode_info(opcode))
		return;
	struct vb_packet p = fx_packet(&fx, opcode, psn, shape & 1 ? FX_MTU : vb_get16(r) % 600);

	if (!(p.info->flags & VB_PAYLOAD))
		p.payload_len = 0;
	p.bth.ack_req = shape & 2;
	p.reth = (struct vb_reth){FX_VA + (shape & 4 ? vb_get16(r) : 0), FX_KEY ^ (shape & 8 ? vb_get8(r) : 0),
	                          shape & 16   ? vb_get16(r)
	                          : shape & 32 ? vb_get32(r)
	                                       : p.payload_len};
	p.atomic.va = FX_VA + (shape & 4 ? vb_get8(r) : 0);
	p.aeth = (struct vb_aeth){.kind = shape >> 6 & 3, .value = vb_get8(r) & 31};
	p.ieth.rkey = FX_KEY;
	p.deth.qkey = shape & 64;
	fx_in(&fx, &p, now);
}

/* Just bytes, as they might come from a socket. */
static void raw(struct vb_reader *r)
{
	size_t len = vb_get8(r);
	const uint8_t *bytes = vb_take(r, len);
	struct vb_packet p;
	enum vb_verdict verdict = bytes ? vb_packet_decode(&p, bytes, len) : VB_PACKET_TRUNCATED;

	if (verdict == VB_PACKET_OPCODE) {
		struct vb_reader head = vb_reader(bytes, VB_BTH_LEN);
		struct vb_bth bth;

		vb_bth_decode(&head, &bth);
		vb_roce_input_unknown(&fx.qp, &bth);
	}
	if (verdict != VB_PACKET_OK)
		return;
	uint8_t *payload = malloc(p.payload_len + 1), grh[40] = {0x45};

	memcpy(payload, bytes + p.payload_at, p.payload_len);
	vb_roce_input(&fx.qp, &p, payload, &(struct vb_roce_from){.congested = len & 1, .grh = grh}, now);
	free(payload);
}

static void output(struct vb_reader *r)
{
	uint8_t packet[VB_ROCE_PACKET_MAX];
	struct vb_roce_out out = {.packet = packet};
	uint32_t limit = vb_get8(r);

	for (uint32_t i = 0; i < limit && vb_roce_output(&fx.qp, &out, now); i++) {
		CHECK(out.header_len <= VB_ROCE_MAX_HEADER && out.payload_len <= fx.cfg.mtu);
		check();
	}
	vb_roce_sent(&fx.qp);
}

static void wait(struct vb_reader *r)
{
	uint64_t at = vb_roce_deadline(&fx.qp);

	now += vb_get16(r);
	if (at && vb_get8(r) & 1 && at > now)
		now = at;
	vb_roce_timeout(&fx.qp, now);
	at = vb_roce_deadline(&fx.qp);
	CHECK(!at || at > now);
}

static void change(struct vb_reader *r)
{
	uint8_t what = vb_get8(r);

	if (what & 1)
		fx.key = FX_KEY;
	if (what & 2)
		vb_roce_pause(&fx.qp, what & 4);
	if (what & 8)
		fx.no_access ^= 1ull << (what >> 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_reader r = vb_reader(data, size);

	setup(&r);
	while (!r.failed && vb_left(&r)) {
		uint8_t what = vb_get8(&r) % 16;

		if (what < 6)
			forge(&r);
		else if (what < 9)
			post(&r);
		else if (what < 12)
			output(&r);
		else if (what == 12)
			wait(&r);
		else if (what == 13)
			raw(&r);
		else if (what == 14)
			change(&r);
		else if (given < RECEIVES_MAX)
			fx.receives++, given++;
		check();
	}
	vb_roce_abort(&fx.qp);
	CHECK(fx.dones == fx.taken);
	if (vb_roce_deadline(&fx.qp)) /* the memory of what was kept is given back later, and nothing else is due */
		vb_roce_timeout(&fx.qp, vb_roce_deadline(&fx.qp));
	CHECK(!vb_roce_deadline(&fx.qp));
	return 0;
}
