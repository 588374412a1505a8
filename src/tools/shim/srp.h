// srp.h - add_target of the kernel's SRP initiator: its writer talks to verbena-srp-host
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp; man/verbena-srp-host.8
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_SRP_H
#define VB_SHIM_SRP_H

#include <stdbool.h>

#include "util/env.h"

/* Is VERBENA_SRP set? Its logins then stand in place of the kernel's SCSI hosts. */
static inline bool vb_shim_srp_wanted(void)
{
	const char *directory = vb_env("VERBENA_SRP");

	return directory && *directory;
}

/* Is this an add_target? rest: a path below the tree, or NULL. */
bool vb_shim_srp_is_add_target(const char *rest);

/* A descriptor for lines to it. Each write(2) of this program is a line, and fails as it does with the kernel; those of
 * the C library's streams, and of a program that it executes, do not see the error. -1 with errno: ENOENT, if no
 * service runs. */
int vb_shim_srp_open(const char *rest, int cloexec);

#endif
