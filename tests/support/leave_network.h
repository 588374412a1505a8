// leave_network.h - moves a test program into its own network namespace, inside a user namespace if it is not root
// follows: network_namespaces(7), user_namespaces(7)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_LEAVE_NETWORK_H
#define VB_TEST_LEAVE_NETWORK_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline void leave_network_map(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

/* False if that is not allowed here. Afterwards no interface is up. */
static inline bool leave_network(void)
{
	char uid[32], gid[32];

	if (!unshare(CLONE_NEWNET))
		return true;
	snprintf(uid, sizeof(uid), "0 %u 1", (unsigned)geteuid());
	snprintf(gid, sizeof(gid), "0 %u 1", (unsigned)getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	leave_network_map("/proc/self/setgroups", "deny");
	leave_network_map("/proc/self/uid_map", uid);
	leave_network_map("/proc/self/gid_map", gid);
	return geteuid() == 0;
}

#endif
