// rdma_link.c - asks the kernel for its RDMA devices by netlink
// follows: linux/rdma_netlink.h, netlink(7); Linux drivers/infiniband/core/nldev.c
// SPDX-License-Identifier: MIT
#include "core/rdma_link.h"

#include "net/netdev.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { LINK_DEPTH = 8 };

/* All by system call: the library's functions are replaced under `verbena run`, and would show Verbena's own tree. */

bool vb_rdma_link_exists(void)
{
	char entries[1024];
	int saved = errno;
	bool found = false;
	long n = -1;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		n = syscall(SYS_getdents64, fd, entries, sizeof(entries));
		syscall(SYS_close, fd);
	}
	for (long at = 0; at < n && !found;) {
		const struct dirent64 *e = (const struct dirent64 *)(entries + at);

		found = e->d_name[0] != '.';
		at += e->d_reclen;
	}
	errno = saved;
	return found;
}

/* Filled by one answer: the attributes of a device or of a port. */
typedef void link_take(const struct vb_rdma_link *link, void *arg);

static uint32_t link_number(const struct nlattr *a)
{
	uint32_t value = 0;

	if (a->nla_len >= NLA_HDRLEN + sizeof(value))
		memcpy(&value, (const char *)a + NLA_HDRLEN, sizeof(value));
	return value;
}

static void link_attribute(const struct nlattr *a, struct vb_rdma_link *link)
{
	const char *text = (const char *)a + NLA_HDRLEN;
	size_t len = a->nla_len - (size_t)NLA_HDRLEN;

	switch (a->nla_type & NLA_TYPE_MASK) {
	case RDMA_NLDEV_ATTR_DEV_INDEX:
		link->index = link_number(a);
		break;
	case RDMA_NLDEV_ATTR_DEV_NAME:
		len = strnlen(text, len);
		len = len < sizeof(link->name) ? len : sizeof(link->name) - 1;
		memcpy(link->name, text, len);
		link->name[len] = '\0';
		break;
	case RDMA_NLDEV_ATTR_PORT_INDEX:
		link->port = link_number(a);
		break;
	case RDMA_NLDEV_ATTR_PORT_STATE:
		if (len)
			link->state = (uint8_t)*text;
		break;
	case RDMA_NLDEV_ATTR_DEV_PROTOCOL:
		link->roce = len >= sizeof("roce") && !memcmp(text, "roce", sizeof("roce"));
		break;
	case RDMA_NLDEV_ATTR_NDEV_INDEX:
		link->ifindex = (int)link_number(a);
		break;
	default:
		break;
	}
}

static void link_parse(const char *at, size_t len, struct vb_rdma_link *link)
{
	while (len >= sizeof(struct nlattr)) {
		const struct nlattr *a = (const struct nlattr *)at;
		size_t whole = NLA_ALIGN(a->nla_len);

		if (a->nla_len < NLA_HDRLEN || a->nla_len > len)
			return;
		link_attribute(a, link);
		if (whole >= len)
			return;
		at += whole;
		len -= whole;
	}
}

/* Takes the answers of one datagram. False after the last one. */
static bool link_datagram(const char *at, size_t len, link_take *take, void *arg)
{
	while (len >= sizeof(struct nlmsghdr)) {
		const struct nlmsghdr *h = (const struct nlmsghdr *)at;
		size_t whole = NLMSG_ALIGN(h->nlmsg_len);

		if (h->nlmsg_len < sizeof(*h) || h->nlmsg_len > len || h->nlmsg_type == NLMSG_DONE ||
		    h->nlmsg_type == NLMSG_ERROR)
			return false;
		struct vb_rdma_link link = {0};
		link_parse(at + NLMSG_HDRLEN, h->nlmsg_len - (size_t)NLMSG_HDRLEN, &link);
		take(&link, arg);
		if (whole >= len)
			break;
		at += whole;
		len -= whole;
	}
	return true;
}

