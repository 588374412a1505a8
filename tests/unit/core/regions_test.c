// regions_test.c - kinds of regions: on-demand paging, null regions, device memory, dma-bufs; advice
// follows: ibv_reg_mr(3), ibv_advise_mr(3), ibv_alloc_null_mr(3), ibv_alloc_dm(3), ibv_rereg_mr(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/buffer.h"
#include "core/mr.h"

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

static char buf[8192] __attribute__((aligned(4096)));
#define BASE ((uint64_t)(uintptr_t)buf)
#define LW IBV_ACCESS_LOCAL_WRITE
#define OD IBV_ACCESS_ON_DEMAND
#define DM_ACCESS (IBV_ACCESS_ZERO_BASED | LW | IBV_ACCESS_REMOTE_WRITE)
#define PAGE 4096u

static struct objects o;

/* A memory file stands in for a dma-buf. The code under test calls this function. */
static int dmabuf = -1;

int fstatfs(int fd, struct statfs *fs)
{
	if (fcntl(fd, F_GETFD) < 0)
		return -1; /* EBADF */
	*fs = (struct statfs){.f_type = fd == dmabuf ? DMA_BUF_MAGIC : TMPFS_MAGIC};
	return 0;
}

static const struct vb_mr_shared *opens(const struct ibv_mr *mr, uint64_t addr, uint64_t len, uint32_t access,
                                        uint8_t **at)
{
	uint64_t va = 0;
	const struct vb_mr_shared *e = vb_mr_check_local(&fake_node, mr->pd->handle, mr->lkey, addr, len, access, &va);

	*at = (uint8_t *)(uintptr_t)va;
	return e;
}

static bool peers_may(const struct ibv_mr *mr, uint64_t addr, uint64_t len, uint32_t access)
{
	struct vb_mr_view v;
	uint64_t va;

	return vb_mr_read_shared(fake_node.seg, mr->rkey, &v) &&
	       vb_mr_view_allows(&v, mr->pd->handle, 0, addr, len, access, &va);
}

static int refusal(void *addr, size_t length, uint64_t iova, unsigned access)
{
	errno = 0;
	CHECK(!vb_reg_mr(o.pd, addr, length, iova, access));
	return errno;
}

/* An address range where nothing is mapped, of three pages. */
static char *hole_make(void)
{
	char *p = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED && !munmap(p, 3 * PAGE));
	return p;
}

/* --- on-demand paging --- */

static void memory_need_not_be_there_on_demand(void)
{
	char *hole = hole_make();
	struct ibv_mr *mr;

	CHECK(refusal(hole, 2 * PAGE, 0, LW) == EFAULT);
	mr = vb_reg_mr(o.pd, hole, 2 * PAGE, (uintptr_t)hole, LW | OD);
	CHECK(mr && mr->addr == hole && !vb_dereg_mr(mr));
	mr = vb_reg_mr(o.pd, hole, 2 * PAGE, 0, LW | OD | IBV_ACCESS_HUGETLB);
	CHECK(mr && !vb_dereg_mr(mr));
	CHECK(refusal(hole, SIZE_MAX, 0, LW | OD) == EINVAL);
	CHECK(refusal(hole, 8, 0, OD | IBV_ACCESS_REMOTE_WRITE) == EINVAL);
}

static void the_whole_address_space_is_one_region(void)
{
	struct ibv_mr *mr = vb_reg_mr(o.pd, NULL, SIZE_MAX, 0, LW | OD | IBV_ACCESS_REMOTE_READ);
	uint8_t *at;

	CHECK(mr && !mr->addr && mr->length == SIZE_MAX);
	CHECK(opens(mr, BASE, sizeof(buf), LW, &at) && at == (uint8_t *)buf);
	CHECK(opens(mr, 0, 8, LW, &at) && !at);
	CHECK(opens(mr, ~0ull - 8, 8, LW, &at) && !opens(mr, ~0ull - 8, 10, LW, &at));
	CHECK(peers_may(mr, BASE, 8, IBV_ACCESS_REMOTE_READ) && !peers_may(mr, BASE, 8, IBV_ACCESS_REMOTE_WRITE));
	CHECK(!vb_dereg_mr(mr));
	CHECK(refusal(NULL, SIZE_MAX, 0, LW) == EFAULT);
	CHECK(refusal(NULL, SIZE_MAX, PAGE, LW | OD) == EINVAL);
	CHECK(refusal(NULL, SIZE_MAX, 0, LW | OD | IBV_ACCESS_HUGETLB) == EINVAL);
}

