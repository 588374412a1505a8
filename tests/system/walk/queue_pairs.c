// queue_pairs.c - the random walk: queue pairs are made, and single ones go from state to state, with right and wrong
// attributes
// follows: IBA volume 1, 10.3, 11.2.5.2; ibv_create_qp_ex(3), ibv_modify_qp(3), ibv_post_recv(3)
// SPDX-License-Identifier: MIT
#include "walk.h"

/* --- making --- */

bool room_take(struct object *cq, int n)
{
	if (atomic_fetch_add_explicit(&cq->cq.taken, n, memory_order_relaxed) + n <= (int)cq->cq.least)
		return true;
	count_by(&cq->cq.taken, -n);
	return false;
}

/* The room that a queue pair had in its CQs. Its completions have left them. */
void qp_room_back(struct object *o)
{
	if (o->qp.type == IBV_QPT_XRC_RECV)
		return;
	count_by(&o->up[1]->cq.taken, -SEND_DEPTH);
	if (o->qp.type != IBV_QPT_XRC_SEND)
		count_by(&o->up[2]->cq.taken, -RECV_COUNT);
}

static uint64_t send_ops(enum ibv_qp_type type)
{
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type != IBV_QPT_UD)
		ops |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW;
	if (type == IBV_QPT_RC)
		ops |= IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	return ops;
}

/* Both CQs with room for all completions of the queue pair, so that neither overruns. */
static bool room_take_both(struct object *scq, struct object *rcq)
{
	if (!scq || !rcq || !room_take(scq, SEND_DEPTH))
		return false;
	if (room_take(rcq, RECV_COUNT))
		return true;
	count_by(&scq->cq.taken, -SEND_DEPTH);
	return false;
}

static void check_made(const struct ibv_qp *qp, const struct ibv_qp_init_attr_ex *a, struct object *o)
{
	CHECK(qp);
	CHECK(qp->pd == a->pd && qp->send_cq == a->send_cq && qp->recv_cq == a->recv_cq && qp->srq == a->srq);
	CHECK(qp->qp_type == a->qp_type && qp->state == IBV_QPS_RESET && qp->qp_context == o);
	CHECK(qp->qp_num > 1 && qp->qp_num < 1 << 24);
	CHECK(a->cap.max_send_wr >= SEND_DEPTH && a->cap.max_send_sge >= 4 && a->cap.max_inline_data >= 64);
	CHECK(a->srq || (a->cap.max_recv_wr >= RECV_COUNT && a->cap.max_recv_sge >= 2));
}

struct ibv_qp *new_qp(struct dice *d, struct object *o, struct hold *h, enum ibv_qp_type type, bool use_srq)
{
	struct object *pd = pick(h, d, PD), *ctx = pd ? pd->ctx : NULL;
	struct object *scq = pd ? pick_of(h, d, CQ, ctx) : NULL, *rcq = scq ? pick_of(h, d, CQ, ctx) : NULL;
	struct object *srq = rcq && use_srq ? pick_of(h, d, SRQ, ctx) : NULL;

	if (srq && srq->srq.xrc)
		srq = NULL;

	if (pd && ctx->c.iwarp && !o->qp.loose) /* connected by other means */
		return NULL;
	if (!room_take_both(scq, rcq))
		return NULL;
	struct ibv_qp_init_attr_ex a = {
	        .qp_context = o,
	        .send_cq = scq->p,
	        .recv_cq = rcq->p,
	        .srq = srq ? srq->p : NULL,
	        .cap = {SEND_DEPTH, RECV_COUNT, 4, 2, 64},
	        .qp_type = type,
	        .sq_sig_all = 0,
	        .comp_mask = IBV_QP_INIT_ATTR_PD | (o->qp.extended ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
	        .pd = pd->p,
	        .send_ops_flags = o->qp.extended ? send_ops(type) : 0,
	};
	struct ibv_context *context = ((struct ibv_pd *)pd->p)->context;

	if (ctx->c.iwarp && type != IBV_QPT_RC) {
		REFUSED(ibv_create_qp_ex(context, &a), EOPNOTSUPP);
		count_by(&scq->cq.taken, -SEND_DEPTH);
		count_by(&rcq->cq.taken, -RECV_COUNT);
		return NULL;
	}
	struct ibv_qp *qp = ibv_create_qp_ex(context, &a);

	COUNT(calls);
	check_made(qp, &a, o);
	CHECK(!o->qp.extended == !ibv_qp_to_qp_ex(qp));
	o->qp.type = type;
	o->qp.state = IBV_QPS_RESET;
	object_born(o, qp, ctx, pd, scq, rcq, srq);
	return qp;
}

static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

void make_loose(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, QP);

