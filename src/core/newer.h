// newer.h - numbers and a slot that verbs.h got after rdma-core 44.0: RDMA FLUSH, ATOMIC WRITE, an asynchronous event
// follows: rdma-core 60, libibverbs/verbs.h (numbers and layouts only); IBA annexes A19 (FLUSH), A20 (ATOMIC WRITE)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_NEWER_H
#define VB_CORE_NEWER_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* We build against the headers of 44.0 and later. Later ones have these names without VB_. */
enum {
	VB_IBV_WC_FLUSH = 8,
	VB_IBV_WR_FLUSH = 14,
	VB_IBV_QP_EX_WITH_FLUSH = 1 << 11,
	VB_IBV_ACCESS_FLUSH_GLOBAL = 1 << 8,
	VB_IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9,
};

/* Of enum ibv_event_type. It is about the device, so its port_num is 0. */
enum { VB_IBV_EVENT_DEVICE_SPEED_CHANGE = IBV_EVENT_WQ_FATAL + 1 };

/* Of struct ibv_odp_caps. */
enum { VB_IBV_ODP_SUPPORT_FLUSH = 1 << 6, VB_IBV_ODP_SUPPORT_ATOMIC_WRITE = 1 << 7 };

/* Of struct ibv_parent_domain_init_attr. */
enum { VB_IBV_PARENT_DOMAIN_ALLOW_UNPROTECTED = 1 << 2 };

/* enum ibv_placement_type: what a flush makes sure of. */
enum {
	VB_IBV_FLUSH_GLOBAL = 1 << 0,     /* all of the machine sees the data */
	VB_IBV_FLUSH_PERSISTENT = 1 << 1, /* the data outlives a power failure */
};

/* enum ibv_selectivity_level: of which memory. */
enum { VB_IBV_FLUSH_RANGE, VB_IBV_FLUSH_MR };

/* Of device_cap_flags_ex. */
#define VB_IBV_DEVICE_FLUSH_GLOBAL (1ull << 38)
#define VB_IBV_DEVICE_FLUSH_PERSISTENT (1ull << 39)
#define VB_IBV_DEVICE_ATOMIC_WRITE (1ull << 40)

/* struct ibv_qp_ex as it is since 46.0. With later headers, ex has the slot itself, at the same place. */
struct vb_ibv_qp_ex {
	union {
		struct ibv_qp_ex ex;
		struct {
			char before[offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void (*)(void))];
			void (*wr_flush)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, size_t len,
			                 uint8_t type, uint8_t level);
		};
	};
};

_Static_assert(offsetof(struct vb_ibv_qp_ex, wr_flush) ==
                       offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void (*)(void)),
               "behind wr_atomic_write");

#endif
