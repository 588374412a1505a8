// raw.c - raw packet queue pairs and flow steering: on lo, and between the ends of a veth pair
// follows: ibv_create_qp(3), ibv_create_flow(3), packet(7)
// SPDX-License-Identifier: MIT
#include "frames.h"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* --- the kernel, as the library sees it --- */

static atomic_int memberships, refuse_after = -1; /* that sockets have; after how many more the kernel refuses them */
static void (*_Atomic in_kernel)(void);

/* Stands in for that of libc, in the library too. */
__attribute__((visibility("default"))) int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	bool joins = level == SOL_PACKET && name == PACKET_ADD_MEMBERSHIP;
	void (*meanwhile)(void) = joins ? atomic_exchange(&in_kernel, NULL) : NULL;

	if (meanwhile)
		meanwhile();
	if (joins && atomic_load(&refuse_after) >= 0 && atomic_fetch_sub(&refuse_after, 1) == 0) {
		errno = ENOBUFS;
		return -1;
	}
	int r = (int)syscall(SYS_setsockopt, fd, level, name, value, len);

	if (!r && level == SOL_PACKET)
		memberships += joins ? 1 : name == PACKET_DROP_MEMBERSHIP ? -1 : 0;
	return r;
}

/* --- tests --- */

static void frames_go_where_the_rules_say(void)
{
	struct raw a, b, c;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	raw_open(&c, &d, NULL);
	struct ibv_flow *to_b = steer(&b, there), *to_c = steer(&c, group);

	CHECK(to_b && to_c);
	for (uint64_t i = 0; i < 8; i++) {
		receive(&b, i, 2048);
		receive(&c, i, 2048);
	}
	for (uint64_t i = 0; i < 8; i++) {
		uint32_t len = 60 + 200 * (uint32_t)i;

		SAME(send_frame(&a, i, i % 2 ? group : there, len, (uint8_t)(i + 1), 0), 0);
		expect(a.cq, i, IBV_WC_SUCCESS);
		struct raw *to = i % 2 ? &c : &b;
		struct ibv_wc wc = expect(to->cq, i / 2, IBV_WC_SUCCESS);

		SAME(wc.opcode, IBV_WC_RECV);
		SAME(wc.byte_len, len);
		CHECK(!memcmp(received(to, i / 2), a.m.p + i * 2048, len));
	}
	expect_none(b.cq, 50);
	expect_none(c.cq, 50);
	SAME(ibv_destroy_qp(b.qp), EBUSY);
	SAME(ibv_destroy_flow(to_b), 0);
	SAME(send_frame(&a, 1, there, 60, 9, 0), 0); /* nobody wants it any more */
	expect(a.cq, 1, IBV_WC_SUCCESS);
	expect_none(b.cq, 50);
	SAME(ibv_destroy_qp(b.qp), 0);
}

static void a_frame_without_a_receive_is_lost_and_one_too_long_fails_its_receive(void)
{
	struct raw a, b;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	CHECK(steer_all(&b, IBV_FLOW_ATTR_ALL_DEFAULT));
	SAME(send_frame(&a, 0, there, 100, 1, 0), 0);
	expect(a.cq, 0, IBV_WC_SUCCESS);
	expect_none(b.cq, 50);
	receive(&b, 1, 2048);
	receive(&b, 2, 64);
	receive(&b, 3, 2048);
	for (uint64_t i = 1; i < 4; i++) {
		SAME(send_frame(&a, i, there, 100, (uint8_t)i, 0), 0);
		expect(a.cq, i, IBV_WC_SUCCESS);
		expect(b.cq, i, i == 2 ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS);
	}
	CHECK(received(&b, 1)[99] == 1 && received(&b, 3)[99] == 3);
}

