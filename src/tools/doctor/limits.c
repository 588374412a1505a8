// limits.c - memory, descriptors and socket buffers
// follows: getrlimit(2), cgroups(7), socket(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/seg.h"
#include "tools/doctor/doctor.h"

#define FEW_FILES 256
#define LITTLE_MEMORY (256ll << 20)
#define NO_LIMIT (1ll << 50)
#define LITTLE_SHM (64ull << 20)
#define LANE_BUFFER (4ll << 20) /* what broker/server/lanes.c asks for */

/* The segment is larger than what is used of it: only limits on address space or file size matter. */
static int make_segment_like(int out, void *arg)
{
	int fd = memfd_create("verbena-doctor", MFD_CLOEXEC);

	if (fd < 0)
		return errno;
	if (ftruncate(fd, (off_t)VB_SEG_BYTES))
		return errno;
	return mmap(NULL, VB_SEG_BYTES, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0) == MAP_FAILED ? errno : 0;
}

static void find_segment(void)
{
	struct doc_child c;
	int status = doc_child_run(&c, make_segment_like, NULL, 2000, NULL);

	if (!status)
		doc_find(DOC_OK, "memory", NULL,
		         "a shared segment of %llu MiB can be made (only what is used takes memory)",
		         (unsigned long long)VB_SEG_BYTES >> 20);
	else
		doc_find(DOC_FAIL, "memory", "ulimit -v unlimited; ulimit -f unlimited",
		         "a shared segment of %llu MiB cannot be made (%s): no program can open a device",
		         (unsigned long long)VB_SEG_BYTES >> 20,
		         status == 153                ? "file size limit"
		         : status > 0 && status < 128 ? strerror(status)
		                                      : "killed");
}

static void find_memlock(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_MEMLOCK, &r))
		return;
	if (r.rlim_cur == RLIM_INFINITY)
		doc_find(DOC_OK, "memlock", NULL, "locked memory is not limited");
	else
		doc_find(
		        DOC_OK, "memlock", NULL,
		        "locked memory is limited to %llu KiB; Verbena locks none, though some programs check it themselves",
		        (unsigned long long)r.rlim_cur >> 10);
}

static void find_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	if (r.rlim_cur < FEW_FILES)
		doc_find(DOC_WARN, "files", doc_mend("ulimit -n %s", r.rlim_max >= 1024 ? "1024" : "1024 (as root)"),
		         "a process may have only %llu descriptors open: each peer on this host takes three",
		         (unsigned long long)r.rlim_cur);
	else
		doc_find(DOC_OK, "files", NULL, "a process may have %llu descriptors open",
		         (unsigned long long)r.rlim_cur);
}

/* The limit of our own cgroup (version 2), or of the container's root. */
static void find_cgroup(void)
{
	char line[300] = "", path[400];
	long long max;
	const char *own = "";

	if (doc_read_line("/proc/self/cgroup", line, sizeof(line)) && !strncmp(line, "0::", 3))
		own = line + 3;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", strcmp(own, "/") != 0 ? own : "");
	if (!doc_read_number(path, &max) && !doc_read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", &max))
		doc_find(DOC_OK, "cgroup", NULL, "no limit on memory is visible");
	else if (max > NO_LIMIT)
		doc_find(DOC_OK, "cgroup", NULL, "the cgroup does not limit memory");
	else if (max < LITTLE_MEMORY)
		doc_find(DOC_WARN, "cgroup", doc_mend("echo max >%s (or the container's --memory)", path),
		         "the cgroup allows %lld MiB of memory: programs with large rings may be killed", max >> 20);
	else
		doc_find(DOC_OK, "cgroup", NULL, "the cgroup allows %lld MiB of memory", max >> 20);
}

static void find_shm(void)
{
	struct statvfs s;

	if (statvfs("/dev/shm", &s)) {
		doc_find(DOC_WARN, "shm", "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
		         "/dev/shm is missing: Verbena does not use it, but MPI and UCX do");
		return;
	}
	unsigned long long bytes = (unsigned long long)s.f_bavail * s.f_frsize;

	if (bytes < LITTLE_SHM)
		doc_find(DOC_WARN, "shm", "mount -o remount,size=1G /dev/shm (docker: --shm-size=1g)",
		         "/dev/shm has %llu MiB free: Verbena does not use it, but MPI and UCX do", bytes >> 20);
	else
		doc_find(DOC_OK, "shm", NULL, "/dev/shm has %llu MiB free", bytes >> 20);
}

static void find_buffers(void)
{
	long long max;

	if (!doc_read_number("/proc/sys/net/core/rmem_max", &max))
		doc_find(DOC_OK, "buffers", NULL,
		         "net.core.rmem_max is not visible here (another network namespace than the first)");
	else if (max < LANE_BUFFER && geteuid() != 0)
		doc_find(
		        DOC_WARN, "buffers", doc_mend("sysctl -w net.core.rmem_max=%lld", LANE_BUFFER),
		        "net.core.rmem_max is %lld: UDP sockets get that instead of %lld bytes, and lose packets of fast senders",
		        max, LANE_BUFFER);
	else
		doc_find(DOC_OK, "buffers", NULL, "UDP sockets get the %lld KiB of receive buffer that they ask for%s",
		         LANE_BUFFER >> 10,
		         max < LANE_BUFFER ? ", because root's keeper may exceed net.core.rmem_max" : "");
}

void doc_check_limits(void)
{
	find_segment();
	find_memlock();
	find_files();
	find_cgroup();
	find_shm();
	find_buffers();
}
