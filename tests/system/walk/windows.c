// windows.c - the random walk: memory windows of ends, which their peers use and invalidate, and single ones
// follows: IBA volume 1, 10.6 (memory windows of type 1 and 2B); ibv_alloc_mw(3), ibv_bind_mw(3), ibv_post_send(3)
// SPDX-License-Identifier: MIT
#include "walk.h"

/*
 * A connected end has some windows, all but the last of type 2. Each is bound to the whole memory that the peer may use,
 * so the peer may name its key in place of the region's. The key is a word on the board, with the round of the end. The
 * peer holds it while a request that names it is outstanding; then the end does not invalidate it. A SEND with invalidate
 * keeps it until the message has arrived.
 */

enum { UNBOUND, CHANGING, BOUND, UNKNOWN };
#define HELD (1ull << 32)

static uint64_t key_word(uint32_t round, uint32_t key)
{
	return (uint64_t)(round & 0x7fffffff) << 33 | key;
}

static bool is_type_1(unsigned k)
{
	return k == WINDOW_COUNT - 1;
}

static struct place *own_place(const struct end *e)
{
	return place_of(self << 16 | e->o->index);
}

/* --- the beginning and the end of an end --- */

void windows_begin(struct end *e)
{
	struct ibv_pd *pd = e->o->up[0]->p;

	for (unsigned k = 0; k < WINDOW_COUNT; k++) {
		own_place(e)->key[k] = 0;
		e->window[k].state = UNBOUND;
		e->window[k].mw = e->o->qp.type == IBV_QPT_UD
		                          ? NULL
		                          : ibv_alloc_mw(pd, is_type_1(k) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		CHECK(e->o->qp.type == IBV_QPT_UD || e->window[k].mw);
	}
}

/* The queue pair is gone, and with it what was bound by windows of type 2. */
void windows_end(struct end *e)
{
	if (e->window[WINDOW_COUNT - 1].mw && e->window[WINDOW_COUNT - 1].state == BOUND)
		ANSWER(ibv_dereg_mr(e->window_mr), EBUSY);
	for (unsigned k = 0; k < WINDOW_COUNT; k++) {
		own_place(e)->key[k] = 0;
		if (e->window[k].mw)
			ANSWER(ibv_dealloc_mw(e->window[k].mw), 0);
		e->window[k].mw = NULL;
	}
}

/* --- the peer --- */

/* Takes the key of a window of the peer. False: there is none at the moment. */
bool window_hold(struct dice *d, struct end *e, bool to_invalidate, struct held_window *held)
{
	unsigned k = roll(d, to_invalidate ? WINDOW_COUNT - 1 : WINDOW_COUNT);
	uint64_t word = place_of(e->peer)->key[k];

	if (!word || word & HELD || word >> 33 != (e->peer_round & 0x7fffffff))
		return false;
	uint32_t key = (uint32_t)word;

	if (!atomic_compare_exchange_strong(&place_of(e->peer)->key[k], &word, word | HELD))
		return false; /* another thread has it, or the end changes it: then *held is as it was, and ends no hold */
	*held = (struct held_window){k, key, true};
	return true;
}

/* The end may be another one by now. */
void window_release(struct end *e, struct held_window *held)
{
	uint64_t word = key_word(e->peer_round, held->key) | HELD;

	if (held->is)
		atomic_compare_exchange_strong(&place_of(e->peer)->key[held->index], &word, word & ~HELD);
	held->is = false;
}

/* --- requests --- */

static int post_bind(struct dice *d, struct end *e, unsigned k, struct slot *s, uint64_t id)
{
	struct ibv_mw *mw = e->window[k].mw;
	struct ibv_mw_bind bind = {.wr_id = id,
	                           .send_flags = IBV_SEND_SIGNALED,
	                           .bind_info = {e->window_mr, (uintptr_t)e->memory, e->window_mr->length,
	                                         ALL_ACCESS & ~IBV_ACCESS_LOCAL_WRITE}};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .opcode = IBV_WR_BIND_MW,
	                         .send_flags = IBV_SEND_SIGNALED | (one_in(d, 2) ? IBV_SEND_FENCE : 0),
	                         .bind_mw = {mw, ibv_inc_rkey(mw->rkey), bind.bind_info}},
	                   *bad;

	if (!is_type_1(k)) {
		s->seed = wr.bind_mw.rkey;
		return e->o->qp.extended && one_in(d, 2) ? post_ex(e, &wr) : ibv_post_send(e->o->p, &wr, &bad);
	}
	return ibv_bind_mw(e->o->p, mw, &bind); /* sets mw->rkey */
}

