// waiting.c - answers that a socket has no room for
// follows: unix(7), netlink(7)
// SPDX-License-Identifier: MIT
#include "tools/shim/waiting.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define BYTES_MOST ((size_t)4 << 20)

struct datagram {
	struct datagram *next;
	size_t len;
	uint8_t bytes[];
};

static struct {
	struct datagram *first, *last;
	size_t bytes;
} waiting[VB_SHIM_SLOTS];
static pthread_mutex_t waiting_lock = PTHREAD_MUTEX_INITIALIZER;

/* sendmsg, which socket.c replaces, finds that the descriptor is none of the program's. */
static bool send_datagram(int fd, const void *buf, size_t len)
{
	struct iovec iov = {(void *)buf, len};
	const struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
	       (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS);
}

static void send_waiting(unsigned slot, int fd)
{
	for (struct datagram *d; (d = waiting[slot].first) && send_datagram(fd, d->bytes, d->len);) {
		waiting[slot].first = d->next;
		waiting[slot].bytes -= d->len;
		free(d);
	}
}

static void keep_datagram(unsigned slot, const void *buf, size_t len)
{
	struct datagram *d = waiting[slot].bytes + len > BYTES_MOST ? NULL : malloc(sizeof(*d) + len);

	if (!d)
		return;
	*d = (struct datagram){.len = len};
	memcpy(d->bytes, buf, len);
	if (waiting[slot].first)
		waiting[slot].last->next = d;
	else
		waiting[slot].first = d;
	waiting[slot].last = d;
	waiting[slot].bytes += len;
}

void vb_shim_waiting_put(unsigned slot, int fd, const void *buf, size_t len)
{
	pthread_mutex_lock(&waiting_lock);
	send_waiting(slot, fd);
	if (waiting[slot].first || !send_datagram(fd, buf, len))
		keep_datagram(slot, buf, len);
	pthread_mutex_unlock(&waiting_lock);
}

void vb_shim_waiting_send(unsigned slot, int fd)
{
	int saved = errno;

	pthread_mutex_lock(&waiting_lock);
	send_waiting(slot, fd);
	pthread_mutex_unlock(&waiting_lock);
	errno = saved;
}

void vb_shim_waiting_drop(unsigned slot)
{
	pthread_mutex_lock(&waiting_lock);
	for (struct datagram *d; (d = waiting[slot].first);) {
		waiting[slot].first = d->next;
		free(d);
	}
	waiting[slot].bytes = 0;
	pthread_mutex_unlock(&waiting_lock);
}
