// watch.c - reports adapters that are removed, or get another hardware address, while the program waits
// follows: rdma_get_cm_event(3) (RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_ADDR_CHANGE), ibv_get_async_event(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "rdmacm/rdmacm.h"
#include "util/thread_root.h"

/* The program reads the asynchronous events of id->verbs, so these are read from a context of our own. */
static int watched = -1;

/* The first GID of RoCE and of iWARP is made of the hardware address. */
static bool has_moved(struct rcm_device *dev)
{
	union ibv_gid first;

	if (dev->fabric || ibv_query_gid(dev->watch, 1, 0, &first) || !memcmp(&first, &dev->first, sizeof(first)))
		return false;
	dev->first = first;
	return true;
}

static void take_async_events(struct rcm_device *dev)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(dev->watch, &event))
		return;
	enum ibv_event_type type = event.event_type;

	ibv_ack_async_event(&event);
	if (type == IBV_EVENT_GID_CHANGE && has_moved(dev))
		rcm_device_moved(dev);
	if (type != IBV_EVENT_DEVICE_FATAL)
		return;
	epoll_ctl(watched, EPOLL_CTL_DEL, dev->watch->async_fd, NULL);
	rcm_device_gone(dev);
}

static void *watch_devices(void *arg)
{
	struct epoll_event ev;

	VB_THREAD_ROOT();
	for (;;)
		if (epoll_wait(watched, &ev, 1, -1) == 1)
			take_async_events(ev.data.ptr);
	return NULL;
}

int rcm_thread(void *(*fn)(void *), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&thread, &attr, fn, arg);

	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return err;
}

/* The lock of device.c is held. A device whose interface has gone already is marked, because no event will come. If there
 * is no memory, the next look for devices notices the removal. */
void rcm_watch(struct rcm_device *dev)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = dev};

	if (watched < 0) {
		watched = epoll_create1(EPOLL_CLOEXEC);
		if (watched < 0 || rcm_thread(watch_devices, NULL))
			return;
	}
	dev->watch = ibv_open_device(dev->verbs->device);
	dev->gone |= !dev->watch && errno == ENODEV;
	if (dev->watch && !ibv_query_gid(dev->watch, 1, 0, &dev->first))
		epoll_ctl(watched, EPOLL_CTL_ADD, dev->watch->async_fd, &ev);
}

void rcm_watch_forget(void)
{
	watched = -1;
}
