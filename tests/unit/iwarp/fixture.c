// fixture.c - one stream, its queues and its memory in the open; the other end is forged FPDU by FPDU
// SPDX-License-Identifier: MIT
#include "fixture.h"

#include <string.h>

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

	CHECK(fx->dones < FX_LIST && work->cookie == fx->dones && fx->dones < fx->taken);
	fx->done[fx->dones].cookie = work->cookie;
	fx->done[fx->dones++].status = status;
}

static enum vb_local run_local(void *own, const struct vb_work *work)
{
	struct fx *fx = own;

	fx->locals++;
	if (fx->later) {
		fx->later--;
		return VB_LOCAL_LATER;
	}
	return fx->no_access >> work->cookie & 1 ? VB_LOCAL_FAILED : VB_LOCAL_DONE;
}

static bool take_receive(void *own, uint32_t *room)
{
	struct fx *fx = own;

	if (!fx->receives)
		return false;
	fx->receives--;
	fx->taken_receives++;
	*room = fx->room;
	return true;
}

static void complete_receive(void *own, const struct vb_receipt *receipt)
{
	struct fx *fx = own;

	CHECK(fx->receipts < FX_LIST && fx->receipts < fx->taken_receives);
	fx->receipt[fx->receipts++] = *receipt;
}

static enum vb_iw_denial check(void *own, uint32_t stag, uint64_t to, uint64_t len, enum vb_right access)
{
	const struct fx *fx = own;

	if (stag == FX_STRANGER)
		return VB_IW_NOT_OURS;
	if ((stag != FX_STAG && stag != FX_READ_ONLY) || fx->invalid)
		return VB_IW_INVALID_STAG;
	if (to < FX_VA || to - FX_VA > FX_REGION || len > FX_REGION - (to - FX_VA))
		return VB_IW_BOUNDS;
	return stag == FX_READ_ONLY && access != VB_RIGHT_READ ? VB_IW_ACCESS : VB_IW_GRANTED;
}

static int target(void *own, uint32_t stag, uint64_t to, uint32_t len, enum vb_right access, struct iovec *iov)
{
	struct fx *fx = own;

	if (check(own, stag, to, len, access) != VB_IW_GRANTED || fx->target_fault)
		return -1;
	iov[0] = (struct iovec){fx->region + (to - FX_VA), len};
	return len ? 1 : 0;
}

static enum vb_memory_result atomic(void *own, bool add, const struct vb_atomic *a, uint64_t *original)
{
	struct fx *fx = own;
	uint64_t value;

	if (a->va % 8)
		return VB_MEMORY_MISALIGNED;
	CHECK(check(own, a->rkey, a->va, 8, VB_RIGHT_ATOMIC) == VB_IW_GRANTED);
	memcpy(&value, fx->region + (a->va - FX_VA), 8);
	*original = value;
	value = add ? value + a->swap_add : value == a->compare ? a->swap_add : value;
	memcpy(fx->region + (a->va - FX_VA), &value, 8);
	fx->atomics++;
	return VB_MEMORY_OK;
}

static bool invalidate(void *own, uint32_t stag)
{
	struct fx *fx = own;

	if (stag != FX_STAG || fx->invalid)
		return false;
	fx->invalid = true;
	return true;
}

static void failed(void *own, enum vb_work_event event)
{
	struct fx *fx = own;

	CHECK(!fx->events && fx->dones == fx->taken && fx->receipts == fx->taken_receives);
	fx->event[fx->events++] = event;
}

static int local_pieces(void *own, const struct vb_work *work, uint32_t offset, uint32_t len, struct iovec *iov)
{
	struct fx *fx = own;
	uint8_t *bytes = fx->local[work->cookie % 4];

	CHECK(len <= work->length && offset <= work->length - len);
	if (fx->no_access >> work->cookie & 1 || offset + len > FX_LOCAL)
		return -1;
	iov[0] = (struct iovec){bytes + offset, len / 2};
	iov[1] = (struct iovec){bytes + offset + len / 2, len - len / 2};
	return 2;
}

