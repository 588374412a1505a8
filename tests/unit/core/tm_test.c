// tm_test.c - tag matching with messages that arrive in part: their tags, counts and queue pairs
// follows: rdma-core's Documentation/tag_matching.md
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <endian.h>
#include <infiniband/tm_types.h>

#include "core/inbound.h"
#include "core/qp.h"
#include "core/sq.h"
#include "core/tm.h"

static struct objects o;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static uint8_t memory[4096];

static struct vb_tm *tm(void)
{
	return vb_srq(srq)->tm;
}

static struct ibv_qp *tagged_qp(void)
{
	struct ibv_qp_init_attr a = {.send_cq = o.cq, .recv_cq = o.cq, .srq = srq, .qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = vb_create_qp(o.pd, &a);

	CHECK(qp && !a.cap.max_send_wr);
	to_state(qp, IBV_QPS_RTS);
	return qp;
}

static struct ibv_qp *begin(void)
{
	struct ibv_srq_init_attr_ex a = {.attr = {8, 2, 0},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	                                 .srq_type = IBV_SRQT_TM,
	                                 .pd = o.pd,
	                                 .cq = o.cq,
	                                 .tm_cap = {4, 4}};

	CHECK((srq = vb_create_srq_ex(o.ctx, &a)));
	memset(memory, 0, sizeof(memory));
	return tagged_qp();
}

static void end(struct ibv_qp *qp)
{
	if (qp)
		CHECK(!vb_destroy_qp(qp));
	for (uint32_t i = 0; i < tm()->max_tags; i++)
		CHECK(tm()->tag[i].state == VB_TAG_FREE || tm()->tag[i].state == VB_TAG_LISTED);
	CHECK(!tm()->waiting && !atomic_load(&tm()->waits));
	CHECK(!vb_destroy_srq(srq));
}

static uint32_t add(uint64_t id, uint64_t tag)
{
	struct ibv_sge sge = {(uintptr_t)memory, 100, mr->lkey};
	struct ibv_ops_wr wr = {.tm.add = {.recv_wr_id = id, .sg_list = &sge, .num_sge = 1, .tag = tag, .mask = ~0ull}},
	                  *bad;

	CHECK(!vb_post_srq_ops(srq, &wr, &bad));
	return wr.tm.handle;
}

static enum ibv_wc_status del(uint32_t handle)
{
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_DEL, .flags = IBV_OPS_SIGNALED, .tm.handle = handle}, *bad;
	struct ibv_wc wc;

	CHECK(!vb_post_srq_ops(srq, &wr, &bad) && vb_poll_cq(o.cq, 1, &wc) == 1 && wc.opcode == IBV_WC_TM_DEL);
	return wc.status;
}

static void post(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)memory, 200, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	CHECK(!vb_post_srq_recv(srq, &wr, &bad));
}

struct message {
	struct ibv_tmh tmh;
	struct ibv_rvh rvh;
	uint8_t more[32];
};

static struct message message_of(uint8_t opcode, uint64_t tag)
{
	return (struct message){.tmh = {.opcode = opcode, .tag = htobe64(tag)},
	                        .rvh = {.va = htobe64(64), .rkey = htobe32(77), .len = htobe32(10)}};
}

/* The first packet of a message. */
static bool arrives(struct ibv_qp *qp, const struct message *m, bool single)
{
	vb_lock(&fake_node.progress);
	bool taken = vb_tm_take(vb_qp(qp), (const uint8_t *)m, sizeof(*m), single);

	if (taken)
		CHECK(vb_receive_store(vb_qp(qp), 0, m, sizeof(*m)));
	vb_unlock(&fake_node.progress);
	return taken;
}

/* The last one, by the calls of the paths. */
static void completes(struct ibv_qp *qp, uint32_t length)
{
	struct vb_cqe cqe = {.wc = {.wr_id = vb_qp(qp)->inbound->wqe.wr_id,
	                            .opcode = IBV_WC_RECV,
	                            .byte_len = length,
	                            .qp_num = qp->qp_num},
	                     .receive = &vb_srq(srq)->rq};

	vb_lock(&fake_node.progress);
	vb_tm_complete(vb_qp(qp), &cqe);
	vb_qp(qp)->inbound->active = false;
	vb_cq_push(vb_qp(qp)->rcq, &cqe, false);
	vb_unlock(&fake_node.progress);
}