static void rereg_changes_from_and_to_on_demand(void)
{
	struct ibv_mr *mr = vb_reg_mr(o.pd, NULL, SIZE_MAX, 0, LW | OD);
	char *hole = hole_make();
	uint8_t *at;

	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW) == EFAULT);
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, buf, 100, LW));
	CHECK(opens(mr, BASE, 100, LW, &at) && !opens(mr, BASE, 101, LW, &at));
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, hole, 100, 0) == EFAULT);
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, hole, 100, OD));
	CHECK(mr->addr == hole && !vb_dereg_mr(mr));
}

/* --- advice --- */

static int advise(const struct ibv_mr *mr, enum ibv_advise_mr_advice advice, uint32_t flags, void *addr, uint32_t len)
{
	struct ibv_sge sge[2] = {{(uintptr_t)addr, 0, mr->lkey}, {(uintptr_t)addr, len, mr->lkey}};

	return vb_advise_mr(o.pd, advice, flags, sge, 2);
}

static unsigned pages_there(char *p, unsigned n)
{
	unsigned char there[16];
	unsigned sum = 0;

	CHECK(!mincore(p, n * PAGE, there));
	for (unsigned i = 0; i < n; i++)
		sum += there[i] & 1;
	return sum;
}

#define READ IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITE IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define NO_FAULT IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH IBV_ADVISE_MR_FLAG_FLUSH

static void advice_fetches_pages(void)
{
	static const uint32_t flags[] = {0, FLUSH};

	for (unsigned i = 0; i < 2; i++) {
		char *p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		               0);
		struct ibv_mr *mr = vb_reg_mr(o.pd, p, 8 * PAGE, (uintptr_t)p, LW | OD);

		CHECK(mr && !pages_there(p, 8));
		CHECK(!advise(mr, NO_FAULT, flags[i], p, 8 * PAGE) && !pages_there(p, 8));
		CHECK(!advise(mr, WRITE, flags[i], p + PAGE + 1, PAGE) && pages_there(p, 8) == 2);
		CHECK(!advise(mr, READ, flags[i], p, 8 * PAGE) && pages_there(p, 8) == 8);
		CHECK(!vb_dereg_mr(mr) && !munmap(p, 8 * PAGE));
	}
}