static void sink_name(void *own, const struct vb_work *work, uint32_t *stag, uint64_t *to)
{
	*stag = FX_SINK_STAG;
	*to = FX_SINK_TO(work->cookie);
}

static int sink_receive(void *own, uint32_t offset, uint32_t len, struct iovec *iov)
{
	struct fx *fx = own;

	CHECK(offset <= fx->room && len <= fx->room - offset && fx->room <= FX_LOCAL);
	if (fx->receive_fault)
		return -1;
	iov[0] = (struct iovec){fx->inbox + offset, len};
	return 1;
}

static bool copy_in(void *own, const struct iovec *iov, int n, const void *bytes, uint32_t len, bool last)
{
	struct fx *fx = own;
	const uint8_t *from = bytes;

	for (int i = 0; i < n; len -= (uint32_t)iov[i].iov_len, from += iov[i++].iov_len)
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
	CHECK(!len);
	fx->stores++;
	return true;
}

static bool copy_out(void *own, const struct iovec *iov, int n, void *bytes, uint32_t len)
{
	uint8_t *to = bytes;

	for (int i = 0; i < n; len -= (uint32_t)iov[i].iov_len, to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
	CHECK(!len);
	return true;
}

static const struct vb_iw_ops ops = {
        .next_send = next_send,
        .complete_send = complete_send,
        .local = run_local,
        .take_receive = take_receive,
        .complete_receive = complete_receive,
        .atomic = atomic,
        .invalidate = invalidate,
        .failed = failed,
        .source = local_pieces,
        .sink = local_pieces,
        .sink_name = sink_name,
        .sink_receive = sink_receive,
        .check = check,
        .target = target,
        .copy_in = copy_in,
        .copy_out = copy_out,
};

void fx_config(struct vb_iw_config *cfg)
{
	*cfg = (struct vb_iw_config){
	        .emss = 1460,
	        .ird = 4,
	        .ord = 4,
	        .access = VB_RIGHT_READ | VB_RIGHT_WRITE | VB_RIGHT_ATOMIC,
	};
}

void fx_init(struct fx *fx, const struct vb_iw_config *cfg)
{
	uint8_t *stage = fx->stage ? fx->stage : malloc(VB_IW_STAGE_MIN),
	        *out = fx->out ? fx->out : malloc(VB_IW_OUT_MIN);

	memset(fx, 0, offsetof(struct fx, sent));
	fx->cfg = *cfg;
	fx->stage = stage;
	fx->out = out;
	fx->room = 8192;
	for (int i = 0; i < VB_QN_COUNT; i++)
		fx->msn[i] = 1;
	for (uint32_t i = 0; i < FX_REGION; i++)
		fx->region[i] = (uint8_t)(i * 3);
	for (uint32_t i = 0; i < FX_LOCAL; i++)
		fx->local[0][i] = fx->local[1][i] = fx->local[2][i] = fx->local[3][i] = (uint8_t)(i * 5);
	vb_iw_init(&fx->qp, cfg, &ops, fx, fx->sends, FX_SENDS, stage, VB_IW_STAGE_MIN, out, VB_IW_OUT_MIN);
}

void fx_free(struct fx *fx)
{
	free(fx->stage);
	free(fx->out);
	fx->stage = fx->out = NULL;
}

struct vb_work *fx_post(struct fx *fx, uint8_t verb, uint32_t length)
{
	struct vb_work *work = &fx->posted[fx->posts];

	CHECK(fx->posts < FX_LIST);
	*work = (struct vb_work){
	        .cookie = fx->posts++, .verb = verb, .length = length, .remote_addr = FX_VA, .rkey = FX_STAG};
	return work;
}

void fx_output(struct fx *fx)
{
	struct iovec iov[64];
	int n;

	while ((n = vb_iw_output(&fx->qp, iov, 64, 100000)) > 0) {
		size_t total = 0;

		for (int i = 0; i < n; total += iov[i++].iov_len) {
			CHECK(fx->sent_len + iov[i].iov_len <= FX_OUT);
			memcpy(fx->sent + fx->sent_len, iov[i].iov_base, iov[i].iov_len);
			fx->sent_len += (uint32_t)iov[i].iov_len;
		}
		vb_iw_sent(&fx->qp, total);
	}
}

struct vb_ddp fx_header(struct fx *fx, uint8_t opcode)
{
	const struct vb_rdmap_info *info = &vb_rdmap_table[opcode];
	struct vb_ddp h = {.tagged = info->flags & VB_RDMAP_TAGGED,
	                   .last = true,
	                   .dv = 1,
	                   .rv = 1,
	                   .opcode = opcode,
	                   .qn = info->queue};

	if (h.tagged) {
		h.stag = FX_STAG;
		h.to = FX_VA;
	} else {
		h.msn = fx->msn[h.qn];
	}
	return h;
}

uint32_t fx_forge(struct fx *fx, uint8_t *fpdu, const struct vb_ddp *h, const void *rest, uint32_t len)
{
	uint32_t ulpdu = vb_ddp_len(h->tagged) + len, plain = vb_mpa_fpdu_len(ulpdu);
	uint32_t marked = fx->cfg.markers_in ? vb_mpa_marked_len(fx->fed, plain) : plain;
	struct vb_writer w = vb_writer(fpdu + (marked - plain), plain);

	vb_put16(&w, (uint16_t)ulpdu);
	vb_ddp_encode(&w, h);
	vb_put_bytes(&w, rest, len);
	vb_put_zeros(&w, plain - w.pos);
	if (fx->cfg.markers_in)
		vb_mpa_mark(fpdu, plain, fx->fed);
	if (fx->cfg.crc)
		vb_mpa_seal(fpdu, marked);
	return marked;
}

void fx_feed(struct fx *fx, const uint8_t *bytes, uint32_t len)
{
	uint32_t half = len > 40 ? len / 2 : len;

	fx->fed += len;
	vb_iw_input(&fx->qp, bytes, half);
	vb_iw_input(&fx->qp, bytes + half, len - half);
}

void fx_in(struct fx *fx, const struct vb_ddp *h, const void *rest, uint32_t len)
{
	static uint8_t fpdu[70000];

	fx_feed(fx, fpdu, fx_forge(fx, fpdu, h, rest, len));
	if (!h->tagged && h->last && h->qn < VB_QN_COUNT)
		fx->msn[h->qn]++;
}

void fx_expect_terminate(struct fx *fx, enum vb_term term, struct vb_terminate *t)
{
	struct vb_iw_terminate told;
	uint32_t at = 0, len = 0, next;
	struct vb_ddp h;

	fx_output(fx);
	CHECK(vb_iw_over(&fx->qp) && vb_iw_sent_terminate(&fx->qp, &told));
	for (; at < fx->sent_len; at = next) {
		len = (uint32_t)fx->sent[at] << 8 | fx->sent[at + 1];
		next = at + vb_mpa_fpdu_len(len);
		CHECK(next <= fx->sent_len);
		CHECK(!fx->cfg.crc || vb_mpa_sealed(fx->sent + at, next - at));
		if (next == fx->sent_len)
			break;
	}
	struct vb_reader r = vb_reader(fx->sent + at + VB_MPA_LENGTH_LEN, len);

	vb_ddp_decode(&r, &h);
	CHECK(!r.failed && !h.tagged && h.last && h.qn == VB_QN_TERMINATE && h.msn == 1 && h.mo == 0);
	CHECK(h.opcode == VB_RDMAP_TERMINATE && h.dv == 1 && h.rv == 1);
	size_t left = vb_left(&r);

	CHECK(vb_terminate_decode(t, vb_take(&r, left), left));
	if (t->term != term)
		fprintf(stderr, "got \"%s\", not \"%s\"\n", vb_term_text(t->term), vb_term_text((uint16_t)term));
	CHECK(t->term == term);
	CHECK((told.layer << 12 | told.etype << 8 | told.code) == (int)term);
	CHECK(fx->events == 1 && fx->qp.stats.terminates_sent == 1);
	CHECK(fx->dones == fx->taken && fx->receipts == fx->taken_receives);
	struct iovec iov[2];

	CHECK(!vb_iw_room(&fx->qp, iov, 2) && !vb_iw_output(&fx->qp, iov, 2, 1));
}
