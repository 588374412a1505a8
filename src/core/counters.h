// counters.h - counters of what this process dropped, refused, repeated and copied
// follows: IBA volume 1, 9.7.1 (silent drops)
// SPDX-License-Identifier: MIT
#ifndef VB_CORE_COUNTERS_H
#define VB_CORE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* Statistics of drops and refusals. The sender of a packet that is counted here gets no answer. */
struct vb_counters {
	_Atomic uint64_t drop_no_qp, drop_state, drop_stale, drop_psn, drop_rnr_ud, drop_ud_path, drop_qkey,
	        drop_length, bad_record, retry, rnr_nak, one_copy_bytes, ring_bytes, mapped_bytes;
	/* RoCE */
	_Atomic uint64_t tx_packets, tx_bytes, tx_refused, tx_waits, tx_slots, rx_packets, rx_bytes, drop_malformed,
	        drop_icrc, drop_source, forwarded, drop_forward;
};
extern struct vb_counters vb_counters;
#define VB_COUNT(name, n) atomic_fetch_add_explicit(&vb_counters.name, (n), memory_order_relaxed)
/* The same for a counter that only the holder of progress changes: no locked instruction. */
#define VB_COUNT_PROGRESS(name, n)                                                                                    \
	atomic_store_explicit(&vb_counters.name, atomic_load_explicit(&vb_counters.name, memory_order_relaxed) + (n), \
	                      memory_order_relaxed)

#endif
