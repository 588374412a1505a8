// rdma_choice.h - selects RoCE or iWARP for an rdma_cm id, with an option of Verbena's librdmacm; names the kinds
// follows: rdma_set_option(3); man/verbena.7
// SPDX-License-Identifier: MIT
#ifndef NV_RDMA_CHOICE_H
#define NV_RDMA_CHOICE_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Selects the iWARP adapter for a new id. False: another librdmacm, which has no such option. */
static inline bool nv_rdma_take_iwarp(struct rdma_cm_id *id)
{
	enum { VERBENA = 0x5642, TRANSPORT = 1 };
	int transport = IBV_TRANSPORT_IWARP;

	return !rdma_set_option(id, VERBENA, TRANSPORT, &transport, sizeof(transport));
}

/* For status displays: the kind of adapter. Verbena's adapters have names of their own; the one on a simulated fabric is
 * there only with VERBENA_FABRIC. */
static inline const char *nv_rdma_way(const struct ibv_device *d)
{
	bool iwarp = d->transport_type == IBV_TRANSPORT_IWARP;

	if (!strncmp(d->name, "roce_", 5) || !strncmp(d->name, "iwarp_", 6))
		return iwarp ? "iWARP by Verbena" : "RoCE by Verbena";
	if (!strcmp(d->name, "ib0") && secure_getenv("VERBENA_FABRIC"))
		return "InfiniBand by Verbena";
	return iwarp ? "iWARP by an adapter of the kernel" : "RDMA by an adapter of the kernel";
}

#endif