static void bind_one(struct dice *d, struct end *e, unsigned k, int from)
{
	unsigned index;
	struct slot *s = begin_slot(d, e, &index);

	if (!s) {
		e->window[k].state = from;
		return;
	}
	s->op = IBV_WR_BIND_MW;
	s->offset = k;
	s->state = SLOT_BUSY;
	ANSWER(post_bind(d, e, k, s, id_make(ID_SLOT, e->o->index, e->round, index)), 0);
}

static void invalidate_one(struct dice *d, struct end *e, unsigned k)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .invalidate_rkey = e->window[k].mw->rkey},
	                   *bad;
	unsigned index;
	struct slot *s = begin_slot(d, e, &index);

	if (!s) {
		e->window[k].state = UNKNOWN; /* it stays bound, and nobody uses it */
		return;
	}
	s->op = IBV_WR_LOCAL_INV;
	s->offset = k;
	s->state = SLOT_BUSY;
	wr.wr_id = id_make(ID_SLOT, e->o->index, e->round, index);
	ANSWER(ibv_post_send(e->o->p, &wr, &bad), 0);
}

/* Binds a window that is not bound, or ends a binding that the peer does not use: type 1 by the next one. */
void change_window(struct dice *d)
{
	struct hold h = {0};
	struct end *e = pick_joined(&h, d, false);
	unsigned k = roll(d, WINDOW_COUNT);
	int unbound = UNBOUND, bound = BOUND;

	if (e && !end_trouble(e) && atomic_compare_exchange_strong(&e->window[k].state, &unbound, CHANGING)) {
		bind_one(d, e, k, UNBOUND);
	} else if (e && !end_trouble(e) && e->window[k].state == BOUND) {
		uint64_t word = own_place(e)->key[k];

		/* who takes the word off the board is the one who changes the window */
		if (word && !(word & HELD) && atomic_compare_exchange_strong(&own_place(e)->key[k], &word, 0) &&
		    atomic_compare_exchange_strong(&e->window[k].state, &bound, CHANGING)) {
			if (is_type_1(k))
				bind_one(d, e, k, UNKNOWN);
			else
				invalidate_one(d, e, k);
		}
	}
	let_go(&h);
}

/* --- completions --- */

void window_changed(struct end *e, const struct slot *s)
{
	unsigned k = s->offset;

	CHECK(e->window[k].state == CHANGING);
	COUNT(windows);
	if (s->op == IBV_WR_LOCAL_INV) {
		e->window[k].state = UNBOUND;
		return;
	}
	if (!is_type_1(k))
		e->window[k].mw->rkey = (uint32_t)s->seed;
	e->window[k].state = BOUND;
	own_place(e)->key[k] = key_word(e->round, e->window[k].mw->rkey);
}

/* The request had an error: nobody knows whether the window is bound. */
void window_lost(struct end *e, const struct slot *s)
{
	e->window[s->offset].state = UNKNOWN;
}

/* A message has arrived that invalidates a key. */
void window_invalidated(struct end *e, uint32_t key)
{
	for (unsigned k = 0; k < WINDOW_COUNT - 1; k++) {
		uint64_t word = key_word(e->round, key) | HELD;

		if (!atomic_compare_exchange_strong(&own_place(e)->key[k], &word, 0))
			continue;
		CHECK(e->window[k].state == BOUND && e->window[k].mw->rkey == key);
		e->window[k].state = UNBOUND;
		COUNT(invalidated);
		return;
	}
	CHECK_FAILED("end %u: the key %#x was invalidated, and no peer held it", e->o->index, key);
}

/* --- single windows --- */

void make_mw(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, MW), *pd = o ? pick(&h, d, PD) : NULL;

	if (pd && one_in(d, 8)) {
		REFUSED(ibv_alloc_mw(pd->p, (enum ibv_mw_type)(one_in(d, 2) ? 0 : 3 + roll(d, 1000))), EINVAL);
	} else if (pd) {
		enum ibv_mw_type type = one_in(d, 2) ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
		struct ibv_mw *mw = ibv_alloc_mw(pd->p, type);

		COUNT(calls);
		CHECK(mw && mw->pd == pd->p && mw->context == pd->ctx->p && mw->type == type);
		object_born(o, mw, pd->ctx, pd, NULL, NULL, NULL);
	}
	let_go(&h);
}
