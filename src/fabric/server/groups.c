// groups.c - the multicast groups to which a program's queue pairs are attached
// follows: IBA volume 1, 10.5 (multicast), 11.3 (attach, detach)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "fabric/server/server.h"

static struct group *group_of(const struct groups *g, uint16_t mlid, const uint8_t mgid[16])
{
	for (uint32_t i = 0; i < g->count; i++)
		if (g->all[i].mlid == mlid && !memcmp(g->all[i].mgid, mgid, sizeof(g->all[i].mgid)))
			return &g->all[i];
	return NULL;
}

static struct group *add_group(struct groups *g, uint16_t mlid, const uint8_t mgid[16])
{
	if (g->count == VB_FABRIC_GROUPS)
		return NULL;
	if (g->count == g->room) {
		uint32_t room = g->room ? 2 * g->room : 4;
		struct group *more = realloc(g->all, room * sizeof(*more));

		if (!more)
			return NULL;
		g->all = more;
		g->room = room;
	}
	struct group *one = &g->all[g->count++];

	*one = (struct group){.mlid = mlid};
	memcpy(one->mgid, mgid, sizeof(one->mgid));
	return one;
}

bool groups_have(const struct groups *g, uint16_t mlid, const uint8_t mgid[16])
{
	return group_of(g, mlid, mgid);
}

int groups_attach(struct groups *g, uint16_t mlid, const uint8_t mgid[16])
{
	struct group *one = group_of(g, mlid, mgid);

	if (!vb_ib_is_group_lid(mlid) || mgid[0] != 0xff)
		return EINVAL;
	if (!one)
		one = add_group(g, mlid, mgid);
	if (!one || one->users == UINT32_MAX)
		return ENOMEM;
	one->users++;
	return 0;
}

int groups_detach(struct groups *g, uint16_t mlid, const uint8_t mgid[16])
{
	struct group *one = group_of(g, mlid, mgid);

	if (!one)
		return EINVAL;
	if (!--one->users)
		*one = g->all[--g->count];
	return 0;
}

void groups_free(struct groups *g)
{
	free(g->all);
	*g = (struct groups){0};
}
