// broker.h - the broker: one event loop per host and user, in its own process or in a thread of a program
// see: docs/connections.md
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_BROKER_H
#define VB_BROKER_SERVER_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/server/hold.h"
#include "broker/proto/runtime.h"

struct vb_broker_config {
	struct vb_runtime rt;
	int lock_fd; /* the start lock of rt, taken by the caller; released and closed once we listen. -1: take it ourselves */
	int ready_fd;  /* gets one byte when we listen, then is closed; -1: none */
	int stop_fd;   /* readable: stop, and leave the state to the next broker if programs are attached; -1: none */
	int linger_ms; /* exit this long after the last program has left */
	bool stay;     /* never exit by ourselves */
	enum vb_lanes_mode lanes;
};

/* Serves until the last program has left. Returns 0 or an errno: EADDRINUSE if another broker serves this directory. */
int vb_broker_run(const struct vb_broker_config *config);

#endif
