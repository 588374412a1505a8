// thread.c - the progress thread: sleeps, and makes progress while the program does not poll
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/device.h"
#include "core/newer.h"
#include "node/control.h"
#include "node/io.h"
#include "node/lines_reader.h"
#include "node/wake.h"
#include "util/thread_root.h"
#include "util/timespec.h"
#include "util/units.h"

#define SLICE VB_US(100)     /* ns: the thread's time slice */
#define LINGER VB_US(20)     /* ns: how long the thread polls after the last work before it sleeps */
#define WATCH_MIN VB_US(100) /* ns: interval of checks whether the program still polls */
/* That interval doubles up to WATCH_MAX, or up to WATCH_NETWORK if queue pairs use the network. */
#define WATCH_MAX VB_US(800)
#define WATCH_NETWORK VB_US(200)
/* The interval while other threads want the cores. On Linux 6.18 threads that wake every millisecond, beside programs
 * that poll and yield, keep other programs from these cores for seconds. */
#define WATCH_CROWDED VB_MS(8)
#define WINDOWS_AGAIN VB_US(20) /* ns: next look whether peers still copy through a memory window that has ended */

/* The kernel marks hdr->life when this thread ends for any reason (get_robust_list(2)). */
static struct {
	struct robust_list_head head;
	struct robust_list entry;
} robust;

static void show_life(struct vb_node *node)
{
	robust.head.list.next = &robust.entry;
	robust.entry.next = &robust.head.list;
	robust.head.futex_offset = (long)((char *)&node->hdr->life - (char *)&robust.entry);
	robust.head.list_op_pending = NULL;
	atomic_store(&node->hdr->life, (uint32_t)syscall(SYS_gettid));
	syscall(SYS_set_robust_list, &robust.head, sizeof(robust.head));
}

#define PORT ((void *)(intptr_t)1) /* element.port_num of events of the only port */

/* After a change of addresses or links: raises events for the program (IBA 11.6.3), tells the broker our addresses. */
void vb_network_changed(struct vb_node *node)
{
	static const struct {
		unsigned bit;
		enum ibv_event_type type;
	} events[] = {{VB_DEV_PORT_UP, IBV_EVENT_PORT_ACTIVE},         {VB_DEV_PORT_DOWN, IBV_EVENT_PORT_ERR},
	              {VB_DEV_GID_CHANGE, IBV_EVENT_GID_CHANGE},       {VB_DEV_LID_CHANGE, IBV_EVENT_LID_CHANGE},
	              {VB_DEV_PKEY_CHANGE, IBV_EVENT_PKEY_CHANGE},     {VB_DEV_SM_CHANGE, IBV_EVENT_SM_CHANGE},
	              {VB_DEV_REREGISTER, IBV_EVENT_CLIENT_REREGISTER}};
	struct vb_device *seen[64];
	unsigned what[64], n = 0;

	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	for (struct vb_context *c = node->contexts; c; c = c->next) {
		unsigned i = 0, bits;

		while (i < n && seen[i] != c->dev)
			i++;
		if (i == n) {
			if (n == 64)
				break;
			seen[n] = c->dev;
			/* reports each change only once, so the result is used for all contexts of the device */
			what[n++] = vb_device_refresh(c->dev);
			if (what[i] & VB_DEV_GONE)
				vb_roce_interface_gone(node, (uint32_t)c->dev->ifindex);
		}
		bits = what[i];
		for (unsigned k = 0; k < sizeof(events) / sizeof(*events); k++)
			if (bits & events[k].bit)
				vb_async_raise(c, events[k].type, PORT);
		if (bits & VB_DEV_SPEED)
			vb_async_raise(c, (enum ibv_event_type)VB_IBV_EVENT_DEVICE_SPEED_CHANGE, NULL);
		if (bits & VB_DEV_GONE)
			vb_async_raise(c, IBV_EVENT_DEVICE_FATAL, NULL);
	}
	vb_mutex_unlock(&node->ctx_lock);
	vb_announce_gids(node);
}

/* `verbena link` has changed the file that names adapters. The answer does not wait until it is read. */
static int serve_refresh(struct vb_control_call *call)
{
	return vb_lines_reader_start(call->node->io->wake_fd);
}

static void wait_ns(struct vb_io *io, struct epoll_event *ev, int *n, uint64_t ns)
{
	int ms = vb_broker_timeout_ms(io->broker);

	bool forever = ns == UINT64_MAX && ms < 0;

	if (ms >= 0 && ns > VB_MS(ms))
		ns = VB_MS(ms);
	struct timespec ts = vb_timespec_of(ns);

	if (!io->lacks_pwait2) {
		*n = (int)syscall(SYS_epoll_pwait2, io->epoll_fd, ev, 16, forever ? NULL : &ts, NULL, 0);
		io->lacks_pwait2 = *n < 0 && errno == ENOSYS;
	}
	if (io->lacks_pwait2)
		*n = epoll_wait(io->epoll_fd, ev, 16,
		                forever ? -1 : (int)(ts.tv_sec * 1000 + (ts.tv_nsec + 999999) / 1000000));
	if (*n < 0)
		*n = 0;
}

