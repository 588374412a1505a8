// frames.h - raw packet queue pairs in tests: networks of their own, queue pairs, rules, frames
// follows: ibv_create_qp(3), ibv_create_flow(3), packet(7)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_LOCAL_FRAMES_H
#define VB_TEST_LOCAL_FRAMES_H

#include "pair.h"

#include <sched.h>

#define HEAD 14u

static const uint8_t here[6] = {0x02, 0, 0, 0, 0, 1}, there[6] = {0x02, 0, 0, 0, 0, 2},
                     group[6] = {0x33, 0x33, 0, 0, 0, 9};

/* A network of its own, in which this process may open packet sockets. */
static inline void own_network(void)
{
	if (unshare(CLONE_NEWNET) || system("ip link set lo up"))
		skip("no right to make a network namespace");
}

static inline void open_named(struct dev *d, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	memset(d, 0, sizeof(*d));
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			d->ctx = ibv_open_device(list[i]);
	CHECK(d->ctx);
	ibv_free_device_list(list);
	d->pd = ibv_alloc_pd(d->ctx);
	CHECK(d->pd);
}

/* --- queue pairs, rules, frames --- */

struct raw {
	struct dev *d;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mem m; /* the upper half receives */
};

static inline struct ibv_qp *try_raw(struct dev *d, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr a = {.send_cq = cq,
	                             .recv_cq = cq,
	                             .cap = {.max_send_wr = 64,
	                                     .max_recv_wr = 64,
	                                     .max_send_sge = 2,
	                                     .max_recv_sge = 2,
	                                     .max_inline_data = 64},
	                             .qp_type = IBV_QPT_RAW_PACKET};

	return ibv_create_qp(d->pd, &a);
}

static inline void raw_open(struct raw *r, struct dev *d, struct ibv_comp_channel *channel)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	r->d = d;
	r->cq = ibv_create_cq(d->ctx, 256, NULL, channel, 0);
	CHECK(r->cq);
	r->qp = try_raw(d, r->cq);
	CHECK(r->qp && r->qp->qp_type == IBV_QPT_RAW_PACKET);
	mem_make(&r->m, d, 1 << 16);
	SAME(ibv_modify_qp(r->qp, &a, IBV_QP_STATE), EINVAL); /* a port is needed */
	SAME(ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX), EINVAL);
	SAME(ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_PORT), 0);
	SAME(to_state(r->qp, IBV_QPS_RTR), 0);
	SAME(to_state(r->qp, IBV_QPS_RTS), 0);
}

static inline void receive(struct raw *r, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)r->m.p + 32768 + id * 2048, len, r->m.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	SAME(ibv_post_recv(r->qp, &wr, &bad), 0);
}

static inline const uint8_t *received(const struct raw *r, uint64_t id)
{
	return r->m.p + 32768 + id * 2048;
}

static inline int send_frame(struct raw *r, uint64_t id, const uint8_t *dst, uint32_t len, uint8_t fill_with,
                             unsigned flags)
{
	uint8_t *f = r->m.p + id * 2048;
	struct ibv_sge sge[2] = {{(uintptr_t)f, HEAD, r->m.mr->lkey}, {(uintptr_t)f + HEAD, len - HEAD, r->m.mr->lkey}};
	struct ibv_send_wr wr = {.wr_id = id,
	                         .sg_list = sge,
	                         .num_sge = 2,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED | flags},
	                   *bad;

	memset(f, fill_with, len);
	memcpy(f, dst, 6);
	memcpy(f + 6, here, 6);
	f[12] = 0x88; /* an experimental Ethernet type */
	f[13] = 0xb5;
	return ibv_post_send(r->qp, &wr, &bad);
}

struct eth_rule {
	struct ibv_flow_attr attr;
	struct ibv_flow_spec_eth eth;
};

static inline struct ibv_flow *steer(struct raw *r, const uint8_t *dst)
{
	struct eth_rule rule = {.attr = {.size = sizeof(rule), .num_of_specs = 1, .port = 1},
	                        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth)}};

	memcpy(rule.eth.val.dst_mac, dst, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	return ibv_create_flow(r->qp, &rule.attr);
}

static inline struct ibv_flow *steer_all(struct raw *r, enum ibv_flow_attr_type type)
{
	struct ibv_flow_attr attr = {.type = type, .size = sizeof(attr), .port = 1};

	return ibv_create_flow(r->qp, &attr);
}

/* An adapter of lo, in a network of its own. */
static inline void on_lo(struct dev *d)
{
	own_network();
	open_named(d, "roce_lo");
}

/* Adapters of both ends of a veth pair, in a network of their own. */
static inline void two_ends(struct dev *d0, struct dev *d1)
{
	own_network();
	if (system("ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up"))
		skip("no veth interfaces here");
	for (int i = 0; i < 200 && system("ip -o link show v1 | grep -q LOWER_UP"); i++)
		sleep_ms(50);
	open_named(d0, "roce_v0");
	open_named(d1, "roce_v1");
}

#endif
