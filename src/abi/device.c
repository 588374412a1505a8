// device.c - the device list as programs see it, and the GID table calls whose names fit no pattern
// follows: ibv_get_device_list(3), ibv_get_device_name(3), ibv_get_device_guid(3), ibv_get_device_index(3),
// ibv_import_device(3)
// SPDX-License-Identifier: MIT
#include "core/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "abi/abi.h"
#include "abi/hardware.h"
#include "abi/real.h"
#include "core/share.h"
#include "util/calls.h"

/* The devices of the kernel, then ours. Takes both lists over. */
static struct ibv_device **join_lists(struct ibv_device **real, int n_real, struct ibv_device **ours, int n_ours)
{
	struct ibv_device **list = calloc((size_t)n_real + (size_t)n_ours + 1, sizeof(struct ibv_device *));

	if (!list) {
		vb_real.free_device_list(real);
		vb_device_list_free(ours);
		errno = ENOMEM;
		return NULL;
	}
	memcpy(list, real, (size_t)n_real * sizeof(struct ibv_device *));
	if (n_ours)
		memcpy(list + n_real, ours, (size_t)n_ours * sizeof(struct ibv_device *));
	free(real);
	free(ours);
	return list;
}

VB_SYMVER(vbx_get_device_list, "ibv_get_device_list@@IBVERBS_1.1");
VB_EXPORT struct ibv_device **vbx_get_device_list(int *n)
{
	const void *caller = __builtin_return_address(0);
	int found = 0, n_real = 0, cancel;
	struct ibv_device **list = NULL;

	vb_cancel_defer(&cancel);
	struct ibv_device **real = vb_hardware_list(&n_real);
	if (real && vb_hardware_calls(caller)) {
		list = real;
	} else {
		list = vb_device_list(&found);
		if (real)
			list = join_lists(real, n_real, list, list ? found : 0);
	}
	vb_cancel_restore(cancel);
	if (n)
		*n = list ? found + n_real : 0;
	return list;
}

VB_SYMVER(vbx_free_device_list, "ibv_free_device_list@@IBVERBS_1.1");
VB_EXPORT void vbx_free_device_list(struct ibv_device **list)
{
	size_t others = 0;

	if (!list)
		return;
	/* Ours are given back here, the others by the library that they are of. The program may have sorted the array. */
	for (size_t i = 0; list[i]; i++) {
		if (vb_device_is_ours(list[i]))
			vb_device_put(vb_device_of(list[i]));
		else
			list[others++] = list[i];
	}
	list[others] = NULL;
	if (others)
		vb_real.free_device_list(list);
	else
		free(list);
}

VB_SYMVER(vbx_get_device_name, "ibv_get_device_name@@IBVERBS_1.1");
VB_EXPORT const char *vbx_get_device_name(struct ibv_device *device)
{
	return device ? device->name : NULL;
}

__be64 vb_get_device_guid(struct ibv_device *device)
{
	return vb_device_of(device)->node_guid;
}

int vb_get_device_index(struct ibv_device *device)
{
	return vb_device_of(device)->number;
}

VB_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                                uint32_t flags, size_t entry_size)
{
	if (!context)
		return EINVAL;
	return vb_is_ours(context) ? vb_query_gid_ex(context, port, index, entry, flags, entry_size)
	                           : vb_real.query_gid_ex(context, port, index, entry, flags, entry_size);
}

VB_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                                       uint32_t flags, size_t entry_size)
{
	if (!context)
		return -EINVAL;
	return vb_is_ours(context) ? vb_query_gid_table(context, entries, max, flags, entry_size)
	                           : vb_real.query_gid_table(context, entries, max, flags, entry_size);
}

/* A reference to our device of this name, or NULL. */
static struct ibv_device *device_named(const char *name)
{
	int n = 0;
	struct ibv_device **list = vb_device_list(&n), *found = NULL;

	for (int i = 0; list && i < n; i++)
		if (!found && !strcmp(list[i]->name, name))
			found = &vb_device_get(vb_device_of(list[i]))->dev;
	vb_device_list_free(list);
	return found;
}

static struct ibv_context *import_ours(int cmd_fd)
{
	struct vb_share_text text;
	int err = vb_share_read(cmd_fd, &text);
	struct ibv_device *device = err ? NULL : device_named(text.device);

	if (!device) {
		errno = err ? err : ENODEV;
		return NULL;
	}
	struct ibv_context *context = vb_import_device(device, cmd_fd);

	err = errno;
	vb_device_put(vb_device_of(device));
	errno = err;
	return context;
}

/* Devices of the kernel are character devices; the descriptors of ours are not. */
VB_EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct stat st;
	int cancel;

	if (!fstat(cmd_fd, &st) && S_ISCHR(st.st_mode) && vb_hardware_load() && vb_real.import_device)
		return vb_real.import_device(cmd_fd);
	vb_cancel_defer(&cancel);
	struct ibv_context *context = import_ours(cmd_fd);
	vb_cancel_restore(cancel);
	return context;
}
