// rule_test.c - rules of fault injection: which make sense, and what they act on
// see: man/verbena-fault.1
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "fault/rule.h"

#include <infiniband/verbs.h>

static struct vb_fault_rule rule_of(const char *text)
{
	struct vb_fault_rule r;
	struct vb_fault_error err;

	if (!vb_fault_parse(text, strlen(text), &r, &err))
		CHECK_FAILED("\"%s\" is refused: %s", text, err.text);
	vb_fault_begin(&r, 1, 1000, 5);
	return r;
}

static void refused(const char *text, size_t at, const char *why)
{
	struct vb_fault_rule r;
	struct vb_fault_error err;

	if (vb_fault_parse(text, strlen(text), &r, &err))
		CHECK_FAILED("\"%s\" is accepted", text);
	if (err.at != at || !strstr(err.text, why))
		CHECK_FAILED("\"%s\": at %zu: %s", text, err.at, err.text);
}

static void each_action_with_its_keys_is_accepted(void)
{
	static const char *const rules[] = {
	        "drop",
	        "drop p=0.05 seed=1",
	        "drop p=5% dir=rx",
	        "drop dir=both opcode=RC_ACK",
	        "duplicate every=3",
	        "reorder p=0.1 count=7",
	        "corrupt nth=9 icrc=new",
	        "delay=1.5ms path=iwarp",
	        "delay=10us opcode=SEND opcode=WRITE",
	        "rate=100M device=roce_eth0",
	        "rate=1000",
	        "cut path=iwarp after=2s",
	        "cut nth=100",
	        "wc=RETRY_EXC_ERR op=SEND",
	        "wc=IBV_WC_REM_ACCESS_ERR op=READ qp=0x1234",
	        "cq_overflow nth=4",
	        "qp_fatal nth=1 device=roce_lo",
	        "wc=LOC_PROT_ERR op=RECV",
	        "port=down after=1s for=500ms",
	        "port=up after=3s",
	        "device=remove device=roce_lo after=1s",
	        "cm=reject",
	        "cm=reject=28 peer=10.0.0.1",
	        "cm=ignore count=2",
	        "reg=ENOMEM",
	        "create_qp=ENOSPC nth=3",
	        "alloc_pd=EAGAIN",
	        "post_send=ENOMEM every=100",
	        "drop peer=fe80::1",
	        "\tdrop  p=1 ",
	};

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		rule_of(rules[i]);
}

static void the_values_are_those_that_were_given(void)
{
	struct vb_fault_rule r = rule_of("delay=1.5ms after=2s for=100us qp=0x12 count=3 p=25% seed=9 dir=both");

	SAME(r.value, 1500000);
	SAME(r.after, 2000000000);
	SAME(r.lasts, 100000);
	SAME(r.qpn, 0x12);
	SAME(r.count, 3);
	CHECK(r.p == 0.25);
	SAME(r.seed, 9);
	SAME(r.dirs, VB_FAULT_TX | VB_FAULT_RX);
	SAME(rule_of("rate=2.5G").value, 2500000000);
	SAME(rule_of("wc=rem_access_err").value, IBV_WC_REM_ACCESS_ERR);
	SAME(rule_of("reg=ENOMEM").value, ENOMEM);
	SAME(rule_of("cm=reject").value, 28);
	SAME(rule_of("cm=ignore").value, VB_FAULT_CM_IGNORE);
	SAME(rule_of("drop").dirs, VB_FAULT_TX);
}

static void a_rule_that_makes_no_sense_is_refused_where_it_is_wrong(void)
{
	refused("", 0, "empty");
	refused("drip", 0, "there is no such action: allowed are drop");
	refused("drop=1", 0, "takes no value");
	refused("delay", 0, "needs a value");
	refused("delay=5", 0, "a number and a unit");
	refused("delay=0ms", 0, "more than 0");
	refused("drop q=1", 5, "there is no such key: drop takes dir=");
	refused("drop p=2", 5, "from 0 to 1");
	refused("drop p=nan", 5, "from 0 to 1");
	refused("drop p=-1", 5, "from 0 to 1");
	refused("drop p=101%", 5, "from 0 to 1");
	refused("drop p=0.1 p=0.2", 11, "given twice");
	refused("drop every=0", 5, "from 1");
	refused("drop every=3 nth=2", 0, "only one of");
	refused("drop every=3 seed=2", 0, "seed= needs p=");
	refused("drop nth=3 count=2", 0, "contradict");
	refused("drop dir=up", 5, "tx, rx or both");
	refused("drop opcode=SENDS", 5, "an opcode is SEND");
	refused("drop qp=0x1000000", 5, "from 0 to 0xffffff");
	refused("drop peer=host", 5, "in figures");
	refused("drop device=a/b", 5, "a device is a name");
	refused("drop icrc=new", 5, "drop does not take icrc=");
	refused("corrupt icrc=old", 8, "stale or new");
	refused("drop op=SEND", 5, "drop does not take op=");
	refused("drop path=iwarp", 0, "TCP would repair it");
	refused("drop device=iwarp_lo", 0, "TCP would repair it");
	refused("cut path=local", 0, "no connection of TCP");
	refused("cut path=roce", 0, "is for iWARP");
	refused("corrupt path=local icrc=new", 0, "contradict");
	refused("delay=1ms path=local dir=rx", 0, "dir=rx is for RoCE");
	refused("drop opcode=RC_ACK path=local", 0, "contradict");
	refused("wc=SUCCESS", 0, "a status is LOC_LEN_ERR");
	refused("wc=RETRY_EXC_ERR op=ACK", 17, "op is SEND");
	refused("wc=RETRY_EXC_ERR dir=tx", 17, "wc does not take dir=");
	refused("reg=EWHAT", 0, "reg is ENOMEM");
	refused("drop opcode=RECV", 5, "an opcode is SEND");
	refused("rate=1", 0, "from 1k");
	refused("rate=9999999G", 0, "from 1k");
	refused("port=sideways", 0, "down or up");
	refused("port=down every=2", 10, "port does not take every=");
	refused("port=up for=1s", 0, "takes no for=");
	refused("device=remove for=1s", 0, "does not come back");
	refused("cm=maybe", 0, "reject=REASON");
	refused("cm=reject=0", 0, "reject=REASON");
	refused("drop after=99999999999s", 5, "a time is");
	refused("drop count=18446744073709551616", 5, "whole number");
	refused("drop\np=1", 4, "one line");
}

