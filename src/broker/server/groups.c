// groups.c - multicast groups of programs whose datagrams are relayed: the keeper joins in their place
// follows: ip(7) (IP_ADD_MEMBERSHIP), ipv6(7), proc(5) (/proc/net/igmp, igmp6)
// SPDX-License-Identifier: MIT
#include "broker/server/groups.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
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

/* ---- groups that a program has joined by itself ---- */

#define ROUNDS 64 /* the kernel's list moves while entries leave it */

/* One line of /proc/net/igmp: an interface, or (indented) the address of a group on the interface before it, as the
 * processor has it in memory. */
static bool read_igmp(const char *line, uint32_t *ifindex, uint8_t group[16])
{
	char *end;
	bool is_interface = line[0] >= '0' && line[0] <= '9';
	unsigned long n = strtoul(line, &end, is_interface ? 10 : 16);

	if (is_interface) {
		*ifindex = (uint32_t)n;
		return false;
	}
	uint32_t address = (uint32_t)n;

	memset(group, 0, 10);
	group[10] = group[11] = 0xff;
	memcpy(group + 12, &address, sizeof(address));
	return end != line && *ifindex;
}

/* One line of /proc/net/igmp6: the interface's index, its name, the group as 32 digits. */
static bool read_igmp6(const char *line, uint32_t *ifindex, uint8_t group[16])
{
	char digits[33], byte[3] = {0};

	if (sscanf(line, "%u %*s %32[0-9a-f]", ifindex, digits) != 2 || strlen(digits) != 32)
		return false;
	for (int i = 0; i < 16; i++) {
		memcpy(byte, digits + (size_t)i * 2, 2);
		group[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	return true;
}

/* The kernel does not list the groups of a socket, but those of all interfaces. Returns how many the socket was in. */
static unsigned leave_listed(int fd, const char *path, bool (*read_line)(const char *, uint32_t *, uint8_t[16]))
{
	char line[256];
	uint8_t group[16];
	uint32_t ifindex = 0;
	unsigned n = 0;
	FILE *list = fopen(path, "re");

	while (list && fgets(line, sizeof(line), list))
		n += read_line(line, &ifindex, group) && !set_membership(fd, group, ifindex, false);
	if (list)
		fclose(list);
	return n;
}

void vb_groups_take_back(struct vb_lane_group *g, uint32_t lane, enum vb_groups_left left)
{
	int fd = g->fd[vb_lanes_socket(g, lane)];
	bool alone = vb_lanes_take_back(g, lane);
	int round = 0;

	if (left == VB_GROUPS_NONE || (left == VB_GROUPS_MAYBE && !alone))
		return;
	unsigned n;

	do {
		n = leave_listed(fd, "/proc/net/igmp", read_igmp);
		n += leave_listed(fd, "/proc/net/igmp6", read_igmp6);
	} while (n && ++round < ROUNDS);
}
