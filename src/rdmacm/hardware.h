// hardware.h - ids that the system's librdmacm serves, because their interface has an RDMA device of the kernel
// follows: rdma_cm(7); ARCHITECTURE.md, "Hardware"
// SPDX-License-Identifier: MIT
#ifndef VB_RDMACM_HARDWARE_H
#define VB_RDMACM_HARDWARE_H

#include <rdma/rdma_verbs.h>

#include "rdmacm/rdmacm.h"

/* The calls of the system's librdmacm. NULL: it is not loaded, or has no such call. */
struct rcm_real {
#define CALL(name) __typeof__(rdma_##name) *name;
#include "rdmacm/hardware.inc"
#undef CALL
};
extern struct rcm_real rcm_real;

/* Loads the system's librdmacm where the kernel has RDMA devices. False: programs have Verbena's devices only. */
bool rcm_hw_load(void);

/* Is this the system's librdmacm, which calls one of its own functions and gets ours? */
bool rcm_hw_calls(const void *caller);

/* The id of the system's librdmacm that serves this call, with the fields that the program sets; NULL: Verbena serves
 * it. The id itself if the system's librdmacm calls. */
struct rdma_cm_id *rcm_hw_real(struct rdma_cm_id *cm_id, const void *caller);
/* Shows the program what the call has changed. Returns ret. */
int rcm_hw_wait(struct rdma_cm_id *cm_id, struct rdma_cm_id *real, int ret);
int rcm_hw_done(struct rdma_cm_id *cm_id, struct rdma_cm_id *real, int ret);

/* At the start of an exported function: returns from it if the system's librdmacm serves the id. */
#define RCM_HARDWARE(name, cm_id, ...)                                                                     \
	do {                                                                                               \
		struct rdma_cm_id *real_ = rcm_hw_real(cm_id, __builtin_return_address(0));                \
		if (real_)                                                                                 \
			return rcm_hw_done(cm_id, real_,                                                   \
			                   rcm_real.name ? rcm_real.name(real_ __VA_OPT__(, ) __VA_ARGS__) \
			                                 : rcm_fail(EOPNOTSUPP));                          \
	} while (0)
/* The same for a call that an event reports: a synchronous id waits for it. */
#define RCM_HARDWARE_WAITS(name, cm_id, ...)                                                               \
	do {                                                                                               \
		struct rdma_cm_id *real_ = rcm_hw_real(cm_id, __builtin_return_address(0));                \
		if (real_)                                                                                 \
			return rcm_hw_wait(cm_id, real_,                                                   \
			                   rcm_real.name ? rcm_real.name(real_ __VA_OPT__(, ) __VA_ARGS__) \
			                                 : rcm_fail(EOPNOTSUPP));                          \
	} while (0)
#define RCM_HARDWARE_VOID(name, cm_id)                                                      \
	do {                                                                                \
		struct rdma_cm_id *real_ = rcm_hw_real(cm_id, __builtin_return_address(0)); \
		if (real_) {                                                                \
			rcm_real.name(real_);                                               \
			rcm_hw_done(cm_id, real_, 0);                                       \
			return;                                                             \
		}                                                                           \
	} while (0)

/* Who serves this id with this local address. The unspecified address is everybody's. */
enum rcm_server { RCM_BY_VERBENA, RCM_BY_HARDWARE, RCM_BY_BOTH };
enum rcm_server rcm_hw_server(const struct rcm_id *id, const union rcm_addr *local);
/* Of an id that is to reach dst, from src or from the address that the route gives. */
enum rcm_server rcm_hw_server_to(const struct rcm_id *id, const struct sockaddr *src, const struct sockaddr *dst);

/* Makes the system's librdmacm serve this id, which is not bound yet. 0 or errno. */
int rcm_hw_start(struct rcm_id *id);
/* Verbena alone serves it from now on; or it ends. Waits for its events to be acknowledged. */
void rcm_hw_end(struct rcm_id *id);
/* The same, if its channel is closed already. */
void rcm_hw_abandon(struct rcm_id *id);

/* Gives the channel one of the system's librdmacm; 0 or errno. */
int rcm_hw_attach(struct rcm_channel *ch);
/* Fetches an event of it without waiting. NULL with errno: EAGAIN: none. */
struct rcm_event *rcm_hw_event(struct rcm_channel *ch);

#endif
