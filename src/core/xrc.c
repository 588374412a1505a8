// xrc.c - XRC domains, and the XRC SRQs by number
// follows: IBA volume 1, annex A14 (XRC); ibv_open_xrcd(3), ibv_get_srq_num(3)
// SPDX-License-Identifier: MIT
#include "core/xrc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/context.h"
#include "core/cq.h"
#include "core/device.h"
#include "core/handle.h"
#include "core/pd.h"
#include "core/verbs.h"
#include "util/sip.h"

/* The part of an XRC domain of one adapter that is in this process. What was opened by descriptors of one file is one
 * domain, as in the kernel, in all processes of the user (vb_xrc_file_open). */
struct vb_xrc_domain {
	struct vb_xrc_domain *next;
	const struct vb_device *dev;
	int fd; /* keeps the file, so that no other file gets its inode number; -1: the domain has no file */
	dev_t st_dev;
	ino_t st_ino;
	int lock; /* tells other processes that the domain is open, until it is closed; or -1 */
	unsigned refs;
	struct vb_xrcd *xrcds;
	struct vb_qp *guests; /* of targets in other processes: path/local/guest.c */
};

struct vb_xrc {
	struct vb_xrc_domain *domains; /* under node->ctx_lock */
	uint32_t next, count;          /* of numbers: under node->progress, as is srqs */
	struct vb_srq *srqs[VB_LANE_QPS];
};

struct vb_pd vb_xrc_no_pd;

/* --- domains --- */

/* Returns 0 or errno. Under ctx_lock. */
static int table_open(struct vb_node *node)
{
	if (!node->xrc)
		node->xrc = calloc(1, sizeof(*node->xrc));
	return node->xrc ? 0 : ENOMEM;
}

static struct vb_xrc_domain *domain_find(struct vb_xrc *xrc, const struct vb_device *dev, const struct stat *st)
{
	struct vb_xrc_domain *d = xrc->domains;

	while (d && (d->dev != dev || d->fd < 0 || d->st_dev != st->st_dev || d->st_ino != st->st_ino))
		d = d->next;
	return d;
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* The file of a domain that a program opens. */
struct domain_file {
	int fd;   /* -1: the domain has none */
	int lock; /* what vb_xrc_file_open has returned, until a domain has it; or -1 */
	struct stat st;
};

/* The domain has the lock of the file from now on. Returns NULL with errno set. Under ctx_lock. */
static struct vb_xrc_domain *domain_new(struct vb_xrc *xrc, const struct vb_device *dev, struct domain_file *f)
{
	struct vb_xrc_domain *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->fd = f->fd >= 0 ? fcntl(f->fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (f->fd >= 0 && d->fd < 0) {
		free(d);
		return NULL;
	}
	d->lock = f->lock;
	f->lock = -1;
	d->dev = dev;
	if (f->fd >= 0) {
		d->st_dev = f->st.st_dev;
		d->st_ino = f->st.st_ino;
	}
	d->next = xrc->domains;
	xrc->domains = d;
	return d;
}

/* Finds the domain that this process has open, and counts a reference. EINVAL: it has, and the program wants a new one.
 * ENOENT: it has none. Under ctx_lock. */
static int domain_join(struct vb_context *ctx, const struct domain_file *f, bool new, struct vb_xrc_domain **out)
{
	struct vb_xrc_domain *d = f->fd >= 0 ? domain_find(ctx->node->xrc, ctx->dev, &f->st) : NULL;

	if (!d)
		return ENOENT;
	if (new)
		return EINVAL;
	d->refs++;
	*out = d;
	return 0;
}

/* Another thread may have opened the domain while this one was asking other processes for it. Under ctx_lock. */
static int domain_make(struct vb_context *ctx, struct domain_file *f, bool new, struct vb_xrc_domain **out)
{
	/* with a lock of its own an exclusive opener was the first */
	int err = domain_join(ctx, f, new && f->lock < 0, out);

	if (err != ENOENT)
		return err;
	*out = domain_new(ctx->node->xrc, ctx->dev, f);
	if (!*out)
		return errno;
	(*out)->refs = 1;
	return 0;
}

/* The errors are the kernel's. Other processes are asked without ctx_lock, because that may take a while. */
static int domain_get(struct vb_context *ctx, int fd, int oflags, struct vb_xrcd *x)
{
	struct vb_node *node = ctx->node;
	struct domain_file f = {.fd = fd, .lock = -1};

	if (fd >= 0 && fstat(fd, &f.st))
		return EBADF;
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	int err = table_open(node);

	if (!err)
		err = domain_join(ctx, &f, oflags & O_EXCL, &x->domain);
	if (err == ENOENT && fd >= 0) {
		vb_mutex_unlock(&node->ctx_lock);
		err = vb_xrc_file_open(ctx->dev->dev.name, &f.st, oflags, &f.lock);
		if (!err)
			err = ENOENT;
		vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	}
	if (err == ENOENT)
		err = domain_make(ctx, &f, oflags & O_EXCL, &x->domain);
	if (!err) {
		x->next = x->domain->xrcds;
		x->domain->xrcds = x;
	}
	vb_mutex_unlock(&node->ctx_lock);
	close_if_open(f.lock);
	return err;
}

/* Returns the guests that end with the domain. Under ctx_lock. */
static struct vb_qp *domain_put(struct vb_xrc *xrc, struct vb_xrc_domain *d)
{
	struct vb_xrc_domain **at = &xrc->domains;

