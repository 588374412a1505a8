// inbound.h - the receive that an incoming message takes, and the event of the first packet
// follows: IBA volume 1, 10.7.3 (scatter), 10.8.3 (receive queues), 11.6.3.1 (communication established)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_INBOUND_H
#define VB_CORE_INBOUND_H

#include <sys/uio.h>

#include "core/node.h"

/* wc.sl of a datagram shows which IP header precedes it, as with mlx5, because UCX before 1.14 reads it there. */
#define VB_SL_IPV6 (8 | 1)
#define VB_SL_IPV4 (8 | 2)

/* Takes the next receive into qp->inbound. Under progress. */
bool vb_receive_take(struct vb_qp *qp);
/* Stores bytes in the receive that was taken. False: protection error. */
bool vb_receive_store(struct vb_qp *qp, uint64_t off, const void *src, uint32_t n);
/* The same for a receive of a queue that belongs to no queue pair: its domain and its pieces. */
bool vb_scatter_store(struct vb_node *node, uint32_t pd, const struct ibv_sge *sges, uint32_t n_sges, const void *src,
                      uint32_t n);
/* Finds the memory of n bytes of the receive from offset off on. Returns the number of pieces, at most VB_MAX_SGE, or
 * -1 for a protection error. */
int vb_receive_pieces(struct vb_qp *qp, uint64_t off, uint64_t n, struct iovec *iov);
/* Raises IBV_EVENT_COMM_EST for the first packet in RTR. Under progress. */
void vb_first_contact(struct vb_qp *qp);

#endif
