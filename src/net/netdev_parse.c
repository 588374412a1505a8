// netdev_parse.c - parses rtnetlink messages about links and addresses into interfaces; does no I/O
// follows: rtnetlink(7), netlink(7)
// SPDX-License-Identifier: MIT
#include "net/netdev_parse.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The bytes that are not read yet. Each read is checked against the length. */
struct span {
	const uint8_t *p;
	size_t len;
};

static void skip_bytes(struct span *s, size_t n)
{
	if (n > s->len)
		n = s->len;
	s->p += n;
	s->len -= n;
}

/* Takes the next message. Returns false at the end, or if its length is invalid. */
static bool next_message(struct span *s, struct nlmsghdr *h, struct span *body)
{
	if (s->len < sizeof(*h))
		return false;
	memcpy(h, s->p, sizeof(*h));
	if (h->nlmsg_len < sizeof(*h) || h->nlmsg_len > s->len)
		return false;
	*body = (struct span){s->p + NLMSG_HDRLEN, h->nlmsg_len - NLMSG_HDRLEN};
	skip_bytes(s, NLMSG_ALIGN((size_t)h->nlmsg_len));
	return true;
}

static bool next_attribute(struct span *s, uint16_t *type, struct span *value)
{
	struct rtattr a;

	if (s->len < sizeof(a))
		return false;
	memcpy(&a, s->p, sizeof(a));
	if (a.rta_len < sizeof(a) || a.rta_len > s->len)
		return false;
	*type = a.rta_type & NLA_TYPE_MASK;
	*value = (struct span){s->p + sizeof(a), a.rta_len - sizeof(a)};
	skip_bytes(s, RTA_ALIGN((size_t)a.rta_len));
	return true;
}

static uint32_t u32_of(struct span v)
{
	uint32_t x = 0;

	if (v.len >= sizeof(x))
		memcpy(&x, v.p, sizeof(x));
	return x;
}

static struct vb_netdev *find_interface(struct vb_netdev_gather *g, int ifindex)
{
	for (size_t i = 0; i < g->n; i++)
		if (g->list[i].ifindex == ifindex)
			return &g->list[i];
	return NULL;
}

static struct vb_netdev *find_or_add(struct vb_netdev_gather *g, int ifindex)
{
	struct vb_netdev *nd = find_interface(g, ifindex);

	if (nd)
		return nd;
	if (g->n == g->room) {
		size_t room = g->room ? 2 * g->room : 8;
		struct vb_netdev *list = realloc(g->list, room * sizeof(*list));

		if (!list) {
			g->err = ENOMEM;
			return NULL;
		}
		g->list = list;
		g->room = room;
	}
	nd = &g->list[g->n++];
	memset(nd, 0, sizeof(*nd));
	nd->ifindex = ifindex;
	return nd;
}

/* The first attribute of this type in the ones that are nested; false if there is none. */
static bool find_attribute(struct span nested, uint16_t wanted, struct span *value)
{
	uint16_t type;

	while (next_attribute(&nested, &type, value))
		if (type == wanted)
			return true;
	return false;
}

const void *vb_netdev_parse_attribute(const void *attributes, size_t len, uint16_t type, size_t least)
{
	struct span value;

	return find_attribute((struct span){attributes, len}, type, &value) && value.len >= least ? value.p : NULL;
}

/* Is the interface of this kind, by its IFLA_LINKINFO? The kernel's text has a NUL at its end or not. */
static bool is_kind(struct span info, const char *kind)
{
	struct span value;

	return find_attribute(info, IFLA_INFO_KIND, &value) && value.len >= strlen(kind) &&
	       !strncmp((const char *)value.p, kind, value.len);
}

/* The active port of a bond that has one at a time. The other modes send by all ports: 0. */
static int active_port(struct span info)
{
	struct span data, value;

	if (!is_kind(info, "bond") || !find_attribute(info, IFLA_INFO_DATA, &data) ||
	    !find_attribute(data, IFLA_BOND_ACTIVE_SLAVE, &value))
		return 0;
	return (int)u32_of(value);
}

