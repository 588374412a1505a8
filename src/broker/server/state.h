// state.h - what survives the broker's death: which living program holds which lane
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_STATE_H
#define VB_BROKER_SERVER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"
#include "broker/proto/runtime.h"

/* A file beside the socket, one record per lane, written in place as things happen: a record that was cut by a crash
 * fails its check and is ignored. What is read is hostile until checked: owner, mode, size, boot, version, each record. */
struct vb_state {
	int fd; /* -1: no file could be made; a broker without one still works */
	bool followed; /* there was one of an earlier broker: whom it does not name has gone */
	uint32_t next;
	uint64_t pid_ns;
};

/* One holder. */
struct vb_state_lane {
	uint32_t lane;
	uid_t uid;
	uint64_t incarnation;
	pid_t pid;          /* in the broker's pid namespace; 0: not visible there */
	uint64_t starttime; /* of pid, clock ticks since boot */
};

/* For a holder of the earlier broker: pid_fd is the callee's, -1 when its pid cannot be looked at from here (then nobody
 * knows whether it lives). False: not accepted, pid_fd stays the caller's. */
typedef bool vb_state_accept(void *arg, const struct vb_state_lane *lane, int pid_fd);

/* Reads what an earlier broker left, asks accept for each holder that lives, and starts the new file with the accepted
 * ones. *next: where to go on giving lanes, untouched if unknown. */
void vb_state_open(struct vb_state *s, const struct vb_runtime *rt, vb_state_accept *accept, void *arg, uint32_t *next);

void vb_state_put(struct vb_state *s, const struct vb_state_lane *lane, uint32_t next);
void vb_state_clear(struct vb_state *s, uint32_t lane);

/* Closes; removes the file too when keep is false. */
void vb_state_close(struct vb_state *s, const struct vb_runtime *rt, bool keep);

/* Of a process; 0 when it is not known. */
uint64_t vb_process_starttime(pid_t pid);

#endif