static void what_cannot_be_sent_ends_the_send_queue(void)
{
	struct raw a;
	struct dev d;
	struct ibv_send_wr *bad, wr = {.wr_id = 7, .opcode = IBV_WR_RDMA_WRITE};

	on_lo(&d);
	raw_open(&a, &d, NULL);
	SAME(ibv_post_send(a.qp, &wr, &bad), EINVAL);
	struct ibv_sge sge = {(uintptr_t)a.m.p, HEAD - 1, a.m.mr->lkey}; /* less than a header */

	wr = (struct ibv_send_wr){.opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1};
	SAME(ibv_post_send(a.qp, &wr, &bad), 0);
	SAME(send_frame(&a, 1, there, 100, 1, 0), 0);
	expect(a.cq, 0, IBV_WC_LOC_LEN_ERR);
	expect(a.cq, 1, IBV_WC_WR_FLUSH_ERR);
	SAME(state_of(a.qp), IBV_QPS_SQE);
	SAME(to_state(a.qp, IBV_QPS_RTS), 0);
	SAME(send_frame(&a, 2, there, 100, 1, 0), 0);
	expect(a.cq, 2, IBV_WC_SUCCESS);
	a.m.mr->lkey++; /* no such key */
	SAME(send_frame(&a, 3, there, 100, 1, 0), 0);
	expect(a.cq, 3, IBV_WC_LOC_PROT_ERR);
}

static void a_frame_wakes_who_waits_for_an_event(void)
{
	struct raw a, b;
	struct dev d;
	struct ibv_cq *cq;
	void *context;

	on_lo(&d);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(d.ctx);

	CHECK(channel);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, channel);
	CHECK(steer(&b, there));
	for (uint64_t i = 0; i < 3; i++) {
		receive(&b, i, 2048);
		SAME(ibv_req_notify_cq(b.cq, 0), 0);
		SAME(send_frame(&a, i, there, 100, (uint8_t)i, 0), 0);
		struct pollfd p = {channel->fd, POLLIN, 0};

		SAME(poll(&p, 1, PATIENCE), 1);
		SAME(ibv_get_cq_event(channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		expect(b.cq, i, IBV_WC_SUCCESS);
		expect(a.cq, i, IBV_WC_SUCCESS);
	}
}

static void frames_cross_a_cable_with_their_tags(void)
{
	struct dev d0, d1;
	struct raw a, b, sniffer;

	two_ends(&d0, &d1);
	raw_open(&a, &d0, NULL);
	raw_open(&b, &d1, NULL);
	raw_open(&sniffer, &d1, NULL);
	CHECK(steer(&b, there)); /* the address of neither end, so the interface must be told to receive it */
	CHECK(steer_all(&sniffer, IBV_FLOW_ATTR_SNIFFER));
	for (uint64_t i = 0; i < 4; i++) {
		receive(&b, i, 2048);
		receive(&sniffer, i, 2048);
	}
	SAME(send_frame(&a, 0, there, 200, 5, 0), 0);
	expect(a.cq, 0, IBV_WC_SUCCESS);
	struct ibv_wc wc = expect(b.cq, 0, IBV_WC_SUCCESS);

	SAME(wc.byte_len, 200);
	CHECK(!memcmp(received(&b, 0), a.m.p, 200));

	/* tagged: 802.1Q, VLAN 5 */
	uint8_t *f = a.m.p + 2048;
	struct ibv_sge sge = {(uintptr_t)f, 104, a.m.mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED},
	                   *bad;

	memset(f, 0x77, 104);
	memcpy(f, there, 6);
	memcpy(f + 6, here, 6);
	memcpy(f + 12, (uint8_t[]){0x81, 0, 0x60, 5, 0x88, 0xb5}, 6);
	SAME(ibv_post_send(a.qp, &wr, &bad), 0);
	expect(a.cq, 1, IBV_WC_SUCCESS);
	wc = expect(b.cq, 1, IBV_WC_SUCCESS);
	SAME(wc.byte_len, 104);
	CHECK(!memcmp(received(&b, 1), f, 104));
}

/* Sends a frame as a program of this host that knows nothing of us. */
static void host_sends(const char *interface, const uint8_t *dst)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = (int)if_nametoindex(interface)};
	uint8_t f[200] = {0};
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	memcpy(f, dst, 6);
	memcpy(f + 6, here, 6);
	f[12] = 0x88;
	f[13] = 0xb5;
	CHECK(fd >= 0 && sendto(fd, f, sizeof(f), 0, (struct sockaddr *)&to, sizeof(to)) == sizeof(f));
	close(fd);
}

