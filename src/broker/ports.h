// ports.h - what the host says of ports: which are for everybody, which may be taken by whom
// follows: ip(7), ip_local_port_range and ip_unprivileged_port_start; capabilities(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_PORTS_H
#define VB_BROKER_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/services.h"

/* Of this network namespace, with a random place to start at. */
struct vb_port_range vb_ephemeral_ports(void);

/* May this program take the port? pid 0: it is not visible from here. pid_fd tells that pid is still that program. */
bool vb_port_allowed(uint16_t port, uid_t uid, pid_t pid, int pid_fd);

#endif
