// dmabuf.c - regions of dma-bufs that can be mapped
// follows: ibv_reg_dmabuf_mr(3); Linux, Documentation/driver-api/dma-buf.rst
// SPDX-License-Identifier: MIT
#include "core/dmabuf.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/context.h"
#include "core/handle.h"
#include "core/mr.h"
#include "core/verbs.h"
#include "util/guard.h"

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142 /* "DMAB" */
#endif

static int check_numbers(const struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, unsigned access,
                         size_t page)
{
	if (!length || offset + length < offset || iova + length - 1 < iova || (offset ^ iova) & (page - 1))
		return EINVAL;
	if (access & ~(unsigned)VB_DMABUF_ACCESS)
		return EINVAL;
	return vb_mr_check_access(pd->context, access);
}

/* Is the descriptor a dma-buf with so many bytes? All dma-bufs are on a file system of their own. Errors are those of
 * the kernel, which registers nothing else either. */
static int check_descriptor(int fd, uint64_t end)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return errno;
	if (fs.f_type != DMA_BUF_MAGIC)
		return EINVAL;
	off_t size = lseek(fd, 0, SEEK_END); /* moves nothing: dma-bufs have no position */

	return size < 0 ? errno : (uint64_t)size < end ? EINVAL : 0;
}

/* Maps the dma-buf up to the end of the range. It is mapped from its beginning, because exporters of Linux (vgem and all
 * others that use drm_gem_shmem_fault) map their first pages, whatever the offset. EOPNOTSUPP: only devices can reach this
 * dma-buf. */
static int map_range(struct vb_mr *as, int fd, uint64_t offset, size_t page)
{
	int prot = PROT_READ | (as->access & IBV_ACCESS_LOCAL_WRITE ? PROT_WRITE : 0);

	as->dmabuf_len = (offset + as->mr.length + page - 1) & ~(page - 1);
	as->dmabuf = mmap(NULL, as->dmabuf_len, prot, MAP_SHARED, fd, 0);
	if (as->dmabuf == MAP_FAILED)
		return errno == EINVAL || errno == ENODEV ? EOPNOTSUPP : errno;
	as->start = (uintptr_t)as->dmabuf + offset;
	return 0;
}

/* As in rdma-core, the region's address for the program is the offset. */
struct ibv_mr *vb_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct vb_mr as = {.mr = {.addr = (void *)(uintptr_t)offset, .length = length}, .iova = iova};
	unsigned rights = (unsigned)access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	struct ibv_mr *mr = NULL;
	int err = EINVAL;

	vb_guard_install();
	/* The memory may be a device's, whose pages process_vm_writev(2) cannot use. */
	as.access = rights | VB_MR_BY_OWNER;
	if (vb_pd_is_sound(pd))
		err = check_numbers(pd, offset, length, iova, rights, page);
	if (!err)
		err = check_descriptor(fd, offset + length);
	if (!err)
		err = vb_context_fault(vb_ctx(pd->context), VB_FAULT_REG);
	if (!err)
		err = map_range(&as, fd, offset, page);
	if (err) {
		errno = err;
		return NULL;
	}
	mr = vb_mr_new(pd, &as);
	if (!mr)
		munmap(as.dmabuf, as.dmabuf_len);
	return mr;
}
