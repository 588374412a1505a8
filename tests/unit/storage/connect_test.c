// connect_test.c - Connect, properties and Disconnect: every answer of the specification
// follows: NVMe over Fabrics 1.1, 3.1 to 3.5
// SPDX-License-Identifier: MIT
#include "host.h"

#define DNR(x) ((x) | NV_DNR)

/* A Connect that differs from a valid one in one field. */
static struct answer try(uint16_t qid, uint16_t cntlid, void (*spoil)(struct host *h, struct nv_sqe *c))
{
	struct host *h = host_open();
	struct nv_sqe c = connect_command(h, qid, cntlid);

	if (spoil)
		spoil(h, &c);
	struct answer a = host_do(h, c);

	host_close(h);
	return a;
}

static void record_format(struct host *h, struct nv_sqe *c)
{
	c->cdw[0] |= 1;
}

static void no_size(struct host *h, struct nv_sqe *c)
{
	c->cdw[1] &= ~0xffffu;
}

static void too_large(struct host *h, struct nv_sqe *c)
{
	c->cdw[1] = c->cdw[0] >> 16 ? NT_IO_ENTRIES_MAX : NT_ADMIN_ENTRIES;
}

static void subsystem_unknown(struct host *h, struct nv_sqe *c)
{
	strcpy((char *)h->out + NV_CONNECT_AT_SUBNQN, "nqn.2026-01.test:other");
}

static void subsystem_endless(struct host *h, struct nv_sqe *c)
{
	memset(h->out + NV_CONNECT_AT_SUBNQN, 'n', 256);
}

static void host_endless(struct host *h, struct nv_sqe *c)
{
	memcpy(h->out + NV_CONNECT_AT_HOSTNQN, "nqn.2026-01.", 12);
	memset(h->out + NV_CONNECT_AT_HOSTNQN + 12, 'n', 244);
}

static void other_host(struct host *h, struct nv_sqe *c)
{
	strcpy((char *)h->out + NV_CONNECT_AT_HOSTNQN, "nqn.2026-01.test:stranger");
}

static void other_name(struct host *h, struct nv_sqe *c)
{
	strcpy((char *)h->out + NV_CONNECT_AT_HOSTNQN, "nobody");
}

static void nameless(struct host *h, struct nv_sqe *c)
{
	memset(h->out + NV_CONNECT_AT_HOSTNQN, 0, NV_NQN_SIZE);
}

static void no_host_id(struct host *h, struct nv_sqe *c)
{
	memset(h->out, 0, 16);
}

static void other_host_id(struct host *h, struct nv_sqe *c)
{
	h->out[3]++;
}

static void short_data(struct host *h, struct nv_sqe *c)
{
	c->sgl.length = 1000;
}

static void prp(struct host *h, struct nv_sqe *c)
{
	c->psdt = 1; /* 0, as host_post sets it */
}

#define WRONG_IN_COMMAND(at) (at)
#define WRONG_IN_DATA(at) ((at) | 1u << 16)

static void the_admin_queue_is_connected_only_with_good_parameters(void)
{
	static const struct {
		void (*spoil)(struct host *h, struct nv_sqe *c);
		uint16_t status;
		uint32_t where;
	} cases[] = {
	        {record_format, NV_CONNECT_FORMAT, 0},
	        {no_size, NV_CONNECT_PARAMETER, WRONG_IN_COMMAND(44)},
	        {too_large, NV_CONNECT_PARAMETER, WRONG_IN_COMMAND(44)},
	        {subsystem_unknown, NV_CONNECT_PARAMETER, WRONG_IN_DATA(256)},
	        {subsystem_endless, NV_CONNECT_PARAMETER, WRONG_IN_DATA(256)},
	        {host_endless, NV_CONNECT_PARAMETER, WRONG_IN_DATA(512)},
	        {other_name, NV_CONNECT_PARAMETER, WRONG_IN_DATA(512)},
	        {no_host_id, NV_CONNECT_PARAMETER, WRONG_IN_DATA(0)},
	        {short_data, NV_SGL_LENGTH, 0},
	        {prp, NV_INVALID_FIELD, 0},
	};

	target_open(16 << 20);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct answer a = try(0, NV_CNTLID_DYNAMIC, cases[i].spoil);

		SAME(a.status, DNR(cases[i].status));
		SAME(a.result, cases[i].where);
	}
	struct answer a = try(0, 1, NULL); /* a static controller */

	SAME(a.status, DNR(NV_CONNECT_PARAMETER));
	SAME(a.result, WRONG_IN_DATA(16));
	SAME(try(0, NV_CNTLID_DYNAMIC, NULL).status, 0);
	CHECK(!subsystem->controllers);
	target_close();
}

