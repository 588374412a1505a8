// cm_test.c - connection management of the programs on a port: services, ids, refusals, programs that end; the table of addresses
// follows: IBA volume 1, 12.6 (messages), 12.10.3 (disconnecting); annex A11 (RDMA IP CM service); man/verbena-fabric.8
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdlib.h>

#include "../../support/check.h"
#include "engine/cm/cm.h"
#include "fabric/server/cm.h"
#include "fabric/topology.h"
#include "frame/sa.h"

enum { HOSTS = 3, LIDS = 16, GOT_MOST = 8 };

struct client {
	struct vb_agent_file *file;
	union {
		uint32_t verb;
		struct vb_fabric_cm_mad mad;
		struct vb_fabric_sa_is sa;
	} got[GOT_MOST];
	unsigned count;
};

static struct {
	struct server s;
	struct client client[HOSTS + 1]; /* the last one is a second program of host 0 */
	struct cm *cm[HOSTS + 1];
	uint32_t tid;
	struct vb_sa_member asked; /* the last question about a membership that has come to the subnet administrator */
	uint8_t method;            /* of it; 0: none since it was read */
	uint32_t question;         /* the low half of its transaction */
} t;

void client_post(struct client *c, const void *bytes, size_t len)
{
	CHECK(c->count < GOT_MOST && len <= sizeof(c->got[0]));
	memcpy(&c->got[c->count++], bytes, len);
}

struct vb_agent_file *client_file(const struct client *c)
{
	return c->file;
}

static void on_receive(void *own, struct vb_agent_file *file, unsigned agent, int error,
                       const struct vb_agent_addr *addr, const uint8_t *mad, size_t len)
{
	struct client *c = own;

	cm_answered(t.cm[c - t.client], error, mad, len);
}

static const struct vb_agents_ops agents_ops = {.receive = on_receive};

static bool on_deliver(void *own, struct vb_fabric_port *port, const struct vb_fabric_packet *packet)
{
	struct vb_sa_member m;
	uint8_t method = packet->dst_qpn == VB_GSI_QPN ? vb_sa_member_asked(packet->mad, &m) : 0;

	if (method) {
		struct vb_reader r = vb_reader(packet->mad + 12, 4);

		t.method = method;
		t.asked = m;
		t.question = vb_get32(&r);
		return true; /* the test answers */
	}
	return (port->host && vb_agents_deliver(port->host, packet)) || cm_deliver(own, port, packet);
}

static const struct vb_fabric_ops ops = {.deliver = on_deliver};

static struct vb_fabric_port *port_of(int host)
{
	return &t.s.fabric->nodes[1 + host]->port[1];
}

static void open_program(int i, int host)
{
	struct vb_fabric_port *p = port_of(host);
	struct vb_agents *a = p->host ? p->host : vb_agents_new(p, &agents_ops, &t.tid);

	t.client[i].file = vb_agent_open(a, &t.client[i]);
	CHECK(!cm_open(&t.s, p, &t.client[i], 1 + i, &t.cm[i]));
}

static void close_program(int i)
{
	cm_close(t.cm[i]);
	vb_agent_close(t.client[i].file);
	t.cm[i] = NULL;
}

/* One switch; host 2 has no programs. LIDs are 1, 2 and 3. */
static void begin(void)
{
	struct vb_topology_error e;

	memset(&t, 0, sizeof(t));
	t.s.fabric = vb_fabric_new(&ops, &t.s);
	CHECK(t.s.fabric && vb_topology_generate(t.s.fabric, "switch:3", &e));
	vb_fabric_train_all(t.s.fabric);
	struct vb_fabric_switch *sw = t.s.fabric->nodes[0]->sw;

	sw->lft = malloc(LIDS);
	CHECK(sw->lft);
	memset(sw->lft, 255, LIDS);
	sw->lft_len = LIDS;
	sw->info.lft_top = LIDS - 1;
	for (int i = 0; i < HOSTS; i++) {
		port_of(i)->info.lid = (uint16_t)(1 + i);
		port_of(i)->info.sm_lid = 2;
		port_of(i)->info.state = port_of(i)->peer->info.state = VB_PORT_ACTIVE;
		sw->lft[1 + i] = port_of(i)->peer->num;
	}
	open_program(0, 0);
	open_program(1, 1);
	open_program(HOSTS, 0);
	cms_time(&t.s);
}

