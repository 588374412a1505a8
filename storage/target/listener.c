// listener.c - listeners of all transports
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#ifdef NT_HAVE_RDMA
#include "target/rdma.h"
#endif
#include "target/server.h"

#ifndef NT_HAVE_RDMA /* built without libibverbs and librdmacm */
#define nt_rdma_open(...) EPROTONOSUPPORT
#define nt_rdma_address(l) ""
#define nt_rdma_port(l) 0
#define nt_rdma_connections(l) 0
#define nt_rdma_turn(l) UINT64_MAX
#define nt_rdma_stop(l) (void)0
#define nt_rdma_close(l) true
#define nt_rdma_devices_turn() (void)0
#define nt_rdma_counted(l) ((const struct nt_rdma_counts *)NULL)
struct nt_rdma_counts {
	uint64_t from_pool, from_map, fetched, in_capsule, rejected;
};
#endif

int nt_listener_open(struct nt_listener *l, struct nt_server *s, const struct nt_config_address *a,
                     const struct nt_tcp_limits *limits)
{
	if (!strcmp(a->transport, "tcp")) {
		int error = nt_tcp_open(s->loop, &s->target, a->address, a->port, limits, &l->tcp);

		if (!error)
			nt_tcp_secure(l->tcp, a->tls);
		return error;
	}
	if (a->tls)
		return EOPNOTSUPP;
	if (!strcmp(a->transport, "rdma") || !strcmp(a->transport, "iwarp"))
		return nt_rdma_open(s->loop, &s->target, a->address, a->port, *a->transport == 'i', limits, &l->rdma);
	return EPROTONOSUPPORT;
}

const char *nt_listener_transport(const struct nt_listener *l)
{
	return l->tcp ? "tcp" : "rdma";
}

const char *nt_listener_address(const struct nt_listener *l)
{
	return l->tcp ? nt_tcp_address(l->tcp) : nt_rdma_address(l->rdma);
}

uint16_t nt_listener_port(const struct nt_listener *l)
{
	return l->tcp ? nt_tcp_port(l->tcp) : nt_rdma_port(l->rdma);
}

uint32_t nt_listener_connections(const struct nt_listener *l)
{
	return l->tcp ? nt_tcp_connections(l->tcp) : nt_rdma_connections(l->rdma);
}

uint64_t nt_listener_turn(struct nt_listener *l)
{
	return l->tcp ? nt_tcp_turn(l->tcp) : nt_rdma_turn(l->rdma);
}

void nt_listener_stop(struct nt_listener *l)
{
	if (l->tcp)
		nt_tcp_stop(l->tcp);
	else
		nt_rdma_stop(l->rdma);
}

bool nt_listener_close(struct nt_listener *l)
{
	return l->tcp ? nt_tcp_close(l->tcp) : nt_rdma_close(l->rdma);
}

void nt_listeners_let_go(void)
{
	nt_rdma_devices_turn();
}

void nt_listener_count(const struct nt_listener *l, void (*say)(void *to, const char *what, uint64_t n), void *to)
{
	const struct nt_rdma_counts *c = l->rdma ? nt_rdma_counted(l->rdma) : NULL;

	say(to, "copied", c ? c->in_capsule : nt_tcp_copied(l->tcp));
	if (!c)
		return;
	say(to, "sent_from_pool", c->from_pool);
	say(to, "sent_from_map", c->from_map);
	say(to, "fetched", c->fetched);
	say(to, "in_capsule", c->in_capsule);
	say(to, "rejected", c->rejected);
}

/* For a listener on all addresses: an address of this machine that others can use. */
void nt_reachable_address(bool v6, char *text, size_t size)
{
	struct ifaddrs *list, *i;

	snprintf(text, size, "%s", v6 ? "::1" : "127.0.0.1");
	if (getifaddrs(&list))
		return;
	for (i = list; i; i = i->ifa_next) {
		if (!i->ifa_addr || (i->ifa_flags & IFF_LOOPBACK) || !(i->ifa_flags & IFF_UP))
			continue;
		if (i->ifa_addr->sa_family != AF_INET) /* a listener on :: serves IPv4, too */
			continue;
		getnameinfo(i->ifa_addr, sizeof(struct sockaddr_in), text, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
		break;
	}
	freeifaddrs(list);
}
