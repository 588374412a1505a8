// psns.c - ibv_query_qp reports the PSNs of the next requests: on the same host, and over RoCE with VERBENA_WIRE=always
// follows: IBA volume 1, 11.2.5.3 (query queue pair), 9.7.1 (PSNs); ibv_query_qp(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#define FIRST_PSN 0xfffffdu /* five sends wrap around */
#define LONG 10000u

static struct ibv_qp_attr query(const struct link *l)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	SAME(ibv_query_qp(l->qp, &a, IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU, &init), 0);
	return a;
}

/* A message has one PSN on the same host, and one for each packet on a network. */
static uint32_t psns_of_long(enum ibv_mtu path_mtu)
{
	const char *wire = getenv("VERBENA_WIRE");
	uint32_t mtu = 128u << path_mtu;

	return wire && !strcmp(wire, "always") ? (LONG + mtu - 1) / mtu : 1;
}

static void send_one(struct link *from, struct link *to, struct mem *m, uint64_t id, uint32_t len)
{
	post_recv(to, id, m, 32768, len);
	POST(from, .op = IBV_WR_SEND, .id = id, .m = m, .len = len);
	expect(from->scq, id, IBV_WC_SUCCESS);
	expect(to->rcq, id, IBV_WC_SUCCESS);
}

static void check_psns(const struct link *from, const struct link *to, uint32_t next)
{
	SAME(query(from).sq_psn, next & 0xffffff);
	SAME(query(to).rq_psn, next & 0xffffff);
}

static void the_next_psns_follow_the_requests(void)
{
	struct link a, b;
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 65536);
	link_make(&a, &d, &(struct conf){.psn = FIRST_PSN});
	link_make(&b, &d, &(struct conf){.psn = 77});
	link_to(&a, &b.me);
	link_to(&b, &a.me);
	check_psns(&a, &b, FIRST_PSN);
	check_psns(&b, &a, 77);
	for (uint32_t i = 0; i < 5; i++) {
		send_one(&a, &b, &m, i, 8);
		check_psns(&a, &b, FIRST_PSN + 1 + i);
	}
	send_one(&a, &b, &m, 5, LONG);
	check_psns(&a, &b, FIRST_PSN + 5 + psns_of_long(query(&a).path_mtu));
	check_psns(&b, &a, 77);
	send_one(&b, &a, &m, 6, 8);
	check_psns(&b, &a, 78);
}

static void the_next_psn_follows_the_datagrams(void)
{
	struct conf c = {.type = IBV_QPT_UD, .psn = FIRST_PSN};
	struct link a;
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 65536);
	link_make(&a, &d, &c);
	link_to(&a, &a.me);
	SAME(query(&a).sq_psn, FIRST_PSN);
	struct ibv_ah_attr at = {.is_global = 1,
	                         .port_num = 1,
	                         .grh = {.dgid = d.gid, .sgid_index = (uint8_t)d.gid_index, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(d.pd, &at);

	CHECK(ah);
	for (uint32_t i = 0; i < 5; i++) {
		POST(&a, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8, .ah = ah, .qpn = a.qp->qp_num, .qkey = QKEY);
		expect(a.scq, i, IBV_WC_SUCCESS);
	}
	SAME(query(&a).sq_psn, (FIRST_PSN + 5) & 0xffffff);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"the next PSNs follow the requests", the_next_psns_follow_the_requests, 0},
	        {"the next PSN follows the datagrams", the_next_psn_follows_the_datagrams, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
