// kind.c - what a peer is, by what its host says beside RoCE: ICMP errors of its port, and the maker of its network card
// follows: RFC 1122 §4.1.3.3 (ICMP errors of UDP); arp(7), proc(5) /proc/net/arp
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frame/fields.h"
#include "tools/doctor/doctor.h"

#define ANSWER_MS 400
#define TRIES 3 /* a host limits how many ICMP errors it sends */

/* An empty datagram is no RoCE packet: an adapter drops it. */
static int port_error(const struct sockaddr *to)
{
	struct sockaddr_storage copy = {0};
	bool v6 = to->sa_family == AF_INET6;
	socklen_t len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	socklen_t n = sizeof(err);

	memcpy(&copy, to, len);
	if (v6)
		((struct sockaddr_in6 *)&copy)->sin6_port = htons(VB_ROCE_PORT);
	else
		((struct sockaddr_in *)&copy)->sin_port = htons(VB_ROCE_PORT);
	if (fd < 0)
		return 0;
	if (!connect(fd, (struct sockaddr *)&copy, len) && !send(fd, "", 0, 0) && poll(&p, 1, ANSWER_MS) > 0)
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n);
	close(fd);
	return err;
}

enum doc_port doc_roce_port(const struct sockaddr *to)
{
	for (int i = 0; i < TRIES; i++) {
		int err = port_error(to);

		if (err == ECONNREFUSED)
			return DOC_PORT_CLOSED;
		if (err == EHOSTUNREACH || err == EACCES || err == ENETUNREACH)
			return DOC_PORT_FORBIDDEN;
	}
	return DOC_PORT_SILENT;
}

/* Makers of RDMA hardware by the first three bytes of the MAC address (the IEEE's list). They make Ethernet cards
 * without RDMA too, so this is a hint. */
static const struct {
	const char *prefix, *maker;
} makers[] = {
        {"00:02:c9", "NVIDIA (Mellanox)"}, {"04:3f:72", "NVIDIA (Mellanox)"}, {"08:c0:eb", "NVIDIA (Mellanox)"},
        {"0c:42:a1", "NVIDIA (Mellanox)"}, {"1c:34:da", "NVIDIA (Mellanox)"}, {"24:8a:07", "NVIDIA (Mellanox)"},
        {"50:6b:4b", "NVIDIA (Mellanox)"}, {"7c:fe:90", "NVIDIA (Mellanox)"}, {"98:03:9b", "NVIDIA (Mellanox)"},
        {"b8:59:9f", "NVIDIA (Mellanox)"}, {"b8:ce:f6", "NVIDIA (Mellanox)"}, {"e4:1d:2d", "NVIDIA (Mellanox)"},
        {"ec:0d:9a", "NVIDIA (Mellanox)"}, {"f4:52:14", "NVIDIA (Mellanox)"}, {"00:0a:f7", "Broadcom"},
        {"00:10:18", "Broadcom"},          {"00:07:43", "Chelsio"},           {"00:0e:1e", "Marvell (QLogic)"},
};

const char *doc_maker_of(const struct sockaddr *to)
{
	char address[INET_ADDRSTRLEN], line[256], ip[64], mac[64];
	const char *found = NULL;

	if (to->sa_family != AF_INET ||
	    !inet_ntop(AF_INET, &((const struct sockaddr_in *)to)->sin_addr, address, sizeof(address)))
		return NULL;
	FILE *f = fopen("/proc/net/arp", "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %*s %*s %63s", ip, mac) != 2 || strcmp(ip, address) != 0)
			continue;
		for (size_t i = 0; i < sizeof(makers) / sizeof(*makers); i++)
			if (!strncmp(mac, makers[i].prefix, 8))
				found = makers[i].maker;
	}
	if (f)
		fclose(f);
	return found;
}
