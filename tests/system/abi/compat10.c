// compat10.c - a program of 2006 runs: it uses only the layouts of IBVERBS_1.0, and calls each of its 33 old symbols
// follows: libibverbs 1.0, infiniband/verbs.h (declared here independently of the library)
// SPDX-License-Identifier: MIT
#include <infiniband/verbs.h>
#include <poll.h>

#include "load.h"

struct old_device {
	void *dev, *ibdev, *driver, *ops[2];
};
struct old_cq {
	struct old_context *context;
	void *cq_context;
	uint32_t handle;
	int cqe;
};
struct old_pd {
	struct old_context *context;
	uint32_t handle;
};
struct old_mr {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle, lkey, rkey;
};
struct old_srq {
	struct old_context *context;
	void *srq_context;
	struct old_pd *pd;
	uint32_t handle;
};
struct old_qp {
	struct old_context *context;
	void *qp_context;
	struct old_pd *pd;
	struct old_cq *send_cq, *recv_cq;
	struct old_srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
};
struct old_ah {
	struct old_context *context;
	struct old_pd *pd;
	uint32_t handle;
};
struct old_qp_init_attr {
	void *qp_context;
	struct old_cq *send_cq, *recv_cq;
	struct old_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};
struct old_recv_wr {
	struct old_recv_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
};
struct old_send_wr {
	struct old_send_wr *next;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	int opcode, send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct old_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
	} wr;
};
struct old_ops {
	void *query_device, *query_port, *alloc_pd, *dealloc_pd, *reg_mr, *dereg_mr, *create_cq;
	int (*poll_cq)(struct old_cq *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct old_cq *cq, int solicited_only);
	void *cq_event, *resize_cq, *destroy_cq, *create_srq, *modify_srq, *query_srq, *destroy_srq;
	int (*post_srq_recv)(struct old_srq *srq, struct old_recv_wr *wr, struct old_recv_wr **bad);
	void *create_qp, *query_qp, *modify_qp, *destroy_qp;
	int (*post_send)(struct old_qp *qp, struct old_send_wr *wr, struct old_send_wr **bad);
	int (*post_recv)(struct old_qp *qp, struct old_recv_wr *wr, struct old_recv_wr **bad);
	void *create_ah, *destroy_ah, *attach_mcast, *detach_mcast;
};
struct old_context {
	struct old_device *device;
	struct old_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	void *abi_compat;
};

static void *lib;

#define OLD(type, name, params) type(*name) params = (type(*) params)version_of(lib, "ibv_" #name, "IBVERBS_1.0")

static struct old_context *open_first_device(void)
{
	OLD(struct old_device **, get_device_list, (int *));
	OLD(void, free_device_list, (struct old_device **));
	OLD(const char *, get_device_name, (struct old_device *));
	OLD(uint64_t, get_device_guid, (struct old_device *));
	OLD(struct old_context *, open_device, (struct old_device *));
	int n = -1;
	struct old_device **list = get_device_list(&n);

	CHECK(list && n >= 0 && !list[n]);
	if (!n)
		SKIP("no device");
	CHECK(*get_device_name(list[0]) && get_device_guid(list[0]));
	struct old_context *context = open_device(list[0]);
	CHECK(context && context->num_comp_vectors > 0);
	free_device_list(list);
	CHECK(*get_device_name(context->device));
	return context;
}

static void answers_queries(struct old_context *context, union ibv_gid *gid)
{
	OLD(int, query_device, (struct old_context *, struct ibv_device_attr *));
	OLD(int, query_port, (struct old_context *, uint8_t, void *));
	OLD(int, query_gid, (struct old_context *, uint8_t, int, union ibv_gid *));
	OLD(int, query_pkey, (struct old_context *, uint8_t, int, uint16_t *));
	struct ibv_device_attr device;
	unsigned char port[sizeof(struct ibv_port_attr)];
	uint16_t pkey;

	CHECK(!query_device(context, &device) && device.max_qp > 0);
	memset(port, 0xa5, sizeof(port));
	CHECK(!query_port(context, 1, port) && port[48] == 0xa5);
	CHECK(!query_gid(context, 1, 0, gid) && gid->raw[0] == 0xfe);
	CHECK(query_gid(context, 1, 100000, gid) == -1);
	CHECK(!query_pkey(context, 1, 0, &pkey) && pkey == 0xffff);
}