static bool is_transport(struct vb_io *io, const void *p)
{
	return p >= (void *)io->transport && p < (void *)(io->transport + VB_TRANSPORTS);
}

/* Returns whether nothing but the broker has woken the thread. */
static bool handle_events(struct vb_node *node, const struct epoll_event *ev, int n)
{
	struct vb_io *io = node->io;
	bool broker_alone = n > 0;

	for (int i = 0; i < n; i++) {
		void *p = ev[i].data.ptr;

		broker_alone &= p == &io->broker;
		if (p == &io->wake_fd) {
			continue; /* it only had to wake the thread */
		} else if (p == &io->broker) {
			vb_broker_events(node);
		} else if (p == &io->watches) {
			vb_watches_dispatch(node);
		} else if (is_transport(io, p)) {
			continue; /* a readable socket, which the next round polls */
		} else if (p == &io->netmon) {
			if (vb_netmon_drain(io->netmon))
				vb_network_changed(node);
		} else {
			vb_peer_pidfd(node, p);
		}
	}
	if (!vb_broker_timeout_ms(io->broker))
		vb_broker_events(node);
	return broker_alone;
}

/* While a polling program owns progress, the thread sleeps no longer than to the next moderated event. */
static uint64_t until_event(struct vb_node *node, uint64_t sleep_ns)
{
	uint64_t at = atomic_load(&node->moderate_at);

	if (!at)
		return sleep_ns;
	uint64_t now = vb_now(), left = at > now ? at - now : 0;

	return left < sleep_ns ? left : sleep_ns;
}

/* Called while a polling program owns progress: checks whether it still polls. Returns how long to sleep. */
static uint64_t watch_poller(struct vb_node *node, uint32_t *polls, uint64_t *interval)
{
	uint32_t now = atomic_load_explicit(&node->polls, memory_order_relaxed);
	bool crowded = atomic_load_explicit(&node->crowded, memory_order_relaxed);

	if (now != *polls) {
		*polls = now;
		uint64_t most = vb_awaits_network(node->io) ? WATCH_NETWORK : crowded ? WATCH_CROWDED : WATCH_MAX;

		*interval = *interval * 2 < most ? *interval * 2 : most;
		return *interval;
	}
	if (!vb_trylock(&node->progress)) /* another thread makes progress, possibly for long: it may send a megabyte */
		return *interval;
	*interval = WATCH_MIN;
	if (atomic_load(&node->owner) == VB_OWNER_POLLER)
		vb_thread_takes_over(node);
	vb_unlock(&node->progress);
	return 0;
}

/* More events usually follow at once, so the thread polls for a moment longer. Lets other threads run. Returns false
 * when it is time to sleep. */
static bool poll_for_more(struct vb_node *node, uint64_t last)
{
	for (int i = 0; i < 20; i++)
		vb_cpu_relax();
	sched_yield();
	return vb_now() - last < LINGER && atomic_load(&node->owner) == VB_OWNER_THREAD;
}

static uint64_t sooner_time(uint64_t a, uint64_t b)
{
	return a && (a < b || !b) ? a : b;
}

/* The earliest deadline of the active QPs: ns, 0 for never. Under progress. */
static uint64_t active_deadline(struct vb_node *node)
{
	uint64_t earliest = 0;

	for (struct vb_qp *qp = node->active; qp; qp = qp->active_next) {
		earliest = sooner_time(earliest, atomic_load(&qp->due));
		earliest = sooner_time(earliest, atomic_load(&qp->xrc.relay_due));
		if (qp->path->deadline)
			earliest = sooner_time(earliest, qp->path->deadline(qp));
	}
	return earliest;
}

/* Returns how long to sleep: until the earliest deadline. */
static uint64_t time_to_sleep(struct vb_node *node)
{
	uint64_t deadline, now;
	bool waiting;

	vb_lock(&node->progress);
	waiting = vb_work_waiting(node);
	atomic_store(&node->sleep_until, UINT64_MAX); /* any timer that is set from now on wakes the thread */
	vb_active_collect(node);
	deadline = active_deadline(node);
	if (atomic_load(&node->attention) & VB_ATTEND_WINDOWS)
		deadline = sooner_time(deadline, vb_now() + WINDOWS_AGAIN);
	for (unsigned i = 0; i < VB_TRANSPORTS; i++)
		deadline = sooner_time(deadline, vb_transports[i]->due(node));
	vb_unlock(&node->progress);
	deadline = sooner_time(deadline, atomic_load(&node->io->gsi_at));
	deadline = sooner_time(deadline, atomic_load(&node->io->resolve_at));
	deadline = sooner_time(deadline, atomic_load(&node->moderate_at));
	if (waiting)
		return 0;
	if (!deadline)
		return UINT64_MAX;
	atomic_store(&node->sleep_until, deadline);
	now = vb_now();
	return deadline > now ? deadline - now : 1000;
}

