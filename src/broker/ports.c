// ports.c - what the host says of ports
// follows: ip(7), ip_local_port_range and ip_unprivileged_port_start; capabilities(7); proc_pid_status(5)
// SPDX-License-Identifier: MIT
#include "broker/ports.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "broker/runtime.h"

#define NET_BIND_SERVICE 10 /* CAP_ */

struct vb_port_range vb_ephemeral_ports(void)
{
	struct vb_port_range range = {.low = 32768, .high = 60999};
	unsigned low, high;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (f && fscanf(f, "%u %u", &low, &high) == 2 && low && low <= high && high <= 65535)
		range = (struct vb_port_range){.low = (uint16_t)low, .high = (uint16_t)high};
	if (f)
		fclose(f);
	if (getrandom(&range.start, sizeof(range.start), 0) != sizeof(range.start))
		range.start = (uint32_t)vb_broker_now_ms();
	return range;
}

static unsigned first_for_everybody(void)
{
	unsigned first = 1024, value;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");

	if (f && fscanf(f, "%u", &value) == 1)
		first = value;
	if (f)
		fclose(f);
	return first;
}

/* In another user namespace capabilities are worth nothing here: everybody can have all of them there. */
static bool is_of_our_users(pid_t pid)
{
	char path[64], theirs[64], ours[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	ssize_t n = readlink(path, theirs, sizeof(theirs));
	ssize_t m = readlink("/proc/self/ns/user", ours, sizeof(ours));

	return n > 0 && n == m && !memcmp(theirs, ours, (size_t)n);
}

static bool has_capability(pid_t pid)
{
	unsigned long long effective = 0;
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	fclose(f);
	return effective >> NET_BIND_SERVICE & 1;
}

static bool lives(int pid_fd)
{
	struct pollfd p = {.fd = pid_fd, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

bool vb_port_allowed(uint16_t port, uid_t uid, pid_t pid, int pid_fd)
{
	if (uid == 0 || port >= first_for_everybody())
		return true;
	return pid > 0 && is_of_our_users(pid) && has_capability(pid) && lives(pid_fd);
}
