// cq_test.c - completion queues and channels
// follows: IBA volume 1, 11.2.6, 11.4.2; ibv_poll_cq(3), ibv_get_cq_event(3), ibv_create_cq_ex(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cq.h"

static struct ibv_context *ctx;

static void push(struct ibv_cq *cq, uint64_t id, bool solicited)
{
	struct vb_cqe e = {.wc = {.wr_id = id, .qp_num = (uint32_t)id % 3, .byte_len = (uint32_t)id * 2}};

	vb_cq_push(vb_cq(cq), &e, solicited);
}

static uint64_t poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	return vb_poll_cq(cq, 1, &wc) ? wc.wr_id : 0;
}

static void sizes_are_rounded_up_and_limits_hold(void)
{
	struct ibv_cq *cq;

	CHECK(!vb_create_cq(ctx, 0, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!vb_create_cq(ctx, -1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!vb_create_cq(ctx, VB_MAX_CQE + 1, NULL, NULL, 0) && errno == EINVAL);
	CHECK(!vb_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors) && errno == EINVAL);
	CHECK(!vb_create_cq(ctx, 1, NULL, NULL, -1) && errno == EINVAL);
	for (int n = 1; n < 70; n++) {
		cq = vb_create_cq(ctx, n, NULL, NULL, ctx->num_comp_vectors - 1);
		CHECK(cq->cqe >= n && !vb_destroy_cq(cq));
	}
	cq = vb_create_cq(ctx, VB_MAX_CQE, NULL, NULL, 0);
	CHECK(cq->cqe == VB_MAX_CQE && !vb_destroy_cq(cq));
}

static void completions_come_out_in_order(void)
{
	struct ibv_cq *cq = vb_create_cq(ctx, 7, NULL, NULL, 0);
	struct ibv_wc wc[4];
	uint64_t in = 1, out = 1;

	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < round % 7 + 1; i++)
			push(cq, in++, false);
		for (int n; out != in;) {
			n = vb_poll_cq(cq, 4, wc);
			CHECK(n > 0 && n <= 4);
			for (int i = 0; i < n; i++)
				CHECK(wc[i].wr_id == out++);
		}
	}
	CHECK(!fake.progressed); /* there was always an entry */
	CHECK(!vb_poll_cq(cq, 1, wc) && fake.progressed == 1 && !vb_poll_cq(cq, 0, wc));
	CHECK(!vb_destroy_cq(cq));
}

static void an_overrun_is_told_once_and_loses_nothing_that_was_there(void)
{
	struct ibv_cq *cq = vb_create_cq(ctx, 4, NULL, NULL, 0);
	struct ibv_async_event ev;

	CHECK(!fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK));
	for (int i = 1; i <= 6; i++)
		push(cq, i, false);
	CHECK(!vb_get_async_event(ctx, &ev) && ev.event_type == IBV_EVENT_CQ_ERR && ev.element.cq == cq);
	CHECK(vb_get_async_event(ctx, &ev) == -1 && errno == EAGAIN);
	for (int i = 1; i <= 4; i++)
		CHECK(poll_one(cq) == (uint64_t)i);
	push(cq, 7, false);
	CHECK(!poll_one(cq)); /* it is in error */
	ev = (struct ibv_async_event){.element.cq = cq, .event_type = IBV_EVENT_CQ_ERR};
	vb_ack_async_event(&ev);
	CHECK(!vb_destroy_cq(cq));
}

static void resizing_keeps_what_is_there(void)
{
	struct ibv_cq *cq = vb_create_cq(ctx, 3, NULL, NULL, 0);

	push(cq, 1, false);
	push(cq, 2, false);
	CHECK(poll_one(cq) == 1);
	push(cq, 3, false);
	push(cq, 4, false);
	CHECK(vb_resize_cq(cq, 2) == EINVAL && cq->cqe == 4);
	CHECK(vb_resize_cq(cq, 0) == EINVAL && vb_resize_cq(cq, VB_MAX_CQE + 1) == EINVAL);
	CHECK(!vb_resize_cq(cq, 9) && cq->cqe == 16);
	for (int i = 5; i <= 16; i++)
		push(cq, i, false);
	for (int i = 2; i <= 16; i++)
		CHECK(poll_one(cq) == (uint64_t)i);
	CHECK(!vb_resize_cq(cq, 1) && cq->cqe == 1);
	push(cq, 17, false);
	CHECK(poll_one(cq) == 17 && !vb_destroy_cq(cq));
}

