// rdma_choice.h - which adapter an id of rdma_cm takes, where the interface has two: what Verbena's librdmacm can be told
// follows: rdma_set_option(3); man/verbena.7
// SPDX-License-Identifier: MIT
#ifndef NV_RDMA_CHOICE_H
#define NV_RDMA_CHOICE_H

#include <rdma/rdma_cma.h>

/* The iWARP one. false: there is no choice, with other adapters' librdmacm. The id is new. */
static inline bool nv_rdma_take_iwarp(struct rdma_cm_id *id)
{
	enum { VERBENA = 0x5642, TRANSPORT = 1 };
	int transport = IBV_TRANSPORT_IWARP;

	return !rdma_set_option(id, VERBENA, TRANSPORT, &transport, sizeof(transport));
}

#endif
