// region.c - all calls that register memory, implemented with three calls of core/
// follows: ibv_reg_mr(3), ibv_rereg_mr(3), ibv_import_mr(3), ibv_reg_dmabuf_mr(3), ibv_reg_mr_ex(3)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <sys/stat.h>

#include "abi/abi.h"
#include "abi/hardware.h"
#include "abi/real.h"

/* A range of bits that a device may ignore: perftest always sets IBV_ACCESS_RELAXED_ORDERING. */
struct ibv_mr *vb_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return vb_reg_mr(pd, addr, length, iova, access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE);
}

struct ibv_mr *vb_abi_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return vb_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *vb_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return vb_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

static struct ibv_mr *refuse_region(int err)
{
	errno = err;
	return NULL;
}

/* A dma-buf: its offset is 0 and its iova the offset, unless they are given. */
static struct ibv_mr *reg_descriptor(struct ibv_pd *pd, const struct vb_mr_init_attr *attr)
{
	uint64_t offset = attr->comp_mask & VB_REG_MR_FD_OFFSET ? attr->fd_offset : 0;

	if (attr->comp_mask & ~(uint64_t)(VB_REG_MR_FD | VB_REG_MR_FD_OFFSET | VB_REG_MR_IOVA))
		return refuse_region(attr->comp_mask & VB_REG_MR_ADDR ? EINVAL : EOPNOTSUPP);
	return vb_reg_dmabuf_mr(pd, offset, attr->length, attr->comp_mask & VB_REG_MR_IOVA ? attr->iova : offset,
	                        attr->fd, attr->access);
}

/* Registers memory, or a dma-buf, by attributes that make sense. */
static struct ibv_mr *reg_by_attr(struct ibv_pd *pd, const struct vb_mr_init_attr *attr)
{
	if (attr->comp_mask & VB_REG_MR_FD)
		return reg_descriptor(pd, attr);
	if (attr->comp_mask & ~(uint64_t)(VB_REG_MR_ADDR | VB_REG_MR_IOVA | VB_REG_MR_BUF))
		return refuse_region(EOPNOTSUPP);
	return vb_reg_mr_iova2(pd, attr->addr, attr->length,
	                       attr->comp_mask & VB_REG_MR_IOVA ? attr->iova : (uintptr_t)attr->addr,
	                       (unsigned)attr->access);
}

/* A handle cannot be for memory that may move. */
static struct ibv_mr *reg_with_handle(struct ibv_pd *pd, struct vb_mr_init_attr attr)
{
	if (vb_dmah_check(attr.dmah, pd))
		return refuse_region(EINVAL);
	if (attr.access & IBV_ACCESS_ON_DEMAND)
		return refuse_region(EOPNOTSUPP);
	attr.comp_mask &= ~(uint64_t)VB_REG_MR_DMAH;
	struct ibv_mr *mr = reg_by_attr(pd, &attr);

	if (mr)
		vb_dmah_join(attr.dmah, vb_mr(mr));
	return mr;
}

struct ibv_mr *vb_reg_mr_ex(struct ibv_pd *pd, struct vb_mr_init_attr *attr)
{
	if (!attr || !(attr->comp_mask & (VB_REG_MR_ADDR | VB_REG_MR_FD)))
		return refuse_region(EINVAL);
	if ((attr->comp_mask & VB_REG_MR_BUF) && vb_buf_check(pd, attr))
		return refuse_region(EINVAL);
	return attr->comp_mask & VB_REG_MR_DMAH ? reg_with_handle(pd, *attr) : reg_by_attr(pd, attr);
}

static bool rereg_makes_sense(int flags, const struct ibv_pd *pd, const void *addr, size_t length, int access)
{
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return false;
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
		return false;
	if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
		return false;
	return !access || (flags & IBV_REREG_MR_CHANGE_ACCESS);
}

int vb_abi_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!rereg_makes_sense(flags, pd, addr, length, access)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	int err = vb_rereg_mr(mr, flags, pd, addr, length, access & ~IBV_ACCESS_OPTIONAL_RANGE);
	if (err) {
		errno = err;
		return IBV_REREG_MR_ERR_CMD;
	}
	return 0;
}
