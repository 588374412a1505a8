// identity.c - the identity of a medium: a file's inode and time of birth, a device's hardware name
// follows: statx(2), statfs(2); Linux Documentation/ABI/stable/sysfs-block, testing/sysfs-block-dm, testing/sysfs-block-loop
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/descriptor.h"

/* Reads a line of text below a block device in sysfs. False: there is none. */
static bool read_attribute(dev_t device, const char *name, char text[256])
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device), name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, 255);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return *text;
}

/* A partition has the attributes of its device. */
static char *name_of_device(dev_t device, bool *anywhere)
{
	static const char *const names[] = {"dm/uuid", "wwid", "device/wwid", "../wwid", "../device/wwid"};
	char text[256], part[256] = "", *name = NULL;

	read_attribute(device, "partition", part);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !name; i++)
		if ((*part || *names[i] != '.') && read_attribute(device, names[i], text) &&
		    asprintf(&name, "device %s %s", text, part) < 0)
			name = NULL;
	*anywhere = name;
	if (!name && read_attribute(device, "loop/backing_file", text))
		name = strdup(text);
	return name;
}

/* The time of birth distinguishes a file from earlier files with its inode, and from files of other file systems. The
 * id of the file system is not used, because on some it follows from the device's number or changes with each mount.
 * File systems without an id may give any inode to any file the next time. */
static char *name_of_file(int fd, bool *anywhere)
{
	struct statfs fs;
	struct statx x;
	uint64_t id;
	char *name = NULL;

	if (fstatfs(fd, &fs) || statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &x))
		return NULL;
	memcpy(&id, &fs.f_fsid, sizeof(id));
	if (!id || !(x.stx_mask & STATX_BTIME) ||
	    asprintf(&name, "file %" PRIu64 " %" PRId64 " %u", (uint64_t)x.stx_ino, (int64_t)x.stx_btime.tv_sec,
	             x.stx_btime.tv_nsec) < 0)
		return NULL;
	*anywhere = true;
	return name;
}

char *nb_identity(int fd, const char *path, bool *anywhere)
{
	struct stat st;
	char *name = NULL;

	*anywhere = false;
	if (fstat(fd, &st))
		return NULL;
	name = S_ISBLK(st.st_mode) ? name_of_device(st.st_rdev, anywhere) : name_of_file(fd, anywhere);
	/* the kernel's names of devices may change at a reboot */
	return name || S_ISBLK(st.st_mode) ? name : realpath(path, NULL);
}