static void advice_is_refused_as_the_manual_says(void)
{
	struct ibv_mr *mr = vb_reg_mr(o.pd, buf, PAGE, BASE, LW | OD), *ro = vb_reg_mr(o.pd, buf, PAGE, BASE, OD);
	struct ibv_mr *plain = vb_reg_mr(o.pd, buf, PAGE, BASE, LW), none = {.lkey = mr->lkey ^ 1};
	struct ibv_pd *other = vb_alloc_pd(o.ctx);
	struct ibv_sge sge = {BASE, 8, mr->lkey};
	char *hole = hole_make();

	CHECK(!advise(mr, READ, 0, buf, PAGE) && !advise(ro, READ, FLUSH, buf, PAGE));
	CHECK(advise(mr, READ, 2, buf, 8) == EINVAL && advise(mr, 99, 0, buf, 8) == ENOTSUP);
	CHECK(vb_advise_mr(o.pd, READ, 0, &sge, 0) == EINVAL && vb_advise_mr(o.pd, READ, 0, NULL, 1) == EINVAL);
	CHECK(vb_advise_mr(other, READ, 0, &sge, 1) == EPERM && advise(ro, WRITE, 0, buf, 8) == EPERM);
	CHECK(advise(&none, READ, 0, buf, 8) == ENOENT && advise(plain, READ, 0, buf, 8) == ENOENT);
	struct ibv_mw *mw = vb_alloc_mw(o.pd, IBV_MW_TYPE_1);
	CHECK(mw && advise(&(struct ibv_mr){.lkey = mw->rkey}, READ, 0, buf, 8) == EINVAL);
	SAME(vb_dealloc_mw(mw), 0);
	CHECK(advise(mr, READ, 0, buf, PAGE + 1) == EFAULT && advise(mr, NO_FAULT, 0, buf + PAGE, 1) == EFAULT);
	CHECK(!vb_dereg_mr(mr) && !vb_dereg_mr(ro) && !vb_dereg_mr(plain));
	mr = vb_reg_mr(o.pd, NULL, SIZE_MAX, 0, LW | OD);
	CHECK(advise(mr, READ, FLUSH, hole, 2 * PAGE) == EFAULT && advise(mr, WRITE, FLUSH, hole, 1) == EFAULT);
	CHECK(!advise(mr, READ, 0, hole, 2 * PAGE) && !advise(mr, NO_FAULT, FLUSH, hole, 2 * PAGE));
	CHECK(advise(mr, READ, FLUSH, (void *)(uintptr_t)(0ull - 2 * PAGE), PAGE + 1) == EFAULT);
	CHECK(!vb_dereg_mr(mr) && !vb_dealloc_pd(other));
}

/* --- null regions --- */

static void a_null_region_gives_zeros_and_swallows_bytes_also_for_peers(void)
{
	struct ibv_mr *mr = vb_alloc_null_mr(o.pd), *again = vb_alloc_null_mr(o.pd);
	struct ibv_pd *other = vb_alloc_pd(o.ctx);
	uint8_t *from, *to;
	uint64_t va;

	CHECK(mr && again && mr->lkey != again->lkey && mr->length == SIZE_MAX);
	CHECK(opens(mr, 12345, VB_MAX_MSG_SZ, 0, &from) && opens(mr, ~0ull, VB_MAX_MSG_SZ, LW, &to));
	memset(to, 0xff, 16 << 20);
	memset(to + VB_MAX_MSG_SZ - 100, 0xff, 100);
	CHECK(!from[0] && !memcmp(from, from + 1, 16 << 20) && !from[VB_MAX_MSG_SZ - 1]);
	CHECK(!opens(mr, 0, VB_MAX_MSG_SZ + 1ull, 0, &from));
	CHECK(!vb_mr_check_local(&fake_node, other->handle, mr->lkey, 0, 8, 0, &va));
	CHECK(peers_may(mr, 12345, VB_MAX_MSG_SZ, IBV_ACCESS_REMOTE_WRITE) && !peers_may(mr, 0, 0, 0));
	CHECK(peers_may(mr, ~0ull, VB_MAX_MSG_SZ, IBV_ACCESS_REMOTE_READ));
	CHECK(!peers_may(mr, 0, VB_MAX_MSG_SZ + 1ull, IBV_ACCESS_REMOTE_WRITE));
	CHECK(!peers_may(mr, 0, 8, IBV_ACCESS_REMOTE_ATOMIC));
	CHECK(vb_mr_invalidate(&fake_node, o.pd->handle, mr->rkey, true) == EINVAL);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == EINVAL);
	CHECK(!vb_dereg_mr(mr) && !vb_dereg_mr(again) && !vb_dealloc_pd(other));
}

static void a_pd_ends_before_its_null_region(void)
{
	struct ibv_pd *pd = vb_alloc_pd(o.ctx);
	struct ibv_mr *mr = vb_alloc_null_mr(pd);
	uint64_t va;

	CHECK(mr && !vb_dealloc_pd(pd));
	CHECK(!vb_mr_check_local(&fake_node, o.pd->handle, mr->lkey, 0, 8, 0, &va));
	CHECK(!vb_dereg_mr(mr));
}

