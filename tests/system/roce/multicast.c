// multicast.c - datagrams to a group, between programs with a socket each
// follows: ibv_attach_mcast(3); annex A17 (RoCEv2), A17.4.3; ip(7) (IP_MULTICAST_ALL)
// SPDX-License-Identifier: MIT
#include "stranger.h"

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/device.h"
#include "engine/local/local.h"
#include "path/roce/roce.h"

#define COUNTED(name) atomic_load(&vb_counters.name)
#define CASTS 10u

static const union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}},
                           other_group = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 4}};

static void cast(struct stranger *s, const union ibv_gid *to, uint32_t n)
{
	struct stranger from = *s;
	int index = (int)vb_ctx(s->d.ctx)->dev->ifindex;
	struct ip_mreqn m = {.imr_ifindex = index};
	struct vb_packet p = stranger_packet(s, VB_UD_SEND_ONLY, n, 50 + n);

	CHECK(!setsockopt(s->raw, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof(m)));
	p.bth.dest_qpn = 0xffffff;
	memcpy(from.here, to->raw, 16);
	memcpy(from.there, s->here, 16); /* the network accepts no address of lo */
	from.there[15] = 9;
	stranger_say(&from, &p, NULL);
}

static void begins(struct stranger *s, uint64_t receives, bool joins)
{
	stranger_meet_at(s, &(struct conf){.type = IBV_QPT_UD}, "roce_cable", "192.0.2.1");
	for (uint64_t i = 0; i < receives; i++)
		post_recv(&s->l, i, &s->m, i * 256, 256);
	if (joins)
		CHECK(!ibv_attach_mcast(s->l.qp, &group, 0));
}

static void member(int fd, void *arg)
{
	struct stranger s;

	begins(&s, 8, arg);
	meet_up(fd);
	if (arg)
		SAME(expect(s.l.rcq, 0, IBV_WC_SUCCESS).byte_len, 40 + 51);
	meet_up(fd);
	expect_none(s.l.rcq, 20); /* once, and nothing for other groups */
	SAME(COUNTED(forwarded), 0);
}

/* The programs have two, one and no queue pairs in the group. */
static void members_of_a_group_each_get_what_is_for_it_once(void)
{
	struct stranger s;
	struct link second;
	struct peer in, out;

	if (system("ip link add cable type veth peer name other && ip addr add 192.0.2.1/24 dev cable && "
	           "ip addr add 192.0.2.9/24 dev cable && ip link set cable up && ip link set other up"))
		skip("no interface with multicast can be made here");
	in = start(member, &(int){1});
	out = start(member, NULL);
	stranger_meet_at(&s, &(struct conf){.type = IBV_QPT_UD}, "roce_cable", "192.0.2.1");
	link_make(&second, &s.d, &(struct conf){.type = IBV_QPT_UD});
	link_rtr(&second, &(struct addr){0});
	link_rts(&second);
	for (uint64_t i = 0; i < 8; i++) {
		post_recv(&s.l, i, &s.m, i * 256, 256);
		post_recv(&second, i, &s.m, 4096 + i * 256, 256);
	}
	CHECK(!ibv_attach_mcast(s.l.qp, &group, 0) && !ibv_attach_mcast(second.qp, &group, 0));
	CHECK(!ibv_attach_mcast(second.qp, &other_group, 0));
	meet_up(in.fd);
	meet_up(out.fd);
	cast(&s, &group, 1);
	SAME(expect(s.l.rcq, 0, IBV_WC_SUCCESS).byte_len, 91);
	SAME(expect(second.rcq, 0, IBV_WC_SUCCESS).byte_len, 91);
	CHECK(!memcmp(s.m.p + 20 + 16, group.raw + 12, 4)); /* the header contains the destination */
	cast(&s, &other_group, 2);
	SAME(expect(second.rcq, 1, IBV_WC_SUCCESS).byte_len, 92);
	CHECK(!ibv_detach_mcast(second.qp, &other_group, 0) && !ibv_detach_mcast(s.l.qp, &group, 0));
	cast(&s, &other_group, 3);
	meet_up(in.fd);
	meet_up(out.fd);
	expect_none(s.l.rcq, 20);
	expect_none(second.rcq, 5);
	SAME(COUNTED(forwarded), 0);
	finish(&in);
	finish(&out);
	CHECK(!system("ip link del cable"));
}

/* How many others this program can pass datagrams on to. */
static unsigned met(const struct stranger *s)
{
	struct vb_node *node = vb_qp(s->l.qp)->node;
	unsigned n = 0;

	for (uint32_t lane = 1; lane < VB_LANE_COUNT; lane++) {
		struct vb_peer *p = atomic_load(&node->peers[lane]);

		n += p && !p->self && vb_peer_alive(p) && vb_peer_ready(p);
	}
	return n;
}

