// sysfs.c - attribute files: those of our devices are answered from memory, all others are read
// follows: rdma-core's ibv_read_sysfs_file, which has no man page but is used by ibv_devinfo and many others
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi/dispatch.h"
#include "abi/hardware.h"
#include "core/device.h"
#include "util/calls.h"
#include "util/env.h"
#include "util/lock.h"

VB_EXPORT const char *ibv_get_sysfs_path(void);
const char *ibv_get_sysfs_path(void)
{
	static char path[IBV_SYSFS_PATH_MAX];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	vb_mutex_lock(&lock, VB_RANK_SYSFS);
	if (!path[0]) {
		const char *env = vb_env("SYSFS_PATH");
		size_t len = (size_t)snprintf(path, sizeof(path), "%s", env && *env ? env : "/sys");

		len = len < sizeof(path) ? len : sizeof(path) - 1;
		while (len > 1 && path[len - 1] == '/')
			path[--len] = '\0';
	}
	vb_mutex_unlock(&lock);
	return path;
}

/* Returns the rest of path after prefix and slashes, or NULL if path does not begin with prefix. */
static const char *path_below(const char *path, const char *prefix)
{
	size_t len = strlen(prefix);

	if (!len || strncmp(path, prefix, len) || path[len] != '/')
		return NULL;
	path += len;
	return path + strspn(path, "/");
}

/* Reads one of our attributes. Returns its length, -1 if it does not fit, -2 if path is none of ours. */
static int read_ours(const char *path, char *buf, size_t size)
{
	int n, len = -2;

	if (!strstr(path, "/infiniband/"))
		return -2;
	struct ibv_device **list = vb_device_list(&n);
	for (int i = 0; list && list[i] && len == -2; i++) {
		char by_class[2 * IBV_SYSFS_PATH_MAX];

		snprintf(by_class, sizeof(by_class), "%s/class/infiniband/%s", ibv_get_sysfs_path(), list[i]->name);
		const char *rel = path_below(path, list[i]->ibdev_path);
		if (!rel)
			rel = path_below(path, by_class);
		if (rel)
			len = vb_device_attr_text(vb_device_of(list[i]), rel, buf, size);
	}
	if (list)
		vb_device_list_free(list);
	return len >= 0 && (size_t)len >= size ? -1 : len;
}

/* As in rdma-core: the last newline becomes the end of the string. Fails if the string does not fit with its end. */
static int read_sysfs_file(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	ssize_t len = read(fd, buf, size);
	close(fd);
	if (len <= 0)
		return (int)len;
	if (buf[len - 1] == '\n')
		len--;
	else if ((size_t)len == size)
		return -1;
	buf[len] = '\0';
	return (int)len;
}

VB_EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char *path;
	int cancel;

	if (asprintf(&path, "%s/%s", dir, file) < 0)
		return -1;
	vb_cancel_defer(&cancel);
	int len = read_ours(path, buf, size);
	bool ours = len != -2;
	if (!ours)
		len = read_sysfs_file(path, buf, size);
	if (!ours && len < 0) { /* a device of the kernel that is younger than the launcher's tree */
		vb_hardware_aside(true);
		len = read_sysfs_file(path, buf, size);
		vb_hardware_aside(false);
	}
	vb_cancel_restore(cancel);
	free(path);
	return len;
}