/* A hostile process may show such an entry, with any address. An entry without a domain may be mapped. */
static void a_null_region_of_no_pd_allows_nothing(void)
{
	const struct vb_mr_view v = {.access = VB_MR_NULL, .iova = BASE, .length = 8, .addr = BASE};
	uint64_t va;

	CHECK(!vb_mr_view_allows(&v, 0, 1, 0, 8, IBV_ACCESS_REMOTE_WRITE, &va));
	CHECK(!vb_mr_view_allows(&v, 0, 1, 0, 8, IBV_ACCESS_REMOTE_READ, &va));
}

/* --- device memory --- */

static struct ibv_dm *dm_make(size_t length)
{
	return vb_alloc_dm(o.ctx, &(struct ibv_alloc_dm_attr){.length = length});
}

static int dm_refusal(size_t length, uint32_t log_align, uint32_t comp_mask)
{
	struct ibv_alloc_dm_attr a = {.length = length, .log_align_req = log_align, .comp_mask = comp_mask};

	CHECK(!vb_alloc_dm(o.ctx, &a));
	return errno;
}

static void as_much_device_memory_is_there_as_announced(void)
{
	struct ibv_dm *dm = dm_make(VB_MAX_DM_SIZE), *part;

	CHECK(dm && dm->context == o.ctx && dm->handle);
	CHECK(dm_refusal(1, 0, 0) == ENOMEM && !vb_free_dm(dm));
	CHECK(dm_refusal(VB_MAX_DM_SIZE + 1ull, 0, 0) == ENOMEM && dm_refusal(SIZE_MAX, 0, 0) == ENOMEM);
	CHECK(dm_refusal(0, 0, 0) == EINVAL && dm_refusal(64, 0, 1) == EINVAL);
	CHECK(dm_refusal(64, VB_MAX_DM_LOG_ALIGN + 1, 0) == EINVAL);
	dm = dm_make(VB_MAX_DM_SIZE / 2);
	part = dm_make(VB_MAX_DM_SIZE / 2);
	CHECK(dm && part && dm->handle != part->handle);
	CHECK(!vb_free_dm(dm) && !vb_free_dm(part));
}

static void device_memory_is_copied_in_words(void)
{
	struct ibv_dm *dm = dm_make(102);
	char text[100] = "to and fro", back[100] = "";

	CHECK(dm && !dm->memcpy_to_dm(dm, 0, text, 100) && !dm->memcpy_from_dm(back, dm, 0, 100));
	CHECK(!memcmp(text, back, 100));
	CHECK(!dm->memcpy_to_dm(dm, 8, text, 4) && !dm->memcpy_from_dm(back, dm, 4, 8) && !memcmp(back + 4, "to a", 4));
	CHECK(dm->memcpy_to_dm(dm, 1, text, 4) == EINVAL && dm->memcpy_to_dm(dm, 0, text, 3) == EINVAL);
	CHECK(dm->memcpy_from_dm(back, dm, 100, 4) == EINVAL && dm->memcpy_from_dm(back, dm, ~3ull, 4) == EINVAL);
	CHECK(dm->memcpy_to_dm(dm, 0, hole_make(), 4) == EFAULT && !dm->memcpy_to_dm(dm, 100, text, 0));
	CHECK(!vb_free_dm(dm));
}

