// srp.c - add_target of the kernel's SRP initiator: a connection to verbena-srp-host, whose writes have its answers
// follows: Linux Documentation/ABI/stable/sysfs-driver-ib_srp; unix(7)
// SPDX-License-Identifier: MIT
#include "tools/shim/srp.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tools/shim/inode.h"
#include "tools/shim/next.h"
#include "util/env.h"

NEXT_OF(write)

enum { OPEN_MOST = 16 };

/* The sockets of this process's add_targets. Their inodes stay the same after dup2 and fork. 0: a free slot. */
static uint64_t inodes[OPEN_MOST];
static unsigned opened; /* how often; writes look at inodes only if it is not 0 */

static const char folder[] = "/class/infiniband_srp/srp-";

bool vb_shim_srp_is_add_target(const char *rest)
{
	const char *slash;

	if (!rest || strncmp(rest, folder, strlen(folder)) != 0 || !vb_shim_srp_wanted())
		return false;
	slash = strchr(rest + strlen(folder), '/');
	return slash && !strcmp(slash, "/add_target");
}

/* "srp-DEVICE-PORT/add_target" as the first message has it: "add DEVICE PORT" */
static bool name_host(int fd, const char *rest)
{
	const char *device = rest + strlen(folder), *slash = strchr(device, '/'),
	           *dash = memrchr(device, '-', (size_t)(slash - device));
	char text[96];

	if (!dash)
		return false;
	int n = snprintf(text, sizeof(text), "add %.*s %.*s", (int)(dash - device), device, (int)(slash - dash - 1),
	                 dash + 1);

	return n < (int)sizeof(text) && send(fd, text, (size_t)n, MSG_NOSIGNAL) == n;
}

/* The oldest one is forgotten if there are many: its writes then succeed whatever the answer. */
static void remember_socket(int fd)
{
	unsigned i = __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);

	__atomic_store_n(&inodes[i % OPEN_MOST], vb_shim_socket_inode(fd), __ATOMIC_RELEASE);
}

APART int vb_shim_srp_open(const char *rest, int cloexec)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path, sizeof(to.sun_path), "%s/add_target", vb_env("VERBENA_SRP"));
	int fd = n < (int)sizeof(to.sun_path) ? socket(AF_UNIX, SOCK_SEQPACKET | (cloexec ? SOCK_CLOEXEC : 0), 0) : -1;

	if (fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof(to)) && name_host(fd, rest)) {
		remember_socket(fd);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	errno = ENOENT; /* as without the kernel's module */
	return -1;
}

static bool is_add_target(int fd)
{
	uint64_t inode = vb_shim_socket_inode(fd);

	for (int i = 0; inode && i < OPEN_MOST; i++)
		if (__atomic_load_n(&inodes[i], __ATOMIC_ACQUIRE) == inode)
			return true;
	return false;
}

APART static ssize_t write_line(int fd, const void *buf, size_t n)
{
	int32_t error = ENODEV; /* the service has ended */
	ssize_t got;

	if (send(fd, buf, n, MSG_NOSIGNAL) >= 0) {
		do
			got = recv(fd, &error, sizeof(error), 0);
		while (got < 0 && errno == EINTR);
		if (got != sizeof(error))
			error = ENODEV;
	}
	if (!error)
		return (ssize_t)n;
	errno = error;
	return -1;
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	if (__builtin_expect(__atomic_load_n(&opened, __ATOMIC_RELAXED) != 0, 0) && is_add_target(fd))
		return write_line(fd, buf, n);
	return NEXT(write)(fd, buf, n);
}
