// path_mtu.c - which sizes of RoCE packets reach a host: datagrams that may not be fragmented, to a closed port
// follows: RFC 1191, RFC 8899 (probing), ip(7) IP_MTU_DISCOVER
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/progress.h"

#define CLOSED 33499 /* a port for traceroute: closed on most hosts */
#define ROCE_ROOM 80 /* what core/device_query.c keeps for headers */
#define ANSWER_MS 300
#define ICMP_PAUSE_US 1200000

static const unsigned roce_sizes[] = {4096, 2048, 1024, 512, 256};

static int open_probe(const struct sockaddr *to)
{
	struct sockaddr_storage copy = {0};
	bool v6 = to->sa_family == AF_INET6;
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), probe = IP_PMTUDISC_PROBE;

	memcpy(&copy, to, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	if (v6)
		((struct sockaddr_in6 *)&copy)->sin6_port = htons(CLOSED);
	else
		((struct sockaddr_in *)&copy)->sin_port = htons(CLOSED);
	if (fd < 0)
		return -1;
	setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &probe, sizeof(probe));
	if (!connect(fd, (struct sockaddr *)&copy, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)))
		return fd;
	close(fd);
	return -1;
}

/* Did an IP packet of this size reach the host? Its answer is an ICMP error, because the port is closed. */
static bool reaches_host(const struct sockaddr *to, unsigned bytes)
{
	static const char zeros[8192];
	int fd = open_probe(to);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	unsigned headers = to->sa_family == AF_INET6 ? 48 : 28;
	bool answered = false;

	if (fd < 0)
		return false;
	if (send(fd, zeros, bytes - headers, 0) >= 0 && poll(&p, 1, ANSWER_MS) > 0) {
		char byte;

		answered = recv(fd, &byte, 1, MSG_DONTWAIT) >= 0 || errno == ECONNREFUSED;
	}
	close(fd);
	return answered;
}

/* Tries twice: a packet may be lost, and a host sends a few ICMP errors at once, then one a second. */
static bool answers_again(const struct sockaddr *to, unsigned bytes)
{
	cmd_progress_show("... packets of %u bytes to the peer", bytes);
	if (reaches_host(to, bytes))
		return true;
	usleep(ICMP_PAUSE_US);
	cmd_progress_show("... packets of %u bytes to the peer", bytes);
	return reaches_host(to, bytes);
}

void doc_probe_mtu(const struct sockaddr *to, const char *name, unsigned interface_mtu, const char *interface)
{
	unsigned own = 0, passed = 0;

	cmd_progress_begin();
	if (!answers_again(to, 100)) {
		cmd_progress_clear();
		doc_find(DOC_OK, "path-mtu", NULL,
		         "%s sends no ICMP errors (or they are lost), so the path MTU cannot be measured", name);
		return;
	}
	for (size_t i = 0; i < sizeof(roce_sizes) / sizeof(*roce_sizes) && !passed; i++) {
		if (roce_sizes[i] + ROCE_ROOM > interface_mtu)
			continue;
		own = own ? own : roce_sizes[i];
		if (answers_again(to, roce_sizes[i] + ROCE_ROOM))
			passed = roce_sizes[i];
	}
	cmd_progress_clear();
	if (passed && passed == own)
		doc_find(DOC_OK, "path-mtu", NULL, "RoCE packets of %u bytes, the largest of %s, reach %s", passed,
		         interface, name);
	else
		doc_find(DOC_FAIL, "path-mtu",
		         doc_mend("ip link set %s mtu %u (or a larger MTU on the rest of the way)", interface,
		                  (passed ? passed : 256) + ROCE_ROOM),
		         "RoCE packets of %u bytes, which %s sends, do not reach %s; the largest that do have %u", own,
		         interface, name, passed);
}
