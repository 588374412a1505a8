// default_gid.c - GID 0 of lo, which is derived from a MAC address, leads to this host like the others
// follows: IBA annex A17 (RoCEv2) A17.3.1; ibv_query_gid(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#define LEN 30000u
#define TIMES 100u

/* Connects by the default GID, or by ::1. */
static void open_by(struct dev *d, bool preset)
{
	static const union ibv_gid loopback = {.raw = {[15] = 1}};

	dev_open(d);
	for (int i = 0; i < d->port.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid(d->ctx, 1, i, &d->gid));
		d->gid_index = i;
		if (preset || !memcmp(&d->gid, &loopback, sizeof(loopback)))
			return;
	}
	skip("lo has no IPv6 address here");
}

static void connected_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_by(&d, *(bool *)arg);
	mem_make(&m, &d, 1 << 16);
	link_make(&l, &d, &(struct conf){0});
	post_recv(&l, 1, &m, 0, LEN);
	link_join(&l, fd);
	mem_tell(&m, fd);
	for (unsigned i = 0; i < TIMES; i++) {
		expect(l.rcq, 1, IBV_WC_SUCCESS);
		CHECK(holds(m.p, LEN, 5));
		post_recv(&l, 1, &m, 0, LEN);
	}
	meet_up(fd);
	CHECK(holds(m.p + LEN, 1000, 6));
}

static void connects(bool here, bool there)
{
	struct peer p = start(connected_target, &there);
	struct dev d;
	struct link l;
	struct mem m;

	open_by(&d, here);
	mem_make(&m, &d, 1 << 16);
	link_make(&l, &d, &(struct conf){0});
	link_join(&l, p.fd);
	struct far far = far_hear(p.fd);
	fill(m.p, LEN, 5);
	fill(m.p + LEN, 1000, 6);
	for (unsigned i = 0; i < TIMES; i++) {
		POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = LEN);
		expect(l.scq, 1, IBV_WC_SUCCESS);
	}
	POST(&l, .op = IBV_WR_RDMA_WRITE, .id = 2, .m = &m, .off = LEN, .len = 1000, .far = far, .far_off = LEN);
	POST(&l, .op = IBV_WR_RDMA_READ, .id = 3, .m = &m, .off = 1 << 15, .len = 1000, .far = far, .far_off = LEN);
	for (uint64_t i = 2; i <= 3; i++)
		expect(l.scq, i, IBV_WC_SUCCESS);
	CHECK(holds(m.p + (1 << 15), 1000, 6));
	meet_up(p.fd);
	finish(&p);
}

static void both_ends_by_the_default_gid(void)
{
	connects(true, true);
}

static void the_default_gid_and_another_address(void)
{
	connects(true, false);
	connects(false, true);
}

static void datagram_target(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	open_by(&d, true);
	mem_make(&m, &d, 1 << 16);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	post_recv(&l, 1, &m, 0, 1040);
	link_join(&l, fd);
	struct ibv_wc wc = expect(l.rcq, 1, IBV_WC_SUCCESS);
	struct ibv_ah *ah = ibv_create_ah_from_wc(d.pd, &wc, (struct ibv_grh *)m.p,
	                                          1); /* the answer uses the addresses in the completion */

	CHECK(ah && holds(m.p + 40, 1000, 7));
	fill(m.p + 2048, 100, 8);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .off = 2048, .len = 100, .ah = ah, .qpn = wc.src_qp,
	     .qkey = QKEY);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	meet_up(fd);
}

static void datagrams_by_the_default_gid(void)
{
	struct peer p = start(datagram_target, NULL);
	struct dev d;
	struct link l;
	struct mem m;

	open_by(&d, true);
	mem_make(&m, &d, 1 << 16);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	post_recv(&l, 1, &m, 4096, 140);
	link_join(&l, p.fd);
	struct ibv_ah_attr a = {
	        .is_global = 1, .port_num = 1, .grh = {.dgid = l.it.gid, .sgid_index = 0, .hop_limit = 9}};
	struct ibv_ah *ah = ibv_create_ah(d.pd, &a);

	CHECK(ah);
	fill(m.p, 1000, 7);
	POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 1000, .ah = ah, .qpn = l.it.qpn, .qkey = QKEY);
	expect(l.scq, 2, IBV_WC_SUCCESS);
	expect(l.rcq, 1, IBV_WC_SUCCESS);
	CHECK(holds(m.p + 4096 + 40, 100, 8));
	meet_up(p.fd);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"both ends by the default GID", both_ends_by_the_default_gid},
	        {"the default GID and another address", the_default_gid_and_another_address},
	        {"datagrams by the default GID", datagrams_by_the_default_gid},
	};

	return RUN_TESTS(argc, argv, tests);
}
