// table.h - who holds which lane; a data structure without I/O
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_TABLE_H
#define VB_BROKER_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto.h"

enum vb_lane_state {
	VB_LANE_FREE,
	VB_LANE_RESERVED, /* its holder lives, but has not come back to this broker */
	VB_LANE_HELD,
};

struct vb_lane {
	enum vb_lane_state state;
	uid_t uid;
	uint64_t incarnation;
	uint64_t secret; /* the key secret of uid: all lanes of one uid have the same */
	uint32_t ngids;
	uint8_t (*gids)[16]; /* owned by the table */
};

/* Lane 0 is never given. */
struct vb_table {
	uint32_t next; /* where the search for a free lane starts: a number is used again as late as possible */
	uint32_t held, reserved;
	struct vb_lane lanes[VB_LANE_COUNT];
};

void vb_table_init(struct vb_table *t, uint32_t next);
void vb_table_close(struct vb_table *t);

/* Gives a free lane, HELD; 0 when there is none. */
uint32_t vb_table_take(struct vb_table *t, uid_t uid, uint64_t incarnation, uint64_t secret);

/* Keeps a free lane for a holder of an earlier broker. 0, EINVAL, EBUSY. */
int vb_table_reserve(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation, uint64_t secret);

/* Gives a lane to the holder that it was reserved for, or a free one. 0, EINVAL, EBUSY (somebody else's). */
int vb_table_claim(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation, uint64_t secret);

/* Forgets the holder; a free lane is left alone. */
void vb_table_free(struct vb_table *t, uint32_t lane);

/* The key secret of uid's lanes; false when uid has none. */
bool vb_table_secret(const struct vb_table *t, uid_t uid, uint64_t *secret);

/* Replaces the GIDs of a held lane. 0, EINVAL, ENOMEM. */
int vb_table_set_gids(struct vb_table *t, uint32_t lane, const uint8_t (*gids)[16], uint32_t n);

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
