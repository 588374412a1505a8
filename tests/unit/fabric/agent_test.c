// agent_test.c - agents of two hosts on one switch: registration, transactions, timeouts, and transfers by RMPP
// follows: IBA volume 1, 13.5.3, 13.6 (RMPP); Linux Documentation/infiniband/user_mad.rst
// SPDX-License-Identifier: MIT
#include "../../support/check.h"
#include "fabric/agent/agent.h"
#include "fabric/agent/internal.h"
#include "fabric/topology.h"
#include "frame/rmpp.h"

#define MS 1000000ull

static struct {
	struct vb_fabric *f;
	struct vb_agents *a[2];
	struct vb_agent_file *file[2];
	uint32_t next_tid;
	unsigned agent[2];
	/* the last thing that the programs received */
	struct vb_agent_file *to;
	unsigned count, to_agent;
	int error;
	struct vb_agent_addr from;
	uint8_t mad[300000];
	size_t len;
	bool deaf;     /* nothing reaches host 1 */
	unsigned seen; /* datagrams that reached host 1 */
} t;

static void received(void *own, struct vb_agent_file *file, unsigned agent, int error, const struct vb_agent_addr *addr,
                     const uint8_t *mad, size_t len)
{
	CHECK(len <= sizeof(t.mad));
	t.to = file;
	t.to_agent = agent;
	t.error = error;
	t.from = *addr;
	t.len = len;
	memcpy(t.mad, mad, len);
	t.count++;
}

static const struct vb_agents_ops agents_ops = {.receive = received};

static bool deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	if (port->host == t.a[1]) {
		t.seen++;
		if (t.deaf)
			return true;
	}
	return port->host && vb_agents_deliver(port->host, packet);
}

static const struct vb_fabric_ops ops = {.deliver = deliver};

static int try_register(int host, uint8_t mgmt_class, uint64_t methods, uint8_t rmpp, unsigned *agent)
{
	struct vb_agent_registration r = {.qpn = mgmt_class == 0x81 ? 0 : 1,
	                                  .mgmt_class = mgmt_class,
	                                  .class_version = mgmt_class == VB_MAD_CLASS_SA ? 2 : 1,
	                                  .rmpp_version = rmpp,
	                                  .method_mask = {methods}};

	return vb_agent_register(t.file[host], &r, agent);
}

/* Host 0 asks (LID 1), host 1 answers (LID 2), by the class of subnet administration. */
static void begin(void)
{
	struct vb_topology_error e;

	memset(&t, 0, sizeof(t));
	t.f = vb_fabric_new(&ops, NULL);
	CHECK(t.f && vb_topology_generate(t.f, "switch:2", &e));
	vb_fabric_train_all(t.f);
	struct vb_fabric_node *sw = t.f->nodes[0];
	sw->sw->lft = malloc(64);
	CHECK(sw->sw->lft);
	memset(sw->sw->lft, 255, 64);
	sw->sw->lft_len = 64;
	sw->sw->info.lft_top = 63;
	for (unsigned i = 0; i < 2; i++) {
		struct vb_fabric_port *p = &t.f->nodes[1 + i]->port[1];

		p->info.lid = (uint16_t)(1 + i);
		p->info.state = p->peer->info.state = VB_PORT_ACTIVE;
		sw->sw->lft[1 + i] = (uint8_t)(1 + i);
		t.a[i] = vb_agents_new(p, &agents_ops, &t.next_tid);
		CHECK(t.a[i] && (t.file[i] = vb_agent_open(t.a[i], NULL)));
	}
	SAME(try_register(0, VB_MAD_CLASS_SA, 0, 1, &t.agent[0]), 0);
	SAME(try_register(1, VB_MAD_CLASS_SA, 1u << 2 | 1u << 0x12, 1, &t.agent[1]), 0);
}

static void end(void)
{
	vb_agents_free(t.a[0]);
	vb_agents_free(t.a[1]);
	vb_fabric_free(t.f);
}

