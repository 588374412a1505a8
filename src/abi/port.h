// port.h - the attributes of a port, for our librdmacm
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_PORT_H
#define VB_ABI_PORT_H

#include <infiniband/verbs.h>

/* As ibv_query_port(3), without the counts of violations, for which that looks at each queue pair of the process. Of a
 * device of ours. Returns 0 or an errno value. */
__attribute__((visibility("default"))) int vb_query_port_now(struct ibv_context *context, uint8_t port,
                                                             struct ibv_port_attr *attr);

#endif
