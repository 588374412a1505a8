// rss.c - work queues, and raw packet queue pairs that distribute frames among them by a Toeplitz hash: on lo
// follows: ibv_create_wq(3), ibv_modify_wq(3), ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3)
// see: Microsoft, "Verifying the RSS hash calculation"
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <arpa/inet.h>
#include <libgen.h>
#include <poll.h>
#include <sched.h>

#define LOG 4u
#define WQS (1u << LOG)
#define ROOM 512u /* bytes of a receive */
#define IPV4 (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4)
#define IPV6 (IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6)
#define TCP (IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP)
#define UDP (IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP)

static uint8_t suite_key[40] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                                0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                                0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

/* A network of its own, in which this process may open packet sockets. */
static void open_lo(struct dev *d)
{
	struct ibv_device **list;

	if (unshare(CLONE_NEWNET) || system("ip link set lo up"))
		skip("no right to make a network namespace");
	list = ibv_get_device_list(NULL);
	memset(d, 0, sizeof(*d));
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "roce_lo"))
			d->ctx = ibv_open_device(list[i]);
	CHECK(d->ctx);
	ibv_free_device_list(list);
	d->pd = ibv_alloc_pd(d->ctx);
	CHECK(d->pd);
}

/* --- work queues, tables, queue pairs --- */

static struct ibv_wq *try_wq(struct dev *d, struct ibv_cq *cq, uint32_t max_wr, uint32_t max_sge)
{
	struct ibv_wq_init_attr a = {
	        .wq_context = d, .wq_type = IBV_WQT_RQ, .max_wr = max_wr, .max_sge = max_sge, .pd = d->pd, .cq = cq};
	struct ibv_wq *wq = ibv_create_wq(d->ctx, &a);

	CHECK(!wq || (a.max_wr >= max_wr && a.max_sge >= max_sge));
	return wq;
}

static int wq_to(struct ibv_wq *wq, enum ibv_wq_state state)
{
	struct ibv_wq_attr a = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = state};

	return ibv_modify_wq(wq, &a);
}

static struct ibv_rwq_ind_table *try_table(struct dev *d, struct ibv_wq **wqs, uint32_t log)
{
	struct ibv_rwq_ind_table_init_attr a = {.log_ind_tbl_size = log, .ind_tbl = wqs};

	return ibv_create_rwq_ind_table(d->ctx, &a);
}

static struct ibv_qp_init_attr_ex rss_attr(struct dev *d, struct ibv_rwq_ind_table *table, uint64_t fields)
{
	return (struct ibv_qp_init_attr_ex){
	        .qp_type = IBV_QPT_RAW_PACKET,
	        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
	        .pd = d->pd,
	        .rwq_ind_tbl = table,
	        .rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(suite_key), suite_key, fields}};
}

static struct ibv_qp *try_rss(struct dev *d, struct ibv_rwq_ind_table *table, uint64_t fields)
{
	struct ibv_qp_init_attr_ex a = rss_attr(d, table, fields);

	return ibv_create_qp_ex(d->ctx, &a);
}

static struct ibv_flow *steer_all(struct ibv_qp *qp)
{
	struct ibv_flow_attr attr = {.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof(attr), .port = 1};

	return ibv_create_flow(qp, &attr);
}

/* A sender, and work queues with one CQ in a table. */
struct rig {
	struct dev d;
	struct ibv_cq *scq, *cq;
	struct ibv_qp *sender;
	struct mem m; /* the first half is of receives */
	struct ibv_wq *wqs[WQS];
	struct ibv_rwq_ind_table *table;
};

static void open_sender(struct rig *r)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	r->scq = ibv_create_cq(r->d.ctx, 64, NULL, NULL, 0);
	CHECK(r->scq);
	struct ibv_qp_init_attr a = {.send_cq = r->scq,
	                             .recv_cq = r->scq,
	                             .cap = {.max_send_wr = 64, .max_send_sge = 1},
	                             .qp_type = IBV_QPT_RAW_PACKET};

	r->sender = ibv_create_qp(r->d.pd, &a);
	CHECK(r->sender);
	SAME(ibv_modify_qp(r->sender, &init, IBV_QP_STATE | IBV_QP_PORT), 0);
	SAME(to_state(r->sender, IBV_QPS_RTR), 0);
	SAME(to_state(r->sender, IBV_QPS_RTS), 0);
}