static void pass_time(int host, uint64_t now)
{
	vb_fabric_time(t.f, now);
	vb_agent_time(t.file[host]);
}

static struct vb_agent_addr to_lid(uint16_t lid)
{
	return (struct vb_agent_addr){.lid = lid, .qpn = 1, .qkey = VB_GSI_QKEY};
}

static int ask(uint64_t tid, uint32_t timeout, uint32_t retries)
{
	struct vb_agent_addr to = to_lid(2);
	uint8_t mad[VB_MAD_LEN] = {1, VB_MAD_CLASS_SA, 2, 0x12};

	for (int i = 0; i < 8; i++)
		mad[8 + i] = (uint8_t)(tid >> (56 - 8 * i));
	return vb_agent_send(t.file[0], t.agent[0], &to, mad, sizeof(mad), timeout, retries);
}

/* Host 1 answers what it has received last, with this many bytes behind the header. */
static int reply(size_t data)
{
	static uint8_t mad[300000];
	struct vb_rmpp h = {.version = 1, .type = VB_RMPP_DATA, .flags = VB_RMPP_ACTIVE};

	memcpy(mad, t.mad, 56);
	mad[3] = 0x92;
	if (data > 200)
		vb_rmpp_encode(mad, &h);
	for (size_t i = 0; i < data; i++)
		mad[56 + i] = (uint8_t)(i * 7 + i / 200);
	return vb_agent_send(t.file[1], t.agent[1], &t.from, mad, 56 + data, 0, 0);
}

static void a_reply_finds_the_program_that_asked(void)
{
	begin();
	SAME(ask(0x1122334455667788, 100, 0), 0);
	CHECK(t.to == t.file[1] && t.to_agent == t.agent[1]);
	SAME(t.from.lid, 1);
	SAME(t.from.qpn, 1);
	CHECK(t.mad[12] == 0x55 && t.mad[15] == 0x88 && t.mad[8] != 0x11); /* the high half is the agent's */
	SAME(reply(200), 0);
	CHECK(t.to == t.file[0] && t.to_agent == t.agent[0] && !t.error);
	SAME(t.count, 2);
	t.to = t.file[1];
	SAME(reply(200), 0); /* once more: nobody waits any longer */
	SAME(t.count, 2);
	end();
}

static void a_transaction_under_way_is_not_begun_twice(void)
{
	begin();
	t.deaf = true;
	SAME(ask(5, 100, 0), 0);
	SAME(ask(5, 100, 0), EINVAL);
	SAME(ask(6, 100, 0), 0);
	end();
}

static void a_request_without_a_reply_comes_back_after_its_retries(void)
{
	begin();
	t.deaf = true;
	SAME(ask(5, 100, 2), 0);
	SAME(t.seen, 1);
	SAME(vb_agent_deadline(t.file[0]), 100 * MS);
	pass_time(0, 100 * MS);
	pass_time(0, 199 * MS);
	SAME(t.seen, 2);
	pass_time(0, 200 * MS);
	SAME(t.seen, 3);
	SAME(t.count, 0);
	pass_time(0, 300 * MS);
	SAME(t.count, 1);
	SAME(t.error, ETIMEDOUT);
	SAME(t.len, VB_MAD_HEADER_LEN);
	SAME(t.mad[15], 5);
	SAME(vb_agent_deadline(t.file[0]), UINT64_MAX);
	SAME(ask(5, 100, 0), 0);
	end();
}

