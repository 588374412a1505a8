// cancelled.c - a thread that is cancelled within a call holds no lock, and leaves nothing half done
// follows: pthreads(7), "Cancellation points"; ibv_get_cq_event(3), rdma_get_cm_event(3)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "../local/pair.h"

/* Objects created by a thread, recorded and removed without a cancellation point in between. */
struct set {
	struct dev d;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[2];
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	uint8_t buf[4096];
};

static struct ibv_context *open_lo(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "roce_lo"))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	CHECK(ctx);
	return ctx;
}

/* ::ffff:127.0.0.1 */
static int loopback(struct ibv_context *ctx, union ibv_gid *gid)
{
	static const uint8_t it[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};

	for (int i = 0; i < 255; i++)
		if (!ibv_query_gid(ctx, 1, i, gid) && !memcmp(gid, it, sizeof(it)))
			return i;
	fail(__FILE__, __LINE__, "no GID of 127.0.0.1");
}

static void connect_to(struct set *s, struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	SAME(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
	                         .path_mtu = IBV_MTU_1024,
	                         .dest_qp_num = to,
	                         .min_rnr_timer = 12,
	                         .ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 64}};
	a.ah_attr.grh.sgid_index = (uint8_t)loopback(s->d.ctx, &a.ah_attr.grh.dgid);
	SAME(ibv_modify_qp(qp, &a,
	                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
	     0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7};
	SAME(ibv_modify_qp(qp, &a,
	                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                           IBV_QP_MAX_QP_RD_ATOMIC),
	     0);
}

static void make(struct set *s)
{
	struct ibv_qp_init_attr init = {.cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	s->d.ctx = open_lo();
	CHECK((s->d.pd = ibv_alloc_pd(s->d.ctx)));
	CHECK((s->channel = ibv_create_comp_channel(s->d.ctx)));
	CHECK((s->cq = ibv_create_cq(s->d.ctx, 64, NULL, s->channel, 0)));
	CHECK((s->mr = ibv_reg_mr(s->d.pd, s->buf, sizeof(s->buf), IBV_ACCESS_LOCAL_WRITE)));
	init.send_cq = init.recv_cq = s->cq;
	for (int i = 0; i < 2; i++)
		CHECK((s->qp[i] = ibv_create_qp(s->d.pd, &init)));
	for (int i = 0; i < 2; i++)
		connect_to(s, s->qp[i], s->qp[!i]->qp_num);
}

/* Some messages, then one that it sleeps for. */
static void talk(struct set *s)
{
	struct ibv_sge sge = {(uintptr_t)s->buf, 2000, s->mr->lkey};
	struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.sg_list = &sge,
	                           .num_sge = 1,
	                           .opcode = IBV_WR_SEND,
	                           .send_flags = IBV_SEND_SIGNALED},
	                   *bad_send;
	struct ibv_cq *which;
	struct ibv_wc wc;
	void *own;

	for (int i = 0; i < 5; i++) {
		SAME(ibv_post_recv(s->qp[1], &recv, &bad_recv), 0);
		if (i == 4)
			SAME(ibv_req_notify_cq(s->cq, 0), 0);
		SAME(ibv_post_send(s->qp[0], &send, &bad_send), 0);
		if (i == 4) {
			SAME(ibv_get_cq_event(s->channel, &which, &own), 0);
			ibv_ack_cq_events(which, 1);
		}
		for (int n = 0; n < 2;) {
			int got = ibv_poll_cq(s->cq, 1, &wc);

			CHECK(got >= 0);
			if (got)
				SAME(wc.status, IBV_WC_SUCCESS);
			n += got;
			pthread_testcancel();
		}
	}
}

#define END(call, object)                      \
	do {                                   \
		if (object)                    \
			SAME(call(object), 0); \
		object = NULL;                 \
	} while (0)