static void end(void)
{
	for (int i = 0; i <= HOSTS; i++)
		if (t.cm[i])
			close_program(i);
	for (int i = 0; i < HOSTS; i++)
		vb_agents_free(port_of(i)->host);
	vb_fabric_free(t.s.fabric);
	cms_end(&t.s);
	free(t.s.addresses);
}

static int bind_at(int i, uint32_t id, uint16_t *port, uint8_t address, uint32_t flags)
{
	struct vb_fabric_cm_bind m = {
	        .verb = VB_FABRIC_CM_BIND, .id = id, .port_space = VB_PS_TCP, .port = *port, .flags = flags};
	struct vb_fabric_reply r;

	m.address[15] = address;
	CHECK(cm_take(t.cm[i], &m, sizeof(m), &r));
	*port = (uint16_t)r.agent;
	return r.error;
}

static int about_binding(int i, uint32_t verb, uint32_t id)
{
	struct vb_fabric_cm_bind m = {.verb = verb, .id = id};
	struct vb_fabric_reply r;

	CHECK(cm_take(t.cm[i], &m, sizeof(m), &r));
	return r.error;
}

static void listen_at(int i, uint32_t id, uint16_t port, uint8_t address)
{
	CHECK(!bind_at(i, id, &port, address, 0));
	CHECK(!about_binding(i, VB_FABRIC_CM_LISTEN, id));
}

static void say(int i, uint16_t lid, const struct vb_cm_msg *msg)
{
	struct vb_fabric_cm_mad m = {.verb = VB_FABRIC_CM_SEND, .lid = lid, .pkey = 0xffff};
	struct vb_fabric_reply r;

	vb_cm_encode(m.mad, msg);
	CHECK(cm_take(t.cm[i], &m, sizeof(m), &r));
}

static uint32_t id_of(int i)
{
	return (uint32_t)(1 + i) << (32 - VB_CM_LANE_BITS) | 5;
}

static struct vb_cm_msg request(int i, uint16_t port, uint8_t address)
{
	struct vb_cm_msg msg = {.attr = VB_CM_REQ,
	                        .tid = 77,
	                        .req = {.local_comm_id = id_of(i),
	                                .service_id = vb_cm_service_id(VB_PS_TCP, port),
	                                .local_qpn = 0x123}};
	struct vb_cma hdr = {.src_port = 1};

	hdr.dst[15] = address;
	vb_cma_encode(msg.req.private_data, &hdr);
	return msg;
}

/* The only message that a program has received. */
static struct vb_cm_msg got(int i)
{
	struct vb_cm_msg msg;

	SAME(t.client[i].count, 1);
	SAME(t.client[i].got[0].verb, VB_FABRIC_CM_RECV);
	CHECK(vb_cm_decode(&msg, t.client[i].got[0].mad.mad, VB_MAD_LEN));
	t.client[i].count = 0;
	return msg;
}

static void a_request_comes_to_the_program_that_listens_at_its_address(void)
{
	begin();
	listen_at(0, 1, 500, 9);
	listen_at(HOSTS, 1, 501, 0);
	struct vb_cm_msg msg = request(1, 500, 9);
	say(1, 1, &msg);
	SAME(got(0).req.local_qpn, 0x123);
	SAME(t.client[HOSTS].count, 0);
	SAME(t.client[0].got[0].mad.lid, 2);
	msg = request(1, 501, 9);
	say(1, 1, &msg);
	SAME(got(HOSTS).attr, VB_CM_REQ);
	end();
}

