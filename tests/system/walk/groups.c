// groups.c - the random walk: datagram ends join and leave multicast groups, and send to them
// follows: ibv_attach_mcast(3); IBA volume 1, 10.5 (multicast)
// SPDX-License-Identifier: MIT
#include "walk.h"

static union ibv_gid group_gid(unsigned group)
{
	return (union ibv_gid){.raw = {[10] = 0xff, 0xff, 239, 1, 77, (uint8_t)(1 + group)}};
}

void groups_begin(struct end *e)
{
	for (unsigned i = 0; i < GROUP_COUNT && !plan.fabric; i++) { /* there the subnet manager makes groups */
		struct ibv_ah_attr attr = {
		        .is_global = 1,
		        .port_num = 1,
		        .grh = {.dgid = group_gid(i), .sgid_index = e->o->ctx->c.gid_index, .hop_limit = 1}};

		e->group_ah[i] = ibv_create_ah(e->o->up[0]->p, &attr);
		CHECK(e->group_ah[i]);
	}
}

/* A queue pair that has joined a group cannot be destroyed. */
void groups_leave(struct end *e)
{
	for (unsigned i = 0; i < GROUP_COUNT; i++) {
		union ibv_gid gid = group_gid(i);

		if (e->groups >> i & 1)
			ANSWER(ibv_detach_mcast(e->o->p, &gid, 0), 0);
	}
	e->groups = 0;
}

void groups_end(struct end *e)
{
	for (unsigned i = 0; i < GROUP_COUNT; i++) {
		if (e->group_ah[i])
			ANSWER(ibv_destroy_ah(e->group_ah[i]), 0);
		e->group_ah[i] = NULL;
	}
}

/* Joins or leaves a group. A second join succeeds and changes nothing; who has not joined cannot leave. */
void change_group(struct dice *d)
{
	struct hold h = {0};
	struct object *o = pick_to_destroy(&h, d, QP);
	struct end *e = o && !o->qp.loose ? end_of(o) : NULL;

	if (e && o->qp.type == IBV_QPT_UD && !plan.fabric && !o->ctx->c.closed) {
		unsigned group = roll(d, GROUP_COUNT), bit = 1u << group;
		union ibv_gid gid = group_gid(group);

		if (one_in(d, 2)) {
			e->had_groups |= bit;
			ANSWER(ibv_attach_mcast(o->p, &gid, 0), 0);
			e->groups |= bit;
		} else {
			ANSWER(ibv_detach_mcast(o->p, &gid, 0), e->groups & bit ? 0 : EINVAL);
			e->groups &= ~bit;
		}
	} else if (e && o->qp.type != IBV_QPT_UD && !o->ctx->c.closed) { /* only datagrams have groups */
		union ibv_gid gid = group_gid(roll(d, GROUP_COUNT));

		ANSWER(ibv_attach_mcast(o->p, &gid, 0), EINVAL);
	}
	let_go(&h);
}

/* A message has come that was sent to a group; one of 0 was sent to the queue pair. */
void group_heard(const struct end *e, uint32_t group)
{
	CHECK(group <= GROUP_COUNT && (!group || e->had_groups >> (group - 1) & 1));
	if (group)
		COUNT(casts);
}
