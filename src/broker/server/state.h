// state.h - a file that outlives the broker: which living program holds which lane
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_STATE_H
#define VB_BROKER_SERVER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/proto.h"
#include "broker/proto/runtime.h"

/* A file beside the socket with one record per lane, updated in place. A record that a crash has torn fails its
 * checksum and is ignored. Owner, mode, size, boot, version and each record are checked before anything is used. */
struct vb_state {
	int fd;        /* -1: no file could be made; the broker works without one */
	bool followed; /* an earlier broker's file was read: programs that it does not name have ended */
	uint32_t next;
	uint64_t pid_ns;
};

/* The holder of a lane. */
struct vb_state_lane {
	uint32_t lane;
	uid_t uid;
	uint64_t incarnation;
	pid_t pid;          /* in the broker's pid namespace; 0: not visible there */
	uint64_t starttime; /* of pid, in clock ticks since boot */
};

/* Called for each holder of an earlier broker. pid_fd belongs to the callee; it is -1 if the pid is not visible from
 * here, and then nobody knows whether the holder lives. False: refused, and pid_fd stays the caller's. */
typedef bool vb_state_accept(void *arg, const struct vb_state_lane *lane, int pid_fd);

/* Reads an earlier broker's file, asks accept for each holder that lives, and starts a new file with the accepted
 * ones. *next: where to continue giving lanes; unchanged if unknown. */
void vb_state_open(struct vb_state *s, const struct vb_runtime *rt, vb_state_accept *accept, void *arg, uint32_t *next);

void vb_state_put(struct vb_state *s, const struct vb_state_lane *lane, uint32_t next);
void vb_state_clear(struct vb_state *s, uint32_t lane);

/* Closes the file, and removes it unless keep. */
void vb_state_close(struct vb_state *s, const struct vb_runtime *rt, bool keep);

/* The start time of a process; 0 if it is not known. */
uint64_t vb_process_starttime(pid_t pid);

#endif
