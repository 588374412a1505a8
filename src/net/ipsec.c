// ipsec.c - whether this network namespace uses IPsec
// follows: netlink(7), linux/xfrm.h (XFRM_MSG_GETSADINFO, XFRM_MSG_GETSPDINFO)
// SPDX-License-Identifier: MIT
#include "net/ipsec.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "net/netdev_parse.h"

/* Copies an attribute of the answer to a question without arguments. */
static bool ask_kernel(int fd, uint16_t question, uint16_t answer, unsigned short type, void *out, size_t len)
{
	struct {
		struct nlmsghdr h;
		uint32_t flags;
	} q = {.h = {.nlmsg_len = sizeof(q), .nlmsg_type = question, .nlmsg_flags = NLM_F_REQUEST}};
	union {
		struct nlmsghdr h;
		char bytes[1024];
	} a;
	ssize_t n = send(fd, &q, sizeof(q), 0) == sizeof(q) ? recv(fd, &a, sizeof(a), 0) : -1;

	if (n < (ssize_t)NLMSG_LENGTH(sizeof(uint32_t)) || a.h.nlmsg_len > (size_t)n ||
	    a.h.nlmsg_len < NLMSG_LENGTH(sizeof(uint32_t)) || a.h.nlmsg_type != answer)
		return false;
	const size_t head = NLMSG_LENGTH(sizeof(uint32_t)); /* the flags of the question come back */
	const void *found = vb_netdev_parse_attribute(a.bytes + head, a.h.nlmsg_len - head, type, len);

	if (found)
		memcpy(out, found, len);
	return found;
}

bool vb_ipsec_is_unused(void)
{
	const struct timeval second = {.tv_sec = 1};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_XFRM);
	struct xfrmu_spdinfo policies;
	uint32_t associations;

	if (fd < 0)
		return errno == EPROTONOSUPPORT || errno == EAFNOSUPPORT;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	bool unused =
	        ask_kernel(fd, XFRM_MSG_GETSADINFO, XFRM_MSG_NEWSADINFO, XFRMA_SAD_CNT, &associations,
	                   sizeof(associations)) &&
	        ask_kernel(fd, XFRM_MSG_GETSPDINFO, XFRM_MSG_NEWSPDINFO, XFRMA_SPD_INFO, &policies, sizeof(policies)) &&
	        !associations && !policies.incnt && !policies.outcnt && !policies.fwdcnt;

	close(fd);
	return unused;
}