static void a_queue_pair_is_cleaned_out(void)
{
	struct ibv_cq *cq = vb_create_cq(ctx, 15, NULL, NULL, 0);

	for (int i = 1; i <= 12; i++)
		push(cq, i, false);
	vb_cq_clean(vb_cq(cq), 1);
	for (int i = 1; i <= 12; i++)
		CHECK(i % 3 == 1 || poll_one(cq) == (uint64_t)i);
	CHECK(!poll_one(cq) && !vb_destroy_cq(cq));
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static int try_event(struct ibv_comp_channel *ch, struct ibv_cq **cq)
{
	void *context;
	int flags = fcntl(ch->fd, F_GETFL);

	fcntl(ch->fd, F_SETFL, flags | O_NONBLOCK);
	int r = vb_get_cq_event(ch, cq, &context);

	fcntl(ch->fd, F_SETFL, flags);
	if (r)
		CHECK(errno == EAGAIN);
	return r;
}

static void an_armed_queue_rings_once(void)
{
	struct ibv_comp_channel *ch = vb_create_comp_channel(ctx);
	struct ibv_cq *cq = vb_create_cq(ctx, 15, &ch, ch, 0), *got;

	push(cq, 1, true);
	CHECK(!readable(ch->fd) && vb_destroy_comp_channel(ch) == EBUSY);
	vb_req_notify_cq(cq, 0);
	CHECK(!readable(ch->fd)); /* existing entries do not count */
	push(cq, 2, false);
	push(cq, 3, false);
	CHECK(readable(ch->fd) && !try_event(ch, &got) && got == cq);
	CHECK(!readable(ch->fd) && try_event(ch, &got));
	vb_ack_cq_events(cq, 1);
	CHECK(!vb_destroy_cq(cq) && !vb_destroy_comp_channel(ch));
}

static void solicited_only_waits_for_solicited_or_failed_ones(void)
{
	struct ibv_comp_channel *ch = vb_create_comp_channel(ctx);
	struct ibv_cq *cq = vb_create_cq(ctx, 15, NULL, ch, 0);
	struct vb_cqe failed = {.wc.status = IBV_WC_WR_FLUSH_ERR};

	vb_req_notify_cq(cq, 1);
	push(cq, 1, false);
	CHECK(!readable(ch->fd));
	push(cq, 2, true);
	CHECK(readable(ch->fd));
	vb_req_notify_cq(cq, 1);
	vb_cq_push(vb_cq(cq), &failed, false);
	vb_req_notify_cq(cq, 0);
	vb_req_notify_cq(cq, 1); /* does not narrow the earlier request */
	push(cq, 3, false);
	struct ibv_cq *got;

	for (int i = 0; i < 3; i++)
		CHECK(!try_event(ch, &got));
	CHECK(try_event(ch, &got));
	vb_ack_cq_events(cq, 3);
	CHECK(!vb_destroy_cq(cq) && !vb_destroy_comp_channel(ch));
}

static void arming_hands_the_duty_over(void)
{
	struct ibv_cq *cq = vb_create_cq(ctx, 1, NULL, NULL, 0);

	atomic_store(&fake_node.owner, VB_OWNER_THREAD);
	vb_req_notify_cq(cq, 0);
	CHECK(!fake.handovers);
	atomic_store(&fake_node.owner, VB_OWNER_POLLER);
	vb_req_notify_cq(cq, 0);
	CHECK(fake.handovers == 1 && !vb_destroy_cq(cq));
}

static void events_of_several_queues_take_turns_and_vanish_with_theirs(void)
{
	struct ibv_comp_channel *ch = vb_create_comp_channel(ctx);
	struct ibv_cq *a = vb_create_cq(ctx, 15, NULL, ch, 0), *b = vb_create_cq(ctx, 15, NULL, ch, 0),
	              *c = vb_create_cq(ctx, 15, NULL, ch, 0), *got;

	for (int i = 0; i < 2; i++) {
		vb_req_notify_cq(a, 0);
		vb_req_notify_cq(b, 0);
		push(a, 1, false);
		push(b, 1, false);
	}
	vb_req_notify_cq(c, 0);
	push(c, 1, false);
	CHECK(!try_event(ch, &got) && got == a);
	CHECK(!vb_destroy_cq(b)); /* its two events were not read */
	CHECK(!try_event(ch, &got) && got == c);
	CHECK(!try_event(ch, &got) && got == a);
	CHECK(try_event(ch, &got) && !readable(ch->fd));
	vb_ack_cq_events(a, 2);
	vb_ack_cq_events(c, 1);
	CHECK(!vb_destroy_cq(a) && !vb_destroy_cq(c) && !vb_destroy_comp_channel(ch));
}

static void *ack_later(void *cq)
{
	usleep(50000);
	vb_ack_cq_events(cq, 1);
	return NULL;
}

static void destroying_waits_for_the_acknowledgement(void)
{
	struct ibv_comp_channel *ch = vb_create_comp_channel(ctx);
	struct ibv_cq *cq = vb_create_cq(ctx, 15, NULL, ch, 0), *got;
	uint64_t t = vb_now();
	pthread_t thread;

	vb_req_notify_cq(cq, 0);
	push(cq, 1, false);
	CHECK(!try_event(ch, &got));
	pthread_create(&thread, NULL, ack_later, cq);
	CHECK(!vb_destroy_cq(cq) && vb_now() - t > 40000000);
	pthread_join(thread, NULL);
	CHECK(!vb_destroy_comp_channel(ch));
}

static void *push_later(void *cq)
{
	wait_for_handover();
	push(cq, 42, false);
	return NULL;
}

static void a_waiter_sleeps_until_the_completion(void)
{
	struct ibv_comp_channel *ch = vb_create_comp_channel(ctx);
	struct ibv_cq *cq = vb_create_cq(ctx, 15, &fake, ch, 0), *got;
	pthread_t thread;
	void *context;

	vb_req_notify_cq(cq, 0);
	pthread_create(&thread, NULL, push_later, cq);
	CHECK(!vb_get_cq_event(ch, &got, &context) && got == cq && context == &fake && fake.handovers >= 1);
	CHECK(poll_one(cq) == 42);
	vb_ack_cq_events(cq, 1);
	pthread_join(thread, NULL);
	CHECK(!vb_destroy_cq(cq) && !vb_destroy_comp_channel(ch));
}

static struct ibv_cq_ex *make_ex(uint64_t wc_flags, uint32_t flags)
{
	struct ibv_cq_init_attr_ex a = {
	        .cqe = 3, .wc_flags = wc_flags, .comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0, .flags = flags};

	return vb_create_cq_ex(ctx, &a);
}

static void extended_polling_walks_through(void)
{
	struct ibv_cq_ex *ex = make_ex(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, 0);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
	struct ibv_poll_cq_attr attr = {0};
	struct timespec now;

	CHECK(ibv_start_poll(ex, &attr) == ENOENT && fake.progressed == 1);
	push(cq, 5, false);
	push(cq, 6, false);
	CHECK(!ibv_start_poll(ex, &attr) && ex->wr_id == 5 && ex->status == IBV_WC_SUCCESS &&
	      ibv_wc_read_byte_len(ex) == 10);
	push(cq, 7, false); /* arrives while the program polls */
	CHECK(!ibv_next_poll(ex) && ex->wr_id == 6 && ibv_wc_read_qp_num(ex) == 0);
	clock_gettime(CLOCK_REALTIME, &now);
	CHECK(now.tv_sec - (time_t)(ibv_wc_read_completion_wallclock_ns(ex) / 1000000000) <= 1 &&
	      ibv_wc_read_completion_ts(ex));
	CHECK(!ibv_wc_read_cvlan(ex) && !ibv_wc_read_flow_tag(ex));
	CHECK(!ibv_next_poll(ex) && ex->wr_id == 7);
	CHECK(ibv_next_poll(ex) == ENOENT);
	ibv_end_poll(ex);
	attr.comp_mask = 1;
	CHECK(ibv_start_poll(ex, &attr) == EINVAL);
	push(cq, 8, false);
	CHECK(poll_one(cq) == 8 && !vb_destroy_cq(cq));
}

static atomic_llong wall_set; /* ns: by which the wall clock was set */

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);
	int64_t ns =
	        (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + (id == CLOCK_REALTIME ? atomic_load(&wall_set) : 0);

	*ts = (struct timespec){ns / 1000000000, ns % 1000000000};
	return r;
}

