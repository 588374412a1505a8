// qos_test.c - limits and fair shares: the token bucket, the queue by turns, and both in the target's core, with a clock
// that the test sets
// see: storage/target/limit.h, storage/target/fair.h, storage/target/qos.c
// SPDX-License-Identifier: MIT
#include <malloc.h>
#include <string.h>

#include "host.h"

#define MS 1000000ull
#define S 1000000000ull

/* ---- the bucket ---- */

/* Lets as many requests pass as want to, from `now` on for `ms`. */
static uint64_t passed(struct nt_bucket *b, uint64_t rate, uint32_t burst_ms, uint64_t tokens, uint64_t now,
                       uint32_t ms)
{
	uint64_t n = 0;

	for (uint64_t at = now; at < now + ms * MS; at += MS)
		for (; nt_bucket_opens(b, burst_ms) <= at; n++)
			nt_bucket_take(b, rate, tokens, at);
	return n;
}

static void a_bucket_lets_its_rate_pass_and_not_one_more(void)
{
	static const uint64_t rates[] = {1, 3, 7, 333, 1000, 12345, 1000000};

	for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++) {
		struct nt_bucket b = {0};
		uint64_t burst = rates[i] / 10;

		passed(&b, rates[i], 100, 1, 5 * S, 1000); /* the burst of the start */
		SAME(passed(&b, rates[i], 100, 1, 6 * S, 10000), 10 * rates[i]);
		/* after a long pause no more than the burst and one */
		SAME(passed(&b, rates[i], 100, 1, 100 * S, 1), burst + 1);
	}
}

static void a_request_that_is_larger_than_the_burst_passes_and_is_paid_for(void)
{
	struct nt_bucket b = {0};

	CHECK(nt_bucket_opens(&b, 10) <= S);
	nt_bucket_take(&b, 1 << 20, 2 << 20, S); /* 2 s */
	SAME(nt_bucket_opens(&b, 10), 3 * S - 10 * MS);
	nt_bucket_change(&b, S);
	CHECK(nt_bucket_opens(&b, 10) <= S);
}

static void the_largest_numbers_do_not_overflow(void)
{
	struct nt_bucket b = {0};

	for (int i = 0; i < 100; i++)
		nt_bucket_take(&b, NT_RATE_MAX, NT_TRANSFER_MAX, S);
	SAME(b.full_at - S, 100ull * NT_TRANSFER_MAX * S / NT_RATE_MAX);
	b = (struct nt_bucket){0};
	for (int i = 0; i < 100; i++)
		nt_bucket_take(&b, NT_BPS_MIN, NT_TRANSFER_MAX, S);
	SAME(b.full_at - S, 1600 * S);
}

/* ---- names and values ---- */

static const char *error_of(enum nt_limited of, const char *text)
{
	static char why[NT_LIMIT_WHY];
	struct nt_limits l = {.rate = {[NT_IOPS] = 5}}, before = l;

	why[0] = 0;
	CHECK(!nt_limits_parse(&l, of, text, why));
	CHECK(!memcmp(&l, &before, sizeof(l)));
	CHECK(*why && !strchr(why, '\n') && strlen(why) < 150);
	return why;
}

