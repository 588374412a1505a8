// crowd.c - six threads share objects that few programs have: device memory, null regions, counters, imports, tags, work
// queues, DMA handles, extended queue pairs; each makes and destroys its own, too
// follows: rdma-core Documentation/libibverbs.md ("Thread safety"): all calls are safe in any thread
// SPDX-License-Identifier: MIT
#include "counters.h"
#include "pair.h"

#include <endian.h>
#include <infiniband/tm_types.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 6u
#define ROUNDS 600u
#define SLICE 64u /* bytes of a thread: the program's data is its own affair */

/* Declared here, because our headers are those of 44.0. */
struct dmah_attr {
	uint32_t comp_mask, cpu_id;
	uint8_t ph, tph_mem_type;
};
void *ibv_alloc_dmah(struct ibv_context *context, struct dmah_attr *attr);
int ibv_dealloc_dmah(void *dmah);

static struct {
	struct dev d;
	struct mem m;
	struct link a, b;          /* extended */
	struct ibv_context *again; /* the same device, imported */
	struct ibv_dm *dm;
	struct cntr *sent;
	struct ibv_cq *cq;
	struct ibv_srq *tags;
	atomic_uint done;
} all;

/* --- what one thread does --- */

static void uses_device_memory(unsigned self, uint64_t dice)
{
	struct ibv_alloc_dm_attr attr = {.length = 4096};
	uint8_t bytes[SLICE], back[SLICE];

	memset(bytes, (int)dice, sizeof(bytes));
	SAME(ibv_memcpy_to_dm(all.dm, self * SLICE, bytes, sizeof(bytes)), 0);
	SAME(ibv_memcpy_from_dm(back, all.dm, self * SLICE, sizeof(back)), 0);
	CHECK(!memcmp(bytes, back, sizeof(back)));
	struct ibv_dm *own = ibv_alloc_dm(all.d.ctx, &attr);
	struct ibv_mr *mr = ibv_reg_dm_mr(all.d.pd, all.dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED);

	CHECK(mr);
	SAME(ibv_dereg_mr(mr), 0);
	if (own) /* there is little of it */
		SAME(ibv_free_dm(own), 0);
}

static void has_null_regions(unsigned self, uint64_t dice)
{
	struct ibv_mr *mr = ibv_alloc_null_mr(all.d.pd);

	CHECK(mr);
	SAME(ibv_dereg_mr(mr), 0);
}

static void counts(unsigned self, uint64_t dice)
{
	struct cntr_attr attr = {0};
	struct cntr *own = ibv_create_comp_cntr(all.d.ctx, &attr);
	uint64_t n;

	CHECK(own);
	SAME(ibv_inc_comp_cntr(own, 5), 0);
	SAME(ibv_read_comp_cntr(own, &n), 0);
	SAME(n, 5);
	SAME(ibv_destroy_comp_cntr(own), 0);
	SAME(ibv_inc_comp_cntr(all.sent, 1), 0);
	SAME(ibv_set_err_comp_cntr(all.sent, dice & 7), 0);
	SAME(ibv_read_comp_cntr(all.sent, &n), 0);
	SAME(ibv_read_err_comp_cntr(all.sent, &n), 0);
	CHECK(n < 8);
}

static void imports(unsigned self, uint64_t dice)
{
	struct ibv_pd *pd = ibv_import_pd(all.again, all.d.pd->handle);

	CHECK(pd);
	struct ibv_mr *mr = ibv_import_mr(pd, all.m.mr->handle);
	struct ibv_dm *dm = ibv_import_dm(all.again, all.dm->handle);

	CHECK(mr && dm && mr->lkey == all.m.mr->lkey);
	ibv_unimport_mr(mr);
	ibv_unimport_dm(dm);
	ibv_unimport_pd(pd);
}

static void asks(unsigned self, uint64_t dice)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_query_device_ex_input input = {0};
	struct ibv_device_attr_ex attr;
	struct ibv_gid_entry entry;
	struct ibv_ece ece;

	SAME(ibv_query_ece(all.a.qp, &ece), 0);
	SAME(ibv_query_rt_values_ex(all.d.ctx, &values), 0);
	SAME(ibv_query_device_ex(all.d.ctx, &input, &attr), 0);
	SAME(ibv_query_gid_ex(all.d.ctx, 1, (uint32_t)all.d.gid_index, &entry, 0), 0);
	SAME(ibv_get_pkey_index(all.d.ctx, 1, htobe16(0xffff)), 0);
	CHECK(ibv_query_qp_data_in_order(all.a.qp, IBV_WR_RDMA_WRITE, 0) >= 0);
}

/* The list may be full, and the tag may be another thread's by now. */
static void changes_tags(unsigned self, uint64_t dice)
{
	struct ibv_sge sge = {(uintptr_t)all.m.p, 64, all.m.mr->lkey};
	struct ibv_ops_wr
	        wr = {.wr_id = self,
	              .opcode = IBV_WR_TAG_ADD,
	              .tm = {.add = {.recv_wr_id = self, .sg_list = &sge, .num_sge = 1, .tag = dice, .mask = ~0ull}}},
	        *bad;

	if (ibv_post_srq_ops(all.tags, &wr, &bad))
		return;
	wr = (struct ibv_ops_wr){.opcode = IBV_WR_TAG_DEL, .tm = {.handle = wr.tm.handle}};
	ibv_post_srq_ops(all.tags, &wr, &bad);
}

