// neighbour.c - prints the Ethernet address and VLAN of an IP address for a device; run by neighbour.sh
// follows: ibv_resolve_eth_l2_from_gid of rdma-core
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include "load.h"

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	if (inet_pton(AF_INET, text, gid.raw + 12) != 1)
		CHECK(inet_pton(AF_INET6, text, gid.raw) == 1);
	return gid;
}

/* neighbour <device> <source address> <destination address> */
int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1};
	union ibv_gid source = gid_of(argv[2]), gid;
	uint8_t mac[6];
	uint16_t vid = 0;

	for (int i = 0; devices && devices[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), argv[1]))
			context = ibv_open_device(devices[i]);
	CHECK(context);
	for (int i = 0; !ibv_query_gid(context, 1, i, &gid); i++)
		if (!memcmp(&gid, &source, sizeof(gid)))
			attr.grh.sgid_index = (uint8_t)i;
	attr.grh.dgid = gid_of(argv[3]);
	int err = ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vid);
	if (err)
		printf("%d\n", err);
	else
		printf("%02x:%02x:%02x:%02x:%02x:%02x %#x\n", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], vid);
	ibv_close_device(context);
	ibv_free_device_list(devices);
	return 0;
}
