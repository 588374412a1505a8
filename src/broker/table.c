// table.c - who holds which lane; a data structure without I/O
// follows: nothing
// SPDX-License-Identifier: MIT
#include "broker/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void vb_table_init(struct vb_table *t, uint32_t next)
{
	memset(t, 0, sizeof(*t));
	t->next = next % VB_LANE_COUNT;
}

void vb_table_close(struct vb_table *t)
{
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++)
		vb_table_free(t, i);
}

static bool is_lane(uint32_t lane)
{
	return lane > 0 && lane < VB_LANE_COUNT;
}

static void fill(struct vb_table *t, uint32_t lane, enum vb_lane_state state, uid_t uid, uint64_t incarnation,
		 uint64_t secret)
{
	t->lanes[lane] = (struct vb_lane){.state = state, .uid = uid, .incarnation = incarnation, .secret = secret};
	*(state == VB_LANE_HELD ? &t->held : &t->reserved) += 1;
}

uint32_t vb_table_take(struct vb_table *t, uid_t uid, uint64_t incarnation, uint64_t secret)
{
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++) {
		uint32_t lane = (t->next + i) % VB_LANE_COUNT;

		if (!is_lane(lane) || t->lanes[lane].state != VB_LANE_FREE)
			continue;
		fill(t, lane, VB_LANE_HELD, uid, incarnation, secret);
		t->next = (lane + 1) % VB_LANE_COUNT;
		return lane;
	}
	return 0;
}

int vb_table_reserve(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation, uint64_t secret)
{
	if (!is_lane(lane) || !incarnation)
		return EINVAL;
	if (t->lanes[lane].state != VB_LANE_FREE)
		return EBUSY;
	fill(t, lane, VB_LANE_RESERVED, uid, incarnation, secret);
	return 0;
}

int vb_table_claim(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation, uint64_t secret)
{
	if (!is_lane(lane) || !incarnation)
		return EINVAL;
	struct vb_lane *l = &t->lanes[lane];
	if (l->state == VB_LANE_HELD)
		return EBUSY;
	if (l->state == VB_LANE_RESERVED && (l->uid != uid || l->incarnation != incarnation))
		return EBUSY;
	vb_table_free(t, lane);
	fill(t, lane, VB_LANE_HELD, uid, incarnation, secret);
	return 0;
}

void vb_table_free(struct vb_table *t, uint32_t lane)
{
	struct vb_lane *l = &t->lanes[lane % VB_LANE_COUNT];

	if (l->state == VB_LANE_HELD)
		t->held--;
	else if (l->state == VB_LANE_RESERVED)
		t->reserved--;
	free(l->gids);
	*l = (struct vb_lane){.state = VB_LANE_FREE};
}

bool vb_table_secret(const struct vb_table *t, uid_t uid, uint64_t *secret)
{
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++) {
		if (t->lanes[i].state == VB_LANE_FREE || t->lanes[i].uid != uid)
			continue;
		*secret = t->lanes[i].secret;
		return true;
	}
	return false;
}

int vb_table_set_gids(struct vb_table *t, uint32_t lane, const uint8_t (*gids)[16], uint32_t n)
{
	uint8_t(*copy)[16] = NULL;

	if (!is_lane(lane) || t->lanes[lane].state != VB_LANE_HELD || n > VB_MAX_GIDS)
		return EINVAL;
	if (n) {
		copy = malloc(n * sizeof(*copy));
		if (!copy)
			return ENOMEM;
		memcpy(copy, gids, n * sizeof(*copy));
	}
	free(t->lanes[lane].gids);
	t->lanes[lane].gids = copy;
	t->lanes[lane].ngids = n;
	return 0;
}

int vb_table_find(const struct vb_table *t, uint32_t asker, uint32_t qpn, const uint8_t dgid[16], uint32_t *lane)
{
	uint32_t number = (qpn & VB_QPN_MASK) >> VB_LANE_SHIFT;
	const struct vb_lane *l = &t->lanes[number];

	if (qpn > VB_QPN_MASK || !is_lane(number))
		return ENOENT;
	if (number == asker)
		return EINVAL;
	if (l->state == VB_LANE_RESERVED) {
		/* its GIDs are not known yet, and to another user it is nobody */
		return l->uid == t->lanes[asker].uid ? EAGAIN : ENOENT;
	}
	for (uint32_t i = 0; i < l->ngids; i++) {
		if (memcmp(l->gids[i], dgid, 16))
			continue;
		if (l->uid != t->lanes[asker].uid)
			return EACCES;
		*lane = number;
		return 0;
	}
	return ENOENT;
}
