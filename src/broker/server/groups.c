// groups.c - multicast groups of programs whose datagrams are relayed: the keeper joins in their place
// follows: ip(7) (IP_ADD_MEMBERSHIP), ipv6(7)
// SPDX-License-Identifier: MIT
#include "broker/server/groups.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "frame/net.h"

static int set_membership(int fd, const uint8_t group[16], uint32_t ifindex, bool join)
{
	int r;

	if (vb_gid_is_ipv4(group)) {
		struct ip_mreqn m = {.imr_ifindex = (int)ifindex};

		memcpy(&m.imr_multiaddr, group + 12, 4);
		r = setsockopt(fd, IPPROTO_IP, join ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m, sizeof(m));
	} else {
		struct ipv6_mreq m = {.ipv6mr_interface = ifindex};

		memcpy(&m.ipv6mr_multiaddr, group, 16);
		r = setsockopt(fd, IPPROTO_IPV6, join ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &m, sizeof(m));
	}
	return r && errno != EADDRINUSE ? errno : 0; /* EADDRINUSE: this socket is a member already, for another lane */
}

static bool is_same_group(const struct vb_membership *m, const uint8_t group[16], uint32_t ifindex)
{
	return m->ifindex == ifindex && !memcmp(m->group, group, sizeof(m->group));
}

static bool is_needed(const struct vb_groups *t, const struct vb_lane_group *g, uint32_t socket,
                      const struct vb_membership *m)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (vb_lanes_socket(g, t->all[i].lane) == socket && is_same_group(&t->all[i], m->group, m->ifindex))
			return true;
	return false;
}

static void leave_group(struct vb_groups *t, const struct vb_lane_group *g, uint32_t i)
{
	struct vb_membership m = t->all[i];
	uint32_t socket = vb_lanes_socket(g, m.lane);

	t->all[i] = t->all[--t->n];
	if (!is_needed(t, g, socket, &m))
		set_membership(g->fd[socket], m.group, m.ifindex, false);
}

static int join_group(struct vb_groups *t, const struct vb_lane_group *g, const struct vb_membership *m)
{
	uint32_t own = 0;

	for (uint32_t i = 0; i < t->n; i++)
		own += t->all[i].lane == m->lane;
	if (own == VB_GROUPS_EACH || t->n == VB_GROUPS)
		return ENOBUFS;
	int err = set_membership(g->fd[vb_lanes_socket(g, m->lane)], m->group, m->ifindex, true);

	if (!err)
		t->all[t->n++] = *m;
	return err;
}

int vb_groups_set(struct vb_groups *t, const struct vb_lane_group *g, uint32_t lane, const uint8_t group[16],
                  uint32_t ifindex, bool joined)
{
	struct vb_membership m = {.lane = lane, .ifindex = ifindex};

	memcpy(m.group, group, sizeof(m.group));
	for (uint32_t i = 0; i < t->n; i++) {
		if (t->all[i].lane != lane || !is_same_group(&t->all[i], group, ifindex))
			continue;
		if (!joined)
			leave_group(t, g, i);
		return 0;
	}
	return joined ? join_group(t, g, &m) : 0;
}

void vb_groups_forget(struct vb_groups *t, const struct vb_lane_group *g, uint32_t lane)
{
	for (uint32_t i = t->n; i-- > 0;)
		if (t->all[i].lane == lane)
			leave_group(t, g, i);
}