static void rig_open(struct rig *r, uint32_t cqe)
{
	open_lo(&r->d);
	mem_make(&r->m, &r->d, 1 << 16);
	open_sender(r);
	r->cq = ibv_create_cq(r->d.ctx, (int)cqe, NULL, NULL, 0);
	CHECK(r->cq);
	for (unsigned i = 0; i < WQS; i++) {
		r->wqs[i] = try_wq(&r->d, r->cq, 16, 2);
		CHECK(r->wqs[i] && r->wqs[i]->state == IBV_WQS_RESET && r->wqs[i]->wq_context == &r->d);
		SAME(wq_to(r->wqs[i], IBV_WQS_RDY), 0);
		SAME(r->wqs[i]->state, IBV_WQS_RDY);
	}
	r->table = try_table(&r->d, r->wqs, LOG);
	CHECK(r->table);
}

static int receive(struct rig *r, struct ibv_wq *wq, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)r->m.p + id % 64 * ROOM, len, r->m.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	int err = ibv_post_wq_recv(wq, &wr, &bad);

	CHECK(!err || bad == &wr);
	return err;
}

/* --- frames --- */

struct flow {
	const char *dst, *src;
	uint16_t dst_port, src_port;
	uint32_t by_addresses, by_all; /* their hashes */
};

static const struct flow v4[] = {
        {"161.142.100.80", "66.9.149.187", 1766, 2794, 0x323e8fc2, 0x51ccc178},
        {"65.69.140.83", "199.92.111.2", 4739, 14230, 0xd718262a, 0xc626b0ea},
        {"12.22.207.184", "24.19.198.95", 38024, 12898, 0xd2d0a5de, 0x5c2b394a},
        {"209.142.163.6", "38.27.205.30", 2217, 48228, 0x82989176, 0xafc7327f},
        {"202.188.127.2", "153.39.163.191", 1303, 44251, 0x5d1809c5, 0x10e828a2},
};
static const struct flow v6[] = {
        {"3ffe:2501:200:3::1", "3ffe:2501:200:1fff::7", 1766, 2794, 0x2cc18cd5, 0x40207d3d},
        {"ff02::1", "3ffe:501:8::260:97ff:fe40:efab", 4739, 14230, 0x0f0c461c, 0xdde51bbf},
        {"fe80::200:f8ff:fe21:67cf", "3ffe:1900:4545:3:200:f8ff:fe21:67cf", 38024, 44251, 0x4b61e985, 0x02d1feef},
};
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

/* A frame of len bytes, which is more than its headers have. */
static void build_frame(uint8_t *f, uint32_t len, int family, uint8_t protocol, const struct flow *flow)
{
	uint8_t *ip = f + 14, *ports = ip + (family == AF_INET ? 20 : 40);

	memset(f, 0x5a, len);
	memcpy(f, (uint8_t[]){0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1}, 12);
	put16(f + 12, family == AF_INET ? 0x0800 : 0x86dd);
	if (family == AF_INET) {
		memcpy(ip, (uint8_t[]){0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0}, 12);
		put16(ip + 2, (uint16_t)(len - 14));
		CHECK(inet_pton(AF_INET, flow->src, ip + 12) == 1 && inet_pton(AF_INET, flow->dst, ip + 16) == 1);
	} else {
		memcpy(ip, (uint8_t[]){0x60, 0, 0, 0, 0, 0, protocol, 64}, 8);
		put16(ip + 4, (uint16_t)(len - 54));
		CHECK(inet_pton(AF_INET6, flow->src, ip + 8) == 1 && inet_pton(AF_INET6, flow->dst, ip + 24) == 1);
	}
	put16(ports, flow->src_port);
	put16(ports + 2, flow->dst_port);
}

