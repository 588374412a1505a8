// tree_device.h - reads the adapters from the tree
// SPDX-License-Identifier: MIT
#ifndef VB_SHIM_TREE_DEVICE_H
#define VB_SHIM_TREE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_SHIM_DEVICES_MAX = 256 };

struct vb_shim_device {
	uint32_t index; /* number of its uverbs device */
	char name[64];
};

/* Reads all devices, ordered by index, VB_SHIM_DEVICES_MAX at most. Returns how many. */
int vb_shim_devices(struct vb_shim_device dev[VB_SHIM_DEVICES_MAX]);

/* Reads an attribute without its newline. */
bool vb_shim_device_read(const struct vb_shim_device *dev, const char *attribute, char *buf, size_t size);

#endif
