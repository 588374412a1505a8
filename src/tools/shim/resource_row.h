// resource_row.h - a row of a program's answer about its objects, as numbers for RDMA netlink
// follows: docs/control.md; linux/rdma_netlink.h
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_RESOURCE_ROW_H
#define VB_SHIM_RESOURCE_ROW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum vb_shim_kind { VB_SHIM_QP, VB_SHIM_CM_ID, VB_SHIM_CQ, VB_SHIM_MR, VB_SHIM_PD, VB_SHIM_KINDS };

struct vb_shim_resource {
	uint32_t pid;
	uint32_t id;  /* the number of the queue pair, CQ, PD; the key of a region; of a cm_id its place in the list */
	uint32_t pdn; /* queue pairs, regions */
	/* queue pairs; type and state of ids too */
	bool has_peer, has_psns;
	uint8_t type, state;
	uint32_t peer_qpn, sq_psn, rq_psn;
	uint32_t cqe;
	uint64_t users; /* of CQs and PDs */
	uint64_t iova, length;
	uint32_t port_space;
	struct sockaddr_storage local, remote; /* of ids; family 0: none */
};

/* Reads one line of an answer, as our programs write it, if it is about this device; of an id also if it is about none.
 * Returns false for other lines. The text is not trusted: whatever it is, the numbers are numbers. */
bool vb_shim_resource_read(enum vb_shim_kind kind, const char *device, const char *line, struct vb_shim_resource *r);

#endif
