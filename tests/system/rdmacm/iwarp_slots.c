// iwarp_slots.c - on an iWARP device, too, a request holds its slot until its completion has been polled
// follows: ibv_post_send(3), ibv_post_srq_recv(3), ibv_wr_post(3)
// SPDX-License-Identifier: MIT
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <stdatomic.h>

#include "iwarp.h"
#include "../../support/post_all.h"

#define DEPTH 8u
#define WIDE 128u
#define THREADS 4u
#define EACH 20000u

struct two {
	struct end listener, client, server;
	struct ibv_srq *srq;
};

static void make_queue(struct end *e, struct ibv_qp_init_attr_ex attr, unsigned cqe)
{
	e->cq = ibv_create_cq(e->id->verbs, (int)cqe, NULL, NULL, 0);
	CHECK(e->cq);
	attr.send_cq = attr.recv_cq = e->cq;
	attr.qp_type = IBV_QPT_RC;
	attr.cap.max_recv_wr = DEPTH;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	attr.pd = e->id->pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | (attr.send_ops_flags ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0);
	MUST(rdma_create_qp_ex(e->id, &attr));
	e->mr = ibv_reg_mr(e->id->pd, e->buf, sizeof(e->buf), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(e->mr);
}

/* The client's queue pair has this depth, and its completion queue this size. */
static void join(struct two *t, unsigned depth, unsigned cqe, bool shared)
{
	struct ibv_qp_init_attr_ex ours = {.cap.max_send_wr = depth, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE},
	                           theirs = {.cap.max_send_wr = DEPTH};
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	unsigned port = start_listening(&t->listener, "127.0.0.1", RDMA_PS_TCP, 4);
	struct rdma_cm_event *e;

	go_to(&t->client, "127.0.0.1", port, RDMA_PS_TCP);
	make_queue(&t->client, ours, cqe);
	MUST(rdma_connect(t->client.id, NULL));
	e = fetch(t->listener.ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	t->server = (struct end){.ch = t->listener.ch, .id = e->id};
	if (shared)
		CHECK((t->srq = ibv_create_srq(e->id->pd, &sa)));
	theirs.srq = t->srq;
	make_queue(&t->server, theirs, PLENTY);
	MUST(rdma_accept(t->server.id, NULL));
	MUST(rdma_ack_cm_event(e));
	next_is(t->client.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
	next_is(t->server.ch, RDMA_CM_EVENT_ESTABLISHED, NULL);
}

static void part(struct two *t)
{
	MUST(rdma_disconnect(t->client.id));
	next_is(t->server.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	MUST(rdma_disconnect(t->server.id));
	next_is(t->client.ch, RDMA_CM_EVENT_DISCONNECTED, NULL);
	drop_end(&t->client);
	rdma_destroy_qp(t->server.id);
	if (t->srq)
		MUST(ibv_destroy_srq(t->srq));
	drop_end(&t->server);
	drop_end(&t->listener);
}

static int post_write(struct two *t, uint64_t id, bool quiet)
{
	struct ibv_sge sge = {(uintptr_t)t->client.buf, 8, t->client.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_RDMA_WRITE,
	                         .send_flags = quiet ? 0 : IBV_SEND_SIGNALED,
	                         .wr.rdma = {(uintptr_t)t->server.buf, t->server.mr->rkey}},
	                   *bad;

	return ibv_post_send(t->client.id->qp, &wr, &bad);
}

static int build_write(struct two *t, uint64_t id, bool quiet)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(t->client.id->qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = quiet ? 0 : IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, t->server.mr->rkey, (uintptr_t)t->server.buf);
	ibv_wr_set_sge(x, t->client.mr->lkey, (uintptr_t)t->client.buf, 8);
	return ibv_wr_complete(x);
}

static void hold_their_slots(post_fn *one)
{
	struct two t = {0};
	struct ibv_wc wc;

	join(&t, DEPTH, PLENTY, false);
	unsigned depth = post_all(&t, one, 0, false);

	CHECK(depth >= DEPTH && depth < PLENTY);
	for (uint64_t i = 0; i < 40; i++) { /* one polled completion frees one slot */
		poll_one(t.client.cq, &wc);
		SAME(wc.wr_id, i);
		SAME(post_all(&t, one, depth + i, false), 1);
	}
	for (uint64_t i = 40; i < 40 + depth; i++) {
		poll_one(t.client.cq, &wc);
		SAME(wc.wr_id, i);
	}
	part(&t);
}

static void requests_hold_their_slots_until_their_completions_are_polled(void)
{
	hold_their_slots(post_write);
}

static void built_requests_hold_their_slots_until_their_completions_are_polled(void)
{
	hold_their_slots(build_write);
}

static void requests_without_a_completion_hold_no_slot_when_they_are_done(void)
{
	struct two t = {0};
	struct ibv_wc wc;

	join(&t, DEPTH, PLENTY, false);
	SAME(post_all(&t, post_write, 0, true), PLENTY);
	SAME(post_all(&t, build_write, 0, true), PLENTY);
	for (uint64_t until = now_ms() + PATIENCE;;) { /* the last ones may still be outstanding */
		int err = post_write(&t, 7, false);

		CHECK(!err || (err == ENOMEM && now_ms() < until));
		if (!err)
			break;
	}
	poll_one(t.client.cq, &wc);
	SAME(wc.wr_id, 7);
	part(&t);
}

static int post_receive(struct two *t, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)t->server.buf, 64, t->server.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	return t->srq ? ibv_post_srq_recv(t->srq, &wr, &bad) : ibv_post_recv(t->server.id->qp, &wr, &bad);
}

static void receives_hold(bool shared)
{
	struct two t = {0};
	struct ibv_wc wc;
	unsigned depth = 0;

	join(&t, DEPTH, PLENTY, shared);
	while (depth < PLENTY && !post_receive(&t, depth))
		depth++;
	CHECK(depth >= DEPTH && depth < PLENTY);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < depth; i++) {
			MUST(rdma_post_send(t.client.id, NULL, t.client.buf, 8, t.client.mr, IBV_SEND_SIGNALED));
			poll_one(t.client.cq, &wc);
		}
		SAME(post_receive(&t, 999), ENOMEM);
		for (unsigned i = 0; i < depth; i++) {
			poll_one(t.server.cq, &wc);
			SAME(wc.wr_id, i);
			SAME(post_receive(&t, i), 0);
		}
	}
	part(&t);
}

