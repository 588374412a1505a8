// arrivals.c - the random walk: completions are polled by any thread, and compared with what the model expects
// follows: ibv_poll_cq(3), ibv_create_cq_ex(3); IBA volume 1, 9.7.5.2 (errors), 10.8.5
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <unistd.h>

#include "note.h"
#include "walk.h"

/* --- status --- */

static uint32_t bit(enum ibv_wc_status status)
{
	return 1u << status;
}

/* The errors that a request of this end may have, for these reasons. */
static uint32_t send_errors(uint32_t reasons, const struct slot *s)
{
	uint32_t allowed = bit(IBV_WC_WR_FLUSH_ERR);

	if (s && s->must)
		allowed = reasons & (CLOSED | PEER_WRONG) ? allowed | bit(s->must) : bit(s->must);
	if (reasons & (CLOSED | PEER_WRONG))
		allowed |= bit(IBV_WC_RETRY_EXC_ERR);
	return allowed;
}

/* RC: the queue pair is in ERR. Over the network the completion can be polled a moment before, while the thread that
 * posted the request takes the queue pair there. */
static void wait_for_error(const struct end *e)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	for (uint64_t end = clock_ms() + HARMLESS_MS;; usleep(100)) {
		ANSWER(ibv_query_qp(e->o->p, &attr, IBV_QP_STATE, &init), 0);
		if (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_RESET)
			return;
		if (clock_ms() > end)
			CHECK_FAILED("end %u: a request failed, but the state is %d", e->o->index, attr.qp_state);
	}
}

/* The first error of a queue pair may still be in another CQ than what was flushed after it, or with another thread. */
static uint32_t all_statuses(const struct end *e)
{
	struct ibv_wc wc;

	usleep(300000);
	uint32_t seen = e->statuses;

	for (int i = 1; i <= 2; i++)
		while (ibv_poll_cq(e->o->up[i]->p, 1, &wc) > 0)
			seen |= wc.qp_num == ((struct ibv_qp *)e->o->p)->qp_num ? bit(wc.status) : 0;
	return seen;
}

/* What a request was: its operation, its key if that is a window's, and its place in the peer's memory. */
static const char *request_text(char *to, size_t n, const struct slot *s)
{
	if (!s)
		return "";
	snprintf(to, n, ", operation %d with %s %#x, %u bytes at %u", s->op, s->window.is ? "window" : "region",
	         s->window.is ? s->window.key : 0, s->length, s->offset);
	return to;
}

/* s: the request, or NULL: a receive, or a part of a chain. */
static void check_error(struct end *e, const struct ibv_wc *wc, uint32_t allowed, const struct slot *s)
{
	uint32_t reasons = end_trouble(e);
	char text[128];

	e->statuses |= bit(wc->status);
	if (!reasons || !(allowed & bit(wc->status)))
		CHECK_FAILED(
		        "end %u: %s of %s %#x%s, reasons %#x, allowed %#x, peer %#x, its queue pair %#x, state %d, statuses %#x",
		        e->o->index, ibv_wc_status_str(wc->status), e->o->qp.type == IBV_QPT_RC ? "RC" : "UC or UD",
		        wc->qp_num, request_text(text, sizeof(text), s), reasons, allowed, e->peer,
		        (uint32_t)(e->there.qpn_psn >> 32), ((struct ibv_qp *)e->o->p)->state, all_statuses(e));
	if (e->o->qp.type == IBV_QPT_RC)
		wait_for_error(e);
}

/* --- requests --- */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

static void check_read(const struct end *e, unsigned index, const struct slot *s)
{
	const uint8_t *back = back_of(e, index), *expect = e->expect + (size_t)index * plan.area + s->offset;

	for (uint32_t i = 0; i < s->length; i++)
		if (back[i] != expect[i])
			CHECK_FAILED("end %u, slot %u, peer %#x: byte %u of a read of %u at %u is %#x, not %#x",
			             e->o->index, index, e->peer, i, s->length, s->offset, back[i], expect[i]);
	for (uint32_t i = s->length; i < plan.area; i++)
		CHECK(back[i] == UNTOUCHED);
}