static void what_the_kernel_refuses_is_refused(void)
{
	struct vb_agent_addr to = to_lid(2);
	uint8_t mad[300] = {1, VB_MAD_CLASS_SA, 2, 1};
	unsigned agent;

	begin();
	SAME(vb_agent_send(t.file[0], 7, &to, mad, 256, 0, 0), EINVAL);
	SAME(vb_agent_send(t.file[0], t.agent[0], &to, mad, 35, 0, 0), EINVAL);
	SAME(vb_agent_send(t.file[0], t.agent[0], &to, mad, 257, 0, 0), EINVAL); /* no RMPP in it */
	SAME(try_register(1, VB_MAD_CLASS_SA, 1u << 0x12, 1, &agent), EINVAL);   /* taken */
	SAME(try_register(1, VB_MAD_CLASS_SA, 1u << 3, 1, &agent), 0);
	SAME(try_register(1, VB_MAD_CLASS_PM, 2, 1, &agent), EINVAL); /* no RMPP in this class */
	SAME(vb_agent_unregister(t.file[1], t.agent[1]), 0);
	SAME(vb_agent_unregister(t.file[1], t.agent[1]), EINVAL);
	SAME(try_register(1, VB_MAD_CLASS_SA, 1u << 0x12, 1, &agent), 0);
	for (int i = 0; i < VB_AGENTS_MOST - 2; i++)
		SAME(try_register(1, VB_MAD_CLASS_SA, 0, 1, &agent), 0);
	SAME(try_register(1, VB_MAD_CLASS_SA, 0, 1, &agent), ENOMEM);
	end();
}

static void a_request_that_no_agent_takes_is_answered_so(void)
{
	struct vb_agent_addr to = to_lid(2);
	uint8_t mad[VB_MAD_LEN] = {1, 0x05, 1, VB_MAD_GET};
	unsigned agent;

	begin();
	SAME(try_register(0, 0x05, 0, 0, &agent), 0);
	SAME(vb_agent_send(t.file[0], agent, &to, mad, sizeof(mad), 100, 0), 0);
	SAME(t.count, 1);
	CHECK(t.to == t.file[0] && t.mad[3] == VB_MAD_GET_RESP && t.mad[5] == VB_MAD_BAD_ATTR);
	end();
}

static void a_long_reply_arrives_whole(void)
{
	static const size_t sizes[] = {1, 199, 200, 201, 399, 400, 401, 200 * 64, 200 * 65 + 1, 250001};

	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
		begin();
		SAME(ask(9, 100, 0), 0);
		SAME(reply(sizes[k]), 0);
		CHECK(t.to == t.file[0] && !t.error);
		SAME(t.len, sizes[k] > 200 ? 56 + sizes[k] : 256);
		for (size_t i = 0; i < sizes[k]; i++)
			SAME(t.mad[56 + i], (uint8_t)(i * 7 + i / 200));
		SAME(t.count, 2);
		end();
	}
}

static void a_transfer_survives_a_break(void)
{
	begin();
	SAME(ask(9, 1000, 3), 0);
	t.deaf = true; /* host 1 gets no acknowledgement */
	SAME(reply(5000), 0);
	SAME(t.count, 1);
	t.deaf = false;
	pass_time(0, 500 * MS);
	pass_time(1, 500 * MS);
	SAME(t.count, 2);
	SAME(t.len, 5056);
	end();
}

static struct vb_fabric_packet segment(uint32_t number, uint8_t flags, uint8_t method)
{
	struct vb_fabric_packet p = {.slid = 1,
	                             .dlid = 2,
	                             .pkey = 0xffff,
	                             .src_qpn = 1,
	                             .dst_qpn = 1,
	                             .qkey = VB_GSI_QKEY,
	                             .mad = {1, VB_MAD_CLASS_SA, 2, method, [15] = 1}};
	struct vb_rmpp h = {.version = 1,
	                    .type = VB_RMPP_DATA,
	                    .flags = (uint8_t)(VB_RMPP_ACTIVE | flags),
	                    .segment = number,
	                    .length = 220};

	vb_rmpp_encode(p.mad, &h);
	return p;
}

