// netdev.c - the network interfaces of this namespace and their addresses: reads them, and watches for changes
// follows: rtnetlink(7), netlink(7)
// SPDX-License-Identifier: MIT
#include "net/netdev.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/netdev_parse.h"

/* The kernel fills at most 32 KiB of a dump at a time. */
enum { BUFFER = 32768, TRIES = 8 };

struct dump_buffer {
	uint32_t words[BUFFER / 4];
};

/* Receives the whole answer to a dump request. */
static int receive_dump(int fd, struct vb_netdev_gather *g, struct dump_buffer *buf)
{
	while (!g->done && !g->err) {
		struct sockaddr_nl from = {0};
		socklen_t from_len = sizeof(from);
		ssize_t len = recvfrom(fd, buf, sizeof(*buf), 0, (struct sockaddr *)&from, &from_len);

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return errno;
		/* Any process may send to a netlink socket; port 0 is the kernel. */
		if (from.nl_pid == 0)
			vb_netdev_parse(g, buf, (size_t)len);
	}
	return g->err;
}

static int request_dump(int fd, struct vb_netdev_gather *g, struct dump_buffer *buf, uint16_t type, uint8_t family)
{
	struct {
		struct nlmsghdr h;
		union {
			struct ifinfomsg link;
			struct ifaddrmsg addr;
		};
	} req = {.h = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP, .nlmsg_seq = ++g->seq}};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	if (type == RTM_GETLINK) {
		req.h.nlmsg_len = NLMSG_LENGTH(sizeof(req.link));
		req.link.ifi_family = family;
	} else {
		req.h.nlmsg_len = NLMSG_LENGTH(sizeof(req.addr));
		req.addr.ifa_family = family;
	}
	g->done = false;
	while (sendto(fd, &req, req.h.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		if (errno != EINTR)
			return errno;
	return receive_dump(fd, g, buf);
}

static int dump_all(int fd, struct vb_netdev_gather *g, struct dump_buffer *buf)
{
	int rc = request_dump(fd, g, buf, RTM_GETLINK, AF_UNSPEC);

	if (!rc)
		rc = request_dump(fd, g, buf, RTM_GETADDR, AF_INET);
	if (rc)
		return rc;
	/* A kernel without IPv6 answers with an error, or with the addresses of all families again. */
	rc = request_dump(fd, g, buf, RTM_GETADDR, AF_INET6);
	if (rc == EOPNOTSUPP || rc == EAFNOSUPPORT)
		g->err = rc = 0;
	return rc;
}

/* By ioctl, not by /sys/class/net: sysfs shows the namespace in which it was mounted, which may not be ours. */
static uint32_t link_speed(int fd, const char *name)
{
	struct ethtool_cmd cmd = {.cmd = ETHTOOL_GSET};
	struct ifreq ifr = {.ifr_data = (void *)&cmd};

	memcpy(ifr.ifr_name, name, sizeof(ifr.ifr_name));
	if (ioctl(fd, SIOCETHTOOL, &ifr) < 0)
		return 0;
	/* not ethtool_cmd_speed(), which shifts a sign bit */
	uint32_t speed = (uint32_t)cmd.speed_hi << 16 | cmd.speed;
	return speed == (uint32_t)SPEED_UNKNOWN ? 0 : speed;
}

static bool is_internal(int fd, const struct vb_netdev *nd)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq ifr = {.ifr_data = (void *)&info};

	if (nd->flags & IFF_LOOPBACK)
		return true;
	memcpy(ifr.ifr_name, nd->name, sizeof(ifr.ifr_name));
	if (ioctl(fd, SIOCETHTOOL, &ifr) < 0)
		return false;
	return !strncmp(info.driver, "veth", sizeof(info.driver)) ||
	       !strncmp(info.driver, "bridge", sizeof(info.driver));
}

static int by_index(const void *a, const void *b)
{
	const struct vb_netdev *x = a, *y = b;

	return (x->ifindex > y->ifindex) - (x->ifindex < y->ifindex);
}

int vb_netdev_scan(struct vb_netdev **list, size_t *n)
{
	struct vb_netdev_gather g = {0};
	struct dump_buffer *buf = malloc(sizeof(*buf));
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int rc = fd < 0 ? errno : !buf ? ENOMEM : 0;

	/* Interfaces may change all the time, so the tries are limited. Then the last dump is used. */
	for (int i = 0; !rc && i < TRIES; i++) {
		g.n = 0;
		g.interrupted = false;
		rc = dump_all(fd, &g, buf);
		if (!g.interrupted)
			break;
	}
	for (size_t i = 0; !rc && i < g.n; i++) {
		if (!vb_netdev_is_adapter(&g.list[i]))
			continue;
		g.list[i].speed_mbps = link_speed(fd, g.list[i].name);
		g.list[i].internal = is_internal(fd, &g.list[i]);
	}
	if (fd >= 0)
		close(fd);
	free(buf);
	if (rc) {
		free(g.list);
		return rc;
	}
	if (g.n)
		qsort(g.list, g.n, sizeof(*g.list), by_index);
	*list = g.list;
	*n = g.n;
	return 0;
}

int vb_netdev_get(int ifindex, struct vb_netdev *nd)
{
	struct vb_netdev *list;
	size_t n;
	int rc = vb_netdev_scan(&list, &n);

	if (rc)
		return rc;
	rc = ENODEV;
	for (size_t i = 0; i < n; i++) {
		if (list[i].ifindex == ifindex) {
			*nd = list[i];
			rc = 0;
		}
	}
	free(list);
	return rc;
}

bool vb_netdev_is_adapter(const struct vb_netdev *nd)
{
	return nd->name[0] && (nd->arphrd == ARPHRD_ETHER || nd->arphrd == ARPHRD_LOOPBACK);
}

struct vb_netmon {
	int fd;
	struct dump_buffer buf;
};

int vb_netmon_open(struct vb_netmon **mon)
{
	struct sockaddr_nl local = {.nl_family = AF_NETLINK,
	                            .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
	struct vb_netmon *m = malloc(sizeof(*m));

	if (!m)
		return ENOMEM;
	m->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
	if (m->fd < 0 || bind(m->fd, (struct sockaddr *)&local, sizeof(local)) < 0) {
		int rc = errno;

		if (m->fd >= 0)
			close(m->fd);
		free(m);
		return rc;
	}
	*mon = m;
	return 0;
}

int vb_netmon_fd(const struct vb_netmon *mon)
{
	return mon->fd;
}

bool vb_netmon_drain(struct vb_netmon *mon)
{
	bool changed = false;

	for (;;) {
		struct sockaddr_nl from = {0};
		socklen_t from_len = sizeof(from);
		ssize_t len = recvfrom(mon->fd, &mon->buf, sizeof(mon->buf), 0, (struct sockaddr *)&from, &from_len);

		if (len >= 0)
			changed |= from.nl_pid == 0 && vb_netdev_parse_is_change(&mon->buf, (size_t)len);
		else if (errno == ENOBUFS)
			changed = true; /* the socket's buffer was full (ENOBUFS): messages are lost */
		else if (errno != EINTR)
			return changed;
	}
}

void vb_netmon_close(struct vb_netmon *mon)
{
	if (!mon)
		return;
	close(mon->fd);
	free(mon);
}
