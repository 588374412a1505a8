// neighbour_forged.c - answers about routes that are not from the kernel, or are malformed, have no effect
// follows: netlink(7)
// SPDX-License-Identifier: MIT
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The source file itself, between a program and a simulated kernel. */
static ssize_t forged_send(int fd, const void *buf, size_t len, int flags);
static ssize_t forged_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len);
#define send forged_send
#define recv(fd, buf, len, flags) forged_recvfrom(fd, buf, len, flags, NULL, NULL)
#define recvfrom forged_recvfrom
#include "../../../src/abi/neighbour.c"
#include "../../support/check.h"

/* The content of the socket: the answers in order, each from a port. */
static struct {
	uint32_t port;
	struct {
		struct nlmsghdr head;
		char rest[256];
	} msg;
	size_t len;
} queue[4];
static int queued, taken;

static ssize_t forged_send(int fd, const void *buf, size_t len, int flags)
{
	return (ssize_t)len;
}

static ssize_t forged_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	struct sockaddr_nl addr = {.nl_family = AF_NETLINK};

	CHECK(taken < queued);
	addr.nl_pid = queue[taken].port;
	if (from)
		memcpy(from, &addr, sizeof(addr));
	memset(buf, 0x5a, len); /* bytes beyond an answer are arbitrary */
	memcpy(buf, &queue[taken].msg, queue[taken].len);
	return (ssize_t)queue[taken++].len;
}

static void begin(uint32_t port, uint16_t type, size_t body)
{
	memset(&queue[queued], 0, sizeof(queue[0]));
	queue[queued].port = port;
	queue[queued].msg.head = (struct nlmsghdr){.nlmsg_type = type, .nlmsg_len = (uint32_t)NLMSG_LENGTH(body)};
	queue[queued].len = queue[queued].msg.head.nlmsg_len;
	queued++;
}

static void attribute(uint16_t type, const void *value, size_t n)
{
	char *at = (char *)&queue[queued - 1].msg + NLMSG_ALIGN(queue[queued - 1].len);
	struct rtattr head = {.rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(n)};

	memcpy(at, &head, sizeof(head));
	memcpy(at + RTA_LENGTH(0), value, n);
	queue[queued - 1].len = NLMSG_ALIGN(queue[queued - 1].len) + RTA_LENGTH(n);
	queue[queued - 1].msg.head.nlmsg_len = (uint32_t)queue[queued - 1].len;
}

static const uint8_t destination[4] = {192, 0, 2, 1}, elsewhere[4] = {198, 51, 100, 66};
static const struct address to = {AF_INET, 4, destination};

/* The next hop for the queued answers, or the error. */
static int hop(uint8_t found[16], int *ifindex)
{
	taken = 0;
	memset(found, 0, 16);
	*ifindex = 7;
	int err = find_next_hop(&to, ifindex, found);
	queued = 0;
	return err;
}

static void what_another_program_sends_is_no_answer(void)
{
	int forged_interface = 66, ifindex;
	uint8_t found[16];

	begin(1234, RTM_NEWROUTE, sizeof(struct rtmsg));
	attribute(RTA_GATEWAY, elsewhere, 4);
	attribute(RTA_OIF, &forged_interface, 4);
	begin(0, RTM_NEWROUTE, sizeof(struct rtmsg));
	CHECK(hop(found, &ifindex) == 0);
	CHECK(!memcmp(found, destination, 4) && ifindex == 7);
}

static void attributes_of_another_length_are_passed_over(void)
{
	int ifindex;
	uint8_t found[16];

	begin(0, RTM_NEWROUTE, sizeof(struct rtmsg));
	attribute(RTA_OIF, elsewhere, 1);
	attribute(RTA_GATEWAY, elsewhere, 1);
	CHECK(hop(found, &ifindex) == 0);
	CHECK(!memcmp(found, destination, 4) && ifindex == 7);
}

static void a_message_of_another_kind_is_no_answer(void)
{
	int ifindex;
	uint8_t found[16];

	begin(0, NLMSG_ERROR, 0); /* without the error */
	CHECK(hop(found, &ifindex) == EPROTO);
	begin(0, NLMSG_ERROR, sizeof(struct nlmsgerr)); /* 0: an acknowledgement */
	CHECK(hop(found, &ifindex) == EPROTO);
	begin(0, RTM_NEWLINK, sizeof(struct rtmsg));
	CHECK(hop(found, &ifindex) == EPROTO);
	begin(0, RTM_NEWROUTE, 1);
	CHECK(hop(found, &ifindex) == EPROTO);
}

static void a_neighbour_is_believed_from_the_kernel_alone(void)
{
	static const uint8_t mac[6] = {2, 0, 0, 0, 0, 6}, true_mac[6] = {2, 0, 0, 0, 0, 1};
	uint8_t found[6] = {0};

	begin(1234, RTM_NEWNEIGH, sizeof(struct ndmsg));
	attribute(NDA_LLADDR, mac, 6);
	begin(0, RTM_NEWNEIGH, sizeof(struct ndmsg));
	attribute(NDA_LLADDR, true_mac, 6);
	taken = 0;
	CHECK(find_neighbour(&to, 7, found) == 0 && !memcmp(found, true_mac, 6));
	queued = taken = 0;
	begin(0, RTM_NEWNEIGH, sizeof(struct ndmsg));
	attribute(NDA_LLADDR, mac, 5);
	CHECK(find_neighbour(&to, 7, found) == EAGAIN);
}

int main(void)
{
	what_another_program_sends_is_no_answer();
	attributes_of_another_length_are_passed_over();
	a_message_of_another_kind_is_no_answer();
	a_neighbour_is_believed_from_the_kernel_alone();
	return 0;
}
