// netdev.h - the network interfaces of this namespace and their addresses: reads them, and watches for changes
// follows: rtnetlink(7), netlink(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NET_NETDEV_H
#define VB_NET_NETDEV_H

#include <stdbool.h>
#include <stddef.h>

#include "core/netif.h"

/* Stores all interfaces of any kind, in order of their index, in *list (the caller frees it), and their number in
 * *n. 0 or an errno value. */
int vb_netdev_scan(struct vb_netdev **list, size_t *n);

/* One interface: 0, ENODEV, or another errno value. */
int vb_netdev_get(int ifindex, struct vb_netdev *nd);

/* Does this interface become an adapter? Ethernet (also VLANs, bonds, veth, ...) and loopback do. */
bool vb_netdev_is_adapter(const struct vb_netdev *nd);

/* Watches for changes of links and addresses. The descriptor is readable when there are messages to drain. */
struct vb_netmon;

/* 0 or an errno value; *mon is the caller's until vb_netmon_close. */
int vb_netmon_open(struct vb_netmon **mon);
int vb_netmon_fd(const struct vb_netmon *mon);
/* Reads all messages without waiting. Returns true if a link or an address changed, or if messages were lost. */
bool vb_netmon_drain(struct vb_netmon *mon);
void vb_netmon_close(struct vb_netmon *mon);

#endif
