// table.c - which program holds which lane
// SPDX-License-Identifier: MIT
#include "broker/server/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frame/fields.h"

void vb_table_init(struct vb_table *t, uint32_t next)
{
	memset(t, 0, sizeof(*t));
	t->next = next % VB_LANE_COUNT;
}

void vb_table_close(struct vb_table *t)
{
	for (uint32_t i = 0; i < VB_LANE_COUNT; i++)
		vb_table_free(t, i, 0);
}

static bool is_lane(uint32_t lane)
{
	return lane > 0 && lane < VB_LANE_COUNT;
}

static void lane_fill(struct vb_table *t, uint32_t lane, enum vb_lane_state state, uid_t uid, uint64_t incarnation)
{
	t->lanes[lane] = (struct vb_lane){.state = state, .uid = uid, .incarnation = incarnation};
	*(state == VB_LANE_HELD ? &t->held : &t->reserved) += 1;
}

static uint32_t lanes_of(const struct vb_table *t, uid_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < VB_LANE_COUNT; i++)
		n += t->lanes[i].state != VB_LANE_FREE && t->lanes[i].uid == uid;
	return n;
}

/* A user who takes all that he can leaves half of what was free to the next one. */
static bool has_share(const struct vb_table *t, const struct vb_table_asker *a)
{
	uint32_t used = t->held + t->reserved;

	if (!a->foreign)
		return used < VB_LANE_COUNT - 1;
	return used + VB_LANES_OWN < a->max_lanes && lanes_of(t, a->uid) < a->max_lanes - VB_LANES_OWN - used;
}

static bool is_quarantined(const struct vb_lane *l, int64_t now)
{
	return l->state == VB_LANE_FREE && l->freed_at && now - l->freed_at < VB_QUARANTINE_MS;
}

/* Are so many of this user's former lanes in quarantine that he has to reuse them? */
static bool has_full_quarantine(const struct vb_table *t, const struct vb_table_asker *a)
{
	uint32_t n = 0;

	for (uint32_t i = 1; a->foreign && i < VB_LANE_COUNT; i++)
		n += is_quarantined(&t->lanes[i], a->now) && t->lanes[i].last_uid == a->uid;
	return n >= VB_QUARANTINE_EACH;
}

enum pick { ANY_LANE, NOT_QUARANTINED, HIS_OWN };

static bool may_take_lane(const struct vb_lane *l, const struct vb_table_asker *a, enum pick pick)
{
	if (l->state != VB_LANE_FREE)
		return false;
	if (is_quarantined(l, a->now))
		return l->last_uid == a->uid || pick == ANY_LANE;
	return pick != HIS_OWN;
}

/* The lane in this half (upper: the one for other users) that is free for longest, searching from next on. */
static uint32_t choose_lane(const struct vb_table *t, const struct vb_table_asker *a, enum pick pick, bool upper)
{
	uint32_t best = 0;

	for (uint32_t i = 0; i < VB_LANE_COUNT; i++) {
		uint32_t lane = (t->next + i) % VB_LANE_COUNT;

		if (!is_lane(lane) || (lane >= VB_FOREIGN_LANES) != upper || !may_take_lane(&t->lanes[lane], a, pick))
			continue;
		if (!best || t->lanes[lane].freed_at < t->lanes[best].freed_at)
			best = lane;
	}
	return best;
}

uint32_t vb_table_take(struct vb_table *t, const struct vb_table_asker *a, uint64_t incarnation)
{
	enum pick pick = has_full_quarantine(t, a) ? HIS_OWN : NOT_QUARANTINED;
	uint32_t lane = 0;

	if (has_share(t, a)) {
		lane = choose_lane(t, a, pick, a->foreign);
		if (!lane)
			lane = choose_lane(t, a, pick, !a->foreign);
		if (!lane && !a->foreign)
			lane = choose_lane(t, a, ANY_LANE, false);
		if (!lane && !a->foreign)
			lane = choose_lane(t, a, ANY_LANE, true);
	}
	if (!lane)
		return 0;
	lane_fill(t, lane, VB_LANE_HELD, a->uid, incarnation);
	t->next = (lane + 1) % VB_LANE_COUNT;
	return lane;
}

int vb_table_reserve(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation)
{
	if (!is_lane(lane) || !incarnation)
		return EINVAL;
	if (t->lanes[lane].state != VB_LANE_FREE)
		return EBUSY;
	lane_fill(t, lane, VB_LANE_RESERVED, uid, incarnation);
	return 0;
}

int vb_table_claim(struct vb_table *t, uint32_t lane, const struct vb_table_asker *a, uint64_t incarnation)
{
	if (!is_lane(lane) || !incarnation)
		return EINVAL;
	struct vb_lane *l = &t->lanes[lane];
	if (l->state == VB_LANE_HELD || (l->state == VB_LANE_FREE && a->foreign))
		return EBUSY;
	if (l->state == VB_LANE_RESERVED && (l->uid != a->uid || l->incarnation != incarnation))
		return EBUSY;
	vb_table_free(t, lane, a->now);
	lane_fill(t, lane, VB_LANE_HELD, a->uid, incarnation);
	return 0;
}

void vb_table_free(struct vb_table *t, uint32_t lane, int64_t now)
{
	struct vb_lane *l = &t->lanes[lane % VB_LANE_COUNT];

	if (l->state == VB_LANE_FREE)
		return;
	*(l->state == VB_LANE_HELD ? &t->held : &t->reserved) -= 1;
	free(l->gids);
	*l = (struct vb_lane){.state = VB_LANE_FREE, .last_uid = l->uid, .freed_at = now};
}

static int compare_gids(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

bool vb_lane_announces(const struct vb_lane *l, const uint8_t gid[16])
{
	return l->ngids && bsearch(gid, l->gids, l->ngids, sizeof(*l->gids), compare_gids);
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
		qsort(copy, n, sizeof(*copy), compare_gids);
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
		/* its GIDs are not known yet; other users are told that it does not exist */
		return l->uid == t->lanes[asker].uid ? EAGAIN : ENOENT;
	}
	if (!vb_lane_announces(l, dgid))
		return ENOENT;
	if (l->uid != t->lanes[asker].uid)
		return EACCES;
	*lane = number;
	return 0;
}
