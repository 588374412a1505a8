// table.h - which program holds which lane; a data structure without I/O
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_TABLE_H
#define VB_BROKER_SERVER_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"

enum vb_lane_state {
	VB_LANE_FREE,
	VB_LANE_RESERVED, /* its holder lives, but has not reattached to this broker */
	VB_LANE_HELD,
};

struct vb_lane {
	enum vb_lane_state state;
	uid_t uid;
	uint64_t incarnation;
	uint32_t ngids;
	uint8_t (*gids)[16]; /* sorted; owned by the table */
	uid_t last_uid;      /* of a free lane: the user who had it last */
	int64_t freed_at;    /* of a free lane: since when, ms; 0: it never had a holder */
};

/* A program that asks for a lane. */
struct vb_table_asker {
	uid_t uid;
	bool foreign;       /* of a user other than the broker's */
	int64_t now;        /* ms */
	uint32_t max_lanes; /* of all users together */
};

/* Lane 0 is never given. */
struct vb_table {
	uint32_t next; /* where the search for a free lane starts: a lane is reused as late as possible */
	uint32_t held, reserved;
	struct vb_lane lanes[VB_LANE_COUNT];
};

void vb_table_init(struct vb_table *t, uint32_t next);
void vb_table_close(struct vb_table *t);

/*
 * Takes a free lane, which is then HELD. Returns 0 if there is none for this user. A user other than the broker's may
 * have as many lanes as are left for others. He gets no lane that another user had within VB_QUARANTINE_MS, since
 * packets for it may still be in flight. He gets the lane that is free for longest; but if many of his own former
 * lanes are in quarantine, one of those: so nobody uses up all lanes by attaching and detaching.
 */
uint32_t vb_table_take(struct vb_table *t, const struct vb_table_asker *asker, uint64_t incarnation);

/* Reserves a free lane for a holder of an earlier broker. Returns 0, EINVAL or EBUSY. */
int vb_table_reserve(struct vb_table *t, uint32_t lane, uid_t uid, uint64_t incarnation);

/* Gives a reserved lane to its holder. A free lane can be claimed by the broker's own user only, whose programs trust
 * each other. Returns 0, EINVAL, or EBUSY (another program's lane). */
int vb_table_claim(struct vb_table *t, uint32_t lane, const struct vb_table_asker *asker, uint64_t incarnation);

/* Frees a lane at this time (ms). Does nothing for a free lane. */
void vb_table_free(struct vb_table *t, uint32_t lane, int64_t now);

/* Replaces the GIDs of a held lane. Returns 0, EINVAL or ENOMEM. */
int vb_table_set_gids(struct vb_table *t, uint32_t lane, const uint8_t (*gids)[16], uint32_t n);

/* True if the lane's holder announces this GID. Takes eight steps at most: many GIDs of one program cost others no
 * time. */
bool vb_lane_announces(const struct vb_lane *l, const uint8_t gid[16]);

/* Finds the lane of qpn for asker, which holds a lane. Returns 0, ENOENT (no program with that GID), EACCES (another
 * user's), EINVAL (the asker itself), or EAGAIN (reserved for a program of the asker's user that has not reattached:
 * ask again then). */
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
