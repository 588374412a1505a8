// ends.c - the random walk: queue pairs of two processes, or of one, find each other on the board and are connected
// follows: ibv_modify_qp(3); IBA volume 1, 10.3
// SPDX-License-Identifier: MIT
#include <sys/mman.h>

#include "walk.h"

static struct end ends[END_COUNT];

struct end *end_of(const struct object *o)
{
	return &ends[o->index];
}

struct ibv_ah_attr address_of(const struct object *ctx, const union ibv_gid *gid, uint64_t lid, bool grh)
{
	struct ibv_ah_attr a = {.port_num = 1};

	if (ctx->c.lid)
		a.dlid = (uint16_t)lid;
	if (!ctx->c.lid || grh) {
		a.is_global = 1;
		a.grh = (struct ibv_global_route){.dgid = *gid, .sgid_index = ctx->c.gid_index, .hop_limit = 1};
	}
	return a;
}

static uint32_t end_id(const struct end *e)
{
	return self << 16 | e->o->index;
}

/* --- the memory of an end: the peer's window into it, data to send, data read, receives --- */

static size_t stride(void)
{
	return plan.area + 2 * GUARD;
}

size_t recv_size(void)
{
	return GRH + stride();
}

uint8_t *window_of(const struct end *e, unsigned slot)
{
	return e->memory + slot * stride() + GUARD;
}

uint8_t *out_of(const struct end *e, unsigned slot)
{
	return window_of(e, SLOT_COUNT + slot);
}

uint8_t *back_of(const struct end *e, unsigned slot)
{
	return window_of(e, 2 * SLOT_COUNT + slot);
}

uint8_t *recv_of(const struct end *e, unsigned slot)
{
	return e->memory + 3 * SLOT_COUNT * stride() + slot * recv_size();
}

static size_t window_size(void)
{
	return SLOT_COUNT * stride();
}

uint64_t window_seed(uint32_t end, uint32_t round)
{
	return mix(mix(plan.seed, end), round);
}

