// table.h - who holds which lane; a data structure without I/O
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_TABLE_H
#define VB_BROKER_SERVER_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"

enum vb_lane_state {
	VB_LANE_FREE,
	VB_LANE_RESERVED, /* its holder lives, but has not come back to this broker */
	VB_LANE_HELD,
};

struct vb_lane {
	enum vb_lane_state state;
	uid_t uid;
	uint64_t incarnation;
	uint32_t ngids;
	uint8_t (*gids)[16]; /* owned by the table, and sorted */
	uid_t last_uid;      /* of a free one that had a holder: who that was, and since when (ms) it is free; */
	int64_t freed_at;    /* 0: it had none */
};

/* Who wants a lane. */
struct vb_table_asker {
	uid_t uid;
	bool foreign;       /* not the user whose broker this is */
	int64_t now;        /* ms */
	uint32_t max_lanes; /* of all users */
};

/* Lane 0 is never given. */
struct vb_table {
	uint32_t next; /* where the search for a free lane starts: a number is used again as late as possible */
	uint32_t held, reserved;
	struct vb_lane lanes[VB_LANE_COUNT];
};

void vb_table_init(struct vb_table *t, uint32_t next);
void vb_table_close(struct vb_table *t);

/*
 * Gives a free lane, HELD; 0 when there is none for this user. A user other than the broker's has no more lanes than are left
 * for others, and no lane that another user had a minute ago, since packets for it may still be on their way; he gets the one that is free
 * for longest, but among his own where many of these wait: so that nobody uses all up by coming and going.
 */
uint32_t vb_table_take(struct vb_table *t, const struct vb_table_asker *asker, uint64_t incarnation);

/* Keeps a free lane for a holder of an earlier broker. 0, EINVAL, EBUSY. */
int vb_table_reserve(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation);

/* Gives a lane to the holder that it was reserved for; a free one to the broker's own user alone, whose programs trust each other.
 * 0, EINVAL, EBUSY (somebody else's). */
int vb_table_claim(struct vb_table *t, uint32_t lane, const struct vb_table_asker *asker, uint64_t incarnation);

/* Forgets the holder, at this time (ms); a free lane is left alone. */
void vb_table_free(struct vb_table *t, uint32_t lane, int64_t now);

/* Replaces the GIDs of a held lane. 0, EINVAL, ENOMEM. */
int vb_table_set_gids(struct vb_table *t, uint32_t lane, const uint8_t (*gids)[16], uint32_t n);

/* Does its holder announce this GID? In no more than eight steps: a program that announces many costs others no time. */
bool vb_lane_announces(const struct vb_lane *l, const uint8_t gid[16]);

/* The lane of qpn, as seen by asker (who holds a lane): 0, ENOENT (nobody with that GID there), EACCES (another user's),
 * EINVAL (the asker itself), EAGAIN (reserved for a holder of the asker's uid who has not come back: ask again then). */
int vb_table_find(const struct vb_table *t, uint32_t asker, uint32_t qpn, const uint8_t dgid[16], uint32_t *lane);

/* A set of lanes. */
struct vb_lane_set {
	uint64_t word[VB_LANE_COUNT / 64];
};

static inline void vb_lane_set_add(struct vb_lane_set *s, uint32_t lane)
{
	s->word[lane / 64] |= 1ull << (lane % 64);
}

static inline void vb_lane_set_remove(struct vb_lane_set *s, uint32_t lane)
{
	s->word[lane / 64] &= ~(1ull << (lane % 64));
}

static inline bool vb_lane_set_has(const struct vb_lane_set *s, uint32_t lane)
{
	return s->word[lane / 64] >> (lane % 64) & 1;
}

/* Some lane of the set, 0 when it is empty. */
static inline uint32_t vb_lane_set_any(const struct vb_lane_set *s)
{
	for (uint32_t i = 0; i < VB_LANE_COUNT / 64; i++)
		if (s->word[i])
			return i * 64 + (uint32_t)__builtin_ctzll(s->word[i]);
	return 0;
}

#endif
