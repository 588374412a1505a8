// neighbour.c - the Ethernet address of a GID, from the kernel's routes and neighbour table
// follows: rtnetlink(7), rdma-core's ibv_resolve_eth_l2_from_gid; RFC 1112 §6.4, RFC 2464 §7 (multicast addresses)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <linux/if_vlan.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/abi.h"
#include "core/device.h"

enum { ERRNO_MAX = 4095, MAC_LEN = 6, WAIT_MS = 3000, LOOK_MS = 10 };

/* An IP address in the form that rtnetlink takes. */
struct address {
	uint8_t family, len;
	const uint8_t *bytes;
};

static struct address address_of(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff},
	                     mapped_multicast[12] = {0xff, 0x0e, [10] = 0xff, [11] = 0xff};

	if (!memcmp(gid->raw, mapped, sizeof(mapped)) || !memcmp(gid->raw, mapped_multicast, sizeof(mapped_multicast)))
		return (struct address){AF_INET, 4, gid->raw + 12};
	return (struct address){AF_INET6, 16, gid->raw};
}

static bool multicast_mac(const struct address *to, uint8_t mac[MAC_LEN])
{
	if (to->family == AF_INET && (to->bytes[0] & 0xf0) == 0xe0) {
		memcpy(mac, (const uint8_t[]){0x01, 0x00, 0x5e, to->bytes[1] & 0x7f, to->bytes[2], to->bytes[3]},
		       MAC_LEN);
		return true;
	}
	if (to->family == AF_INET6 && to->bytes[0] == 0xff) {
		memcpy(mac, (const uint8_t[]){0x33, 0x33}, 2);
		memcpy(mac + 2, to->bytes + 12, 4);
		return true;
	}
	return false;
}

static int interface_mac(int fd, int ifindex, uint8_t mac[MAC_LEN])
{
	struct ifreq req = {0};

	if (!if_indextoname((unsigned)ifindex, req.ifr_name) || ioctl(fd, SIOCGIFHWADDR, &req))
		return EHOSTUNREACH;
	memcpy(mac, req.ifr_hwaddr.sa_data, MAC_LEN);
	return 0;
}

/* 0xffff: the interface is no VLAN. */
static uint16_t interface_vlan(int fd, int ifindex)
{
	struct vlan_ioctl_args args = {.cmd = GET_VLAN_VID_CMD};
	char name[IF_NAMESIZE];

	if (!if_indextoname((unsigned)ifindex, name))
		return 0xffff;
	snprintf(args.device1, sizeof(args.device1), "%s", name);
	return ioctl(fd, SIOCGIFVLAN, &args) ? 0xffff : (uint16_t)args.u.VID;
}

struct request {
	struct nlmsghdr head;
	union {
		struct rtmsg route;
		struct ndmsg neighbour;
	};
	char attrs[128];
};

static void add_attr(struct request *req, unsigned short type, const void *data, size_t len)
{
	struct rtattr *attr = (struct rtattr *)((char *)req + NLMSG_ALIGN(req->head.nlmsg_len));

	attr->rta_type = type;
	attr->rta_len = (unsigned short)RTA_LENGTH(len);
	memcpy(RTA_DATA(attr), data, len);
	req->head.nlmsg_len = NLMSG_ALIGN(req->head.nlmsg_len) + (uint32_t)RTA_SPACE(len);
}

/* Receives the kernel's answer. A network administrator may send to any netlink socket, but only the kernel is port
 * 0. */
static ssize_t receive_answer(int fd, char *answer, size_t size)
{
	for (;;) {
		struct sockaddr_nl from = {0};
		socklen_t from_len = sizeof(from);
		ssize_t n = recvfrom(fd, answer, size, 0, (struct sockaddr *)&from, &from_len);

		if (n >= 0 ? from.nl_pid == 0 : errno != EINTR)
			return n;
	}
}

/* Returns 0 if the answer is a message of this type that is long enough for its body, or an errno value. */
static int check_answer(const struct nlmsghdr *head, size_t len, unsigned short type, size_t body)
{
	const struct nlmsgerr *refusal = NLMSG_DATA(head);

	if (!NLMSG_OK(head, (unsigned)len))
		return EPROTO;
	if (head->nlmsg_type == NLMSG_ERROR && head->nlmsg_len >= NLMSG_LENGTH(sizeof(*refusal)) && refusal->error < 0)
		return refusal->error < -ERRNO_MAX ? EPROTO : -refusal->error;
	return head->nlmsg_type == type && head->nlmsg_len >= NLMSG_LENGTH(body) ? 0 : EPROTO;
}

/* Sends a request for one object and receives the answer, a message of this type and body. Returns 0 or an errno
 * value. */
static int ask_kernel(struct request *req, unsigned short type, size_t body, char *answer, size_t size,
                      struct nlmsghdr **head)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return errno;
	ssize_t n = send(fd, req, req->head.nlmsg_len, 0);
	if (n >= 0)
		n = receive_answer(fd, answer, size);
	int err = n < 0 ? errno : 0;
	close(fd);
	*head = (struct nlmsghdr *)answer;
	return err ? err : check_answer(*head, (size_t)n, type, body);
}