#define STAMPED 3

/* The difference between wall clock and the other clock at each completion, which follow each other closely. */
static void stamps(int64_t ahead[STAMPED])
{
	struct ibv_cq_ex *ex =
	        make_ex(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
	struct ibv_poll_cq_attr none = {0};
	uint64_t last = 0, wall;

	for (int i = 0; i < STAMPED; i++)
		push(cq, (uint64_t)i + 1, false);
	for (int i = 0; i < STAMPED; i++) {
		CHECK(!(i ? ibv_next_poll(ex) : ibv_start_poll(ex, &none)));
		wall = ibv_wc_read_completion_wallclock_ns(ex);
		CHECK(wall >= last);
		last = wall;
		ahead[i] = (int64_t)(wall - ibv_wc_read_completion_ts(ex));
	}
	ibv_end_poll(ex);
	CHECK(!vb_destroy_cq(cq));
}

static void both_clocks_of_a_completion_go_alike(void)
{
	int64_t first[STAMPED], ahead[STAMPED];

	stamps(first);
	for (int n = 0; n < 2000; n++) {
		stamps(ahead);
		for (int i = 0; i < STAMPED; i++)
			CHECK(ahead[i] == first[0]);
	}
}

static void a_wall_clock_that_is_set_is_followed(void)
{
	const int64_t steps[] = {-3600000000000, 2000000000, -1000000, 1000000};
	int64_t before[STAMPED], after[STAMPED];

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		stamps(before);
		atomic_fetch_add(&wall_set, steps[i]);
		stamps(after);
		int64_t by = after[0] - before[0] - steps[i];

		CHECK(by < 20000 && by > -20000 && after[0] == after[1] && after[1] == after[2]);
	}
}

