// objects.c - the random walk: objects that are made, used and destroyed, all but queue pairs
// follows: the ibv_* man page of each call; IBA volume 1, 11.2
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

#include "walk.h"

/* --- making --- */

/* What the other processes must know of this one's host. */
static void tell_host(const struct object *o)
{
	struct host *h = &board->host[self];
	uint64_t words[2];

	memcpy(words, &o->c.gid, sizeof(words));
	h->gid[0] = words[0];
	h->gid[1] = words[1];
	h->lid = o->c.lid;
}

static void find_lid(struct object *o, struct ibv_context *ctx)
{
	struct ibv_port_attr port;

	ANSWER(ibv_query_port(ctx, 1, &port), 0);
	ANSWER(ibv_query_gid(ctx, 1, 0, &o->c.gid), 0);
	CHECK(port.lid);
	o->c.lid = port.lid;
	o->c.gid_index = 0;
	tell_host(o);
}

static void find_gid(struct object *o, struct ibv_context *ctx)
{
	struct ibv_gid_entry entries[128];
	ssize_t n = ibv_query_gid_table(ctx, entries, 128, 0);

	CHECK(n > 0);
	o->c.gid_index = 0;
	for (ssize_t i = 0; i < n; i++)
		if (entries[i].gid.raw[10] == 0xff && entries[i].gid.raw[12] == 127) {
			o->c.gid = entries[i].gid;
			o->c.gid_index = (uint8_t)entries[i].gid_index;
		}
	CHECK(o->c.iwarp || o->c.gid_index);
}

static struct ibv_device *some_device(struct dice *d, struct ibv_device **list, bool *iwarp)
{
	const char *other = plan.fabric ? "ib0" : "roce_lo";

	*iwarp = one_in(d, 4);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), *iwarp ? "iwarp_lo" : other))
			return list[i];
	CHECK_FAILED("no device %s", *iwarp ? "iwarp_lo" : other);
}

void make_context(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, CTX);
	struct ibv_device **list;
	bool iwarp;

	if (!o || atomic_load(&o->users) || !(list = ibv_get_device_list(NULL))) {
		let_go(&h);
		return;
	}
	struct ibv_context *ctx = ibv_open_device(some_device(d, list, &iwarp));

	COUNT(calls);
	CHECK(ctx);
	ibv_free_device_list(list);
	o->c.iwarp = iwarp;
	o->c.closed = false;
	o->c.lid = 0;
	if (plan.fabric && !iwarp)
		find_lid(o, ctx);
	else
		find_gid(o, ctx);
	CHECK(!fcntl(ctx->async_fd, F_SETFL, fcntl(ctx->async_fd, F_GETFL) | O_NONBLOCK));
	object_born(o, ctx, o, NULL, NULL, NULL, NULL); /* its own context */
	let_go(&h);
}

void make_td(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, TD), *ctx = o ? pick(&h, d, CTX) : NULL;
	struct ibv_td_init_attr attr = {0};

	if (ctx) {
		struct ibv_td *td = ibv_alloc_td(ctx->p, &attr);

		COUNT(calls);
		CHECK(td && td->context == ctx->p);
		object_born(o, td, ctx, ctx, NULL, NULL, NULL);
	}
	let_go(&h);
}

void make_pd(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, PD), *ctx = o ? pick(&h, d, CTX) : NULL;

	if (ctx) {
		struct ibv_pd *pd = ibv_alloc_pd(ctx->p);

		COUNT(calls);
		CHECK(pd && pd->context == ctx->p);
		o->pd.parent = false;
		object_born(o, pd, ctx, ctx, NULL, NULL, NULL);
	}
	let_go(&h);
}