static void send_built(struct rig *r, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)r->m.p + 32768, len, r->m.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1000,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED},
	                   *bad;

	SAME(ibv_post_send(r->sender, &wr, &bad), 0);
	expect(r->scq, 1000, IBV_WC_SUCCESS);
}

static void send_frame(struct rig *r, uint32_t len, int family, uint8_t protocol, const struct flow *flow)
{
	build_frame(r->m.p + 32768, len, family, protocol, flow);
	send_built(r, len);
}

/* Every work queue has a receive, whose wr_id is its place in the table; the frame takes the one at `place`. */
static void comes_to(struct rig *r, uint32_t place, uint32_t len)
{
	struct ibv_wc wc = expect(r->cq, place, IBV_WC_SUCCESS);

	SAME(wc.opcode, IBV_WC_RECV);
	SAME(wc.byte_len, len);
	SAME(wc.qp_num, r->wqs[place]->wq_num);
	CHECK(!memcmp(r->m.p + place * ROOM, r->m.p + 32768, len));
	SAME(receive(r, r->wqs[place], place, ROOM), 0);
}

/* --- tests --- */

static void check_flows(struct rig *r, int family, uint64_t fields, uint8_t protocol, const struct flow *flows,
                        size_t n, bool ports)
{
	struct ibv_qp *qp = try_rss(&r->d, r->table, fields);
	struct ibv_flow *rule = qp ? steer_all(qp) : NULL;

	CHECK(qp && rule);
	for (size_t i = 0; i < n; i++) {
		uint32_t len = 100 + 10 * (uint32_t)i;

		send_frame(r, len, family, protocol, &flows[i]);
		comes_to(r, (ports ? flows[i].by_all : flows[i].by_addresses) % WQS, len);
	}
	SAME(ibv_destroy_flow(rule), 0);
	SAME(ibv_destroy_qp(qp), 0);
}

static void frames_are_distributed_by_their_hash(void)
{
	struct rig r;

	rig_open(&r, 256);
	for (unsigned i = 0; i < WQS; i++)
		SAME(receive(&r, r.wqs[i], i, ROOM), 0);
	check_flows(&r, AF_INET, IPV4, IPPROTO_TCP, v4, COUNT(v4), false);
	check_flows(&r, AF_INET, IPV4 | TCP, IPPROTO_TCP, v4, COUNT(v4), true);
	check_flows(&r, AF_INET, IPV4 | UDP, IPPROTO_UDP, v4, COUNT(v4), true);
	check_flows(&r, AF_INET, IPV4 | TCP, IPPROTO_UDP, v4, COUNT(v4), false); /* without these ports */
	check_flows(&r, AF_INET6, IPV6, IPPROTO_UDP, v6, COUNT(v6), false);
	check_flows(&r, AF_INET6, IPV6 | TCP, IPPROTO_TCP, v6, COUNT(v6), true);
	check_flows(&r, AF_INET6, IPV6 | UDP, IPPROTO_UDP, v6, COUNT(v6), true);

	/* a frame that has no such field, and a queue pair that has no field to distribute by: the first entry */
	struct ibv_qp *qp = try_rss(&r.d, r.table, IPV6);

	CHECK(qp && steer_all(qp));
	send_frame(&r, 100, AF_INET, IPPROTO_UDP, &v4[0]);
	comes_to(&r, 0, 100);
	expect_none(r.cq, 50);
}