static void a_request_that_nobody_listens_for_is_rejected(void)
{
	struct vb_cm_msg msg = request(1, 500, 9), rej;

	begin();
	listen_at(0, 1, 500, 8);                         /* another address */
	for (uint16_t lid = 1; lid <= HOSTS; lid += 2) { /* LID 3: a host without programs */
		say(1, lid, &msg);
		rej = got(1);
		SAME(rej.attr, VB_CM_REJ);
		SAME(rej.rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
		SAME(rej.rej.remote_comm_id, id_of(1));
	}
	msg = (struct vb_cm_msg){.attr = VB_CM_SIDR_REQ, .sidr_req = {.request_id = id_of(1)}};
	say(1, 3, &msg);
	SAME(got(1).sidr_rep.status, VB_CM_SIDR_INVALID_SERVICE_ID);
	end();
}

static void a_request_waits_for_a_listener_that_is_replaced(void)
{
	struct vb_cm_msg msg = request(1, 500, 9);

	begin();
	listen_at(0, 1, 500, 0);
	CHECK(!about_binding(0, VB_FABRIC_CM_UNBIND, 1));
	say(1, 1, &msg);
	SAME(t.client[1].count, 0);
	listen_at(HOSTS, 1, 501, 0); /* another service */
	SAME(t.client[HOSTS].count, 0);
	listen_at(0, 2, 500, 0);
	SAME(got(0).attr, VB_CM_REQ);
	cms_time(&t.s);
	SAME(cms_deadline(&t.s), UINT64_MAX);
	end();
}

static void a_request_for_a_port_that_is_bound_waits_for_a_time(void)
{
	struct vb_cm_msg msg = request(1, 500, 9);
	uint16_t port = 500;

	begin();
	CHECK(!bind_at(0, 1, &port, 0, 0));
	say(1, 1, &msg);
	SAME(t.client[1].count, 0);
	t.s.now = cms_deadline(&t.s) - 1;
	cms_time(&t.s);
	SAME(t.client[1].count, 0);
	t.s.now++;
	cms_time(&t.s);
	SAME(got(1).rej.reason, VB_CM_REJ_INVALID_SERVICE_ID);
	CHECK(!about_binding(0, VB_FABRIC_CM_UNBIND, 1));
	say(1, 1, &msg);
	SAME(got(1).attr, VB_CM_REJ);
	end();
}

static void no_more_requests_wait_than_there_are_places(void)
{
	enum { PLACES = 256, EACH = 64 };
	struct vb_cm_msg msg;

	begin();
	for (uint16_t port = 500; port <= 500 + PLACES / EACH; port++) {
		CHECK(!bind_at(0, port - 499u, &port, 0, 0));
		msg = request(1, port, 9);
		for (int i = 0; i < EACH && port < 500 + PLACES / EACH; i++)
			say(1, 1, &msg);
		SAME(t.client[1].count, 0);
		say(1, 1, &msg); /* the port has no place left, or none is left at all */
		SAME(got(1).attr, VB_CM_REJ);
	}
	end();
}

static void a_path_is_loaded_nowhere(void)
{
	struct vb_cm_msg msg = {.attr = VB_CM_LAP, .lap = {.local_comm_id = id_of(1), .remote_comm_id = id_of(2)}};

	begin();
	say(1, 1, &msg); /* no program of host 0 has this lane */
	SAME(got(1).apr.status, VB_CM_APR_INVALID_COMM_ID);
	end();
}

static void answers_come_to_the_lane_of_their_id(void)
{
	struct vb_cm_msg msg = {.attr = VB_CM_RTU, .rtu = {.local_comm_id = id_of(1), .remote_comm_id = id_of(HOSTS)}};

	begin();
	say(1, 1, &msg);
	SAME(got(HOSTS).attr, VB_CM_RTU);
	SAME(t.client[0].count, 0);
	end();
}

static void a_message_with_the_id_of_another_program_is_not_sent(void)
{
	struct vb_cm_msg msg = request(0, 500, 9);

	begin();
	say(1, 1, &msg);
	SAME(t.client[1].count, 0);
	SAME(t.s.forged, 1);
	end();
}

static void a_port_is_of_one_program(void)
{
	uint16_t port = 500, chosen = 0, other = 0;

	begin();
	CHECK(!bind_at(0, 1, &port, 0, 0));
	SAME(bind_at(HOSTS, 1, &(uint16_t){500}, 9, 0), EADDRINUSE);
	CHECK(!bind_at(1, 1, &(uint16_t){500}, 0, 0)); /* another host's */
	CHECK(!about_binding(0, VB_FABRIC_CM_UNBIND, 1));
	CHECK(!bind_at(HOSTS, 1, &(uint16_t){500}, 9, 0));
	CHECK(!bind_at(0, 2, &(uint16_t){500}, 8, 0)); /* another address */
	CHECK(!bind_at(0, 3, &chosen, 0, 0) && !bind_at(HOSTS, 3, &other, 0, 0));
	CHECK(chosen >= 32768 && other >= 32768 && chosen != other);
	end();
}

static void a_port_is_shared_until_somebody_listens(void)
{
	begin();
	CHECK(!bind_at(0, 1, &(uint16_t){500}, 0, VB_FABRIC_CM_REUSE));
	CHECK(!bind_at(HOSTS, 1, &(uint16_t){500}, 0, VB_FABRIC_CM_REUSE));
	CHECK(!about_binding(0, VB_FABRIC_CM_LISTEN, 1));
	SAME(about_binding(HOSTS, VB_FABRIC_CM_LISTEN, 1), EADDRINUSE);
	SAME(bind_at(HOSTS, 2, &(uint16_t){500}, 0, VB_FABRIC_CM_REUSE), EADDRINUSE);
	SAME(about_binding(0, VB_FABRIC_CM_LISTEN, 77), ENOENT);
	end();
}

static void the_peers_of_a_program_that_ends_get_a_dreq(void)
{
	struct vb_cm_msg rep = {.attr = VB_CM_REP, .tid = 77, .rep = {.local_qpn = 0x456}}, msg;

	begin();
	listen_at(0, 1, 500, 9);
	msg = request(1, 500, 9);
	say(1, 1, &msg);
	got(0);
	rep.rep.local_comm_id = id_of(0);
	rep.rep.remote_comm_id = id_of(1);
	say(0, 2, &rep);
	got(1);
	close_program(0);
	msg = got(1);
	SAME(msg.attr, VB_CM_DREQ);
	SAME(msg.dreq.remote_comm_id, id_of(1));
	SAME(msg.dreq.remote_qpn, 0x123);
	close_program(1); /* its peer has gone: the answer, a DREP, goes nowhere */
	end();
}

static void a_rejection_without_our_id_comes_to_the_programs_with_its_ids_connection(void)
{
	struct vb_cm_msg msg = request(1, 500, 9);

	begin();
	listen_at(0, 1, 500, 9);
	say(1, 1, &msg);
	got(0);
	msg = (struct vb_cm_msg){.attr = VB_CM_REJ, .rej = {.local_comm_id = id_of(1), .reason = VB_CM_REJ_TIMEOUT}};
	say(1, 1, &msg);
	SAME(got(0).attr, VB_CM_REJ);
	SAME(t.client[HOSTS].count, 0);
	end();
}

static void nobody_answers_on_a_cut_cable(void)
{
	struct vb_cm_msg msg = request(1, 500, 9);

	begin();
	vb_fabric_cut(port_of(0), true);
	say(1, 1, &msg);
	SAME(t.client[1].count, 0);
	end();
}

static void a_question_to_a_silent_administrator_times_out(void)
{
	struct vb_fabric_sa_ask ask = {.verb = VB_FABRIC_SA_ASK, .timeout_ms = 10};
	struct vb_fabric_reply r;

	begin();
	ask.mad[1] = VB_MAD_CLASS_SA;
	ask.mad[3] = VB_MAD_GET;
	ask.mad[15] = 9;
	vb_fabric_cut(port_of(1), true);
	t.s.fabric->agents_due = UINT64_MAX;
	CHECK(cm_take(t.cm[0], &ask, sizeof(ask), &r));
	SAME(t.s.fabric->agents_due, 10000000);
	SAME(t.client[0].count, 0);
	vb_fabric_time(t.s.fabric, 9999999);
	vb_agent_time(t.client[0].file);
	SAME(t.client[0].count, 0);
	vb_fabric_time(t.s.fabric, 10000000);
	vb_agent_time(t.client[0].file);
	SAME(t.client[0].count, 1);
	SAME(t.client[0].got[0].sa.error, ETIMEDOUT);
	SAME(t.client[0].got[0].sa.mad[15], 9);
	ask.mad[1] = VB_MAD_CLASS_PM;
	CHECK(cm_take(t.cm[0], &ask, sizeof(ask), &r));
	SAME(t.client[0].got[1].sa.error, EINVAL);
	end();
}

/* What the subnet administrator is asked then: a method, or 0. */
static uint8_t asks(int i, uint8_t method, uint8_t group, uint8_t join_state)
{
	static uint64_t tid;
	struct vb_fabric_sa_ask ask = {.verb = VB_FABRIC_SA_ASK};
	struct vb_fabric_reply r;
	const struct vb_sa_member m = {.mgid = {0xff, [15] = group}, .join_state = join_state};

	t.method = 0;
	vb_sa_member_query(ask.mad, ++tid, method, VB_SA_MEMBER_NAME, &m);
	CHECK(cm_take(t.cm[i], &ask, sizeof(ask), &r));
	return t.method;
}

static void a_port_leaves_a_group_with_the_last_member(void)
{
	begin();
	SAME(asks(0, VB_MAD_SET, 1, VB_SA_FULL_MEMBER), VB_MAD_SET);
	SAME(asks(0, VB_MAD_SET, 1, VB_SA_FULL_MEMBER), VB_MAD_SET);
	SAME(asks(HOSTS, VB_MAD_SET, 1, VB_SA_FULL_MEMBER), VB_MAD_SET);
	SAME(asks(0, VB_SA_DELETE, 1, VB_SA_FULL_MEMBER), 0);
	SAME(asks(0, VB_SA_DELETE, 1, VB_SA_FULL_MEMBER), 0);
	SAME(asks(0, VB_SA_DELETE, 1, VB_SA_FULL_MEMBER), 0); /* the other program's membership is not its own */
	SAME(asks(HOSTS, VB_SA_DELETE, 1, VB_SA_FULL_MEMBER), VB_SA_DELETE);
	SAME(asks(0, VB_MAD_SET, 1, VB_SA_SEND_ONLY_FULL_MEMBER), VB_MAD_SET);
	SAME(asks(HOSTS, VB_MAD_SET, 1, VB_SA_FULL_MEMBER), VB_MAD_SET);
	SAME(asks(HOSTS, VB_SA_DELETE, 1, VB_SA_FULL_MEMBER), VB_SA_DELETE);
	end();
}

/* The subnet administrator's answer to the last join. */
static void sa_answers(int error, uint16_t mlid)
{
	struct vb_sa_member m = t.asked;
	uint8_t mad[VB_MAD_LEN];

	m.mlid = mlid;
	vb_sa_member_query(mad, t.question, VB_MAD_GET_RESP, VB_SA_MEMBER_NAME, &m);
	cm_answered(t.cm[0], error, mad, error ? VB_MAD_HEADER_LEN : VB_MAD_LEN);
}

/* As a Set of PortInfo. */
static void ask_to_reregister(int host)
{
	port_of(host)->reregisters++;
	t.s.fabric->changes++;
}

static void a_port_joins_again_for_a_new_manager(void)
{
	begin();
	t.s.now = 1;
	SAME(asks(0, VB_MAD_SET, 1, VB_SA_FULL_MEMBER), VB_MAD_SET);
	sa_answers(0, 0xc005);
	SAME(t.client[0].count, 1);
	SAME(cms_deadline(&t.s), UINT64_MAX);
	t.method = 0;
	ask_to_reregister(0);
	cms_time(&t.s);
	SAME(t.method, VB_MAD_SET);
	CHECK(t.asked.mlid == 0xc005 && t.asked.mgid[15] == 1 && t.asked.join_state == VB_SA_FULL_MEMBER);
	sa_answers(ETIMEDOUT, 0);
	t.method = 0;
	t.s.now += 2;
	cms_time(&t.s);
	SAME(t.method, VB_MAD_SET); /* once more */
	sa_answers(0, 0xc005);
	SAME(cms_deadline(&t.s), UINT64_MAX);
	SAME(t.client[0].count, 1); /* its program hears nothing of it */
	ask_to_reregister(0);
	cms_time(&t.s);
	sa_answers(0, 0xc006); /* another group has its MLID */
	SAME(t.client[0].count, 2);
	SAME(t.client[0].got[1].sa.verb, VB_FABRIC_MEMBER_LOST);
	SAME(t.client[0].got[1].sa.error, ENETRESET);
	t.method = 0;
	ask_to_reregister(0);
	cms_time(&t.s);
	SAME(t.method, 0);
	end();
}

static void a_port_leaves_the_groups_of_a_program_that_ends(void)
{
	begin();
	asks(0, VB_MAD_SET, 1, VB_SA_FULL_MEMBER);
	asks(HOSTS, VB_MAD_SET, 1, VB_SA_FULL_MEMBER);
	asks(1, VB_MAD_SET, 1, VB_SA_FULL_MEMBER); /* another port's program */
	t.method = 0;
	close_program(HOSTS);
	SAME(t.method, 0);
	close_program(0);
	SAME(t.method, VB_SA_DELETE);
	CHECK(t.asked.mgid[0] == 0xff && t.asked.mgid[15] == 1 && t.asked.join_state == VB_SA_FULL_MEMBER);
	CHECK(t.asked.port_gid[0] == 0xfe && t.asked.port_gid[15] == (uint8_t)port_of(0)->guid);
	end();
}

static void a_program_joins_a_bounded_number_of_groups(void)
{
	begin();
	for (unsigned i = 0; i < VB_FABRIC_GROUPS; i++)
		SAME(asks(0, VB_MAD_SET, (uint8_t)i, VB_SA_FULL_MEMBER), VB_MAD_SET);
	SAME(t.client[0].count, 0);
	SAME(asks(0, VB_MAD_SET, 0, VB_SA_SEND_ONLY_FULL_MEMBER), 0);
	SAME(t.client[0].got[0].sa.error, ENOMEM);
	end();
}

static void a_lane_is_of_one_program_of_a_port(void)
{
	struct cm *cm;

	begin();
	SAME(cm_open(&t.s, port_of(0), &t.client[0], 1, &cm), EBUSY);
	SAME(cm_open(&t.s, port_of(0), &t.client[0], 0, &cm), EINVAL);
	SAME(cm_open(&t.s, port_of(0), &t.client[0], 1 << VB_CM_LANE_BITS, &cm), EINVAL);
	end();
}

/* --- addresses --- */

static void adapters_get_the_addresses_of_a_network_in_their_order(void)
{
	struct vb_fabric_address is;

	begin();
	CHECK(!address_network(&t.s, "10.1.2.0/24") && address_number(&t.s));
	address_show(&t.s, t.s.fabric->nodes[1], "10.1.2.3", &is);
	CHECK(!is.error && !is.is_own);
	SAME(is.own[15], 1);
	SAME(is.gid[0], 0xfe);
	address_show(&t.s, t.s.fabric->nodes[3], "10.1.2.3", &is);
	CHECK(!is.error && is.is_own);
	address_show(&t.s, t.s.fabric->nodes[1], "10.1.2.4", &is);
	SAME(is.error, EHOSTUNREACH);
	SAME(is.own[15], 1);
	address_show(&t.s, t.s.fabric->nodes[1], "host1", &is);
	SAME(is.error, EINVAL);
	end();
}

static void wrong_networks_are_refused(void)
{
	static const char *const wrong[] = {
	        "",        "10.0.0.0",    "10.0.0.0/",    "10.0.0.0/31", "10.0.0.0/x",  "/8",
	        "host/24", "127.0.0.0/8", "224.0.0.0/24", "0.0.0.0/8",   "10.0.0.0/24x"};

	begin();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		SAME(address_network(&t.s, wrong[i]), EINVAL);
	CHECK(!address_network(&t.s, "10.0.0.0/30"));
	CHECK(!address_number(&t.s)); /* two addresses, three adapters */
	end();
}

static void an_address_moves_and_goes(void)
{
	struct vb_fabric_address is;
	FILE *out = fopen("/dev/null", "we");

	begin();
	CHECK(out);
	for (int i = 1; i <= 2; i++)
		CHECK(!ctl_address(&t.s, t.s.fabric->nodes[i], "fd00::1", out));
	address_show(&t.s, t.s.fabric->nodes[2], "fd00::1", &is);
	CHECK(!is.error && is.is_own);
	CHECK(!ctl_address(&t.s, t.s.fabric->nodes[2], "none", out));
	address_show(&t.s, t.s.fabric->nodes[2], "fd00::1", &is);
	SAME(is.error, EHOSTUNREACH);
	SAME(ctl_address(&t.s, t.s.fabric->nodes[0], "10.0.0.1", out), EINVAL); /* a switch */
	SAME(ctl_address(&t.s, t.s.fabric->nodes[1], "127.0.0.1", out), EINVAL);
	SAME(ctl_address(&t.s, t.s.fabric->nodes[1], "ff02::1", out), EINVAL);
	SAME(ctl_address(&t.s, t.s.fabric->nodes[1], "fe80::1", out), EINVAL);
	fclose(out);
	end();
}

static void the_other_addresses_stay_when_those_of_an_adapter_go(void)
{
	enum { N = 10000 };
	struct vb_fabric_address is;
	FILE *out = fopen("/dev/null", "we");
	char text[20];

	begin();
	CHECK(out);
	for (unsigned i = 0; i < N; i++) {
		snprintf(text, sizeof(text), "10.1.%u.%u", i >> 8, i & 255);
		CHECK(!ctl_address(&t.s, t.s.fabric->nodes[1 + 2 * (i & 1)], text, out));
	}
	SAME(t.s.address_count, N);
	CHECK(!ctl_address(&t.s, t.s.fabric->nodes[1], "none", out));
	SAME(t.s.address_count, N / 2);
	for (unsigned i = 0; i < N; i++) {
		snprintf(text, sizeof(text), "10.1.%u.%u", i >> 8, i & 255);
		address_show(&t.s, t.s.fabric->nodes[3], text, &is);
		SAME(is.error, i & 1 ? 0 : EHOSTUNREACH);
		SAME(is.is_own, i & 1);
	}
	fclose(out);
	end();
}

int main(void)
{
	RUN(a_request_comes_to_the_program_that_listens_at_its_address);
	RUN(a_request_that_nobody_listens_for_is_rejected);
	RUN(a_request_waits_for_a_listener_that_is_replaced);
	RUN(a_request_for_a_port_that_is_bound_waits_for_a_time);
	RUN(no_more_requests_wait_than_there_are_places);
	RUN(a_path_is_loaded_nowhere);
	RUN(answers_come_to_the_lane_of_their_id);
	RUN(a_message_with_the_id_of_another_program_is_not_sent);
	RUN(a_port_is_of_one_program);
	RUN(a_port_is_shared_until_somebody_listens);
	RUN(the_peers_of_a_program_that_ends_get_a_dreq);
	RUN(a_rejection_without_our_id_comes_to_the_programs_with_its_ids_connection);
	RUN(nobody_answers_on_a_cut_cable);
	RUN(a_question_to_a_silent_administrator_times_out);
	RUN(a_port_leaves_a_group_with_the_last_member);
	RUN(a_port_joins_again_for_a_new_manager);
	RUN(a_port_leaves_the_groups_of_a_program_that_ends);
	RUN(a_program_joins_a_bounded_number_of_groups);
	RUN(a_lane_is_of_one_program_of_a_port);
	RUN(adapters_get_the_addresses_of_a_network_in_their_order);
	RUN(wrong_networks_are_refused);
	RUN(an_address_moves_and_goes);
	RUN(the_other_addresses_stay_when_those_of_an_adapter_go);
	return 0;
}
