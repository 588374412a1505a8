// regions.c - null regions, device memory and dma-bufs in traffic between two programs
// follows: ibv_alloc_null_mr(3), ibv_alloc_dm(3), ibv_reg_dmabuf_mr(3)
// SPDX-License-Identifier: MIT
#include "dmabuf_case.h"
#include "regions.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define MIB (1u << 20)
#define DM_ACCESS (ALL_ACCESS | IBV_ACCESS_ZERO_BASED)

static void post_pieces(struct link *l, uint64_t id, enum ibv_wr_opcode op, struct ibv_sge *sge, int n, struct far far)
{
	struct ibv_send_wr w = {.wr_id = id,
	                        .sg_list = sge,
	                        .num_sge = n,
	                        .opcode = op,
	                        .send_flags = IBV_SEND_SIGNALED,
	                        .wr.rdma = {far.addr, far.rkey}},
	                   *bad;

	SAME(ibv_post_send(l->qp, &w, &bad), 0);
}

static void recv_pieces(struct link *l, uint64_t id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr w = {.wr_id = id, .sg_list = sge, .num_sge = n}, *bad;

	SAME(ibv_post_recv(l->qp, &w, &bad), 0);
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

/* --- null regions --- */

static const uint32_t gaps[] = {1, 100, 5000, 300000};
#define GAPS (sizeof(gaps) / sizeof(gaps[0]))

/* Receives three pieces, of which the middle one vanishes; then memory that was written, partly with zeros. */
static void null_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	struct ibv_mr *null = ibv_alloc_null_mr(d.pd);

	CHECK(null && null->length == SIZE_MAX);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&m, fd);
	side_join(&l, fd);
	for (uint32_t i = 0; i < GAPS; i++) {
		struct ibv_sge into[3] = {{(uintptr_t)m.p, 10, m.mr->lkey},
		                          {0xdead, gaps[i], null->lkey},
		                          {(uintptr_t)m.p + 10, 10, m.mr->lkey}};

		memset(m.p, 0xff, MIB);
		recv_pieces(&l, i, into, 3);
		recv_pieces(&l, i + 100, (struct ibv_sge[]){{(uintptr_t)m.p + 100, gaps[i] + 20, m.mr->lkey}}, 1);
		meet_up(fd);
		SAME(expect(l.rcq, i, IBV_WC_SUCCESS).byte_len, gaps[i] + 20);
		SAME(expect(l.rcq, i + 100, IBV_WC_SUCCESS).byte_len, gaps[i] + 20);
		CHECK(holds(m.p, 10, i) && holds(m.p + 10, 10, i + 50));
		CHECK(holds(m.p + 100, 10, i) && is_zero(m.p + 110, gaps[i]) && holds(m.p + 110 + gaps[i], 10, i + 50));
		meet_up(fd);
		meet_up(fd);
		CHECK(is_zero(m.p + 500000, gaps[i]) && m.p[500000 + gaps[i]] == 0xff);
	}
	link_end(&l);
	CHECK(!ibv_dereg_mr(null));
	mem_end(&m);
	dev_close(&d);
}