static void unmake(void *arg)
{
	struct set *s = arg;

	for (int i = 0; i < 2; i++)
		END(ibv_destroy_qp, s->qp[i]);
	END(ibv_dereg_mr, s->mr);
	END(ibv_destroy_cq, s->cq);
	END(ibv_destroy_comp_channel, s->channel);
	END(ibv_dealloc_pd, s->d.pd);
	END(ibv_close_device, s->d.ctx);
	END(rdma_destroy_id, s->id);
	if (s->events)
		rdma_destroy_event_channel(s->events);
	s->events = NULL;
}

static void verbs(struct set *s)
{
	make(s);
	talk(s);
	unmake(s);
}

static void listener(struct set *s)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	CHECK((s->events = rdma_create_event_channel()));
	SAME(rdma_create_id(s->events, &s->id, NULL, RDMA_PS_TCP), 0);
	SAME(rdma_bind_addr(s->id, (struct sockaddr *)&at), 0);
	SAME(rdma_listen(s->id, 4), 0);
	unmake(s);
}

static void waits_for_a_completion(struct set *s)
{
	struct ibv_cq *which;
	void *own;

	make(s);
	ibv_get_cq_event(s->channel, &which, &own);
}

static void waits_for_an_event(struct set *s)
{
	struct ibv_async_event ev;

	s->d.ctx = open_lo();
	ibv_get_async_event(s->d.ctx, &ev);
}

static void waits_for_a_connection(struct set *s)
{
	struct rdma_cm_event *ev;

	CHECK((s->events = rdma_create_event_channel()));
	rdma_get_cm_event(s->events, &ev);
}

struct work {
	void (*fn)(struct set *s);
	struct set set;
};

static void clean(void *set)
{
	unmake(set);
}

static void *run(void *arg)
{
	struct work *w = arg;

	pthread_cleanup_push(clean, &w->set);
	for (;;) {
		w->fn(&w->set);
		pthread_testcancel();
	}
	pthread_cleanup_pop(0);
	return NULL;
}

/* A thread that does this is cancelled at any point; then this thread does the same. It hangs if a lock is still
 * held. */
static void cancel(void (*fn)(struct set *s), unsigned rounds)
{
	static struct work w;
	uint64_t dice = 1;

	for (unsigned i = 0; i < rounds; i++) {
		pthread_t thread;
		void *result;

		w = (struct work){.fn = fn};
		CHECK(!pthread_create(&thread, NULL, run, &w));
		usleep(random_next(&dice) % 10000);
		CHECK(!pthread_cancel(thread));
		CHECK(!pthread_join(thread, &result));
		CHECK(result == PTHREAD_CANCELED);
	}
}

static void a_cancelled_thread_leaves_no_lock_of_verbs_behind(void)
{
	static struct set s;

	cancel(verbs, 200);
	verbs(&s);
}

static void a_cancelled_thread_leaves_no_lock_behind_on_the_wire(void)
{
	static struct set s;

	setenv("VERBENA_WIRE", "always", 1);
	cancel(verbs, 200);
	verbs(&s);
}

static void a_cancelled_thread_leaves_no_lock_of_the_connection_manager_behind(void)
{
	static struct set s;

	cancel(listener, 200);
	listener(&s);
}

static void who_waits_can_be_cancelled(void)
{
	cancel(waits_for_a_completion, 5);
	cancel(waits_for_an_event, 5);
	cancel(waits_for_a_connection, 5);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"a cancelled thread leaves no lock of verbs behind", a_cancelled_thread_leaves_no_lock_of_verbs_behind,
	         400},
	        {"a cancelled thread leaves no lock behind on the wire",
	         a_cancelled_thread_leaves_no_lock_behind_on_the_wire, 400},
	        {"a cancelled thread leaves no lock of the connection manager behind",
	         a_cancelled_thread_leaves_no_lock_of_the_connection_manager_behind, 400},
	        {"who waits can be cancelled", who_waits_can_be_cancelled},
	};

	return RUN_TESTS(argc, argv, tests);
}