static void the_states_of_a_work_queue_are_those_of_the_manual(void)
{
	struct rig r;
	uint32_t place = v4[0].by_addresses % WQS;

	rig_open(&r, 256);
	struct ibv_wq *wq = r.wqs[place];
	struct ibv_wq_attr wrong = {.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE,
	                            .wq_state = IBV_WQS_ERR,
	                            .curr_wq_state = IBV_WQS_RESET};
	struct ibv_qp *qp = try_rss(&r.d, r.table, IPV4);

	CHECK(qp && steer_all(qp));
	SAME(ibv_modify_wq(wq, &wrong), EINVAL);
	SAME(ibv_modify_wq(wq, &(struct ibv_wq_attr){0}), EINVAL);
	SAME(ibv_modify_wq(wq, &(struct ibv_wq_attr){.attr_mask = IBV_WQ_ATTR_RESERVED}), EINVAL);
	SAME(ibv_modify_wq(wq, &(struct ibv_wq_attr){.attr_mask = IBV_WQ_ATTR_FLAGS,
	                                             .flags = IBV_WQ_FLAGS_DELAY_DROP,
	                                             .flags_mask = IBV_WQ_FLAGS_DELAY_DROP}),
	     EOPNOTSUPP);
	SAME(wq_to(wq, IBV_WQS_UNKNOWN), EINVAL);
	for (uint64_t i = 1; i < 4; i++)
		SAME(receive(&r, wq, i, ROOM), 0);
	SAME(wq_to(wq, IBV_WQS_ERR), 0);
	SAME(wq->state, IBV_WQS_ERR);
	for (uint64_t i = 1; i < 4; i++)
		SAME(expect(r.cq, i, IBV_WC_WR_FLUSH_ERR).qp_num, wq->wq_num);
	SAME(receive(&r, wq, 7, ROOM), 0);
	expect(r.cq, 7, IBV_WC_WR_FLUSH_ERR);
	SAME(wq_to(wq, IBV_WQS_RDY), EINVAL);
	SAME(wq_to(wq, IBV_WQS_RESET), 0);
	SAME(wq_to(wq, IBV_WQS_ERR), EINVAL);
	SAME(receive(&r, wq, 8, ROOM), EINVAL);
	SAME(wq_to(wq, IBV_WQS_RDY), 0);

	send_frame(&r, 100, AF_INET, IPPROTO_UDP, &v4[0]); /* no receive: it is lost */
	expect_none(r.cq, 50);
	SAME(receive(&r, wq, place, ROOM), 0);
	send_frame(&r, 100, AF_INET, IPPROTO_UDP, &v4[0]);
	comes_to(&r, place, 100);

	/* RESET removes the receive that comes_to has posted, and completions that are not polled */
	for (uint64_t i = 0; i < 4; i++)
		SAME(receive(&r, r.wqs[(place + 1) % WQS], 40 + i, ROOM), 0);
	SAME(wq_to(wq, IBV_WQS_ERR), 0);
	SAME(wq_to(r.wqs[(place + 1) % WQS], IBV_WQS_ERR), 0);
	SAME(wq_to(wq, IBV_WQS_RESET), 0);
	for (uint64_t i = 0; i < 4; i++)
		expect(r.cq, 40 + i, IBV_WC_WR_FLUSH_ERR);
	expect_none(r.cq, 50);
	send_frame(&r, 100, AF_INET, IPPROTO_UDP, &v4[0]); /* to a queue in RESET: it is lost */
	expect_none(r.cq, 50);
	SAME(wq_to(wq, IBV_WQS_RDY), 0);
	for (uint64_t i = 0; i < 16; i++)
		SAME(receive(&r, wq, place, ROOM), 0);
	SAME(receive(&r, wq, place, ROOM), ENOMEM);
	expect_none(r.cq, 50);
}

static void a_receive_that_does_not_fit_fails(void)
{
	uint32_t place = v4[1].by_addresses % WQS;
	struct rig r;

	rig_open(&r, 256);
	struct ibv_qp *qp = try_rss(&r.d, r.table, IPV4);
	struct ibv_sge sges[3] = {{(uintptr_t)r.m.p, 60, r.m.mr->lkey}, {(uintptr_t)r.m.p + 60, 60, r.m.mr->lkey + 1}};
	struct ibv_recv_wr wr = {.wr_id = 5, .sg_list = sges, .num_sge = 3}, *bad;

	CHECK(qp && steer_all(qp));
	SAME(ibv_post_wq_recv(r.wqs[place], &wr, &bad), EINVAL);
	SAME(receive(&r, r.wqs[place], 3, 64), 0);
	wr.num_sge = 2;
	SAME(ibv_post_wq_recv(r.wqs[place], &wr, &bad), 0);
	SAME(receive(&r, r.wqs[place], place, ROOM), 0);
	for (int i = 0; i < 3; i++)
		send_frame(&r, 100, AF_INET, IPPROTO_UDP, &v4[1]);
	SAME(expect(r.cq, 3, IBV_WC_LOC_LEN_ERR).byte_len, 0);
	expect(r.cq, 5, IBV_WC_LOC_PROT_ERR);
	comes_to(&r, place, 100); /* the queue goes on */
	SAME(r.wqs[place]->state, IBV_WQS_RDY);
}