static void null_regions_read_as_zeros_and_swallow_what_is_written(void)
{
	struct peer p = start(null_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, MIB);
	struct ibv_mr *null = ibv_alloc_null_mr(d.pd);

	CHECK(null);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	side_join(&l, p.fd);
	for (uint32_t i = 0; i < GAPS; i++) {
		struct ibv_sge all = {(uintptr_t)m.p, gaps[i] + 20, m.mr->lkey};
		struct ibv_sge three[3] = {{(uintptr_t)m.p, 10, m.mr->lkey},
		                           {i, gaps[i], null->lkey},
		                           {(uintptr_t)m.p + 10 + gaps[i], 10, m.mr->lkey}};
		struct ibv_sge none = {0, gaps[i], null->lkey};

		memset(m.p, 0xee, MIB);
		fill(m.p, 10, i);
		fill(m.p + 10 + gaps[i], 10, i + 50);
		meet_up(p.fd);
		post_pieces(&l, 1, IBV_WR_SEND, &all, 1, far);
		post_pieces(&l, 2, IBV_WR_SEND, three, 3, far);
		expect(l.scq, 1, IBV_WC_SUCCESS);
		expect(l.scq, 2, IBV_WC_SUCCESS);
		meet_up(p.fd);
		far.addr += 500000;
		post_pieces(&l, 3, IBV_WR_RDMA_WRITE, &none, 1, far);
		expect(l.scq, 3, IBV_WC_SUCCESS);
		/* what was read vanishes, so the next write from it still gives zeros */
		post_pieces(&l, 4, IBV_WR_RDMA_READ, &none, 1, (struct far){far.addr - 500000, far.rkey, 0});
		expect(l.scq, 4, IBV_WC_SUCCESS);
		post_pieces(&l, 5, IBV_WR_RDMA_WRITE, &none, 1, far);
		expect(l.scq, 5, IBV_WC_SUCCESS);
		post_pieces(&l, 6, IBV_WR_RDMA_READ, &all, 1, (struct far){far.addr, far.rkey, 0});
		expect(l.scq, 6, IBV_WC_SUCCESS);
		CHECK(is_zero(m.p, gaps[i]));
		far.addr -= 500000;
		meet_up(p.fd);
	}
	finish(&p);
	link_end(&l);
	CHECK(!ibv_dereg_mr(null));
	mem_end(&m);
	dev_close(&d);
}

static void exposed_peer(int fd, void *arg)
{
	struct dev d;
	struct link l;

	side_open(&d);
	struct mem null = {.mr = ibv_alloc_null_mr(d.pd)};

	CHECK(null.mr);
	link_make(&l, &d, &(struct conf){0});
	mem_tell(&null, fd);
	side_join(&l, fd);
	meet_up(fd);
}

static void peers_write_to_and_read_from_a_null_region_but_add_nothing(void)
{
	struct peer p = start(exposed_peer, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){0});
	struct far far = far_hear(p.fd);

	side_join(&l, p.fd);
	memset(m.p, 0xee, 4096);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 1, .m = &m, .len = 4096, .far = {.addr = 0xdead, .rkey = far.rkey});
	expect(l.scq, 1, IBV_WC_SUCCESS);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 2, .m = &m, .len = 4000, .far = {.addr = 0xdead, .rkey = far.rkey});
	expect(l.scq, 2, IBV_WC_SUCCESS);
	CHECK(is_zero(m.p, 4000) && m.p[4000] == 0xee);
	POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 3, .m = &m, .len = 8, .far = far);
	struct ibv_wc wc = wait_wc(l.scq);

	CHECK(wc.wr_id == 3 && wc.status == (over_iwarp ? wc.status : IBV_WC_REM_ACCESS_ERR) && wc.status);
	meet_up(p.fd);
	finish(&p);
}

/* --- device memory --- */

#define DM 65536u
#define PART 4096u /* where the region of device memory begins */

static struct ibv_dm *dm_make(struct dev *d, struct mem *m)
{
	struct ibv_dm *dm = ibv_alloc_dm(d->ctx, &(struct ibv_alloc_dm_attr){.length = DM, .log_align_req = 6});

	CHECK(dm);
	*m = (struct mem){.n = DM - PART, .mr = ibv_reg_dm_mr(d->pd, dm, PART, DM - PART, DM_ACCESS)};
	CHECK(m->mr && !m->mr->addr && m->mr->length == DM - PART);
	return dm;
}

static void dm_owner(int fd, void *arg)
{
	static uint8_t copy[DM];
	struct dev d;
	struct link l;
	struct mem m;

	side_open(&d);
	struct ibv_dm *dm = dm_make(&d, &m);

	fill(copy, DM, 1);
	SAME(ibv_memcpy_to_dm(dm, 0, copy, DM), 0);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 40000, 20000);
	mem_tell(&m, fd);
	side_join(&l, fd);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	SAME(ibv_memcpy_from_dm(copy, dm, 0, DM), 0);
	CHECK(holds(copy, PART, 1) && holds(copy + PART, 30000, 2) && holds(copy + PART + 40000, 20000, 3));
	SAME(*(uint64_t *)(copy + PART + 32000), 42);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 30000);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	SAME(ibv_free_dm(dm), EBUSY);
	SAME(ibv_dereg_mr(m.mr), 0);
	SAME(ibv_free_dm(dm), 0);
	meet_up(fd);
	link_end(&l);
	dev_close(&d);
}

