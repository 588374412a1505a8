// rdma_choice.h - selects RoCE or iWARP for an rdma_cm id, with an option of Verbena's librdmacm; names the kinds
// follows: rdma_set_option(3); man/verbena.7
// SPDX-License-Identifier: MIT
#ifndef NV_RDMA_CHOICE_H
#define NV_RDMA_CHOICE_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>

/* The level of Verbena's options, and the options. Another librdmacm, or a driver's adapter, refuses them. */
enum { NV_RDMA_VERBENA = 0x5642, NV_RDMA_TRANSPORT = 1, NV_RDMA_OURS = 2 };

/* Selects the iWARP adapter for a new id. False: another librdmacm, which has no such option. */
static inline bool nv_rdma_take_iwarp(struct rdma_cm_id *id)
{
	int transport = IBV_TRANSPORT_IWARP;

	return !rdma_set_option(id, NV_RDMA_VERBENA, NV_RDMA_TRANSPORT, &transport, sizeof(transport));
}

/* For status displays: the kind of adapter that an id is bound to. */
static inline const char *nv_rdma_way(struct rdma_cm_id *id)
{
	bool iwarp = id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	struct ibv_port_attr port;
	int on = 1;

	if (rdma_set_option(id, NV_RDMA_VERBENA, NV_RDMA_OURS, &on, sizeof(on)))
		return iwarp ? "iWARP by an adapter of the kernel" : "RDMA by an adapter of the kernel";
	if (iwarp)
		return "iWARP by Verbena";
	return !ibv_query_port(id->verbs, id->port_num, &port) && port.link_layer == IBV_LINK_LAYER_INFINIBAND
	               ? "InfiniBand by Verbena"
	               : "RoCE by Verbena";
}

#endif
