// threads.c - eight threads use the same PD, CQ, SRQ, queue pairs and regions; each may create, modify and destroy them
// follows: rdma-core Documentation/libibverbs.md ("Thread safety"): all calls are safe in any thread
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8u
#define PAIRS 6u
#define ROUNDS 4000u
#define DEPTH 16u
#define SRQ_DEPTH 256u

/* Two queue pairs that are connected to each other. Who holds the lock for reading may use them as he likes; to destroy
 * or create them he holds it for writing. */
struct couple {
	pthread_rwlock_t lock;
	struct link a, b;
	bool made;
};

static struct {
	struct dev d;
	struct mem m;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct couple couples[PAIRS];
	atomic_uint good, flushed;
	atomic_bool over;
} crowd;

static void make_couple(struct couple *c)
{
	struct conf conf = {.depth = DEPTH, .rdepth = 1, .scq = crowd.cq, .rcq = crowd.cq, .srq = crowd.srq};

	link_make(&c->a, &crowd.d, &conf);
	link_make(&c->b, &crowd.d, &conf);
	link_to(&c->a, &c->b.me);
	link_to(&c->b, &c->a.me);
	c->made = true;
}

/* Destroys a couple, or makes one. */
static void change(struct couple *c)
{
	pthread_rwlock_wrlock(&c->lock);
	if (c->made) {
		SAME(ibv_destroy_qp(c->a.qp), 0);
		SAME(ibv_destroy_qp(c->b.qp), 0);
		c->made = false;
	} else {
		make_couple(c);
	}
	pthread_rwlock_unlock(&c->lock);
}

static void post_one(struct link *l, uint64_t dice)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	                                         IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE_WITH_IMM};
	enum ibv_wr_opcode op = ops[dice % 5];
	/* each thread's data would race with another's: no byte is read by the program */
	struct wr w = {.op = op,
	               .m = &crowd.m,
	               .off = 4096,
	               .len = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : (uint32_t)(dice >> 8) % 2000,
	               .far = {(uintptr_t)crowd.m.p, crowd.m.mr->rkey, 0},
	               .quiet = dice >> 32 & 1};
	int err = try_post(l, &w);

	CHECK(!err || err == ENOMEM);
}

static void post_receive(void)
{
	struct ibv_sge sge = {(uintptr_t)crowd.m.p + 8192, 2048, crowd.m.mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	int err = ibv_post_srq_recv(crowd.srq, &wr, &bad);

	CHECK(!err || err == ENOMEM);
}

static void poll_some(void)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(crowd.cq, 8, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		if (wc[i].status == IBV_WC_SUCCESS) {
			crowd.good++;
			continue;
		}
		/* the peer was taken to ERR, or destroyed */
		CHECK(wc[i].status == IBV_WC_WR_FLUSH_ERR || wc[i].status == IBV_WC_RETRY_EXC_ERR);
		crowd.flushed++;
	}
}

static void use(struct couple *c, uint64_t dice)
{
	struct link *l = dice >> 40 & 1 ? &c->a : &c->b;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	pthread_rwlock_rdlock(&c->lock);
	if (c->made && dice >> 48 < 200)
		to_state(l->qp, IBV_QPS_ERR);
	else if (c->made && dice >> 48 < 4000)
		SAME(ibv_query_qp(l->qp, &attr, IBV_QP_STATE, &init), 0);
	else if (c->made)
		post_one(l, dice);
	pthread_rwlock_unlock(&c->lock);
}

/* Objects of one thread, on the PD and the context of all. */
static void make_and_destroy(void)
{
	static char bytes[THREADS * 4096];
	struct ibv_ah_attr a = {.is_global = 1,
	                        .port_num = 1,
	                        .grh = {.dgid = crowd.d.gid, .sgid_index = (uint8_t)crowd.d.gid_index, .hop_limit = 1}};
	struct ibv_mr *mr = ibv_reg_mr(crowd.d.pd, bytes, sizeof(bytes), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_cq *cq = ibv_create_cq(crowd.d.ctx, 8, NULL, NULL, 0);
	struct ibv_ah *ah = ibv_create_ah(crowd.d.pd, &a);
	struct ibv_pd *pd = ibv_alloc_pd(crowd.d.ctx);

	CHECK(mr && cq && ah && pd);
	SAME(ibv_req_notify_cq(crowd.cq, 0), 0);
	SAME(ibv_dealloc_pd(pd), 0);
	SAME(ibv_destroy_ah(ah), 0);
	SAME(ibv_destroy_cq(cq), 0);
	SAME(ibv_dereg_mr(mr), 0);
}

static void *works(void *arg)
{
	uint64_t seed = (uintptr_t)arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t dice = (uint64_t)random_next(&seed) << 32 ^ random_next(&seed);
		struct couple *c = &crowd.couples[(dice >> 20) % PAIRS];

		switch ((dice >> 12) % 16) {
		case 0:
			if (i % 8 == 0)
				change(c);
			break;
		case 1:
			if (i % 4 == 0)
				make_and_destroy();
			break;
		case 2:
		case 3:
		case 4:
			post_receive();
			break;
		case 5:
		case 6:
		case 7:
		case 8:
			poll_some();
			break;
		default:
			use(c, dice);
		}
	}
	return NULL;
}

/* Events of ended queue pairs (IBV_EVENT_QP_LAST_WQE_REACHED) are acknowledged, so that they can be destroyed. */
static void *takes_events(void *arg)
{
	struct pollfd p = {.fd = crowd.d.ctx->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	fcntl(p.fd, F_SETFL, fcntl(p.fd, F_GETFL) | O_NONBLOCK);
	while (!crowd.over)
		if (poll(&p, 1, 20) == 1 && !ibv_get_async_event(crowd.d.ctx, &e))
			ibv_ack_async_event(&e);
	return NULL;
}

static void eight_threads_use_all_objects(void)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = SRQ_DEPTH, .max_sge = 1}};
	pthread_t th[THREADS], events;

	dev_open(&crowd.d);
	mem_make(&crowd.m, &crowd.d, 1 << 16);
	/* room for all requests and receives, of destroyed queue pairs, too */
	CHECK((crowd.cq = ibv_create_cq(crowd.d.ctx, 8192, NULL, NULL, 0)));
	CHECK((crowd.srq = ibv_create_srq(crowd.d.pd, &sa)));
	for (unsigned i = 0; i < PAIRS; i++) {
		pthread_rwlock_init(&crowd.couples[i].lock, NULL);
		make_couple(&crowd.couples[i]);
	}
	CHECK(!pthread_create(&events, NULL, takes_events, NULL));
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&th[i], NULL, works, (void *)(i + 1)));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(th[i], NULL);
	for (unsigned i = 0; i < PAIRS; i++)
		if (crowd.couples[i].made)
			change(&crowd.couples[i]);
	crowd.over = true;
	pthread_join(events, NULL);
	CHECK(crowd.good > ROUNDS / 10);
	SAME(ibv_destroy_srq(crowd.srq), 0);
	SAME(ibv_destroy_cq(crowd.cq), 0);
	mem_end(&crowd.m);
	dev_close(&crowd.d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"eight threads use all objects", eight_threads_use_all_objects, 300},
	};

	return RUN_TESTS(argc, argv, tests);
}
