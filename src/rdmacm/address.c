// address.c - converts between the socket addresses of librdmacm and GIDs
// follows: rdma_bind_addr(3); RFC 4291 §2.5 (kinds of addresses); annex A17 (RoCEv2): GIDs are IP addresses
// SPDX-License-Identifier: MIT
#include "rdmacm/rdmacm.h"

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

socklen_t rcm_addr_len(const struct sockaddr *addr)
{
	errno = EINVAL;
	if (!addr)
		return 0;
	switch (addr->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	case AF_IB:
		if (rcm_fabric_present())
			return sizeof(struct sockaddr_ib);
		errno = EAFNOSUPPORT; /* no adapter here has an InfiniBand link */
		return 0;
	default:
		return 0;
	}
}

void rcm_addr_copy(union rcm_addr *to, const struct sockaddr *from)
{
	memset(to, 0, sizeof(*to));
	memcpy(to, from, rcm_addr_len(from));
}

bool rcm_addr_any(const union rcm_addr *addr)
{
	if (addr->sa.sa_family == AF_IB)
		return ib_addr_any(&addr->sib.sib_addr);
	return addr->sa.sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&addr->sin6.sin6_addr)
	                                      : addr->sin.sin_addr.s_addr == htonl(INADDR_ANY);
}

bool rcm_addr_loopback(const union rcm_addr *addr)
{
	if (addr->sa.sa_family == AF_IB)
		return ib_addr_loopback(&addr->sib.sib_addr);
	return addr->sa.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&addr->sin6.sin6_addr)
	                                      : ntohl(addr->sin.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool rcm_addr_multicast(const union rcm_addr *addr)
{
	const struct in6_addr *v6 = &addr->sin6.sin6_addr;

	if (addr->sa.sa_family == AF_IB)
		return addr->sib.sib_addr.sib_raw[0] == 0xff;
	if (addr->sa.sa_family != AF_INET6)
		return IN_MULTICAST(ntohl(addr->sin.sin_addr.s_addr));
	return IN6_IS_ADDR_MULTICAST(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && IN_MULTICAST(ntohl(v6->s6_addr32[3])));
}

bool rcm_addr_link_local(const union rcm_addr *addr)
{
	return addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->sin6.sin6_addr);
}

void rcm_addr_gid(const union rcm_addr *addr, uint8_t gid[16])
{
	if (addr->sa.sa_family == AF_IB) {
		memcpy(gid, addr->sib.sib_addr.sib_raw, 16);
		return;
	}
	if (addr->sa.sa_family == AF_INET6) {
		memcpy(gid, &addr->sin6.sin6_addr, 16);
		return;
	}
	memcpy(gid, mapped, sizeof(mapped));
	memcpy(gid + sizeof(mapped), &addr->sin.sin_addr, 4);
}

void rcm_addr_from_gid(union rcm_addr *addr, const uint8_t gid[16], uint16_t port, uint32_t scope)
{
	memset(addr, 0, sizeof(*addr));
	if (!memcmp(gid, mapped, sizeof(mapped))) {
		addr->sin.sin_family = AF_INET;
		memcpy(&addr->sin.sin_addr, gid + sizeof(mapped), 4);
	} else {
		addr->sin6.sin6_family = AF_INET6;
		memcpy(&addr->sin6.sin6_addr, gid, 16);
		if (rcm_addr_link_local(addr))
			addr->sin6.sin6_scope_id = scope;
	}
	rcm_addr_set_port(addr, port);
}

uint16_t rcm_addr_port(const union rcm_addr *addr)
{
	if (addr->sa.sa_family == AF_IB)
		return (uint16_t)(be64toh(addr->sib.sib_sid) & be64toh(addr->sib.sib_sid_mask));
	return ntohs(addr->sa.sa_family == AF_INET6 ? addr->sin6.sin6_port : addr->sin.sin_port);
}

void rcm_addr_set_port(union rcm_addr *addr, uint16_t port)
{
	if (addr->sa.sa_family == AF_IB) {
		addr->sib.sib_sid = htobe64((be64toh(addr->sib.sib_sid) & ~UINT64_C(0xffff)) | port);
		addr->sib.sib_sid_mask |= htobe64(UINT64_C(0xffff));
	} else if (addr->sa.sa_family == AF_INET6) {
		addr->sin6.sin6_port = htons(port);
	} else {
		addr->sin.sin_port = htons(port);
	}
}

uint32_t rcm_addr_scope(const union rcm_addr *addr)
{
	return rcm_addr_link_local(addr) ? addr->sin6.sin6_scope_id : 0;
}