static void what_the_host_sends_is_seen_by_sniffers_only(void)
{
	struct raw near, far, sniffer;
	struct dev d0, d1;

	two_ends(&d0, &d1);
	raw_open(&near, &d0, NULL);
	raw_open(&sniffer, &d0, NULL);
	raw_open(&far, &d1, NULL);
	CHECK(steer(&near, there) && steer(&near, group) && steer(&far, there));
	struct ibv_flow *sniffs = steer_all(&sniffer, IBV_FLOW_ATTR_SNIFFER);

	CHECK(sniffs);
	for (uint64_t i = 0; i < 8; i++) {
		receive(&near, i, 2048);
		receive(&far, i, 2048);
		receive(&sniffer, i, 2048);
	}
	host_sends("v0", there);
	expect(far.cq, 0, IBV_WC_SUCCESS);
	for (uint64_t i = 0, n = 0; n < 1; i++) { /* the kernel's own frames pass, too */
		expect(sniffer.cq, i, IBV_WC_SUCCESS);
		n += !memcmp(received(&sniffer, i), there, 6);
	}
	expect_none(near.cq, 50);
	/* another raw packet queue pair of the port is as good as a station on the wire */
	SAME(send_frame(&sniffer, 1, there, 100, 1, 0), 0);
	expect(near.cq, 0, IBV_WC_SUCCESS);
	expect(far.cq, 1, IBV_WC_SUCCESS);
	CHECK(received(&near, 0)[99] == 1);
	host_sends("v1", group); /* from the wire */
	expect(near.cq, 1, IBV_WC_SUCCESS);
}

static void a_receive_into_memory_that_is_not_there_ends_the_queue_pair(void)
{
	struct raw a, b;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	CHECK(steer(&b, there));
	b.m.mr->lkey++; /* no such key */
	receive(&b, 0, 2048);
	b.m.mr->lkey--;
	receive(&b, 1, 2048);
	SAME(send_frame(&a, 0, there, 100, 1, 0), 0);
	expect(b.cq, 0, IBV_WC_LOC_PROT_ERR);
	expect(b.cq, 1, IBV_WC_WR_FLUSH_ERR);
	SAME(state_of(b.qp), IBV_QPS_ERR);
	SAME(to_state(b.qp, IBV_QPS_RESET), 0);
}

static struct raw *bystander;
static atomic_bool went_on;

static void *go_on(void *arg)
{
	SAME(state_of(bystander->qp), IBV_QPS_RTS); /* takes the locks of the data path */
	atomic_store(&went_on, true);
	return NULL;
}

static void start_bystander(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, go_on, NULL) && !pthread_detach(thread));
	for (int i = 0; i < 1000 && !atomic_load(&went_on); i++)
		sleep_ms(10);
}

static void others_go_on_while_the_kernel_makes_a_rule(void)
{
	struct raw a, b;
	struct dev d0, d1;

	two_ends(&d0, &d1);
	raw_open(&a, &d0, NULL);
	raw_open(&b, &d0, NULL);
	bystander = &b;
	atomic_store(&in_kernel, start_bystander);
	struct ibv_flow *f = steer(&a, group);

	CHECK(f && atomic_load(&went_on));
	SAME(ibv_destroy_flow(f), 0);
	SAME(ibv_destroy_qp(a.qp), 0);
}

static void a_rule_that_the_kernel_refuses_leaves_nothing_behind(void)
{
	struct ibv_flow *f[3];
	struct raw a;
	struct dev d0, d1;

	two_ends(&d0, &d1);
	raw_open(&a, &d0, NULL);
	SAME(atomic_load(&memberships), 0);
	for (int i = 0; i < 3; i++) {
		CHECK((f[i] = steer(&a, (uint8_t[]){0x33, 0x33, 0, 0, 1, (uint8_t)i})));
		SAME(atomic_load(&memberships), i + 1);
	}
	for (int i = 0; i < 4; i++) {
		atomic_store(&refuse_after, i);
		CHECK(!steer(&a, group) && errno == ENOBUFS);
		atomic_store(&refuse_after, -1);
		SAME(atomic_load(&memberships), 3);
	}
	CHECK(steer(&a, group));
	SAME(atomic_load(&memberships), 4);
	for (int i = 0; i < 3; i++)
		SAME(ibv_destroy_flow(f[i]), 0);
	SAME(atomic_load(&memberships), 1);
}