/* As after a Connect that found no free controller. */
static void a_connect_after_one_that_failed_begins_with_new_slots(void)
{
	uint32_t n = 0;

	target_open(16 << 20);
	struct host *h = host_open();

	CHECK(nt_queue_ready(&h->q, 8));
	SAME(host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC)).status, 0);
	for (const struct nt_request *r = h->q.unused; r && n < 100; r = r->next, n++)
		CHECK(r >= h->q.requests && r < h->q.requests + h->q.entries);
	SAME(n, 32);
	host_close(h);
	target_close();
}

/* 128 entries, with each command still outstanding when the next arrives. */
static void an_admin_queue_may_be_deeper_than_usual(void)
{
	target_open(16 << 20);
	struct host *h = host_open();
	struct nv_sqe c = connect_command(h, 0, NV_CNTLID_DYNAMIC);
	struct nv_sqe csts = {
	        .opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_GET, .sgl = by_transport(0), .cdw = {0, NV_PROP_CSTS}};

	c.cdw[1] = (c.cdw[1] & ~0xffffu) | 127;
	SAME(host_do(h, c).status, 0);
	h->hold_answers = true;
	h->count = 0;
	for (uint32_t i = 0; i < 127; i++)
		host_post(h, csts, 0);
	SAME(h->count, 127);
	for (uint32_t i = 0; i < 127; i++)
		SAME(h->answers[i].status, 0);
	host_settle(h);
	host_close(h);
	target_close();
}

static uint16_t status_with_key(const struct nv_secret *key)
{
	struct host *h = host_open();

	h->q.only_host = HOSTNQN;
	h->q.only_subsystem = SUBNQN;
	h->q.only_key = key;
	uint16_t status = host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC)).status;

	host_close(h);
	return status;
}

static void a_key_that_was_taken_back_lets_nobody_in(void)
{
	const struct nv_secret key = {.bytes = {1, 2, 3}, .length = 32};
	struct nt_secrets s = {.tls = key};

	target_open(16 << 20);
	CHECK(nt_subsystem_allow(subsystem, HOSTNQN));
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
	SAME(status_with_key(&key), 0);
	s.tls.bytes[31]++;
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
	SAME(status_with_key(&key), DNR(NV_CONNECT_HOST));
	s.tls.length = 0;
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
	SAME(status_with_key(&key), DNR(NV_CONNECT_HOST));
	nt_subsystem_disallow(subsystem, HOSTNQN);
	SAME(status_with_key(&key), DNR(NV_CONNECT_HOST));
	target_close();
}

static void only_hosts_of_the_list_may_connect(void)
{
	target_open(16 << 20);
	subsystem->any_host = false;
	CHECK(nt_subsystem_allow(subsystem, HOSTNQN));
	CHECK(!nt_subsystem_allow(subsystem, "nobody"));
	SAME(try(0, NV_CNTLID_DYNAMIC, other_host).status, DNR(NV_CONNECT_HOST));
	struct host *admin = host_admin();

	nt_subsystem_disallow(subsystem, HOSTNQN);
	CHECK(admin->asked_to_close);
	host_close(admin);
	SAME(try(0, NV_CNTLID_DYNAMIC, NULL).status, DNR(NV_CONNECT_HOST));
	target_close();
}

static void a_host_without_a_name_is_any_host(void)
{
	target_open(16 << 20);
	SAME(try(0, NV_CNTLID_DYNAMIC, nameless).status, 0);
	subsystem->any_host = false;
	CHECK(!nt_subsystem_allow(subsystem, ""));
	SAME(try(0, NV_CNTLID_DYNAMIC, nameless).status, DNR(NV_CONNECT_HOST));
	target_close();
}

