// broker.h - the broker: one small loop per host, as a process of its own or as a thread in a program
// follows: design "Control path and data path"
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
	int lock_fd;   /* the lock of rt, held for us until we listen (then let go and closed); -1: take it ourselves */
	int ready_fd;  /* gets one byte when we listen; closed then; -1: none */
	int stop_fd;   /* readable: stop, and leave the state to the next broker if programs are attached; -1: none */
	int linger_ms; /* how long we stay when the last has left */
	bool stay;     /* … or for ever */
	enum vb_lanes_mode lanes;
};

/* Serves until the last program has left (0), or an errno: EADDRINUSE when another broker serves there. */
int vb_broker_run(const struct vb_broker_config *config);

#endif
