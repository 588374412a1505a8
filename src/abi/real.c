// real.c - stands for the functions of a real libibverbs: each fails with EOPNOTSUPP
// SPDX-License-Identifier: MIT
#include "abi/real.h"

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
#undef PTR
#undef ERR
#undef NEG
#undef WAIT
#undef NEGERR
#undef ZERO
#undef VOID

FAIL(int, query_gid_ex,
     (struct ibv_context * context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags,
      size_t size),
     EOPNOTSUPP)
FAIL(ssize_t, query_gid_table,
     (struct ibv_context * context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size),
     -EOPNOTSUPP)
FAIL(int, query_gid_type, (struct ibv_context * context, uint8_t port, unsigned int index, int *type), -1)

#define PTR(node, type, name, owner, params, args) .name = no_##name,
#define ERR(node, name, owner, params, args) .name = no_##name,
#define NEG ERR
#define WAIT ERR
#define NEGERR ERR
#define ZERO PTR
#define VOID ERR
const struct vb_real vb_real = {
#include "abi/verbs.inc"
        .query_gid_ex = no_query_gid_ex,
        .query_gid_table = no_query_gid_table,
        .query_gid_type = no_query_gid_type,
};
