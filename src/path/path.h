// path.h - the list of paths
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_PATH_H
#define VB_PATH_PATH_H

#include "fault/set.h"
#include "node/io.h"

extern const struct vb_path_ops vb_local_path_ops; /* RC and UC through shared memory with a program of this host */
/* UD through shared memory if the receiver is on this host, otherwise over RoCEv2 */
extern const struct vb_path_ops vb_datagram_path_ops;
extern const struct vb_path_ops vb_roce_path_ops;  /* RC and UC over RoCEv2 */
extern const struct vb_path_ops vb_iwarp_path_ops; /* RC over a TCP connection */
extern const struct vb_path_ops vb_raw_path_ops;   /* raw packets through a packet socket */

extern const struct vb_path_ops vb_ib_path_ops;          /* RC, UC and XRC where a fabric has a way, by shared memory */
extern const struct vb_path_ops vb_ib_datagram_path_ops; /* UD so too */

extern const struct vb_transport_ops vb_roce_transport, vb_iwarp_transport, vb_raw_transport, vb_ib_transport;

/* Gives the QP the operations of a path, or those that ask the rules of fault injection first. Under progress + sq_lock,
 * or no other thread knows the QP yet. */
const struct vb_path_ops *vb_path_faulty(struct vb_qp *qp, const struct vb_path_ops *ops);
/* Without the rules. */
const struct vb_path_ops *vb_path_plain(const struct vb_qp *qp);

/* limited.c: the operations of this path for a queue pair with a rate limit, and the other way round. A path that has packets,
 * or a pace of its own, stays as it is. */
const struct vb_path_ops *vb_path_limited(const struct vb_path_ops *ops);
const struct vb_path_ops *vb_path_unlimited(const struct vb_path_ops *ops);

static inline void vb_path_use(struct vb_qp *qp, const struct vb_path_ops *ops)
{
	if (qp->rate.kbps)
		ops = vb_path_limited(ops);
	qp->path = vb_fault_is_armed(VB_FAULT_ARM_QUEUE) ? vb_path_faulty(qp, ops) : ops;
}

#endif
