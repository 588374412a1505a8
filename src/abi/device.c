// device.c - the device list as programs see it, and the GID table calls whose names fit no pattern
// follows: ibv_get_device_list(3), ibv_get_device_name(3), ibv_get_device_guid(3), ibv_get_device_index(3)
// SPDX-License-Identifier: MIT
#include "core/device.h"

#include <errno.h>

#include "abi/abi.h"
#include "abi/real.h"
#include "util/calls.h"

VB_SYMVER(vbx_get_device_list, "ibv_get_device_list@@IBVERBS_1.1");
VB_EXPORT struct ibv_device **vbx_get_device_list(int *n)
{
	int found = 0, cancel;

	vb_cancel_defer(&cancel);
	struct ibv_device **list = vb_device_list(&found);
	vb_cancel_restore(cancel);
	if (n)
		*n = list ? found : 0;
	return list;
}

VB_SYMVER(vbx_free_device_list, "ibv_free_device_list@@IBVERBS_1.1");
VB_EXPORT void vbx_free_device_list(struct ibv_device **list)
{
	if (list)
		vb_device_list_free(list);
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