	if (o) {
		o->qp.loose = true;
		o->qp.extended = one_in(d, 3);
		new_qp(d, o, &h, types[roll(d, 4)], one_in(d, 4));
	}
	let_go(&h);
}

/* --- changes of state: the tables of IBA volume 1, 11.2.5.2, with the Linux kernel's optional attributes --- */

#define STATE IBV_QP_STATE
#define SPOT (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define ACCESS IBV_QP_ACCESS_FLAGS
#define ROUTE (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define TIMERS (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY)
#define ALT IBV_QP_ALT_PATH
#define CUR IBV_QP_CUR_STATE
#define MIG IBV_QP_PATH_MIG_STATE
#define RNR IBV_QP_MIN_RNR_TIMER
#define MINE IBV_QP_MAX_QP_RD_ATOMIC
#define THEIRS IBV_QP_MAX_DEST_RD_ATOMIC
#define NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY
#define RATE IBV_QP_RATE_LIMIT

struct step {
	int from, to;
	int must[5], may[5]; /* RC, UC, UD, XRC_SEND, XRC_RECV */
};
#define FIRST (SPOT | ACCESS)
#define LATER (CUR | ALT | ACCESS | MIG)
#define BEFORE (ALT | ACCESS | IBV_QP_PKEY_INDEX)
/* deviates: the kernel has no attributes of the other side for the two ends of XRC here; perftest sets them */
static const struct step steps[] = {
        {IBV_QPS_RESET, IBV_QPS_INIT, {FIRST, FIRST, SPOT | IBV_QP_QKEY, FIRST, FIRST}, {0, 0, 0, 0, 0}},
        {IBV_QPS_INIT, IBV_QPS_INIT, {0, 0, 0, 0, 0}, {FIRST, FIRST, SPOT | IBV_QP_QKEY, FIRST, FIRST}},
        {IBV_QPS_INIT,
         IBV_QPS_RTR,
         {ROUTE | RNR | THEIRS, ROUTE, 0, ROUTE, ROUTE | RNR | THEIRS},
         {BEFORE, BEFORE, IBV_QP_PKEY_INDEX | IBV_QP_QKEY, BEFORE | RNR | THEIRS, BEFORE}},
        {IBV_QPS_RTR,
         IBV_QPS_RTS,
         {TIMERS | IBV_QP_SQ_PSN | MINE, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, TIMERS | IBV_QP_SQ_PSN | MINE,
          IBV_QP_TIMEOUT | IBV_QP_SQ_PSN},
         {LATER | RNR | RATE, LATER | RATE, CUR | IBV_QP_QKEY | RATE, LATER | RATE, LATER | RNR | TIMERS | MINE}},
        {IBV_QPS_RTS,
         IBV_QPS_RTS,
         {0, 0, 0, 0, 0},
         {LATER | RNR | RATE, LATER | RATE, CUR | IBV_QP_QKEY | RATE, LATER | RATE, LATER | RNR}},
        {IBV_QPS_RTS, IBV_QPS_SQD, {0, 0, 0, 0, 0}, {NOTIFY, NOTIFY, NOTIFY, NOTIFY, NOTIFY}},
        {IBV_QPS_SQD, IBV_QPS_RTS, {0, 0, 0, 0, 0}, {LATER | RNR, LATER, CUR | IBV_QP_QKEY, LATER, LATER | RNR}},
        {IBV_QPS_SQD,
         IBV_QPS_SQD,
         {0, 0, 0, 0, 0},
         {IBV_QP_PORT | IBV_QP_AV | TIMERS | MINE | THEIRS | BEFORE | RNR | MIG, IBV_QP_AV | BEFORE | MIG,
          IBV_QP_PKEY_INDEX | IBV_QP_QKEY, IBV_QP_PORT | IBV_QP_AV | TIMERS | MINE | BEFORE | MIG,
          IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | THEIRS | BEFORE | RNR | MIG}},
};

static unsigned type_index(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return 0;
	case IBV_QPT_UC:
		return 1;
	case IBV_QPT_XRC_SEND:
		return 3;
	case IBV_QPT_XRC_RECV:
		return 4;
	default:
		return 2;
	}
}

static const struct step *step_of(int from, int to)
{
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
		if (steps[i].from == from && steps[i].to == to)
			return &steps[i];
	return NULL;
}

static bool mask_is_right(enum ibv_qp_type type, int from, int to, int mask)
{
	const struct step *s = step_of(from, to);
	unsigned t = type_index(type);

	mask &= ~STATE;
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return !mask;
	return s && (mask & s->must[t]) == s->must[t] && !(mask & ~(s->must[t] | s->may[t]));
}

