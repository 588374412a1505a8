// netif.h - the state of a network interface, which an adapter stores and net/netdev.h reads from the kernel
// follows: rtnetlink(7)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_NETIF_H
#define VB_CORE_NETIF_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"

/* The number of addresses that fit in the GID table. Further addresses of an interface are ignored. */
#define VB_NETDEV_ADDRS (VB_GID_TBL_LEN - 1)

struct vb_netdev {
	int ifindex;
	int vlan_on; /* the interface under this VLAN; 0 if it is none, or if that is in another network namespace */
	int master;  /* the bridge, bond or other interface that this one is a port of; 0 if it is none's */
	int active;  /* of a bond with one active port: that port; 0 otherwise */
	char name[IF_NAMESIZE];
	uint16_t arphrd;     /* ARPHRD_ETHER, ARPHRD_LOOPBACK, ... */
	bool has_mac;        /* a link-layer address of six bytes was announced */
	uint8_t mac[6];      /* zero on lo */
	uint32_t flags;      /* IFF_UP, IFF_RUNNING, ... */
	uint32_t mtu;        /* bytes of an IP packet */
	uint32_t speed_mbps; /* 0: unknown */
	bool internal;       /* its other end is on this machine: veth, bridge, loopback; a bridge may lead further */
	uint8_t v4_prefix;   /* length of the first IPv4 address's prefix */
	size_t n_addrs;
	uint8_t addrs[VB_NETDEV_ADDRS][16]; /* IPv4 as ::ffff:a.b.c.d; IPv4 first, then as the kernel lists them */
};

/* Can the interface send packets: has the administrator set it up, and does it have a carrier? */
static inline bool vb_netdev_is_up(const struct vb_netdev *nd)
{
	return (nd->flags & IFF_UP) && (nd->flags & IFF_RUNNING);
}

#endif
