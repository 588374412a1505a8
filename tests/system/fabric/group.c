// group.c - multicast on a simulated fabric, and partitions that change, between programs on its hosts
// follows: IBA volume 1, 10.5 (multicast), 10.9 (partitions), 16.1.4.11 (PortCountersExtended); ibv_attach_mcast(3)
// SPDX-License-Identifier: MIT
// group VERBENA-FABRIC: on a fat tree of two switches with two hosts each, where a subnet manager works and the partition
// 0x1234 has host1 and host2 as full members, host3 and host4 as limited ones
#include "member.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>

#include "../../support/check.h"

#define QKEY 0x11111111u

static struct {
	const char *fabric;
	struct member host[5]; /* from 1 on; [0]: a second program on host3 */
	unsigned qp[5];        /* of each: UD, in the default partition */
	uint16_t mlid;
} t;

static const union ibv_gid group = {.raw = {0xff, 0x12, 0x12, 0x34, [15] = 1}},
                           blue = {.raw = {0xff, 0x12, 0x12, 0x34, [15] = 2}},
                           nobody = {.raw = {0xff, 0x12, 0x12, 0x34, [15] = 3}};

static struct reply does(int host, struct order o)
{
	return member_does(&t.host[host], &o);
}

static struct reply casts(int host, const char *text, struct order o)
{
	o.op = SEND;
	o.lid = o.lid ? o.lid : t.mlid;
	o.gid = o.gid.raw[0] ? o.gid : group;
	o.qkey = o.qkey ? o.qkey : QKEY;
	o.qpn = 0xffffff;
	o.count = o.count ? o.count : 1;
	o.length = (uint32_t)strlen(text) + 1;
	strcpy(o.text, text);
	struct reply r = does(host, o);

	SAME(r.rc, IBV_WC_SUCCESS); /* UD: even if nobody hears it */
	return r;
}

static struct reply hears(int host, const char *text)
{
	struct reply r = does(host, (struct order){.op = TAKE, .wait_ms = LONG_MS});

	if (r.rc || r.wc.status || strcmp(r.text, text) != 0)
		CHECK_FAILED("host %d hears %s \"%s\", not \"%s\"", host, r.rc ? "nothing" : "", r.text, text);
	return r;
}

/* What comes later proves that nothing has come before: a datagram that all hosts of `heard` get. */
static void hears_nothing(int host)
{
	struct reply r = does(host, (struct order){.op = TAKE, .wait_ms = 30});

	if (!r.rc)
		CHECK_FAILED("host %d hears \"%s\"", host, r.text);
}

/* The manager answers a join before it has written the switches' tables: datagrams arrive some time later. */
static void is_routed(int from, int to, uint16_t mlid, union ibv_gid gid, unsigned qp)
{
	static int n;
	char text[32];
	struct reply r = {.rc = 1};

	snprintf(text, sizeof(text), "routed? %d", ++n);
	for (int i = 0; i < LONG_MS / 20 && r.rc; i++) {
		casts(from, text, (struct order){.lid = mlid, .gid = gid, .qp = qp});
		r = does(to, (struct order){.op = TAKE, .wait_ms = 20});
	}
	SAME(r.rc, 0);
	while (!does(to, (struct order){.op = TAKE, .wait_ms = 60}).rc)
		;
}

static void drains(int host)
{
	while (!does(host, (struct order){.op = TAKE, .wait_ms = 60}).rc)
		;
}

static void joins(int host, const union ibv_gid *gid, uint16_t pkey, uint16_t *mlid)
{
	struct reply r =
	        does(host, (struct order){.op = JOIN, .gid = *gid, .pkey = pkey, .qkey = QKEY, .join_state = 1});

	SAME(r.rc, 0);
	CHECK(r.lid >= 0xc000 && r.lid != 0xffff);
	*mlid = r.lid;
}

static void ctl(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "%s ctl %s >/dev/null", t.fabric, command);
	SAME(system(line), 0);
}