/* The thread has served the broker. Peers have seen it asleep all the time, so what they have published since then wakes
 * it: if there is no work now, it sleeps again, without the fence that every other core has to answer. */
static bool may_sleep_on(struct vb_node *node)
{
	vb_lock(&node->progress);
	bool asleep = atomic_load(&node->owner) == VB_OWNER_THREAD && atomic_load(&node->hdr->sleeping);
	bool idle = asleep && !vb_progress_locked(node, NULL, 0, true);
	vb_unlock(&node->progress);
	return idle;
}

/* Called while the progress thread owns progress: does all work, then marks itself as sleeping. Returns how long to
 * sleep. */
static uint64_t serve_node(struct vb_node *node)
{
	uint64_t last = 0;

	atomic_store(&node->hdr->sleeping, 0);
	atomic_store(&node->sleep_until, 0);
	for (int i = 0; i < 1000; i++) {
		vb_lock(&node->progress);
		unsigned n = vb_progress_locked(node, NULL, 0, true);
		vb_unlock(&node->progress);
		if (n)
			last = vb_now();
		else if (!last || !poll_for_more(node, last))
			break;
	}
	vb_lock(&node->progress);
	if (atomic_load(&node->owner) == VB_OWNER_THREAD)
		atomic_store(&node->hdr->sleeping, 1);
	vb_unlock(&node->progress);
	vb_fence_for_records(node);
	return time_to_sleep(node);
}

/*
 * This thread runs for microseconds and must run at once, even beside programs that spin for seconds. So it gets timers
 * without slack and a short time slice. From Linux 6.12 on the scheduler prefers a waking thread with a short slice;
 * older kernels ignore the slice.
 */
static void be_prompt(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr), .runtime = SLICE};

	prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	attr.nice = getpriority(PRIO_PROCESS, 0);
	syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *progress_thread(void *arg)
{
	struct vb_node *node = arg;
	struct vb_io *io = node->io;
	struct epoll_event ev[16];
	uint64_t interval = WATCH_MIN, sleep_ns;
	uint32_t polls = 0;
	bool broker_alone = false;
	int n;

	VB_THREAD_ROOT();
	show_life(node);
	be_prompt();
	vb_lock_never_favourite();
	while (!atomic_load(&io->stop)) {
		if (atomic_load(&node->owner) == VB_OWNER_POLLER)
			sleep_ns = until_event(node, watch_poller(node, &polls, &interval));
		else
			sleep_ns = broker_alone && may_sleep_on(node) ? time_to_sleep(node) : serve_node(node);
		wait_ns(io, ev, &n, sleep_ns);
		broker_alone = handle_events(node, ev, n);
		if (vb_lines_reader_done())
			vb_network_changed(node);
		vb_questions_send(node);
		vb_maps_work(node);
		vb_relays_work(node);
		vb_gsi_on_time(node);
		vb_unresolved_look(node);
		vb_cq_raise_due(node);
		for (unsigned i = 0; i < VB_TRANSPORTS; i++)
			vb_transports[i]->look(node);
	}
	return NULL;
}

void vb_progress_wake(struct vb_node *node)
{
	vb_wake_ring(node->io->wake_fd);
}

void vb_timer_armed(struct vb_node *node)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with vb_fence_for_records */
	if (atomic_load_explicit(&node->owner, memory_order_relaxed) == VB_OWNER_THREAD)
		vb_progress_wake(node);
}

__attribute__((hot)) void vb_timer_at(struct vb_node *node, uint64_t at)
{
	if (at < atomic_load(&node->sleep_until))
		vb_timer_armed(node);
}

int vb_progress_start(struct vb_node *node)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int err;

	vb_control_add("refresh", serve_refresh);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* a guarded copy that faults while they are blocked would end the program */
	sigdelset(&all, SIGBUS);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 512 << 10);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&node->io->thread, &attr, progress_thread, node);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return err;
	pthread_setname_np(node->io->thread, "verbena");
	while (!atomic_load(&node->hdr->life)) /* must be set before peers meet this process */
		sched_yield();
	return 0;
}

void vb_progress_stop(struct vb_node *node)
{
	atomic_store(&node->io->stop, true);
	vb_wake_ring(node->io->wake_fd);
	pthread_join(node->io->thread, NULL);
}
