// neighbour.c - checks that the next hop answers, before a route is reported as resolved
// follows: rdma_resolve_addr(3) (RDMA_CM_EVENT_ADDR_ERROR), netdevice(7)
// SPDX-License-Identifier: MIT
#include <net/if.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "rdmacm/rdmacm.h"

#define AGAIN_US 100000 /* retry interval: a silent host may come up before the program's timeout */

/* True for links that have several neighbours, with link-layer addresses. */
static bool has_neighbours(uint32_t ifindex)
{
	struct ifreq req = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	req.ifr_ifindex = (int)ifindex;
	bool known = fd >= 0 && !ioctl(fd, SIOCGIFNAME, &req) && !ioctl(fd, SIOCGIFFLAGS, &req);

	if (fd >= 0)
		close(fd);
	return known && !(req.ifr_flags & (IFF_NOARP | IFF_LOOPBACK | IFF_POINTOPOINT));
}

/* The source is always an address of this host. */
static bool is_own_address(const struct rcm_found *found)
{
	uint8_t gid[16], source[16];

	if (rcm_addr_loopback(&found->dst))
		return true;
	rcm_addr_gid(&found->dst, gid);
	rcm_addr_gid(&found->src, source);
	return !memcmp(gid, source, sizeof(gid)) || rcm_local_address(gid, rcm_addr_scope(&found->dst));
}

static void *ask_next_hop(void *arg)
{
	struct rcm_found *found = arg;
	struct ibv_ah_attr attr = {
	        .grh.sgid_index = (uint8_t)found->source.gid_index, .port_num = found->source.port, .is_global = 1};
	uint8_t mac[6];
	uint16_t vid;

	rcm_addr_gid(&found->dst, attr.grh.dgid.raw);
	while (rcm_wanted(found)) {
		int err = ibv_resolve_eth_l2_from_gid(found->source.dev->verbs, &attr, mac, &vid);

		/* Any other error does not prove that the next hop is missing. */
		if (err != -EHOSTUNREACH && err != EHOSTUNREACH) {
			rcm_found(found);
			break;
		}
		usleep(AGAIN_US);
	}
	free(found);
	return NULL;
}

bool rcm_ask_neighbour(const struct rcm_found *found)
{
	struct rcm_found *copy;

	if (rcm_addr_multicast(&found->dst) || is_own_address(found) || !has_neighbours(found->source.ifindex))
		return false;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return false;
	*copy = *found;
	if (!rcm_thread(ask_next_hop, copy))
		return true;
	free(copy);
	return false;
}
