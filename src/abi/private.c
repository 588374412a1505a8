// private.c - the private node: what libmlx5, libefa and their like import, and what ibv_devinfo uses of it
// follows: libibverbs.map of rdma-core, IBVERBS_PRIVATE_34 and its successors
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "abi/abi.h"
#include "abi/real.h"
#include "util/lock.h"
#include "util/log.h"

/*
 * perftest, UCX and libfabric link libmlx5 and libefa, which bind all of these at load time. So they must exist,
 * although no driver has a device of ours. The number of the node changes whenever drivers and library must match; here
 * one function serves them all.
 */
#define IN_65(name) VB_SYMVER(vbp_##name, #name "@@IBVERBS_PRIVATE_65")
#define IN_64(name)                                          \
	VB_SYMVER(vbp_##name, #name "@@IBVERBS_PRIVATE_64"); \
	VB_SYMVER(vbp_##name, #name "@IBVERBS_PRIVATE_65")
#define FROM_64(name)                                       \
	VB_SYMVER(vbp_##name, #name "@IBVERBS_PRIVATE_64"); \
	VB_SYMVER(vbp_##name, #name "@IBVERBS_PRIVATE_65")
#define IN_59(name)                                          \
	VB_SYMVER(vbp_##name, #name "@@IBVERBS_PRIVATE_59"); \
	FROM_64(name)
#define IN_34(name)                                          \
	VB_SYMVER(vbp_##name, #name "@@IBVERBS_PRIVATE_34"); \
	VB_SYMVER(vbp_##name, #name "@IBVERBS_PRIVATE_57");  \
	VB_SYMVER(vbp_##name, #name "@IBVERBS_PRIVATE_59");  \
	FROM_64(name)

#define REFUSE(name)                    \
	VB_EXPORT int vbp_##name(void); \
	int vbp_##name(void)            \
	{                               \
		return EOPNOTSUPP;      \
	}
#define PRIVATE_34(name) \
	IN_34(name);     \
	REFUSE(name)
#define PRIVATE_59(name) \
	IN_59(name);     \
	REFUSE(name)
#define PRIVATE_65(name) \
	IN_65(name);     \
	REFUSE(name)
#include "abi/private.inc"

struct command_buffer; /* opaque here */

IN_34(execute_ioctl);
VB_EXPORT int vbp_execute_ioctl(struct ibv_context *context, struct command_buffer *cmd);
int vbp_execute_ioctl(struct ibv_context *context, struct command_buffer *cmd)
{
	return EOPNOTSUPP;
}

/* Gives the size of an array on a driver's stack: only its own attributes, because linked attributes are never sent. */
IN_34(__ioctl_final_num_attrs);
VB_EXPORT unsigned vbp___ioctl_final_num_attrs(unsigned num_attrs, struct command_buffer *link);
unsigned vbp___ioctl_final_num_attrs(unsigned num_attrs, struct command_buffer *link)
{
	return num_attrs;
}

IN_34(__verbs_log);
VB_EXPORT void vbp___verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void vbp___verbs_log(struct verbs_context *ctx, uint32_t level, const char *fmt, ...)
{
	char line[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	vb_log(VB_LOG_DEBUG, "driver: %s", line);
}

/* Takes cmd_fd over even when it fails. */
IN_34(_verbs_init_and_alloc_context);
VB_EXPORT void *vbp__verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
                                                  struct verbs_context *offset, uint32_t driver_id);
void *vbp__verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
                                        struct verbs_context *offset, uint32_t driver_id)
{
	if (cmd_fd >= 0)
		close(cmd_fd);
	errno = EOPNOTSUPP;
	return NULL;
}

IN_34(verbs_open_device);
VB_EXPORT struct ibv_context *vbp_verbs_open_device(struct ibv_device *device, void *private_data);
struct ibv_context *vbp_verbs_open_device(struct ibv_device *device, void *private_data)
{
	return vbx_open_device(device);
}

IN_34(verbs_uninit_context);
VB_EXPORT void vbp_verbs_uninit_context(struct verbs_context *context);
void vbp_verbs_uninit_context(struct verbs_context *context)
{
}

IN_34(verbs_set_ops);
VB_EXPORT void vbp_verbs_set_ops(struct verbs_context *context, const void *ops);
void vbp_verbs_set_ops(struct verbs_context *context, const void *ops)
{
}

IN_34(verbs_init_cq);
VB_EXPORT void vbp_verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context, struct ibv_comp_channel *channel,
                                 void *cq_context);
void vbp_verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context, struct ibv_comp_channel *channel,
                       void *cq_context)
{
	cq->context = context;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->comp_events_completed = 0;
	cq->async_events_completed = 0;
	pthread_mutex_init(&cq->mutex, NULL);
	pthread_cond_init(&cq->cond, NULL);
	if (!channel)
		return;
	vb_mutex_lock(&context->mutex, VB_RANK_ABI_CHANNEL);
	channel->refcnt++;
	vb_mutex_unlock(&context->mutex);
}

IN_34(ibv_query_gid_type);
VB_EXPORT int vbp_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);
int vbp_ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type)
{
	switch (vb_owner_of_context(context)) {
	case VB_OWNER_US:
		return vb_query_gid_type(context, port, index, type);
	case VB_OWNER_REAL:
		return vb_real.query_gid_type(context, port, index, type);
	default:
		errno = EINVAL;
		return -1;
	}
}

struct verbs_sysfs_dev;
IN_34(ibv_read_ibdev_sysfs_file);
VB_EXPORT int vbp_ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct verbs_sysfs_dev *dev, const char *format,
                                            ...) __attribute__((format(printf, 4, 5)));
int vbp_ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct verbs_sysfs_dev *dev, const char *format, ...)
{
	/* Only hardware drivers have such a dev; devices of ours have NULL there. */
	errno = dev ? EOPNOTSUPP : EINVAL;
	return -1;
}

/* A driver registers its table here when it is loaded. With a real library behind ours this would be passed to that
 * library. */
static void ignore_driver(const void *ops)
{
	vb_log(VB_LOG_DEBUG, "a driver of rdma-core was loaded and is ignored: Verbena does not use RDMA hardware");
}
#define REGISTER(n)                                                \
	VB_EXPORT void verbs_register_driver_##n(const void *ops); \
	void verbs_register_driver_##n(const void *ops)            \
	{                                                          \
		ignore_driver(ops);                                \
	}
REGISTER(34)
REGISTER(57)
REGISTER(59)
REGISTER(64)
REGISTER(65)

/* Since 2018 drivers are loaded differently; libfabric's old usnic provider still calls this function. */
VB_SYMVER(vbp_ibv_register_driver, "ibv_register_driver@IBVERBS_1.1");
VB_EXPORT void vbp_ibv_register_driver(const char *name, void *init);
void vbp_ibv_register_driver(const char *name, void *init)
{
	ignore_driver(init);
}

IN_34(verbs_allow_disassociate_destroy);
VB_EXPORT extern bool vbp_verbs_allow_disassociate_destroy;
bool vbp_verbs_allow_disassociate_destroy;

/* 64.0: memory of confidential virtual machines */
IN_64(ibv_dmabuf_heap_cc_shared_init);
VB_EXPORT void *vbp_ibv_dmabuf_heap_cc_shared_init(void);
void *vbp_ibv_dmabuf_heap_cc_shared_init(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

IN_64(ibv_dmabuf_heap_alloc);
VB_EXPORT void *vbp_ibv_dmabuf_heap_alloc(void *heap, size_t size, int *fd);
void *vbp_ibv_dmabuf_heap_alloc(void *heap, size_t size, int *fd)
{
	errno = EOPNOTSUPP;
	return NULL;
}

IN_64(ibv_dmabuf_heap_destroy);
VB_EXPORT void vbp_ibv_dmabuf_heap_destroy(void *heap);
void vbp_ibv_dmabuf_heap_destroy(void *heap)
{
}

IN_64(ibv_dmabuf_heap_free);
VB_EXPORT void vbp_ibv_dmabuf_heap_free(void *buf, size_t size, int fd);
void vbp_ibv_dmabuf_heap_free(void *buf, size_t size, int fd)
{
}
