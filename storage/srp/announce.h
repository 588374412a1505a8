// announce.h - lets programs on an InfiniBand fabric find the SRP target
// SPDX-License-Identifier: MIT
#ifndef SP_ANNOUNCE_H
#define SP_ANNOUNCE_H

#include "srp/dm.h"
#include "target/loop.h"

struct sp_announce;

/*
 * Serves the device management class of a port, by the libibumad that the program finds when it runs. port: "CA:PORT",
 * "CA", or "" for the first. t is kept. 0 or errno and why: EINVAL if port is none of these, ENOSYS if there is no
 * libibumad, EBUSY if another program serves the class of this port.
 */
int sp_announce_open(struct nt_loop *l, const char *port, const struct sp_dm *t, struct sp_announce **out,
                     const char **why);
void sp_announce_close(struct sp_announce *a);

#endif
