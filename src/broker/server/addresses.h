// addresses.h - the addresses of this host, as the kernel tells them: what programs say of addresses is compared with them
// follows: rtnetlink(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_ADDRESSES_H
#define VB_BROKER_SERVER_ADDRESSES_H

#include <stdbool.h>
#include <stdint.h>

/* Those of the network namespace of the thread that opened it. */
struct vb_addresses;

/* NULL: the kernel does not tell. */
struct vb_addresses *vb_addresses_open(void);
/* Readable when something has changed: then to be told to vb_addresses_changed. */
int vb_addresses_fd(const struct vb_addresses *a);
void vb_addresses_changed(struct vb_addresses *a);
void vb_addresses_close(struct vb_addresses *a);

/* Is this GID an address of an interface here? NULL knows none. */
bool vb_addresses_has(struct vb_addresses *a, const uint8_t gid[16]);

#endif
