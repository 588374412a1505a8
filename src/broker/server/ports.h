// ports.h - what the host says of ports: which are for everybody, which may be taken by whom
// follows: ip(7), ip_local_port_range and ip_unprivileged_port_start; capabilities(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_PORTS_H
#define VB_BROKER_SERVER_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/server/services.h"

/* Of this network namespace, with a random place to start at. */
struct vb_port_range vb_ephemeral_ports(void);

/* May this program take the port? Root may, and who was given CAP_NET_BIND_SERVICE as an ambient capability: that one goes
 * when the process execs a set-user-ID program or one with file capabilities, so that a child that kept the connection has
 * nothing of what its parent has become. pid 0: it is not visible from here. pid_fd tells that pid is still that program. */
bool vb_port_allowed(uint16_t port, uid_t uid, pid_t pid, int pid_fd);

/* Whose the UDP port is in this network namespace: false where nobody has it, or the kernel does not say. */
bool vb_port_holder(uint16_t port, uid_t *uid);

#endif
