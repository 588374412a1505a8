// port.h - what our librdmacm asks beside the verbs: the attributes of a port, and of a queue pair by its number
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_PORT_H
#define VB_ABI_PORT_H

#include <infiniband/verbs.h>
#include <stdbool.h>

/* As ibv_query_port(3), for a device of ours, without the counts of violations: ibv_query_port looks at each queue pair of
 * the process for those. Returns 0 or an errno value. */
__attribute__((visibility("default"))) int vb_query_port_bare(struct ibv_context *context, uint8_t port,
                                                              struct ibv_port_attr *attr);
/* The static rate of a port's speed, as in path records: vb_port_rate. */
__attribute__((visibility("default"))) enum ibv_rate vb_rate_of_port(const struct ibv_port_attr *port);
/* Has this queue pair of the context's process received anything? vb_qp_has_heard. */
__attribute__((visibility("default"))) bool vb_queue_pair_has_heard(struct ibv_context *context, uint32_t qpn);

#endif