static void has_work_queues(unsigned self, uint64_t dice)
{
	struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = all.d.pd, .cq = all.cq};
	struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
	struct ibv_wq *wq = ibv_create_wq(all.d.ctx, &attr);
	struct ibv_rwq_ind_table_init_attr of = {.ind_tbl = &wq};
	struct ibv_sge sge = {(uintptr_t)all.m.p, 64, all.m.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(wq);
	SAME(ibv_modify_wq(wq, &ready), 0);
	SAME(ibv_post_wq_recv(wq, &wr, &bad), 0);
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(all.d.ctx, &of);

	CHECK(table);
	SAME(ibv_destroy_rwq_ind_table(table), 0);
	SAME(ibv_destroy_wq(wq), 0);
}

static void has_dma_handles(unsigned self, uint64_t dice)
{
	struct dmah_attr attr = {.comp_mask = 7, .cpu_id = (uint32_t)sched_getcpu(), .ph = 3, .tph_mem_type = 1};
	void *dmah = ibv_alloc_dmah(all.d.ctx, &attr);

	CHECK(dmah);
	SAME(ibv_dealloc_dmah(dmah), 0);
}

/* The send queue may be full. */
static void writes(unsigned self, uint64_t dice)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(all.a.qp);
	uint64_t at = (uintptr_t)all.m.p + 4096 + 8ull * self;

	ibv_wr_start(x);
	x->wr_id = self;
	x->wr_flags = IBV_SEND_SIGNALED;
	if (dice & 1) {
		ibv_wr_atomic_write(x, all.m.mr->rkey, at, &dice);
	} else {
		ibv_wr_rdma_write(x, all.m.mr->rkey, at);
		ibv_wr_set_sge(x, all.m.mr->lkey, at + 2048, 8);
	}
	int err = ibv_wr_complete(x);

	CHECK(!err || err == ENOMEM);
}

static void polls(unsigned self, uint64_t dice)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(all.a.scq, 8, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		SAME(wc[i].status, IBV_WC_SUCCESS);
	all.done += (unsigned)n;
	n = ibv_poll_cq(all.cq, 8, wc);
	CHECK(n >= 0);
}

static void has_counters(unsigned self, uint64_t dice)
{
	struct ibv_counters_init_attr attr = {0};
	struct ibv_counters *c = ibv_create_counters(all.d.ctx, &attr);
	struct ibv_mr *mr = ibv_reg_mr(all.d.pd, all.m.p, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_sge sge = {(uintptr_t)all.m.p, 4096, mr ? mr->lkey : 0};

	CHECK(mr);
	SAME(ibv_advise_mr(all.d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
	SAME(ibv_dereg_mr(mr), 0);
	if (c)
		SAME(ibv_destroy_counters(c), 0);
}

static void *works(void *arg)
{
	static void (*const steps[])(unsigned self, uint64_t dice) = {
	        uses_device_memory, has_null_regions, counts, imports, asks,  changes_tags, has_work_queues,
	        has_dma_handles,    has_counters,     writes, writes,  polls, polls};
	unsigned self = (unsigned)(uintptr_t)arg;
	uint64_t seed = self + 1;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t dice = (uint64_t)random_next(&seed) << 32 ^ random_next(&seed);

		steps[dice % (sizeof(steps) / sizeof(*steps))](self, dice >> 8);
	}
	return NULL;
}

/* --- all of them --- */

static void make_all(void)
{
	struct ibv_alloc_dm_attr dm = {.length = 4096};
	struct cntr_attr cntr = {0};
	struct attach_attr attach = {.op_mask = 16}; /* writes */

	dev_open(&all.d);
	mem_make(&all.m, &all.d, 1 << 16);
	CHECK((all.cq = ibv_create_cq(all.d.ctx, 4096, NULL, NULL, 0)));
	struct ibv_srq_init_attr_ex tags = {.attr = {64, 2, 0},
	                                    .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                                 IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	                                    .srq_type = IBV_SRQT_TM,
	                                    .pd = all.d.pd,
	                                    .cq = all.cq,
	                                    .tm_cap = {32, 16}};

	CHECK((all.tags = ibv_create_srq_ex(all.d.ctx, &tags)));
	CHECK((all.dm = ibv_alloc_dm(all.d.ctx, &dm)));
	CHECK((all.sent = ibv_create_comp_cntr(all.d.ctx, &cntr)));
	link_make(&all.a, &all.d,
	          &(struct conf){.ex = true, .ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE});
	link_make(&all.b, &all.d, &(struct conf){0});
	SAME(ibv_qp_attach_comp_cntr(all.a.qp, all.sent, &attach), 0);
	link_to(&all.a, &all.b.me);
	link_to(&all.b, &all.a.me);
	CHECK((all.again = ibv_import_device(dup(all.d.ctx->cmd_fd))));
}

static void six_threads_share_what_few_programs_have(void)
{
	pthread_t th[THREADS];

	make_all();
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&th[i], NULL, works, (void *)i));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	for (uint64_t until = now_ms() + PATIENCE; all.done < ROUNDS / 10 && now_ms() < until;)
		polls(0, 0);
	CHECK(all.done >= ROUNDS / 10);
	link_end(&all.a);
	link_end(&all.b);
	SAME(ibv_destroy_comp_cntr(all.sent), 0);
	SAME(ibv_destroy_srq(all.tags), 0);
	SAME(ibv_destroy_cq(all.cq), 0);
	SAME(ibv_free_dm(all.dm), 0);
	SAME(ibv_close_device(all.again), 0);
	mem_end(&all.m);
	dev_close(&all.d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"six threads share what few programs have", six_threads_share_what_few_programs_have, 100},
	};

	return RUN_TESTS(argc, argv, tests);
}
