// runtime.h - where a broker is found: directories, socket names, the lock under which one is started
// follows: nothing
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_PROTO_RUNTIME_H
#define VB_BROKER_PROTO_RUNTIME_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vb_runtime {
	char dir[PATH_MAX - 64];
	char name[64];        /* of the socket in it; ".lock" and ".state" stand beside it */
	bool explicit_dir;    /* VERBENA_RUNTIME: the caller answers for who may write there */
};

/* The directory in which this program's user starts brokers (vb_runtime_path, util/runtime.h), and the socket of this network
 * namespace in it. */
int vb_runtime_own(struct vb_runtime *rt);

/* Root's, which serves everybody. False when there is no other than our own. */
bool vb_runtime_root(struct vb_runtime *rt);

/* Makes the directory and refuses one in which others could put things, or, where VERBENA_RUNTIME names it, in which they
 * have put something in our place. 0 or an errno (EPERM). */
int vb_runtime_prepare(const struct vb_runtime *rt);

/* Somebody else stands where our directory is to stand: what listens there is not to be asked. */
bool vb_runtime_is_squatted(const struct vb_runtime *rt);

/* What is wrong with the directory, in one clause: its path or that of a file in it, and the owner. False: nothing is. */
bool vb_runtime_complaint(const struct vb_runtime *rt, char *text, size_t size);

/* Connects without blocking. 0, ENOENT (nobody there, or a dead broker's socket), EAGAIN (alive, too busy now), EPERM
 * (a listener that is neither ours nor root's), or another errno. */
int vb_runtime_connect(const struct vb_runtime *rt, int *sock);

/* A listening socket of this mode at the place of whatever was there; the caller is the only one who does so: it holds the
 * lock, or the port. 0 or an errno. */
int vb_runtime_listen(const struct vb_runtime *rt, mode_t mode, int *sock, dev_t *dev, ino_t *ino);
/* Who may connect to a broker: its own user, and to root's everybody. */
mode_t vb_runtime_clients(void);

/* Removes the socket if it is still the one that was made with dev and ino. */
void vb_runtime_unlink(const struct vb_runtime *rt, dev_t dev, ino_t ino);

/* Takes the lock without blocking. 0, EWOULDBLOCK, or another errno. Let go with vb_runtime_unlock: a child of a fork
 * shares the descriptor, so that closing it alone would not. */
int vb_runtime_lock(const struct vb_runtime *rt, int *lock_fd);
void vb_runtime_unlock(int *lock_fd);

/* An open descriptor of the directory (O_PATH), or -1 with errno. */
int vb_runtime_open_dir(const struct vb_runtime *rt);

/* A uid as SO_PEERCRED reports it is a user only if our user namespace has it mapped: all others look like the
 * overflow uid, and two of them are not one user. */
bool vb_uid_is_known(uid_t uid);

int64_t vb_broker_now_ms(void); /* CLOCK_MONOTONIC */

/* The number after "Pid:" in the fdinfo of a pidfd: in our pid namespace; 0 when it is not visible or dead. */
int vb_pidfd_pid(int pid_fd);

#endif