/* From `from` on, in any order: who passes one on may be slower than who reads the next. */
static void takes_each_once(struct ibv_cq *cq, uint32_t from)
{
	bool came[CASTS] = {false};

	for (unsigned i = 0; i < CASTS; i++) {
		struct ibv_wc wc = wait_wc(cq);
		uint32_t n = wc.byte_len - 40 - 50 - from;

		SAME(wc.status, IBV_WC_SUCCESS);
		CHECK(n < CASTS && !came[n]);
		came[n] = true;
	}
}

static void cast_all(struct stranger *s, uint32_t from)
{
	for (uint32_t i = from; i < from + CASTS; i++)
		cast(s, &group, i);
}

static void shares(int fd, void *arg)
{
	struct stranger s;

	begins(&s, 64, arg);
	WAIT_FOR(met(&s) == 3);
	meet_up(fd);
	if (arg)
		takes_each_once(s.l.rcq, 0);
	meet_up(fd);
	if (arg)
		takes_each_once(s.l.rcq, CASTS);
	meet_up(fd);
	expect_none(s.l.rcq, 20);
}

/* VERBENA_LANES: each datagram is read by one of them, in turns nobody knows. The one that leaves the group does not take the
 * others along. */
static void programs_that_share_a_socket_each_get_what_is_for_their_group(void)
{
	struct stranger s;
	struct peer in[2], out;
	char dir[256];

	/* the broker of the case before may still be there, with a socket for each */
	snprintf(dir, sizeof(dir), "%s/few", getenv("VERBENA_RUNTIME"));
	CHECK(!mkdir(dir, 0700) && !setenv("VERBENA_RUNTIME", dir, 1) && stranger_network());
	if (system("ip link add cable type veth peer name other && ip addr add 192.0.2.1/24 dev cable && "
	           "ip addr add 192.0.2.9/24 dev cable && ip link set cable up && ip link set other up"))
		skip("no interface with multicast can be made here");
	setenv("VERBENA_LANES", "2", 1);
	stranger_meet_at(&s, &(struct conf){.type = IBV_QPT_UD}, "roce_cable", "192.0.2.1");
	for (uint64_t i = 0; i < 64; i++)
		post_recv(&s.l, i, &s.m, i * 256, 256);
	CHECK(!ibv_attach_mcast(s.l.qp, &group, 0));
	for (int i = 0; i < 2; i++)
		in[i] = start(shares, &(int){1}); /* they come later, and are in the group, too */
	out = start(shares, NULL);
	WAIT_FOR(met(&s) == 3);
	for (int i = 0; i < 2; i++)
		meet_up(in[i].fd);
	meet_up(out.fd);
	cast_all(&s, 0);
	takes_each_once(s.l.rcq, 0);
	for (int i = 0; i < 2; i++)
		meet_up(in[i].fd);
	meet_up(out.fd);
	CHECK(!ibv_detach_mcast(s.l.qp, &group, 0));
	WAIT_FOR(!system("ip maddr show dev cable | grep -q 239.1.2.3")); /* the socket has come back */
	cast_all(&s, CASTS);
	for (int i = 0; i < 2; i++)
		meet_up(in[i].fd);
	meet_up(out.fd);
	expect_none(s.l.rcq, 20);
	for (int i = 0; i < 2; i++)
		finish(&in[i]);
	finish(&out);
	CHECK(!system("ip link del cable"));
}

static bool cable_in(const char *group_text)
{
	char command[100];

	snprintf(command, sizeof(command), "ip maddr show dev cable | grep -q '%s$'", group_text);
	return !system(command);
}

static void joins_two(int fd, void *arg)
{
	static const union ibv_gid six = {.raw = {0xff, 0x0e, [15] = 0x77}};
	struct stranger s;

	begins(&s, 0, true);
	CHECK(!ibv_attach_mcast(s.l.qp, &six, 0));
	meet_up(fd);
	sleep_ms(PATIENCE);
}

/* The keeper has the socket still. With VERBENA_LANES this program has it, too, and stays in its group. */
static void a_program_that_dies_leaves_its_groups(const char *lanes)
{
	struct stranger s;
	struct peer dies;
	char dir[256];

	snprintf(dir, sizeof(dir), "%s/dies%s", getenv("VERBENA_RUNTIME"), lanes ? lanes : "");
	CHECK(!mkdir(dir, 0700) && !setenv("VERBENA_RUNTIME", dir, 1) && stranger_network());
	if (system("ip link add cable type veth peer name other && ip addr add 192.0.2.1/24 dev cable && "
	           "ip addr add 192.0.2.9/24 dev cable && ip link set cable up && ip link set other up"))
		skip("no interface with multicast can be made here");
	if (lanes)
		setenv("VERBENA_LANES", lanes, 1);
	stranger_meet_at(&s, &(struct conf){.type = IBV_QPT_UD}, "roce_cable", "192.0.2.1");
	for (uint64_t i = 0; i < 64; i++)
		post_recv(&s.l, i, &s.m, i * 256, 256);
	CHECK(!ibv_attach_mcast(s.l.qp, &other_group, 0));
	dies = start(joins_two, NULL);
	meet_up(dies.fd);
	CHECK(cable_in("239.1.2.3") && cable_in("239.1.2.4") && cable_in("ff0e::77"));
	kill_peer(&dies);
	WAIT_FOR(!cable_in("239.1.2.3") && !cable_in("ff0e::77"));
	WAIT_FOR(cable_in("239.1.2.4"));
	cast(&s, &other_group, 1);
	SAME(expect(s.l.rcq, 0, IBV_WC_SUCCESS).byte_len, 91);
	CHECK(!system("ip link del cable"));
}

