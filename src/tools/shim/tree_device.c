// tree_device.c - reads the adapters from the tree
// SPDX-License-Identifier: MIT
#include "tools/shim/tree_device.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/shim/map.h"

static bool read_text(const char *name, char *buf, size_t size)
{
	char path[PATH_MAX];
	int fd = vb_shim_map_tree_path(path, sizeof(path), name) ? -1 : open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, buf, size - 1);
	close(fd);
	if (n < 0)
		return false;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

bool vb_shim_device_read(const struct vb_shim_device *dev, const char *attribute, char *buf, size_t size)
{
	char name[256];

	snprintf(name, sizeof(name), "class/infiniband/%s/%s", dev->name, attribute);
	return read_text(name, buf, size);
}

static int compare_by_index(const void *a, const void *b)
{
	const struct vb_shim_device *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

int vb_shim_devices(struct vb_shim_device dev[VB_SHIM_DEVICES_MAX])
{
	char path[PATH_MAX], name[PATH_MAX];
	int n = 0;

	if (vb_shim_map_tree_path(path, sizeof(path), "class/infiniband_verbs"))
		return 0;
	DIR *dir = opendir(path);
	if (!dir)
		return 0;
	for (struct dirent *e; n < VB_SHIM_DEVICES_MAX && (e = readdir(dir));) {
		if (strncmp(e->d_name, "uverbs", 6))
			continue;
		dev[n].index = (uint32_t)strtoul(e->d_name + 6, NULL, 10);
		snprintf(name, sizeof(name), "class/infiniband_verbs/%s/ibdev", e->d_name);
		if (read_text(name, dev[n].name, sizeof(dev[n].name)))
			n++;
	}
	closedir(dir);
	qsort(dev, (size_t)n, sizeof(*dev), compare_by_index);
	return n;
}
