// channel.c - event channels: a queue of events, and a descriptor that is readable while the queue is not empty
// follows: rdma_create_event_channel(3), rdma_get_cm_event(3), rdma_ack_cm_event(3); eventfd(2), epoll(7)
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rdmacm/hardware.h"
#include "rdmacm/rdmacm.h"
#include "util/calls.h"

#define READER_MS 100

/* Opens a blocking eventfd inside an epoll descriptor. The program gets the epoll descriptor, and may make it
 * nonblocking. */
static int open_fds(struct rcm_channel *ch)
{
	struct epoll_event ev = {.events = EPOLLIN};

	ch->units = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	ch->channel.fd = ch->units < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
	if (ch->channel.fd >= 0 && !epoll_ctl(ch->channel.fd, EPOLL_CTL_ADD, ch->units, &ev))
		return 0;
	int err = errno;

	if (ch->units >= 0)
		close(ch->units);
	if (ch->channel.fd >= 0)
		close(ch->channel.fd);
	return err;
}

RCM_EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rcm_channel *ch;

	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.create_event_channel();
	int err = rcm_open();

	if (err) {
		errno = err;
		return NULL;
	}
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	err = open_fds(ch);
	if (err) {
		free(ch);
		errno = err;
		return NULL;
	}
	ch->last = &ch->first;
	ch->generation = rcm.generation;
	return &ch->channel;
}

/* True if the thread that reads events here is alive but does not wait for the next event yet. A program that polls the
 * descriptor first (poll, epoll) never waits here. */
static bool reader_is_away(const struct rcm_channel *ch)
{
	int reader = atomic_load(&ch->reader), flags = fcntl(ch->channel.fd, F_GETFL);

	return reader && reader != gettid() && flags >= 0 && !(flags & O_NONBLOCK) && !atomic_load(&ch->inside) &&
	       !tgkill(getpid(), reader, 0);
}

/*
 * Waits until the reader sleeps. Programs such as rping acknowledge the last event and ask for the next in one thread,
 * while another destroys the id and the channel, and exits. With the kernel the reader is asleep by then. Here it might
 * find the descriptor closed, and report an error.
 */
RCM_EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct rcm_channel *ch = rcm_channel(channel);

	if (!ch)
		return;
	if (rcm_hw_calls(__builtin_return_address(0))) {
		rcm_real.destroy_event_channel(channel);
		return;
	}
	int cancel;

	vb_cancel_defer(&cancel);
	for (int ms = 0; ms < READER_MS && reader_is_away(ch); ms++)
		poll(NULL, 0, 1);
	if (ch->generation == rcm.generation)
		rcm_detach(channel);
	if (atomic_load(&ch->inside))
		poll(NULL, 0, 1); /* the reader is about to sleep */
	close(ch->channel.fd);
	close(ch->units);
	if (atomic_load(&ch->real))
		rcm_real.destroy_event_channel(atomic_load(&ch->real));
	free(ch);
	vb_cancel_restore(cancel);
}

struct rcm_event *rcm_event_new(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rcm_event *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->event.id = &id->id;
	e->event.event = type;
	e->event.status = status;
	e->owner = id;
	return e;
}

void rcm_event_data(struct rcm_event *e, const void *data, size_t len)
{
	if (!len)
		return;
	memcpy(e->private_data, data, len);
	/* private_data and private_data_len have the same offsets in param.conn and param.ud */
	e->event.param.conn.private_data = e->private_data;
	e->event.param.conn.private_data_len = (uint8_t)len;
}

