// limited.c - a queue pair with a rate limit sends no faster than that, sleeps while it waits, and loses nothing
// follows: ibv_modify_qp_rate_limit(3), ibv_modify_qp(3)
// SPDX-License-Identifier: MIT
#include "frames.h"

#include <poll.h>
#include <time.h>

#define COUNT 16u
#define SIZE 4000u /* a datagram fits into a packet */
#define BURST 8192u
#define GRH 40u
#define SLOW 8u     /* kbit/s: COUNT messages would take a minute */
#define BRISK 2000u /* kbit/s: and here a quarter of a second */

static uint64_t now_us(clockid_t clock)
{
	struct timespec ts;

	CHECK(!clock_gettime(clock, &ts));
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Two queue pairs of this program, each of which sends to one of its own. */
struct both {
	struct dev d;
	struct mem m; /* what is sent; then what the limited one's peer receives, then that of the other one */
	struct link from[2], to[2];
	struct ibv_ah *ah;
	struct far far;
};

static void both_open(struct both *b, enum ibv_qp_type type)
{
	const struct conf c = {.type = type, .sig_all = true};

	dev_open(&b->d);
	mem_make(&b->m, &b->d, 3 * COUNT * BURST);
	for (unsigned i = 0; i < COUNT; i++)
		fill(b->m.p + i * BURST, SIZE, i);
	for (int i = 0; i < 2; i++) {
		link_make(&b->from[i], &b->d, &c);
		link_make(&b->to[i], &b->d, &c);
		link_to(&b->from[i], &b->to[i].me);
		link_to(&b->to[i], &b->from[i].me);
		for (unsigned k = 0; k < COUNT; k++)
			post_recv(&b->to[i], k, &b->m, (1 + (unsigned)i) * COUNT * BURST + k * BURST, BURST);
	}
	struct ibv_ah_attr a = {.is_global = 1,
	                        .port_num = 1,
	                        .grh = {.dgid = b->d.gid, .sgid_index = (uint8_t)b->d.gid_index, .hop_limit = 9}};

	CHECK((b->ah = ibv_create_ah(b->d.pd, &a)));
	b->far = (struct far){(uintptr_t)b->m.p + COUNT * BURST, b->m.mr->rkey, 0};
}

static void send_to(struct both *b, int i, uint64_t id)
{
	bool ud = b->from[i].c.type == IBV_QPT_UD;

	POST(&b->from[i], IBV_WR_SEND, id, &b->m, id * BURST, SIZE, .ah = ud ? b->ah : NULL, .qpn = b->to[i].me.qpn,
	     .qkey = QKEY);
}

static void is_right(const struct both *b, int i, const struct ibv_wc *wc)
{
	uint32_t head = b->from[i].c.type == IBV_QPT_UD ? GRH : 0;

	SAME(wc->status, IBV_WC_SUCCESS);
	SAME(wc->byte_len, head + SIZE);
	CHECK(holds(b->m.p + (1 + (unsigned)i) * COUNT * BURST + wc->wr_id * BURST + head, SIZE, (uint32_t)wc->wr_id));
}

static int limit(struct ibv_qp *qp, uint32_t kbps, uint32_t burst)
{
	struct ibv_qp_rate_limit_attr a = {.rate_limit = kbps, .max_burst_sz = burst};

	return ibv_modify_qp_rate_limit(qp, &a);
}

static uint32_t limit_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	CHECK(!ibv_query_qp(qp, &a, IBV_QP_RATE_LIMIT, &init));
	return a.rate_limit;
}

/* The limited one's messages beyond its burst would arrive within a minute; those of the other one arrive at once, and after
 * them, without a limit, the rest. */
static void falls_behind(enum ibv_qp_type type)
{
	struct ibv_wc wc;
	struct both b;
	unsigned n = 0;

	both_open(&b, type);
	SAME(limit(b.from[0].qp, SLOW, BURST), 0);
	SAME(limit_of(b.from[0].qp), SLOW);
	for (int i = 0; i < 2; i++)
		for (unsigned k = 0; k < COUNT; k++)
			send_to(&b, i, k);
	for (unsigned k = 0; k < COUNT; k++) {
		wc = expect(b.to[1].rcq, k, IBV_WC_SUCCESS);
		is_right(&b, 1, &wc);
	}
	while (wait_wc_ms(b.to[0].rcq, &wc, 20)) {
		SAME(wc.wr_id, n++);
		is_right(&b, 0, &wc);
	}
	CHECK(n >= 1 && n < COUNT);
	SAME(limit(b.from[0].qp, 0, 0), 0);
	SAME(limit_of(b.from[0].qp), 0);
	for (; n < COUNT; n++) {
		wc = expect(b.to[0].rcq, n, IBV_WC_SUCCESS);
		is_right(&b, 0, &wc);
	}
	for (unsigned k = 0; k < COUNT; k++)
		expect(b.from[0].scq, k, IBV_WC_SUCCESS);
}