static void what_is_used_cannot_be_destroyed(void)
{
	struct rig r;

	rig_open(&r, 256);
	struct ibv_qp *qp = try_rss(&r.d, r.table, IPV4);
	struct ibv_rwq_ind_table *second = try_table(&r.d, r.wqs, 0);
	struct ibv_flow *rule = qp ? steer_all(qp) : NULL;
	struct ibv_cq *cq;

	CHECK(qp && second && rule);
	SAME(ibv_destroy_cq(r.cq), EBUSY);
	SAME(ibv_destroy_wq(r.wqs[0]), EBUSY);
	SAME(ibv_destroy_rwq_ind_table(r.table), EBUSY);
	SAME(ibv_destroy_qp(qp), EBUSY);
	SAME(ibv_destroy_flow(rule), 0);
	SAME(ibv_destroy_qp(qp), 0);
	SAME(ibv_destroy_rwq_ind_table(r.table), 0);
	SAME(ibv_destroy_wq(r.wqs[0]), EBUSY); /* it is in the second, too */
	SAME(ibv_destroy_rwq_ind_table(second), 0);
	SAME(receive(&r, r.wqs[0], 0, ROOM), 0);
	SAME(wq_to(r.wqs[0], IBV_WQS_ERR), 0);
	SAME(ibv_close_device(r.d.ctx), 0); /* what is left lives on */
	for (unsigned i = 0; i < WQS; i++)
		SAME(ibv_destroy_wq(r.wqs[i]), 0);
	struct ibv_wc wc;

	SAME(ibv_poll_cq(r.cq, 1, &wc), 0); /* its completion has gone with the queue */
	cq = r.cq;
	SAME(ibv_destroy_cq(cq), 0);
}

static void refuses_wq(struct rig *r, struct ibv_wq_init_attr a, int err)
{
	errno = 0;
	CHECK(!ibv_create_wq(r->d.ctx, &a));
	SAME(errno, err);
}

static void refuses_rss(struct rig *r, struct ibv_qp_init_attr_ex a, int err)
{
	errno = 0;
	CHECK(!ibv_create_qp_ex(r->d.ctx, &a));
	SAME(errno, err);
}