void rcm_queue(struct rcm_event *e)
{
	struct rcm_channel *ch = rcm_channel(e->owner->id.channel);
	const uint64_t one = 1;
	int saved = errno;

	rcm_trace_event(e);
	e->next = NULL;
	*ch->last = e;
	ch->last = &e->next;
	while (syscall(SYS_write, ch->units, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	errno = saved;
}

int rcm_post(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	struct rcm_event *e = rcm_event_new(id, type, status);

	if (!e)
		return ENOMEM;
	rcm_queue(e);
	return 0;
}

int rcm_post_unlocked(struct rcm_id *id, enum rdma_cm_event_type type, int status)
{
	rcm_lock();
	int err = rcm_post(id, type, status);

	rcm_unlock();
	return err;
}

/* Takes one unit without waiting. Returns 0, EAGAIN, or another errno. */
static int try_take(int units)
{
	uint64_t unit;
	struct iovec iov = {&unit, sizeof(unit)};
	struct pollfd pfd = {.fd = units, .events = POLLIN};

	if (preadv2(units, &iov, 1, -1, RWF_NOWAIT) == sizeof(unit))
		return 0;
	if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL && errno != ESPIPE)
		return errno;
	/* Before Linux 5.8. If two threads see the same unit here, one of them waits for the next. */
	if (poll(&pfd, 1, 0) <= 0)
		return EAGAIN;
	return read(units, &unit, sizeof(unit)) == sizeof(unit) ? 0 : errno;
}

struct rcm_event *rcm_unqueue(struct rcm_id *owner, const struct rcm_mcast *mcast)
{
	struct rcm_channel *ch = rcm_channel(owner->id.channel);
	struct rcm_event *taken = NULL, **end = &taken, **at;

	if (!ch)
		return NULL;
	at = &ch->first;
	while (*at) {
		struct rcm_event *e = *at;

		if (e->owner != owner || (mcast && e->mcast != mcast)) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		*end = e;
		end = &e->next;
		e->next = NULL;
		try_take(ch->units);
	}
	ch->last = at;
	return taken;
}

/* Waits for an event, ours or the system's librdmacm's. */
static int wait_for_either(const struct rcm_channel *ch)
{
	struct pollfd pfd = {.fd = ch->channel.fd, .events = POLLIN};

	/* read(2), which waits for ours alone, is restarted after most signals */
	while (poll(&pfd, 1, -1) < 0)
		if (errno != EINTR)
			return errno;
	return pfd.revents & POLLNVAL ? EBADF : EAGAIN;
}

/* Takes one unit, or an event of the system's librdmacm, and waits for it unless the program made the channel
 * nonblocking. A cancellation point, as read(2) is. */
static int take_event_unit(struct rcm_channel *ch, struct rcm_event **real)
{
	uint64_t unit;
	int err;

	for (;;) {
		err = try_take(ch->units);
		if (err != EAGAIN)
			return err;
		bool both = atomic_load(&ch->real);
		*real = both ? rcm_hw_event(ch) : NULL;
		if (*real || (both && errno != EAGAIN))
			return *real ? 0 : errno;
		int flags = fcntl(ch->channel.fd, F_GETFL);

		if (flags < 0 || flags & O_NONBLOCK)
			return flags < 0 ? errno : EAGAIN;
		atomic_store(&ch->reader, gettid());
		if (!both)
			return read(ch->units, &unit, sizeof(unit)) == sizeof(unit) ? 0 : errno;
		err = wait_for_either(ch);
		if (err != EAGAIN)
			return err;
	}
}

static struct rcm_event *pop_event(struct rcm_channel *ch)
{
	rcm_lock();
	struct rcm_event *e = ch->first;

	if (e) {
		ch->first = e->next;
		if (!e->next)
			ch->last = &ch->first;
		e->next = NULL;
		e->owner->reported++;
		if (e->mcast)
			e->mcast->reported++;
		if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			e->owner->backlog_free++;
	}
	rcm_unlock();
	return e;
}

RCM_EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct rcm_channel *ch = rcm_channel(channel);

	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.get_cm_event(channel, event);
	if (!ch || !event || ch->generation != rcm.generation)
		return rcm_fail(EINVAL);
	for (;;) {
		atomic_fetch_add(&ch->inside, 1);
		struct rcm_event *real = NULL;
		int err = take_event_unit(ch, &real);

		if (err == EBADF) /* the channel was destroyed, and may be freed */
			return rcm_fail(err);
		atomic_fetch_sub(&ch->inside, 1);
		if (err)
			return rcm_fail(err);
		if (real) {
			*event = &real->event;
			return 0;
		}
		struct rcm_event *e = pop_event(ch);

		if (!e)
			continue; /* its id was destroyed meanwhile */
		if (rcm_present(e)) {
			*event = &e->event;
			return 0;
		}
		rdma_ack_cm_event(&e->event);
	}
}

RCM_EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct rcm_event *e = (struct rcm_event *)event;

	if (!e)
		return rcm_fail(EINVAL);
	if (rcm_hw_calls(__builtin_return_address(0)))
		return rcm_real.ack_cm_event(event);
	if (e->real) {
		rcm_real.ack_cm_event(e->real);
		free(e);
		return 0;
	}
	if (e->owner->generation == rcm.generation) {
		rcm_lock();
		e->owner->acked++;
		if (e->mcast)
			e->mcast->acked++;
		pthread_cond_broadcast(&rcm.acked);
		rcm_unlock();
	}
	free(e);
	return 0;
}

void rcm_drop_event(struct rcm_id *id)
{
	struct rdma_cm_event *event = id->id.event;

	id->id.event = NULL;
	if (event)
		rdma_ack_cm_event(event);
}

bool rcm_pending(struct rcm_id *id)
{
	rcm_lock();
	const struct rcm_event *e = rcm_channel(id->id.channel)->first;

	while (e && e->owner != id)
		e = e->next;
	rcm_unlock();
	return e;
}

int rcm_complete(struct rcm_id *id)
{
	if (!id->sync)
		return 0;
	rcm_drop_event(id);
	int ret = rdma_get_cm_event(id->id.channel, &id->id.event);

	atomic_store(&rcm_channel(id->id.channel)->reader, 0); /* this thread does not return for the next event */
	if (ret)
		return errno;
	int status = id->id.event->status;

	if (!status)
		return 0;
	if (id->id.event->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	return status < 0 ? -status : status;
}