/* Asks for all devices, or for all ports of one device. */
static void link_dump(int fd, unsigned command, const uint32_t *device, link_take *take, void *arg)
{
	_Alignas(struct nlmsghdr) char answer[32768];
	struct {
		struct nlmsghdr head;
		struct nlattr attribute;
		uint32_t device;
	} ask = {
	        .head = {.nlmsg_len = device ? sizeof(ask) : sizeof(ask.head),
	                 .nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
	                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	        .attribute = {.nla_len = NLA_HDRLEN + sizeof(uint32_t), .nla_type = RDMA_NLDEV_ATTR_DEV_INDEX},
	        .device = device ? *device : 0,
	};
	long n;

	if (syscall(SYS_sendto, fd, &ask, (size_t)ask.head.nlmsg_len, 0, NULL, 0) < 0)
		return;
	do
		n = syscall(SYS_recvfrom, fd, answer, sizeof(answer), 0, NULL, NULL);
	while (n > 0 && link_datagram(answer, (size_t)n, take, arg));
}

struct link_table {
	struct vb_rdma_link *links;
	size_t n, max;
};

static void take_link(const struct vb_rdma_link *link, void *arg)
{
	struct link_table *t = arg;

	if (t->n < t->max && link->name[0])
		t->links[t->n++] = *link;
}

/* Apart, because of its large frame: a machine without RDMA devices does not need that much stack. */
__attribute__((noinline)) static size_t list_links(struct vb_rdma_link *links, size_t max)
{
	struct vb_rdma_link devices[VB_RDMA_LINKS_MAX];
	struct link_table found = {devices, 0, VB_RDMA_LINKS_MAX}, ports = {links, 0, max};
	const struct timeval patience = {.tv_sec = 1};

	int saved = errno;
	int fd = (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (fd >= 0) {
		syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		link_dump(fd, RDMA_NLDEV_CMD_GET, NULL, take_link, &found);
		for (size_t i = 0; i < found.n; i++) {
			size_t before = ports.n;

			link_dump(fd, RDMA_NLDEV_CMD_PORT_GET, &devices[i].index, take_link, &ports);
			while (before < ports.n)
				links[before++].roce = devices[i].roce;
		}
		syscall(SYS_close, fd);
	}
	errno = saved;
	return ports.n;
}

size_t vb_rdma_link_list(struct vb_rdma_link *links, size_t max)
{
	return vb_rdma_link_exists() ? list_links(links, max) : 0;
}

/* Is x directly below nd, so that nd sends by it? */
static bool link_is_below(const struct vb_netdev *x, const struct vb_netdev *nd)
{
	if (x->ifindex == nd->vlan_on)
		return true;
	return x->master == nd->ifindex && (!nd->active || nd->active == x->ifindex);
}

/* The kernel looks at all interfaces above that of the device, at any depth: rdma_is_upper_dev_rcu() and
 * is_eth_port_of_netdev_filter() of drivers/infiniband/core/roce_gid_mgmt.c. It nests eight of them at most. */
static bool link_reaches(const struct vb_netdev *all, size_t n, const struct vb_netdev *nd, int ifindex, int depth)
{
	if (nd->ifindex == ifindex)
		return true;
	for (size_t i = 0; depth && i < n; i++)
		if (link_is_below(&all[i], nd) && link_reaches(all, n, &all[i], ifindex, depth - 1))
			return true;
	return false;
}

bool vb_rdma_link_has(const struct vb_rdma_link *link, const struct vb_netdev *all, size_t n,
                      const struct vb_netdev *nd)
{
	return link->ifindex && link_reaches(all, n, nd, link->ifindex, link->roce ? LINK_DEPTH : 0);
}

bool vb_rdma_links_have(const struct vb_rdma_link *links, size_t n, int ifindex)
{
	struct vb_netdev *all;
	size_t n_all;
	bool has = false, roce = false;

	for (size_t i = 0; i < n; i++) {
		has |= links[i].ifindex && links[i].ifindex == ifindex;
		roce |= links[i].roce;
	}
	if (has || !roce || vb_netdev_scan(&all, &n_all))
		return has;
	for (size_t i = 0; i < n_all; i++)
		for (size_t l = 0; l < n && all[i].ifindex == ifindex; l++)
			has |= vb_rdma_link_has(&links[l], all, n_all, &all[i]);
	free(all);
	return has;
}
