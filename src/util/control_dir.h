// control_dir.h - the directory with the control sockets of running programs
// follows: unix(7), verbena(7)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_CONTROL_DIR_H
#define VB_UTIL_CONTROL_DIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The control sockets of a user are in RUNTIME/control-UID, a directory of mode 0700. The name of a socket is
 * PID-NETNS-NUMBER: the process as it sees itself, the number of its network namespace, and a random number,
 * because containers that share the directory may have equal pids.
 */
#define VB_CONTROL_NAME 64

struct vb_control_name {
	int pid;
	uint64_t netns, number;
};

void vb_control_name_write(char buf[VB_CONTROL_NAME], const struct vb_control_name *name);
/* False if it is not the name of a control socket. */
bool vb_control_name_read(const char *text, struct vb_control_name *name);

/* The network namespace of the calling thread; 0 if unknown. */
uint64_t vb_control_netns(void);

/*
 * Opens the directory of this user in the runtime directory; *fd may be used with openat(2). make: creates both
 * directories if they are missing. Returns 0, ENOENT, EPERM (another user could write to it), or another errno.
 */
int vb_control_dir_open(bool make, int *fd);
/* The same in another runtime directory, for a user who may be another one. follow: the last component of runtime may
 * be a link. */
int vb_control_dir_open_at(const char *runtime, bool follow, uid_t user, int *fd);

/* Connects to the socket of this name without blocking, and checks that it belongs to this user and that a process of
 * his listens. Returns 0, ECONNREFUSED (the process has ended), EAGAIN (too many wait), EPERM, or another errno. */
int vb_control_dir_connect(int dir_fd, const char *name, uid_t user, int *sock);

/* Removes the sockets of ended processes, looking at `most` names at most. */
void vb_control_dir_sweep(int dir_fd, uid_t user, unsigned most);

#endif
