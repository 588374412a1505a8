// fuzz_neighbour.c - arbitrary bytes as answers about routes and neighbours: nothing is read beyond them
// follows: netlink(7)
// SPDX-License-Identifier: MIT
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static ssize_t fuzz_send(int fd, const void *buf, size_t len, int flags);
static ssize_t fuzz_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len);
#define send fuzz_send
#define recvfrom fuzz_recvfrom
#include "../../src/abi/neighbour.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *bytes;
static size_t left;

/* Stubs for functions elsewhere in the library, which these calls do not reach. */
int vb_query_gid_at(struct vb_device *dev, uint32_t port, int index, union ibv_gid *gid)
{
	return EINVAL;
}

bool vb_gid_is_local(const union ibv_gid *gid)
{
	return false;
}

int vb_gid_to_ifindex(const union ibv_gid *gid)
{
	return 0;
}

static ssize_t fuzz_send(int fd, const void *buf, size_t len, int flags)
{
	return (ssize_t)len;
}

static ssize_t fuzz_recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	size_t n = left < len ? left : len;

	memset(from, 0, *from_len);
	memcpy(buf, bytes, n);
	return (ssize_t)n;
}

/* Copies an answer into a block of its size, with a valid head, so that the sanitizer notices reads beyond it. */
static void examine(const uint8_t *data, size_t size, unsigned short type, size_t body, unsigned short attribute,
                    size_t payload)
{
	struct nlmsghdr *head = malloc(sizeof(*head) + size);

	*head = (struct nlmsghdr){.nlmsg_len = (uint32_t)(sizeof(*head) + size), .nlmsg_type = type};
	memcpy(head + 1, data, size);
	if (!check_answer(head, sizeof(*head) + size, type, body)) {
		const struct rtattr *found = find_attr(head, body, attribute, payload);
		uint8_t copy[16];

		if (found)
			memcpy(copy, RTA_DATA(found), payload);
	}
	free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t v6[16] = {0x20, 1, 0xd, 0xb8, [15] = 1};
	const struct address v4_to = {AF_INET, 4, v6}, v6_to = {AF_INET6, 16, v6};
	uint8_t hop[16], mac[MAC_LEN];
	int ifindex = 1;

	examine(data, size, RTM_NEWROUTE, sizeof(struct rtmsg), RTA_GATEWAY, 16);
	examine(data, size, RTM_NEWROUTE, sizeof(struct rtmsg), RTA_OIF, 4);
	examine(data, size, RTM_NEWNEIGH, sizeof(struct ndmsg), NDA_LLADDR, 6);
	examine(data, size, NLMSG_ERROR, 0, 0, 0);
	bytes = data;
	left = size;
	find_next_hop(&v4_to, &ifindex, hop);
	find_next_hop(&v6_to, &ifindex, hop);
	find_neighbour(&v6_to, 1, mac);
	return 0;
}
