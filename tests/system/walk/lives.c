// lives.c - the random walk: the ends of objects, in any order; objects that others use; objects that are gone
// follows: the ibv_* man page of each call ("EBUSY"); IBA volume 1, 11.2
// SPDX-License-Identifier: MIT
#include "walk.h"

/* The library remembers the last objects that were destroyed, so that a second destruction is an error. For that, no
 * other thread destroys objects meanwhile. */
static pthread_rwlock_t graves = PTHREAD_RWLOCK_INITIALIZER;

static int destroy_call(enum kind kind, void *p)
{
	switch (kind) {
	case TD:
		return ibv_dealloc_td(p);
	case PD:
		return ibv_dealloc_pd(p);
	case CHANNEL:
		return ibv_destroy_comp_channel(p);
	case CQ:
		return ibv_destroy_cq(p);
	case SRQ:
		return ibv_destroy_srq(p);
	case AH:
		return ibv_destroy_ah(p);
	case MR:
		return ibv_dereg_mr(p);
	case MW:
		return ibv_dealloc_mw(p);
	case XRCD:
		return ibv_close_xrcd(p);
	default:
		return ibv_destroy_qp(p);
	}
}

static void destroy_once(struct object *o, int want)
{
	pthread_rwlock_rdlock(&graves);
	ANSWER(destroy_call(o->kind, o->p), want);
	pthread_rwlock_unlock(&graves);
}

/* A sanitizer build frees objects at once. The last object of a closed device takes its context with it. */
static bool destroy_twice(struct object *o)
{
#ifdef VB_SANITIZED
	(void)o;
	return false;
#else
	if (o->ctx->c.closed || pthread_rwlock_trywrlock(&graves))
		return false;
	ANSWER(destroy_call(o->kind, o->p), 0);
	ANSWER(destroy_call(o->kind, o->p), ENOENT);
	pthread_rwlock_unlock(&graves);
	return true;
#endif
}

static bool close_context(struct object *o, bool anyway)
{
	bool used = atomic_load(&o->users);

	if (used && !anyway)
		return false;
	o->c.closed = true;
	ANSWER(ibv_close_device(o->p), 0);
	object_gone(o);
	return true;
}

/* The SRQ's region belongs to it. */
static void end_srq_region(struct object *o)
{
	ANSWER(ibv_dereg_mr(o->srq.mr), 0);
	o->srq.mr = NULL;
}

/* Everything that counts the object among its users must not be destroyed meanwhile. */
static bool hold_parents(struct hold *h, struct object *o)
{
	for (int i = 0; i < 4; i++)
		if (o->up[i] && o->up[i] != o && !take_read(h, o->up[i]))
			return false;
	return true;
}

/* o is held for writing. Whether it is gone. */
bool destroy_object(struct object *o, struct hold *h)
{
	if (o->kind == CTX)
		return close_context(o, false);
	if (!hold_parents(h, o))
		return false;
	if (atomic_load(&o->users)) {
		destroy_once(o, EBUSY);
		COUNT(busy);
		return false;
	}
	if (o->kind == QP && !o->qp.loose) {
		if (end_of(o)->groups) {
			destroy_once(o, EBUSY);
			COUNT(busy);
		}
		groups_leave(end_of(o));
		end_gone(end_of(o), false);
	}
	if (!(o->round % 4 == 0 && destroy_twice(o)))
		destroy_once(o, 0);
	if (o->kind == SRQ)
		end_srq_region(o);
	if (o->kind == QP)
		qp_room_back(o);
	if (o->kind == QP && !o->qp.loose)
		end_gone(end_of(o), true);
	object_gone(o);
	return true;
}

void destroy_one(struct dice *d)
{
	static const enum kind kinds[] = {QP, QP, QP, QP, CQ, CQ, SRQ, MR, MR, MW, XRCD, AH, AH, CHANNEL, PD, TD, CTX};
	struct hold h = {0};
	enum kind kind = kinds[roll(d, sizeof(kinds) / sizeof(*kinds))];
	struct object *o = pick_to_destroy(&h, d, kind);

	if (o && kind == QP && !o->qp.loose && (one_in(d, 4) || !end_may_go(end_of(o))))
		o = NULL;
	if (o && kind == CTX && plan.lasts && one_in(d, 8))
		close_context(o, true);
	else if (o)
		destroy_object(o, &h);
	let_go(&h);
}

/* At the end of the process, when one thread is left. */
void destroy_all(struct dice *d)
{
	uint64_t end = clock_ms() + HARMLESS_MS * 6;
	bool left = true;

	for (enum kind kind = roll(d, KINDS); left; kind = (kind + 1 + roll(d, 2)) % KINDS) {
		for (uint32_t i = 0; i < pool_size(kind); i++) {
			struct object *o = pool_at(kind, i);
			struct hold h = {0};

			if (o->alive) {
				CHECK(take_write(&h, o));
				destroy_object(o, &h);
			}
			let_go(&h);
		}
		left = false;
		for (int k = 0; k < KINDS; k++)
			for (uint32_t i = 0; i < pool_size((enum kind)k); i++)
				left |= pool_at((enum kind)k, i)->alive;
		CHECK(clock_ms() < end);
	}
}

/* --- questions --- */

static void query_context(struct dice *d, struct ibv_context *ctx, const struct object *o)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;
	uint8_t other = (uint8_t)(2 + roll(d, 253));

	ANSWER(ibv_query_device(ctx, &attr), 0);
	CHECK(attr.phys_port_cnt == 1 && attr.max_qp > 0 && attr.max_cqe > 0);
	ANSWER(ibv_query_port(ctx, 1, &port), 0);
	SAME(port.state, IBV_PORT_ACTIVE);
	SAME(port.link_layer, o->c.lid ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET);
	SAME(port.lid, o->c.lid);
	ANSWER(ibv_query_port(ctx, one_in(d, 2) ? 0 : other, &port), EINVAL);
	ANSWER(ibv_query_gid(ctx, 1, o->c.gid_index, &gid), 0);
	CHECK(!memcmp(&gid, &o->c.gid, sizeof(gid)) || o->c.iwarp);
	ANSWER(ibv_query_gid(ctx, 1, 128 + (int)roll(d, 1000), &gid), -1);
	ANSWER(ibv_query_pkey(ctx, 1, 0, &pkey), o->c.iwarp ? -1 : 0); /* iWARP has no partitions */
	ANSWER(ibv_query_pkey(ctx, 1, (int)pkeys_of(o) + (int)roll(d, 1000), &pkey), -1);
}

void query_one(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick(&h, d, CTX);

	if (o)
		query_context(d, o->p, o);
	let_go(&h);
}
