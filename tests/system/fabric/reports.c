// reports.c - a program that has subscribed at the subnet manager gets a Report of each trap that an accident causes
// follows: IBA volume 1, 13.4.8.2 (Notice), 13.4.8.3 (InformInfo), 13.4.11 (event forwarding), 14.2.5.1 (traps)
// SPDX-License-Identifier: MIT
// reports VERBENA-FABRIC LEAF: on a fat tree of two switches with two hosts each, where a subnet manager works on host1. It
// runs on host2; LEAF is the switch of host3 and host4, at its ports 1 and 2
#include "member.h"

#include <endian.h>
#include <infiniband/umad.h>
#include <poll.h>
#include <time.h>

#include "../../support/check.h"

enum { MAD = 256, CLASS_SA = 3, CLASS_PERF = 4, REPORT = 6, REPORT_RESP = 0x86, DATA = 56, GSI_QKEY = 0x80010000 };

static struct {
	const char *fabric, *leaf;
	int fd, sa, perf; /* the agents that subscribe, and ask for counters */
	umad_port_t port;
	void *umad;
} t;

/* What a Report says of a trap. */
struct report {
	unsigned trap, issuer;
	const uint8_t *details; /* 54 bytes */
};

static unsigned get16(const uint8_t *p)
{
	return (unsigned)(p[0] << 8 | p[1]);
}

static void put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static void ctl(const char *fmt, const char *node, const char *rest)
{
	char line[512], words[256];

	snprintf(words, sizeof(words), fmt, node, rest);
	snprintf(line, sizeof(line), "%s ctl %s >/dev/null", t.fabric, words);
	SAME(system(line), 0);
}

static unsigned lid_of(const char *node)
{
	char line[512];
	unsigned lid = 0;

	snprintf(line, sizeof(line), "%s ctl show %s | grep -o ' lid [0-9]*' | head -1 | tr -dc 0-9", t.fabric, node);
	FILE *f = popen(line, "r");

	CHECK(f && fscanf(f, "%u", &lid) == 1 && lid);
	pclose(f);
	return lid;
}

/* With a transaction of its own, so that it may be sent while the one before is still waited for. */
static uint8_t *new_mad(int mgmt_class, int version, int method, unsigned attr)
{
	static uint8_t tid;
	uint8_t *mad = umad_get_mad(t.umad);

	memset(t.umad, 0, umad_size() + MAD);
	mad[0] = 1;
	mad[1] = (uint8_t)mgmt_class;
	mad[2] = (uint8_t)version;
	mad[3] = (uint8_t)method;
	mad[15] = ++tid;
	put16(mad + 16, attr);
	return mad;
}

/* --- subscribing --- */

/* All generic traps of all LIDs. Returns the status of the manager's answer. */
static int informs(bool subscribe)
{
	int length = MAD;
	uint8_t *mad = new_mad(CLASS_SA, 2, 2, 3), *info = mad + DATA;

	put16(info + 16, 0xffff); /* LIDRangeBegin */
	info[22] = 1;             /* IsGeneric */
	info[23] = subscribe;
	put16(info + 24, 0xffff); /* Type */
	put16(info + 26, 0xffff); /* TrapNumber */
	info[30] = 1;             /* QPN */
	info[31] = 19;            /* RespTimeValue */
	put16(info + 34, 0xffff); /* ProducerType */
	info[33] = 0xff;
	SAME(umad_set_addr(t.umad, (int)t.port.sm_lid, 1, 0, (int)GSI_QKEY), 0);
	SAME(umad_send(t.fd, t.sa, t.umad, MAD, 1000, 5), 0);
	CHECK(umad_recv(t.fd, t.umad, &length, 10000) == t.sa);
	SAME(umad_status(t.umad), 0);
	return mad[4] << 8 | mad[5];
}

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The next Report within so long; it is answered. False: there is none. */
static bool next_report(struct report *r, int wait_ms)
{
	uint8_t *mad = umad_get_mad(t.umad);
	int length = MAD;

	if (umad_poll(t.fd, wait_ms))
		return false;
	int agent = umad_recv(t.fd, t.umad, &length, 0);
	if (agent != t.sa || umad_status(t.umad) || mad[3] != REPORT)
		return false;
	mad[3] = REPORT_RESP;
	SAME(umad_send(t.fd, t.sa, t.umad, MAD, 0, 0), 0);
	*r = (struct report){
	        .trap = get16(mad + DATA + 4), .issuer = get16(mad + DATA + 6), .details = mad + DATA + 10};
	return true;
}

/* A Report of this trap, from this LID (0: any). What else is reported meanwhile is left. */
static struct report hears(unsigned trap, unsigned issuer)
{
	struct report r;
	long end = now_ms() + LONG_MS;

	while (now_ms() < end)
		if (next_report(&r, 100) && r.trap == trap && (!issuer || r.issuer == issuer))
			return r;
	CHECK_FAILED("no Report of trap %u from LID %u", trap, issuer);
}

static void hears_nothing_more(void)
{
	struct report r;

	while (next_report(&r, 300))
		;
}

/* --- cases --- */