static void device_memory_is_registered_from_zero(void)
{
	struct ibv_dm *dm = dm_make(100);
	struct ibv_mr *mr = vb_reg_dm_mr(o.pd, dm, 20, 80, DM_ACCESS | IBV_ACCESS_RELAXED_ORDERING);
	uint8_t *at;

	CHECK(mr && !mr->addr && mr->length == 80 && mr->context == o.ctx);
	CHECK(!dm->memcpy_to_dm(dm, 20, "abcd", 4) && opens(mr, 0, 80, LW, &at) && !memcmp(at, "abcd", 4));
	CHECK(!opens(mr, 0, 81, 0, &at) && peers_may(mr, 76, 4, IBV_ACCESS_REMOTE_WRITE));
	CHECK(vb_free_dm(dm) == EBUSY);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW) == EINVAL);
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf, 8, 0) == EINVAL);
	CHECK(!vb_dereg_mr(mr));
	mr = vb_reg_dm_mr(o.pd, dm, 100, 0, DM_ACCESS);
	CHECK(mr && !vb_dereg_mr(mr));
	CHECK(!vb_reg_dm_mr(o.pd, dm, 20, 81, DM_ACCESS) && errno == EINVAL);
	CHECK(!vb_reg_dm_mr(o.pd, dm, 101, 0, DM_ACCESS) && errno == EINVAL);
	CHECK(!vb_reg_dm_mr(o.pd, dm, ~0ull, 2, DM_ACCESS) && errno == EINVAL);
	CHECK(!vb_reg_dm_mr(o.pd, dm, 0, 8, LW) && errno == EINVAL);
	CHECK(!vb_reg_dm_mr(o.pd, dm, 0, 8, DM_ACCESS | OD) && errno == EINVAL);
	CHECK(!vb_reg_dm_mr(o.pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
	CHECK(!vb_reg_dm_mr(o.pd, NULL, 0, 8, DM_ACCESS) && errno == EINVAL);
	CHECK(!vb_free_dm(dm));
}

static void imported_device_memory_is_the_same_memory(void)
{
	struct ibv_context *ctx = vb_open_device(&fake_device.dev);
	struct ibv_dm *dm = dm_make(100), *same = vb_import_dm(ctx, dm->handle);
	struct ibv_pd *pd = vb_alloc_pd(ctx);
	char back[4];

	CHECK(same && same->context == ctx && same->handle == dm->handle);
	CHECK(!vb_import_dm(ctx, dm->handle + 1) && errno == EINVAL);
	CHECK(!dm->memcpy_to_dm(dm, 96, "abcd", 4) && !same->memcpy_from_dm(back, same, 96, 4) &&
	      !memcmp(back, "abcd", 4));
	struct ibv_mr *mr = vb_reg_dm_mr(pd, same, 0, 100, DM_ACCESS);

	CHECK(mr && vb_free_dm(dm) == EBUSY && !vb_dereg_mr(mr));
	uint32_t handle = dm->handle;

	CHECK(!vb_free_dm(dm) && !vb_import_dm(ctx, handle) && errno == EINVAL);
	CHECK(!same->memcpy_from_dm(back, same, 96, 4));
	vb_unimport_dm(same);
	dm = dm_make(VB_MAX_DM_SIZE); /* all is there again */
	CHECK(dm && !vb_free_dm(dm) && !vb_dealloc_pd(pd) && !vb_close_device(ctx));
}

#ifndef VB_SANITIZED
static void device_memory_is_freed_once(void)
{
	struct ibv_dm *dm = dm_make(100);

	CHECK(!vb_free_dm(dm) && vb_free_dm(dm) == ENOENT);
	CHECK(!vb_reg_dm_mr(o.pd, dm, 0, 8, DM_ACCESS) && errno == EINVAL);
}
#endif

/* --- dma-bufs --- */

static int dmabuf_refusal(uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	CHECK(!vb_reg_dmabuf_mr(o.pd, offset, length, iova, fd, access));
	return errno;
}

static void a_dma_buf_is_registered_from_an_offset(void)
{
	uint8_t *at, *mapped;

	dmabuf = memfd_create("dma-buf", MFD_CLOEXEC);
	CHECK(dmabuf >= 0 && !ftruncate(dmabuf, 4 * PAGE));
	mapped = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf, 0);
	struct ibv_mr *mr =
	        vb_reg_dmabuf_mr(o.pd, PAGE + 8, 2 * PAGE, 7 * PAGE + 8, dmabuf, LW | IBV_ACCESS_RELAXED_ORDERING);

	CHECK(mr && mr->length == 2 * PAGE && opens(mr, 7 * PAGE + 8, 2 * PAGE, LW, &at));
	memset(at, 0xaa, 2 * PAGE);
	CHECK(!mapped[PAGE + 7] && mapped[PAGE + 8] == 0xaa && mapped[3 * PAGE + 7] == 0xaa && !mapped[3 * PAGE + 8]);
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
	CHECK(opens(mr, 7 * PAGE + 8, 1, 0, &at) && *at == 0xaa && !opens(mr, 7 * PAGE + 8, 1, LW, &at));
	CHECK(vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, OD) == EINVAL);
	CHECK(!vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, buf, 100, LW));
	CHECK(opens(mr, BASE, 100, LW, &at) && at == (uint8_t *)buf && !vb_dereg_mr(mr));
	mr = vb_reg_dmabuf_mr(o.pd, 0, PAGE, 0, dmabuf, 0);
	CHECK(mr && !vb_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LW) && opens(mr, 0, 1, LW, &at));
	*at = 1; /* it can be written now */
	CHECK(mapped[0] == 1 && !vb_dereg_mr(mr) && !munmap(mapped, 4 * PAGE) && !close(dmabuf));
}

