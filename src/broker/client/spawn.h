// spawn.h - starts a broker from inside a program, as a process or as a thread
// follows: clone(2), close_range(2)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_CLIENT_SPAWN_H
#define VB_BROKER_CLIENT_SPAWN_H

#include "broker/proto/runtime.h"

/* Both return 0 or an errno. lock_fd stays the caller's and is duplicated: the broker releases the lock once it
 * listens. *ready_fd becomes the reading end of a pipe: it brings one byte when the broker listens, end-of-file if it
 * could not. */

/* Executes verbena-broker ($VERBENA_BROKER, or beside the library, or its installed path) with a clean environment,
 * clean descriptors and a session of its own. The program is not its parent. Fails with ENOTSUP where the broker
 * would become a child of this program. */
int vb_spawn_process(const struct vb_runtime *rt, int lock_fd, int *ready_fd);

/* Runs the broker in a thread of this program, with its own descriptor table. */
int vb_spawn_thread(const struct vb_runtime *rt, int lock_fd, int *ready_fd);

/* From VERBENA_BROKER_LINGER, or the default. */
int vb_spawn_linger_ms(void);

#endif