	if (--d->refs)
		return NULL;
	struct vb_qp *guests = d->guests;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	close_if_open(d->fd);
	close_if_open(d->lock);
	free(d);
	return guests;
}

/* Under ctx_lock. */
static struct vb_qp *xrcd_leave(struct vb_xrc *xrc, struct vb_xrcd *x)
{
	struct vb_xrcd **at = &x->domain->xrcds;

	while (*at != x)
		at = &(*at)->next;
	*at = x->next;
	return domain_put(xrc, x->domain);
}

static int check_xrcd_attr(const struct vb_context *ctx, const struct ibv_xrcd_init_attr *a)
{
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;

	if (vb_device_rc_only(ctx->dev)) /* RFC 5040 has no XRC */
		return EOPNOTSUPP;
	return a->comp_mask == needed && a->fd >= -1 ? 0 : EINVAL;
}

struct ibv_xrcd *vb_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct vb_context *ctx = vb_ctx(context);
	int err = check_xrcd_attr(ctx, attr);
	struct vb_xrcd *x = err ? NULL : calloc(1, sizeof(*x));

	if (!err && !x)
		err = ENOMEM;
	if (!err) {
		x->xrcd.context = context;
		err = domain_get(ctx, attr->fd, attr->oflags, x);
	}
	if (err) {
		free(x);
		errno = err;
		return NULL;
	}
	x->made.context = context;
	vb_context_hold(ctx);
	return &x->xrcd;
}

/* The progress thread may be ending guests, and drops their contexts. The last context to go ends that thread, so it is
 * the one of an XRC domain, not of a guest. */
static void await_guests(struct vb_node *node)
{
	const struct timespec ts = {0, 50000};

	VB_MAY_WAIT();
	while (atomic_load(&node->guests_end))
		nanosleep(&ts, NULL);
}

void vb_xrc_domain_hold(struct vb_xrc_domain *d)
{
	d->refs++;
}

void vb_xrc_domain_drop(struct vb_node *node, struct vb_xrc_domain *d)
{
	vb_mutex_lock(&node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_qp *guests = domain_put(node->xrc, d);
	vb_mutex_unlock(&node->ctx_lock);
	vb_xrc_guests_end(guests);
	await_guests(node);
}

int vb_close_xrcd(struct ibv_xrcd *xrcd)
{
	struct vb_xrcd *x = vb_xrcd(xrcd);
	struct vb_context *ctx = vb_ctx(xrcd->context);

	if (!vb_xrcd_is_of(xrcd, xrcd->context))
		return ENOENT;
	if (atomic_load(&x->users))
		return EBUSY;
	vb_mutex_lock(&ctx->node->ctx_lock, VB_RANK_CONTEXTS);
	struct vb_qp *guests = xrcd_leave(ctx->node->xrc, x);
	vb_mutex_unlock(&ctx->node->ctx_lock);
	vb_xrc_guests_end(guests);
	await_guests(ctx->node);
	vb_object_free(x, &x->made);
	vb_context_drop(ctx);
	return 0;
}

void vb_xrc_free(struct vb_node *node)
{
	struct vb_xrc *xrc = node->xrc;

	while (xrc && xrc->domains) {
		xrc->domains->refs = 1;
		domain_put(xrc, xrc->domains);
	}
	free(xrc);
	free(node->asks);
	node->xrc = NULL;
}

/* --- the domain among processes --- */

bool vb_xrc_id_of(const struct vb_xrc_domain *d, struct vb_xrc_id *id)
{
	static const uint64_t key[2] = {0x7672642d646f6d61, 0x696e2d6f662d6466};
	uint64_t words[IBV_SYSFS_NAME_MAX / 8] = {0};

	if (d->fd < 0)
		return false;
	memcpy(words, d->dev->dev.name, strnlen(d->dev->dev.name, sizeof(words)));
	*id = (struct vb_xrc_id){d->st_dev, d->st_ino, vb_sip(key, words, IBV_SYSFS_NAME_MAX / 8)};
	return true;
}

struct vb_xrc_domain *vb_xrc_domain_of(struct vb_node *node, const struct vb_xrc_id *id, struct vb_xrcd **by)
{
	struct vb_xrc_domain *d = vb_xrc_domains(node);
	struct vb_xrc_id has;

	while (d && (!vb_xrc_id_of(d, &has) || memcmp(&has, id, sizeof(has)) != 0))
		d = d->next;
	if (d)
		*by = d->xrcds;
	return d;
}

struct vb_qp **vb_xrc_guests_of(struct vb_xrc_domain *d)
{
	return &d->guests;
}

struct vb_xrc_domain *vb_xrc_domains(struct vb_node *node)
{
	return node->xrc ? node->xrc->domains : NULL;
}

struct vb_xrc_domain *vb_xrc_domain_next(struct vb_xrc_domain *d)
{
	return d->next;
}

/* --- SRQs --- */

/* Numbers are given like those of queue pairs: the lane of this process, and no number reveals another. */
int vb_xrc_srq_enter(struct vb_srq *srq)
{
	struct vb_node *node = srq->node;
	struct vb_xrc *xrc = node->xrc;
	uint32_t i;

	vb_lock(&node->progress);
	if (xrc->count == VB_LANE_QPS) {
		vb_unlock(&node->progress);
		return ENOMEM;
	}
	do
		i = vb_shuffle(node->qp_key, VB_LANE_SHIFT, VB_QP_INDEX(xrc->next++));
	while (xrc->srqs[i]);
	srq->number = node->lane << VB_LANE_SHIFT | i;
	xrc->srqs[i] = srq;
	xrc->count++;
	vb_unlock(&node->progress);
	return 0;
}

/* Under progress. */
static void forget_srq(struct vb_qp *qp, const struct vb_srq *srq)
{
	vb_lock(&qp->sq_lock);
	if (qp->srq == srq && qp->inbound->active) {
		vb_qp_error(qp);
		vb_async_raise(vb_ctx(qp->qp.context), IBV_EVENT_QP_REQ_ERR, &qp->qp);
	}
	if (qp->srq == srq) {
		qp->srq = NULL;
		qp->rcq = NULL;
	}
	qp->pd = &vb_xrc_no_pd; /* the next request sets it again */
	vb_unlock(&qp->sq_lock);
}

void vb_xrc_srq_leave(struct vb_srq *srq)
{
	struct vb_node *node = srq->node;

	vb_lock(&node->progress);
	node->xrc->srqs[VB_QP_INDEX(srq->number)] = NULL;
	node->xrc->count--;
	for (uint32_t i = 0; i < VB_LANE_QPS; i++) {
		struct vb_qp *qp = atomic_load_explicit(&node->qps[i], memory_order_relaxed);

		if (qp && qp->type == IBV_QPT_XRC_RECV)
			forget_srq(qp, srq);
	}
	vb_unlock(&node->progress);
	vb_cq_clean_receives(srq->cq, &srq->rq);
}

static struct vb_srq *srq_named(const struct vb_qp *qp, uint32_t srqn)
{
	struct vb_srq *srq = qp->node->xrc->srqs[VB_QP_INDEX(srqn)];

	return srq && srq->number == srqn && srq->xrcd->domain == qp->xrc.domain ? srq : NULL;
}

static bool is_elsewhere(const struct vb_qp *qp, uint32_t srqn)
{
	/* a guest that is about to end has no domain any more */
	return VB_QP_LANE(srqn) != qp->node->lane && !qp->xrc.initiator && qp->xrc.domain->fd >= 0;
}

enum vb_xrc_place vb_xrc_select(struct vb_qp *qp, uint32_t srqn)
{
	struct vb_srq *srq = srq_named(qp, srqn);

	if (!srq && !qp->inbound->active && is_elsewhere(qp, srqn))
		return vb_relay_place(qp, srqn);
	if (!srq || (qp->inbound->active && qp->srq != srq))
		return VB_XRC_NONE;
	if (__builtin_expect(qp->xrc.relay != NULL, 0) && !vb_relay_allows(qp))
		return VB_XRC_BUSY;
	qp->srq = srq;
	qp->rcq = srq->cq;
	qp->pd = srq->pd;
	return VB_XRC_HERE;
}

enum vb_xrc_place vb_xrc_select_answer(struct vb_qp *qp, uint32_t srqn)
{
	struct vb_srq *srq = srq_named(qp, srqn);

	if (!srq)
		return is_elsewhere(qp, srqn) ? VB_XRC_THERE : VB_XRC_NONE;
	qp->pd = srq->pd;
	return VB_XRC_HERE;
}

int vb_get_srq_num(struct ibv_srq *ibsrq, uint32_t *number)
{
	struct vb_srq *srq = vb_srq(ibsrq);

	if (!vb_srq_is_sound(ibsrq))
		return EINVAL;
	if (!srq->xrcd) /* only XRC SRQs have numbers */
		return EOPNOTSUPP;
	*number = srq->number;
	return 0;
}