static void falls_behind_rc(void)
{
	falls_behind(IBV_QPT_RC);
}

static void falls_behind_uc(void)
{
	falls_behind(IBV_QPT_UC);
}

static void falls_behind_ud(void)
{
	falls_behind(IBV_QPT_UD);
}

/* How many bytes may have arrived since start, at most. */
static uint64_t most_by_now(uint64_t start)
{
	return (now_us(CLOCK_MONOTONIC) - start) * BRISK / 8000 + BURST;
}

static void keeps_its_rate(enum ibv_qp_type type)
{
	struct both b;

	both_open(&b, type);
	uint64_t start = now_us(CLOCK_MONOTONIC);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .rate_limit = SLOW};

	SAME(ibv_modify_qp(b.from[0].qp, &a, IBV_QP_STATE | IBV_QP_RATE_LIMIT), 0);
	SAME(limit(b.from[0].qp, BRISK, BURST), 0); /* what has left under another limit does not weigh on it */
	for (unsigned k = 0; k < COUNT; k++)
		send_to(&b, 0, k);
	for (unsigned k = 0; k < COUNT; k++) {
		struct ibv_wc wc = expect(b.to[0].rcq, k, IBV_WC_SUCCESS);

		CHECK((k + 1) * SIZE <= most_by_now(start));
		is_right(&b, 0, &wc);
	}
}

static void keeps_its_rate_rc(void)
{
	keeps_its_rate(IBV_QPT_RC);
}

static void keeps_its_rate_uc(void)
{
	keeps_its_rate(IBV_QPT_UC);
}

static void keeps_its_rate_ud(void)
{
	keeps_its_rate(IBV_QPT_UD);
}

/* A message that is longer than a burst has its time too; what it writes is there when it completes. */
static void long_writes_have_their_time(void)
{
	struct both b;

	both_open(&b, IBV_QPT_RC);
	uint64_t start = now_us(CLOCK_MONOTONIC), bytes = 0;

	SAME(limit(b.from[0].qp, BRISK, BURST), 0);
	for (unsigned k = 0; k < 3; k++)
		POST(&b.from[0], IBV_WR_RDMA_WRITE, k, &b.m, k * BURST, 3 * BURST, .far = b.far,
		     .far_off = 3 * k * BURST);
	POST(&b.from[0], IBV_WR_RDMA_READ, 3, &b.m, 0, 100, .far = b.far);
	for (unsigned k = 0; k < 3; k++) {
		expect(b.from[0].scq, k, IBV_WC_SUCCESS);
		bytes += 3 * BURST;
		CHECK(bytes <= most_by_now(start));
	}
	expect(b.from[0].scq, 3, IBV_WC_SUCCESS);
	for (unsigned k = 0; k < 3; k++)
		CHECK(!memcmp(b.m.p + COUNT * BURST + 3 * k * BURST + 100, b.m.p + k * BURST + 100, 3 * BURST - 100));
}

#define LARGE (1u << 20)

/* The time that a link of 2.5 Gb/s needs for so many megabytes, without the millisecond that may leave at once. */
static uint64_t least_us(unsigned megabytes)
{
	return (uint64_t)megabytes * LARGE * 8 / 2500 - 1000;
}

static uint64_t time_of_writes(uint8_t static_rate, unsigned n)
{
	const struct conf c = {.static_rate = static_rate};
	struct link from, to;
	struct dev d;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 2 * LARGE);
	link_make(&from, &d, &c);
	link_make(&to, &d, &c);
	link_to(&from, &to.me);
	link_to(&to, &from.me);
	uint64_t start = now_us(CLOCK_MONOTONIC);

	for (unsigned i = 0; i < n; i++)
		POST(&from, IBV_WR_RDMA_WRITE, i, &m, 0, LARGE,
		     .far = (struct far){(uintptr_t)m.p + LARGE, m.mr->rkey, 0});
	for (unsigned i = 0; i < n; i++)
		expect(from.scq, i, IBV_WC_SUCCESS);
	start = now_us(CLOCK_MONOTONIC) - start;
	SAME(limit_of(from.qp), 0); /* which is another limit */
	return start;
}

/* A rate that the port does not reach limits nothing. How fast it is then depends on the machine. */
static void a_static_rate_limits_its_path(void)
{
	CHECK(time_of_writes(IBV_RATE_2_5_GBPS, 8) >= least_us(8));
	time_of_writes(IBV_RATE_1200_GBPS, 8);
}

