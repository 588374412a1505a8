// nldev.h - what the kernel's RDMA netlink answers, from the tree: requests in, answers out
// follows: linux/rdma_netlink.h, netlink(7); Linux drivers/infiniband/core/nldev.c
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_NLDEV_H
#define VB_SHIM_NLDEV_H

#include <stddef.h>

/* Takes one datagram of answers. */
typedef void nldev_emit(void *arg, const void *buf, size_t len);

/* Answers all requests of one datagram. Whatever its bytes are, nothing is read past len. */
void nldev_answer(const void *request, size_t len, nldev_emit *emit, void *arg);

#endif