static struct ibv_flow *counted_flow(struct raw *r, struct ibv_counters *counters, const uint8_t *to)
{
	struct __attribute__((packed, aligned(8))) { /* the pointer would be aligned, and rdma-core wants no gaps */
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_counter_action count;
	} rule = {.attr = {.size = sizeof(rule), .num_of_specs = 2, .port = 1},
	          .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth)},
	          .count = {.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof(rule.count), .counters = counters}};

	memcpy(rule.eth.val.dst_mac, to, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	return ibv_create_flow(r->qp, (void *)&rule);
}

static void a_counters_object_counts_what_its_flow_receives(void)
{
	struct ibv_counters_init_attr init = {0};
	struct ibv_counter_attach_attr frames = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0},
	                               bytes = {.counter_desc = IBV_COUNTER_BYTES, .index = 1};
	struct raw a, b;
	struct dev d;
	uint64_t v[2];

	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	struct ibv_counters *counters = ibv_create_counters(d.ctx, &init);

	CHECK(counters);
	SAME(ibv_attach_counters_point_flow(counters, &frames, NULL), 0);
	SAME(ibv_attach_counters_point_flow(counters, &bytes, NULL), 0);
	struct ibv_flow *flow = counted_flow(&b, counters, there);

	CHECK(flow);
	for (uint64_t i = 0; i < 6; i++) {
		receive(&b, i, 2048);
		SAME(send_frame(&a, i, i < 5 ? there : group, 100, 1, 0), 0); /* the last one matches no rule */
		expect(a.cq, i, IBV_WC_SUCCESS);
		if (i < 5)
			expect(b.cq, i, IBV_WC_SUCCESS);
	}
	SAME(ibv_read_counters(counters, v, 2, 0), 0);
	SAME(v[0], 5);
	SAME(v[1], 500);
	SAME(ibv_attach_counters_point_flow(counters, &frames, NULL), EBUSY);
	SAME(ibv_destroy_counters(counters), EBUSY);
	SAME(ibv_destroy_flow(flow), 0);
	SAME(ibv_read_counters(counters, v, 1, IBV_READ_COUNTERS_ATTR_PREFER_CACHED), 0);
	SAME(v[0], 5);
	SAME(ibv_destroy_counters(counters), 0);
}

/* One thread destroys what another makes flows with. */
static struct ibv_counters *_Atomic given;

static void *destroys_counters(void *unused)
{
	for (;;) {
		struct ibv_counters *c = atomic_exchange(&given, NULL);

		if (c == (void *)&given)
			return NULL;
		while (c && ibv_destroy_counters(c))
			sched_yield();
	}
}

static void a_counters_object_ends_while_another_thread_makes_flows_with_it(void)
{
	struct ibv_counters_init_attr init = {0};
	unsigned made = 0, refused = 0;
	pthread_t other;
	struct raw a;
	struct dev d;

	on_lo(&d);
	raw_open(&a, &d, NULL);
	CHECK(!pthread_create(&other, NULL, destroys_counters, NULL));
	for (int i = 0; i < 400; i++) {
		struct ibv_counters *c = ibv_create_counters(d.ctx, &init);

		CHECK(c);
		atomic_store(&given, c);
		struct ibv_flow *flow = counted_flow(&a, c, there);

		CHECK(flow || errno == EINVAL);
		made += flow != NULL;
		refused += !flow;
		while (flow && atomic_load(&given))
			sched_yield();
		if (flow)
			SAME(ibv_destroy_flow(flow), 0); /* which has kept the object */
		while (atomic_load(&given))
			sched_yield();
	}
	atomic_store(&given, (void *)&given);
	CHECK(!pthread_join(other, NULL));
	SAME(made + refused, 400);
}

/* Sends a frame to b, and returns whether it has arrived. */
static bool crosses(struct raw *a, struct raw *b)
{
	struct ibv_wc wc;

	SAME(send_frame(a, 1, there, 100, 7, 0), 0);
	expect(a->cq, 1, IBV_WC_SUCCESS);
	sleep_ms(10);
	if (ibv_poll_cq(b->cq, 1, &wc) < 1)
		return false;
	SAME(wc.status, IBV_WC_SUCCESS);
	receive(b, 0, 2048);
	return true;
}