static void a_program_that_dies_leaves_its_groups_alone(void)
{
	a_program_that_dies_leaves_its_groups(NULL);
}

static void a_program_that_dies_leaves_its_groups_and_not_those_of_others(void)
{
	a_program_that_dies_leaves_its_groups("2");
}

static struct ibv_qp *ready_qp(struct dev *d, struct ibv_cq *cq, uint32_t flags)
{
	struct ibv_qp_init_attr_ex a = {.send_cq = cq,
	                                .recv_cq = cq,
	                                .cap = {8, 8, 1, 1, 0},
	                                .qp_type = IBV_QPT_UD,
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
	                                .pd = d->pd,
	                                .create_flags = flags};
	struct ibv_qp_attr q = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	struct ibv_qp *qp = ibv_create_qp_ex(d->ctx, &a);

	CHECK(qp);
	SAME(ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	q.qp_state = IBV_QPS_RTR;
	SAME(ibv_modify_qp(qp, &q, IBV_QP_STATE), 0);
	q.qp_state = IBV_QPS_RTS;
	SAME(ibv_modify_qp(qp, &q, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	return qp;
}

/* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: another queue pair of the program, which has not set it, is the witness. */
static void a_queue_pair_may_refuse_its_own(void)
{
	struct stranger s;

	if (system("ip link add cable type veth peer name other && ip addr add 192.0.2.1/24 dev cable && "
	           "ip addr add 192.0.2.9/24 dev cable && ip link set cable up && ip link set other up"))
		skip("no interface with multicast can be made here");
	stranger_meet_at(&s, &(struct conf){.type = IBV_QPT_UD}, "roce_cable", "192.0.2.1");
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2]; /* the first one refuses its own */
	struct ibv_ah_attr av = {.is_global = 1,
	                         .port_num = 1,
	                         .grh = {.dgid = group, .sgid_index = (uint8_t)s.d.gid_index, .hop_limit = 1}};
	struct ibv_ah *ah = ibv_create_ah(s.d.pd, &av);

	CHECK(ah);
	for (int i = 0; i < 2; i++) {
		CHECK((cq[i] = ibv_create_cq(s.d.ctx, 16, NULL, NULL, 0)));
		qp[i] = ready_qp(&s.d, cq[i], i ? 0 : IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
		SAME(ibv_attach_mcast(qp[i], &group, 0), 0);
		for (uint64_t k = 0; k < 4; k++) {
			struct ibv_sge sge = {(uintptr_t)s.m.p + 4096 + k * 256, 256, s.m.mr->lkey};
			struct ibv_recv_wr wr = {.wr_id = k, .sg_list = &sge, .num_sge = 1}, *bad;

			SAME(ibv_post_recv(qp[i], &wr, &bad), 0);
		}
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = {(uintptr_t)s.m.p, 10 + (uint32_t)i, s.m.mr->lkey};
		struct ibv_send_wr wr = {.wr_id = 100,
		                         .sg_list = &sge,
		                         .num_sge = 1,
		                         .opcode = IBV_WR_SEND,
		                         .wr.ud = {ah, 0xffffff, QKEY}},
		                   *bad;

		SAME(ibv_post_send(qp[i], &wr, &bad), 0);
		SAME(expect(cq[1], (uint64_t)i, IBV_WC_SUCCESS).byte_len,
		     50 + i); /* so it has passed the first one, too */
	}
	SAME(expect(cq[0], 0, IBV_WC_SUCCESS).byte_len, 51);
	expect_none(cq[0], 5);
	CHECK(!system("ip link del cable"));
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"members of a group each get what is for it, once", members_of_a_group_each_get_what_is_for_it_once},
	        {"programs that share a socket each get what is for their group",
	         programs_that_share_a_socket_each_get_what_is_for_their_group},
	        {"a program that dies leaves its groups", a_program_that_dies_leaves_its_groups_alone},
	        {"a program that dies leaves its groups, and not those of others that share its socket",
	         a_program_that_dies_leaves_its_groups_and_not_those_of_others},
	        {"a queue pair may refuse what it sends to its group", a_queue_pair_may_refuse_its_own},
	};

	setenv("VERBENA_WIRE", "always", 1);
	if (!stranger_network()) {
		printf("ok # skipped: no network namespaces here\n");
		return 77;
	}
	return RUN_TESTS(argc, argv, tests);
}
