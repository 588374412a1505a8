// netdev_parse.h - parses rtnetlink messages about links and addresses into interfaces; does no I/O
// follows: rtnetlink(7), netlink(7)
// SPDX-License-Identifier: MIT
#ifndef VB_NET_NETDEV_PARSE_H
#define VB_NET_NETDEV_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/netif.h"

/* Gathers the answers to the dumps of links, then of IPv4 and IPv6 addresses. Starts as zeros; list is the caller's. */
struct vb_netdev_gather {
	struct vb_netdev *list;
	size_t n, room;
	uint32_t seq;     /* messages with another sequence number are strays of an earlier dump */
	bool done;        /* the present dump has ended */
	bool interrupted; /* the interfaces changed during the dump: repeat it */
	int err;          /* errno value that the kernel sent, or ENOMEM */
};

/* Parses one datagram from the kernel. Never reads past len, whatever the bytes are. */
void vb_netdev_parse(struct vb_netdev_gather *g, const void *buf, size_t len);

/* The first of these attributes that has this type, if it has at least so many bytes; or NULL. */
const void *vb_netdev_parse_attribute(const void *attributes, size_t len, uint16_t type, size_t least);

/* Does this datagram report a link or an address that was added, removed or changed? */
bool vb_netdev_parse_is_change(const void *buf, size_t len);

#endif
