// async_test.c - asynchronous events, and the life of a context
// follows: ibv_get_async_event(3), ibv_open_device(3)
// SPDX-License-Identifier: MIT
#include "harness.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static struct objects o;

static void events_come_in_order_and_once(void)
{
	struct ibv_async_event ev;

	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_FATAL, o.qp);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_PORT_ERR, (void *)1);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_FATAL, o.qp);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_QP_FATAL && ev.element.qp == o.qp);
	vb_ack_async_event(&ev);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_PORT_ERR && ev.element.port_num == 1);
	vb_ack_async_event(&ev);
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && errno == EAGAIN);
	CHECK(o.qp->events_completed == 1);
}

/* Without a reader the queue does not grow, and a reader that reads to the end gets the port's present state. */
static void the_last_word_on_a_port_comes_last(void)
{
	static const enum ibv_event_type told[] = {IBV_EVENT_GID_CHANGE, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR};
	struct ibv_async_event ev;

	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_GID_CHANGE, (void *)1);
	for (int i = 0; i < 10; i++) {
		vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_PORT_ERR, (void *)1);
		vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_PORT_ACTIVE, (void *)1);
	}
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_PORT_ERR, (void *)1);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_PORT_ERR, (void *)1);
	for (int i = 0; i < 3; i++) {
		CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == told[i] && ev.element.port_num == 1);
		vb_ack_async_event(&ev);
	}
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && errno == EAGAIN);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_PORT_ACTIVE, (void *)1);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_PORT_ACTIVE);
}

static void events_of_a_destroyed_object_are_gone(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_UD, NULL);
	struct ibv_async_event ev;

	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_FATAL, qp);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_CQ_ERR, o.cq);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_QP_REQ_ERR, qp);
	CHECK(!vb_destroy_qp(qp));
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_CQ_ERR);
	vb_ack_async_event(&ev);
	CHECK(vb_get_async_event(o.ctx, &ev) == -1 && errno == EAGAIN);
}

static struct ibv_async_event taken;

static void *ack_later(void *arg)
{
	usleep(50000);
	vb_ack_async_event(&taken);
	return NULL;
}

static void destroying_waits_for_the_acknowledgement(void)
{
	struct ibv_qp *qp = make_qp(&o, IBV_QPT_UD, NULL);
	uint64_t t = vb_now();
	pthread_t thread;

	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_COMM_EST, qp);
	CHECK(!vb_get_async_event(o.ctx, &taken));
	pthread_create(&thread, NULL, ack_later, NULL);
	CHECK(!vb_destroy_qp(qp) && vb_now() - t > 40000000);
	pthread_join(thread, NULL);
}

static void *raise_later(void *arg)
{
	wait_for_handover();
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_GID_CHANGE, (void *)1);
	return NULL;
}

static void a_waiter_sleeps_until_the_event(void)
{
	struct ibv_async_event ev;
	pthread_t thread;

	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, 0));
	pthread_create(&thread, NULL, raise_later, NULL);
	CHECK(!vb_get_async_event(o.ctx, &ev) && ev.event_type == IBV_EVENT_GID_CHANGE && fake.handovers == 1);
	pthread_join(thread, NULL);
	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK));
}

static void on_signal(int sig)
{
}

static atomic_bool interrupted;

/* Repeats until it has happened, because the first attempt may be too early. */
static void *interrupt_later(void *thread)
{
	for (int i = 0; i < 400 && !interrupted; i++) {
		usleep(50000);
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	}
	usleep(50000);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_GID_CHANGE, (void *)1);
	return NULL;
}

/* It is not registered anywhere. */
static void *interrupt_twice(void *thread)
{
	for (int i = 0; i < 2; i++) {
		usleep(50000);
		pthread_kill(*(pthread_t *)thread, SIGUSR1);
	}
	usleep(50000);
	vb_async_raise(vb_ctx(o.ctx), IBV_EVENT_GID_CHANGE, (void *)1);
	return NULL;
}

/* Like a read of the kernel's descriptor: restarted with SA_RESTART, otherwise interrupted. */
static void a_signal_interrupts_only_where_its_handler_says_so(void)
{
	struct ibv_async_event ev;
	pthread_t self = pthread_self(), thread;

	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, 0));
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction sa = {.sa_handler = on_signal, .sa_flags = restart ? SA_RESTART : 0};

		sigaction(SIGUSR1, &sa, NULL);
		interrupted = false;
		pthread_create(&thread, NULL, restart ? interrupt_twice : interrupt_later, &self);
		int r = vb_get_async_event(o.ctx, &ev);

		interrupted = true;
		CHECK(restart ? !r : r == -1 && errno == EINTR);
		pthread_join(thread, NULL);
		if (!restart)
			CHECK(!vb_get_async_event(o.ctx, &ev));
	}
	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK));
}

static void a_context_shows_what_programs_look_for(void)
{
	char text[200] = "";

	CHECK(o.ctx->num_comp_vectors >= 1 && o.ctx->abi_compat == __VERBS_ABI_IS_EXTENDED &&
	      o.ctx->device == &fake_device.dev);
	CHECK(pread(o.ctx->cmd_fd, text, sizeof(text) - 1, 0) > 0 && strstr(text, "roce_fake lane 7 incarnation 1"));
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	CHECK(!vb_query_rt_values(o.ctx, &v) && v.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && v.raw_clock.tv_nsec > 0);
}

static void a_device_closed_too_early_goes_with_its_last_object(void)
{
	struct ibv_context *ctx = vb_open_device(&fake_device.dev);
	struct ibv_pd *pd = vb_alloc_pd(ctx);
	struct ibv_cq *cq = vb_create_cq(ctx, 1, NULL, NULL, 0);
	int nodes = fake.nodes;

	CHECK(!vb_close_device(ctx) && fake.nodes == nodes);
	CHECK(!vb_destroy_cq(cq) && fake.nodes == nodes);
	CHECK(!vb_dealloc_pd(pd) && fake.nodes == nodes - 1);
}

int main(void)
{
	o = open_objects(IBV_QPT_RC);
	int nodes = fake.nodes;

	CHECK(!fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK));
	RUN(events_come_in_order_and_once);
	RUN(the_last_word_on_a_port_comes_last);
	RUN(events_of_a_destroyed_object_are_gone);
	RUN(destroying_waits_for_the_acknowledgement);
	RUN(a_waiter_sleeps_until_the_event);
	RUN(a_signal_interrupts_only_where_its_handler_says_so);
	RUN(a_context_shows_what_programs_look_for);
	RUN(a_device_closed_too_early_goes_with_its_last_object);
	fake.nodes = nodes;
	close_objects(&o);
}
