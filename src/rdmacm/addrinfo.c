// addrinfo.c - names and services of endpoints
// follows: rdma_getaddrinfo(3), getaddrinfo(3)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>

#include "frame/fields.h"
#include "rdmacm/rdmacm.h"

#define RAI_OF_SA 0x00000010 /* RAI_SA: a service of the subnet administrator, which Ethernet does not have */

struct answer {
	struct rdma_addrinfo rai; /* first: the program has its address */
	struct answer *next;      /* in any_adapter; rcm_lock() guards it */
};

static struct answer *any_adapter;

static void *copy_bytes(const void *from, size_t len)
{
	void *to = malloc(len);

	if (to)
		memcpy(to, from, len);
	return to;
}

static bool asks_for_gid(const struct rdma_addrinfo *hints)
{
	return hints && hints->ai_family == AF_IB && hints->ai_flags & RAI_FAMILY && hints->ai_flags & RAI_NUMERICHOST;
}

static void to_hints(struct addrinfo *ai, const struct rdma_addrinfo *rai)
{
	bool ud = rai->ai_qp_type == IBV_QPT_UD, connected = rai->ai_qp_type && !ud;

	/* a GID is written as an IPv6 address */
	*ai = (struct addrinfo){.ai_family = rai->ai_family != AF_IB ? rai->ai_family
	                                     : asks_for_gid(rai)     ? AF_INET6
	                                                             : AF_UNSPEC};
	if (rai->ai_flags & RAI_PASSIVE)
		ai->ai_flags |= AI_PASSIVE;
	if (rai->ai_flags & RAI_NUMERICHOST)
		ai->ai_flags |= AI_NUMERICHOST;
	ai->ai_socktype = ud ? SOCK_DGRAM : connected ? SOCK_STREAM : 0;
	switch (rai->ai_port_space) {
	case RDMA_PS_TCP:
		ai->ai_protocol = IPPROTO_TCP;
		break;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		ai->ai_protocol = IPPROTO_UDP;
		break;
	case RDMA_PS_IB:
		ai->ai_protocol = ud ? IPPROTO_UDP : connected ? IPPROTO_TCP : 0;
		break;
	}
}

static int type_of(const struct rdma_addrinfo *hints, const struct addrinfo *ai)
{
	if (hints && hints->ai_qp_type)
		return hints->ai_qp_type;
	return ai->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
}

static int space_of(const struct rdma_addrinfo *hints, const struct addrinfo *ai)
{
	if (hints && hints->ai_port_space)
		return hints->ai_port_space;
	return ai->ai_protocol == IPPROTO_UDP ? RDMA_PS_UDP : RDMA_PS_TCP;
}

/* The service id has the port space, and the port if there is one (RDMA_IB_IP_PS_MASK, RDMA_IB_IP_PORT_MASK). */
static struct sockaddr *to_gid(const struct sockaddr_in6 *sin6, int port_space)
{
	struct sockaddr_ib *sib = calloc(1, sizeof(*sib));
	uint16_t port = ntohs(sin6->sin6_port);

	if (!sib)
		return NULL;
	sib->sib_family = AF_IB;
	sib->sib_pkey = htobe16(VB_DEFAULT_PKEY);
	sib->sib_flowinfo = sin6->sin6_flowinfo;
	memcpy(sib->sib_addr.sib_raw, &sin6->sin6_addr, 16);
	sib->sib_sid = htobe64(vb_cm_service_id((enum vb_port_space)port_space, port));
	sib->sib_sid_mask = htobe64((port_space ? ~UINT64_C(0xffff) : 0) | (port ? 0xffff : 0));
	sib->sib_scope_id = sin6->sin6_scope_id;
	return (struct sockaddr *)sib;
}

/* Returns 0, or -1 and sets errno. */
static int from_answer(struct rdma_addrinfo *rai, const struct rdma_addrinfo *hints, const struct addrinfo *ai,
                       bool is_passive)
{
	bool gid = asks_for_gid(hints);
	struct sockaddr *addr = gid ? to_gid((const struct sockaddr_in6 *)ai->ai_addr, space_of(hints, ai))
	                            : copy_bytes(ai->ai_addr, ai->ai_addrlen);
	socklen_t len = gid ? sizeof(struct sockaddr_ib) : ai->ai_addrlen;
	char *name = ai->ai_canonname ? strdup(ai->ai_canonname) : NULL;

	rai->ai_flags = is_passive ? RAI_PASSIVE : 0;
	rai->ai_family = gid ? AF_IB : ai->ai_family;
	rai->ai_qp_type = type_of(hints, ai);
	rai->ai_port_space = space_of(hints, ai);
	if (is_passive) {
		rai->ai_src_addr = addr;
		rai->ai_src_len = addr ? len : 0;
		rai->ai_src_canonname = name;
	} else {
		rai->ai_dst_addr = addr;
		rai->ai_dst_len = addr ? len : 0;
		rai->ai_dst_canonname = name;
	}
	return addr ? 0 : -1;
}