static void a_node_that_goes_and_comes_is_reported(void)
{
	ctl("node %s %s", "host4", "off");
	hears(128, lid_of(t.leaf));
	struct report r = hears(65, 0);
	CHECK(r.details[6] == 0xfe && r.details[7] == 0x80); /* GIDADDR */
	ctl("node %s %s", "host4", "on");
	hears(64, 0);
	hears_nothing_more();
}

static void a_group_that_is_made_and_deleted_is_reported(void)
{
	struct member host = member_start("host3");
	struct order join = {.op = JOIN,
	                     .gid = {.raw = {0xff, 0x12, 0x12, 0x34, [15] = 9}},
	                     .pkey = 0xffff,
	                     .qkey = 0x11111111,
	                     .join_state = 1};

	SAME(member_does(&host, &join).rc, 0);
	struct report r = hears(66, 0);
	CHECK(!memcmp(r.details + 6, join.gid.raw, 16));
	join.op = LEAVE;
	SAME(member_does(&host, &join).rc, 0);
	r = hears(67, 0);
	CHECK(!memcmp(r.details + 6, join.gid.raw, 16));
	member_end(&host);
}

static void a_local_change_is_reported(void)
{
	unsigned host = lid_of("host3");

	ctl("trap %s 1 %s", "host3", "144");
	hears(144, host);
	ctl("describe %s %s", "host3", "\"host3 renamed\"");
	struct report r = hears(144, host);
	SAME(r.details[11] & 1, 1); /* NodeDescriptionChange */
	ctl("describe %s %s", "host3", "\"host3 ib0\"");
	hears(144, host);
}

/* A request for counters that is not answered: of a partition, or with a Q_Key, that the port does not have. */
static void asks_in_vain(unsigned lid, unsigned qkey)
{
	uint8_t *mad = new_mad(CLASS_PERF, 1, 1, 0x12);

	mad[64 + 1] = 1;
	SAME(umad_set_addr(t.umad, (int)lid, 1, 0, (int)qkey), 0);
	SAME(umad_send(t.fd, t.perf, t.umad, MAD, 100, 0), 0);
}

/* 14.2.5.1, traps 257 and 258: LIDADDR1 and 2, KEY, SL, QP1, QP2. */
static void is_of_key(struct report r, unsigned lid, uint32_t key)
{
	SAME(get16(r.details + 2), t.port.base_lid);
	SAME(get16(r.details + 4), lid);
	SAME((uint32_t)get16(r.details + 6) << 16 | get16(r.details + 8), key);
}

static void a_wrong_p_key_is_reported(void)
{
	unsigned lid = lid_of("host3");

	ctl("pkeys %s 1 %s", "host3", "0x9999");
	asks_in_vain(lid, GSI_QKEY);
	is_of_key(hears(257, lid), lid, 0xffff);
	ctl("pkeys %s 1 %s", "host3", "0xffff");
}

static void a_wrong_q_key_is_reported(void)
{
	unsigned lid = lid_of("host3");

	asks_in_vain(lid, 0x12345678);
	is_of_key(hears(258, lid), lid, 0x12345678);
}

static void a_p_key_that_a_switch_stops_is_reported(void)
{
	unsigned lid = lid_of("host3"), leaf = lid_of(t.leaf);

	ctl("pkeys %s 1 %s", t.leaf, "0x9999");
	asks_in_vain(lid, GSI_QKEY);
	struct report r = hears(259, leaf);
	SAME(get16(r.details + 2), t.port.base_lid);
	SAME(get16(r.details + 4), lid);
	SAME(get16(r.details + 6), 0xffff);
	ctl("pkeys %s 1 %s", t.leaf, "0xffff");
}

static void who_has_cancelled_gets_no_more(void)
{
	struct report r;

	hears_nothing_more();
	SAME(informs(false), 0);
	ctl("trap %s 1 %s", "host3", "144");
	CHECK(!next_report(&r, 500));
}

int main(int argc, char **argv)
{
	long methods[2] = {1 << REPORT};

	CHECK(argc == 3);
	t.fabric = argv[1];
	t.leaf = argv[2];
	t.fd = umad_open_port(NULL, 1);
	t.umad = umad_alloc(1, umad_size() + MAD);
	CHECK(t.fd >= 0 && t.umad && !umad_get_port(NULL, 1, &t.port));
	t.sa = umad_register(t.fd, CLASS_SA, 2, 0, methods);
	t.perf = umad_register(t.fd, CLASS_PERF, 1, 0, NULL);
	CHECK(t.sa >= 0 && t.perf >= 0);
	SAME(informs(true), 0);
	RUN(a_node_that_goes_and_comes_is_reported);
	RUN(a_group_that_is_made_and_deleted_is_reported);
	RUN(a_local_change_is_reported);
	RUN(a_wrong_p_key_is_reported);
	RUN(a_wrong_q_key_is_reported);
	RUN(a_p_key_that_a_switch_stops_is_reported);
	RUN(who_has_cancelled_gets_no_more);
	umad_release_port(&t.port);
	umad_close_port(t.fd);
	umad_free(t.umad);
	return 0;
}
