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
};
#undef PTR
#undef ERR
#undef NEG
#undef WAIT
#undef NEGERR
#undef ZERO
#undef VOID

/* Until the real library is loaded each entry answers EOPNOTSUPP in its own way. */
extern const struct vb_real vb_real;

#endif
