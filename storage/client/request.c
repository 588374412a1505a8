// request.c - requests: checks, splits into commands, repeats and completes them
// follows: NVM Express Base 1.4, chapter 6 (NVM command set)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define ZEROES_MAX 65536u      /* blocks */
#define DISCARD_MAX (1u << 30) /* bytes of one command */
#define ATTENTIONS_MAX 16u     /* unit attentions that one command meets */
#define AGAIN_MS 100           /* pause before a failed command is repeated, times the number of failures */
#define CDW12_FUA (1u << 30)
#define CDW12_DEALLOCATE (1u << 25)
#define CDW11_DISCARD 4u

static _Thread_local struct vn_disk *calling_back; /* the disk whose callbacks this thread runs */

/* ---- lists ---- */

static void append_op(struct vn_ops_list *l, struct vn_op *o)
{
	o->next = NULL;
	*l->end = o;
	l->end = &o->next;
}

static struct vn_op *first_op(struct vn_ops_list *l)
{
	struct vn_op *o = l->first;

	if (o && !(l->first = o->next))
		l->end = &l->first;
	return o;
}

void vn_again(struct vn_disk *d, struct vn_cmd *c, uint64_t due)
{
	c->due = due;
	c->next = NULL;
	*d->again.end = c;
	d->again.end = &c->next;
	d->stats.retries++;
}

/* The first command that may be sent now. */
static struct vn_cmd *due_cmd(struct vn_cmds *l, uint64_t now)
{
	for (struct vn_cmd **at = &l->first, *c; (c = *at); at = &c->next) {
		if (c->due > now)
			continue;
		*at = c->next;
		if (l->end == &c->next)
			l->end = at;
		return c;
	}
	return NULL;
}

uint64_t vn_again_at(const struct vn_disk *d)
{
	uint64_t at = UINT64_MAX;

	for (const struct vn_cmd *c = d->again.first; c; c = c->next)
		if (c->due < at)
			at = c->due;
	return at;
}

/* ---- completing requests ---- */

static void op_over(struct vn_disk *d, struct vn_op *o)
{
	if (o->memory)
		vn_memory_put(&d->domain, o->memory);
	if (!o->error && o->opcode == NV_IO_READ)
		d->stats.bytes_read += o->length;
	if (!o->error && o->opcode == NV_IO_WRITE)
		d->stats.bytes_written += o->length;
	append_op(&d->done, o);
}

static void op_failed(struct vn_disk *d, struct vn_op *o, int error)
{
	if (!o->error)
		o->error = error;
	if (o->whole)
		return;
	o->whole = true; /* part of it has been issued, so it is the first */
	first_op(&d->pending);
}

static void cmd_ended(struct vn_disk *d, struct vn_cmd *c, int error)
{
	struct vn_op *o = c->op;

	c->next = d->spare;
	d->spare = c;
	if (error)
		op_failed(d, o, error);
	if (!--o->outstanding && o->whole)
		op_over(d, o);
}

