// rbd_fence.c - takes an image from a gateway that has failed: its connection is blocklisted, its lock broken
// follows: docs/ceph.md; the interfaces of librados and librbd in Ceph 16
// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "backend/gateway.h"
#include "backend/rbd.h"

#define LOCK "rbd_lock" /* librbd's name of the exclusive lock */

/* A gateway that slept longer than its blocklist lasts notices by CONFIRMED_MS that it is not the owner. */
#define BLOCKLIST_S (24 * 3600u)

static const char *without_type(const char *address)
{
	return strncmp(address, "v1:", 3) && strncmp(address, "v2:", 3) ? address : address + 3;
}

/* librbd would do it with the next write, but only after the watch of the one that has failed has timed out. It holds
 * one lock at most. */
static void break_lock(const struct nb_rbd_gateway_place *at, rados_ioctx_t io, const char *victim)
{
	char header[160], tag[128], client[128], cookie[128], address[NG_CLIENT];
	size_t tag_size = sizeof(tag), client_size = sizeof(client), cookie_size = sizeof(cookie),
	       address_size = sizeof(address);
	int exclusive;

	snprintf(header, sizeof(header), "rbd_header.%.128s", at->id);
	ssize_t n = at->lib->rados_list_lockers(io, header, LOCK, &exclusive, tag, &tag_size, client, &client_size,
	                                        cookie, &cookie_size, address, &address_size);

	if (n == 1 && !strcmp(without_type(address), without_type(victim)))
		at->lib->rados_break_lock(io, header, LOCK, client, cookie);
}

/* Each request of this connection that follows tells its OSD which version of the cluster's map it needs, so that OSD
 * then knows of the blocklist. */
int nb_rbd_fence(const struct nb_rbd_gateway_place *at, rados_ioctx_t io, char *victim)
{
	int error = at->lib->rados_blocklist_add(at->rados, victim, BLOCKLIST_S);

	if (!error)
		error = at->lib->rados_wait_for_latest_osdmap(at->rados);
	if (!error)
		break_lock(at, io, victim);
	return error;
}