static bool acts(struct vb_fault_rule *r, uint64_t now)
{
	const struct vb_fault_subject s = {.path = VB_FAULT_ROCE, .dir = VB_FAULT_TX, .opcode = 4, .device = "roce_lo"};

	return vb_fault_hits(r, &s, now);
}

static void every_nth_and_count_are_counted(void)
{
	struct vb_fault_rule every = rule_of("drop every=3 count=2"), nth = rule_of("drop nth=4"),
	                     all = rule_of("drop count=2");

	for (int i = 1; i <= 20; i++) {
		SAME(acts(&every, 1000), i == 3 || i == 6);
		SAME(acts(&nth, 1000), i == 4);
		SAME(acts(&all, 1000), i <= 2);
	}
	SAME(every.hits, 2);
	SAME(every.recent[1], 6);
}

static void one_seed_gives_one_list_of_hits(void)
{
	struct vb_fault_rule a = rule_of("drop p=0.3 seed=42"), b = rule_of("drop p=0.3 seed=42"),
	                     c = rule_of("drop p=0.3 seed=43");
	unsigned hits = 0, other = 0;

	for (int i = 0; i < 10000; i++) {
		bool hit = acts(&a, 1000);

		SAME(acts(&b, 1000), hit);
		hits += hit;
		other += acts(&c, 1000) != hit;
	}
	CHECK(hits > 2700 && hits < 3300);
	CHECK(other > 1000);
}

static void probabilities_0_and_1_are_never_and_always(void)
{
	struct vb_fault_rule never = rule_of("drop p=0"), always = rule_of("drop p=1 seed=0");

	for (int i = 0; i < 1000; i++) {
		CHECK(!acts(&never, 1000));
		CHECK(acts(&always, 1000));
	}
}

static void after_and_for_bound_the_time(void)
{
	struct vb_fault_rule r = rule_of("drop after=1us for=2us");

	CHECK(!acts(&r, 1000));
	CHECK(!acts(&r, 1999));
	CHECK(acts(&r, 2000));
	CHECK(acts(&r, 3999));
	CHECK(!acts(&r, 4000));
	CHECK(!acts(&r, 0)); /* a clock that is behind */
	SAME(r.seen, 2);
}

static bool acts_on(const char *text, struct vb_fault_subject s)
{
	struct vb_fault_rule r = rule_of(text);

	return vb_fault_hits(&r, &s, 1000);
}

static void each_key_limits_the_rule(void)
{
	static const uint8_t peer[16] = {[10] = 0xff, 0xff, 10, 0, 0, 1};
	const struct vb_fault_subject s = {.path = VB_FAULT_ROCE,
	                                   .dir = VB_FAULT_TX,
	                                   .kind = VB_FAULT_KIND_WRITE,
	                                   .opcode = 0x0a,
	                                   .qpn = 0x123456,
	                                   .peer = peer,
	                                   .device = "roce_lo"};

	CHECK(acts_on("drop", s));
	CHECK(acts_on("drop dir=tx path=roce opcode=WRITE qp=0x123456 peer=10.0.0.1 device=roce_lo", s));
	CHECK(acts_on("drop opcode=RC_WRITE_ONLY", s));
	CHECK(!acts_on("drop dir=rx", s));
	CHECK(!acts_on("delay=1ms path=iwarp", s));
	CHECK(!acts_on("drop path=local", s));
	CHECK(!acts_on("drop opcode=SEND", s));
	CHECK(acts_on("drop opcode=SEND opcode=WRITE", s));
	CHECK(!acts_on("drop opcode=RC_WRITE_FIRST", s));
	CHECK(!acts_on("drop qp=1", s));
	CHECK(!acts_on("drop peer=10.0.0.2", s));
	CHECK(!acts_on("drop peer=::1", s));
	CHECK(!acts_on("drop device=roce_eth0", s));
}

static void a_rate_spaces_what_it_passes(void)
{
	struct vb_fault_rule r = rule_of("rate=8M"); /* a byte in a microsecond */

	SAME(vb_fault_pace(&r, 1000, 5000), 0);
	SAME(vb_fault_pace(&r, 1000, 5000), 1000000);
	SAME(vb_fault_pace(&r, 1, 1005000), 1000000);
	SAME(vb_fault_pace(&r, 1, 90000000), 0);
}

int main(void)
{
	RUN(each_action_with_its_keys_is_accepted);
	RUN(the_values_are_those_that_were_given);
	RUN(a_rule_that_makes_no_sense_is_refused_where_it_is_wrong);
	RUN(every_nth_and_count_are_counted);
	RUN(one_seed_gives_one_list_of_hits);
	RUN(probabilities_0_and_1_are_never_and_always);
	RUN(after_and_for_bound_the_time);
	RUN(each_key_limits_the_rule);
	RUN(a_rate_spaces_what_it_passes);
	return 0;
}
