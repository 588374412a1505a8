// query.c - queries of a device and its port, with the struct sizes of the program's headers
// follows: ibv_query_device_ex(3), ibv_query_port(3), ibv_query_gid_ex(3), ibv_query_pkey(3), ibv_get_pkey_index(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "abi/abi.h"
#include "abi/port.h"
#include "fault/set.h"
#include "core/device.h"
#include "core/static_rate.h"

static struct vb_device *device_of(struct ibv_context *context)
{
	return vb_device_of(context->device);
}

/* Copies as much as the caller has room for, and zeros the rest of its struct. */
static void give_struct(void *to, size_t size, const void *from, size_t known)
{
	memset(to, 0, size);
	memcpy(to, from, size < known ? size : known);
}

/* The old calls return -1 and set errno. */
static int fail_with(int err)
{
	if (!err)
		return 0;
	errno = err;
	return -1;
}

int vb_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return vb_query_device_ex(context, NULL, (struct ibv_device_attr_ex *)attr, sizeof(*attr));
}

int vb_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                       struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex all;

	if ((input && input->comp_mask) || size < sizeof(attr->orig_attr))
		return vb_told(EINVAL);
	int err = vb_query_device_attr(device_of(context), &all);
	if (!err)
		give_struct(attr, size, &all, sizeof(all));
	return vb_told(err);
}

#define AFTER_PORT_ATTR_44 52 /* sizeof(struct ibv_port_attr) in rdma-core 44 */

/* A rule of fault injection may have taken the port down, or the device away. */
static int apply_faults(const struct ibv_context *context, struct ibv_port_attr *attr)
{
	if (vb_fault_device_is_gone(context->device->name))
		return EIO;
	if (vb_fault_port_is_down(context->device->name)) {
		attr->state = IBV_PORT_DOWN;
		attr->phys_state = 3; /* Disabled: IBA 14.2.5.6 */
	}
	return 0;
}

int vb_query_port_bare(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr)
{
	int err = vb_query_port_attr(device_of(context), port, attr);

	return !err && vb_fault_is_armed(VB_FAULT_ARM_STATE) ? apply_faults(context, attr) : err;
}

int vb_query_port_sized(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	union {
		struct ibv_port_attr attr;
		struct {
			char before[AFTER_PORT_ATTR_44];
			uint32_t active_speed_ex; /* since rdma-core 62 */
		} later;
	} all = {.attr = {0}};
	int err = vb_query_port_bare(context, port, &all.attr);

	if (!err) {
		vb_node_violations(vb_ctx(context)->node, device_of(context), &all.attr);
		all.later.active_speed_ex = all.attr.active_speed;
		give_struct(attr, size, &all, AFTER_PORT_ATTR_44 + sizeof(uint32_t));
	}
	return vb_told(err);
}

int vb_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	/* Programs built before port_cap_flags2 have no room for it. */
	return vb_query_port_sized(context, port, (struct ibv_port_attr *)attr,
	                           offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* In units of 100 Mb/s, lanes multiplied in. */
int vb_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed)
{
	struct ibv_port_attr attr;
	int err = vb_query_port_attr(device_of(context), port, &attr);

	if (!err)
		*speed = vb_port_mbps(&attr) / 100;
	return err;
}

int vb_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	return fail_with(vb_query_gid_at(device_of(context), port, index, gid));
}

int vb_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                    uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry all;

	if (flags || entry_size < sizeof(all))
		return vb_told(EINVAL);
	int err = vb_query_gid_entry(device_of(context), port, index, &all);
	if (!err)
		give_struct(entry, entry_size, &all, sizeof(all));
	return vb_told(err);
}

ssize_t vb_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
                           size_t entry_size)
{
	struct ibv_gid_entry all[VB_GID_TBL_LEN];

	if (flags || !entry_size || !max)
		return -EINVAL;
	ssize_t n = vb_query_gid_list(device_of(context), all, max < VB_GID_TBL_LEN ? max : VB_GID_TBL_LEN);
	for (ssize_t i = 0; i < n; i++)
		give_struct((char *)entries + (size_t)i * entry_size, entry_size, &all[i], sizeof(all[i]));
	return n;
}

/* 0: InfiniBand or RoCE v1, and so an empty entry; 1: RoCE v2 (rdma-core's enum ibv_gid_type_sysfs). */
int vb_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, int *type)
{
	struct ibv_gid_entry entry;
	int err = vb_query_gid_entry(device_of(context), port, index, &entry);

	if (err && err != ENODATA)
		return fail_with(err);
	*type = !err && entry.gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int vb_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	return fail_with(vb_query_pkey_at(device_of(context), port, index, pkey));
}

int vb_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 entry;

	for (int i = 0; !vb_query_pkey(context, port, i, &entry); i++)
		if (entry == pkey)
			return i;
	return -1;
}
