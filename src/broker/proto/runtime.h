// runtime.h - where a broker is found: runtime directory, socket names, start lock
// follows: unix(7), flock(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_PROTO_RUNTIME_H
#define VB_BROKER_PROTO_RUNTIME_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct vb_runtime {
	char dir[PATH_MAX - 64];
	char name[64];     /* of the socket in dir; files of this name with ".lock" and ".state" are beside it */
	bool explicit_dir; /* set by VERBENA_RUNTIME: the user is responsible for who may write there */
};

/* The runtime directory of this program's user (vb_runtime_path, util/runtime.h), and the socket of this network
 * namespace in it. */
int vb_runtime_own(struct vb_runtime *rt);

/* Root's runtime directory: its broker serves all users. False if vb_runtime_own is that directory, or if
 * VERBENA_RUNTIME is set. */
bool vb_runtime_root(struct vb_runtime *rt);

/* The broker that serves this network namespace alone, where VERBENA_RUNTIME names a directory that programs of several
 * namespaces share. False if VERBENA_RUNTIME is not set: then vb_runtime_own is that broker. */
bool vb_runtime_of_network(struct vb_runtime *rt);

/* The inode number of this thread's network namespace; 0: unknown. */
uint64_t vb_runtime_network(void);

/* Creates the directory. EPERM if other users can write to it, or, where VERBENA_RUNTIME names it, if another user's
 * file is in the place of one of ours. Returns 0 or an errno. */
int vb_runtime_prepare(const struct vb_runtime *rt);

/* True if another user owns our directory's place: a listener there must not be used. */
bool vb_runtime_is_squatted(const struct vb_runtime *rt);

/* Writes what is wrong with the directory: its path or that of a file in it, and the owner. False if nothing is
 * wrong. */
bool vb_runtime_has_complaint(const struct vb_runtime *rt, char *text, size_t size);

/* Connects without blocking. Returns 0, ENOENT (no listener, or the socket of a dead broker), EAGAIN (its backlog is
 * full), EPERM (the listener is neither ours nor root's), or another errno. */
int vb_runtime_connect(const struct vb_runtime *rt, int *sock);

/* Replaces whatever is in the socket's place by a listening socket of this mode. The caller holds the lock or the
 * port, so nobody else does the same. Returns 0 or an errno. */
int vb_runtime_listen(const struct vb_runtime *rt, mode_t mode, int *sock, dev_t *dev, ino_t *ino);
/* The mode of a broker's socket: its own user may connect, to root's broker everybody. */
mode_t vb_runtime_clients(void);

/* Removes the socket if it is still the one with this dev and ino. */
void vb_runtime_unlink(const struct vb_runtime *rt, dev_t dev, ino_t ino);

/* Takes the lock without blocking. Returns 0, EWOULDBLOCK, or another errno. Release it with vb_runtime_unlock: a
 * forked child shares the descriptor, so close alone would not release it. */
int vb_runtime_lock(const struct vb_runtime *rt, int *lock_fd);
void vb_runtime_unlock(int *lock_fd);
/* Releases the lock and removes its file. For a broker that ends; nothing is done with a lock_fd of -1. */
void vb_runtime_remove_lock(const struct vb_runtime *rt, int *lock_fd);

/* An O_PATH descriptor of the directory, or -1 with errno. */
int vb_runtime_open_dir(const struct vb_runtime *rt);

/* True if our user namespace maps this uid. SO_PEERCRED reports all other users as the overflow uid, so two of them
 * need not be the same user. */
bool vb_uid_is_known(uid_t uid);

int64_t vb_broker_now_ms(void); /* CLOCK_MONOTONIC */

/* The pid that a pidfd names, in our pid namespace; 0 if it is not visible or the process has been reaped. */
int vb_pidfd_pid(int pid_fd);

#endif
