// crowd.c - eight members of a group on four switches, one of which stops: the others hear all, in order and whole
// follows: IBA volume 1, 10.5 (multicast); docs/infiniband.md, "Queue pairs"
// SPDX-License-Identifier: MIT
// crowd: on a fat tree of four switches with two hosts each, host1 to host8, where a subnet manager works
#include "member.h"

#include <signal.h>

#include "../../support/check.h"

#define QKEY 0x11111111u

enum {
	HOSTS = 8,
	SLOW = HOSTS - 1, /* the one that stops, last of all */
	BURST = 32,       /* fewer than a member has receives */
	BURSTS = 40,      /* with 2,000 bytes each they are more than is kept for a program that does not read */
	LENGTH = 2000
};

static struct member host[HOSTS];
static unsigned qp[HOSTS];
static uint16_t mlid;
static const union ibv_gid group = {.raw = {0xff, 0x12, 0x12, 0x34, [15] = 8}};

static struct reply does(int i, struct order o)
{
	return member_does(&host[i], &o);
}

/* The text has its number in front, and bytes that follow from it. */
static void write_text(char text[LENGTH], unsigned number)
{
	int n = snprintf(text, LENGTH, "%u ", number);

	for (int i = n; i < LENGTH; i++)
		text[i] = (char)('a' + (number + (unsigned)i) % 26);
}

static void casts(unsigned number)
{
	struct order o = {.op = SEND,
	                  .lid = mlid,
	                  .gid = group,
	                  .qp = qp[0],
	                  .qkey = QKEY,
	                  .qpn = 0xffffff,
	                  .count = 1,
	                  .length = LENGTH};

	write_text(o.text, number);
	SAME(does(0, o).rc, IBV_WC_SUCCESS);
}

/* The number of the next message. False: there is none for so long. */
static bool hears(int i, int wait_ms, unsigned *number)
{
	struct reply r = does(i, (struct order){.op = TAKE, .wait_ms = wait_ms});
	char text[LENGTH];

	if (r.rc)
		return false;
	SAME(r.wc.status, IBV_WC_SUCCESS);
	SAME(r.wc.byte_len, 40 + LENGTH);
	*number = (unsigned)strtoul(r.text, NULL, 10);
	write_text(text, *number);
	if (memcmp(text, r.text, LENGTH) != 0)
		CHECK_FAILED("host %d: message %u is not as it was sent", i + 1, *number);
	return true;
}

static void join(int i)
{
	struct reply r = does(i, (struct order){.op = MAKE, .type = IBV_QPT_UD, .qkey = QKEY});

	qp[i] = r.qp;
	r = does(i, (struct order){.op = JOIN, .gid = group, .pkey = 0xffff, .qkey = QKEY, .join_state = 1});
	SAME(r.rc, 0);
	mlid = r.lid;
	SAME(does(i, (struct order){.op = ATTACH, .qp = qp[i], .gid = group, .lid = mlid}).rc, 0);
}

/* The manager answers joins before it has written all tables. Returns the next number. */
static unsigned all_are_routed(void)
{
	unsigned n = 0, heard, all = 0;

	for (int tries = 0; tries < LONG_MS / 50 && all != (1 << HOSTS) - 1; tries++) {
		all = 0;
		casts(++n);
		for (int i = 0; i < HOSTS; i++)
			while (hears(i, 50, &heard))
				all |= (heard == n) << i;
	}
	SAME(all, (1 << HOSTS) - 1);
	return n + 1;
}

static unsigned next;

static void the_others_hear_all_while_a_member_is_stopped(void)
{
	SAME(kill(host[SLOW].pid, SIGSTOP), 0);
	for (unsigned burst = 0; burst < BURSTS; burst++, next += BURST) {
		for (unsigned i = 0; i < BURST; i++)
			casts(next + i);
		for (int h = 0; h < SLOW; h++)
			for (unsigned i = 0, heard; i < BURST; i++) {
				if (!hears(h, LONG_MS, &heard) || heard != next + i)
					CHECK_FAILED("host %d does not hear message %u", h + 1, next + i);
			}
	}
}

static void a_member_that_was_stopped_has_lost_what_was_not_kept(void)
{
	unsigned before = next - BURSTS * BURST - 1, heard = 0, n = 0;

	SAME(kill(host[SLOW].pid, SIGCONT), 0);
	for (; hears(SLOW, 200, &heard); n++, before = heard)
		if (heard <= before || heard >= next)
			CHECK_FAILED("message %u after %u", heard, before);
	CHECK(n > 0 && n < BURSTS * BURST);
	casts(next);
	for (int h = 0; h < HOSTS; h++) {
		CHECK(hears(h, LONG_MS, &heard));
		SAME(heard, next);
	}
	next++;
}

int main(void)
{
	for (int i = 0; i < HOSTS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "host%d", i + 1);
		host[i] = member_start(name);
		join(i);
	}
	next = all_are_routed();
	RUN(the_others_hear_all_while_a_member_is_stopped);
	RUN(a_member_that_was_stopped_has_lost_what_was_not_kept);
	for (int i = 0; i < HOSTS; i++)
		member_end(&host[i]);
	return 0;
}