static void what_cannot_be_made_is_refused(void)
{
	struct rig r;

	rig_open(&r, 64);
	struct ibv_wq_init_attr w = {.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = r.d.pd, .cq = r.cq}, v;
	struct ibv_wq *wqs[2] = {r.wqs[0], NULL};

	refuses_wq(&r, (v = w, v.max_wr = 0, v), EINVAL);
	refuses_wq(&r, (v = w, v.max_wr = 1u << 31, v), EINVAL);
	refuses_wq(&r, (v = w, v.max_sge = 1000, v), EINVAL);
	refuses_wq(&r, (v = w, v.pd = NULL, v), EINVAL);
	refuses_wq(&r, (v = w, v.cq = NULL, v), EINVAL);
	refuses_wq(&r, (v = w, v.wq_type = IBV_WQT_RQ + 1, v), EINVAL);
	refuses_wq(&r, (v = w, v.comp_mask = IBV_WQ_INIT_ATTR_RESERVED, v), EINVAL);
	refuses_wq(&r, (v = w, v.comp_mask = IBV_WQ_INIT_ATTR_FLAGS, v.create_flags = IBV_WQ_FLAGS_DELAY_DROP, v),
	           EOPNOTSUPP);
	CHECK(!try_table(&r.d, wqs, 1) && errno == EINVAL);
	CHECK(!try_table(&r.d, NULL, 0) && errno == EINVAL);
	CHECK(!try_table(&r.d, r.wqs, 32) && errno == EINVAL);

	struct ibv_qp_init_attr_ex a = rss_attr(&r.d, r.table, IPV4), b;

	refuses_rss(&r, (b = a, b.qp_type = IBV_QPT_UD, b), EOPNOTSUPP);
	refuses_rss(&r, (b = a, b.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_RX_HASH, b), EINVAL);
	refuses_rss(&r, (b = a, b.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_IND_TABLE, b), EINVAL);
	refuses_rss(&r, (b = a, b.rwq_ind_tbl = NULL, b), EINVAL);
	refuses_rss(&r, (b = a, b.cap.max_recv_wr = 1, b), EINVAL);
	refuses_rss(&r, (b = a, b.cap.max_send_wr = 1, b.send_cq = r.scq, b), EOPNOTSUPP);
	refuses_rss(&r, (b = a, b.rx_hash_conf.rx_hash_function = 0, b), EOPNOTSUPP);
	refuses_rss(&r, (b = a, b.rx_hash_conf.rx_hash_key_len = 16, b), EINVAL);
	refuses_rss(&r, (b = a, b.rx_hash_conf.rx_hash_fields_mask = IPV4 | IPV6, b), EINVAL);
	refuses_rss(&r, (b = a, b.rx_hash_conf.rx_hash_fields_mask = TCP | UDP, b), EINVAL);
	refuses_rss(&r, (b = a, b.rx_hash_conf.rx_hash_fields_mask = 0, b), EINVAL); /* of several entries */

	struct ibv_qp *qp = try_rss(&r.d, r.table, IPV4);
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad_wr;
	struct ibv_send_wr swr = {.opcode = IBV_WR_SEND}, *bad_swr;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr init;

	CHECK(qp && qp->qp_type == IBV_QPT_RAW_PACKET);
	CHECK(ibv_post_recv(qp, &wr, &bad_wr) && ibv_post_send(qp, &swr, &bad_swr));
	SAME(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
	SAME(to_state(qp, IBV_QPS_RTR), 0);
	SAME(to_state(qp, IBV_QPS_RTS), EOPNOTSUPP);
	CHECK(ibv_post_recv(qp, &wr, &bad_wr) && ibv_post_send(qp, &swr, &bad_swr));
	SAME(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	CHECK(attr.qp_state == IBV_QPS_RTR && !attr.cap.max_recv_wr && !init.recv_cq && !init.send_cq);
}

static void an_overrun_completion_queue_ends_its_work_queues(void)
{
	struct ibv_async_event event;
	struct rig r;

	rig_open(&r, 2);
	struct pollfd p = {r.d.ctx->async_fd, POLLIN, 0};
	bool fatal = false;

	for (uint64_t i = 0; i < 8; i++)
		SAME(receive(&r, r.wqs[1], i, ROOM), 0);
	SAME(wq_to(r.wqs[1], IBV_WQS_ERR), 0);
	for (int i = 0; i < 1 + (int)WQS && !fatal; i++) {
		SAME(poll(&p, 1, PATIENCE), 1);
		SAME(ibv_get_async_event(r.d.ctx, &event), 0);
		fatal = event.event_type == IBV_EVENT_WQ_FATAL && event.element.wq == r.wqs[2];
		ibv_ack_async_event(&event);
	}
	CHECK(fatal);
	SAME(r.wqs[2]->state, IBV_WQS_ERR);
	SAME(ibv_destroy_rwq_ind_table(r.table), 0);
	SAME(ibv_destroy_wq(r.wqs[2]), 0);
}

static void rules_of_fault_injection_reach_work_queues(void)
{
	struct rig r;

	setenv("VERBENA_FAULT", "post_recv=ENOSPC nth=2; device=remove after=300ms", 1);
	rig_open(&r, 64);
	struct ibv_wq *wq = r.wqs[3];

	SAME(receive(&r, wq, 1, ROOM), 0);
	SAME(receive(&r, wq, 2, ROOM), ENOSPC);
	SAME(receive(&r, wq, 3, ROOM), 0);
	expect(r.cq, 1, IBV_WC_WR_FLUSH_ERR); /* the device has gone */
	expect(r.cq, 3, IBV_WC_WR_FLUSH_ERR);
	SAME(wq->state, IBV_WQS_ERR);
}

static void verbena_stat_and_rdma_show_the_queue_pair(void)
{
	char path[4096] = "", number[32];
	struct rig r;

	rig_open(&r, 64);
	struct ibv_qp *qp = try_rss(&r.d, r.table, IPV4);

	CHECK(qp && steer_all(qp));
	SAME(receive(&r, r.wqs[v4[0].by_addresses % WQS], 0, ROOM), 0);
	send_frame(&r, 100, AF_INET, IPPROTO_UDP, &v4[0]);
	expect(r.cq, 0, IBV_WC_SUCCESS);
	snprintf(number, sizeof(number), "0x0*%x", qp->qp_num);
	setenv("QPN", number, 1);
	/* the programs of the build that this test belongs to */
	CHECK(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
	setenv("BUILD", dirname(path), 1);
	SAME(system("$BUILD/../../../verbena stat qps | grep -qw \"$QPN\""), 0);
	if (under_sanitizer()) /* libraries of such a build cannot be preloaded into rdma */
		return;
	SAME(system("! command -v rdma >/dev/null || "
	            "$BUILD/../../../verbena run rdma resource show qp | grep -q 'type RAW_PACKET state RESET'"),
	     0);
}

static void the_device_says_that_it_has_them(void)
{
	struct ibv_device_attr_ex attr;
	struct dev d;

	dev_open(&d);
	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	SAME(attr.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
	SAME(attr.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
	SAME(attr.rss_caps.rx_hash_fields_mask,
	     IPV4 | IPV6 | TCP | UDP | IBV_RX_HASH_IPSEC_SPI | (uint64_t)IBV_RX_HASH_INNER);
	CHECK(attr.max_wq_type_rq && attr.rss_caps.max_rwq_indirection_tables);

	/* the largest table of one queue */
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 4, NULL, NULL, 0);
	uint32_t n = attr.rss_caps.max_rwq_indirection_table_size, log = 0;
	struct ibv_wq **wqs = calloc(n, sizeof(*wqs));

	CHECK(cq && wqs);
	wqs[0] = try_wq(&d, cq, 1, 1);
	CHECK(wqs[0]);
	for (uint32_t i = 1; i < n; i++)
		wqs[i] = wqs[0];
	while (1u << log < n)
		log++;
	struct ibv_rwq_ind_table *table = try_table(&d, wqs, log);

	CHECK(table);
	CHECK(!try_table(&d, wqs, log + 1) && errno == EINVAL);
	SAME(ibv_destroy_rwq_ind_table(table), 0);
	SAME(ibv_destroy_wq(wqs[0]), 0);
	SAME(ibv_destroy_cq(cq), 0);
	free(wqs);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"frames are distributed by their hash", frames_are_distributed_by_their_hash, 0},
	        {"the states of a work queue are those of the manual",
	         the_states_of_a_work_queue_are_those_of_the_manual, 0},
	        {"a receive that does not fit fails", a_receive_that_does_not_fit_fails, 0},
	        {"what is used cannot be destroyed", what_is_used_cannot_be_destroyed, 0},
	        {"what cannot be made is refused", what_cannot_be_made_is_refused, 0},
	        {"an overrun completion queue ends its work queues", an_overrun_completion_queue_ends_its_work_queues,
	         0},
	        {"rules of fault injection reach work queues", rules_of_fault_injection_reach_work_queues, 0},
	        {"verbena stat and rdma show the queue pair", verbena_stat_and_rdma_show_the_queue_pair, 0},
	        {"the device says that it has them", the_device_says_that_it_has_them, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