void make_parent(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, PD), *of = o ? pick(&h, d, PD) : NULL;
	struct object *ctx = of ? of->ctx : NULL, *td = of && one_in(d, 2) ? pick_of(&h, d, TD, ctx) : NULL;
	struct ibv_parent_domain_init_attr attr = {.pd = of ? of->p : NULL, .td = td ? td->p : NULL};

	if (of && take_read(&h, ctx) && ctx->alive) {
		struct ibv_pd *pd = ibv_alloc_parent_domain(ctx->p, &attr);

		COUNT(calls);
		CHECK(pd && pd->context == ctx->p);
		o->pd.parent = true;
		object_born(o, pd, ctx, ctx, of, td, NULL);
	}
	let_go(&h);
}

void make_channel(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, CHANNEL), *ctx = o ? pick(&h, d, CTX) : NULL;

	if (ctx) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx->p);

		COUNT(calls);
		CHECK(channel && channel->context == ctx->p && channel->refcnt == 0);
		CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
		object_born(o, channel, ctx, ctx, NULL, NULL, NULL);
	}
	let_go(&h);
}

static struct ibv_cq *new_cq_ex(struct dice *d, struct object *o, struct object *ctx, struct object *channel,
                                struct object *domain)
{
	struct ibv_cq_init_attr_ex attr = {
	        .cqe = o->cq.least,
	        .cq_context = o,
	        .channel = channel ? channel->p : NULL,
	        .wc_flags = IBV_WC_STANDARD_FLAGS | (one_in(d, 2) ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0),
	        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | (domain ? IBV_CQ_INIT_ATTR_MASK_PD : 0),
	        .flags = o->cq.single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
	        .parent_domain = domain ? domain->p : NULL,
	};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(ctx->p, &attr);

	CHECK(ex);
	return ibv_cq_ex_to_cq(ex);
}

void make_cq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, CQ), *ctx = o ? pick(&h, d, CTX) : NULL;
	struct object *channel = ctx && one_in(d, 2) ? pick_of(&h, d, CHANNEL, ctx) : NULL;
	struct object *domain = ctx && one_in(d, 3) ? pick_of(&h, d, PD, ctx) : NULL;

	if (!ctx) {
		let_go(&h);
		return;
	}
	if (domain && !domain->pd.parent)
		domain = NULL;
	o->cq.least = 1 + roll(d, one_in(d, 4) ? 5000 : 500);
	o->cq.extended = domain || one_in(d, 3);
	o->cq.single = o->cq.extended && one_in(d, 3);
	o->cq.taken = 0;
	struct ibv_cq *cq = o->cq.extended ? new_cq_ex(d, o, ctx, channel, domain)
	                                   : ibv_create_cq(ctx->p, (int)o->cq.least, o, channel ? channel->p : NULL, 0);

	COUNT(calls);
	CHECK(cq && cq->context == ctx->p && cq->cqe >= (int)o->cq.least && cq->cq_context == o);
	object_born(o, cq, ctx, ctx, channel, domain, NULL);
	let_go(&h);
}

/* The memory of its receives. */
void srq_begin(struct object *o, struct object *pd)
{
	size_t size = RECV_COUNT * recv_size();

	if (!o->srq.memory)
		o->srq.memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(o->srq.memory != MAP_FAILED);
	memset(o->srq.memory, GUARD_BYTE, size);
	o->srq.mr = ibv_reg_mr(pd->p, o->srq.memory, size, IBV_ACCESS_LOCAL_WRITE);
	CHECK(o->srq.mr);
	for (int i = 0; i < RECV_COUNT; i++)
		o->srq.recv[i].posted = 0;
}

void make_srq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, SRQ), *pd = o ? pick(&h, d, PD) : NULL;
	struct ibv_srq_init_attr attr = {.srq_context = o, .attr = {.max_wr = RECV_COUNT, .max_sge = 2}};

	if (!pd) {
		let_go(&h);
		return;
	}
	struct ibv_srq *srq = ibv_create_srq(pd->p, &attr);

	COUNT(calls);
	CHECK(srq && srq->context == pd->ctx->p && srq->pd == pd->p && srq->srq_context == o);
	CHECK(attr.attr.max_wr >= RECV_COUNT && attr.attr.max_sge >= 2);
	o->srq.xrc = false;
	srq_begin(o, pd);
	object_born(o, srq, pd->ctx, pd, NULL, NULL, NULL);
	let_go(&h);
}

