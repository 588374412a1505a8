// set.h - the rules of this process, which the hooks of the paths, the verbs and connection management ask
// see: docs/faults.md
// SPDX-License-Identifier: MIT
#ifndef VB_FAULT_SET_H
#define VB_FAULT_SET_H

#include <stdatomic.h>

#include "fault/rule.h"

#define VB_FAULT_RULES_MAX 256

/* Which hooks have rules. A hook that reads no word of its own reads this one. */
enum vb_fault_arm {
	VB_FAULT_ARM_ROCE_TX = 1,
	VB_FAULT_ARM_ROCE_RX = 2,
	VB_FAULT_ARM_IWARP = 4,
	VB_FAULT_ARM_QUEUE = 8, /* posted requests: same-host path, wc, cq_overflow, qp_fatal */
	VB_FAULT_ARM_VERB = 16,
	VB_FAULT_ARM_CM = 32,
	VB_FAULT_ARM_STATE = 64,
	VB_FAULT_ARM_RECV = 128, /* wc, cq_overflow, qp_fatal of receives */
};
extern _Atomic uint32_t vb_fault_armed;

static inline bool vb_fault_is_armed(enum vb_fault_arm what)
{
#ifdef VB_WITHOUT_HOOKS // as in capture/capture.h
	return false;
#endif
	return __builtin_expect(atomic_load_explicit(&vb_fault_armed, memory_order_relaxed) & what, 0);
}

/* What happens to a packet, an FPDU or a request. */
struct vb_fault_verdict {
	bool drop, duplicate, reorder, corrupt, icrc_right, cut;
	uint64_t delay;  /* ns */
	uint32_t random; /* for the place of a bit, and how far a packet moves */
	uint8_t status;  /* enum ibv_wc_status; 0: none */
	bool overflow, fatal;
};

/* All of these take the set's lock, which is the last in the order of locks. They return false, and *v is zeros, if no
 * rule acts. */
bool vb_fault_ask_wire(const struct vb_fault_subject *s, struct vb_fault_verdict *v);
/* The same for a posted request: s->kind, qpn, peer, device, path. */
bool vb_fault_ask_work(const struct vb_fault_subject *s, struct vb_fault_verdict *v);
/* Returns the errno value with which this call fails, or 0. */
int vb_fault_ask_verb(enum vb_fault_action call, const char *device);
/* A connection request from this address: 0 (no rule), a reason, or VB_FAULT_CM_IGNORE. librdmacm calls it. */
__attribute__((visibility("default"))) uint64_t vb_fault_ask_cm(const uint8_t peer[16]);
/* Is the port down, or the device removed? */
bool vb_fault_port_is_down(const char *device);
bool vb_fault_device_is_gone(const char *device);
/* Counts a hit of the rules that took the port or the device to its present state. */
void vb_fault_count_state(const char *device, enum vb_fault_action action);
/* When a port or a device changes next; UINT64_MAX: never. */
uint64_t vb_fault_next_change(uint64_t now);

/* Adds a rule. Returns its id, from 1; 0 if there are too many. */
unsigned vb_fault_add(const struct vb_fault_rule *rule);
/* Removes a rule (0: all). False if there is none. */
bool vb_fault_remove(unsigned id);
/* Copies the rules, in the order of their ids. Returns how many. out: VB_FAULT_RULES_MAX, or NULL to count them. */
unsigned vb_fault_copy(struct vb_fault_rule *out);
/* fn is called after each change of the rules, with no lock of the set. One function. */
void vb_fault_on_change(void (*fn)(void));
/* In a child of fork(). */
void vb_fault_in_child(void);
/* CLOCK_MONOTONIC, ns. */
uint64_t vb_fault_now(void);

#endif
