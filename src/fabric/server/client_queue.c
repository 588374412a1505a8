// client_queue.c - messages to programs: what does not fit into a socket waits, and a program may have to wait
// follows: unix(7), SCM_RIGHTS; epoll_ctl(2)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fabric/server/client.h"

enum { QUEUED_MOST = 65536, QUEUED_BYTES_MOST = 128 << 20, DATAGRAM_BYTES_MOST = 1 << 20 };

/* A message that did not fit the socket's buffer. */
struct queued {
	struct queued *next;
	int fd; /* a memfd that goes with it, or -1 */
	size_t len;
	uint8_t bytes[];
};

/* False: it does not fit now. */
static bool put(int sock, const void *bytes, size_t len, int fd)
{
	return vb_fabric_try(sock, &(struct iovec){(void *)bytes, len}, 1, fd) != EAGAIN;
}

/* epoll always tells the end of a program. While nothing is wanted of the socket, it tells that once. */
static void watch(struct client *c)
{
	struct epoll_event e = {.events = (c->paused ? 0 : EPOLLIN) | (c->first ? EPOLLOUT : 0), .data.ptr = c};

	if (!e.events)
		e.events = EPOLLONESHOT;
	epoll_ctl(c->server->epoll, EPOLL_CTL_MOD, c->fd, &e);
}

/* Takes fd over. */
static void keep(struct client *c, const void *bytes, size_t len, int fd)
{
	struct queued *q =
	        c->queued < QUEUED_MOST && c->queued_bytes < QUEUED_BYTES_MOST ? malloc(sizeof(*q) + len) : NULL;

	if (!q) {
		c->server->lost++;
		if (fd >= 0)
			close(fd);
		return;
	}
	*q = (struct queued){.fd = fd, .len = len};
	memcpy(q->bytes, bytes, len);
	bool first = !c->first;

	*c->last = q;
	c->last = &q->next;
	c->queued++;
	c->queued_bytes += len;
	if (first)
		watch(c);
}

void client_post_with(struct client *c, const void *bytes, size_t len, int fd)
{
	if (c->first || !put(c->fd, bytes, len, fd))
		keep(c, bytes, len, fd);
	else if (fd >= 0)
		close(fd);
}

void client_post(struct client *c, const void *bytes, size_t len)
{
	client_post_with(c, bytes, len, -1);
}

void client_post_datagram(struct client *c, const void *bytes, size_t len)
{
	if (c->queued_bytes > DATAGRAM_BYTES_MOST)
		c->server->lost++;
	else
		client_post_with(c, bytes, len, -1);
}

bool client_is_behind(const struct client *c)
{
	return c->first;
}

static void drop_first(struct client *c)
{
	struct queued *q = c->first;

	c->first = q->next;
	if (!c->first)
		c->last = &c->first;
	c->queued--;
	c->queued_bytes -= q->len;
	if (q->fd >= 0)
		close(q->fd);
	free(q);
}

bool client_flush(struct client *c)
{
	size_t reads = 0;

	while (c->first && put(c->fd, c->first->bytes, c->first->len, c->first->fd)) {
		reads += c->first->len + LINK_MESSAGE;
		drop_first(c);
	}
	if (c->link && reads)
		link_reads(c->link, reads);
	if (c->first)
		return reads;
	watch(c);
	if (c->joined)
		join_caught_up(c->joined);
	if (c->link)
		link_caught_up(c->link);
	return reads;
}

bool client_offer(struct client *c, const void *bytes, size_t len, size_t most)
{
	if (!c->first && put(c->fd, bytes, len, -1))
		return true;
	if (c->queued_bytes + len > most || c->queued == QUEUED_MOST)
		return false;
	keep(c, bytes, len, -1);
	return true;
}

void client_drop_waiting(struct client *c, void (*each)(void *arg, const uint8_t *bytes, size_t len), void *arg)
{
	while (c->first) {
		each(arg, c->first->bytes, c->first->len);
		drop_first(c);
	}
	watch(c);
}

void client_pause(struct client *c, bool pause)
{
	if (c->paused == pause)
		return;
	c->paused = pause;
	watch(c);
}

void client_drop_all(struct client *c)
{
	while (c->first)
		drop_first(c);
}