static void fails(struct ibv_qp *qp)
{
	vb_qp_end(&fake_node, qp->qp_num, false);
}

static void serve(void)
{
	vb_lock(&fake_node.progress);
	vb_tm_serve(&fake_node);
	vb_unlock(&fake_node.progress);
}

static struct ibv_wc polled(uint64_t id, enum ibv_wc_status status, unsigned flags)
{
	struct ibv_wc wc = {0};

	CHECK(vb_poll_cq(o.cq, 1, &wc) == 1);
	SAME(wc.wr_id, id);
	SAME(wc.status, status);
	SAME(wc.wc_flags, flags);
	SAME(wc.opcode, IBV_WC_TM_RECV);
	return wc;
}

static void nothing_is_polled(void)
{
	struct ibv_wc wc;

	CHECK(!vb_poll_cq(o.cq, 1, &wc));
}

static void a_tag_whose_message_is_arriving_is_taken(void)
{
	struct ibv_qp *qp = begin();
	struct message m = message_of(IBV_TMH_EAGER, 5);
	uint32_t handle = add(1, 5);

	CHECK(arrives(qp, &m, false));
	polled(1, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
	CHECK(del(handle) == IBV_WC_TM_ERR);
	completes(qp, sizeof(m) + 20);
	SAME(polled(1, IBV_WC_SUCCESS, IBV_WC_TM_DATA_VALID).byte_len, sizeof(m) + 20 - sizeof(m.tmh));
	CHECK(!memcmp(memory, &m.rvh, sizeof(m) - sizeof(m.tmh))); /* without the header */
	end(qp);
}

static void a_tag_whose_queue_pair_fails_is_flushed(void)
{
	struct ibv_qp *qp = begin();
	struct message m = message_of(IBV_TMH_EAGER, 5);

	add(1, 5);
	CHECK(arrives(qp, &m, false));
	polled(1, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
	fails(qp);
	polled(1, IBV_WC_WR_FLUSH_ERR, 0);
	nothing_is_polled();
	end(qp);
}

static void an_unexpected_message_that_fails_is_not_counted(void)
{
	struct ibv_qp *qp = begin();
	struct message m = message_of(IBV_TMH_EAGER, 5);

	CHECK(!arrives(qp, &m, false)); /* RNR: not counted either */
	CHECK(!tm()->unexpected);
	post(7);
	CHECK(arrives(qp, &m, false) && tm()->unexpected == 1);
	add(1, 5);
	CHECK(!tm()->listed->enabled); /* the program has not seen that message */
	fails(qp);
	polled(7, IBV_WC_WR_FLUSH_ERR, 0);
	CHECK(!tm()->unexpected && tm()->listed->enabled); /* and never will */
	CHECK(!vb_destroy_qp(qp));
	qp = tagged_qp();
	CHECK(arrives(qp, &m, true));
	completes(qp, sizeof(m));
	polled(1, IBV_WC_SUCCESS, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID);
	end(qp);
}

static void the_slot_of_an_unexpected_message_comes_back_with_its_queue_pair(void)
{
	struct ibv_qp *qp = begin();
	struct message m = message_of(IBV_TMH_EAGER, 5);

	for (uint64_t i = 0; i < 8; i++)
		post(i);
	CHECK(arrives(qp, &m, false) && tm()->unexpected == 1);
	CHECK(!vb_destroy_qp(qp) && !tm()->unexpected);
	post(9); /* there is room for one */
	end(NULL);
}

static void a_rendezvous_is_two_requests_in_their_order(void)
{
	struct ibv_qp *qp = begin();
	struct message m = message_of(IBV_TMH_RNDV, 5);
	struct vb_qp *q = vb_qp(qp);

	add(1, 5);
	CHECK(arrives(qp, &m, true));
	completes(qp, sizeof(m));
	polled(1, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
	CHECK(q->sq_head == 0);
	serve();
	CHECK(q->sq_head == 2);
	struct vb_swqe *read = vb_sq_at(q, 0), *fin = vb_sq_at(q, 1);

	CHECK(read->opcode == IBV_WR_RDMA_READ && read->remote_addr == 64 && read->rkey == 77 && read->length == 10);
	CHECK(fin->opcode == IBV_WR_SEND && (fin->flags & IBV_SEND_FENCE) && fin->length == 32);
	m.tmh.opcode = IBV_TMH_FIN;
	CHECK(!memcmp(vb_sq_inline(q, 1), &m, 32));
	CHECK(!memcmp(memory, (uint8_t[16]){0}, 16)); /* the headers are not stored */
	fails(qp);
	polled(1, IBV_WC_WR_FLUSH_ERR, 0);
	nothing_is_polled(); /* nothing of the FIN */
	end(qp);
}

static void rendezvous_that_wait_end_with_their_queue_pair(void)
{
	for (int how = 0; how < 3; how++) {
		struct ibv_qp *qp = begin(), *other = tagged_qp();
		struct message m = message_of(IBV_TMH_RNDV, 5);
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

		for (uint64_t i = 0; i < 3; i++) {
			add(i, 5);
			CHECK(arrives(i == 1 ? other : qp, &m, true));
			completes(i == 1 ? other : qp, sizeof(m));
			polled(i, IBV_WC_SUCCESS, IBV_WC_TM_MATCH);
		}
		CHECK(atomic_load(&tm()->waits) == 3);
		if (how == 0)
			fails(qp);
		else
			CHECK(how == 1 ? !vb_modify_qp(qp, &reset, IBV_QP_STATE) : !vb_destroy_qp(qp));
		if (how == 0) {
			polled(0, IBV_WC_WR_FLUSH_ERR, 0);
			polled(2, IBV_WC_WR_FLUSH_ERR, 0);
		}
		nothing_is_polled();
		serve();
		CHECK(vb_qp(other)->sq_head == 2 && !atomic_load(&tm()->waits)); /* that of the other one goes on */
		CHECK(!vb_destroy_qp(other));
		end(how == 2 ? NULL : qp);
	}
}

static void far_behind_the_program_is_asked_for_its_count(void)
{
	struct ibv_qp *qp = begin();
	struct message m = message_of(IBV_TMH_EAGER, 5);

	for (unsigned i = 0; i < 0x4001; i++) {
		post(3);
		CHECK(arrives(qp, &m, true));
		completes(qp, sizeof(m));
		polled(3, IBV_WC_SUCCESS, i < 0x3fff ? 0 : IBV_WC_TM_SYNC_REQ);
	}
	end(qp);
}

static void completions_leave_with_their_srq(void)
{
	struct ibv_qp *qp = begin();
	struct ibv_ops_wr wr = {.opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED}, *bad;
	struct message m = message_of(IBV_TMH_EAGER, (uintptr_t)&vb_srq(srq)->rq);

	CHECK(!vb_post_srq_ops(srq, &wr, &bad));
	add(1, (uintptr_t)&vb_srq(srq)->rq); /* a tag is no pointer */
	CHECK(arrives(qp, &m, true));
	completes(qp, sizeof(m));
	end(qp);
	nothing_is_polled();
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	mr = vb_reg_mr(o.pd, memory, sizeof(memory), (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	RUN(a_tag_whose_message_is_arriving_is_taken);
	RUN(a_tag_whose_queue_pair_fails_is_flushed);
	RUN(an_unexpected_message_that_fails_is_not_counted);
	RUN(the_slot_of_an_unexpected_message_comes_back_with_its_queue_pair);
	RUN(a_rendezvous_is_two_requests_in_their_order);
	RUN(rendezvous_that_wait_end_with_their_queue_pair);
	RUN(far_behind_the_program_is_asked_for_its_count);
	RUN(completions_leave_with_their_srq);
	return 0;
}
