// nldev.h - answers the requests of RDMA netlink from the tree
// follows: linux/rdma_netlink.h, netlink(7); Linux drivers/infiniband/core/nldev.c
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_NLDEV_H
#define VB_SHIM_NLDEV_H

#include <stddef.h>

/* Receives one datagram of answers. */
typedef void vb_shim_nldev_emit(void *arg, const void *buf, size_t len);

/* Answers all requests of one datagram. Its content is not trusted: nothing beyond len is read. */
void vb_shim_nldev_answer(const void *request, size_t len, vb_shim_nldev_emit *emit, void *arg);

#endif