/* Returns the first attribute of this type if it has this many bytes. */
static const struct rtattr *find_attr(const struct nlmsghdr *head, size_t body, unsigned short type, size_t payload)
{
	const struct rtattr *attr = (const struct rtattr *)((const char *)NLMSG_DATA(head) + NLMSG_ALIGN(body));
	int len = (int)head->nlmsg_len - (int)NLMSG_LENGTH(NLMSG_ALIGN(body));

	for (; RTA_OK(attr, len); attr = RTA_NEXT(attr, len))
		if (attr->rta_type == type)
			return RTA_PAYLOAD(attr) == payload ? attr : NULL;
	return NULL;
}

/* Finds the interface and the next hop, which is copied into hop. A destination on the link is its own next hop. */
static int find_next_hop(const struct address *to, int *ifindex, uint8_t hop[16])
{
	struct request req = {.head = {NLMSG_LENGTH(sizeof(struct rtmsg)), RTM_GETROUTE, NLM_F_REQUEST, 1, 0}};
	_Alignas(8) char answer[4096];
	struct nlmsghdr *head;

	req.route = (struct rtmsg){.rtm_family = to->family, .rtm_dst_len = (unsigned char)(to->len * 8)};
	add_attr(&req, RTA_DST, to->bytes, to->len);
	add_attr(&req, RTA_OIF, ifindex, sizeof(*ifindex));
	int err = ask_kernel(&req, RTM_NEWROUTE, sizeof(struct rtmsg), answer, sizeof(answer), &head);
	if (err)
		return err;
	const struct rtattr *gateway = find_attr(head, sizeof(struct rtmsg), RTA_GATEWAY, to->len);
	const struct rtattr *oif = find_attr(head, sizeof(struct rtmsg), RTA_OIF, sizeof(*ifindex));
	memcpy(hop, gateway ? RTA_DATA(gateway) : to->bytes, to->len);
	if (oif)
		memcpy(ifindex, RTA_DATA(oif), sizeof(*ifindex));
	return 0;
}

static int find_neighbour(const struct address *hop, int ifindex, uint8_t mac[MAC_LEN])
{
	struct request req = {.head = {NLMSG_LENGTH(sizeof(struct ndmsg)), RTM_GETNEIGH, NLM_F_REQUEST, 1, 0}};
	_Alignas(8) char answer[4096];
	struct nlmsghdr *head;

	req.neighbour = (struct ndmsg){.ndm_family = hop->family, .ndm_ifindex = ifindex};
	add_attr(&req, NDA_DST, hop->bytes, hop->len);
	const struct ndmsg *entry;
	int err = ask_kernel(&req, RTM_NEWNEIGH, sizeof(*entry), answer, sizeof(answer), &head);
	if (err)
		return err;
	entry = NLMSG_DATA(head);
	const struct rtattr *lladdr = find_attr(head, sizeof(*entry), NDA_LLADDR, MAC_LEN);
	if (entry->ndm_state & NUD_FAILED)
		return EHOSTUNREACH;
	if (!lladdr || (entry->ndm_state & NUD_INCOMPLETE))
		return EAGAIN;
	memcpy(mac, RTA_DATA(lladdr), MAC_LEN);
	return 0;
}

/* Sends an empty datagram to the discard port, so that the kernel looks for the neighbour. */
static void provoke_resolution(const struct address *to, int ifindex)
{
	int fd = socket(to->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} peer = {0};

	if (fd < 0)
		return;
	peer.sa.sa_family = to->family;
	if (to->family == AF_INET) {
		peer.in.sin_port = htons(9);
		memcpy(&peer.in.sin_addr, to->bytes, 4);
	} else {
		peer.in6.sin6_port = htons(9);
		memcpy(&peer.in6.sin6_addr, to->bytes, 16);
		peer.in6.sin6_scope_id = (uint32_t)ifindex;
	}
	(void)!sendto(fd, "", 0, 0, &peer.sa, to->family == AF_INET ? sizeof(peer.in) : sizeof(peer.in6));
	close(fd);
}

static int remote_mac(const struct address *to, int *ifindex, uint8_t mac[MAC_LEN])
{
	uint8_t next[16];
	const struct address hop = {to->family, to->len, next};
	int err = find_next_hop(to, ifindex, next);

	if (err)
		return EHOSTUNREACH;
	for (int waited = 0; waited < WAIT_MS; waited += LOOK_MS) {
		err = find_neighbour(&hop, *ifindex, mac);
		if (!err || (err == EHOSTUNREACH && waited))
			return err;
		if (waited % (WAIT_MS / 3) == 0)
			provoke_resolution(to, *ifindex);
		usleep(LOOK_MS * 1000);
	}
	return EHOSTUNREACH;
}

int vb_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[MAC_LEN],
                               uint16_t *vid)
{
	struct vb_device *dev = vb_device_of(context->device);
	const struct address to = address_of(&attr->grh.dgid);
	int ifindex = dev->ifindex, err = 0;
	union ibv_gid source;

	if (vb_query_gid_at(dev, attr->port_num, attr->grh.sgid_index, &source))
		return -EINVAL;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (multicast_mac(&to, mac)) {
		/* needs neither a route nor a neighbour entry */
	} else if (vb_gid_is_local(&attr->grh.dgid)) {
		/* All of 127.0.0.0/8 is local, but the tables have only 127.0.0.1. */
		int owner = vb_gid_to_ifindex(&attr->grh.dgid);
		err = interface_mac(fd, owner ? owner : ifindex, mac);
	} else {
		err = remote_mac(&to, &ifindex, mac);
	}
	if (!err && vid)
		*vid = interface_vlan(fd, ifindex);
	close(fd);
	return -err;
}
