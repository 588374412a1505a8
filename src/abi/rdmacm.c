// rdmacm.c - librdmacm: every call is there and says once that connections by rdma_cm are still to come
// follows: rdma_cm(7), rsocket(7)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <sys/select.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct epoll_event;

/* One line for each process, whatever it goes on to try. Keeps no state but that, and sets errno. */
static void not_yet(const char *name)
{
	static int said;
	char line[200];

	if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED)) {
		int n = snprintf(line, sizeof(line),
		                 "verbena: %s: connections by rdma_cm and rsockets are not implemented yet; "
		                 "programs that exchange addresses by themselves work\n",
		                 name);
		(void)!write(STDERR_FILENO, line, (size_t)n);
	}
	errno = ENOSYS;
}

#define REFUSE(type, name, params, value) \
	EXPORT type name params;          \
	type name params                  \
	{                                 \
		not_yet(#name);           \
		return value;             \
	}
#define INT(name, params) REFUSE(int, name, params, -1)
#define SIZE(type, name, params) REFUSE(type, name, params, (type)-1)
#define PTR(type, name, params) REFUSE(type, name, params, NULL)
#define PORT(name, params) REFUSE(__be16, name, params, 0)
/* These free what nobody got from us. */
#define VOID(name, params)       \
	EXPORT void name params; \
	void name params         \
	{                        \
	}
#include "abi/rdmacm.inc"

#define NAME(event) [event] = #event
EXPORT const char *rdma_event_str(enum rdma_cm_event_type event)
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
	        /* Later headers have four more. */
	        "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
	        "RDMA_CM_EVENT_ADDRINFO_ERROR",
	        "RDMA_CM_EVENT_USER",
	        "RDMA_CM_EVENT_INTERNAL",
	};

	return (unsigned)event < sizeof(names) / sizeof(*names) ? names[event] : "UNKNOWN EVENT";
}
