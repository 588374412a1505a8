// context.c - opening and closing a device
// follows: IBA volume 1, 11.2.1.1 (open HCA), 11.2.1.5 (close HCA); ibv_open_device(3)
// SPDX-License-Identifier: MIT
#include "core/context.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/async.h"
#include "core/device.h"
#include "core/event_fd.h"
#include "core/node.h"
#include "core/share.h"
#include "core/verbs.h"
#include "util/calls.h"
#include "util/log.h"

#define TAIL 4096 /* zeros behind the struct, because libmlx5 reads them as if the context were its own */

/* The descriptor in place of /dev/infiniband/uverbsN: a new one, or one that the program was given (cmd_fd >= 0), which
 * the context owns from now on. */
static int take_share(struct vb_context *ctx, int cmd_fd)
{
	struct ibv_context *c = &ctx->vctx.context;

	if (cmd_fd < 0)
		return vb_share_new(ctx->node, ctx->dev->dev.name, &ctx->share, &c->cmd_fd);
	int err = vb_share_open(ctx->node, cmd_fd, &ctx->share);

	if (!err)
		c->cmd_fd = cmd_fd;
	return err;
}

static void list_insert(struct vb_context *ctx)
{
	vb_mutex_lock(&ctx->node->ctx_lock, VB_RANK_CONTEXTS);
	ctx->next = ctx->node->contexts;
	ctx->node->contexts = ctx;
	vb_mutex_unlock(&ctx->node->ctx_lock);
}

static void list_remove(struct vb_context *ctx)
{
	vb_mutex_lock(&ctx->node->ctx_lock, VB_RANK_CONTEXTS);
	for (struct vb_context **p = &ctx->node->contexts; *p; p = &(*p)->next)
		if (*p == ctx) {
			*p = ctx->next;
			break;
		}
	vb_mutex_unlock(&ctx->node->ctx_lock);
}

static void free_context(struct vb_context *ctx)
{
	struct ibv_context *c = &ctx->vctx.context;

	vb_async_clear(ctx);
	vb_event_fd_close(c->async_fd, ctx->async_event_fd);
	if (c->cmd_fd >= 0)
		close(c->cmd_fd);
	vb_share_put(ctx->node, ctx->share);
	vb_node_put(ctx->node);
	vb_device_put(ctx->dev);
	pthread_mutex_destroy(&c->mutex);
	pthread_mutex_destroy(&ctx->lock);
	pthread_cond_destroy(&ctx->async_acked);
	free(ctx);
}

static int fill_context(struct vb_context *ctx, int cmd_fd)
{
	struct ibv_context *c = &ctx->vctx.context;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int err;

	ctx->vctx.sz = sizeof(ctx->vctx);
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->device = &ctx->dev->dev;
	c->num_comp_vectors = cpus > 0 ? (int)cpus : 1;
	c->async_fd = ctx->async_event_fd = c->cmd_fd = -1;
	pthread_mutex_init(&c->mutex, NULL);
	pthread_mutex_init(&ctx->lock, NULL);
	vb_lock_init(&ctx->async_lock, VB_RANK_ASYNC);
	pthread_cond_init(&ctx->async_acked, NULL);
	ctx->async_tail = &ctx->async_head;
	err = vb_event_fd_open(&c->async_fd, &ctx->async_event_fd);
	if (!err)
		err = take_share(ctx, cmd_fd);
	if (err)
		return err;
	vb_fill_ops(ctx);
	return 0;
}

static void fail_open(struct vb_context *ctx, int cmd_fd, int err)
{
	if (cmd_fd >= 0)
		ctx->vctx.context.cmd_fd = -1; /* it stays the program's */
	free_context(ctx);
	errno = err;
}

static struct ibv_context *open_context(struct ibv_device *device, int cmd_fd)
{
	struct vb_context *ctx = calloc(1, sizeof(*ctx) + TAIL);
	int err;

	if (!ctx) {
		errno = ENOMEM;
		return NULL;
	}
	err = vb_node_get(&ctx->node);
	if (err) {
		free(ctx);
		errno = err;
		return NULL;
	}
	ctx->dev = vb_device_get(vb_device_of(device));
	err = fill_context(ctx, cmd_fd);
	if (!err && vb_fault_is_armed(VB_FAULT_ARM_STATE) && vb_fault_device_is_gone(device->name))
		err = EIO;
	if (err) {
		fail_open(ctx, cmd_fd, err);
		return NULL;
	}
	list_insert(ctx);
	if (!vb_device_is_there(ctx->dev)) { /* no later change would tell this context */
		list_remove(ctx);
		fail_open(ctx, cmd_fd, ENODEV);
		return NULL;
	}
	vb_faults_opened();
	return &ctx->vctx.context;
}

struct ibv_context *vb_open_device(struct ibv_device *device)
{
	return open_context(device, -1);
}

struct ibv_context *vb_import_device(struct ibv_device *device, int cmd_fd)
{
	return open_context(device, cmd_fd);
}

void vb_context_hold(struct vb_context *ctx)
{
	atomic_fetch_add(&ctx->objects, 1);
}

void vb_context_drop(struct vb_context *ctx)
{
	vb_mutex_lock(&ctx->lock, VB_RANK_CONTEXT);
	bool last = atomic_fetch_sub(&ctx->objects, 1) == 1 && ctx->closed;
	vb_mutex_unlock(&ctx->lock);
	if (last) { /* ibv_dealloc_td is inline in the program, so its caller has not deferred cancellation */
		int cancel;

		vb_cancel_defer(&cancel);
		free_context(ctx);
		vb_cancel_restore(cancel);
	}
}

/* deviates: the kernel destroys the remaining objects. Here they stay until the program destroys them, and so does the
 * context. A thread may still use one, and many programs destroy objects after the device, which rdma-core allows. */
int vb_close_device(struct ibv_context *context)
{
	struct vb_context *ctx = vb_ctx(context);

	vb_node_tally(ctx->node);
	list_remove(ctx);
	vb_mutex_lock(&ctx->lock, VB_RANK_CONTEXT);
	int left = atomic_load(&ctx->objects);
	ctx->closed = true;
	vb_mutex_unlock(&ctx->lock);
	if (left)
		vb_log(VB_LOG_INFO, "device closed with %d objects alive", left);
	else
		free_context(ctx);
	return 0;
}