/* Returns what getaddrinfo(3) returns, or -1 and sets errno. Programs expect both. */
static int ask_resolver(const char *node, const char *service, const struct rdma_addrinfo *hints,
                        struct rdma_addrinfo *rai)
{
	struct addrinfo like, *ai;

	if (hints)
		to_hints(&like, hints);
	int ret = getaddrinfo(node, service, hints ? &like : NULL, &ai);

	if (ret)
		return ret;
	ret = from_answer(rai, hints, ai, hints && hints->ai_flags & RAI_PASSIVE);
	freeaddrinfo(ai);
	return ret;
}

/* True if the program looks for adapters rather than for an address to listen on: libfabric asks for "localhost"
 * without a service. */
static bool is_for_any_adapter(const char *node, const char *service, const struct rdma_addrinfo *rai)
{
	uint8_t binary[16];
	union rcm_addr addr;

	if (!node || service || !rai->ai_src_len || rai->ai_port_space != RDMA_PS_TCP)
		return false;
	if (inet_pton(AF_INET, node, binary) == 1 || inet_pton(AF_INET6, node, binary) == 1)
		return false;
	rcm_addr_copy(&addr, rai->ai_src_addr);
	return rcm_addr_loopback(&addr);
}

static void note_any_adapter(struct answer *a)
{
	rcm_lock();
	a->next = any_adapter;
	any_adapter = a;
	rcm_unlock();
}

static void forget_any_adapter(const struct rdma_addrinfo *rai)
{
	rcm_lock();
	for (struct answer **at = &any_adapter; *at; at = &(*at)->next)
		if (&(*at)->rai == rai) {
			*at = (*at)->next;
			break;
		}
	rcm_unlock();
}

bool rcm_addr_for_any_adapter(const struct sockaddr *addr)
{
	bool found = false;

	rcm_lock();
	for (const struct answer *a = any_adapter; a && !found; a = a->next)
		found = a->rai.ai_src_addr == addr;
	rcm_unlock();
	return found;
}

static int from_hints(const struct rdma_addrinfo *hints, struct rdma_addrinfo *rai)
{
	rai->ai_flags = hints->ai_flags;
	rai->ai_family = hints->ai_family;
	rai->ai_qp_type = hints->ai_qp_type;
	rai->ai_port_space = hints->ai_port_space;
	if (!hints->ai_dst_len)
		return 0;
	rai->ai_dst_addr = copy_bytes(hints->ai_dst_addr, hints->ai_dst_len);
	if (!rai->ai_dst_addr)
		return ENOMEM;
	rai->ai_dst_len = hints->ai_dst_len;
	return 0;
}

static int add_source(const struct rdma_addrinfo *hints, struct rdma_addrinfo *rai)
{
	if (!hints || rai->ai_src_len || !hints->ai_src_len)
		return 0;
	rai->ai_src_addr = copy_bytes(hints->ai_src_addr, hints->ai_src_len);
	if (!rai->ai_src_addr)
		return ENOMEM;
	rai->ai_src_len = hints->ai_src_len;
	return 0;
}

int rcm_check_question(const char *node, const char *service, const struct rdma_addrinfo *hints)
{
	if (!hints)
		return node || service ? 0 : EINVAL;
	if (hints->ai_flags & RAI_OF_SA)
		return EOPNOTSUPP;
	if (hints->ai_family == AF_IB && !rcm_fabric_present() && (rcm_open() || !rcm_fabric_present()))
		return EAFNOSUPPORT;
	if ((hints->ai_src_len && !hints->ai_src_addr) || (hints->ai_dst_len && !hints->ai_dst_addr))
		return EINVAL;
	return 0;
}

RCM_EXPORT int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                                struct rdma_addrinfo **res)
{
	struct answer *answer;
	int err = res ? rcm_check_question(node, service, hints) : EINVAL, ret;

	if (err)
		return rcm_fail(err);
	answer = calloc(1, sizeof(*answer));
	if (!answer)
		return -1;
	struct rdma_addrinfo *rai = &answer->rai;

	ret = node || service ? ask_resolver(node, service, hints, rai) : rcm_result(from_hints(hints, rai));
	if (!ret)
		ret = rcm_result(add_source(hints, rai));
	if (ret) {
		err = errno;
		rdma_freeaddrinfo(rai);
		errno = err;
		return ret;
	}
	if (is_for_any_adapter(node, service, rai))
		note_any_adapter(answer);
	*res = rai;
	return 0;
}

RCM_EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		forget_any_adapter(res);
		free(res->ai_connect);
		free(res->ai_route);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res);
		res = next;
	}
}