void make_ah(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, AH), *pd = o ? pick(&h, d, PD) : NULL;

	if (!pd) {
		let_go(&h);
		return;
	}
	struct ibv_ah_attr attr = address_of(pd->ctx, &pd->ctx->c.gid, pd->ctx->c.lid, !plan.fabric || one_in(d, 2));

	attr.sl = (uint8_t)roll(d, 8);
	if (attr.is_global) {
		attr.grh.hop_limit = (uint8_t)(1 + roll(d, 255));
		attr.grh.traffic_class = (uint8_t)roll(d, 256);
	}
	if (pd->ctx->c.iwarp) {
		REFUSED(ibv_create_ah(pd->p, &attr), EOPNOTSUPP);
	} else {
		struct ibv_ah *ah = ibv_create_ah(pd->p, &attr);

		COUNT(calls);
		CHECK(ah && ah->pd == pd->p && ah->context == pd->ctx->p);
		object_born(o, ah, pd->ctx, pd, NULL, NULL, NULL);
	}
	let_go(&h);
}

/* --- memory regions --- */

enum { REGION_MOST = 1 << 16 };

static struct ibv_mr *new_region(struct dice *d, struct object *o, struct object *pd)
{
	uint8_t *at = o->mr.memory + (one_in(d, 2) ? roll(d, 4096) : 0);
	size_t length = 1 + roll(d, REGION_MOST - 4096);
	unsigned access = roll(d, 16) | (one_in(d, 4) ? IBV_ACCESS_RELAXED_ORDERING : 0);
	bool remote = access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	struct ibv_mr *mr;

	if (remote && !(access & IBV_ACCESS_LOCAL_WRITE)) { /* IBA C11-17 */
		REFUSED(ibv_reg_mr(pd->p, at, length, (int)access), EINVAL);
		return NULL;
	}
	if (one_in(d, 4))
		mr = ibv_reg_mr_iova(pd->p, at, length, dice_word(d) >> 8, (int)access);
	else
		mr = ibv_reg_mr(pd->p, at, length, (int)access);
	COUNT(calls);
	CHECK(mr && mr->pd == pd->p && mr->addr == at && mr->length == length && mr->context == pd->ctx->p);
	o->mr.length = length;
	o->mr.access = access & 15;
	return mr;
}

void make_mr(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_free(&h, d, MR), *pd = o ? pick(&h, d, PD) : NULL;

	if (pd) {
		if (!o->mr.memory)
			o->mr.memory =
			        mmap(NULL, REGION_MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(o->mr.memory != MAP_FAILED);
		struct ibv_mr *mr = new_region(d, o, pd);

		if (mr)
			object_born(o, mr, pd->ctx, pd, NULL, NULL, NULL);
	}
	let_go(&h);
}

/* ibv_rereg_mr of a region that no request uses: the region stays valid if the arguments are wrong. */
void change_mr(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_to_destroy(&h, d, MR), *old = o ? o->up[0] : NULL;
	struct object *pd = o && take_read(&h, old) ? pick_of(&h, d, PD, o->ctx) : NULL;

	if (!pd) {
		let_go(&h);
		return;
	}
	struct ibv_mr *mr = o->p;
	uint32_t key = mr->rkey;

	ANSWER(ibv_rereg_mr(mr, 1 << (3 + roll(d, 20)), NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	ANSWER(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 5, 0), IBV_REREG_MR_ERR_INPUT);
	ANSWER(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	ANSWER(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
	       IBV_REREG_MR_ERR_CMD);
	ANSWER(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_PD, pd->p, NULL, 0, ALL_ACCESS), 0);
	count_by(&pd->users, 1);
	count_by(&old->users, -1);
	o->up[0] = pd;
	o->mr.access = ALL_ACCESS;
	ANSWER(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, o->mr.memory, REGION_MOST / 2, 0), 0);
	CHECK(mr->pd == pd->p && mr->addr == o->mr.memory && mr->length == REGION_MOST / 2 && mr->rkey == key);
	o->mr.length = REGION_MOST / 2;
	let_go(&h);
}

/* --- completion channels and queues --- */

void change_cq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, CQ);

	if (o && one_in(d, 4))
		ANSWER(ibv_resize_cq(o->p, one_in(d, 2) ? 0 : 4194305), EINVAL);
	else if (o && !o->cq.single) /* a queue of one thread is not resized beside its poller */
		ANSWER(ibv_resize_cq(o->p, (int)(o->cq.least + roll(d, 1000))), 0);
	let_go(&h);
}