static void check_atomic(struct end *e, unsigned index, const struct slot *s)
{
	uint64_t got, after = s->before;

	memcpy(&got, back_of(e, index), 8);
	if (got != s->before)
		CHECK_FAILED("end %u, slot %u, peer %#x: an atomic returned %#llx, not %#llx", e->o->index, index,
		             e->peer, (unsigned long long)got, (unsigned long long)s->before);
	if (s->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		after += s->seed;
	else if (!s->chained) /* the comparison held */
		after = s->seed;
	memcpy(e->expect + (size_t)index * plan.area + s->offset, &after, 8);
	for (uint32_t i = 8; i < plan.area; i++)
		CHECK(back_of(e, index)[i] == UNTOUCHED);
	COUNT(atomics);
}

static void slot_succeeded(struct end *e, unsigned index, struct slot *s)
{
	switch (s->op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		fill_bytes(e->expect + (size_t)index * plan.area + s->offset, s->length, s->seed);
		COUNT(written);
		break;
	case IBV_WR_RDMA_READ:
		check_read(e, index, s);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		check_atomic(e, index, s);
		break;
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		window_changed(e, s);
		break;
	default:
		COUNT(sent);
	}
}

static void slot_completed(struct end *e, unsigned index, const struct ibv_wc *wc)
{
	struct slot *s = &e->slot[index];
	uint32_t busy = SLOT_BUSY;

	CHECK(index < SLOT_COUNT);
	if (!atomic_compare_exchange_strong(&s->state, &busy, SLOT_HELD))
		CHECK_FAILED("end %u: slot %u completes twice", e->o->index, index);
	if (wc->status == IBV_WC_SUCCESS) {
		CHECK(!s->must);
		SAME(wc->opcode, wc_opcode(s->op));
		slot_succeeded(e, index, s);
	} else {
		check_error(e, wc, send_errors(end_trouble(e), s), s);
		if (!s->must && (s->op == IBV_WR_BIND_MW || s->op == IBV_WR_LOCAL_INV))
			window_lost(e, s);
	}
	if (s->op != IBV_WR_SEND_WITH_INV)
		window_release(e, &s->window);
	s->state = SLOT_FREE;
}

/* --- messages --- */

/* RC: each number comes once. */
static void hear_number(struct end *e, uint32_t slot, uint32_t number)
{
	struct heard *heard = &e->heard[slot];

	CHECK(slot < SLOT_COUNT && number > 0);
	if (e->o->qp.type != IBV_QPT_RC)
		return;
	pthread_mutex_lock(&e->hear_lock);
	if (number > heard->top) { /* bit 0 is the number top */
		uint64_t by = number - heard->top;

		heard->seen = by < 64 ? heard->seen << by : 0;
		heard->seen |= 1;
		heard->top = number;
	} else if (heard->top - number < 64) {
		uint64_t mask = 1ull << (heard->top - number);

		if (heard->seen & mask)
			CHECK_FAILED("end %u: message %u of slot %u of %#x came twice", e->o->index, number, slot,
			             e->peer);
		heard->seen |= mask;
	}
	pthread_mutex_unlock(&e->hear_lock);
}

static void check_note(struct end *e, const struct ibv_wc *wc, const struct note *n, const uint8_t *bytes)
{
	bool ud = e->o->qp.type == IBV_QPT_UD;

	if (n->magic != NOTE_MAGIC)
		CHECK_FAILED("end %u, peer %#x, reasons %#x, SRQ %p: %#x in place of a note; %u bytes", e->o->index,
		             e->peer, end_trouble(e), (void *)((struct ibv_qp *)e->o->p)->srq, n->magic, wc->byte_len);
	SAME(wc->byte_len, n->length + (ud ? GRH : 0));
	CHECK(ud || (n->from == e->peer && n->from_round == e->peer_round));
	if (!bytes_hold(bytes, n->length - sizeof(*n), n->seed))
		CHECK_FAILED("end %u: a message of %u bytes from %#x is not as it was sent", e->o->index, n->length,
		             n->from);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		SAME(ntohl(wc->imm_data), n->slot << 24 | (n->number & 0xffffff));
	SAME(!n->key, !(wc->wc_flags & IBV_WC_WITH_INV));
	if (n->key) {
		SAME(wc->invalidated_rkey, n->key);
		window_invalidated(e, n->key);
	}
	if (ud) {
		SAME(!!(wc->wc_flags & IBV_WC_GRH), n->grh);
		group_heard(e, n->group);
	}
}

/* The buffer of a receive, with guard bytes behind the message. A message of UC that has lost its end leaves its beginning
 * in the receive, which the next message uses (IBA 9.8.2.2). */
static void check_message(struct end *e, const struct ibv_wc *wc, uint8_t *buffer)
{
	bool ud = e->o->qp.type == IBV_QPT_UD;
	const uint8_t *at = buffer + (ud ? GRH : 0);
	struct note n;

	CHECK(wc->byte_len >= sizeof(n) + (ud ? GRH : 0) && wc->byte_len <= GRH + plan.area);
	memcpy(&n, at, sizeof(n));
	check_note(e, wc, &n, at + sizeof(n));
	for (size_t i = wc->byte_len; e->o->qp.type != IBV_QPT_UC && i < GRH + plan.area; i++)
		CHECK(buffer[i] == GUARD_BYTE);
	hear_number(e, n.slot, n.number);
}

static void receive_completed(struct end *e, const struct ibv_wc *wc, uint8_t *buffer)
{
	if (wc->status != IBV_WC_SUCCESS) {
		check_error(e, wc,
		            bit(IBV_WC_WR_FLUSH_ERR) |
		                    (end_trouble(e) & PEER_WRONG ? bit(IBV_WC_LOC_LEN_ERR) | bit(IBV_WC_LOC_ACCESS_ERR)
		                                                 : 0),
		            NULL);
	} else if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		CHECK(wc->wc_flags & IBV_WC_WITH_IMM);
		hear_number(e, ntohl(wc->imm_data) >> 24, ntohl(wc->imm_data) & 0xffffff);
	} else {
		SAME(wc->opcode, IBV_WC_RECV);
		check_message(e, wc, buffer);
	}
	memset(buffer, GUARD_BYTE, GRH + plan.area);
}

