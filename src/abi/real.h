// real.h - the functions of the real libibverbs, for objects that are not ours: the only place for hardware
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#ifndef VB_ABI_REAL_H
#define VB_ABI_REAL_H

#include "abi/abi.h"

#define PTR(node, type, name, owner, params, args) type(*name) params;
#define ERR(node, name, owner, params, args) int(*name) params;
#define NEG ERR
#define WAIT ERR
#define NEGERR ERR
#define ZERO PTR
#define VOID(node, name, owner, params, args) void(*name) params;
struct vb_real {
#include "abi/verbs.inc"
	int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
	                    uint32_t flags, size_t entry_size);
	ssize_t (*query_gid_table)(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
	                           uint32_t flags, size_t entry_size);
	int (*query_gid_type)(struct ibv_context *context, uint8_t port, unsigned int index, int *type);
	struct ibv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct ibv_device **list);

	/* These are NULL without a real library, or with one that is too old. */
	struct ibv_context *(*import_device)(int cmd_fd);
	int (*fork_init)(void);
	enum ibv_fork_status (*is_fork_initialized)(void);
	int (*dontfork_range)(void *base, size_t size);
	int (*dofork_range)(void *base, size_t size);
	int (*query_comp_cntr_caps)(struct ibv_context *context, void *caps, size_t size);
	void (*free_buf)(struct vb_buf *buf);
	int (*export_buf_dmabuf_fd)(struct vb_buf *buf);
};

/* Until the real library is loaded, and for what it does not have, each entry answers EOPNOTSUPP in its own way. */
extern struct vb_real vb_real;

/* Fills vb_real from the library with this handle (dlopen(3)). */
void vb_real_fill(void *handle);

#endif
