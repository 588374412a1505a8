// spawn.h - starting a broker from inside a program that must not notice
// follows: clone(2), close_range(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_SPAWN_H
#define VB_BROKER_CLIENT_SPAWN_H

#include "broker/proto/runtime.h"

/* Both return 0 or an errno. lock_fd, which stays the caller's, is duplicated: the broker lets the lock go when it
 * listens. *ready_fd gets the reading end of a pipe: one byte when it listens, end-of-file when it could not. */

/* Executes verbena-broker ($VERBENA_BROKER, or where the library was installed or built) with clean environment and
 * descriptors, in its own session, as nobody's child. Fails with ENOTSUP where it would become this program's child. */
int vb_spawn_process(const struct vb_runtime *rt, int lock_fd, int *ready_fd);

/* Runs the broker in a thread of this program, with a descriptor table of its own. */
int vb_spawn_thread(const struct vb_runtime *rt, int lock_fd, int *ready_fd);

/* From VERBENA_BROKER_LINGER, or the default. */
int vb_spawn_linger_ms(void);

#endif
