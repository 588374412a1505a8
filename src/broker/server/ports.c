// ports.c - the host's rules for ports, and who holds one
// follows: ip(7), ip_local_port_range and ip_unprivileged_port_start; capabilities(7), user_namespaces(7); proc(5)
// SPDX-License-Identifier: MIT
#include "broker/server/ports.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "broker/proto/runtime.h"

#define NET_BIND_SERVICE 10 /* CAP_NET_BIND_SERVICE */

struct vb_port_range vb_ephemeral_ports(int *file)
{
	struct vb_port_range range = {.low = 32768, .high = 60999};
	unsigned low, high;
	char text[64];

	if (*file < 0)
		*file = open("/proc/sys/net/ipv4/ip_local_port_range", O_RDONLY | O_CLOEXEC);
	ssize_t n = *file < 0 ? -1 : pread(*file, text, sizeof(text) - 1, 0); /* the range of now, each time */

	text[n > 0 ? n : 0] = 0;
	if (sscanf(text, "%u %u", &low, &high) == 2 && low && low <= high && high <= UINT16_MAX)
		range = (struct vb_port_range){.low = (uint16_t)low, .high = (uint16_t)high};
	if (getrandom(&range.start, sizeof(range.start), 0) != sizeof(range.start))
		range.start = (uint32_t)vb_broker_now_ms();
	return range;
}

static unsigned first_unprivileged_port(void)
{
	unsigned first = 1024, value;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");

	if (f && fscanf(f, "%u", &value) == 1)
		first = value;
	if (f)
		fclose(f);
	return first;
}

static size_t read_map(const char *path, char *text, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, size, f) : 0;

	if (f)
		fclose(f);
	return n;
}

/* Capabilities in another user namespace mean nothing here: anybody can have all of them there. Only a process with
 * CAP_SETUID here can make a namespace with the same map. */
static bool has_our_uid_map(pid_t pid)
{
	char path[64], theirs[4096], ours[4096];

	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	size_t n = read_map(path, theirs, sizeof(theirs)), m = read_map("/proc/self/uid_map", ours, sizeof(ours));

	return n > 0 && n == m && !memcmp(theirs, ours, n);
}

static bool has_capability(pid_t pid)
{
	unsigned long long ambient = 0;
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapAmb: %llx", &ambient) == 1)
			break;
	fclose(f);
	return ambient >> NET_BIND_SERVICE & 1;
}

static bool process_lives(int pid_fd)
{
	struct pollfd p = {.fd = pid_fd, .events = POLLIN};

	return poll(&p, 1, 0) == 0;
}

bool vb_port_allowed(uint16_t port, uid_t uid, pid_t pid, int pid_fd)
{
	if (uid == 0 || port >= first_unprivileged_port())
		return true;
	return pid > 0 && has_our_uid_map(pid) && has_capability(pid) && process_lives(pid_fd);
}

/* Reads a kernel table of sockets: "  sl  local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid …". */
static bool find_holder(const char *path, uint16_t port, uid_t *uid)
{
	char line[512];
	FILE *f = fopen(path, "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		unsigned local, owner;

		found = sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %*x %*x:%*x %*x:%*x %*x %u", &local,
		               &owner) == 2 &&
		        local == port;
		if (found)
			*uid = owner;
	}
	if (f)
		fclose(f);
	return found;
}

bool vb_port_holder(uint16_t port, uid_t *uid)
{
	return find_holder("/proc/thread-self/net/udp", port, uid) ||
	       find_holder("/proc/thread-self/net/udp6", port, uid);
}