static void receives_hold_their_slots_until_their_completions_are_polled(void)
{
	receives_hold(false);
}

static void receives_of_a_shared_queue_hold_their_slots_until_their_completions_are_polled(void)
{
	receives_hold(true);
}

static struct {
	struct two t;
	post_fn *one;
} crowd;

static void *posts(void *arg)
{
	for (unsigned i = 0; i < EACH;) {
		int err = crowd.one(&crowd.t, i, false);

		if (err != ENOMEM)
			SAME(err, 0);
		else
			sched_yield();
		i += !err;
	}
	return NULL;
}

static void all_that_four_threads_post_completes(void)
{
	static post_fn *const ways[] = {post_write, build_write};
	pthread_t th[THREADS];
	struct ibv_wc wc[16];

	for (unsigned k = 0; k < 2; k++) {
		unsigned n = 0;

		crowd.t = (struct two){0};
		crowd.one = ways[k];
		join(&crowd.t, WIDE, 4096, false);
		for (unsigned i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&th[i], NULL, posts, NULL));
		for (uint64_t last = now_ms(); n < THREADS * EACH;) {
			int got = ibv_poll_cq(crowd.t.client.cq, 16, wc);

			for (int i = 0; i < got; i++)
				SAME(wc[i].status, IBV_WC_SUCCESS);
			n += (unsigned)got;
			if (got)
				last = now_ms();
			else if (now_ms() - last > PATIENCE / 4)
				fail(__FILE__, __LINE__, "no completion after %u", n);
		}
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(th[i], NULL);
		SAME(ibv_poll_cq(crowd.t.client.cq, 1, wc), 0);
		part(&crowd.t);
	}
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"requests hold their slots until their completions are polled",
	         requests_hold_their_slots_until_their_completions_are_polled},
	        {"built requests hold their slots until their completions are polled",
	         built_requests_hold_their_slots_until_their_completions_are_polled},
	        {"requests without a completion hold no slot when they are done",
	         requests_without_a_completion_hold_no_slot_when_they_are_done},
	        {"receives hold their slots until their completions are polled",
	         receives_hold_their_slots_until_their_completions_are_polled},
	        {"receives of a shared queue hold their slots until their completions are polled",
	         receives_of_a_shared_queue_hold_their_slots_until_their_completions_are_polled},
	        {"all that four threads post to a queue pair completes", all_that_four_threads_post_completes},
	};

	return RUN_TESTS(argc, argv, tests);
}
