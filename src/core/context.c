// context.c - opening and closing a device
// follows: IBA volume 1, 11.2.1.1 (open HCA), 11.2.1.5 (close HCA); ibv_open_device(3)
// SPDX-License-Identifier: MIT
#include "core/context.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/async.h"
#include "core/device.h"
#include "core/event_fd.h"
#include "core/node.h"
#include "core/verbs.h"
#include "util/calls.h"
#include "util/log.h"

#define TAIL 4096 /* zeros behind the struct, because libmlx5 reads them as if the context were its own */

/* Opens a descriptor in place of /dev/infiniband/uverbsN. Programs can pass it on. Its name identifies the device. */
static int open_cmd_fd(const struct vb_context *ctx)
{
	char text[256];
	int fd = memfd_create("verbena-context", MFD_CLOEXEC);
	int n = snprintf(text, sizeof(text), "verbena device %s lane %" PRIu32 " incarnation %" PRIu64 "\n",
	                 ctx->dev->dev.name, ctx->node->lane, ctx->node->incarnation);

	if (fd >= 0 && write(fd, text, n) != n) {
		close(fd);
		return -1;
	}
	return fd;
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
	vb_node_put(ctx->node);
	vb_device_put(ctx->dev);
	pthread_mutex_destroy(&c->mutex);
	pthread_mutex_destroy(&ctx->lock);
	pthread_cond_destroy(&ctx->async_acked);
	free(ctx);
}

static int fill_context(struct vb_context *ctx)
{
	struct ibv_context *c = &ctx->vctx.context;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int err;

	ctx->vctx.sz = sizeof(ctx->vctx);
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->device = &ctx->dev->dev;
	c->num_comp_vectors = cpus > 0 ? (int)cpus : 1;
	c->async_fd = ctx->async_event_fd = -1;
	pthread_mutex_init(&c->mutex, NULL);
	pthread_mutex_init(&ctx->lock, NULL);
	vb_lock_init(&ctx->async_lock, VB_RANK_ASYNC);
	pthread_cond_init(&ctx->async_acked, NULL);
	ctx->async_tail = &ctx->async_head;
	c->cmd_fd = open_cmd_fd(ctx);
	if (c->cmd_fd < 0)
		return errno;
	err = vb_event_fd_open(&c->async_fd, &ctx->async_event_fd);
	if (err)
		return err;
	vb_fill_ops(ctx);
	return 0;
}

struct ibv_context *vb_open_device(struct ibv_device *device)
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
	err = fill_context(ctx);
	if (!err && vb_fault_is_armed(VB_FAULT_ARM_STATE) && vb_fault_device_is_gone(device->name))
		err = EIO;
	if (err) {
		free_context(ctx);
		errno = err;
		return NULL;
	}
	list_insert(ctx);
	vb_faults_opened();
	return &ctx->vctx.context;
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
