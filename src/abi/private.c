// private.c - the private node: what libmlx5, libefa and their like import, and what ibv_devinfo uses of it
// follows: libibverbs.map of rdma-core, IBVERBS_PRIVATE_34 and its successors
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "abi/abi.h"
#include "abi/hardware.h"
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

/*
 * A driver that was loaded for the real library calls it here. The arguments pass as they stand in registers and on the
 * stack: none is a floating-point number, and each has a register or an 8-byte slot of its own. No call has more than
 * twelve; what stands behind the last argument is passed too, and nobody reads it.
 */
#define ARGUMENTS long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l
#define PASSED a, b, c, d, e, f, g, h, i, j, k, l
typedef long pass_on(ARGUMENTS);

#define REFUSE(name)                                                   \
	static pass_on *real_##name;                                   \
	VB_EXPORT pass_on vbp_##name;                                  \
	long vbp_##name(ARGUMENTS)                                     \
	{                                                              \
		return real_##name ? real_##name(PASSED) : EOPNOTSUPP; \
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
#undef PRIVATE_34
#undef PRIVATE_59
#undef PRIVATE_65

struct command_buffer; /* opaque here, as the next */
struct verbs_sysfs_dev;

/* The real library's calls that do more than to fail without it. NULL: it is not loaded. */
static struct {
	int (*execute_ioctl)(struct ibv_context *context, struct command_buffer *cmd);
	unsigned (*__ioctl_final_num_attrs)(unsigned num_attrs, struct command_buffer *link);
	void (*__verbs_log)(struct verbs_context *ctx, uint32_t level, const char *fmt, ...);
	void *(*_verbs_init_and_alloc_context)(struct ibv_device *device, int cmd_fd, size_t size,
	                                       struct verbs_context *offset, uint32_t driver_id);
	struct ibv_context *(*verbs_open_device)(struct ibv_device *device, void *private_data);
	void (*verbs_uninit_context)(struct verbs_context *context);
	void (*verbs_set_ops)(struct verbs_context *context, const void *ops);
	void (*verbs_init_cq)(struct ibv_cq *cq, struct ibv_context *context, struct ibv_comp_channel *channel,
	                      void *cq_context);
	int (*ibv_read_ibdev_sysfs_file)(char *buf, size_t size, struct verbs_sysfs_dev *dev, const char *format, ...);
	void *(*ibv_dmabuf_heap_cc_shared_init)(void);
	void *(*ibv_dmabuf_heap_alloc)(void *heap, size_t size, int *fd);
	void (*ibv_dmabuf_heap_destroy)(void *heap);
	void (*ibv_dmabuf_heap_free)(void *buf, size_t size, int fd);
} real;

IN_34(execute_ioctl);
VB_EXPORT int vbp_execute_ioctl(struct ibv_context *context, struct command_buffer *cmd);
int vbp_execute_ioctl(struct ibv_context *context, struct command_buffer *cmd)
{
	return real.execute_ioctl ? real.execute_ioctl(context, cmd) : EOPNOTSUPP;
}

/* Gives the size of an array on a driver's stack: only its own attributes, because linked attributes are never sent. */
IN_34(__ioctl_final_num_attrs);
VB_EXPORT unsigned vbp___ioctl_final_num_attrs(unsigned num_attrs, struct command_buffer *link);
unsigned vbp___ioctl_final_num_attrs(unsigned num_attrs, struct command_buffer *link)
{
	return real.__ioctl_final_num_attrs ? real.__ioctl_final_num_attrs(num_attrs, link) : num_attrs;
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
	if (real.__verbs_log)
		real.__verbs_log(ctx, level, "%s", line);
	else
		vb_log(VB_LOG_DEBUG, "driver: %s", line);
}

/* Takes cmd_fd over even when it fails. */
IN_34(_verbs_init_and_alloc_context);
VB_EXPORT void *vbp__verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
                                                  struct verbs_context *offset, uint32_t driver_id);
void *vbp__verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd, size_t size,
                                        struct verbs_context *offset, uint32_t driver_id)
{
	if (real._verbs_init_and_alloc_context)
		return real._verbs_init_and_alloc_context(device, cmd_fd, size, offset, driver_id);
	if (cmd_fd >= 0)
		close(cmd_fd);
	errno = EOPNOTSUPP;
	return NULL;
}

static struct ibv_context *open_real(struct ibv_device *device, void *private_data)
{
	vb_hardware_aside(true);
	struct ibv_context *context = real.verbs_open_device(device, private_data);
	vb_hardware_aside(false);
	return context;
}

IN_34(verbs_open_device);
VB_EXPORT struct ibv_context *vbp_verbs_open_device(struct ibv_device *device, void *private_data);
struct ibv_context *vbp_verbs_open_device(struct ibv_device *device, void *private_data)
{
	if (vb_owner_of_device(device) == VB_OWNER_REAL && real.verbs_open_device)
		return open_real(device, private_data);
	return vbx_open_device(device);
}

IN_34(verbs_uninit_context);
VB_EXPORT void vbp_verbs_uninit_context(struct verbs_context *context);
void vbp_verbs_uninit_context(struct verbs_context *context)
{
	if (real.verbs_uninit_context)
		real.verbs_uninit_context(context);
}

IN_34(verbs_set_ops);
VB_EXPORT void vbp_verbs_set_ops(struct verbs_context *context, const void *ops);
void vbp_verbs_set_ops(struct verbs_context *context, const void *ops)
{
	if (real.verbs_set_ops)
		real.verbs_set_ops(context, ops);
}

IN_34(verbs_init_cq);
VB_EXPORT void vbp_verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context, struct ibv_comp_channel *channel,
                                 void *cq_context);