static void an_io_queue_belongs_to_its_controller(void)
{
	target_open(16 << 20);
	struct host *admin = host_admin();
	uint16_t id = admin->q.ctrl->id;

	SAME(try(1, (uint16_t)(id + 1), NULL).result, WRONG_IN_DATA(16));
	SAME(try(1, id, other_host).result, WRONG_IN_DATA(512));
	SAME(try(1, id, other_host_id).result, WRONG_IN_DATA(0));
	SAME(try(17, id, NULL).result, WRONG_IN_COMMAND(42));
	SAME(try(65, id, NULL).result, WRONG_IN_COMMAND(42));
	SAME(try(1, id, too_large).result, WRONG_IN_COMMAND(44));
	struct host *io = host_io(admin, 1);

	SAME(try(1, id, NULL).status, DNR(NV_SEQUENCE));
	SAME(host_do(io, connect_command(io, 2, id)).status, DNR(NV_SEQUENCE));
	SAME(property_get(io, NV_PROP_CSTS, 0).status, DNR(NV_INVALID_OPCODE));
	host_close(admin);
	CHECK(io->asked_to_close); /* the association ends with its admin queue */
	SAME(try(1, id, NULL).result, WRONG_IN_DATA(16));
	host_close(io);
	CHECK(!subsystem->controllers);
	target_close();
}

static void controllers_have_ids_of_the_subsystems_range(void)
{
	struct host *h[3];

	target_open(16 << 20);
	nt_subsystem_ids(subsystem, 65518, 65519);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 2; i++)
			h[i] = host_admin();
		CHECK(h[0]->q.ctrl->id >= 65518 && h[1]->q.ctrl->id >= 65518 && h[0]->q.ctrl->id != h[1]->q.ctrl->id);
		h[2] = host_open();
		SAME(host_do(h[2], connect_command(h[2], 0, NV_CNTLID_DYNAMIC)).status, NV_CONNECT_BUSY);
		for (unsigned i = 0; i < 3; i++)
			host_close(h[i]);
	}
	nt_subsystem_ids(subsystem, 7, 8);
	h[0] = host_admin();
	SAME(h[0]->q.ctrl->id, 7);
	host_close(h[0]);
	target_close();
}

static void nothing_is_done_before_connect_and_enable(void)
{
	target_open(16 << 20);
	struct host *h = host_open();

	SAME(host_do(h, identify(NV_CNS_CTRL, 0)).status, DNR(NV_SEQUENCE));
	SAME(property_get(h, NV_PROP_CAP, 1).status, DNR(NV_SEQUENCE));
	SAME(host_do(h, (struct nv_sqe){.opcode = NV_FABRICS, .fctype = 0x55}).status, DNR(NV_INVALID_OPCODE));
	struct answer a = host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC));

	SAME(a.status, 0);
	SAME(a.result, h->q.ctrl->id);
	SAME(a.sqhd, 1);
	SAME(host_do(h, identify(NV_CNS_CTRL, 0)).status, DNR(NV_SEQUENCE));
	SAME(try(1, h->q.ctrl->id, NULL).status, DNR(NV_SEQUENCE));
	host_close(h);
	target_close();
}

static void properties_are_read_and_written_in_their_sizes(void)
{
	target_open(16 << 20);
	struct host *h = host_admin();
	uint64_t cap = property_get(h, NV_PROP_CAP, 1).result;

	SAME(cap & 0xffff, NT_IO_ENTRIES_MAX - 1);
	SAME(cap >> 37 & 1, 1);
	SAME(property_get(h, NV_PROP_VS, 0).result, NV_VERSION_1_4);
	SAME(property_get(h, NV_PROP_CC, 0).result, 0x460001);
	SAME(property_get(h, NV_PROP_CAP, 0).status, DNR(NV_INVALID_FIELD));
	SAME(property_get(h, NV_PROP_VS, 1).status, DNR(NV_INVALID_FIELD));
	SAME(property_get(h, 0x24, 0).status, DNR(NV_INVALID_FIELD));
	SAME(property_get(h, NV_PROP_VS, 2).status, DNR(NV_INVALID_FIELD));
	SAME(property_set(h, NV_PROP_CSTS, 0, 0).status, DNR(NV_INVALID_FIELD));
	SAME(property_set(h, NV_PROP_CC, 0, 1).status, DNR(NV_INVALID_FIELD));
	host_close(h);
	target_close();
}

