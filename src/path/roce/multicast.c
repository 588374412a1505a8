// multicast.c - joins multicast groups, and passes their packets to all attached queue pairs
// follows: IBA volume 1, 10.5 (multicast); annex A17 (RoCEv2), A17.4.3; ip(7) (IP_ADD_MEMBERSHIP), ipv6(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "broker/proto/proto.h"
#include "core/mcast.h"
#include "path/roce/roce.h"

int vb_roce_request_lane(struct vb_node *node)
{
	int err = vb_roce_bring_up(node, VB_RESOLVE_WAIT);

	return err == ENETUNREACH ? EOPNOTSUPP : err;
}

/* Tells the broker that we join or leave the group. If the keeper reads our socket, it does that for us; if we share the
 * socket, the broker introduces us to the others. It sends no answer. */
static int ask_for_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join)
{
	struct vb_msg_roce_group m = {.ifindex = ifindex, .join = join};

	memcpy(m.group, group->raw, sizeof(m.group));
	int err = vb_broker_post(node->io->broker, VB_MSG_ROCE_GROUP, &m, sizeof(m), false);

	return err == ENOTCONN ? EAGAIN : err;
}

void vb_roce_join_again(struct vb_node *node)
{
	vb_mutex_lock(&node->mcast_lock, VB_RANK_GROUPS);
	for (const struct vb_mcast *m = node->mcasts; m; m = m->next)
		if (!m->lid) /* those on a fabric are its process's */
			ask_for_membership(node, &m->group, m->ifindex, true);
	if (node->io->roce->grouped) /* while there was no broker, it may have left the socket's last group, too */
		ask_for_membership(node, &(union ibv_gid){0}, 0, false);
	vb_mutex_unlock(&node->mcast_lock);
}

static int set_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join)
{
	int fd = node->io->roce->lane_fd, r;

	if (vb_gid_is_ipv4(group->raw)) {
		struct ip_mreqn m = {.imr_ifindex = (int)ifindex};

		memcpy(&m.imr_multiaddr, group->raw + 12, 4);
		r = setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m, sizeof(m));
	} else {
		struct ipv6_mreq m = {.ipv6mr_interface = ifindex};

		memcpy(&m.ipv6mr_multiaddr, group->raw, 16);
		r = setsockopt(fd, IPPROTO_IPV6, join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &m, sizeof(m));
	}
	/* EADDRINUSE: another program that shares the socket has joined the group */
	return r && errno != EADDRINUSE ? errno : 0;
}

/* Who shares a socket leaves a group for the others as well, so these join it again. They hear of that as of a join: the
 * broker introduces the program to them; when it ends, each of them to itself. */
void vb_roce_introduced(struct vb_node *node)
{
	if (!vb_roce_sharing(node->io->roce))
		return;
	vb_mutex_lock(&node->mcast_lock, VB_RANK_GROUPS);
	for (const struct vb_mcast *m = node->mcasts; m; m = m->next)
		if (!m->lid)
			set_membership(node, &m->group, m->ifindex, true);
	vb_mutex_unlock(&node->mcast_lock);
}

int vb_roce_membership(struct vb_node *node, const union ibv_gid *group, uint32_t ifindex, bool join)
{
	VB_MAY_WAIT(); /* for the broker's socket, or for the kernel's lock of network interfaces */
	if (node->io->roce->relayed)
		return ask_for_membership(node, group, ifindex, join);
	/* before the first one, so that the broker knows that the socket may be in a group whenever this program ends; if the
	 * broker is away, it is told when it is back */
	if (!node->io->roce->grouped) {
		node->io->roce->grouped = true;
		ask_for_membership(node, group, ifindex, join);
	}
	int err = set_membership(node, group, ifindex, join);

	if (!err && vb_roce_sharing(node->io->roce))
		ask_for_membership(node, group, ifindex, join);
	return err;
}

/* The kernel keeps the memberships of a socket on interfaces that are deleted, and counts them. Later nobody knows them. */
void vb_roce_interface_gone(struct vb_node *node, uint32_t ifindex)
{
	vb_mutex_lock(&node->mcast_lock, VB_RANK_GROUPS);
	for (const struct vb_mcast *m = node->mcasts; m; m = m->next)
		if (!m->lid && m->ifindex == ifindex)
			vb_roce_membership(node, &m->group, ifindex, false);
	vb_mutex_unlock(&node->mcast_lock);
}

void vb_roce_multicast(struct vb_node *node, struct vb_roce_rx *rx, const struct vb_roce_arrival *a,
                       const struct vb_packet *p, const uint8_t *bytes, size_t len)
{
	unsigned taken = 0;

	for (struct vb_mcast *m = node->mcasts; m; m = m->next) {
		if (m->lid || m->ifindex != a->ifindex || memcmp(m->group.raw, a->flow.dst, VB_GID_LEN) != 0 ||
		    !m->qp->roce)
			continue;
		struct vb_packet mine = *p;

		taken++;
		if (vb_mcast_is_unwanted(m->qp, p->deth.src_qpn, a->flow.src))
			continue;
		mine.bth.dest_qpn = m->qp->qp.qp_num;
		vb_roce_to_qp(rx, m->qp, a, &mine, bytes, len);
	}
	if (!taken)
		VB_COUNT(drop_no_qp, 1);
}