static enum ibv_port_state port_state(const struct dev *d)
{
	struct ibv_port_attr port;

	SAME(ibv_query_port(d->ctx, 1, &port), 0);
	return port.state;
}

static void a_port_that_is_down_loses_frames(void)
{
	struct raw a, b;
	struct dev d;
	unsigned lost = 0;

	setenv("VERBENA_FAULT", "port=down for=1s; port=down after=2s", 1);
	on_lo(&d);
	raw_open(&a, &d, NULL);
	raw_open(&b, &d, NULL);
	CHECK(steer(&b, there));
	receive(&b, 0, 2048);
	for (bool down = port_state(&d) == IBV_PORT_DOWN; down;) { /* a busy machine may not see this at all */
		bool crossed = crosses(&a, &b);

		down = port_state(&d) == IBV_PORT_DOWN;
		CHECK(!down || !crossed);
	}
	/* up: frames arrive, if there is time for one; down again: all are lost, a moment after */
	for (uint64_t end = now_ms() + PATIENCE; lost < 30; lost = crosses(&a, &b) ? 0 : lost + 1)
		CHECK(now_ms() < end);
	SAME(port_state(&d), IBV_PORT_DOWN);
}

static void without_the_right_there_is_no_queue_pair(void)
{
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct caps[2];
	struct dev d;

	on_lo(&d);
	struct ibv_cq *cq = ibv_create_cq(d.ctx, 16, NULL, NULL, 0);

	CHECK(!syscall(SYS_capget, &head, caps));
	caps[0].effective &= ~(1u << CAP_NET_RAW);
	CHECK(!syscall(SYS_capset, &head, caps));
	CHECK(!try_raw(&d, cq) && errno == EPERM);
	caps[0].effective |= 1u << CAP_NET_RAW;
	CHECK(!syscall(SYS_capset, &head, caps));
	struct ibv_qp *qp = try_raw(&d, cq);

	CHECK(qp && !ibv_destroy_qp(qp));
}

static void the_device_says_that_it_has_them(void)
{
	struct ibv_device_attr_ex attr;
	struct dev d;

	dev_open(&d);
	SAME(ibv_query_device_ex(d.ctx, NULL, &attr), 0);
	CHECK(attr.orig_attr.max_raw_ethy_qp > 0);
	CHECK(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING);
}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
	        {"frames go where the rules say", frames_go_where_the_rules_say, 0},
	        {"a frame without a receive is lost, and one too long fails its receive",
	         a_frame_without_a_receive_is_lost_and_one_too_long_fails_its_receive, 0},
	        {"what cannot be sent ends the send queue", what_cannot_be_sent_ends_the_send_queue, 0},
	        {"a frame wakes who waits for an event", a_frame_wakes_who_waits_for_an_event, 0},
	        {"frames cross a cable, with their tags", frames_cross_a_cable_with_their_tags, 0},
	        {"what the host sends is seen by sniffers only", what_the_host_sends_is_seen_by_sniffers_only, 0},
	        {"a receive into memory that is not there ends the queue pair",
	         a_receive_into_memory_that_is_not_there_ends_the_queue_pair, 0},
	        {"others go on while the kernel makes a rule", others_go_on_while_the_kernel_makes_a_rule, 0},
	        {"a rule that the kernel refuses leaves nothing behind",
	         a_rule_that_the_kernel_refuses_leaves_nothing_behind, 0},
	        {"a counters object counts what its flow receives", a_counters_object_counts_what_its_flow_receives, 0},
	        {"a counters object ends while another thread makes flows with it",
	         a_counters_object_ends_while_another_thread_makes_flows_with_it, 0},
	        {"a port that is down loses frames", a_port_that_is_down_loses_frames, 0},
	        {"without the right there is no queue pair", without_the_right_there_is_no_queue_pair, 0},
	        {"the device says that it has them", the_device_says_that_it_has_them, 0},
	};

	return RUN_TESTS(argc, argv, tests);
}
