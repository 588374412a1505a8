// text.c - names of events, and events that the program creates
// follows: rdma_event_str(3); rdma_write_cm_event of later releases
// SPDX-License-Identifier: MIT
#include "rdmacm/rdmacm.h"

#define NAME(event) [event] = #event

RCM_EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static const char *const names[] = {
	        NAME(RDMA_CM_EVENT_ADDR_RESOLVED),
	        NAME(RDMA_CM_EVENT_ADDR_ERROR),
	        NAME(RDMA_CM_EVENT_ROUTE_RESOLVED),
	        NAME(RDMA_CM_EVENT_ROUTE_ERROR),
	        NAME(RDMA_CM_EVENT_CONNECT_REQUEST),
	        NAME(RDMA_CM_EVENT_CONNECT_RESPONSE),
	        NAME(RDMA_CM_EVENT_CONNECT_ERROR),
	        NAME(RDMA_CM_EVENT_UNREACHABLE),
	        NAME(RDMA_CM_EVENT_REJECTED),
	        NAME(RDMA_CM_EVENT_ESTABLISHED),
	        NAME(RDMA_CM_EVENT_DISCONNECTED),
	        NAME(RDMA_CM_EVENT_DEVICE_REMOVAL),
	        NAME(RDMA_CM_EVENT_MULTICAST_JOIN),
	        NAME(RDMA_CM_EVENT_MULTICAST_ERROR),
	        NAME(RDMA_CM_EVENT_ADDR_CHANGE),
	        NAME(RDMA_CM_EVENT_TIMEWAIT_EXIT),
	        [RCM_EVENT_ADDRINFO_RESOLVED] = "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
	        [RCM_EVENT_ADDRINFO_ERROR] = "RDMA_CM_EVENT_ADDRINFO_ERROR",
	        [RCM_EVENT_USER] = "RDMA_CM_EVENT_USER",
	        [RCM_EVENT_INTERNAL] = "RDMA_CM_EVENT_INTERNAL",
	};

	return (unsigned)event < sizeof(names) / sizeof(*names) ? names[event] : "UNKNOWN EVENT";
}

RCM_EXPORT int rdma_write_cm_event(struct rdma_cm_id *cm_id, enum rdma_cm_event_type event, int status, uint64_t arg)
{
	struct rcm_id *id = rcm_id(cm_id);
	struct rcm_event *e;

	if (!rcm_ours(id) || (int)event != RCM_EVENT_USER)
		return rcm_fail(EINVAL);
	e = rcm_event_new(id, event, status);
	if (!e)
		return -1;
	memcpy(&e->event.param, &arg, sizeof(arg));
	rcm_lock();
	rcm_queue(e);
	rcm_unlock();
	return 0;
}