static unsigned long counter_of(const char *port, const char *name)
{
	char line[512];
	unsigned long n = 0;

	snprintf(line, sizeof(line), "%s ctl counters %s | awk '$1 == \"%s\" { print $2 }'", t.fabric, port, name);
	FILE *f = popen(line, "r");

	CHECK(f && fscanf(f, "%lu", &n) == 1);
	pclose(f);
	return n;
}

/* --- cases --- */

static void members_on_both_switches_hear_a_member(void)
{
	for (int host = 1; host <= 3; host++) {
		joins(host, &group, 0xffff, &t.mlid);
		SAME(does(host, (struct order){.op = ATTACH, .qp = t.qp[host], .gid = group, .lid = t.mlid}).rc, 0);
	}
	/* attached, but its port is no member */
	SAME(does(4, (struct order){.op = ATTACH, .qp = t.qp[4], .gid = group, .lid = t.mlid}).rc, 0);
	is_routed(1, 2, t.mlid, group, t.qp[1]);
	is_routed(1, 3, t.mlid, group, t.qp[1]);
	drains(1);
	drains(2);
	casts(1, "hello", (struct order){0});
	hears(2, "hello");
	hears(3, "hello");
	hears(1, "hello"); /* the sender is attached too */
	for (int host = 1; host <= 4; host++)
		hears_nothing(host);
}

static void a_receive_says_who_sent_it_and_how(void)
{
	struct reply port = does(1, (struct order){.op = PORT}), r;

	casts(1, "how", (struct order){.imm = 77});
	r = hears(3, "how");
	SAME(r.wc.byte_len, 40 + 4);
	CHECK(r.wc.wc_flags & IBV_WC_GRH && r.wc.wc_flags & IBV_WC_WITH_IMM);
	SAME(ntohl(r.wc.imm_data), 77);
	SAME(r.wc.slid, port.lid);
	SAME(r.wc.sl, 1);
	CHECK(!memcmp(r.grh, (uint8_t[]){0x60, 0x51, 0x23, 0x45, 0, 32, 0x1b, 3}, 8));
	CHECK(!memcmp(r.grh + 24, group.raw, 16));
	drains(1);
	drains(2);
}

static void a_port_that_joins_hears_and_one_that_leaves_does_not(void)
{
	const struct order leave = {.op = LEAVE, .gid = group, .join_state = 1};
	struct reply r = {0};
	uint16_t mlid;

	joins(4, &group, 0xffff, &mlid);
	SAME(mlid, t.mlid);
	is_routed(1, 4, t.mlid, group, t.qp[1]);
	SAME(does(4, leave).rc, 0);
	for (int i = 0; i < LONG_MS / 20 && !r.rc; i++) { /* until the manager has taken it out of the tables */
		casts(1, "gone?", (struct order){0});
		r = does(4, (struct order){.op = TAKE, .wait_ms = 20});
	}
	SAME(r.rc, 1);
	for (int host = 1; host <= 3; host++)
		drains(host);
}

static void all_queue_pairs_of_a_port_hear_it_once(void)
{
	unsigned more[2];

	for (int i = 0; i < 2; i++) {
		more[i] = does(3, (struct order){.op = MAKE, .type = IBV_QPT_UD, .qkey = QKEY}).qp;
		SAME(does(3, (struct order){.op = ATTACH, .qp = more[i], .gid = group, .lid = t.mlid}).rc, 0);
	}
	SAME(does(3, (struct order){.op = ATTACH, .qp = more[1], .gid = group, .lid = t.mlid}).rc, 0); /* again */
	SAME(does(0, (struct order){.op = ATTACH, .qp = t.qp[0], .gid = group, .lid = t.mlid}).rc, 0);
	casts(3, "all of you", (struct order){.qp = more[0]});
	unsigned heard = 1u << hears(3, "all of you").qp;

	heard |= 1u << hears(3, "all of you").qp;
	heard |= 1u << hears(3, "all of you").qp;
	SAME(heard, 1u << t.qp[3] | 1u << more[0] | 1u << more[1]);
	hears(0, "all of you");
	hears(1, "all of you");
	hears(2, "all of you");
	for (int host = 0; host <= 3; host++)
		hears_nothing(host);
	for (int i = 0; i < 2; i++)
		SAME(does(3, (struct order){.op = DETACH, .qp = more[i], .gid = group, .lid = t.mlid}).rc, 0);
	SAME(does(0, (struct order){.op = DETACH, .qp = t.qp[0], .gid = group, .lid = t.mlid}).rc, 0);
	casts(1, "fewer", (struct order){0});
	SAME(hears(3, "fewer").qp, t.qp[3]);
	hears(2, "fewer");
	hears_nothing(3);
	hears_nothing(0);
	drains(1);
}