static void connect_to(struct old_qp *qp, uint32_t peer, const union ibv_gid *gid)
{
	OLD(int, modify_qp, (struct old_qp *, struct ibv_qp_attr *, int));
	struct ibv_qp_attr attr = {
	        .qp_state = IBV_QPS_INIT,
	        .port_num = 1,
	        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	CHECK(!modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = peer,
	        .max_dest_rd_atomic = 1,
	        .min_rnr_timer = 12,
	        .ah_attr = {.grh = {.dgid = *gid, .hop_limit = 64}, .is_global = 1, .port_num = 1},
	};
	CHECK(!modify_qp(qp, &attr,
	                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	CHECK(!modify_qp(qp, &attr,
	                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                         IBV_QP_MAX_QP_RD_ATOMIC));
	CHECK(qp->state == IBV_QPS_RTS);
}

static struct ibv_wc poll_one(struct old_cq *cq)
{
	struct ibv_wc wc;
	int n;

	for (long i = 0; !(n = cq->context->ops.poll_cq(cq, 1, &wc)); i++)
		CHECK(i < 500000000L);
	CHECK(n == 1);
	if (wc.status)
		fprintf(stderr, "completion of %lu: status %d\n", (unsigned long)wc.wr_id, wc.status);
	CHECK(!wc.status);
	return wc;
}

/* Two queue pairs of this process: a send that waits for its event, then writes in one list of requests. */
static void moves_data(struct old_context *context, struct old_pd *pd, const union ibv_gid *gid)
{
	OLD(struct old_cq *, create_cq, (struct old_context *, int, void *, struct ibv_comp_channel *, int));
	OLD(int, resize_cq, (struct old_cq *, int));
	OLD(int, destroy_cq, (struct old_cq *));
	OLD(int, get_cq_event, (struct ibv_comp_channel *, struct old_cq **, void **));
	OLD(void, ack_cq_events, (struct old_cq *, unsigned));
	OLD(struct old_qp *, create_qp, (struct old_pd *, struct old_qp_init_attr *));
	OLD(int, query_qp, (struct old_qp *, struct ibv_qp_attr *, int, struct old_qp_init_attr *));
	OLD(int, destroy_qp, (struct old_qp *));
	OLD(struct old_mr *, reg_mr, (struct old_pd *, void *, size_t, int));
	OLD(int, dereg_mr, (struct old_mr *));
	/* These two have no new version, and take the old objects. */
	OLD(struct ibv_comp_channel *, create_comp_channel, (void *));
	OLD(int, destroy_comp_channel, (struct ibv_comp_channel *));
	static char from[4096], to[4096];
	int tag;

	struct ibv_comp_channel *channel = create_comp_channel(context);
	CHECK(channel && channel->fd >= 0);
	struct old_cq *cq = create_cq(context, 64, &tag, channel, 0);
	CHECK(cq && cq->context == context && cq->cq_context == &tag && cq->cqe >= 64);
	CHECK(!resize_cq(cq, 128) && cq->cqe >= 128);
	struct old_mr *from_mr = reg_mr(pd, from, sizeof(from), IBV_ACCESS_LOCAL_WRITE);
	struct old_mr *to_mr = reg_mr(pd, to, sizeof(to), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(from_mr && to_mr && from_mr->pd == pd && from_mr->lkey != to_mr->lkey);

	struct old_qp_init_attr init = {&tag, cq, cq, NULL, {16, 16, 1, 1, 0}, IBV_QPT_RC, 1}, asked;
	struct old_qp *a = create_qp(pd, &init), *b = create_qp(pd, &init);
	CHECK(a && b && a->qp_num != b->qp_num && a->send_cq == cq && init.cap.max_send_wr >= 16);
	connect_to(a, b->qp_num, gid);
	connect_to(b, a->qp_num, gid);
	struct ibv_qp_attr attr;
	CHECK(!query_qp(a, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN, &asked));
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == b->qp_num);
	CHECK(asked.send_cq == cq && asked.recv_cq == cq && !asked.srq && asked.qp_context == &tag);

	struct ibv_sge to_sge = {(uintptr_t)to, sizeof(to), to_mr->lkey},
	               from_sge = {(uintptr_t)from, 100, from_mr->lkey};
	struct old_recv_wr recv = {NULL, 1, &to_sge, 1}, *bad_recv;
	struct old_send_wr send = {NULL, 2, &from_sge, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, 0, {{0, 0}}}, *bad_send;
	memset(from, 'x', sizeof(from));
	CHECK(!context->ops.req_notify_cq(cq, 0));
	CHECK(!context->ops.post_recv(b, &recv, &bad_recv));
	CHECK(!context->ops.post_send(a, &send, &bad_send));
	struct old_cq *event_cq = NULL;
	void *event_context = NULL;
	CHECK(!get_cq_event(channel, &event_cq, &event_context) && event_cq == cq && event_context == &tag);
	ack_cq_events(cq, 1);
	CHECK(poll_one(cq).wr_id + poll_one(cq).wr_id == 3);
	CHECK(!memcmp(from, to, 100) && !to[100]);

	struct ibv_sge second = {(uintptr_t)from, 50, from_mr->lkey};
	struct old_send_wr w2 = {NULL, 4, &second, 1, IBV_WR_RDMA_WRITE, 0, 0, {{(uintptr_t)to + 2000, to_mr->rkey}}};
	struct old_send_wr w1 = {&w2, 3, &from_sge, 1, IBV_WR_RDMA_WRITE, 0, 0, {{(uintptr_t)to + 1000, to_mr->rkey}}};
	CHECK(!context->ops.post_send(a, &w1, &bad_send));
	CHECK(poll_one(cq).wr_id == 3 && poll_one(cq).wr_id == 4);
	CHECK(!memcmp(from, to + 1000, 100) && !memcmp(from, to + 2000, 50) && !to[2050]);

	/* The second request of a list is invalid: the first is posted, and bad_wr names the second. */
	w2.num_sge = 1000;
	CHECK(context->ops.post_send(a, &w1, &bad_send) && bad_send == &w2);
	CHECK(poll_one(cq).wr_id == 3);

	OLD(int, attach_mcast, (struct old_qp *, const union ibv_gid *, uint16_t));
	OLD(int, detach_mcast, (struct old_qp *, const union ibv_gid *, uint16_t));
	CHECK(attach_mcast(a, gid, 0) && detach_mcast(a, gid, 0)); /* never on a connected queue pair */

	CHECK(!destroy_qp(a) && !destroy_qp(b));
	CHECK(!dereg_mr(from_mr) && !dereg_mr(to_mr));
	CHECK(!destroy_cq(cq));
	CHECK(!destroy_comp_channel(channel));
}

static void has_shared_receive_queues(struct old_context *context, struct old_pd *pd)
{
	OLD(struct old_srq *, create_srq, (struct old_pd *, struct ibv_srq_init_attr *));
	OLD(int, modify_srq, (struct old_srq *, struct ibv_srq_attr *, int));
	OLD(int, query_srq, (struct old_srq *, struct ibv_srq_attr *));
	OLD(int, destroy_srq, (struct old_srq *));
	struct ibv_srq_init_attr init = {.srq_context = &init, .attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct old_srq *srq = create_srq(pd, &init);
	struct old_recv_wr w2 = {NULL, 2, NULL, 0}, w1 = {&w2, 1, NULL, 0}, *bad;

	CHECK(srq && srq->srq_context == &init && srq->pd == pd);
	CHECK(!context->ops.post_srq_recv(srq, &w1, &bad));
	w2.num_sge = 1000;
	CHECK(context->ops.post_srq_recv(srq, &w1, &bad) && bad == &w2);
	CHECK(!modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	CHECK(!query_srq(srq, &attr) && attr.max_wr >= 8);
	CHECK(!destroy_srq(srq));
}

static void has_address_handles(struct old_pd *pd, const union ibv_gid *gid)
{
	OLD(struct old_ah *, create_ah, (struct old_pd *, struct ibv_ah_attr *));
	OLD(int, destroy_ah, (struct old_ah *));
	struct ibv_ah_attr attr = {.grh = {.dgid = *gid, .hop_limit = 1}, .is_global = 1, .port_num = 1};
	struct old_ah *ah = create_ah(pd, &attr);

	CHECK(ah && ah->pd == pd);
	CHECK(!destroy_ah(ah));
}

/* Moving a queue pair to ERR raises no event. An SRQ limit does, and the event names the old object. */
static void gets_asynchronous_events(struct old_context *context, struct old_pd *pd)
{
	OLD(struct old_srq *, create_srq, (struct old_pd *, struct ibv_srq_init_attr *));
	OLD(int, modify_srq, (struct old_srq *, struct ibv_srq_attr *, int));
	OLD(int, destroy_srq, (struct old_srq *));
	OLD(int, get_async_event, (struct old_context *, struct ibv_async_event *));
	OLD(void, ack_async_event, (struct ibv_async_event *));
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct old_srq *srq = create_srq(pd, &init);
	struct ibv_async_event event;

	CHECK(srq);
	/* Armed on an empty SRQ: some adapters raise the event at once, others with the next receive. */
	CHECK(!modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	struct pollfd pfd = {context->async_fd, POLLIN, 0};
	if (poll(&pfd, 1, 200) == 1) {
		CHECK(!get_async_event(context, &event));
		CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && (void *)event.element.srq == srq);
		ack_async_event(&event);
	} else {
		event = (struct ibv_async_event){.event_type = IBV_EVENT_PORT_ACTIVE, .element.port_num = 1};
		ack_async_event(&event);
	}
	CHECK(!destroy_srq(srq));
}

int main(void)
{
	lib = load("libibverbs.so.1");
	struct old_context *context = open_first_device();
	OLD(struct old_pd *, alloc_pd, (struct old_context *));
	OLD(int, dealloc_pd, (struct old_pd *));
	OLD(int, close_device, (struct old_context *));
	union ibv_gid gid;

	answers_queries(context, &gid);
	struct old_pd *pd = alloc_pd(context);
	CHECK(pd && pd->context == context);
	moves_data(context, pd, &gid);
	has_shared_receive_queues(context, pd);
	has_address_handles(pd, &gid);
	gets_asynchronous_events(context, pd);
	CHECK(!dealloc_pd(pd));
	CHECK(!close_device(context));
	return 0;
}
