// moderate_test.c - one completion event for several completions
// follows: ibv_modify_cq(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <poll.h>
#include <unistd.h>

#include "core/cq.h"

#define LONGEST 65535 /* us: nobody calls vb_cq_raise_due in this time, except where the test does */

static struct ibv_context *ctx;

struct queue {
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
};

static struct queue make_queue(void)
{
	struct queue q = {.ch = vb_create_comp_channel(ctx)};

	q.cq = vb_create_cq(ctx, 64, NULL, q.ch, 0);
	CHECK(q.ch && q.cq);
	return q;
}

static void end_queue(struct queue *q)
{
	CHECK(!vb_destroy_cq(q->cq) && !vb_destroy_comp_channel(q->ch));
}

static int moderate(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {count, period}};

	return vb_modify_cq(cq, &attr);
}

static void push(const struct queue *q, int n, bool solicited)
{
	struct vb_cqe e = {.wc.wr_id = 1};

	while (n--)
		vb_cq_push(vb_cq(q->cq), &e, solicited);
}

static bool has_event(const struct queue *q)
{
	struct pollfd p = {.fd = q->ch->fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void take_event(const struct queue *q)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(has_event(q) && !vb_get_cq_event(q->ch, &cq, &context) && cq == q->cq);
	vb_ack_cq_events(cq, 1);
}

static void the_count_makes_an_event(void)
{
	struct queue q = make_queue();

	SAME(moderate(q.cq, 5, LONGEST), 0);
	for (int round = 0; round < 3; round++) {
		vb_req_notify_cq(q.cq, 0);
		push(&q, 4, false);
		CHECK(!has_event(&q));
		push(&q, 1, false);
		take_event(&q);
		push(&q, 7, false); /* it is not armed */
		CHECK(!has_event(&q));
	}
	end_queue(&q);
}

static void only_completions_that_would_make_an_event_count(void)
{
	struct queue q = make_queue();

	SAME(moderate(q.cq, 2, LONGEST), 0);
	vb_req_notify_cq(q.cq, 1);
	push(&q, 9, false);
	push(&q, 1, true);
	CHECK(!has_event(&q));
	push(&q, 1, true);
	take_event(&q);
	end_queue(&q);
}

static void the_period_makes_an_event(void)
{
	struct queue q = make_queue(), other = make_queue();

	fake_node.moderate_at = 0; /* of queues before */
	SAME(moderate(q.cq, 100, 1), 0);
	SAME(moderate(other.cq, 100, LONGEST), 0);
	vb_req_notify_cq(q.cq, 0);
	vb_req_notify_cq(other.cq, 0);
	vb_cq_raise_due(&fake_node);
	CHECK(!fake_node.moderate_at && !has_event(&q));
	push(&other, 1, false);
	uint64_t of_other = fake_node.moderate_at;
	push(&q, 1, false);
	CHECK(of_other && fake_node.moderate_at < of_other && fake.timers >= 2);
	usleep(10);
	vb_cq_raise_due(&fake_node);
	take_event(&q);
	CHECK(fake_node.moderate_at == of_other || has_event(&other));
	end_queue(&q);
	end_queue(&other);
	usleep(LONGEST + 10);
	vb_cq_raise_due(&fake_node); /* of none that exists */
	CHECK(!fake_node.moderate_at);
}

static void a_change_counts_for_what_waits(void)
{
	struct queue q = make_queue();

	SAME(moderate(q.cq, 100, LONGEST), 0);
	vb_req_notify_cq(q.cq, 0);
	push(&q, 3, false);
	SAME(moderate(q.cq, 4, LONGEST), 0);
	CHECK(!has_event(&q));
	SAME(moderate(q.cq, 3, LONGEST), 0);
	take_event(&q);
	vb_req_notify_cq(q.cq, 0);
	push(&q, 1, false);
	SAME(moderate(q.cq, 0, 0), 0);
	take_event(&q);
	vb_req_notify_cq(q.cq, 0);
	push(&q, 1, false);
	take_event(&q);
	CHECK(!fake_node.moderated);
	end_queue(&q);
}

/* A count of 1, or a period of 0, is an event per completion. */
static void numbers_without_a_meaning_moderate_nothing(void)
{
	static const uint16_t numbers[][2] = {{0, 0}, {1, LONGEST}, {0, LONGEST}, {LONGEST, 0}};
	struct queue q = make_queue();

	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		SAME(moderate(q.cq, 9, LONGEST), 0);
		SAME(moderate(q.cq, numbers[i][0], numbers[i][1]), 0);
		vb_req_notify_cq(q.cq, 0);
		push(&q, 1, false);
		take_event(&q);
	}
	end_queue(&q);
}

static void other_attributes_are_refused(void)
{
	struct ibv_modify_cq_attr attr = {.moderate = {4, 4}};
	struct queue q = make_queue();

	SAME(vb_modify_cq(q.cq, &attr), EINVAL);
	attr.attr_mask = IBV_CQ_ATTR_MODERATE | IBV_CQ_ATTR_RESERVED;
	SAME(vb_modify_cq(q.cq, &attr), EINVAL);
	CHECK(!fake_node.moderated);
	end_queue(&q);
}

static void a_queue_without_a_channel_is_moderated_in_vain(void)
{
	struct ibv_cq *cq = vb_create_cq(ctx, 8, NULL, NULL, 0);
	struct queue q = {.cq = cq};

	SAME(moderate(cq, 3, 1), 0);
	vb_req_notify_cq(cq, 0);
	push(&q, 1, false);
	usleep(10);
	vb_cq_raise_due(&fake_node);
	vb_req_notify_cq(cq, 0);
	push(&q, 4, false);
	CHECK(!vb_destroy_cq(cq));
}

int main(void)
{
	ctx = vb_open_device(&fake_device.dev);
	int nodes = fake.nodes;

	RUN(the_count_makes_an_event);
	RUN(only_completions_that_would_make_an_event_count);
	RUN(the_period_makes_an_event);
	RUN(a_change_counts_for_what_waits);
	RUN(numbers_without_a_meaning_moderate_nothing);
	RUN(other_attributes_are_refused);
	RUN(a_queue_without_a_channel_is_moderated_in_vain);
	fake.nodes = nodes;
	CHECK(!vb_close_device(ctx) && !fake.nodes);
}
