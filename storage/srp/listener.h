// listener.h - the SRP target on rdma_cm
// follows: rdma_cm(7)
// SPDX-License-Identifier: MIT
#ifndef SP_LISTENER_H
#define SP_LISTENER_H

#include "srp/channel.h"
#include "target/loop.h"

struct sp_listener;

int sp_listener_open(struct nt_loop *l, struct sp_target *t, const char *address, uint16_t port,
                     struct sp_listener **out); /* 0 or errno */
/* Also takes logins to a service id of InfiniBand, which it chooses. 0 or errno */
int sp_listener_open_ib(struct sp_listener *p, uint64_t *service_id);
uint16_t sp_listener_port(const struct sp_listener *p);
/* Handles what the loop's events have left to do. Returns when to call again at the latest, in ms of nt_now. */
uint64_t sp_listener_turn(struct sp_listener *p, uint64_t now);
void sp_listener_stop(struct sp_listener *p);  /* no new logins; tells the initiators */
bool sp_listener_close(struct sp_listener *p); /* ends their connections. False: requests are in progress still */

#endif