void arm_cq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, CQ);

	if (o)
		ANSWER(ibv_req_notify_cq(o->p, (int)roll(d, 2)), 0);
	let_go(&h);
}

/* The thread that takes an event acknowledges it at once, so that ibv_destroy_cq waits for moments only. */
void take_events(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, CHANNEL);
	struct ibv_cq *cq;
	void *context;

	for (int i = 0; o && i < 8; i++) {
		errno = 0;
		if (ibv_get_cq_event(o->p, &cq, &context)) {
			CHECK(errno == EAGAIN);
			break;
		}
		const struct object *of = context;

		CHECK(of->kind == CQ && of->p == cq);
		CHECK(cq->channel == o->p);
		COUNT(events);
		ibv_ack_cq_events(cq, 1);
	}
	let_go(&h);
}

static void check_async(const struct ibv_async_event *e)
{
	const struct object *o;

	switch (e->event_type) {
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		o = e->element.qp->qp_context;
		CHECK(o->kind == QP && o->p == e->element.qp);
		CHECK(e->event_type != IBV_EVENT_QP_LAST_WQE_REACHED || e->element.qp->srq);
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		o = e->element.srq->srq_context;
		CHECK(o->kind == SRQ && o->p == e->element.srq);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_CLIENT_REREGISTER:
		break;
	default:
		CHECK_FAILED("an event that nobody has caused: %s", ibv_event_type_str(e->event_type));
	}
}

void take_async(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, CTX);
	struct ibv_async_event e;

	for (int i = 0; o && i < 8; i++) {
		errno = 0;
		if (ibv_get_async_event(o->p, &e)) {
			CHECK(errno == EAGAIN);
			break;
		}
		check_async(&e);
		COUNT(events);
		ibv_ack_async_event(&e);
	}
	let_go(&h);
}

/* --- shared receive queues --- */

void change_srq(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, SRQ);
	struct ibv_srq_attr attr = {.max_wr = 16385, .srq_limit = roll(d, RECV_COUNT)};

	if (o) {
		ANSWER(ibv_modify_srq(o->p, &attr, IBV_SRQ_MAX_WR), EINVAL);
		ANSWER(ibv_modify_srq(o->p, &attr, 1 << (2 + roll(d, 20))), EINVAL);
		attr.max_wr = RECV_COUNT + roll(d, SRQ_GROWN - RECV_COUNT + 1);
		ANSWER(ibv_modify_srq(o->p, &attr, IBV_SRQ_LIMIT | (one_in(d, 2) ? IBV_SRQ_MAX_WR : 0)), 0);
		memset(&attr, 0xff, sizeof(attr));
		ANSWER(ibv_query_srq(o->p, &attr), 0);
		CHECK(attr.max_wr >= RECV_COUNT && attr.max_wr <= SRQ_GROWN && attr.max_sge >= 2);
		CHECK(attr.srq_limit < RECV_COUNT);
	}
	let_go(&h);
}