/* --- finding what a completion is about; it may be of an object that is gone meanwhile --- */

static void end_completion(const struct ibv_wc *wc, unsigned kind, uint32_t index, uint32_t round, unsigned slot)
{
	struct object *o = pool_at(QP, index);
	struct end *e = end_of(o);

	pthread_rwlock_rdlock(&o->lock);
	if (o->alive && !o->qp.loose && (e->round & 0xffffff) == round) {
		SAME(wc->qp_num, ((struct ibv_qp *)o->p)->qp_num);
		if (kind == ID_SLOT) {
			slot_completed(e, slot, wc);
		} else if (kind == ID_PART) {
			CHECK(wc->status != IBV_WC_SUCCESS);
			check_error(e, wc, send_errors(end_trouble(e), NULL), NULL);
		} else {
			CHECK(slot < RECV_COUNT && e->recv[slot].posted);
			receive_completed(e, wc, recv_of(e, slot));
			e->recv[slot].posted = 0;
		}
	}
	pthread_rwlock_unlock(&o->lock);
}

/* The end whose queue pair has this number. */
static struct end *end_by_number(uint32_t qpn)
{
	for (uint32_t i = 0; i < plan.ends; i++) {
		struct object *o = pool_at(QP, i);

		pthread_rwlock_rdlock(&o->lock);
		if (o->alive && ((struct ibv_qp *)o->p)->qp_num == qpn)
			return end_of(o);
		pthread_rwlock_unlock(&o->lock);
	}
	return NULL;
}