/* Those of others it hears, and others hear it. */
static void a_queue_pair_may_refuse_its_own(void)
{
	unsigned qp =
	        does(3,
	             (struct order){
	                     .op = MAKE, .type = IBV_QPT_UD, .qkey = QKEY, .flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB})
	                .qp;

	SAME(does(3, (struct order){.op = ATTACH, .qp = qp, .gid = group, .lid = t.mlid}).rc, 0);
	casts(3, "from itself", (struct order){.qp = qp});
	SAME(hears(3, "from itself").qp, t.qp[3]);
	hears(1, "from itself");
	hears(2, "from itself");
	casts(1, "from another", (struct order){0});
	unsigned heard = 1u << hears(3, "from another").qp;

	heard |= 1u << hears(3, "from another").qp;
	SAME(heard, 1u << t.qp[3] | 1u << qp);
	for (int host = 1; host <= 3; host++)
		drains(host);
	SAME(does(3, (struct order){.op = DETACH, .qp = qp, .gid = group, .lid = t.mlid}).rc, 0);
}

static void what_is_not_for_the_group_is_dropped(void)
{
	uint32_t before = does(2, (struct order){.op = PORT}).violations;

	casts(1, "a wrong Q_Key", (struct order){.qkey = QKEY + 1});
	casts(1, "a wrong MGID", (struct order){.gid = nobody});
	casts(1, "an MLID that no table has", (struct order){.lid = t.mlid + 100});
	casts(1, "an MLID beyond the tables", (struct order){.lid = 0xfffe});
	casts(1, "right", (struct order){0});
	hears(2, "right");
	hears(3, "right");
	hears(1, "right");
	SAME(does(2, (struct order){.op = PORT}).violations, before + 1);
	for (int host = 1; host <= 3; host++)
		hears_nothing(host);
}

static void wrong_attachments_are_refused(void)
{
	unsigned rc = does(4, (struct order){.op = MAKE, .type = IBV_QPT_RC}).qp;
	struct order o = {.op = ATTACH, .qp = t.qp[4], .gid = group, .lid = 0xbfff};

	SAME(does(4, o).rc, EINVAL);
	o.lid = 0xffff;
	SAME(does(4, o).rc, EINVAL);
	o.lid = t.mlid;
	o.gid.raw[0] = 0xfe;
	SAME(does(4, o).rc, EINVAL);
	o.gid.raw[0] = 0xff;
	o.qp = rc;
	SAME(does(4, o).rc, EINVAL);
	o = (struct order){.op = DETACH, .qp = t.qp[4], .gid = group, .lid = t.mlid + 1};
	SAME(does(4, o).rc, EINVAL);
	o.lid = t.mlid;
	SAME(does(4, o).rc, 0);
	SAME(does(4, o).rc, EINVAL);
}