/* iWARP: the connection makes the changes, and attributes without a meaning there are ignored. */
static bool iwarp_allows(int from, int to)
{
	static const char *const next[] = {[IBV_QPS_RESET] = "RI", [IBV_QPS_INIT] = "RITE", [IBV_QPS_ERR] = "RE"};
	static const char letters[] = {
	        [IBV_QPS_RESET] = 'R', [IBV_QPS_INIT] = 'I', [IBV_QPS_RTR] = 'T', [IBV_QPS_RTS] = 'S',
	        [IBV_QPS_SQD] = 'D',   [IBV_QPS_SQE] = 'Q',  [IBV_QPS_ERR] = 'E'};

	return to >= 0 && to <= IBV_QPS_ERR && strchr(next[from], letters[to]);
}

/* Right values for everything. The queue pair is connected to itself. */
static struct ibv_qp_attr right_values(const struct object *o)
{
	return (struct ibv_qp_attr){
	        .cur_qp_state = o->qp.state,
	        .port_num = 1,
	        .qkey = QKEY,
	        .qp_access_flags = ALL_ACCESS,
	        .path_mtu = IBV_MTU_1024,
	        .path_mig_state = IBV_MIG_MIGRATED,
	        .dest_qp_num = ((struct ibv_qp *)o->p)->qp_num,
	        .max_rd_atomic = 4,
	        .max_dest_rd_atomic = 4,
	        .min_rnr_timer = 1,
	        .timeout = 14,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	        .rate_limit = 1000000,
	        .ah_attr = address_of(o->ctx, &o->ctx->c.gid, o->ctx->c.lid, true),
	};
}

/* Makes the value of one attribute wrong, and says which; 0: that attribute has no wrong value. */
static int spoil(struct dice *d, struct ibv_qp_attr *a, uint32_t pkeys)
{
	int bit = 1 << roll(d, 21);

	switch (bit) {
	case CUR:
		a->cur_qp_state = (a->cur_qp_state + 1) % (IBV_QPS_ERR + 1);
		return bit;
	case IBV_QP_PKEY_INDEX:
		a->pkey_index = (uint16_t)(pkeys + roll(d, 65536 - pkeys));
		return bit;
	case IBV_QP_PORT:
		a->port_num = one_in(d, 2) ? 0 : (uint8_t)(2 + roll(d, 254));
		return bit;
	case IBV_QP_AV:
		if (one_in(d, 2))
			a->ah_attr.port_num = 2;
		else
			a->ah_attr.grh.sgid_index = (uint8_t)(128 + roll(d, 128));
		return bit;
	case IBV_QP_PATH_MTU:
		a->path_mtu = one_in(d, 2) ? 0 : (enum ibv_mtu)(6 + roll(d, 1000));
		return bit;
	case IBV_QP_TIMEOUT:
		a->timeout = (uint8_t)(32 + roll(d, 224));
		return bit;
	case IBV_QP_RETRY_CNT:
		a->retry_cnt = (uint8_t)(8 + roll(d, 248));
		return bit;
	case IBV_QP_RNR_RETRY:
		a->rnr_retry = (uint8_t)(8 + roll(d, 248));
		return bit;
	case RNR:
		a->min_rnr_timer = (uint8_t)(32 + roll(d, 224));
		return bit;
	case MINE:
		a->max_rd_atomic = (uint8_t)(17 + roll(d, 239));
		return bit;
	case THEIRS:
		a->max_dest_rd_atomic = (uint8_t)(17 + roll(d, 239));
		return bit;
	case MIG:
		a->path_mig_state = IBV_MIG_ARMED;
		return bit;
	default:
		return 0;
	}
}

static int next_mask(struct dice *d, const struct object *o, int next)
{
	const struct step *s = step_of(o->qp.state, next);
	unsigned t = type_index(o->qp.type);
	int mask = STATE | (s ? s->must[t] : 0);

	if (s && one_in(d, 2))
		mask |= s->may[t] & (int)dice_word(d) & ~ALT;
	if (one_in(d, 4))
		mask ^= 1 << roll(d, 26);
	return mask;
}

