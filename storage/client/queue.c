// queue.c - the slots of a queue, and commands on a queue that no other thread uses
// follows: NVM Express Base 1.4, 4.2 (command identifiers)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "client/client.h"

uint64_t vn_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int vn_left(uint64_t deadline)
{
	uint64_t now = vn_now();

	return now >= deadline ? 0 : deadline - now > 1000000 ? 1000000 : (int)(deadline - now);
}

int vn_queue_init(struct vn_queue *q, const struct vn_transport *t, uint16_t qid, uint16_t depth)
{
	unsigned size = 1;

	while (size < depth)
		size *= 2;
	q->transport = t;
	q->qid = qid;
	q->depth = depth;
	q->epoll = -1;
	q->mask = (uint16_t)(size - 1);
	q->slots = calloc(size, sizeof(struct vn_cmd *));
	q->unused = calloc(size, sizeof(uint16_t));
	q->generation = calloc(size, sizeof(uint16_t));
	if (!q->slots || !q->unused || !q->generation)
		return -ENOMEM; /* fini frees the rest */
	for (unsigned i = 0; i < depth; i++)
		q->unused[q->n_unused++] = (uint16_t)(depth - 1 - i);
	return 0;
}

void vn_queue_fini(struct vn_queue *q)
{
	free(q->slots);
	free(q->unused);
	free(q->generation);
}

/* The low bits of the command id are the slot, and the rest changes with each use, so that a second answer matches
 * nothing. */
void vn_queue_submit(struct vn_queue *q, struct vn_cmd *c)
{
	uint16_t slot = q->unused[--q->n_unused];

	c->cid = (uint16_t)(slot | (uint16_t)(q->generation[slot] * (q->mask + 1u)));
	c->since = vn_now();
	c->before = q->answers;
	c->answered = c->done = c->digest_failed = c->soon = false;
	q->slots[slot] = c;
	q->busy++;
	q->bytes += c->length;
	q->transport->submit(q, c);
}

struct vn_cmd *vn_queue_find(struct vn_queue *q, uint16_t cid)
{
	struct vn_cmd *c = q->slots[cid & q->mask];

	return c && c->cid == cid ? c : NULL;
}

void vn_queue_release(struct vn_queue *q, struct vn_cmd *c)
{
	uint16_t slot = c->cid & q->mask;

	q->transport->release(q, c);
	q->slots[slot] = NULL;
	q->generation[slot]++;
	q->unused[q->n_unused++] = slot;
	q->busy--;
	q->bytes -= c->length;
}

void vn_queue_break(struct vn_queue *q, int error, const char *format, ...)
{
	va_list v;

	if (q->error)
		return;
	q->error = error;
	va_start(v, format);
	vsnprintf(q->why, sizeof(q->why), format, v);
	va_end(v);
}

void vn_cmd_complete(struct vn_queue *q, struct vn_cmd *c)
{
	if (c->digest_failed) {
		q->digest_errors++;
		c->cqe.status = NV_TRANSIENT_TRANSPORT;
	}
	vn_queue_release(q, c);
	q->answers++;
	c->done = true;
	if (c->op)
		vn_cmd_over(q->path, c);
}

void vn_queue_watch(struct vn_queue *q, int epoll)
{
	struct pollfd p[2];
	int n = q->transport->descriptors(q, p);

	for (int i = 0; i < n; i++) {
		struct epoll_event e = {.events = (p[i].events & POLLIN ? EPOLLIN : 0) |
		                                  (p[i].events & POLLOUT ? EPOLLOUT : 0)};

		if (epoll < 0)
			epoll_ctl(q->epoll, EPOLL_CTL_DEL, p[i].fd, NULL);
		else
			epoll_ctl(epoll, q->epoll < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, p[i].fd, &e);
	}
	q->epoll = epoll;
}

static int wait_done(struct vn_queue *q, struct vn_cmd *c, uint64_t deadline)
{
	q->transport->kick(q);
	for (;;) {
		struct pollfd p[2];

		q->transport->progress(q);
		if (c->done)
			return 0;
		if (q->stop && *q->stop)
			vn_queue_break(q, ECANCELED, "given up");
		if (vn_now() >= deadline)
			vn_queue_break(q, ETIMEDOUT, "the target does not answer");
		if (q->error)
			return -q->error;
		if (q->transport->arm(q))
			continue;
		poll(p, (nfds_t)q->transport->descriptors(q, p),
		     vn_left(deadline) < VN_LOOK_MS ? vn_left(deadline) : VN_LOOK_MS);
	}
}

int vn_command_run(struct vn_queue *q, struct vn_cmd *c, uint64_t deadline)
{
	if (q->error)
		return -q->error;
	vn_queue_submit(q, c);
	int e = wait_done(q, c, deadline);

	if (e) {
		q->transport->cut(q);
		vn_queue_release(q, c);
	}
	return e;
}

int vn_command(struct vn_queue *q, const struct nv_sqe *sqe, enum vn_way way, void *data, uint32_t length,
               uint64_t deadline, struct nv_cqe *cqe)
{
	struct vn_cmd *c;
	int e;

	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->sqe = *sqe;
	c->way = way;
	c->data = data;
	c->length = length;
	e = vn_command_run(q, c, deadline);
	if (!e)
		*cqe = c->cqe;
	free(c);
	return e;
}