static void memory_begin(struct end *e)
{
	e->size = 3 * window_size() + RECV_COUNT * recv_size();
	if (!e->memory) {
		e->memory = mmap(NULL, e->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		e->expect = mmap(NULL, (size_t)SLOT_COUNT * plan.area, PROT_READ | PROT_WRITE,
		                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(e->memory != MAP_FAILED && e->expect != MAP_FAILED);
	} else if (!bytes_hold(e->memory, window_size(), e->old_pattern)) {
		CHECK_FAILED("end %u: its window was written to after ibv_dereg_mr", e->o->index);
	}
	memset(e->memory, GUARD_BYTE, e->size);
	for (unsigned i = 0; i < SLOT_COUNT; i++) {
		fill_bytes(window_of(e, i), plan.area, mix(window_seed(end_id(e), e->round), i));
		memset(out_of(e, i), 0xdd, plan.area); /* not what a receive holds before a message */
	}
}

/* The bytes beside the areas are as they were. No peer can write any more. */
static void memory_end(struct end *e)
{
	for (unsigned i = 0; i < 3 * SLOT_COUNT; i++)
		for (unsigned k = 0; k < GUARD; k++) {
			CHECK(window_of(e, i)[-1 - (int)k] == GUARD_BYTE);
			CHECK(window_of(e, i)[plan.area + k] == GUARD_BYTE);
		}
	e->old_pattern = mix(e->round, end_id(e));
	fill_bytes(e->memory, window_size(), e->old_pattern);
}

/* --- trouble: why requests may fail --- */

static void trouble_add(struct place *p, uint32_t round, uint32_t reason)
{
	uint64_t was = atomic_load(&p->trouble);

	while (was >> 8 == round && !atomic_compare_exchange_weak(&p->trouble, &was, was | reason))
		;
}

/* Called before something that may fail requests of this end or of its peer. */
void end_fails_soon(struct end *e, uint32_t reason)
{
	trouble_add(place_of(end_id(e)), e->round, reason);
	if (reason == WRONG && e->joined)
		trouble_add(place_of(e->peer), e->peer_round, PEER_WRONG);
}

uint32_t end_trouble(const struct end *e)
{
	uint32_t own = (uint32_t)atomic_load(&place_of(end_id(e))->trouble) & 0xff;

	if (e->o->qp.type == IBV_QPT_UD || !e->peer_round)
		return own;
	const struct place *p = place_of(e->peer);
	uint64_t its = atomic_load(&p->trouble);
	uint32_t epoch = board->epoch[e->peer >> 16];

	if (round_in(p->state) != e->peer_round || its >> 8 != e->peer_round || (its & CLOSED) ||
	    epoch != e->peer_epoch || epoch & 1)
		own |= CLOSED;
	return own;
}

/* --- the board --- */

void ends_init(void)
{
	for (uint32_t i = 0; i < plan.ends; i++) {
		struct place *p = place_of(self << 16 | i);
		uint32_t round = round_in(p->state) + 1; /* a process of this number may have been killed */

		ends[i].o = pool_at(QP, i);
		ends[i].round = round;
		pthread_mutex_init(&ends[i].hear_lock, NULL);
		p->trouble = (uint64_t)round << 8 | CLOSED;
		p->state = place_word(round, 0, IDLE);
	}
	if (board->epoch[self] & 1) /* the one before was killed */
		atomic_fetch_add(&board->epoch[self], 1);
}

static void publish_address(struct end *e)
{
	const struct ibv_qp *qp = e->o->p;
	const struct address a = {(uintptr_t)e->memory, (uint64_t)qp->qp_num << 32 | e->psn,
	                          (uint64_t)e->window_mr->rkey << 32 | e->o->qp.type, e->o->ctx->c.lid,
	                          e->o->ctx->c.gid};
	uint64_t words[ADDRESS_WORDS];

	memcpy(words, &a, sizeof(a));
	for (int i = 0; i < ADDRESS_WORDS; i++)
		place_of(end_id(e))->address[i] = words[i];
}

/* The address of an end, if its state is still the same afterwards. */
static bool read_address(uint32_t id, uint64_t state, struct address *a)
{
	struct place *p = place_of(id);
	uint64_t words[ADDRESS_WORDS];

	for (int i = 0; i < ADDRESS_WORDS; i++)
		words[i] = p->address[i];
	memcpy(a, words, sizeof(*a));
	return p->state == state;
}

/* --- making and connecting --- */

static int to_init(struct end *e)
{
	bool ud = e->o->qp.type == IBV_QPT_UD;
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .qp_access_flags = ud ? 0 : ALL_ACCESS};

	return ibv_modify_qp(e->o->p, &attr,
	                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static int to_rtr(struct end *e)
{
	bool rc = e->o->qp.type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = (uint32_t)(e->there.qpn_psn >> 32),
	        .rq_psn = (uint32_t)e->there.qpn_psn,
	        .max_dest_rd_atomic = SLOT_COUNT,
	        .min_rnr_timer = 1,
	        .ah_attr = address_of(e->o->ctx, &e->there.gid, e->there.lid, e->grh),
	};

	if (e->o->qp.type == IBV_QPT_UD)
		return ibv_modify_qp(e->o->p, &attr, IBV_QP_STATE);
	return ibv_modify_qp(e->o->p, &attr,
	                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                             (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
}

static int to_rts(struct end *e)
{
	bool rc = e->o->qp.type == IBV_QPT_RC;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
	                           .sq_psn = e->psn,
	                           .max_rd_atomic = SLOT_COUNT,
	                           .timeout = 18,
	                           .retry_cnt = 7,
	                           .rnr_retry = 7};

	return ibv_modify_qp(
	        e->o->p, &attr,
	        IBV_QP_STATE | IBV_QP_SQ_PSN |
	                (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

/* A new queue pair in INIT, with its memory. */
static bool begin_end(struct dice *d, struct hold *h, struct object *o, enum ibv_qp_type type)
{
	struct end *e = end_of(o);

	o->qp.loose = false;
	o->qp.extended = one_in(d, 3);
	if (!new_qp(d, o, h, type, one_in(d, 3)))
		return false;
	struct ibv_pd *pd = o->up[0]->p;

	e->round++;
	e->psn = roll(d, 1 << 24);
	e->peer = e->peer_round = 0;
	e->joined = e->draining = false;
	e->grh = !plan.fabric || one_in(d, 2);
	e->odd_since = 0;
	e->statuses = 0;
	memory_begin(e);
	e->window_mr = ibv_reg_mr(pd, e->memory, window_size(), ALL_ACCESS | IBV_ACCESS_MW_BIND);
	e->mr = ibv_reg_mr(pd, e->memory + window_size(), e->size - window_size(), IBV_ACCESS_LOCAL_WRITE);
	CHECK(e->window_mr && e->mr);
	for (int i = 0; i < SLOT_COUNT; i++) {
		e->slot[i].state = SLOT_FREE;
		e->slot[i].number = 0;
		e->heard[i] = (struct heard){0};
	}
	for (int i = 0; i < RECV_COUNT; i++)
		e->recv[i].posted = 0;
	place_of(end_id(e))->trouble = (uint64_t)e->round << 8;
	windows_begin(e);
	e->groups = e->had_groups = 0;
	ANSWER(to_init(e), 0);
	publish_address(e);
	return true;
}

static struct ibv_ah *handle_to(const struct end *e, const union ibv_gid *gid, uint64_t lid)
{
	struct ibv_ah_attr attr = address_of(e->o->ctx, gid, lid, e->grh);
	struct ibv_ah *ah = ibv_create_ah(e->o->up[0]->p, &attr);

	CHECK(ah);
	return ah;
}

/* One for each process whose host is known. */
static void handles_on_fabric(struct end *e)
{
	for (unsigned i = 0; i < plan.processes; i++) {
		uint32_t lid = board->host[i].lid;
		uint64_t words[2] = {board->host[i].gid[0], board->host[i].gid[1]};
		union ibv_gid gid;

		memcpy(&gid, words, sizeof(gid));
		if (lid)
			e->ah[i] = handle_to(e, &gid, lid);
	}
}

static void begin_ud(struct end *e)
{
	ANSWER(to_rtr(e), 0);
	ANSWER(to_rts(e), 0);
	if (plan.fabric)
		handles_on_fabric(e);
	else
		e->ah[0] = handle_to(e, &e->o->ctx->c.gid, 0);
	groups_begin(e);
	e->joined = true;
	place_of(end_id(e))->state = place_word(e->round, 0, JOINED);
}

/* Offers a new end to a process; a UD end can be sent to at once. */
void offer_end(struct dice *d)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	struct hold h = {0};
	struct object *o = pick_free(&h, d, QP);
	enum ibv_qp_type type = types[roll(d, 5)];

	if (o && begin_end(d, &h, o, type)) {
		struct end *e = end_of(o);
		struct place *p = place_of(end_id(e));

		if (type == IBV_QPT_UD) {
			begin_ud(e);
		} else {
			p->target = roll(d, plan.processes);
			p->state = place_word(e->round, 0, OFFERED);
		}
	}
	let_go(&h);
}

/* Knows its peer from now on. */
static void end_meets(struct end *e, uint32_t peer, uint32_t peer_round)
{
	e->peer = peer;
	e->peer_round = peer_round;
	e->peer_epoch = board->epoch[peer >> 16];
	for (unsigned i = 0; i < SLOT_COUNT; i++)
		fill_bytes(e->expect + (size_t)i * plan.area, plan.area, mix(window_seed(peer, peer_round), i));
	ANSWER(to_rtr(e), 0);
	ANSWER(to_rts(e), 0);
}

static bool find_offer(struct dice *d, uint32_t *id, uint64_t *state)
{
	uint32_t process = roll(d, plan.processes), first = roll(d, plan.ends);

	for (uint32_t i = 0; i < plan.ends; i++) {
		*id = process << 16 | (first + i) % plan.ends;
		*state = place_of(*id)->state;
		if (phase_in(*state) == OFFERED && place_of(*id)->target == self)
			return true;
	}
	return false;
}

/* Answers an offer. The end does not send before the other has reached RTR. */
void answer_end(struct dice *d)
{
	struct hold h = {0};
	struct object *o = NULL;
	struct address there;
	uint32_t id;
	uint64_t state, taken;

	if (!find_offer(d, &id, &state) || !read_address(id, state, &there) || !(o = pick_free(&h, d, QP))) {
		let_go(&h);
		return;
	}
	taken = place_word(round_in(state), 0, TAKEN);
	if (atomic_compare_exchange_strong(&place_of(id)->state, &state, taken)) {
		if (!begin_end(d, &h, o, (enum ibv_qp_type)(uint32_t)there.rkey_type)) {
			atomic_compare_exchange_strong(&place_of(id)->state, &taken, state);
		} else {
			struct end *e = end_of(o);

			e->there = there;
			end_meets(e, id, round_in(state));
			place_of(end_id(e))->peer_round = round_in(state);
			place_of(end_id(e))->state = place_word(e->round, id, ANSWERED);
			if (!atomic_compare_exchange_strong(&place_of(id)->state, &taken,
			                                    place_word(round_in(state), end_id(e), ANSWERED)))
				end_fails_soon(e, CLOSED);
		}
	}
	let_go(&h);
}

/* The end that was answered connects to the answer. */
static void join_answered(struct end *e, uint32_t peer)
{
	uint64_t its = place_of(peer)->state;

	if (phase_in(its) != ANSWERED || peer_in(its) != end_id(e) || place_of(peer)->peer_round != e->round ||
	    !read_address(peer, its, &e->there)) {
		end_fails_soon(e, CLOSED);
		return;
	}
	end_meets(e, peer, round_in(its));
	e->joined = true;
	place_of(end_id(e))->peer_round = e->peer_round;
	place_of(end_id(e))->state = place_word(e->round, peer, JOINED);
	COUNT(joined);
}

void join_end(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_to_destroy(&h, d, QP);
	struct end *e = o ? end_of(o) : NULL;

	if (e && !o->qp.loose && !e->joined && !(end_trouble(e) & CLOSED)) {
		uint64_t state = place_of(end_id(e))->state;

		if (phase_in(state) == ANSWERED && !e->peer_round)
			join_answered(e, peer_in(state));
		else if (e->peer_round && phase_in(place_of(e->peer)->state) == JOINED)
			e->joined = true;
	}
	let_go(&h);
}

/* --- the end of an end --- */

static bool has_hole(struct end *e)
{
	bool hole = false;

	pthread_mutex_lock(&e->hear_lock);
	for (int i = 0; i < SLOT_COUNT; i++) {
		const struct heard *heard = &e->heard[i];
		uint64_t all = heard->top < 64 ? (1ull << heard->top) - 1 : ~0ull;

		hole |= (heard->seen & all) != all;
	}
	pthread_mutex_unlock(&e->hear_lock);
	return hole;
}

/* RC: a message was sent after the one before it had been acknowledged. So if it is here, all before it must come, too:
 * they are in a CQ, or another thread has just polled them. */
bool end_may_go(struct end *e)
{
	uint64_t none = 0, since;

	if (e->o->qp.type != IBV_QPT_RC || e->o->ctx->c.closed || !has_hole(e)) {
		e->odd_since = 0;
		return true;
	}
	atomic_compare_exchange_strong(&e->odd_since, &none, clock_ms());
	since = e->odd_since;
	CHECK(!since || clock_ms() < since + HARMLESS_MS);
	return false;
}

void end_gone(struct end *e, bool destroyed)
{
	if (!destroyed) {
		end_fails_soon(e, CLOSED);
		return;
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		if (e->ah[i])
			ANSWER(ibv_destroy_ah(e->ah[i]), 0);
		e->ah[i] = NULL;
	}
	groups_end(e);
	windows_end(e);
	ANSWER(ibv_dereg_mr(e->mr), 0);
	ANSWER(ibv_dereg_mr(e->window_mr), 0);
	memory_end(e);
	e->joined = false;
	place_of(end_id(e))->state = place_word(e->round, 0, IDLE);
}

/* Takes an end to ERR or RESET. */
void break_end(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_to_destroy(&h, d, QP);
	struct ibv_qp_attr attr = {.qp_state = one_in(d, 2) ? IBV_QPS_ERR : IBV_QPS_RESET};

	if (o && !o->qp.loose && end_of(o)->joined && end_may_go(end_of(o))) {
		struct end *e = end_of(o);

		end_fails_soon(e, CLOSED);
		ANSWER(ibv_modify_qp(o->p, &attr, IBV_QP_STATE), 0);
		SAME(((struct ibv_qp *)o->p)->state, attr.qp_state);
		e->joined = attr.qp_state == IBV_QPS_ERR; /* where requests are flushed */
	}
	let_go(&h);
}

static enum ibv_qp_state state_now(struct object *o, bool *draining)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	ANSWER(ibv_query_qp(o->p, &attr, IBV_QP_STATE, &init), 0);
	*draining = attr.sq_draining;
	return attr.qp_state;
}

/* To SQD and back. While requests are outstanding, only ERR and RESET can be reached from there. */
void drain_end(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_to_destroy(&h, d, QP);
	struct end *e = o && !o->qp.loose ? end_of(o) : NULL;

	if (e && e->joined && !end_trouble(e)) {
		struct ibv_qp_attr attr = {.qp_state = e->draining ? IBV_QPS_RTS : IBV_QPS_SQD};
		bool draining;
		enum ibv_qp_state was = state_now(o, &draining);
		int err = ibv_modify_qp(o->p, &attr, IBV_QP_STATE);

		COUNT(calls);
		if (!end_trouble(e)) {
			SAME(was, e->draining ? IBV_QPS_SQD : IBV_QPS_RTS);
			CHECK(!err || (err == EINVAL && draining));
		}
		if (!err)
			e->draining = !e->draining;
	}
	let_go(&h);
}