static void a_transfer_that_never_ends_is_aborted(void)
{
	struct vb_fabric_packet p;
	uint32_t n = 0;

	begin();
	vb_agents_free(t.a[0]);
	t.a[0] = NULL;
	do {
		n++;
		p = segment(n, n == 1 ? VB_RMPP_FIRST : 0, 0x12);
		CHECK(vb_agents_deliver(t.a[1], &p));
	} while ((uint64_t)n * 200 < VB_AGENT_LEN_MOST + 1000);
	SAME(t.count, 0);
	SAME(vb_agent_deadline(t.file[1]), UINT64_MAX); /* nothing is kept */
	p = segment(2, 0, 0x12);
	CHECK(vb_agents_deliver(t.a[1], &p));
	p = segment(1, VB_RMPP_FIRST, 0x12);
	CHECK(vb_agents_deliver(t.a[1], &p));
	pass_time(1, 11000 * MS); /* and one that stops is forgotten */
	SAME(vb_agent_deadline(t.file[1]), UINT64_MAX);
	end();
}

static void segments_that_nobody_asked_for_are_refused(void)
{
	struct vb_fabric_packet p;

	begin();
	for (uint32_t i = 0; i < 1000; i++) {
		p = segment(i % 3, (uint8_t)(i % 8), i & 1 ? 0x12 : 0x92);
		p.mad[24] = (uint8_t)(i % 5 == 4); /* another version at times */
		p.mad[25] = (uint8_t)(i % 7);
		vb_fabric_send(&t.f->nodes[1]->port[1], &p);
	}
	CHECK(t.count < 1000);
	end();
}

/* As ibsrpdm does: the agent is of another class than its request. */
static void a_reply_of_another_class_finds_the_agent_that_asked(void)
{
	unsigned answers, asks;

	begin();
	SAME(try_register(1, VB_MAD_CLASS_DEVICE_MGMT, 1u << VB_MAD_GET, 0, &answers), 0);
	SAME(try_register(0, VB_MAD_CLASS_PM, 0, 0, &asks), 0);
	uint8_t mad[VB_MAD_LEN] = {1, VB_MAD_CLASS_DEVICE_MGMT, 1, VB_MAD_GET};
	struct vb_agent_addr to = {.lid = 2, .qpn = 1, .qkey = VB_GSI_QKEY};

	SAME(vb_agent_send(t.file[0], asks, &to, mad, sizeof(mad), 1000, 0), 0);
	CHECK(t.to == t.file[1] && t.to_agent == answers);
	memcpy(mad, t.mad, sizeof(mad));
	mad[3] = VB_MAD_GET_RESP;
	SAME(vb_agent_send(t.file[1], answers, &t.from, mad, sizeof(mad), 0, 0), 0);
	CHECK(t.to == t.file[0] && t.to_agent == asks);
	end();
}

static void a_port_has_device_management_while_an_agent_answers_for_it(void)
{
	const uint32_t *cap;
	unsigned agent, other;

	begin();
	cap = &t.a[1]->port->info.cap_mask;
	SAME(try_register(1, VB_MAD_CLASS_DEVICE_MGMT, 0, 0, &other), 0); /* it only asks */
	SAME(*cap & VB_CAP_DEVICE_MGMT, 0);
	SAME(try_register(1, VB_MAD_CLASS_DEVICE_MGMT, 1u << VB_MAD_GET, 0, &agent), 0);
	SAME(*cap & VB_CAP_DEVICE_MGMT, VB_CAP_DEVICE_MGMT);
	SAME(vb_agent_unregister(t.file[1], agent), 0);
	SAME(*cap & VB_CAP_DEVICE_MGMT, 0);
	end();
}

int main(void)
{
	RUN(a_reply_finds_the_program_that_asked);
	RUN(a_transaction_under_way_is_not_begun_twice);
	RUN(a_request_without_a_reply_comes_back_after_its_retries);
	RUN(what_the_kernel_refuses_is_refused);
	RUN(a_request_that_no_agent_takes_is_answered_so);
	RUN(a_long_reply_arrives_whole);
	RUN(a_transfer_survives_a_break);
	RUN(a_transfer_that_never_ends_is_aborted);
	RUN(segments_that_nobody_asked_for_are_refused);
	RUN(a_reply_of_another_class_finds_the_agent_that_asked);
	RUN(a_port_has_device_management_while_an_agent_answers_for_it);
	return 0;
}