static void limited_members_hear_only_full_ones(void)
{
	uint16_t mlid;
	unsigned qp[4];

	for (int host = 1; host <= 3; host++) { /* host1 is full, host3 limited; both have the key at index 1 */
		qp[host] = does(host, (struct order){.op = MAKE, .type = IBV_QPT_UD, .qkey = QKEY, .pkey_index = 1}).qp;
		joins(host, &blue, host < 3 ? 0x9234 : 0x1234, &mlid);
		SAME(does(host, (struct order){.op = ATTACH, .qp = qp[host], .gid = blue, .lid = mlid}).rc, 0);
	}
	qp[0] = does(0, (struct order){.op = MAKE, .type = IBV_QPT_UD, .qkey = QKEY, .pkey_index = 1}).qp;
	SAME(does(0, (struct order){.op = ATTACH, .qp = qp[0], .gid = blue, .lid = mlid}).rc, 0);
	is_routed(1, 3, mlid, blue, qp[1]);
	is_routed(3, 1, mlid, blue, qp[3]);
	for (int host = 0; host <= 3; host++)
		drains(host);
	casts(3, "from a limited member", (struct order){.lid = mlid, .gid = blue, .qp = qp[3]});
	hears(1, "from a limited member");
	hears(2, "from a limited member");
	hears_nothing(0); /* limited too, on the same port */
	hears_nothing(3);
	casts(1, "from the default partition", (struct order){.lid = mlid, .gid = blue, .qp = t.qp[1]});
	casts(1, "from a full member", (struct order){.lid = mlid, .gid = blue, .qp = qp[1]});
	for (int host = 0; host <= 3; host++)
		hears(host, "from a full member");
	for (int host = 0; host <= 3; host++)
		hears_nothing(host);
}

static void ports_count_multicast_packets(void)
{
	unsigned long sent = counter_of("host1 1", "multicast_xmit"), got = counter_of("host3 1", "multicast_rcv"),
	              words = counter_of("host3 1", "rcv_data"), unicast = counter_of("host3 1", "unicast_rcv");

	casts(1, "counted", (struct order){.count = 10});
	for (int i = 0; i < 10; i++)
		hears(3, "counted");
	SAME(counter_of("host1 1", "multicast_xmit"), sent + 10);
	SAME(counter_of("host3 1", "multicast_rcv"), got + 10);
	SAME(counter_of("host3 1", "rcv_data"), words + 10 * (8 + 40 + 12 + 8 + 8 + 4) / 4);
	SAME(counter_of("host3 1", "unicast_rcv"), unicast);
	drains(1);
	drains(2);
}

static void a_burst_completes_and_what_arrives_is_whole(void)
{
	char text[1500];
	int heard = 0;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	casts(1, text, (struct order){.count = 3000});
	for (struct reply r; !(r = does(2, (struct order){.op = TAKE, .wait_ms = 100})).rc; heard++)
		CHECK(!r.wc.status && !strcmp(r.text, text));
	CHECK(heard >= 100); /* as many as it had receives, or more */
	for (int host = 1; host <= 3; host++)
		drains(host);
}

static void a_cut_host_hears_nothing_until_it_is_routed_again(void)
{
	ctl("link host3 1 down");
	casts(1, "cut", (struct order){0});
	hears(2, "cut");
	hears_nothing(3);
	ctl("link host3 1 up");
	is_routed(1, 2, t.mlid, group, t.qp[1]);
	for (int host = 1; host <= 3; host++)
		drains(host);
}

/* --- partitions that change --- */

struct two {
	unsigned qp[2];
	uint32_t qpn[2];
};

/* Queue pairs of host1 and host2, by the key at index 1. */
static struct two connect_two(uint32_t type)
{
	struct two c;
	uint16_t lid[2];

	for (int i = 0; i < 2; i++) {
		struct reply r = does(1 + i, (struct order){.op = MAKE, .type = type, .qkey = QKEY, .pkey_index = 1});

		c.qp[i] = r.qp;
		c.qpn[i] = r.qpn;
		lid[i] = does(1 + i, (struct order){.op = PORT}).lid;
	}
	for (int i = 0; i < 2 && type != IBV_QPT_UD; i++)
		does(1 + i, (struct order){.op = CONNECT, .qp = c.qp[i], .qpn = c.qpn[!i], .lid = lid[!i]});
	return c;
}

