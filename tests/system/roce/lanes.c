// lanes.c - programs that share a socket, or have none
// see: docs/roce.md
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include "engine/local/local.h"
#include "path/roce/roce.h"

#define COUNTED(name) atomic_load(&vb_counters.name)
#define PACKETS 20u

/* --- one socket for two programs --- */

static void served(int fd, void *arg)
{
	struct stranger s;
	uint32_t told[2];

	stranger_meet(&s, &(struct conf){.psn = 1000}, false);
	close(s.fd);
	told[0] = s.l.qp->qp_num;
	told[1] = s.m.mr->rkey;
	tell(fd, told, sizeof(told));
	mem_tell(&s.m, fd);
	meet_up(fd);
}

/* Of two sockets one is the broker's, and all programs share the other. */
static struct peer sharer(uint32_t told[2], struct far *far)
{
	struct peer p = start(served, NULL);

	hear(p.fd, told, 2 * sizeof(*told));
	*far = far_hear(p.fd);
	return p;
}

/* It is stopped while its packets arrive, so that we receive them and cannot meet it yet. */
static void the_first_packets_for_a_program_that_is_not_met_yet_wait_for_it(void)
{
	struct stranger s, its;
	struct peer p;
	uint32_t told[2];
	struct far far;
	struct came c;

	setenv("VERBENA_LANES", "2", 1);
	stranger_meet(&s, &(struct conf){.psn = 1000}, false);
	p = sharer(told, &far);
	stop_peer(&p);
	its = s;
	for (uint32_t i = 0; i < PACKETS; i++) {
		struct vb_packet w = stranger_packet(&its, VB_RC_WRITE_ONLY, 1000 + i, 8);

		w.bth.dest_qpn = told[0];
		w.reth = (struct vb_reth){far.addr + 64 * i, far.rkey, 8};
		w.bth.ack_req = i == PACKETS - 1;
		stranger_say(&its, &w, NULL);
	}
	WAIT_FOR(COUNTED(rx_packets) >= PACKETS);
	sleep_ms(20);
	SAME(COUNTED(forwarded), 0);
	cont_peer(&p);
	CHECK(stranger_take(&s, &c, PATIENCE));
	SAME(c.p.bth.psn.v, 1000 + PACKETS - 1);
	SAME(c.p.aeth.kind, VB_AETH_ACK);
	SAME(COUNTED(forwarded), PACKETS);
	SAME(COUNTED(drop_forward), 0);
	meet_up(p.fd);
	finish(&p);
}

/* Keeps no more of them than there is room for, and none for a program that does not exist. */
static void a_flood_for_others_is_bounded(void)
{
	struct stranger s;
	struct vb_packet w;

	setenv("VERBENA_LANES", "2", 1);
	stranger_meet(&s, &(struct conf){0}, false);
	uint32_t mine = VB_QP_LANE(s.l.qp->qp_num);

	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t lane = 1 + i % 600;

		w = stranger_packet(&s, VB_RC_WRITE_ONLY, 1000, 8);
		w.bth.dest_qpn = lane << 14 | 5;
		if (lane != mine)
			stranger_say(&s, &w, NULL);
		if (i % 50 == 49)
			sleep_ms(1);
	}
	w = stranger_packet(&s, VB_RC_WRITE_ONLY, s.l.it.psn, 8);
	struct came c;
	bool got = false;

	for (int i = 0; i < 100 && !got; i++) {
		stranger_say(&s, &w, NULL);
		got = stranger_take(&s, &c, 100);
	}
	CHECK(got);
	WAIT_FOR(vb_ctx(s.d.ctx)->node->io->roce->held_count == 0);
	CHECK(COUNTED(drop_forward) > 500);
	SAME(COUNTED(forwarded), 0);
}

/* --- no socket at all --- */

static void late(int fd, void *arg)
{
	struct dev d;
	struct link l;
	struct mem m;

	setenv("VERBENA_WIRE", "never", 1); /* and so does not wait for it */
	meet_up(fd);
	dev_open(&d);
	mem_make(&m, &d, 65536);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	for (uint64_t i = 0; i < 8; i++)
		post_recv(&l, i, &m, 0, 200);
	link_rtr(&l, &(struct addr){0});
	link_rts(&l);
	tell(fd, &l.me, sizeof(l.me));
	SAME(expect(l.rcq, 0, IBV_WC_SUCCESS).byte_len, 40 + 100);
	meet_up(fd);
}

/* Another program holds the port, so only this host is reachable. A peer may start later. */
static void a_program_that_comes_late_is_found_where_there_is_no_wire(void)
{
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(VB_ROCE_PORT)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct peer p = start(late, NULL);
	struct addr it;
	struct dev d;
	struct link l;
	struct mem m;

	for (int i = 0; bind(fd, (struct sockaddr *)&any, sizeof(any)); i++) { /* an earlier keeper ends */
		CHECK(i < PATIENCE);
		sleep_ms(1);
	}
	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_make(&l, &d, &(struct conf){.type = IBV_QPT_UD});
	link_rtr(&l, &(struct addr){0});
	link_rts(&l);
	struct ibv_ah_attr a = {.is_global = 1,
	                        .port_num = 1,
	                        .grh = {.dgid = d.gid, .sgid_index = (uint8_t)d.gid_index, .hop_limit = 9}};
	struct ibv_ah *ah = ibv_create_ah(d.pd, &a);
	uint32_t next = VB_QP_LANE(l.qp->qp_num) % (VB_LANE_COUNT - 1) + 1; /* lanes are given one after the other */

	CHECK(ah);
	meet_up(p.fd);
	while (!heard(p.fd, 1)) { /* lost while the peer does not exist */
		POST(&l, .op = IBV_WR_SEND, .id = 1, .m = &m, .len = 50, .ah = ah,
		     .qpn = next << VB_LANE_SHIFT | 0x3ffe, .qkey = QKEY);
		expect(l.scq, 1, IBV_WC_SUCCESS);
	}
	hear(p.fd, &it, sizeof(it));
	SAME(VB_QP_LANE(it.qpn), next);
	/* the broker repeats its last answer for a moment, and may have been late */
	for (int i = 0; i < 8 && !heard(p.fd, 4); i++) {
		POST(&l, .op = IBV_WR_SEND, .id = 2, .m = &m, .len = 100, .ah = ah, .qpn = it.qpn, .qkey = QKEY);
		expect(l.scq, 2, IBV_WC_SUCCESS);
	}
	meet_up(p.fd);
	finish(&p);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"the first packets for a program that is not met yet wait for it",
	         the_first_packets_for_a_program_that_is_not_met_yet_wait_for_it},
	        {"a flood for others is bounded", a_flood_for_others_is_bounded},
	        {"a program that comes late is found where there is no wire",
	         a_program_that_comes_late_is_found_where_there_is_no_wire},
	};

	if (!stranger_network()) {
		printf("ok # skipped: no network namespaces here\n");
		return 77;
	}
	return RUN_TESTS(argc, argv, tests);
}
