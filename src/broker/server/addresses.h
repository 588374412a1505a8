// addresses.h - the addresses of this host, as rtnetlink reports them; addresses that programs claim are checked against them
// follows: rtnetlink(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_ADDRESSES_H
#define VB_BROKER_SERVER_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

/* The addresses of the network namespace of the thread that opened it. */
struct vb_addresses;

/* NULL if there is no memory or no netlink socket. */
struct vb_addresses *vb_addresses_open(void);
/* Readable after a change: call vb_addresses_changed then. */
int vb_addresses_fd(const struct vb_addresses *a);
void vb_addresses_changed(struct vb_addresses *a);
void vb_addresses_close(struct vb_addresses *a);

/* True if this GID is an address of an interface of this host. False if a is NULL. */
bool vb_addresses_has(struct vb_addresses *a, const uint8_t gid[16]);

#endif