static void parse_link(struct vb_netdev_gather *g, struct span body)
{
	struct ifinfomsg m;
	struct span value;
	uint16_t type;
	bool vlan = false, elsewhere = false;
	int below = 0;

	if (body.len < sizeof(m))
		return;
	memcpy(&m, body.p, sizeof(m));
	/* A bridge reports its ports in messages of its own family, with other attributes: ignored. */
	if (m.ifi_index <= 0 || m.ifi_family != AF_UNSPEC)
		return;
	struct vb_netdev *nd = find_or_add(g, m.ifi_index);
	if (!nd)
		return;
	nd->arphrd = m.ifi_type;
	nd->flags = m.ifi_flags;
	skip_bytes(&body, NLMSG_ALIGN(sizeof(m)));
	while (next_attribute(&body, &type, &value)) {
		if (type == IFLA_IFNAME && value.len) {
			size_t n = strnlen((const char *)value.p, value.len);

			if (n >= sizeof(nd->name))
				n = sizeof(nd->name) - 1;
			memset(nd->name, 0, sizeof(nd->name));
			memcpy(nd->name, value.p, n);
		} else if (type == IFLA_MTU) {
			nd->mtu = u32_of(value);
		} else if (type == IFLA_ADDRESS && value.len == sizeof(nd->mac)) {
			memcpy(nd->mac, value.p, sizeof(nd->mac));
			nd->has_mac = true;
		} else if (type == IFLA_LINK) {
			below = (int)u32_of(value);
		} else if (type == IFLA_MASTER) {
			nd->master = (int)u32_of(value);
		} else if (type == IFLA_LINK_NETNSID) {
			elsewhere = true;
		} else if (type == IFLA_LINKINFO) {
			vlan = is_kind(value, "vlan");
			nd->active = active_port(value);
		}
	}
	nd->vlan_on = vlan && !elsewhere && below > 0 ? below : 0;
}

static void parse_address(struct vb_netdev_gather *g, struct span body)
{
	struct ifaddrmsg m;
	struct span value, local = {0}, address = {0};
	uint16_t type;

	if (body.len < sizeof(m))
		return;
	memcpy(&m, body.p, sizeof(m));
	uint32_t flags = m.ifa_flags;
	skip_bytes(&body, NLMSG_ALIGN(sizeof(m)));
	while (next_attribute(&body, &type, &value)) {
		if (type == IFA_LOCAL)
			local = value;
		else if (type == IFA_ADDRESS)
			address = value;
		else if (type == IFA_FLAGS)
			flags = u32_of(value);
	}
	/* On a point-to-point link IFA_ADDRESS is the peer's. */
	struct span own = local.p ? local : address;
	size_t want = m.ifa_family == AF_INET ? 4 : m.ifa_family == AF_INET6 ? 16 : 0;
	struct vb_netdev *nd = find_interface(g, (int)m.ifa_index);
	if (!want || own.len != want || !nd || nd->n_addrs == VB_NETDEV_ADDRS || (flags & IFA_F_DADFAILED))
		return;
	if (want == 4 && !nd->n_addrs)
		nd->v4_prefix = m.ifa_prefixlen;
	uint8_t *to = nd->addrs[nd->n_addrs++];
	memset(to, 0, 16);
	if (want == 4)
		to[10] = to[11] = 0xff;
	memcpy(to + 16 - want, own.p, want);
}

void vb_netdev_parse(struct vb_netdev_gather *g, const void *buf, size_t len)
{
	struct span s = {buf, len}, body;
	struct nlmsghdr h;

	while (next_message(&s, &h, &body)) {
		if (h.nlmsg_seq != g->seq)
			continue;
		if (h.nlmsg_flags & NLM_F_DUMP_INTR)
			g->interrupted = true;
		if (h.nlmsg_type == NLMSG_DONE) {
			g->done = true;
		} else if (h.nlmsg_type == NLMSG_ERROR) {
			int32_t code = (int32_t)u32_of(body);

			g->done = true;
			/* The most negative number has no positive counterpart. */
			g->err = code >= 0 ? g->err : code < -4095 ? EPROTO : -code;
		} else if (h.nlmsg_type == RTM_NEWLINK) {
			parse_link(g, body);
		} else if (h.nlmsg_type == RTM_NEWADDR) {
			parse_address(g, body);
		}
	}
}

bool vb_netdev_parse_is_change(const void *buf, size_t len)
{
	struct span s = {buf, len}, body;
	struct nlmsghdr h;

	while (next_message(&s, &h, &body))
		if (h.nlmsg_type == RTM_NEWLINK || h.nlmsg_type == RTM_DELLINK || h.nlmsg_type == RTM_NEWADDR ||
		    h.nlmsg_type == RTM_DELADDR)
			return true;
	return false;
}
