// moderated.c - completion events of a CQ that ibv_modify_cq moderates, in programs that sleep
// follows: ibv_modify_cq(3), ibv_get_cq_event(3)
// SPDX-License-Identifier: MIT
#include "pair.h"

#include <fcntl.h>
#include <poll.h>

#define MESSAGES 512u
#define DEPTH 64u

struct job {
	uint16_t count, period;
	unsigned messages;
};

static void sender(int fd, void *arg)
{
	const struct job *j = arg;
	struct dev d;
	struct link l;
	struct mem m;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	link_open(&l, &d, &(struct conf){.depth = DEPTH}, fd);
	meet_up(fd);
	for (unsigned i = 0; i < j->messages; i++) {
		POST(&l, .op = IBV_WR_SEND, .id = i, .m = &m, .len = 8);
		expect(l.scq, i, IBV_WC_SUCCESS);
	}
	meet_up(fd);
}

static struct ibv_cq *wait_event(struct ibv_comp_channel *ch)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	CHECK(poll(&p, 1, PATIENCE) == 1);
	CHECK(!ibv_get_cq_event(ch, &cq, &context));
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/* Sleeps for events until all messages are there. Returns the number of events. */
static unsigned receive_all(struct job j)
{
	struct peer p = start(sender, &j);
	struct dev d;
	struct link l;
	struct mem m;
	unsigned got = 0, events = 0;

	dev_open(&d);
	mem_make(&m, &d, 4096);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(d.ctx);
	CHECK(ch);
	link_make(&l, &d, &(struct conf){.rdepth = 2 * DEPTH, .channel = ch});
	struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {j.count, j.period}};
	SAME(ibv_modify_cq(l.rcq, &attr), 0);
	for (unsigned i = 0; i < DEPTH; i++)
		post_recv(&l, i, &m, 0, 8);
	link_join(&l, p.fd);
	SAME(ibv_req_notify_cq(l.rcq, 0), 0);
	meet_up(p.fd);
	while (got < j.messages) {
		struct ibv_wc wc;

		CHECK(wait_event(ch) == l.rcq);
		events++;
		SAME(ibv_req_notify_cq(l.rcq, 0), 0);
		while (ibv_poll_cq(l.rcq, 1, &wc) > 0) {
			SAME(wc.status, IBV_WC_SUCCESS);
			post_recv(&l, got++, &m, 0, 8);
		}
	}
	meet_up(p.fd);
	finish(&p);
	link_end(&l);
	CHECK(!ibv_destroy_comp_channel(ch));
	mem_end(&m);
	dev_close(&d);
	return events;
}

/* Without moderation a program that sleeps between two messages gets nearly an event for each. */
static void many_completions_have_one_event(void)
{
	unsigned events = receive_all((struct job){32, 65535, MESSAGES});

	if (events > MESSAGES / 2)
		fail(__FILE__, __LINE__, "%u messages had %u events", MESSAGES, events);
}

/* The count is never reached, so that only the period ends the wait. */
static void a_completion_alone_has_its_event_after_the_period(void)
{
	receive_all((struct job){60000, 1, 1});
	receive_all((struct job){60000, 500, 1});
	receive_all((struct job){60000, 20000, 4});
}

static void a_device_says_what_moderation_it_has(void)
{
	struct ibv_device_attr_ex attr;
	struct dev d;

	dev_open(&d);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 8, NULL, NULL, 0);
	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	CHECK(cq && attr.cq_mod_caps.max_cq_count && attr.cq_mod_caps.max_cq_period);
	struct ibv_modify_cq_attr most = {.attr_mask = IBV_CQ_ATTR_MODERATE,
	                                  .moderate = {attr.cq_mod_caps.max_cq_count, attr.cq_mod_caps.max_cq_period}};
	SAME(ibv_modify_cq(cq, &most), 0);
	most.attr_mask = 0;
	SAME(ibv_modify_cq(cq, &most), EINVAL);
	SAME(ibv_destroy_cq(cq), 0);
	dev_close(&d);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"many completions have one event", many_completions_have_one_event},
	        {"a completion alone has its event after the period",
	         a_completion_alone_has_its_event_after_the_period},
	        {"a device says what moderation it has", a_device_says_what_moderation_it_has},
	};

	return RUN_TESTS(argc, argv, tests);
}
