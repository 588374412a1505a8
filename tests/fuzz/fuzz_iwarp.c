// fuzz_iwarp.c - a hostile peer on a stream: any FPDUs, right and wrong ones, and any bytes, split anywhere. Each request
// completes once and in order, nothing is stored outside what was granted, and we live
// follows: RFC 5040; RFC 5041; RFC 5044; RFC 5042
// build: tests/fuzz/run 60 iwarp
// SPDX-License-Identifier: MIT
#include <string.h>

#include "fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define POSTS_MAX 40u
#define RECEIVES_MAX 40u

static struct fx fx;
static uint32_t given;

static void check(void)
{
	const struct vb_iw_requester *rq = &fx.qp.rq;
	const struct vb_iw_responder *rs = &fx.qp.rs;
	const struct vb_iw_out *o = &fx.qp.out;

	CHECK(rq->tail - rq->head <= FX_SENDS && rq->cur - rq->head <= rq->tail - rq->head);
	CHECK(rq->rd <= fx.qp.cfg.ord + 1u);
	CHECK(rs->tail - rs->head <= fx.qp.cfg.ird + 1u && rs->cur - rs->head <= rs->tail - rs->head);
	CHECK(o->tail - o->head <= VB_IW_FPDUS && fx.qp.in.head <= fx.qp.in.tail && fx.qp.in.tail <= fx.qp.stage_len);
	CHECK(fx.dones <= fx.taken && fx.taken <= fx.posts && fx.receipts <= fx.taken_receives);
	CHECK(fx.events <= 1 && (!fx.events || (fx.dones == fx.taken && vb_iw_over(&fx.qp))));
	CHECK(!vb_iw_over(&fx.qp) || (fx.dones == fx.taken && fx.receipts == fx.taken_receives));
}

static void setup(struct vb_reader *r)
{
	static const uint32_t emss[] = {128, 300, 1460, 65000}, direct[] = {0, 1, 64, 1000};
	struct vb_iw_config cfg;
	uint8_t how = vb_get8(r), depth = vb_get8(r), start = vb_get8(r);

	fx_config(&cfg);
	cfg.crc = how & 1;
	cfg.markers_in = how & 2;
	cfg.markers_out = how & 4;
	cfg.emss = emss[how >> 3 & 3];
	cfg.direct_min = direct[how >> 5 & 3];
	cfg.access = start & 0x80 ? vb_get8(r) & 7 : 7;
	cfg.ird = depth & 15;
	cfg.ord = depth >> 4;
	fx_init(&fx, &cfg);
	fx.room = vb_get16(r) % FX_LOCAL;
	vb_iw_send_rtr(&fx.qp, start & 3);
	vb_iw_expect_rtr(&fx.qp, start >> 2 & 3);
	if (start & 16)
		vb_iw_hold_until_input(&fx.qp);
	given = 0;
}

/* In pieces, by way of memory in place or of the stage. */
static void feed(struct vb_reader *r, const uint8_t *bytes, uint32_t len)
{
	fx.fed += len;
	while (len) {
		uint8_t how = vb_get8(r);
		uint32_t n = how & 0x40 ? (how & 15) + 1u : how & 0x20 ? len / 2 + 1 : len, done = 0;
		struct iovec iov[5];

		n = n < len ? n : len;
		if (how & 0x80) {
			int k = vb_iw_room(&fx.qp, iov, 5);

			if (!k)
				return;
			for (int i = 0; i < k && done < n; i++) {
				uint32_t here = iov[i].iov_len < n - done ? (uint32_t)iov[i].iov_len : n - done;

				memcpy(iov[i].iov_base, bytes + done, here);
				done += here;
			}
			n = done;
			vb_iw_received(&fx.qp, n);
		} else {
			vb_iw_input(&fx.qp, bytes, n);
		}
		check();
		bytes += n;
		len -= n;
	}
}

static uint32_t some_length(struct vb_reader *r)
{
	uint8_t how = vb_get8(r);

	return how < 128 ? how : how < 250 ? vb_get16(r) % 6000 : vb_get16(r);
}

/* Near to what would be right, most times. */
static void shape_header(struct vb_reader *r, struct vb_ddp *h)
{
	uint8_t how = vb_get8(r);

	h->last = !(how & 1);
	if (how & 2) {
		h->to += vb_get16(r);
		h->mo = fx.qp.rs.offset;
	}
	if (how & 4)
		h->mo = vb_get16(r);
	if (how & 8 && h->opcode == VB_RDMAP_READ_RESPONSE) {
		uint32_t oldest = fx.dones;

		h->stag = FX_SINK_STAG;
		h->to = FX_SINK_TO(oldest) + fx.qp.rq.got;
	}
	if ((how & 0x30) == 0x30) {
		h->msn += vb_get8(r);
		h->qn ^= vb_get8(r) & 3;
		h->stag ^= vb_get8(r) & 15;
	}
	if ((how & 0xc0) == 0xc0) {
		uint8_t bits = vb_get8(r);

		h->tagged ^= bits & 1;
		h->dv ^= bits >> 1 & 1;
		h->rv ^= bits >> 2 & 1;
	}
}