/* Nobody computes while requests wait for their turn. */
static void waiting_costs_nothing(void)
{
	struct both b;

	both_open(&b, IBV_QPT_RC);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(b.d.ctx);
	struct ibv_cq *cq = ibv_create_cq(b.d.ctx, 8, NULL, channel, 0);

	CHECK(channel && cq && !ibv_req_notify_cq(cq, 0));
	SAME(limit(b.from[0].qp, SLOW, BURST), 0);
	for (unsigned k = 0; k < COUNT; k++)
		send_to(&b, 0, k);
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};

	SAME(poll(&p, 1, 100), 0);
	uint64_t used = now_us(CLOCK_PROCESS_CPUTIME_ID);

	SAME(poll(&p, 1, 400), 0);
	used = now_us(CLOCK_PROCESS_CPUTIME_ID) - used;
	if (used > 200000)
		CHECK_FAILED("%u us of processor time in 400 ms", (unsigned)used);
}

/* A queue pair that fails, or is reset, does not keep its limit from others. */
static void an_end_flushes_what_waits(void)
{
	struct both b;
	unsigned flushed = 0;

	both_open(&b, IBV_QPT_RC);
	SAME(limit(b.from[0].qp, SLOW, BURST), 0);
	for (unsigned k = 0; k < COUNT; k++)
		send_to(&b, 0, k);
	SAME(to_state(b.from[0].qp, IBV_QPS_ERR), 0);
	for (unsigned k = 0; k < COUNT; k++) {
		struct ibv_wc wc = wait_wc(b.from[0].scq);

		SAME(wc.wr_id, k);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR || (wc.status == IBV_WC_SUCCESS && !flushed));
		flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
	}
	CHECK(flushed);
	SAME(limit(b.from[0].qp, SLOW, 0), EINVAL);
	SAME(to_state(b.from[0].qp, IBV_QPS_RESET), 0);
	SAME(limit_of(b.from[0].qp), 0);
}

/* What is on its way at a reset leaves under the limit, or not at all. */
static void a_reset_ends_the_limit(void)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

	for (int i = 0; i < 3; i++) {
		struct both b;

		both_open(&b, types[i]);
		SAME(limit(b.from[0].qp, SLOW, BURST), 0);
		for (unsigned k = 0; k < COUNT; k++)
			send_to(&b, 0, k);
		SAME(to_state(b.from[0].qp, IBV_QPS_RESET), 0);
		SAME(limit_of(b.from[0].qp), 0);
		SAME(limit(b.from[1].qp, SLOW, BURST), 0);
		SAME(to_state(b.from[1].qp, IBV_QPS_RESET), 0); /* it has sent nothing */
	}
}

static void frames_are_limited(void)
{
	struct raw a, b;
	struct ibv_wc wc;
	struct dev d;
	unsigned n = 0;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	CHECK(steer(&b, there));
	SAME(limit(a.qp, SLOW, 2500), 0);
	for (unsigned k = 0; k < 8; k++) {
		receive(&b, k, 2048);
		SAME(send_frame(&a, k, there, 1000, (uint8_t)k, 0), 0);
	}
	for (; wait_wc_ms(b.cq, &wc, 50); n++)
		SAME(wc.wr_id, n);
	CHECK(n >= 2 && n < 8);
	SAME(limit(a.qp, 0, 0), 0);
	for (; n < 8; n++)
		SAME(expect(b.cq, n, IBV_WC_SUCCESS).byte_len, 1000);
	for (unsigned k = 0; k < 8; k++)
		expect(a.cq, k, IBV_WC_SUCCESS);
	CHECK(received(&b, 7)[999] == 7);
}

static const struct test tests[] = {
        {"a limited RC queue pair falls behind another one, until its limit ends", falls_behind_rc, 0},
        {"a limited UC queue pair falls behind another one, until its limit ends", falls_behind_uc, 0},
        {"a limited UD queue pair falls behind another one, until its limit ends", falls_behind_ud, 0},
        {"RC messages arrive no faster than the limit says", keeps_its_rate_rc, 0},
        {"UC messages arrive no faster than the limit says", keeps_its_rate_uc, 0},
        {"UD messages arrive no faster than the limit says", keeps_its_rate_ud, 0},
        {"writes longer than a burst take their time", long_writes_have_their_time, 0},
        {"the static rate of an address vector limits a connected queue pair", a_static_rate_limits_its_path, 0},
        {"nobody computes while requests wait", waiting_costs_nothing, 0},
        {"requests that wait are flushed", an_end_flushes_what_waits, 0},
        {"a reset ends the limit", a_reset_ends_the_limit, 0},
        {"frames are limited", frames_are_limited, 0},
};

int main(int argc, char **argv)
{
	return RUN_TESTS(argc, argv, tests);
}