static void each_wrong_limit_is_refused_with_a_line(void)
{
	char long_text[1000];

	CHECK(strstr(error_of(NT_OF_HOST, "iops=0"), "nothing through"));
	CHECK(strstr(error_of(NT_OF_HOST, "rbps=0K"), "nothing through"));
	CHECK(strstr(error_of(NT_OF_HOST, "wbps=131071"), "128K"));
	CHECK(strstr(error_of(NT_OF_HOST, "iops=2000G"), "max removes"));
	CHECK(strstr(error_of(NT_OF_HOST, "iops=99999999999999999999999"), "number"));
	CHECK(strstr(error_of(NT_OF_HOST, "iops=-1"), "number"));
	CHECK(strstr(error_of(NT_OF_HOST, "iops=1.5"), "number"));
	CHECK(strstr(error_of(NT_OF_HOST, "iops="), "number"));
	CHECK(strstr(error_of(NT_OF_HOST, "iops=10KB"), "number"));
	CHECK(strstr(error_of(NT_OF_HOST, "riops=7,iops"), "NAME=VALUE"));
	CHECK(strstr(error_of(NT_OF_HOST, "=7"), "no such limit"));
	CHECK(strstr(error_of(NT_OF_HOST, "speed=7"), "no such limit"));
	CHECK(strstr(error_of(NT_OF_HOST, "burst=0"), "60000"));
	CHECK(strstr(error_of(NT_OF_HOST, "burst=60001"), "60000"));
	CHECK(strstr(error_of(NT_OF_HOST, "burst=max"), "number"));
	CHECK(strstr(error_of(NT_OF_HOST, "weight=101"), "100"));
	CHECK(strstr(error_of(NT_OF_HOST, "depth=5"), "namespace"));
	CHECK(strstr(error_of(NT_OF_NAMESPACE, "weight=5"), "host"));
	CHECK(strstr(error_of(NT_OF_NAMESPACE, "depth=0"), "65535"));
	memset(long_text, 'a', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = 0;
	error_of(NT_OF_HOST, long_text);
	long_text[5] = '=';
	error_of(NT_OF_HOST, long_text);
}

static void limits_are_read_and_removed(void)
{
	struct nt_limits l = {.weight = 3};
	char why[NT_LIMIT_WHY];

	CHECK(nt_limits_parse(&l, NT_OF_HOST, " riops=1000,,wbps=10M burst=250 ", why));
	SAME(l.rate[NT_RIOPS], 1000);
	SAME(l.rate[NT_WBPS], 10 << 20);
	SAME(l.burst_ms, 250);
	SAME(l.weight, 3);
	CHECK(nt_limits_any(&l));
	CHECK(nt_limits_parse(&l, NT_OF_HOST, "riops=max,wbps=max,weight=7", why));
	CHECK(!nt_limits_any(&l));
	SAME(l.weight, 7);
}

/* ---- the queue by turns ---- */

#define DEEP 64

static struct nt_flows flows;
static struct nt_fair fair;
static int names[8]; /* their addresses stand for hosts */

static void refill(struct nt_place *p, int n, int host, uint32_t weight, uint64_t bytes)
{
	for (int i = 0; i < n; i++)
		if (!p[i].in)
			nt_fair_enter(&fair, &p[i], &names[host], weight, bytes);
}

static int serve_one(void)
{
	struct nt_place *p = nt_fair_next(&fair);

	CHECK(p && p == nt_fair_next(&fair));
	nt_fair_serve(p);
	return (int)((const int *)p->host - names);
}

static void fresh(void)
{
	fair = (struct nt_fair){.flows = &flows};
	for (size_t i = 0; i < NT_FLOW_BUCKETS; i++)
		CHECK(!flows.buckets[i]);
}

static void drained(void)
{
	while (fair.count)
		serve_one();
	CHECK(!nt_fair_next(&fair));
}

static void a_host_of_depth_one_waits_for_a_turn_of_each_other_at_most(void)
{
	static struct nt_place deep[3][DEEP], one[1];
	int worst = 0, waits = 0, ones = 0;

	fresh();
	for (int n = 0; n < 10000; n++) {
		for (int h = 0; h < 3; h++)
			refill(deep[h], DEEP, h, 1, 4096);
		refill(one, 1, 3, 1, 4096);
		waits++;
		if (serve_one() == 3) {
			worst = waits > worst ? waits : worst;
			waits = 0;
			ones++;
		}
	}
	/* 4 commands of 4 KiB are a turn */
	CHECK(worst <= 3 * 4 + 1);
	CHECK(ones >= 10000 / 13);
	drained();
}

static void hosts_share_bytes_whatever_the_size_of_their_commands(void)
{
	static struct nt_place small[DEEP], large[DEEP];
	uint64_t bytes[2] = {0};

	fresh();
	for (int n = 0; n < 20000; n++) {
		refill(small, DEEP, 0, 1, 4096);
		refill(large, DEEP, 1, 1, 1 << 20);
		int h = serve_one();

		bytes[h] += NT_COST + (h ? 1 << 20 : 4096);
	}
	CHECK(bytes[0] > bytes[1] * 95 / 100 && bytes[1] > bytes[0] * 95 / 100);
	drained();
}

static void a_weight_is_a_share(void)
{
	static struct nt_place a[DEEP], b[DEEP];
	int n[2] = {0};

	fresh();
	for (int i = 0; i < 8000; i++) {
		refill(a, DEEP, 0, 3, 4096);
		refill(b, DEEP, 1, 1, 4096);
		n[serve_one()]++;
	}
	CHECK(n[0] >= 5900 && n[0] <= 6100);
	drained();
}

/* Against a model: of each host in order, nothing lost, whoever leaves. */
static void those_that_give_up_leave_the_others_in_order(void)
{
	static struct nt_place p[8][32];
	int head[8] = {0}, tail[8] = {0}, waiting = 0;
	uint32_t seed = 1;

	fresh();
	for (int n = 0; n < 200000; n++) {
		seed = seed * 1103515245 + 12345;
		int h = seed >> 16 & 7, what = seed >> 24 & 3;

		if (what < 2 && tail[h] - head[h] < 32) {
			nt_fair_enter(&fair, &p[h][tail[h]++ & 31], &names[h], 1 + h % 3, seed >> 8 & 0xffff);
			waiting++;
		} else if (what == 2 && waiting) {
			struct nt_place *next = nt_fair_next(&fair);
			int of = (int)((const int *)next->host - names);

			CHECK(next == &p[of][head[of] & 31]);
			nt_fair_serve(next);
			head[of]++;
			waiting--;
		} else if (what == 3 && tail[h] > head[h]) { /* the first or the last gives up */
			int i = seed >> 20 & 1 ? head[h]++ : --tail[h];

			nt_fair_leave(&p[h][i & 31]);
			waiting--;
		}
		SAME(fair.count, waiting);
	}
	drained();
	fresh();
}

/* ---- in the core ---- */

static struct medium *m;
static struct nt_namespace *ns;
static struct host *admin, *h;

static void up(void)
{
	target_open(16 << 20);
	m = medium_open(8 << 20, 512);
	ns = medium_add(m, 1);
	admin = host_admin_of(HOSTNQN);
	h = host_io(admin, 1);
}

static void down(void)
{
	host_close(h);
	host_close(admin);
	CHECK(!target.gates);
	SAME(target.parked, 0);
	target_close();
	CHECK(m->closed && !m->first);
	free(m->bytes);
	free(m);
	for (size_t i = 0; i < NT_FLOW_BUCKETS; i++)
		CHECK(!target.flows.buckets[i]);
}

static struct nt_limits limits_of(const char *text, enum nt_limited of)
{
	struct nt_limits l = {0};
	char why[NT_LIMIT_WHY] = "";

	if (!nt_limits_parse(&l, of, text, why))
		fprintf(stderr, "%s\n", why);
	CHECK(!*why);
	return l;
}

static void limit_ns(const char *text)
{
	struct nt_limits l = limits_of(text, NT_OF_NAMESPACE);

	nt_limit_namespace(ns, &l);
}

static void limit_host(const char *nqn, const char *text)
{
	struct nt_limits l = limits_of(text, NT_OF_HOST);

	CHECK(nt_limit_host(&target, nqn, &l));
}

/* Time goes by, as the loop sees it: it sleeps until something is due. Returns how often it woke up. */
static int wait_ms(uint64_t ms)
{
	uint64_t end = target.now + ms;
	int turns = 0;

	while (target.now < end) {
		uint64_t due = nt_target_tick(&target);

		target.now = due < end ? (due > target.now ? due : target.now + 1) : end;
		nt_qos_tick(&target);
		turns++;
	}
	return turns;
}

static void post(struct host *io, int n, uint8_t opcode)
{
	for (int i = 0; i < n; i++)
		host_post(io, io_command(opcode, 0, 8), 0);
}

static uint32_t answered(struct host *io)
{
	uint32_t n = io->count;

	host_settle(io);
	io->count = 0;
	return n;
}

static void a_namespace_has_its_rate_and_the_rest_waits_without_memory(void)
{
	up();
	limit_ns("iops=100,burst=10");
	post(h, 60, NV_IO_READ);
	SAME(answered(h), 2); /* 1 of the burst, and one more */
	SAME(ns->gate.lines[NT_READS].count, 58);
	SAME(ns->gate.waited, 58);
	SAME(nt_pool_used(target.pool), 0);
	int turns = wait_ms(500);

	SAME(answered(h), 50);
	CHECK(turns <= 52); /* it sleeps until the next may pass */
	wait_ms(200);
	SAME(answered(h), 8);
	CHECK(!target.gates && nt_qos_due(&target) == UINT64_MAX); /* nothing is due any more */
	SAME(ns->gate.operations[NT_READS], 60);
	SAME(ns->gate.bytes[NT_READS], 60 * 4096);
	down();
}

static void reads_and_writes_have_limits_of_their_own_and_together(void)
{
	up();
	limit_ns("riops=10,burst=1");
	post(h, 5, NV_IO_READ);
	post(h, 20, NV_IO_WRITE);
	SAME(answered(h), 21); /* a read, and all writes */
	wait_ms(1000);
	SAME(answered(h), 4);
	limit_ns("bps=1M,burst=1");
	post(h, 20, NV_IO_READ);
	post(h, 20, NV_IO_WRITE);
	answered(h);
	wait_ms(100); /* 25 commands of 4 KiB */
	uint32_t n = answered(h);

	CHECK(n >= 24 && n <= 26);
	uint64_t reads = ns->gate.operations[NT_READS] - 5, writes = ns->gate.operations[NT_WRITES] - 20;

	CHECK(reads + 2 >= writes && writes + 2 >= reads); /* by turns */
	wait_ms(1000);
	limit_ns("wbps=2M,burst=1");
	answered(h);
	post(h, 30, NV_IO_READ);
	SAME(answered(h), 30);
	down();
}

static void a_host_has_its_rate_over_all_its_controllers(void)
{
	up();
	limit_host(HOSTNQN, "iops=100,burst=10");
	struct host *second = host_admin_of(HOSTNQN), *io = host_io(second, 1);
	struct host *other = host_admin_of("nqn.2026-01.test:other"), *free_io = host_io(other, 1);

	post(h, 60, NV_IO_READ);
	post(io, 60, NV_IO_READ);
	post(free_io, 60, NV_IO_READ);
	SAME(answered(free_io), 60);
	SAME(answered(h) + answered(io), 2);
	wait_ms(1000);
	SAME(answered(h) + answered(io), 100);
	struct nt_limits l = limits_of("iops=1000,burst=1", NT_OF_HOST);

	nt_limit_each_host(&target, &l); /* not of the one with its own */
	post(free_io, 60, NV_IO_READ);
	wait_ms(20);
	uint32_t n = answered(free_io);

	CHECK(n >= 20 && n <= 22);
	CHECK(nt_limit_host(&target, HOSTNQN, NULL));
	SAME(answered(h) + answered(io) < 18, 1);
	wait_ms(100);
	CHECK(!target.gates);
	answered(h), answered(io), answered(free_io);
	host_close(io);
	host_close(second);
	host_close(free_io);
	host_close(other);
	down();
}

static void a_new_limit_is_in_force_at_once(void)
{
	up();
	limit_ns("iops=1,burst=1");
	post(h, 40, NV_IO_WRITE);
	SAME(answered(h), 1);
	limit_ns("iops=10,burst=1"); /* not after the second that was waited for */
	SAME(answered(h), 1);
	wait_ms(1000);
	SAME(answered(h), 10);
	limit_ns("");
	SAME(answered(h), 28);
	down();
}

static void what_waits_ends_with_its_queue_its_controller_its_namespace_and_the_target(void)
{
	up();
	limit_ns("iops=1,burst=1");
	limit_host(HOSTNQN, "riops=1,burst=1");
	struct host *io = host_io(admin, 2);

	post(h, 5, NV_IO_READ);
	post(io, 5, NV_IO_READ);
	post(h, 5, NV_IO_WRITE);
	post(io, 5, NV_IO_WRITE);
	host_close(io);
	SAME(ns->gate.lines[NT_WRITES].count, 5);
	SAME(admin->q.ctrl->account->gate.lines[NT_READS].count, 4);
	/* an abort */
	uint16_t cid = host_post(h, io_command(NV_IO_WRITE, 0, 8), 0);

	SAME(host_abort(admin, 1, cid), 0);
	SAME(host_answer(h, cid)->status, NV_ABORT_REQUESTED);
	answered(h);
	/* the namespace: what waits for it is executed */
	limit_host(HOSTNQN, "");
	struct medium *other = medium_open(1 << 20, 512);

	other->b.size = 1 << 20;
	medium_add(other, 2);
	nt_namespace_remove(ns);
	SAME(answered(h), 9);
	CHECK(m->closed && !target.gates);
	/* a reset of the controller closes the queues */
	ns = subsystem->ns[2];
	limit_ns("iops=1,burst=1");
	for (int i = 0; i < 4; i++) {
		struct nv_sqe c = io_command(NV_IO_READ, 0, 8);

		c.nsid = 2;
		host_post(h, c, 0);
	}
	SAME(ns->gate.lines[NT_READS].count, 3);
	SAME(property_set(admin, NV_PROP_CC, 0x460000, 0).status, 0);
	CHECK(h->asked_to_close);
	host_close(h);
	CHECK(!target.gates);
	/* the end of the target: nothing is held back */
	SAME(property_set(admin, NV_PROP_CC, 0x460001, 0).status, 0);
	h = host_io(admin, 1);
	for (int i = 0; i < 4; i++) {
		struct nv_sqe c = io_command(NV_IO_WRITE, 0, 8);

		c.nsid = 2;
		host_post(h, c, 0);
	}
	answered(h);
	target.stopping = true;
	nt_qos_tick(&target);
	SAME(h->q.in_use, h->unreleased_count);
	answered(h);
	SAME(h->q.in_use, 0);
	host_close(h);
	host_close(admin);
	target_close();
	CHECK(other->closed);
	free(other->bytes);
	free(other);
	free(m->bytes);
	free(m);
}

static void data_in_capsules_waits_in_a_bounded_part_of_the_memory(void)
{
	up();
	limit_ns("wiops=1,burst=1");
	struct nv_sqe c = io_command(NV_IO_WRITE, 0, 16);
	unsigned parked = 0, held = 0;

	c.sgl = in_capsule(8192);
	for (int q = 2; q < 12; q++) {
		struct host *io = host_io(admin, (uint16_t)q);

		for (int i = 0; i < 60; i++) {
			struct nt_request *r;
			uint8_t sqe[NV_SQE_LEN];

			c.cid = (uint16_t)i;
			c.psdt = NV_PSDT_SGL;
			nv_sqe_encode(&c, sqe);
			CHECK(nt_command(&io->q, sqe, 8192, &r));
			host_settle(io);
			parked += r->state == NT_QUEUED && r->room;
			held += nt_capsule_waits(r);
		}
	}
	SAME(target.parked, (16 << 20) / 32);
	SAME(parked, (512 << 10) / 8192);
	SAME(parked + held + 1, 600);
	limit_ns("");
	SAME(target.parked, 0);
	SAME(ns->gate.operations[NT_WRITES], 600);
	for (uint16_t q = 2; q < 12; q++) {
		struct host *io = (struct host *)(void *)admin->q.ctrl->queues[q];

		SAME(answered(io), 60);
		host_close(io);
	}
	down();
}

static void a_fused_pair_waits_together(void)
{
	struct nv_sqe compare = io_command(NV_IO_COMPARE, 0, 8), write = io_command(NV_IO_WRITE, 0, 8);

	up();
	memset(h->out, 0, 4096);
	limit_ns("wiops=10,burst=1");
	limit_host(HOSTNQN, "iops=10,burst=1");
	compare.fuse = NV_FUSE_FIRST;
	write.fuse = NV_FUSE_SECOND;
	for (int i = 0; i < 3; i++) {
		host_post(h, compare, 0);
		host_post(h, write, 0);
	}
	SAME(answered(h), 2); /* the second pays for what it did not wait */
	wait_ms(190);
	SAME(answered(h), 0);
	wait_ms(30);
	SAME(answered(h), 2);
	uint16_t first = (uint16_t)(h->next_cid - 2);

	SAME(host_abort(admin, 1, first), 0);
	SAME(host_answer(h, first)->status, NV_ABORT_REQUESTED);
	SAME(host_answer(h, (uint16_t)(first + 1))->status, NV_FUSED_FAILED);
	CHECK(!target.gates);
	answered(h);
	down();
}

/* A slow medium, one host with two queues of 60 commands, and one with a single command. */
static void a_host_with_deep_queues_does_not_starve_one_of_depth_one(void)
{
	up();
	limit_ns("depth=4");
	struct host *more = host_io(admin, 2), *other = host_admin_of("nqn.2026-01.test:small"),
	            *small = host_io(other, 1);
	uint32_t got = 0, deep = 0;

	m->slow = true;
	for (int n = 0; n < 400; n++) {
		while (h->q.in_use < 60)
			post(h, 1, n & 1 ? NV_IO_READ : NV_IO_WRITE);
		while (more->q.in_use < 60)
			post(more, 1, NV_IO_READ);
		while (small->q.in_use < 1)
			post(small, 1, NV_IO_READ);
		SAME(ns->at_medium, 4);
		struct nb_request *one = m->first; /* the medium ends one */

		if (!(m->first = one->next))
			m->end = &m->first;
		one->done(one, 0);
		deep += answered(h) + answered(more);
		got += answered(small);
	}
	SAME(got + deep, 400);
	/* 4 at the medium, and a turn of 4 of the other host: one of nine. In order of arrival it would be one of 121 */
	CHECK(got >= 400 / 9 - 1);
	CHECK(ns->turns.count >= 110);
	m->slow = false;
	medium_go(m);
	SAME(ns->turns.count, 0);
	SAME(ns->at_medium, 0);
	answered(h), answered(more), answered(small);
	host_close(small);
	host_close(more);
	host_close(other);
	down();
}

static void what_waits_for_its_turn_can_end(void)
{
	struct nv_sqe compare = io_command(NV_IO_COMPARE, 0, 8), write = io_command(NV_IO_WRITE, 0, 8);

	up();
	memset(h->out, 0, 4096);
	limit_ns("depth=1");
	m->slow = true;
	struct host *io = host_io(admin, 2), *third = host_io(admin, 3);

	post(h, 1, NV_IO_READ); /* at the medium */
	post(io, 3, NV_IO_WRITE);
	compare.fuse = NV_FUSE_FIRST;
	write.fuse = NV_FUSE_SECOND;
	uint16_t cid = host_post(h, io_command(NV_IO_WRITE, 0, 8), 0);

	SAME(ns->writers, 4);
	SAME(host_abort(admin, 1, cid), 0);
	SAME(ns->writers, 3);
	host_close(io);
	SAME(ns->writers, 0);
	/* a fused pair that waits for its turn ends with its queue, and others may write */
	memset(third->out, 0, 4096);
	host_post(third, compare, 0);
	host_post(third, write, 0);
	CHECK(ns->fused && ns->turns.count == 1);
	post(h, 1, NV_IO_WRITE);
	CHECK(ns->waiting);
	host_close(third);
	CHECK(!ns->fused && !ns->waiting);
	answered(h);
	m->slow = false;
	medium_go(m);
	SAME(answered(h), 2);
	SAME(nt_pool_used(target.pool), 0);
	down();
}

static void hosts_of_unequal_depth_share_the_limit_of_a_namespace(void)
{
	up();
	struct host *other = host_admin_of("nqn.2026-01.test:small"), *small = host_io(other, 1);
	uint32_t got = 0, deep = 0;

	limit_ns("iops=1000,burst=1");
	for (int n = 0; n < 1000; n++) {
		while (h->q.in_use < 60)
			post(h, 1, NV_IO_READ);
		while (small->q.in_use < 2)
			post(small, 1, NV_IO_READ);
		wait_ms(1);
		deep += answered(h);
		got += answered(small);
	}
	CHECK(got + deep >= 999 && got + deep <= 1003);
	/* a turn of the deep one is 4; it has one or two of five or six */
	CHECK(got >= 1000 / 5 - 2);
	limit_ns("");
	answered(h), answered(small);
	host_close(small);
	host_close(other);
	down();
}

/* ---- many ---- */

#define MANY 256

static struct host *admins[MANY], *ios[MANY];
static struct medium *media[MANY];

static size_t allocated(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return 0; /* it has an allocator of its own */
#else
	return mallinfo2().uordblks;
#endif
}

static void many_hosts_and_namespaces_wait_without_any_further_memory(void)
{
	char nqn[NV_NQN_SIZE];

	target_open(64 << 20);
	size_t start = allocated();

	for (uint32_t i = 0; i < MANY; i++) {
		struct nt_limits l = limits_of("iops=10,burst=1", NT_OF_NAMESPACE);

		media[i] = medium_open(64 << 10, 512);
		nt_limit_namespace(medium_add(media[i], i + 1), &l);
	}
	size_t with_namespaces = allocated();

	nt_peers_limit(&target, 4096, 4096);
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(nqn, sizeof(nqn), "nqn.2026-01.test:host-%u", i);
		admins[i] = host_admin_of(nqn);
		ios[i] = host_io(admins[i], 1);
	}
	size_t before = allocated();

	/* of the target: a controller and two queues, without the test's own buffers */
	CHECK((with_namespaces - start) / MANY < (80 << 10));
	CHECK((before - with_namespaces) / MANY < 2 * sizeof(struct host) + (160 << 10));
	for (uint32_t i = 0; i < MANY; i++)
		for (uint32_t k = 0; k < 60; k++) {
			struct nv_sqe c = io_command(NV_IO_READ, 0, 1);

			c.nsid = 1 + (i + k * 4) % MANY;
			host_post(ios[i], c, 0);
		}
	SAME(allocated(), before);
	uint32_t waiting = 0, n = 0;

	for (uint32_t i = 1; i <= MANY; i++)
		waiting += subsystem->ns[i]->gate.lines[NT_READS].count;
	for (uint32_t i = 0; i < MANY; i++)
		n += answered(ios[i]);
	SAME(n, MANY); /* one of each namespace */
	SAME(waiting, MANY * 60 - MANY);
	wait_ms(100);
	for (uint32_t i = 0; i < MANY; i++)
		n += answered(ios[i]);
	SAME(n, 2 * MANY);
	for (uint32_t i = MANY; i; i--) {
		host_close(ios[i - 1]);
		host_close(admins[i - 1]);
	}
	CHECK(!target.gates);
	target_close();
	for (uint32_t i = 0; i < MANY; i++) {
		CHECK(media[i]->closed);
		free(media[i]->bytes);
		free(media[i]);
	}
}

