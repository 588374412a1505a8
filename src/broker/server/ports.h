// ports.h - the host's rules for ports: which are ephemeral, and who may bind one
// follows: ip(7), ip_local_port_range and ip_unprivileged_port_start; capabilities(7)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_PORTS_H
#define VB_BROKER_SERVER_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/server/services.h"

/* The ephemeral ports of this network namespace, with a random start. *file: -1 at first; then the kernel's file, which
 * the caller closes in the end. */
struct vb_port_range vb_ephemeral_ports(int *file);

/* May this program bind the port? Root may, and programs with CAP_NET_BIND_SERVICE as an ambient capability. Ambient
 * capabilities end when a process execs a set-user-ID program or one with file capabilities: so a process that still
 * holds the connection gains nothing from what its parent has become. pid 0: not visible from here. pid_fd confirms
 * that pid is still that program. */
bool vb_port_allowed(uint16_t port, uid_t uid, pid_t pid, int pid_fd);

/* The user who holds the UDP port in this network namespace. False if nobody holds it, or the kernel does not tell. */
bool vb_port_holder(uint16_t port, uid_t *uid);

#endif
