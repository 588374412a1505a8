// host_guid.c - a GUID for an adapter whose interface has no MAC
// follows: IEEE EUI-64, locally administered
// SPDX-License-Identifier: MIT
#include "node/host_guid.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static uint64_t guid_mix(uint64_t h, const char *s, size_t n)
{
	/* FNV-1a, then the final mix of MurmurHash3: enough to distinguish machines and to hide the id. */
	for (size_t i = 0; i < n; i++)
		h = (h ^ (uint8_t)s[i]) * 0x100000001b3ull;
	h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
	h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
	return h ^ (h >> 33);
}

static size_t read_id(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	ssize_t n = read(fd, buf, size);
	close(fd);
	return n > 0 ? (size_t)n : 0;
}

uint64_t vb_host_guid(const char *ifname)
{
	char id[64];
	size_t n = read_id("/etc/machine-id", id, sizeof(id));

	/* In machine images the id is empty or "uninitialized". */
	if (n < 32)
		n = read_id("/proc/sys/kernel/random/boot_id", id, sizeof(id));
	uint64_t h = guid_mix(guid_mix(0xcbf29ce484222325ull, id, n), ifname, strlen(ifname));
	/* First byte: individual and locally administered. */
	return (h & ~(1ull << 56)) | (1ull << 57);
}