int main(void)
{
	RUN(a_bucket_lets_its_rate_pass_and_not_one_more);
	RUN(a_request_that_is_larger_than_the_burst_passes_and_is_paid_for);
	RUN(the_largest_numbers_do_not_overflow);
	RUN(each_wrong_limit_is_refused_with_a_line);
	RUN(limits_are_read_and_removed);
	RUN(a_host_of_depth_one_waits_for_a_turn_of_each_other_at_most);
	RUN(hosts_share_bytes_whatever_the_size_of_their_commands);
	RUN(a_weight_is_a_share);
	RUN(those_that_give_up_leave_the_others_in_order);
	RUN(a_namespace_has_its_rate_and_the_rest_waits_without_memory);
	RUN(reads_and_writes_have_limits_of_their_own_and_together);
	RUN(a_host_has_its_rate_over_all_its_controllers);
	RUN(a_new_limit_is_in_force_at_once);
	RUN(what_waits_ends_with_its_queue_its_controller_its_namespace_and_the_target);
	RUN(data_in_capsules_waits_in_a_bounded_part_of_the_memory);
	RUN(a_fused_pair_waits_together);
	RUN(a_host_with_deep_queues_does_not_starve_one_of_depth_one);
	RUN(what_waits_for_its_turn_can_end);
	RUN(hosts_of_unequal_depth_share_the_limit_of_a_namespace);
	RUN(many_hosts_and_namespaces_wait_without_any_further_memory);
	return 0;
}
