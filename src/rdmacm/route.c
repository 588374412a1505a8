// route.c - the source address that the kernel's routing chooses, and the path record of a RoCE path
// follows: rdma_resolve_route(3); IBA volume 1, 15.2.5.16 (PathRecord)
// SPDX-License-Identifier: MIT
#include <infiniband/sa.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/port.h"
#include "frame/fields.h"
#include "rdmacm/fabric.h"
#include "rdmacm/hardware.h"

/* Connects a UDP socket, which sends nothing, and reads its local address: the source of the route. */
int rcm_route_source(const union rcm_addr *dst, const union rcm_addr *bound, union rcm_addr *src)
{
	union rcm_addr from = *bound, to = *dst;
	socklen_t len = sizeof(*src);
	int fd = socket(dst->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return errno;
	rcm_addr_set_port(&from, 0);
	if (!rcm_addr_port(&to))
		rcm_addr_set_port(&to, VB_ROCE_PORT);
	memset(src, 0, sizeof(*src));
	if ((!rcm_addr_any(bound) && bind(fd, &from.sa, rcm_addr_len(&from.sa))) ||
	    connect(fd, &to.sa, rcm_addr_len(&to.sa)) || getsockname(fd, &src->sa, &len))
		err = errno;
	close(fd);
	return err;
}

uint8_t rcm_packet_lifetime(const struct rcm_id *id)
{
	if (id->ack_timeout_set && id->ack_timeout)
		return (uint8_t)(id->ack_timeout - 1);
	return id->path.lifetime ? id->path.lifetime : RCM_LIFETIME;
}

/* Makes the program's path record of id->path. */
int rcm_path_record(struct rcm_id *id)
{
	struct ibv_sa_path_rec *rec = calloc(1, sizeof(*rec));

	if (!rec)
		return ENOMEM;
	*rec = (struct ibv_sa_path_rec){
	        .dgid = id->path.dgid,
	        .sgid = id->source.gid,
	        .flow_label = htobe32(id->path.flow_label),
	        .hop_limit = id->path.hop_limit,
	        .traffic_class = id->path.traffic_class,
	        .reversible = 1,
	        .numb_path = 1,
	        .pkey = htobe16(VB_DEFAULT_PKEY),
	        .sl = id->path.sl,
	        .mtu_selector = 2, /* exactly this MTU */
	        .mtu = id->path.mtu,
	        .rate_selector = 2,
	        .rate = id->path.rate,
	        .packet_life_time_selector = 2,
	        .packet_life_time = rcm_packet_lifetime(id),
	};
	if (rcm_on_fabric(id)) {
		rec->dlid = htobe16(id->path.dlid);
		rec->slid = htobe16(id->path.slid);
		rec->pkey = htobe16(id->path.pkey);
	}
	free(id->id.route.path_rec);
	id->id.route.path_rec = rec;
	id->id.route.num_paths = 1;
	return 0;
}

static int resolve_path(struct rcm_id *id)
{
	struct ibv_port_attr port;
	int err = 0;

	if (id->state != RCM_ADDR_RESOLVED)
		return EINVAL;
	if (vb_query_port_bare(id->source.dev->verbs, id->source.port, &port))
		return ENODEV;
	rcm_lock();
	if (id->state == RCM_ADDR_RESOLVED) {
		rcm_addr_gid(&id->dst, id->path.dgid.raw);
		id->path.mtu = port.active_mtu;
		id->path.rate = (uint8_t)vb_rate_of_port(&port);
		id->path.hop_limit = RCM_HOP_LIMIT;
		id->path.traffic_class = id->tos;
		err = rcm_post(id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
		if (!err)
			id->state = RCM_ROUTE_RESOLVED;
	} else {
		err = EINVAL;
	}
	rcm_unlock();
	return err;
}

RCM_EXPORT int rdma_resolve_route(struct rdma_cm_id *cm_id, int timeout_ms)
{
	RCM_HARDWARE_WAITS(resolve_route, cm_id, timeout_ms);
	struct rcm_id *id = rcm_id(cm_id);

	if (!rcm_ours(id))
		return -1;
	int err = rcm_on_fabric(id) ? rcm_fabric_resolve_route(id, timeout_ms) : resolve_path(id);

	return rcm_result(err ? err : rcm_complete(id));
}
