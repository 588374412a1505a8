// addresses.c - the addresses of this host, as rtnetlink reports them
// follows: rtnetlink(7); RFC 1122 section 3.2.1.3 (127.0.0.0/8)
// SPDX-License-Identifier: MIT
#include "broker/server/addresses.h"

#include <stdlib.h>
#include <string.h>

#include "frame/net.h"
#include "net/netdev.h"

struct vb_addresses {
	struct vb_netmon *mon;
	struct vb_netdev *list; /* owned */
	size_t n;
	bool fresh; /* false: rescan before the next look-up */
};

struct vb_addresses *vb_addresses_open(void)
{
	struct vb_addresses *a = calloc(1, sizeof(*a));

	if (a && vb_netmon_open(&a->mon)) {
		free(a);
		return NULL;
	}
	return a;
}

int vb_addresses_fd(const struct vb_addresses *a)
{
	return vb_netmon_fd(a->mon);
}

void vb_addresses_changed(struct vb_addresses *a)
{
	if (vb_netmon_drain(a->mon))
		a->fresh = false;
}

void vb_addresses_close(struct vb_addresses *a)
{
	if (!a)
		return;
	vb_netmon_close(a->mon);
	free(a->list);
	free(a);
}

static void addresses_rescan(struct vb_addresses *a)
{
	free(a->list);
	a->list = NULL;
	a->n = 0;
	a->fresh = !vb_netdev_scan(&a->list, &a->n);
}

static bool netdev_has_address(const struct vb_netdev *nd, const uint8_t gid[16])
{
	for (size_t i = 0; i < nd->n_addrs; i++)
		if (!memcmp(nd->addrs[i], gid, sizeof(nd->addrs[i])))
			return true;
	return false;
}

bool vb_addresses_has(struct vb_addresses *a, const uint8_t gid[16])
{
	if (!a)
		return false;
	if (vb_gid_is_ipv4(gid) && gid[12] == 127)
		return true;
	vb_addresses_changed(a); /* an address that existed before this call counts */
	if (!a->fresh)
		addresses_rescan(a);
	for (size_t i = 0; i < a->n; i++)
		if (netdev_has_address(&a->list[i], gid))
			return true;
	return false;
}