static void srq_completion(const struct ibv_wc *wc, uint32_t index, uint32_t round, unsigned slot)
{
	struct object *o = pool_at(SRQ, index);
	struct end *e = NULL;

	pthread_rwlock_rdlock(&o->lock);
	if (o->alive && (o->round & 0xffffff) == round) {
		uint8_t *buffer = o->srq.memory + slot * recv_size();

		CHECK(slot < RECV_COUNT && o->srq.recv[slot].posted);
		e = end_by_number(wc->qp_num);
		if (e && !e->o->qp.loose)
			receive_completed(e, wc, buffer);
		else
			memset(buffer, GUARD_BYTE, GRH + plan.area);
		o->srq.recv[slot].posted = 0;
	}
	if (e)
		pthread_rwlock_unlock(&e->o->lock);
	pthread_rwlock_unlock(&o->lock);
}

static void loose_completion(const struct ibv_wc *wc, uint32_t index, uint32_t round)
{
	struct object *o = pool_at(QP, index);

	pthread_rwlock_rdlock(&o->lock);
	if (o->alive && (o->round & 0xffffff) == round && o->qp.state != IBV_QPS_RESET) {
		SAME(wc->status, IBV_WC_WR_FLUSH_ERR);
		SAME(wc->qp_num, ((struct ibv_qp *)o->p)->qp_num);
	}
	pthread_rwlock_unlock(&o->lock);
}

void completion_seen(const struct ibv_wc *wc)
{
	unsigned kind = (unsigned)(wc->wr_id >> 60);
	uint32_t index = (uint32_t)(wc->wr_id >> 44) & 0xffff, round = (uint32_t)(wc->wr_id >> 16) & 0xffffff;
	unsigned slot = (unsigned)(wc->wr_id & 0xffff);

	switch (kind) {
	case ID_SLOT:
	case ID_PART:
	case ID_RECV:
		end_completion(wc, kind, index, round, slot);
		break;
	case ID_SRQ:
		srq_completion(wc, index, round, slot);
		break;
	case ID_LOOSE:
		loose_completion(wc, index, round);
		break;
	default:
		CHECK_FAILED("wr_id %#llx was never posted", (unsigned long long)wc->wr_id);
	}
}

/* --- polling --- */

#define BATCH 16

static int poll_extended(struct ibv_cq *cq, struct ibv_wc *wc)
{
	struct ibv_cq_ex *ex = (struct ibv_cq_ex *)cq;
	struct ibv_poll_cq_attr attr = {0};
	int n = 0, err = ibv_start_poll(ex, &attr);

	if (err) {
		SAME(err, ENOENT);
		return 0;
	}
	do {
		wc[n] = (struct ibv_wc){.wr_id = ex->wr_id, .status = ex->status, .qp_num = ibv_wc_read_qp_num(ex)};
		if (ex->status == IBV_WC_SUCCESS) {
			wc[n].opcode = ibv_wc_read_opcode(ex);
			wc[n].byte_len = ibv_wc_read_byte_len(ex);
			wc[n].wc_flags = ibv_wc_read_wc_flags(ex);
			wc[n].imm_data = ibv_wc_read_imm_data(ex);
		}
		n++;
	} while (n < BATCH && !(err = ibv_next_poll(ex)));
	CHECK(!err || err == ENOENT);
	ibv_end_poll(ex);
	return n;
}

/* Whether there was a completion. The CQ is held for reading. */
bool poll_cq_once(struct dice *d, struct object *o)
{
	struct ibv_wc wc[BATCH];
	int n;

	if (o->cq.single && pthread_mutex_trylock(&o->cq.one))
		return false;
	/* an extended CQ may be polled by either call */
	n = o->cq.extended && roll(d, 3) ? poll_extended(o->p, wc) : ibv_poll_cq(o->p, 1 + (int)roll(d, BATCH), wc);
	if (o->cq.single)
		pthread_mutex_unlock(&o->cq.one);
	COUNT(calls);
	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		completion_seen(&wc[i]);
	return n;
}

void poll_some(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, CQ);

	if (o)
		poll_cq_once(d, o);
	let_go(&h);
}
