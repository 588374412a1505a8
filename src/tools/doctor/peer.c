// peer.c - the way to another host: its name, the route, the adapter, and what answers there
// follows: getaddrinfo(3), connect(2)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/device.h"
#include "frame/fields.h"
#include "tools/doctor/doctor.h"

#define ADDRESSES 4
#define TCP_MS 1500

/* How this host would send to an address. */
struct way {
	struct sockaddr_storage source;
	char source_text[INET6_ADDRSTRLEN];
	char device[64], interface[32];
	unsigned mtu;
	bool up;
};

static const void *raw_address(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr
	                                 : (const void *)&((const struct sockaddr_in *)sa)->sin_addr;
}

static void peer_address_text(const struct sockaddr *sa, char text[INET6_ADDRSTRLEN])
{
	if (!inet_ntop(sa->sa_family, raw_address(sa), text, INET6_ADDRSTRLEN))
		strcpy(text, "?");
}

/* The address as a GID: IPv4 is mapped. */
static void address_gid(const struct sockaddr *sa, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (sa->sa_family == AF_INET6) {
		memcpy(gid, raw_address(sa), 16);
		return;
	}
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, raw_address(sa), 4);
}

static bool owns_address(const struct vb_netdev *nd, const uint8_t gid[16])
{
	for (size_t i = 0; i < nd->n_addrs; i++)
		if (!memcmp(nd->addrs[i], gid, 16))
			return true;
	return false;
}

/* Finds the RoCE adapter whose interface has the source address. */
static bool find_way_device(struct way *w)
{
	struct ibv_device **list = vb_device_list(NULL);
	uint8_t gid[16];
	bool found = false;

	address_gid((struct sockaddr *)&w->source, gid);
	for (int i = 0; list && list[i] && !found; i++) {
		struct vb_device *dev = vb_device_of(list[i]);
		struct vb_netdev nd;

		vb_device_netdev(dev, &nd);
		if (dev->iwarp || !owns_address(&nd, gid))
			continue;
		found = true;
		snprintf(w->device, sizeof(w->device), "%s", dev->dev.name);
		snprintf(w->interface, sizeof(w->interface), "%s", nd.name);
		w->mtu = nd.mtu;
		w->up = vb_netdev_is_up(&nd);
	}
	if (list)
		vb_device_list_free(list);
	return found;
}

/* Asks the routing table. 0 or an errno value. */
static int find_route(const struct sockaddr *to, socklen_t len, struct way *w)
{
	socklen_t n = sizeof(w->source);
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return errno;
	if (connect(fd, to, len) || getsockname(fd, (struct sockaddr *)&w->source, &n))
		err = errno;
	close(fd);
	if (!err)
		peer_address_text((struct sockaddr *)&w->source, w->source_text);
	return err;
}

/* Connects to a TCP port that is probably closed: a refusal shows that the host is there, and TCP reaches it. */
static bool is_reachable(const struct sockaddr *to, socklen_t len, const char *name)
{
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t n = sizeof(err);
	int64_t began = doc_now_us();

	if (fd < 0)
		return false;
	if (connect(fd, to, len) && errno != EINPROGRESS)
		err = errno;
	else if (poll(&p, 1, TCP_MS) <= 0)
		err = ETIMEDOUT;
	else
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n);
	close(fd);
	bool there = !err || err == ECONNREFUSED;

	if (there)
		doc_find(DOC_OK, "tcp", NULL, "%s answers to TCP within %lld us: iWARP connections can reach it", name,
		         (long long)(doc_now_us() - began));
	else
		doc_find(DOC_WARN, "tcp", "look at the firewalls of both hosts, and whether the host is up",
		         "%s does not answer to TCP (%s), on which iWARP travels", name, strerror(err));
	return there;
}

static void check_address(const struct sockaddr *to, socklen_t len)
{
	char name[INET6_ADDRSTRLEN];
	struct way w = {.mtu = 0};
	uint8_t gid[16];

	peer_address_text(to, name);
	int err = find_route(to, len, &w);

	if (err) {
		doc_find(DOC_FAIL, "route", "ip route add (ip route get shows what there is)", "no route to %s: %s",
		         name, strerror(err));
		return;
	}
	if (!find_way_device(&w)) {
		doc_find(DOC_FAIL, "route",
		         "unset VERBENA_DEVICES, or add the interface to it (verbena devices lists adapters)",
		         "packets to %s leave from %s, whose interface has no RoCE adapter", name, w.source_text);
		return;
	}
	address_gid(to, gid);
	bool own = vb_gid_is_local((const union ibv_gid *)gid);

	doc_find(w.up ? DOC_OK : DOC_WARN, "route", NULL, "to %s by %s on %s from %s, interface MTU %u%s%s", name,
	         w.device, w.interface, w.source_text, w.mtu, own ? "; this is an address of this host" : "",
	         w.up ? "" : "; the interface is down");
	bool there = is_reachable(to, len, name);

	if (!own && there)
		doc_probe_mtu(to, name, w.mtu, w.interface);
	doc_probe_roce(to, name, there, w.device);
}

void doc_check_peer(const char *host)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char port[8];
	int n = 0;

	snprintf(port, sizeof(port), "%d", VB_ROCE_PORT);
	int rc = getaddrinfo(host, port, &hints, &list);

	if (rc) {
		doc_find(DOC_FAIL, "name", "give an IP address, or add the name to /etc/hosts or the DNS", "%s: %s",
		         host, gai_strerror(rc));
		return;
	}
	for (struct addrinfo *a = list; a; a = a->ai_next)
		n++;
	doc_find(DOC_OK, "name", NULL, "%s has %d address%s", host, n, n == 1 ? "" : "es");
	n = 0;
	for (struct addrinfo *a = list; a && n < ADDRESSES; a = a->ai_next, n++)
		check_address(a->ai_addr, a->ai_addrlen);
	freeaddrinfo(list);
}
