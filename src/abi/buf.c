// buf.c - buffers that the adapter allocates: ordinary memory, which begins at a page
// follows: ibv_alloc_buf(3), ibv_reg_mr_ex(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "abi/abi.h"
#include "abi/newer.h"
#include "abi/real.h"

/* The real library's buffers begin with a pointer, and no pointer is this number. */
#define OURS 0x7665726262756666ull

struct vb_buf {
	uint64_t ours;
	struct ibv_pd *pd;
	void *addr;
	size_t size;
};

void *vb_alloc_buf(struct ibv_pd *pd, size_t size, struct vb_buf **buf)
{
	struct vb_buf *b = calloc(1, sizeof(*b));
	void *addr = NULL;
	int err = b ? posix_memalign(&addr, (size_t)sysconf(_SC_PAGESIZE), size) : ENOMEM;

	if (err) {
		free(b);
		errno = err;
		return NULL;
	}
	*b = (struct vb_buf){OURS, pd, addr, size};
	*buf = b;
	return addr;
}

/* A buffer does not name its owner. */
VB_EXPORT void ibv_free_buf(struct vb_buf *buf);
void ibv_free_buf(struct vb_buf *buf)
{
	if (buf && buf->ours == OURS) {
		buf->ours = 0;
		free(buf->addr);
		free(buf);
	} else if (buf && vb_real.free_buf) {
		vb_real.free_buf(buf);
	}
}

VB_EXPORT int ibv_export_buf_dmabuf_fd(struct vb_buf *buf);
int ibv_export_buf_dmabuf_fd(struct vb_buf *buf)
{
	if (buf && buf->ours != OURS && vb_real.export_buf_dmabuf_fd)
		return vb_real.export_buf_dmabuf_fd(buf);
	errno = buf ? ENODATA : EINVAL; /* it is no dma-buf */
	return -1;
}

int vb_buf_check(struct ibv_pd *pd, const struct vb_mr_init_attr *attr)
{
	const struct vb_buf *b = attr->buf;

	if (!b || b->ours != OURS || b->pd != pd || !(attr->comp_mask & VB_REG_MR_ADDR) ||
	    (attr->comp_mask & (VB_REG_MR_FD | VB_REG_MR_FD_OFFSET)))
		return EINVAL;
	uintptr_t base = (uintptr_t)b->addr, addr = (uintptr_t)attr->addr;

	return addr >= base && addr - base <= b->size && attr->length <= b->size - (addr - base) ? 0 : EINVAL;
}

struct ibv_mr *vb_reg_buf_mr(struct ibv_pd *pd, struct vb_buf *buf, void *addr, size_t length, int access)
{
	struct vb_mr_init_attr attr = {.length = length,
	                               .access = access,
	                               .comp_mask = VB_REG_MR_BUF | VB_REG_MR_ADDR,
	                               .addr = addr,
	                               .buf = buf};

	return vb_reg_mr_ex(pd, &attr);
}