static void check_state(struct object *o, const struct ibv_qp_attr *set, int mask)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp = o->p;

	ANSWER(ibv_query_qp(qp, &attr, ((1 << 21) - 1) | RATE, &init), 0);
	/* iWARP has one state for both */
	SAME(attr.qp_state, o->ctx->c.iwarp && o->qp.state == IBV_QPS_RESET ? IBV_QPS_INIT : o->qp.state);
	SAME(__atomic_load_n(&qp->state, __ATOMIC_RELAXED), attr.qp_state); /* as in rdma-core */
	CHECK(init.qp_type == o->qp.type && init.qp_context == o && init.send_cq == qp->send_cq && init.srq == qp->srq);
	if (o->ctx->c.iwarp)
		return;
	if (mask & IBV_QP_QKEY)
		SAME(attr.qkey, set->qkey);
	if (mask & IBV_QP_DEST_QPN)
		SAME(attr.dest_qp_num, set->dest_qp_num);
	if (mask & IBV_QP_TIMEOUT)
		SAME(attr.timeout, set->timeout);
	if (mask & THEIRS)
		SAME(attr.max_dest_rd_atomic, set->max_dest_rd_atomic);
	if (mask & RATE)
		SAME(attr.rate_limit, set->rate_limit);
	if (o->qp.state == IBV_QPS_RESET)
		CHECK(!attr.dest_qp_num && !attr.rate_limit);
}

void walk_states(struct dice *d)
{
	static const uint8_t ladder[] = {
	        [IBV_QPS_RESET] = IBV_QPS_INIT, [IBV_QPS_INIT] = IBV_QPS_RTR, [IBV_QPS_RTR] = IBV_QPS_RTS,
	        [IBV_QPS_RTS] = IBV_QPS_SQD,    [IBV_QPS_SQD] = IBV_QPS_RTS,  [IBV_QPS_ERR] = IBV_QPS_RESET};
	struct hold h = {0};
	struct object *o = pick_to_destroy(&h, d, QP);

	if (!o || !o->qp.loose || o->ctx->c.closed) {
		let_go(&h);
		return;
	}
	int cur = (int)o->qp.state, next = one_in(d, 3) ? (int)roll(d, 9) : ladder[cur];
	int mask = next_mask(d, o, next);
	struct ibv_qp_attr a = right_values(o);
	int spoilt = one_in(d, 5) ? spoil(d, &a, pkeys_of(o->ctx)) : 0;

	if (!(mask & STATE))
		next = cur;
	a.qp_state = (enum ibv_qp_state)next;
	bool right = o->ctx->c.iwarp ? iwarp_allows(cur, next)
	                             : mask_is_right(o->qp.type, cur, next, mask) && !(mask & (spoilt | ALT));

	if (o->ctx->c.iwarp && (mask & RATE)) /* only a connected one has it */
		right = right && cur == IBV_QPS_RTS && next == IBV_QPS_RTS;
	if (o->ctx->c.iwarp && (mask & spoilt)) { /* which attributes iWARP looks at is its own affair */
		let_go(&h);
		return;
	}
	ANSWER(ibv_modify_qp(o->p, &a, mask), right ? 0 : EINVAL);
	if (right && !(o->ctx->c.iwarp && next == IBV_QPS_RTR))
		o->qp.state = (enum ibv_qp_state)next;
	check_state(o, &a, right ? mask : 0);
	let_go(&h);
}

void query_state(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, QP);

	if (o && o->qp.loose)
		check_state(o, NULL, 0);
	let_go(&h);
}

/* --- posting where nothing is sent --- */

static void post_loose_receive(struct object *o)
{
	struct ibv_recv_wr wr = {.wr_id = id_make(ID_LOOSE, o->index, o->round, 0)}, *bad = NULL;
	struct ibv_qp *qp = o->p;
	int got;

	if (qp->srq || o->qp.type == IBV_QPT_XRC_RECV || (o->qp.state == IBV_QPS_RESET && !o->ctx->c.iwarp)) {
		ANSWER(ibv_post_recv(qp, &wr, &bad), EINVAL);
		CHECK(bad == &wr);
		return;
	}
	got = ibv_post_recv(qp, &wr, &bad);
	COUNT(calls);
	CHECK(got == 0 || (got == ENOMEM && bad == &wr));
}

static void post_loose_send(struct object *o)
{
	struct ibv_send_wr wr = {.wr_id = id_make(ID_LOOSE, o->index, o->round, 0), .opcode = IBV_WR_SEND}, *bad = NULL;
	struct ibv_qp *qp = o->p;
	int got;

	if (o->qp.state < IBV_QPS_RTS || o->qp.type == IBV_QPT_XRC_RECV) { /* a target has no send queue */
		ANSWER(ibv_post_send(qp, &wr, &bad), EINVAL);
		CHECK(bad == &wr);
		return;
	}
	if (o->qp.state != IBV_QPS_ERR || o->qp.type == IBV_QPT_UD)
		return;
	got = ibv_post_send(qp, &wr, &bad);
	COUNT(calls);
	CHECK(got == 0 || (got == ENOMEM && bad == &wr));
}

void post_loose(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, QP);

	if (o && o->qp.loose && one_in(d, 2))
		post_loose_receive(o);
	else if (o && o->qp.loose)
		post_loose_send(o);
	let_go(&h);
}
