// newer_program.c - a program that was built against a later rdma-core starts and runs over ours
// follows: rdma-core 62, libibverbs/verbs.h (declared here: our headers are those of 44.0)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <sched.h>

#include "load.h"

struct later_mr_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	void *buf;
};
enum { REG_MR_IOVA = 1, REG_MR_ADDR = 2, REG_MR_FD = 4, REG_MR_FD_OFFSET = 8, REG_MR_BUF = 32 };

/* 1.15, 1.16, 1.17: the linker resolves them to these nodes. */
void *ibv_alloc_dmah(struct ibv_context *context, void *attr);
int ibv_dealloc_dmah(void *dmah);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct later_mr_attr *attr);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port, uint64_t *speed);
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, void **buf);
void ibv_free_buf(void *buf);
int ibv_export_buf_dmabuf_fd(void *buf);
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, void *buf, void *addr, size_t length, int access);

/* 62.0 made struct ibv_port_attr 56 bytes long, and its inline ibv_query_port passes this size. */
static void asks_for_a_longer_port_attr(struct ibv_context *context)
{
	struct {
		struct ibv_port_attr known;
		uint32_t active_speed_ex, behind;
	} attr;

	memset(&attr, 0xa5, sizeof(attr));
	CHECK(!verbs_get_ctx(context)->query_port(context, 1, &attr.known, 56));
	CHECK(attr.known.state == IBV_PORT_ACTIVE || attr.known.state == IBV_PORT_DOWN);
	CHECK(attr.active_speed_ex == attr.known.active_speed && attr.active_speed_ex);
	CHECK(attr.behind == 0xa5a5a5a5);
}

static void registers_memory(struct ibv_pd *pd)
{
	static char buf[8192];
	struct later_mr_attr attr = {
	        .length = sizeof(buf), .access = IBV_ACCESS_LOCAL_WRITE, .comp_mask = REG_MR_ADDR, .addr = buf};
	struct ibv_mr *mr = ibv_reg_mr_ex(pd, &attr);

	CHECK(mr && mr->addr == buf && mr->length == sizeof(buf) && mr->pd == pd);
	CHECK(!ibv_dereg_mr(mr));

	attr.comp_mask = REG_MR_FD;
	attr.fd = -1;
	CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EBADF);
	attr.comp_mask = 0;
	CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EINVAL);
}

static void refuses_buffer(struct ibv_pd *pd, void *buf, void *addr, size_t length)
{
	errno = 0;
	CHECK(!ibv_reg_buf_mr(pd, buf, addr, length, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL);
}

static void allocates_buffers(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_pd *other = ibv_alloc_pd(context);
	void *buf = NULL;
	char *at = ibv_alloc_buf(pd, 10000, &buf);

	CHECK(other && at && buf && !((uintptr_t)at % 4096));
	memset(at, 1, 10000);
	struct ibv_mr *mr = ibv_reg_buf_mr(pd, buf, at + 4000, 6000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr && mr->addr == at + 4000 && mr->length == 6000);
	CHECK(!ibv_dereg_mr(mr));
	refuses_buffer(pd, buf, at + 4000, 6001);
	refuses_buffer(pd, buf, at - 1, 1);
	refuses_buffer(pd, buf, at + 10001, 0);
	refuses_buffer(pd, buf, at, SIZE_MAX);
	refuses_buffer(other, buf, at, 100);
	refuses_buffer(pd, NULL, at, 100);

	struct later_mr_attr attr = {
	        .length = 100, .comp_mask = REG_MR_BUF | REG_MR_ADDR | REG_MR_IOVA, .iova = 5, .addr = at, .buf = buf};
	mr = ibv_reg_mr_ex(pd, &attr);
	CHECK(mr && mr->addr == at && !ibv_dereg_mr(mr));
	attr.comp_mask |= REG_MR_FD;
	CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EINVAL);
	attr.comp_mask = REG_MR_BUF;
	CHECK(!ibv_reg_mr_ex(pd, &attr) && errno == EINVAL);
	CHECK(ibv_export_buf_dmabuf_fd(buf) == -1 && errno == ENODATA);
	ibv_free_buf(buf);

	CHECK(!ibv_dealloc_pd(other));
}

struct later_dmah_attr {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, tph_mem_type;
};
enum { DMAH_CPU_ID = 1, DMAH_PH = 2, DMAH_MEM_TYPE = 4, REG_MR_DMAH = 16 };

static void refuses_handle(struct ibv_context *context, struct later_dmah_attr attr, int err)
{
	errno = 0;
	CHECK(!ibv_alloc_dmah(context, &attr) && errno == err);
}

/* The cases of rdma-core 65's tests of DMA handles, and that a handle lives as long as its regions. */
static void allocates_dma_handles(struct ibv_context *context, struct ibv_pd *pd)
{
	static char buf[8192];
	struct later_dmah_attr attr = {.comp_mask = DMAH_CPU_ID | DMAH_PH | DMAH_MEM_TYPE,
	                               .cpu_id = (uint32_t)sched_getcpu(),
	                               .ph = 3,
	                               .tph_mem_type = 1};
	struct later_mr_attr region = {.length = sizeof(buf),
	                               .access = IBV_ACCESS_LOCAL_WRITE,
	                               .comp_mask = REG_MR_ADDR | REG_MR_DMAH,
	                               .addr = buf};
	void *dmah = ibv_alloc_dmah(context, &attr);

	CHECK(dmah && *(struct ibv_context **)dmah == context);
	region.dmah = dmah;
	struct ibv_mr *mr = ibv_reg_mr_ex(pd, &region);
	CHECK(mr && mr->addr == buf && mr->lkey);
	CHECK(ibv_dealloc_dmah(dmah) == EBUSY);
	CHECK(!ibv_dereg_mr(mr));
	region.access |= IBV_ACCESS_ON_DEMAND;
	CHECK(!ibv_reg_mr_ex(pd, &region) && errno == EOPNOTSUPP);
	CHECK(!ibv_dealloc_dmah(dmah));
	region.dmah = NULL;
	region.access = IBV_ACCESS_LOCAL_WRITE;
	CHECK(!ibv_reg_mr_ex(pd, &region) && errno == EINVAL);
	refuses_handle(context, (struct later_dmah_attr){DMAH_PH, 0, 4, 0}, EINVAL);
	refuses_handle(context, (struct later_dmah_attr){DMAH_MEM_TYPE, 0, 0, 0xfe}, EINVAL);
	refuses_handle(context, (struct later_dmah_attr){DMAH_CPU_ID, 0xffff, 0, 0}, EPERM);
	refuses_handle(context, (struct later_dmah_attr){8, 0, 0, 0}, EINVAL);
	CHECK(!ibv_alloc_dmah(context, NULL) && errno == EINVAL);
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices);
	if (!devices[0])
		SKIP("no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);

	uint64_t speed = 0;
	CHECK(!ibv_query_port_speed(context, 1, &speed) && speed >= 25 && speed % 5 == 0);
	CHECK(ibv_query_port_speed(context, 2, &speed) == EINVAL);
	asks_for_a_longer_port_attr(context);
	registers_memory(pd);

	allocates_buffers(context, pd);
	allocates_dma_handles(context, pd);
	CHECK(ibv_dm_export_dmabuf_fd(NULL) == -1 && errno == EINVAL);
	CHECK(ibv_dealloc_dmah(NULL) == EINVAL);
	ibv_free_buf(NULL);

	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	ibv_free_device_list(devices);
	return 0;
}