static int says(const struct two *c, const char *text)
{
	struct order o = {.op = SEND,
	                  .qp = c->qp[0],
	                  .qpn = c->qpn[1],
	                  .lid = does(2, (struct order){.op = PORT}).lid,
	                  .qkey = QKEY,
	                  .count = 1,
	                  .length = (uint32_t)strlen(text) + 1};

	strcpy(o.text, text);
	return does(1, o).rc;
}

/* The other port stays a member, and so the way is open: the queue pair alone is in another partition. */
static void a_queue_pair_that_changes_its_partition_is_left_alone(void)
{
	struct two rc = connect_two(IBV_QPT_RC), uc = connect_two(IBV_QPT_UC), ud = connect_two(IBV_QPT_UD);
	const struct two *of[] = {&ud, &uc, &rc};

	for (int i = 0; i < 3; i++) {
		SAME(says(of[i], "together"), IBV_WC_SUCCESS);
		hears(2, "together");
	}
	ctl("pkeys host2 1 0xffff 0x9235 0x9234");
	poll(NULL, 0, 200); /* until its program knows */
	SAME(says(&ud, "apart"), IBV_WC_SUCCESS);
	SAME(says(&uc, "apart"), IBV_WC_SUCCESS);
	SAME(says(&rc, "apart"), IBV_WC_RETRY_EXC_ERR);
	hears_nothing(2);
	ctl("pkeys host2 1 0xffff 0x9234");
	poll(NULL, 0, 200);
	SAME(says(&ud, "together again"), IBV_WC_SUCCESS);
	hears(2, "together again");
	SAME(says(&uc, "together again"), IBV_WC_SUCCESS);
	hears(2, "together again");
}

static void a_port_that_leaves_a_partition_is_cut_off(void)
{
	struct two rc = connect_two(IBV_QPT_RC), uc = connect_two(IBV_QPT_UC), ud = connect_two(IBV_QPT_UD);

	SAME(says(&rc, "in it"), IBV_WC_SUCCESS);
	hears(2, "in it");
	ctl("pkeys host2 1 0xffff");
	poll(NULL, 0, 200);
	SAME(says(&ud, "out"), IBV_WC_SUCCESS);
	SAME(says(&uc, "out"), IBV_WC_SUCCESS);
	SAME(says(&rc, "out"), IBV_WC_RETRY_EXC_ERR);
	hears_nothing(2);
	ctl("pkeys host2 1 0xffff 0x9234");
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	t.fabric = argv[1];
	for (int i = 0; i < 5; i++) {
		char node[] = "host1";

		node[4] = (char)('0' + (i ? i : 3));
		t.host[i] = member_start(node);
	}
	for (int i = 0; i < 5; i++)
		t.qp[i] = does(i, (struct order){.op = MAKE, .type = IBV_QPT_UD, .qkey = QKEY}).qp;
	RUN(members_on_both_switches_hear_a_member);
	RUN(a_receive_says_who_sent_it_and_how);
	RUN(a_port_that_joins_hears_and_one_that_leaves_does_not);
	RUN(all_queue_pairs_of_a_port_hear_it_once);
	RUN(a_queue_pair_may_refuse_its_own);
	RUN(what_is_not_for_the_group_is_dropped);
	RUN(wrong_attachments_are_refused);
	RUN(limited_members_hear_only_full_ones);
	RUN(ports_count_multicast_packets);
	RUN(a_burst_completes_and_what_arrives_is_whole);
	RUN(a_cut_host_hears_nothing_until_it_is_routed_again);
	RUN(a_queue_pair_that_changes_its_partition_is_left_alone);
	RUN(a_port_that_leaves_a_partition_is_cut_off);
	for (int i = 0; i < 5; i++)
		member_end(&t.host[i]);
	return 0;
}