/* Addresses and lengths that may be granted. */
static uint32_t shape_body(struct vb_reader *r, uint8_t opcode, uint8_t *body)
{
	struct vb_writer w = vb_writer(body, VB_ATOMIC_REQUEST_LEN);
	uint8_t how = vb_get8(r);
	uint64_t to = FX_VA + (how & 1 ? vb_get16(r) : how & 2 ? 8u * vb_get8(r) : 0);

	if (opcode == VB_RDMAP_READ_REQUEST) {
		struct vb_read_request rr = {.sink_stag = 3,
		                             .sink_to = UINT64_MAX - 50,
		                             .length = some_length(r),
		                             .stag = FX_STAG + (how >> 6),
		                             .to = to};

		vb_read_request_encode(&w, &rr);
	} else if (opcode == VB_RDMAP_ATOMIC_REQUEST) {
		struct vb_atomic_request ar = {
		        .op = how >> 2 & 3, .id = how, .stag = FX_STAG + (how >> 6), .to = to, .swap_add = 5};

		ar.swap_add_mask = ar.compare_mask = ar.op ? UINT64_MAX : 0;
		vb_atomic_request_encode(&w, &ar);
	} else if (opcode == VB_RDMAP_ATOMIC_RESPONSE) {
		uint32_t id = how & 3 ? fx.qp.rq.msn[1] - (how & 3) : vb_get32(r);

		vb_atomic_response_encode(&w, &(struct vb_atomic_response){.id = id, .original = how});
	} else {
		vb_put_zeros(&w, vb_rdmap_table[opcode].body);
	}
	return (uint32_t)w.pos;
}

static void forge(struct vb_reader *r)
{
	static uint8_t fpdu[70000], payload[66000];
	uint8_t opcode = vb_get8(r) & 15;
	struct vb_ddp h = fx_header(&fx, opcode);
	uint32_t len =
	        vb_rdmap_table[opcode].flags & VB_RDMAP_PAYLOAD ? some_length(r) : shape_body(r, opcode, payload);

	if (len > 65535 - VB_DDP_UNTAGGED_LEN)
		len = 65535 - VB_DDP_UNTAGGED_LEN;
	shape_header(r, &h);
	uint32_t whole = fx_forge(&fx, fpdu, &h, payload, len);
	uint8_t damage = vb_get8(r);

	if (damage > 250)
		fpdu[vb_get16(r) % whole] ^= damage;
	feed(r, fpdu, whole);
	if (!h.tagged && h.last && h.qn < VB_QN_COUNT)
		fx.msn[h.qn]++;
}

static void raw(struct vb_reader *r)
{
	size_t len = vb_get8(r);
	const uint8_t *bytes = vb_take(r, len);

	if (bytes)
		feed(r, bytes, (uint32_t)len);
}

static void post(struct vb_reader *r)
{
	uint8_t verb = vb_get8(r) % 6, flags = vb_get8(r);
	uint32_t len = some_length(r) % FX_LOCAL;

	if (fx.posts >= POSTS_MAX)
		return;
	if (verb == VB_VERB_SEND)
		flags &= (uint8_t)~VB_WORK_IMM;
	fx_post(&fx, verb, verb == VB_VERB_CMP_SWAP || verb == VB_VERB_FETCH_ADD ? 8 : len)->flags = flags & 15;
}

static void output(struct vb_reader *r)
{
	struct iovec iov[30];
	uint8_t how = vb_get8(r);
	size_t total = 0;
	int n = vb_iw_output(&fx.qp, iov, how & 1 ? 30 : 2, how & 2 ? 20000 : 1);

	check();
	for (int i = 0; i < n; i++) {
		volatile uint8_t sum = 0;

		for (size_t k = 0; k < iov[i].iov_len; k += 64)
			sum ^= ((const uint8_t *)iov[i].iov_base)[k];
		total += iov[i].iov_len;
	}
	CHECK(n >= 0 && n <= 30 && (!n || total));
	vb_iw_sent(&fx.qp, how & 4 ? total : total * (how >> 3) / 32);
	check();
}

static void change(struct vb_reader *r)
{
	uint8_t what = vb_get8(r);

	switch (what & 15) {
	case 0:
		fx.invalid = what & 16;
		break;
	case 1:
		vb_iw_pause(&fx.qp, what & 16);
		break;
	case 2:
		fx.no_access ^= 1ull << (fx.taken + (what >> 6)) % 40;
		break;
	case 3:
		fx.receive_fault = what & 16;
		break;
	case 4:
		fx.target_fault = what & 16;
		break;
	case 5:
		if ((what & 0xe0) == 0xe0)
			vb_iw_closed(&fx.qp, what & 16 ? VB_IW_FAULT : VB_IW_FIN);
		break;
	case 6:
		if ((what & 0xe0) == 0xe0)
			vb_iw_abort(&fx.qp, what & 16);
		break;
	case 7:
		vb_iw_give_up(&fx.qp);
		break;
	default:
		break;
	}
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
		else if (what < 13)
			raw(&r);
		else if (what < 14)
			change(&r);
		else if (given < RECEIVES_MAX)
			fx.receives++, given++, vb_iw_retry(&fx.qp);
		check();
	}
	vb_iw_abort(&fx.qp, true);
	fx.sent_len = 0;
	fx_output(&fx);
	CHECK(fx.dones == fx.taken && fx.receipts == fx.taken_receives && vb_iw_over(&fx.qp));
	return 0;
}
