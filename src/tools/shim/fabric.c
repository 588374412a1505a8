// fabric.c - the files of a simulated InfiniBand subnet's CA, as the fabric process has them now
// follows: Linux Documentation/ABI/stable/sysfs-class-infiniband
// SPDX-License-Identifier: MIT
#include "tools/shim/fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/proto/proto.h"
#include "tools/shim/next.h"

static const char folder[] = "/class/infiniband/" VB_FABRIC_DEVICE "/";

static int text_file(const char *text, size_t len, int cloexec)
{
	int fd = memfd_create("verbena-fabric", cloexec ? MFD_CLOEXEC : 0);

	if (fd >= 0 && write(fd, text, len) == (ssize_t)len && !lseek(fd, 0, SEEK_SET))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

APART int vb_shim_fabric(const char *rest, int cloexec)
{
	char text[512];
	int saved = errno, fd = -1;

	if (!rest || !vb_fabric_socket() || strncmp(rest, folder, strlen(folder)) != 0)
		return -1;
	long n = vb_fabric_ask(VB_FABRIC_FILE, 0, rest + strlen(folder), text, sizeof(text));
	if (n > 0 && text[0])
		fd = text_file(text, (size_t)n, cloexec);
	errno = saved;
	return fd;
}