static void a_controller_is_enabled_reset_and_shut_down(void)
{
	target_open(16 << 20);
	struct medium *m = medium_open(1 << 20, 512);
	struct host *h = host_admin(), *io = host_io(h, 1);

	medium_add(m, 1);
	m->slow = true;
	property_set(h, NV_PROP_CC, 0x464001, 0); /* a normal shutdown waits for the cache */
	SAME(m->count[NB_FLUSH], 1);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_RDY | NV_CSTS_SHST_BUSY);
	medium_go(m);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_RDY | NV_CSTS_SHST_DONE);
	property_set(h, NV_PROP_CC, 0x460000, 0);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, 0);
	CHECK(io->asked_to_close);
	host_close(io);
	property_set(h, NV_PROP_CC, 0x470001, 0); /* entries of 128 bytes */
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_CFS);
	property_set(h, NV_PROP_CC, 0, 0);
	property_set(h, NV_PROP_CC, 0x460001, 0);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_RDY);
	property_set(h, NV_PROP_CC, 0x464001, 0);
	host_close(h); /* while it shuts down */
	CHECK(subsystem->controllers);
	medium_go(m);
	CHECK(!subsystem->controllers);
	target_close();
	CHECK(m->closed);
	free(m->bytes);
	free(m);
}

static void disconnect_is_for_io_queues(void)
{
	target_open(16 << 20);
	struct host *h = host_admin(), *io = host_io(h, 1);
	struct nv_sqe c = {.opcode = NV_FABRICS, .fctype = NV_FCT_DISCONNECT};

	SAME(host_do(h, c).status, DNR(NV_DISCONNECT_QUEUE));
	c.cdw[0] = 1;
	SAME(host_do(io, c).status, DNR(NV_CONNECT_FORMAT));
	c.cdw[0] = 0;
	SAME(host_do(io, c).status, 0);
	CHECK(io->asked_to_close);
	host_close(io);
	io = host_io(h, 1); /* the id is free again */
	host_close(io);
	host_close(h);
	target_close();
}

static bool needs_auth(struct nt_subsystem *s, const char *hostnqn)
{
	return true;
}

static void auth_sent(struct nt_request *r)
{
	r->queue->authenticated = true;
	nt_complete(r, 0);
}

static void auth_asked(struct nt_request *r)
{
	r->data[0] = 42;
	nt_complete(r, 0);
}

static void auth_gone(struct nt_queue *q)
{
}

static void where_authentication_is_wanted_nothing_else_is_done(void)
{
	static const struct nt_auth auth = {needs_auth, auth_sent, auth_asked, auth_gone};
	struct nv_sqe c = {.opcode = NV_FABRICS,
	                   .fctype = NV_FCT_AUTH_RECEIVE,
	                   .sgl = by_transport(64),
	                   .cdw = {NV_AUTH_CDW10, 64}};

	target_open(16 << 20);
	struct host *h = host_open();

	target.auth = &auth;
	SAME(host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC)).result >> 17 & 1, 1);
	SAME(property_get(h, NV_PROP_CSTS, 0).status, DNR(NV_AUTH_REQUIRED));
	SAME(host_do(h, c).status, 0);
	SAME(h->in[0], 42);
	c.fctype = NV_FCT_AUTH_SEND;
	SAME(host_do(h, c).status, 0);
	SAME(property_get(h, NV_PROP_CSTS, 0).status, 0);
	host_close(h);
	target.auth = NULL;
	h = host_admin();
	SAME(host_do(h, c).status, DNR(NV_INVALID_OPCODE));
	host_close(h);
	target_close();
}

int main(void)
{
	RUN(the_admin_queue_is_connected_only_with_good_parameters);
	RUN(a_connect_after_one_that_failed_begins_with_new_slots);
	RUN(an_admin_queue_may_be_deeper_than_usual);
	RUN(a_key_that_was_taken_back_lets_nobody_in);
	RUN(only_hosts_of_the_list_may_connect);
	RUN(a_host_without_a_name_is_any_host);
	RUN(an_io_queue_belongs_to_its_controller);
	RUN(controllers_have_ids_of_the_subsystems_range);
	RUN(nothing_is_done_before_connect_and_enable);
	RUN(properties_are_read_and_written_in_their_sizes);
	RUN(a_controller_is_enabled_reset_and_shut_down);
	RUN(disconnect_is_for_io_queues);
	RUN(where_authentication_is_wanted_nothing_else_is_done);
	return 0;
}
