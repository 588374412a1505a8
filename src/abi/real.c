// real.c - the functions of a real libibverbs; each fails with EOPNOTSUPP until that library is loaded
// SPDX-License-Identifier: MIT
#include "abi/real.h"

#include <dlfcn.h>
#include <errno.h>

#define FAIL(type, name, params, value) \
	static type no_##name params    \
	{                               \
		errno = EOPNOTSUPP;     \
		return value;           \
	}
#define PTR(node, type, name, owner, params, args) FAIL(type, name, params, NULL)
#define ERR(node, name, owner, params, args) FAIL(int, name, params, EOPNOTSUPP)
#define NEG(node, name, owner, params, args) FAIL(int, name, params, -1)
#define WAIT NEG
#define NEGERR(node, name, owner, params, args) FAIL(int, name, params, -EOPNOTSUPP)
#define ZERO(node, type, name, owner, params, args) FAIL(type, name, params, 0)
#define VOID(node, name, owner, params, args) \
	static void no_##name params          \
	{                                     \
	}
#include "abi/verbs.inc"

FAIL(int, query_gid_ex,
     (struct ibv_context * context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
      size_t size),
     EOPNOTSUPP)
FAIL(ssize_t, query_gid_table,
     (struct ibv_context * context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size),
     -EOPNOTSUPP)
FAIL(int, query_gid_type, (struct ibv_context * context, uint8_t port, unsigned int index, int *type), -1)

static void free_device_list_of_none(struct ibv_device **list)
{
}

static struct ibv_device **get_device_list_of_none(int *n)
{
	*n = 0;
	return NULL;
}

#define PTR(node, type, name, owner, params, args) .name = no_##name,
#define ERR(node, name, owner, params, args) .name = no_##name,
#define NEG ERR
#define WAIT ERR
#define NEGERR ERR
#define ZERO PTR
#define VOID ERR
struct vb_real vb_real = {
#include "abi/verbs.inc"
        .query_gid_ex = no_query_gid_ex,
        .query_gid_table = no_query_gid_table,
        .query_gid_type = no_query_gid_type,
        .get_device_list = get_device_list_of_none,
        .free_device_list = free_device_list_of_none,
};

/* An old library lacks the newer calls: their entries stay as they are. */
static void fill_entry(void *entry, void *function)
{
	if (function)
		*(void **)entry = function;
}

#define NAMED(name, version) fill_entry(&vb_real.name, dlvsym(handle, "ibv_" #name, "IBVERBS_" #version))
#define PTR(node, type, name, owner, params, args) NAMED(name, node);
#define ERR(node, name, owner, params, args) NAMED(name, node);
#define NEG ERR
#define WAIT ERR
#define NEGERR ERR
#define ZERO PTR
#define VOID ERR
void vb_real_fill(void *handle)
{
#include "abi/verbs.inc"
	NAMED(get_device_list, 1.1);
	NAMED(free_device_list, 1.1);
	NAMED(import_device, 1.10);
	NAMED(fork_init, 1.1);
	NAMED(is_fork_initialized, 1.13);
	NAMED(free_buf, 1.17);
	NAMED(export_buf_dmabuf_fd, 1.18);
	fill_entry(&vb_real.query_gid_ex, dlsym(handle, "_ibv_query_gid_ex"));
	fill_entry(&vb_real.query_gid_table, dlsym(handle, "_ibv_query_gid_table"));
	fill_entry(&vb_real.query_gid_type, dlsym(handle, "ibv_query_gid_type"));
	fill_entry(&vb_real.query_comp_cntr_caps, dlsym(handle, "_ibv_query_comp_cntr_caps"));
	fill_entry(&vb_real.dontfork_range, dlsym(handle, "ibv_dontfork_range"));
	fill_entry(&vb_real.dofork_range, dlsym(handle, "ibv_dofork_range"));
}
