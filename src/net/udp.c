// udp.c - UDP sockets for sending RoCEv2, and control data of received datagrams
// follows: udp(7) (UDP_GRO), ip(7), ipv6(7); IBA annex A17.3 (RoCEv2)
// SPDX-License-Identifier: MIT
#include "net/udp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "frame/packet.h"
#include "util/syscall.h"

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#ifndef IPV6_FLOWINFO /* glibc does not define it */
#define IPV6_FLOWINFO 11
#endif

#define PORTS 0xc000 /* the first of RoCEv2's source ports; the last is 0xffff */

/* --- sending --- */

static bool bind_sender(int fd, int family, const uint8_t *from, uint16_t *port)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a;
	socklen_t len = family == AF_INET ? sizeof(a.in) : sizeof(a.in6);

	for (int tries = 0; tries < 20; tries++) {
		uint16_t p = 0;

		if (tries < 16 && getrandom(&p, sizeof(p), 0) == sizeof(p))
			p |= PORTS;
		memset(&a, 0, sizeof(a));
		a.sa.sa_family = (sa_family_t)family;
		a.in.sin_port = htons(p); /* the port has the same offset in both families */
		if (from && family == AF_INET)
			memcpy(&a.in.sin_addr, from + 12, 4);
		else if (from)
			memcpy(&a.in6.sin6_addr, from, VB_GID_LEN);
		if (bind(fd, &a.sa, len))
			continue;
		if (getsockname(fd, &a.sa, &len))
			return false;
		*port = ntohs(a.in.sin_port);
		return true;
	}
	return false;
}

static void set_option(int fd, int level, int option, int value)
{
	setsockopt(fd, level, option, &value, sizeof(value));
}

int vb_udp_sender(bool v6, const uint8_t *from, uint16_t *port)
{
	int family = v6 ? AF_INET6 : AF_INET;
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (v6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	if (v6)
		set_option(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, 1); /* this socket receives nothing */
	if (bind_sender(fd, family, from, port))
		return fd;
	close(fd);
	return -1;
}

/* sendto(2) makes the kernel read less than sendmsg(2) does. */
__attribute__((hot)) long vb_udp_send(int fd, const struct msghdr *mh)
{
	bool plain = !mh->msg_controllen && mh->msg_iovlen == 1;
	long n = plain ? vb_syscall(SYS_sendto, fd, (long)mh->msg_iov->iov_base, (long)mh->msg_iov->iov_len,
	                            MSG_DONTWAIT, (long)mh->msg_name, (long)mh->msg_namelen)
	               : vb_syscall(SYS_sendmsg, fd, (long)mh, MSG_DONTWAIT, 0, 0, 0);

	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

/* --- receiving --- */

static __attribute__((hot)) uint8_t first_byte(const struct cmsghdr *c)
{
	int value = 0;

	if (c->cmsg_len >= CMSG_LEN(sizeof(value)))
		memcpy(&value, CMSG_DATA(c), sizeof(value));
	else
		memcpy(&value, CMSG_DATA(c), 1); /* IP_TOS is a byte */
	return (uint8_t)value;
}

static __attribute__((hot)) void read_v4(const struct cmsghdr *c, struct vb_udp_arrival *a, bool *known)
{
	struct in_pktinfo info;

	if (c->cmsg_type == IP_TOS) {
		a->ip.traffic_class = first_byte(c);
	} else if (c->cmsg_type == IP_TTL) {
		a->ip.hop_limit = first_byte(c);
	} else if (c->cmsg_type == IP_PKTINFO) {
		struct sockaddr_in in = {.sin_family = AF_INET};

		memcpy(&info, CMSG_DATA(c), sizeof(info));
		in.sin_addr = info.ipi_addr;
		a->ifindex = (uint32_t)info.ipi_ifindex;
		*known = vb_gid_of_sockaddr(a->flow.dst, (const struct sockaddr *)&in);
	}
}

static __attribute__((hot)) void read_v6(const struct cmsghdr *c, struct vb_udp_arrival *a, bool *known)
{
	struct in6_pktinfo info;
	uint32_t label;

	if (c->cmsg_type == IPV6_TCLASS) {
		a->ip.traffic_class = first_byte(c);
	} else if (c->cmsg_type == IPV6_HOPLIMIT) {
		a->ip.hop_limit = first_byte(c);
	} else if (c->cmsg_type == IPV6_FLOWINFO) { /* and the traffic class, which is known already */
		memcpy(&label, CMSG_DATA(c), sizeof(label));
		a->ip.flow_label = ntohl(label) & VB_FLOW_LABEL_MASK;
	} else if (c->cmsg_type == IPV6_PKTINFO && !*known) {
		memcpy(&info, CMSG_DATA(c), sizeof(info));
		memcpy(a->flow.dst, &info.ipi6_addr, VB_GID_LEN);
		a->ifindex = info.ipi6_ifindex;
		*known = true;
	}
}

__attribute__((hot)) bool vb_udp_arrived(const struct msghdr *mh, struct vb_udp_arrival *a)
{
	bool known = false;
	uint16_t port = 0;
	int size;

	*a = (struct vb_udp_arrival){.flow.dport = VB_ROCE_PORT};
	if ((mh->msg_flags & MSG_TRUNC) || !vb_gid_of_sockaddr(a->flow.src, mh->msg_name))
		return false;
	memcpy(&port, (const char *)mh->msg_name + offsetof(struct sockaddr_in, sin_port), sizeof(port));
	a->flow.sport = ntohs(port);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR((struct msghdr *)mh, c)) {
		if (c->cmsg_level == IPPROTO_IP) {
			read_v4(c, a, &known);
		} else if (c->cmsg_level == IPPROTO_IPV6) {
			read_v6(c, a, &known);
		} else if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
			memcpy(&size, CMSG_DATA(c), sizeof(size));
			a->seg = size > 0 ? (uint32_t)size : 0;
		}
	}
	return known && vb_gid_is_ipv4(a->flow.src) == vb_gid_is_ipv4(a->flow.dst);
}