static void what_is_not_supported_is_refused(void)
{
	CHECK(!make_ex(1 << 20, 0) && errno == EINVAL);
	CHECK(!make_ex(0, 4) && errno == EINVAL);
}

static void a_queue_holds_its_parent_domain(void)
{
	struct ibv_pd *pd = vb_alloc_pd(ctx);
	struct ibv_pd *parent = vb_alloc_parent_domain(ctx, &(struct ibv_parent_domain_init_attr){.pd = pd});
	struct ibv_cq_init_attr_ex a = {.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
	struct ibv_cq_ex *cq = vb_create_cq_ex(ctx, &a);

	CHECK(pd && parent && cq && vb_dealloc_pd(parent) == EBUSY);
	CHECK(!vb_destroy_cq((struct ibv_cq *)cq) && !vb_dealloc_pd(parent));
	a.parent_domain = pd; /* is none */
	CHECK(!vb_create_cq_ex(ctx, &a) && errno == EINVAL);
	a.parent_domain = NULL;
	CHECK(!vb_create_cq_ex(ctx, &a) && errno == EINVAL);
	CHECK(!vb_dealloc_pd(pd));
}

static void overrun_can_be_ignored(void)
{
	struct ibv_cq *cq =
	        ibv_cq_ex_to_cq(make_ex(0, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED));

	for (int i = 1; i <= 5; i++)
		push(cq, i, false);
	for (int i = 2; i <= 5; i++)
		CHECK(poll_one(cq) == (uint64_t)i);
	CHECK(!readable(ctx->async_fd) && !vb_destroy_cq(cq));
}

int main(void)
{
	ctx = vb_open_device(&fake_device.dev);
	int nodes = fake.nodes;

	RUN(sizes_are_rounded_up_and_limits_hold);
	RUN(completions_come_out_in_order);
	RUN(an_overrun_is_told_once_and_loses_nothing_that_was_there);
	RUN(resizing_keeps_what_is_there);
	RUN(a_queue_pair_is_cleaned_out);
	RUN(an_armed_queue_rings_once);
	RUN(solicited_only_waits_for_solicited_or_failed_ones);
	RUN(arming_hands_the_duty_over);
	RUN(events_of_several_queues_take_turns_and_vanish_with_theirs);
	RUN(destroying_waits_for_the_acknowledgement);
	RUN(a_waiter_sleeps_until_the_completion);
	RUN(extended_polling_walks_through);
	RUN(both_clocks_of_a_completion_go_alike);
	RUN(a_wall_clock_that_is_set_is_followed);
	RUN(what_is_not_supported_is_refused);
	RUN(a_queue_holds_its_parent_domain);
	RUN(overrun_can_be_ignored);
	fake.nodes = nodes;
	CHECK(!vb_close_device(ctx) && !fake.nodes);
}
