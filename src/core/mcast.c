// mcast.c - multicast groups, and the queue pairs of this process that have joined them
// follows: IBA volume 1, 10.5 (multicast), 11.3 (attach, detach); ibv_attach_mcast(3)
// SPDX-License-Identifier: MIT
#include "core/mcast.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/device.h"
#include "core/handle.h"
#include "core/ib.h"
#include "core/qp.h"
#include "core/verbs.h"

bool vb_mcast_address(const union ibv_gid *gid, union ibv_gid *group)
{
	static const uint8_t as_ipv6[12] = {[0] = 0xff, [1] = 0x0e, [10] = 0xff, [11] = 0xff};

	*group = *gid;
	if (!memcmp(gid->raw, as_ipv6, sizeof(as_ipv6)))
		group->raw[0] = group->raw[1] = 0;
	return group->raw[0] == 0xff || vb_gid_is_multicast4(group);
}

bool vb_mcast_is_unwanted(const struct vb_qp *qp, uint32_t src_qpn, const uint8_t sgid[16])
{
	union ibv_gid from;

	if (!qp->blocks_self || src_qpn != qp->qp.qp_num)
		return false;
	memcpy(from.raw, sgid, sizeof(from.raw));
	return vb_query_gid_index(VB_CONTEXT_OF(qp)->dev, 1, &from) >= 0; /* else another host's, of the same number */
}

/* The group of a queue pair's adapter: by its address, on a fabric by MGID and MLID. *lid: 0 unless it is on a fabric. Returns
 * false if it is none. */
static bool group_named(const struct vb_qp *qp, const union ibv_gid *gid, union ibv_gid *group, uint16_t *lid)
{
	if (!qp->ib) {
		*lid = 0;
		return vb_mcast_address(gid, group);
	}
	*group = *gid;
	return gid->raw[0] == 0xff && vb_ib_is_group_lid(*lid);
}

static struct vb_mcast **find_membership(struct vb_node *node, const struct vb_qp *qp, const union ibv_gid *group,
                                         uint16_t lid)
{
	struct vb_mcast **m = &node->mcasts;

	while (*m && ((*m)->qp != qp || (*m)->lid != lid || memcmp(&(*m)->group, group, sizeof(*group)) != 0))
		m = &(*m)->next;
	return m;
}

/* Counts the memberships of this process in the group on this interface. The process joins with the first, and leaves
 * with the last. */
static unsigned group_members(const struct vb_node *node, const struct vb_mcast *of)
{
	unsigned n = 0;

	for (const struct vb_mcast *m = node->mcasts; m; m = m->next)
		n += m->ifindex == of->ifindex && m->lid == of->lid && !memcmp(&m->group, &of->group, sizeof(m->group));
	return n;
}

/* Adds the membership, which then owns m. Returns EALREADY if the queue pair has it already. Under mcast_lock. */
static int mcast_join(struct vb_node *node, struct vb_mcast *m)
{
	if (*find_membership(node, m->qp, &m->group, m->lid))
		return EALREADY;
	unsigned members = group_members(node, m);
	if (members >= VB_MAX_MCAST_QP_ATTACH || (!members && node->mcast_groups >= VB_MAX_MCAST_GRP))
		return ENOMEM;
	int err = members || m->lid ? 0 : vb_roce_membership(node, &m->group, m->ifindex, true);

	if (err)
		return err;
	node->mcast_groups += !members;
	vb_lock(&node->progress);
	m->next = node->mcasts;
	node->mcasts = m;
	m->qp->mcasts++;
	vb_unlock(&node->progress);
	return 0;
}

int vb_attach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid)
{
	struct vb_qp *qp = vb_qp(ibqp);
	struct vb_node *node = qp->node;

	if (!vb_qp_is_sound(ibqp))
		return EINVAL;
	struct vb_mcast *m = calloc(1, sizeof(*m));

	if (!m)
		return ENOMEM;
	m->lid = lid;
	if (qp->type != IBV_QPT_UD || !group_named(qp, gid, &m->group, &m->lid)) {
		free(m);
		return EINVAL;
	}
	m->ifindex = (uint32_t)vb_ctx(ibqp->context)->dev->ifindex;
	m->qp = qp;
	int err = m->lid ? vb_ib_membership(node, &m->group, m->lid, true) : vb_roce_request_lane(node);

	if (!err) {
		vb_mutex_lock(&node->mcast_lock, VB_RANK_GROUPS);
		err = mcast_join(node, m);
		vb_mutex_unlock(&node->mcast_lock);
		if (err && m->lid)
			vb_ib_membership(node, &m->group, m->lid, false);
	}
	if (err)
		free(m);
	return err == EALREADY ? 0 : err; /* attached already: succeeds (IBA 11.3.1) */
}

/* Removes the membership, and returns it; NULL: there is none. Under mcast_lock. */
static struct vb_mcast *mcast_leave(struct vb_node *node, struct vb_qp *qp, const union ibv_gid *group, uint16_t lid)
{
	struct vb_mcast **at = find_membership(node, qp, group, lid), *m = *at;

	if (!m)
		return NULL;
	vb_lock(&node->progress);
	*at = m->next;
	qp->mcasts--;
	vb_unlock(&node->progress);
	if (!group_members(node, m)) {
		node->mcast_groups--;
		if (!lid)
			vb_roce_membership(node, &m->group, m->ifindex, false);
	}
	return m;
}

int vb_detach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid)
{
	struct vb_qp *qp = vb_qp(ibqp);
	struct vb_node *node = qp->node;
	union ibv_gid group;

	if (!vb_qp_is_sound(ibqp) || !group_named(qp, gid, &group, &lid))
		return EINVAL;
	vb_mutex_lock(&node->mcast_lock, VB_RANK_GROUPS);
	struct vb_mcast *m = mcast_leave(node, qp, &group, lid);

	vb_mutex_unlock(&node->mcast_lock);
	if (m && lid)
		vb_ib_membership(node, &group, lid, false);
	free(m);
	return m ? 0 : EINVAL;
}