static void device_memory_is_written_read_sent_and_received(void)
{
	static uint8_t copy[DM];
	struct peer p = start(dm_owner, NULL);
	struct dev d;
	struct link l;
	struct mem m, mine;

	side_open(&d);
	mem_make(&m, &d, MIB);
	struct ibv_dm *dm = dm_make(&d, &mine);

	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 9, &mine, 0, 30000);
	struct far far = far_hear(p.fd);

	SAME(far.addr, 0);
	side_join(&l, p.fd);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 1, .m = &mine, .len = 100, .far = far);
	expect(l.scq, 1, IBV_WC_SUCCESS);
	SAME(ibv_memcpy_from_dm(copy, dm, PART, 100), 0);
	fill(m.p, DM, 1);
	CHECK(!memcmp(copy, m.p + PART, 100));
	fill(m.p, 30000, 2);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .len = 30000, .far = far);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	memset(m.p, 0, 8);
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 3, .m = &m, .len = 8, .far = far, .far_off = 32000);
	expect(l.scq, 3, IBV_WC_SUCCESS);
	POST(&l, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 4, .m = &m, .len = 8, .far = far, .far_off = 32000,
	     .compare_add = 42);
	expect(l.scq, 4, IBV_WC_SUCCESS);
	fill(m.p, 20000, 3);
	POST(&l, .op = IBV_WR_SEND, .id = 5, .m = &m, .len = 20000);
	expect(l.scq, 5, IBV_WC_SUCCESS);
	expect(l.rcq, 9, IBV_WC_SUCCESS);
	SAME(ibv_memcpy_from_dm(copy, dm, 0, DM), 0);
	CHECK(is_zero(copy, PART) && holds(copy + PART, 30000, 2));
	struct ibv_dm *same = ibv_import_dm(d.ctx, dm->handle);

	CHECK(same && same != dm && !ibv_import_dm(d.ctx, dm->handle + 1) && errno == EINVAL);
	SAME(ibv_memcpy_from_dm(copy, same, PART, 30000), 0);
	CHECK(holds(copy, 30000, 2));
	ibv_unimport_dm(same);
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	SAME(ibv_dereg_mr(mine.mr), 0);
	SAME(ibv_free_dm(dm), 0);
	mem_end(&m);
	dev_close(&d);
}

/* --- dma-bufs --- */

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142
#endif

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

/*
 * Few machines of tests have dma-bufs. Secret memory stands in for that of a device: other processes, and so
 * process_vm_writev(2), cannot reach it. The library calls these functions, which make dma-bufs of all descriptors.
 */
__attribute__((visibility("default"))) int fstatfs(int fd, struct statfs *fs)
{
	*fs = (struct statfs){.f_type = DMA_BUF_MAGIC};
	return 0;
}

__attribute__((visibility("default"))) off_t lseek(int fd, off_t offset, int whence)
{
	struct stat st;

	if (whence == SEEK_END && !fstat(fd, &st))
		return st.st_size + offset;
	return syscall(SYS_lseek, fd, offset, whence);
}

/* For dmabuf_case.c. */
int dmabuf_new(size_t n)
{
	int fd = (int)syscall(SYS_memfd_secret, O_CLOEXEC);

	if (fd < 0) /* not in every kernel */
		fd = memfd_create("dma-buf", MFD_CLOEXEC);
	CHECK(fd >= 0 && !ftruncate(fd, (off_t)n));
	return fd;
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"null regions read as zeros and swallow what is written",
	         null_regions_read_as_zeros_and_swallow_what_is_written},
	        {"peers write to and read from a null region, but add nothing",
	         peers_write_to_and_read_from_a_null_region_but_add_nothing},
	        {"device memory is written, read, sent and received", device_memory_is_written_read_sent_and_received},
	        {"a dma-buf is written, read, sent and received", a_dma_buf_is_written_read_sent_and_received},
	};

	return RUN_TESTS(argc, argv, tests);
}