int vn_status_errno(uint16_t status)
{
	switch (status & NV_STATUS_MASK) {
	case NV_OK:
		return 0;
	case NV_LBA_RANGE:
	case NV_CAPACITY:
		return -ENOSPC;
	case NV_WRITE_PROTECTED:
		return -EROFS;
	case NV_CONNECT_BUSY: /* also for enabling: the target still ends earlier commands of this host */
		return -EBUSY;
	case NV_INVALID_OPCODE:
		return -EOPNOTSUPP;
	case NV_INVALID_NS:
		return -ENODEV;
	case NV_COMPARE_FAILED:
		return -EILSEQ;
	case VN_STATUS_NO_MEMORY:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* Status codes of type 1 from 80h on mean something else for NVM commands than for Connect. */
#define IO_READ_ONLY 0x182u

static int io_errno(uint16_t status)
{
	return (status & NV_STATUS_MASK) == IO_READ_ONLY ? -EROFS : vn_status_errno(status);
}

/* True for a lost write: a second flush would succeed without bringing the data back. Type 2h: media errors */
static bool has_lost(const struct vn_cmd *c)
{
	return c->sqe.opcode == NV_IO_FLUSH &&
	       ((c->cqe.status >> 8 & 7) == 2 || (c->cqe.status & NV_STATUS_MASK) == NV_INTERNAL);
}

static bool may_try_again(const struct vn_disk *d, const struct vn_cmd *c)
{
	if ((c->cqe.status & NV_STATUS_MASK) == NV_ANA_LOSS_PATH) /* this controller's answer will not change */
		return false;
	return io_errno(c->cqe.status) == -EIO && !(c->cqe.status & NV_DNR) && !has_lost(c) &&
	       (c->soon ? c->attentions < ATTENTIONS_MAX : c->tries < d->options.retries);
}

/* True if this path cannot execute the command for now, but it or another may. With one path that is treated like a
 * broken connection. Base 1.4, 8.20.3 */
static bool is_unreachable(struct vn_path *p, struct vn_cmd *c)
{
	uint16_t status = c->cqe.status & NV_STATUS_MASK;
	bool away = vn_several(p->disk) ? vn_refused(p, c->cqe.status)
	                                : !(c->cqe.status & NV_DNR) &&
	                                          (status == NV_INTERNAL_PATH || status == NV_ANA_INACCESSIBLE_PATH ||
	                                           status == NV_ANA_TRANSITION_PATH);

	if (!away)
		return false;
	if (!c->unreachable)
		c->unreachable = vn_now();
	return vn_now() - c->unreachable < p->disk->options.reconnect_ms;
}

static uint64_t due_of(const struct vn_path *p, const struct vn_cmd *c, bool away)
{
	if (c->digest_failed || c->soon || (away && p->disk->use && p->disk->use != p))
		return 0;
	return vn_now() + (away ? AGAIN_MS : AGAIN_MS * c->tries);
}

void vn_cmd_over(struct vn_path *p, struct vn_cmd *c)
{
	struct vn_disk *d = p->disk;
	bool away = c->cqe.status && is_unreachable(p, c);

	d->answered++;
	if (!away && !may_try_again(d, c)) {
		cmd_ended(d, c, io_errno(c->cqe.status));
		return;
	}
	c->tries += !away && !c->soon;
	c->attentions += c->soon;
	vn_again(d, c, due_of(p, c, away));
	vn_care(p);
}

void vn_resend(struct vn_disk *d)
{
	for (struct vn_cmd *c = d->again.first; c; c = c->next)
		c->due = 0;
}

void vn_requests_end(struct vn_disk *d, int error)
{
	struct vn_cmd *c;
	struct vn_op *o;

	while ((c = due_cmd(&d->again, UINT64_MAX)))
		cmd_ended(d, c, error);
	while ((o = first_op(&d->pending))) {
		o->whole = true;
		o->error = error;
		if (!o->outstanding) /* otherwise its last command ends it: until then the target may use the buffer */
			op_over(d, o);
	}
}

bool vn_callbacks(struct vn_disk *d, int *n)
{
	struct vn_op *o, *all = d->done.first;
	struct vn_disk *outer =
	        calling_back; /* this may run inside a callback of another disk, which waits for this one */

	if (!all)
		return false;
	d->done.first = NULL;
	d->done.end = &d->done.first;
	pthread_mutex_unlock(&d->lock);
	calling_back = d;
	for (o = all; o; o = o->next, ++*n)
		o->done(o->arg, o->error);
	calling_back = outer;
	vn_lock(d);
	while ((o = all)) {
		all = o->next;
		o->next = d->spare_ops;
		d->spare_ops = o;
	}
	return true;
}

/* ---- commands ---- */

static uint64_t part_length(const struct vn_disk *d, const struct vn_op *o)
{
	uint64_t left = o->length - o->issued, most = d->max_part, block = d->info.block_size;

	if (o->opcode == NV_IO_WRITE_ZEROES)
		most = block * vn_least(ZEROES_MAX, d->limits.zeroes / block);
	if (o->opcode == NV_IO_DSM)
		most = block * vn_least(DISCARD_MAX / block, d->limits.discard);
	if (most < block) /* a command has at least one block */
		most = block;
	return left < most ? left : most;
}

static void make_range(struct vn_cmd *c, uint64_t block, uint32_t blocks)
{
	nv_put32(c->range, 0);
	nv_put32(c->range + 4, blocks);
	nv_put64(c->range + 8, block);
	c->sqe.cdw[0] = 0; /* one range */
	c->sqe.cdw[1] = CDW11_DISCARD;
	c->data = c->range;
	c->length = sizeof(c->range);
	c->way = VN_TO_TARGET;
}

static void make_cmd(struct vn_disk *d, struct vn_op *o, struct vn_cmd *c)
{
	uint64_t n = part_length(d, o), block = (o->offset + o->issued) / d->info.block_size;
	uint32_t blocks = (uint32_t)(n / d->info.block_size);

	c->op = o;
	c->tries = 0;
	c->attentions = 0;
	c->due = 0;
	c->unreachable = 0;
	c->memory = NULL;
	c->data = NULL;
	c->length = 0;
	c->way = VN_NO_DATA;
	c->scsi.raw = false;
	c->sqe = (struct nv_sqe){.opcode = o->opcode, .nsid = d->info.nsid};
	if (o->opcode == NV_IO_DSM) {
		make_range(c, block, blocks);
	} else if (o->opcode != NV_IO_FLUSH) {
		c->sqe.cdw[0] = (uint32_t)block;
		c->sqe.cdw[1] = (uint32_t)(block >> 32);
		c->sqe.cdw[2] = (blocks - 1) | (o->flags & VN_FUA ? CDW12_FUA : 0) |
		                (o->flags & VN_DISCARD && d->limits.frees_zeroes ? CDW12_DEALLOCATE : 0);
	}
	if (o->data) {
		c->data = o->data + o->issued;
		c->length = (uint32_t)n;
		c->memory = o->memory;
		c->way = o->opcode == NV_IO_READ ? VN_FROM_TARGET : VN_TO_TARGET;
	}
	o->outstanding++;
	o->issued += n;
	o->whole = o->issued == o->length;
}

static struct vn_cmd *next_cmd(struct vn_disk *d, uint64_t now)
{
	struct vn_cmd *c = d->again.first ? due_cmd(&d->again, now) : NULL;

	if (c || !d->pending.first || !d->spare)
		return c;
	c = d->spare;
	d->spare = c->next;
	make_cmd(d, d->pending.first, c);
	if (c->op->whole)
		first_op(&d->pending);
	return c;
}

static struct vn_queue *next_queue(struct vn_path *p)
{
	for (unsigned i = 0; i < p->now.n; i++) {
		struct vn_queue *q = p->now.io[++p->turn % p->now.n];

		if (q->n_unused && !q->error)
			return q;
	}
	return NULL;
}

static bool has_commands(const struct vn_disk *d)
{
	return d->again.first || (d->pending.first && d->spare);
}

void vn_issue(struct vn_disk *d)
{
	uint64_t now = d->again.first ? vn_now() : 0;
	struct vn_path *p = d->use;

	if (!p || d->draining || d->state != VN_OPEN)
		return;
	while (has_commands(d)) {
		struct vn_queue *q = next_queue(p);
		struct vn_cmd *c = q ? next_cmd(d, now) : NULL;

		if (!c)
			break;
		d->stats.commands++;
		p->commands++;
		vn_queue_submit(q, c);
	}
	for (unsigned i = 0; i < p->now.n; i++) {
		p->now.io[i]->transport->kick(p->now.io[i]);
		if (p->now.io[i]->error)
			vn_lost(p);
	}
}

/* ---- starting requests ---- */

static int check_request(const struct vn_disk *d, uint64_t length, uint64_t offset, unsigned flags, unsigned allowed)
{
	uint32_t block = d->info.block_size;
	uint64_t size = __atomic_load_n(&d->info.size, __ATOMIC_RELAXED);

	if (flags & ~(allowed | VN_MORE))
		return -EINVAL;
	if (!length || length % block || offset % block)
		return -EINVAL;
	return offset > size || length > size - offset ? -EINVAL : 0;
}

static struct vn_op *new_op(struct vn_disk *d)
{
	struct vn_op *o = d->spare_ops;

	if (o)
		d->spare_ops = o->next;
	else
		o = malloc(sizeof(*o));
	return o;
}

static int begin_op(struct vn_disk *d, const struct vn_op *what)
{
	struct vn_op *o = NULL;
	int e = 0;

	vn_lock(d);
	if (d->state == VN_GIVEN_UP || d->state == VN_CLOSING)
		e = -ESHUTDOWN;
	else if (!(o = new_op(d)))
		e = -ENOMEM;
	if (!e) {
		*o = *what;
		if (o->data)
			o->memory = vn_memory_get(&d->domain, o->data, o->length);
		append_op(&d->pending, o);
		if (calling_back != d && !(o->flags & VN_MORE))
			vn_issue(d);
	}
	pthread_mutex_unlock(&d->lock);
	return e;
}

static int begin_data(struct vn_disk *d, uint8_t opcode, uint8_t *buffer, size_t length, uint64_t offset,
                      unsigned flags, unsigned allowed, vn_done *done, void *arg)
{
	int e = buffer && done ? check_request(d, length, offset, flags, allowed) : -EINVAL;

	if (!e && opcode == NV_IO_COMPARE && !d->info.compare)
		e = -EOPNOTSUPP;
	return e ? e
	         : begin_op(d, &(struct vn_op){.opcode = opcode,
	                                       .flags = (uint8_t)flags,
	                                       .data = buffer,
	                                       .length = length,
	                                       .offset = offset,
	                                       .done = done,
	                                       .arg = arg});
}

int vn_read(struct vn_disk *d, void *buffer, size_t length, uint64_t offset, unsigned flags, vn_done *done, void *arg)
{
	return begin_data(d, NV_IO_READ, buffer, length, offset, flags, 0, done, arg);
}

int vn_write(struct vn_disk *d, const void *buffer, size_t length, uint64_t offset, unsigned flags, vn_done *done,
             void *arg)
{
	return begin_data(d, NV_IO_WRITE, (uint8_t *)(uintptr_t)buffer, length, offset, flags, VN_FUA, done, arg);
}

int vn_compare(struct vn_disk *d, const void *buffer, size_t length, uint64_t offset, unsigned flags, vn_done *done,
               void *arg)
{
	return begin_data(d, NV_IO_COMPARE, (uint8_t *)(uintptr_t)buffer, length, offset, flags, 0, done, arg);
}

int vn_write_zeroes(struct vn_disk *d, uint64_t length, uint64_t offset, unsigned flags, vn_done *done, void *arg)
{
	int e = done ? check_request(d, length, offset, flags, VN_FUA | VN_DISCARD) : -EINVAL;

	if (!e && !d->info.write_zeroes)
		e = -EOPNOTSUPP;
	return e ? e
	         : begin_op(d, &(struct vn_op){.opcode = NV_IO_WRITE_ZEROES,
	                                       .flags = (uint8_t)flags,
	                                       .length = length,
	                                       .offset = offset,
	                                       .done = done,
	                                       .arg = arg});
}

/* Starts a request without commands. It completes when callbacks run next. */
static int begin_nothing(struct vn_disk *d, vn_done *done, void *arg)
{
	struct vn_op *o;

	vn_lock(d);
	o = new_op(d);
	if (o) {
		*o = (struct vn_op){.whole = true, .opcode = NV_IO_FLUSH, .done = done, .arg = arg};
		append_op(&d->done, o);
		vn_wake(d);
	}
	pthread_mutex_unlock(&d->lock);
	return o ? 0 : -ENOMEM;
}

int vn_discard(struct vn_disk *d, uint64_t length, uint64_t offset, unsigned flags, vn_done *done, void *arg)
{
	int e = done ? check_request(d, length, offset, flags, 0) : -EINVAL;

	if (!e && !d->info.discard)
		return begin_nothing(d, done, arg);
	return e ? e
	         : begin_op(d, &(struct vn_op){.opcode = NV_IO_DSM,
	                                       .flags = (uint8_t)flags,
	                                       .length = length,
	                                       .offset = offset,
	                                       .done = done,
	                                       .arg = arg});
}

int vn_flush(struct vn_disk *d, unsigned flags, vn_done *done, void *arg)
{
	if (!done || flags & ~VN_MORE)
		return -EINVAL;
	/* without a volatile cache the target still answers it. Base 1.4, 6.8 */
	return begin_op(d, &(struct vn_op){.opcode = NV_IO_FLUSH, .flags = (uint8_t)flags, .done = done, .arg = arg});
}
