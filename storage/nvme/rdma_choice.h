// rdma_choice.h - selects RoCE or iWARP for an rdma_cm id, with an option of Verbena's librdmacm
// follows: rdma_set_option(3); man/verbena.7
// SPDX-License-Identifier: MIT
#ifndef NV_RDMA_CHOICE_H
#define NV_RDMA_CHOICE_H

#include <rdma/rdma_cma.h>

/* Selects the iWARP adapter for a new id. False: another librdmacm, which has no such option. */
static inline bool nv_rdma_take_iwarp(struct rdma_cm_id *id)
{
	enum { VERBENA = 0x5642, TRANSPORT = 1 };
	int transport = IBV_TRANSPORT_IWARP;

	return !rdma_set_option(id, VERBENA, TRANSPORT, &transport, sizeof(transport));
}

#endif