static void what_is_no_dma_buf_is_refused_with_the_kernels_error(void)
{
	int file = memfd_create("file", MFD_CLOEXEC), closed = dup(file);

	dmabuf = memfd_create("dma-buf", MFD_CLOEXEC);
	CHECK(!ftruncate(file, 4 * PAGE) && !ftruncate(dmabuf, 4 * PAGE) && !close(closed));
	CHECK(dmabuf_refusal(0, PAGE, 0, closed, LW) == EBADF && dmabuf_refusal(0, PAGE, 0, -1, LW) == EBADF);
	CHECK(dmabuf_refusal(0, PAGE, 0, file, LW) == EINVAL);
	CHECK(dmabuf_refusal(8, PAGE, 0, dmabuf, LW) == EINVAL && dmabuf_refusal(0, 0, 0, dmabuf, LW) == EINVAL);
	CHECK(dmabuf_refusal(PAGE, 3 * PAGE + 1, 0, dmabuf, LW) == EINVAL);
	CHECK(dmabuf_refusal(PAGE, SIZE_MAX, 0, dmabuf, LW) == EINVAL);
	CHECK(dmabuf_refusal(0, 2 * PAGE, 0ull - PAGE, dmabuf, LW) == EINVAL);
	CHECK(dmabuf_refusal(0, PAGE, 0, dmabuf, LW | OD) == EINVAL);
	CHECK(dmabuf_refusal(0, PAGE, 0, dmabuf, IBV_ACCESS_REMOTE_WRITE) == EINVAL);
	CHECK(!close(file) && !close(dmabuf));
	dmabuf = open("/dev/full", O_RDWR | O_CLOEXEC); /* has no size, and cannot be mapped */
	CHECK(dmabuf < 0 || dmabuf_refusal(0, PAGE, 0, dmabuf, LW));
	close(dmabuf);
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	RUN(memory_need_not_be_there_on_demand);
	RUN(the_whole_address_space_is_one_region);
	RUN(rereg_changes_from_and_to_on_demand);
	RUN(advice_fetches_pages);
	RUN(advice_is_refused_as_the_manual_says);
	RUN(a_null_region_gives_zeros_and_swallows_bytes_also_for_peers);
	RUN(a_pd_ends_before_its_null_region);
	RUN(a_null_region_of_no_pd_allows_nothing);
	RUN(as_much_device_memory_is_there_as_announced);
	RUN(device_memory_is_copied_in_words);
	RUN(device_memory_is_registered_from_zero);
	RUN(imported_device_memory_is_the_same_memory);
#ifndef VB_SANITIZED
	RUN(device_memory_is_freed_once);
#endif
	RUN(a_dma_buf_is_registered_from_an_offset);
	RUN(what_is_no_dma_buf_is_refused_with_the_kernels_error);
	fake.nodes = nodes;
	CHECK(!fake_node.mr_count);
	close_objects(&o);
}
