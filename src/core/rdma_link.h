// rdma_link.h - the RDMA devices of the kernel, and the network interfaces under them
// follows: rdma-link(8), linux/rdma_netlink.h
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_RDMA_LINK_H
#define VB_CORE_RDMA_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_RDMA_LINKS_MAX = 256 };

/* A port of a device of the kernel. ifindex is 0 if it has no interface, or one of another network namespace. */
struct vb_rdma_link {
	char name[64];
	uint32_t index, port;
	int ifindex;
	uint8_t state; /* enum ibv_port_state */
	bool roce;     /* RoCE, and not InfiniBand or iWARP */
};

/* Has the kernel an RDMA device? Two failed system calls where it has not. It sees past the tree of `verbena run`. */
bool vb_rdma_link_exists(void);

/* Lists the ports of all devices, in the kernel's order. Returns their number, at most `max`. */
size_t vb_rdma_link_list(struct vb_rdma_link *links, size_t max);

struct vb_netdev;

/* Is this interface that of the port, or above it? The addresses of VLANs, bridges and bonds on its interface are GIDs
 * of a RoCE device; those of a bond with one active port only while that port is below. An iWARP device has its own
 * interface alone. `all` are the n interfaces of this network. */
bool vb_rdma_link_has(const struct vb_rdma_link *link, const struct vb_netdev *all, size_t n,
                      const struct vb_netdev *nd);

/* The same of any of n ports, and of an interface that is known by its index. Asks the kernel for all interfaces, if the
 * answer needs them. */
bool vb_rdma_links_have(const struct vb_rdma_link *links, size_t n, int ifindex);

#endif