void vbp_verbs_init_cq(struct ibv_cq *cq, struct ibv_context *context, struct ibv_comp_channel *channel,
                       void *cq_context)
{
	if (real.verbs_init_cq) {
		real.verbs_init_cq(cq, context, channel, cq_context);
		return;
	}
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

IN_34(ibv_read_ibdev_sysfs_file);
VB_EXPORT int vbp_ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct verbs_sysfs_dev *dev, const char *format,
                                            ...) __attribute__((format(printf, 4, 5)));
int vbp_ibv_read_ibdev_sysfs_file(char *buf, size_t size, struct verbs_sysfs_dev *dev, const char *format, ...)
{
	char path[PATH_MAX];
	va_list ap;

	/* Only hardware drivers have such a dev; devices of ours have NULL there. */
	if (dev && real.ibv_read_ibdev_sysfs_file) {
		va_start(ap, format);
		vsnprintf(path, sizeof(path), format, ap);
		va_end(ap);
		return real.ibv_read_ibdev_sysfs_file(buf, size, dev, "%s", path);
	}
	errno = dev ? EOPNOTSUPP : EINVAL;
	return -1;
}

/* A driver registers its table here when it is loaded. One that the program links (libmlx5) may do so before the real
 * library is loaded, so the tables are kept for it. */
enum { DRIVERS = 64 };
static struct {
	const void *_Atomic ops;
	int version;
} drivers[DRIVERS];
static atomic_int n_drivers;
static void *_Atomic driver_library;

static void pass_driver(void *library, int version, const void *ops)
{
	char name[64];

	snprintf(name, sizeof(name), "verbs_register_driver_%d", version);
	void (*to)(const void *ops) = (void (*)(const void *))dlsym(library, name);
	if (to)
		to(ops);
	else
		vb_log(VB_LOG_WARN, "a driver of another release of rdma-core (%d) was loaded: it is not used",
		       version);
}

static void take_driver(int version, const void *ops)
{
	void *library = atomic_load(&driver_library);

	if (library) {
		pass_driver(library, version, ops);
		return;
	}
	int i = atomic_fetch_add(&n_drivers, 1);
	if (i >= DRIVERS)
		return;
	drivers[i].version = version;
	atomic_store(&drivers[i].ops, ops);
}
#define REGISTER(n)                                                \
	VB_EXPORT void verbs_register_driver_##n(const void *ops); \
	void verbs_register_driver_##n(const void *ops)            \
	{                                                          \
		take_driver(n, ops);                               \
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
	vb_log(VB_LOG_DEBUG, "the driver %s of before 2018 was loaded and is ignored", name);
}

IN_34(verbs_allow_disassociate_destroy);
VB_EXPORT extern bool vbp_verbs_allow_disassociate_destroy;
bool vbp_verbs_allow_disassociate_destroy;

/* 64.0: memory of confidential virtual machines */
IN_64(ibv_dmabuf_heap_cc_shared_init);
VB_EXPORT void *vbp_ibv_dmabuf_heap_cc_shared_init(void);
void *vbp_ibv_dmabuf_heap_cc_shared_init(void)
{
	if (real.ibv_dmabuf_heap_cc_shared_init)
		return real.ibv_dmabuf_heap_cc_shared_init();
	errno = EOPNOTSUPP;
	return NULL;
}

IN_64(ibv_dmabuf_heap_alloc);
VB_EXPORT void *vbp_ibv_dmabuf_heap_alloc(void *heap, size_t size, int *fd);
void *vbp_ibv_dmabuf_heap_alloc(void *heap, size_t size, int *fd)
{
	if (real.ibv_dmabuf_heap_alloc)
		return real.ibv_dmabuf_heap_alloc(heap, size, fd);
	errno = EOPNOTSUPP;
	return NULL;
}

IN_64(ibv_dmabuf_heap_destroy);
VB_EXPORT void vbp_ibv_dmabuf_heap_destroy(void *heap);
void vbp_ibv_dmabuf_heap_destroy(void *heap)
{
	if (real.ibv_dmabuf_heap_destroy)
		real.ibv_dmabuf_heap_destroy(heap);
}

IN_64(ibv_dmabuf_heap_free);
VB_EXPORT void vbp_ibv_dmabuf_heap_free(void *buf, size_t size, int fd);
void vbp_ibv_dmabuf_heap_free(void *buf, size_t size, int fd)
{
	if (real.ibv_dmabuf_heap_free)
		real.ibv_dmabuf_heap_free(buf, size, fd);
}

/* By the default version, whose number differs from release to release. */
#define FIND(name) real.name = (__typeof__(real.name))dlsym(handle, #name)
#define PRIVATE_34(name) real_##name = (pass_on *)dlsym(handle, #name);
#define PRIVATE_59 PRIVATE_34
#define PRIVATE_65 PRIVATE_34

static void find_calls(void *handle)
{
#include "abi/private.inc"
	FIND(execute_ioctl);
	FIND(__ioctl_final_num_attrs);
	FIND(__verbs_log);
	FIND(_verbs_init_and_alloc_context);
	FIND(verbs_open_device);
	FIND(verbs_uninit_context);
	FIND(verbs_set_ops);
	FIND(verbs_init_cq);
	FIND(ibv_read_ibdev_sysfs_file);
	FIND(ibv_dmabuf_heap_cc_shared_init);
	FIND(ibv_dmabuf_heap_alloc);
	FIND(ibv_dmabuf_heap_destroy);
	FIND(ibv_dmabuf_heap_free);
}

void vb_private_forward(void *handle)
{
	find_calls(handle);
	atomic_store(&driver_library, handle);
	for (int i = 0; i < DRIVERS; i++) {
		const void *ops = atomic_load(&drivers[i].ops);

		if (ops)
			pass_driver(handle, drivers[i].version, ops);
	}
}
