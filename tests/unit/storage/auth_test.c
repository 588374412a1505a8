// auth_test.c - the client's authentication against the target's, message by message: only the right secrets get in
// follows: NVM Express Base 2.0, 8.13.5.1 to 8.13.5.6
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "client/client.h"
#include "host.h"
#include "nvme/chap.h"

#define OTHER "nqn.2026-01.test:other"

static const char right[] = "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8qDMNU:";
static const char proof[] = "DHHC-1:01:O3n/ZbCI/WDi1riVIMg1GqhQ1O55egewVNEk9/ZQLPyt5+by:";
static const char wrong[] = "DHHC-1:00:ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8PHi08S1ppeIeWpbTD0uHw+lbIKQ==:";

/* ---- the connection between the two: each message may be changed ---- */

static struct wire {
	struct vn_queue q;
	struct host *h;
	unsigned count; /* number of messages so far, in both directions */
	/* *len: length of a host's message, which may change */
	void (*spoil)(unsigned n, bool to_target, uint8_t *m, uint32_t *len);
} wire;

static uint16_t command_of(struct host *h, uint8_t type, uint32_t len)
{
	struct nv_sqe s = {.opcode = NV_FABRICS, .fctype = type, .sgl = by_transport(len), .cdw = {NV_AUTH_CDW10, len}};

	return host_do(h, s).status;
}

static void wire_submit(struct vn_queue *q, struct vn_cmd *c)
{
	bool auth = c->sqe.fctype == NV_FCT_AUTH_SEND || c->sqe.fctype == NV_FCT_AUTH_RECEIVE,
	     send = c->way == VN_TO_TARGET;
	uint32_t len = c->length;

	if (wire.h->asked_to_close) { /* the connection has ended */
		q->error = ECONNRESET;
		return;
	}
	if (send)
		memcpy(wire.h->out, c->data, len);
	if (send && auth && wire.spoil)
		wire.spoil(wire.count, true, wire.h->out, &len);
	struct nv_sqe s = c->sqe;

	s.sgl = by_transport(len);
	if (auth)
		s.cdw[1] = len;
	struct answer a = host_do(wire.h, s);

	if (a.data) {
		memcpy(c->data, wire.h->in, len);
		if (auth && wire.spoil)
			wire.spoil(wire.count, false, c->data, &len);
	}
	wire.count += auth;
	c->cqe = (struct nv_cqe){.cid = c->cid, .status = a.status, .result = a.result};
	c->answered = true;
	vn_cmd_complete(q, c);
}

static void nothing(struct vn_queue *q)
{
}

static int no_descriptors(const struct vn_queue *q, struct pollfd p[2])
{
	return 0;
}

static bool not_armed(struct vn_queue *q)
{
	return false;
}

static void done(struct vn_queue *q, struct vn_cmd *c)
{
}

static const struct vn_transport transport = {.name = "wire",
                                              .submit = wire_submit,
                                              .kick = nothing,
                                              .progress = nothing,
                                              .descriptors = no_descriptors,
                                              .arm = not_armed,
                                              .release = done,
                                              .cut = nothing};

/* ---- both ends ---- */

static char why[120];
static struct vn_identity who;

static struct nv_secret secret_of(const char *text)
{
	struct nv_secret s = {.length = 0};

	if (text)
		CHECK(nv_secret_parse(text, &s));
	return s;
}

static void target_has(const char *host, const char *controller, uint8_t hash, uint8_t group)
{
	struct nt_secrets s = {.host = secret_of(host),
	                       .controller = secret_of(controller),
	                       .hashes = hash ? (uint8_t)(1u << hash) : 0,
	                       .groups = group < NV_DH_GROUPS ? (uint8_t)(1u << group) : 0};

	CHECK(nt_subsystem_allow(subsystem, HOSTNQN));
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
}

static void client_has(const char *host, const char *controller)
{
	who = (struct vn_identity){
	        .host_nqn = HOSTNQN, .secret = secret_of(host), .controller_secret = secret_of(controller)};
	memset(who.host_id, 7, 16);
}

static void open_both(void)
{
	target_open(16 << 20);
	target.auth = &nt_dhchap;
	target_has(right, proof, 0, NV_DH_NULL);
	client_has(right, proof);
	wire.spoil = NULL;
}

static void close_both(void)
{
	target_close();
}

/* Connects a queue and authenticates. 0 or -errno. */
static int try_queue(struct host *h, uint16_t qid, uint16_t cntlid)
{
	struct vn_link l = {.transport = &transport, .cntlid = cntlid, .deadline = vn_now() + 60000, .why = why};

	wire.h = h;
	wire.count = 0;
	*why = 0;
	memset(&wire.q, 0, sizeof(wire.q));
	SAME(vn_queue_init(&wire.q, &transport, qid, 31), 0);
	int e = vn_ctl_connect(&l, &wire.q, &who, SUBNQN, 0);

	vn_queue_fini(&wire.q);
	return e;
}

static int try_admin(void)
{
	struct host *h = host_open();
	int e = try_queue(h, 0, 0);

	CHECK(e ? !h->q.proven : h->q.authenticated && !h->asked_to_close);
	CHECK(e || !h->q.auth_due);
	host_close(h);
	return e;
}

static void expect(int error, const char *said)
{
	int e = try_admin();

	if (e != error || !strstr(why, said)) {
		fprintf(stderr, "%d (%s) instead of %d (%s)\n", e, why, error, said);
		exit(1);
	}
}

/* ---- valid authentication ---- */

static void every_hash_and_group_lets_the_host_in(void)
{
	open_both();
	for (uint8_t hash = NV_SHA256; hash <= NV_SHA512; hash++)
		for (uint8_t group = NV_DH_NULL; group < NV_DH_GROUPS; group++) {
			target_has(right, proof, hash, group);
			client_has(right, NULL);
			SAME(try_admin(), 0);
			SAME(wire.count, 4);
			client_has(right, proof);
			SAME(try_admin(), 0);
			SAME(wire.count, 5);
		}
	target_has(right, proof, 0, NV_DH_GROUPS); /* the target's preference */
	SAME(try_admin(), 0);
	close_both();
}

static void every_form_of_secret_lets_the_host_in(void)
{
	char text[128];

	open_both();
	for (int hash = 0; hash < 4; hash++) {
		strcpy(text, right);
		text[8] = (char)('0' + hash);
		target_has(text, text, 0, NV_DH_2048);
		client_has(text, text);
		SAME(try_admin(), 0);
	}
	close_both();
}

static void io_queues_have_to_prove_it_too(void)
{
	open_both();
	struct host *h = host_open(), *io = host_open();

	SAME(try_queue(h, 0, 0), 0);
	SAME(property_set(h, NV_PROP_CC, 0x460001, 0).status, 0);
	SAME(try_queue(io, 1, h->q.ctrl->id), 0);
	CHECK(io->q.proven);
	host_close(io);
	io = host_open();
	SAME(host_do(io, connect_command(io, 1, h->q.ctrl->id)).result >> 16, NV_AUTHREQ_ATR >> 16);
	SAME(host_do(io, io_command(NV_IO_READ, 0, 1)).status, NV_AUTH_REQUIRED | NV_DNR);
	host_close(io);
	host_close(h);
	close_both();
}

static void until_then_nothing_else_is_done(void)
{
	open_both();
	struct host *h = host_open();
	static const uint8_t opcodes[] = {NV_ADMIN_GET_LOG,      NV_ADMIN_IDENTIFY,    NV_ADMIN_ABORT,
	                                  NV_ADMIN_SET_FEATURES, NV_ADMIN_ASYNC_EVENT, NV_ADMIN_KEEP_ALIVE};

	SAME(host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC)).result >> 16, NV_AUTHREQ_ATR >> 16);
	SAME(property_get(h, NV_PROP_CAP, 1).status, NV_AUTH_REQUIRED | NV_DNR);
	SAME(property_set(h, NV_PROP_CC, 0x460001, 0).status, NV_AUTH_REQUIRED | NV_DNR);
	for (size_t i = 0; i < sizeof(opcodes); i++)
		SAME(host_do(h, (struct nv_sqe){.opcode = opcodes[i]}).status, NV_AUTH_REQUIRED | NV_DNR);
	host_close(h);
	close_both();
}

static void whoever_is_asked_for_nothing_comes_in_as_before(void)
{
	open_both();
	nt_subsystem_disallow(subsystem, HOSTNQN); /* any host may connect, and this one has no secret any more */
	client_has(NULL, NULL);
	SAME(try_admin(), 0);
	SAME(wire.count, 0);
	target.auth = NULL;
	SAME(try_admin(), 0);
	client_has(right, proof); /* the client requires a proof: a target without one is rejected */
	expect(-EACCES, "the target says: invalid command opcode");
	close_both();
}

static void a_host_may_prove_it_again(void)
{
	open_both();
	struct host *h = host_open();
	struct vn_link l = {.transport = &transport, .deadline = vn_now() + 60000, .why = why};

	SAME(try_queue(h, 0, 0), 0);
	memset(&wire.q, 0, sizeof(wire.q));
	SAME(vn_queue_init(&wire.q, &transport, 0, 31), 0);
	for (int i = 0; i < 3; i++) {
		target.now += 1000;
		SAME(vn_ctl_authenticate(&l, &wire.q, &who, SUBNQN), 0);
	}
	CHECK(h->q.authenticated && !h->asked_to_close);
	target.now += 1000;
	client_has(wrong, proof);
	SAME(vn_ctl_authenticate(&l, &wire.q, &who, SUBNQN), (unsigned long long)-EACCES);
	CHECK(!h->q.authenticated && h->asked_to_close);
	vn_queue_fini(&wire.q);
	host_close(h);
	close_both();
}

static void but_not_at_once(void)
{
	open_both();
	struct host *h = host_open();
	struct vn_link l = {.transport = &transport, .deadline = vn_now() + 60000, .why = why};

	SAME(try_queue(h, 0, 0), 0);
	memset(&wire.q, 0, sizeof(wire.q));
	SAME(vn_queue_init(&wire.q, &transport, 0, 31), 0);
	target.now += 999;
	SAME(vn_ctl_authenticate(&l, &wire.q, &who, SUBNQN), (unsigned long long)-EACCES);
	CHECK(h->asked_to_close);
	vn_queue_fini(&wire.q);
	host_close(h);
	close_both();
}

/* ---- invalid authentication ---- */

static void the_wrong_secret_is_refused_on_either_side(void)
{
	static const uint8_t groups[] = {NV_DH_NULL, NV_DH_2048};

	open_both();
	for (size_t i = 0; i < 2; i++) {
		target_has(right, proof, 0, groups[i]);
		client_has(wrong, proof);
		expect(-EACCES, "authentication failed");
		client_has(wrong, NULL);
		expect(-EACCES, "authentication failed");
		client_has(right, wrong);
		expect(-EACCES, "the target does not have the controller's secret");
		client_has(proof, right); /* each has the other's secret */
		expect(-EACCES, "authentication failed");
	}
	close_both();
}

static void a_missing_secret_is_refused_on_either_side(void)
{
	open_both();
	client_has(NULL, NULL);
	expect(-EACCES, "there is no secret");
	target_has(right, NULL, 0, NV_DH_NULL);
	client_has(right, proof);
	expect(-EACCES, "authentication failed"); /* the target cannot prove its identity */
	target_has(NULL, NULL, 0, NV_DH_NULL);
	nt_subsystem_auth(subsystem, true);
	expect(-EACCES, "authentication failed");
	client_has(NULL, NULL);
	expect(-EACCES, "there is no secret");
	close_both();
}

static void hashes_and_groups_that_are_not_allowed_are_refused(void)
{
	struct nt_secrets s = {.host = secret_of(right), .hashes = 0x80};

	open_both();
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
	expect(-EACCES, "hash function not usable");
	s.hashes = 0;
	s.groups = 0x80;
	nt_subsystem_secrets(subsystem, HOSTNQN, &s);
	expect(-EACCES, "DH group not usable");
	close_both();
}

/* Messages: 0 Negotiate, 1 Challenge, 2 Reply, 3 Success1, 4 Success2 */
static unsigned spoilt, where;
static uint8_t with;
static int longer;

static void change_byte(unsigned n, bool to_target, uint8_t *m, uint32_t *len)
{
	if (n != spoilt)
		return;
	m[where] ^= with;
	*len = (uint32_t)((int)*len + (to_target ? longer : 0));
}

static void spoil(unsigned n, unsigned at, uint8_t change, int error, const char *said)
{
	spoilt = n;
	where = at;
	with = change;
	longer = 0;
	wire.spoil = change_byte;
	expect(error, said);
}

static void resize(unsigned n, int by, const char *said)
{
	spoilt = n;
	with = 0;
	longer = by;
	wire.spoil = change_byte;
	expect(-EACCES, said);
}

static void the_target_refuses_what_was_changed(void)
{
	open_both();
	target_has(right, proof, NV_SHA256, NV_DH_2048);
	spoil(0, 0, 2, -EACCES, "incorrect protocol message");
	spoil(0, 1, 2, -EACCES, "incorrect protocol message");
	spoil(0, 6, 2, -EACCES, "secure channel concatenation mismatch");
	spoil(0, 7, 1, -EACCES, "incorrect payload"); /* no descriptor */
	spoil(0, 7, 3, -EACCES, "incorrect payload"); /* two announced, and one present */
	spoil(0, 8, 2, -EACCES, "authentication protocol not usable");
	spoil(0, 10, 3, -EACCES, "incorrect payload"); /* no hash */
	spoil(0, 11, 6, -EACCES, "incorrect payload"); /* no group */
	spoil(2, 1, 1, -EACCES, "incorrect protocol message");
	spoil(2, 4, 1, -EACCES, "incorrect payload");                 /* T_ID */
	spoil(2, 6, 1, -EACCES, "incorrect payload");                 /* HL */
	spoil(2, 8, 2, -EACCES, "incorrect payload");                 /* CVALID 3 */
	spoil(2, 10, 4, -EACCES, "incorrect payload");                /* DHVLEN */
	spoil(2, 16, 1, -EACCES, "authentication failed");            /* R1 */
	spoil(2, 16 + 64 + 255, 1, -EACCES, "authentication failed"); /* the exponential */
	resize(0, -1, "incorrect payload");
	resize(0, 64, "incorrect payload");
	resize(0, 1 - 72, "incorrect payload");
	resize(2, -1, "incorrect payload");
	resize(2, 1, "incorrect payload");
	resize(2, 16 - 336, "incorrect payload");
	resize(2, 4096 - 336, "incorrect payload");
	close_both();
}

static void the_client_refuses_what_was_changed(void)
{
	open_both();
	target_has(right, proof, NV_SHA256, NV_DH_2048);
	spoil(1, 1, 2, -EPROTO, "another message than expected");
	spoil(1, 0, 1, -EPROTO, "another message than expected");
	spoil(1, 5, 1, -EPROTO, "a message of another transaction");
	spoil(1, 6, 1, -EPROTO, "an invalid challenge");
	spoil(1, 8, 0xf0, -EPROTO, "an invalid challenge");
	spoil(1, 9, 0xf0, -EPROTO, "an invalid challenge");
	spoil(1, 9, 3, -EPROTO, "an invalid challenge");
	spoil(1, 11, 0x80, -EPROTO, "an invalid challenge");
	spoil(1, 12, 1, -EACCES, "authentication failed");            /* S1: the target's own differs */
	spoil(1, 16, 1, -EACCES, "authentication failed");            /* C1 */
	spoil(1, 16 + 32 + 100, 1, -EACCES, "authentication failed"); /* the exponential */
	spoil(3, 1, 1, -EPROTO, "another message than expected");
	spoil(3, 4, 1, -EPROTO, "a message of another transaction");
	spoil(3, 6, 1, -EPROTO, "an invalid success message");
	spoil(3, 8, 1, -EACCES, "the target does not have the controller's secret"); /* no response */
	spoil(3, 8, 2, -EPROTO, "an invalid success message");
	spoil(3, 16, 1, -EACCES, "the target does not have the controller's secret"); /* R2 */
	close_both();
}

static void zero_sequence(unsigned n, bool to_target, uint8_t *m, uint32_t *len)
{
	if (n == 1)
		memset(m + 12, 0, 4);
}

static void own_challenge(unsigned n, bool to_target, uint8_t *m, uint32_t *len)
{
	static uint8_t c1[32];

	if (n == 1)
		memcpy(c1, m + 16, 32);
	if (n == 2)
		memcpy(m + 16 + 32, c1, 32);
}

static void small_exponential(unsigned n, bool to_target, uint8_t *m, uint32_t *len)
{
	if (n == spoilt) {
		memset(m + 16 + (n == 1 ? 32 : 64), 0, 256);
		m[16 + (n == 1 ? 32 : 64) + 255] = with;
	}
}

static void values_that_prove_nothing_are_refused(void)
{
	open_both();
	target_has(right, proof, NV_SHA256, NV_DH_2048);
	wire.spoil = zero_sequence;
	expect(-EPROTO, "an invalid challenge");
	wire.spoil = own_challenge;
	expect(-EACCES, "authentication failed");
	wire.spoil = small_exponential;
	for (with = 0; with < 2; with++) {
		spoilt = 1;
		expect(-EPROTO, "an exponential out of range");
		spoilt = 2;
		expect(-EACCES, "incorrect payload");
	}
	close_both();
}

static uint8_t recorded[NV_AUTH_MAX];

static void record(unsigned n, bool to_target, uint8_t *m, uint32_t *len)
{
	if (n == 2)
		memcpy(recorded, m, *len);
}

/* The transaction id is adjusted, but the challenge differs. */
static void replay(unsigned n, bool to_target, uint8_t *m, uint32_t *len)
{
	if (n == 2) {
		memcpy(recorded + 4, m + 4, 2);
		memcpy(m, recorded, *len);
	}
}

static void a_reply_is_good_once(void)
{
	open_both();
	client_has(right, NULL);
	wire.spoil = record;
	SAME(try_admin(), 0);
	wire.spoil = replay;
	client_has(wrong, NULL);
	expect(-EACCES, "authentication failed");
	close_both();
}

/* ---- a host that ignores the rules ---- */

static struct host *connected(void)
{
	struct host *h = host_open();

	SAME(host_do(h, connect_command(h, 0, NV_CNTLID_DYNAMIC)).status, 0);
	return h;
}

static uint16_t send_message(struct host *h, const uint8_t *m, size_t len)
{
	memcpy(h->out, m, len);
	return command_of(h, NV_FCT_AUTH_SEND, (uint32_t)len);
}

/* The next message is a failure, and ends the connection. */
static void fails(struct host *h, enum nv_auth_why reason)
{
	uint16_t tid;

	SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 256), 0);
	SAME(nv_auth_kind(h->in, 256, &tid), NV_AUTH_FAILURE1);
	SAME(nv_failure_decode(h->in, 256), reason);
	CHECK(h->asked_to_close && !h->q.authenticated);
	host_close(h);
}

/* Costly computations are not done for anybody who knows a host's name. */
static void the_largest_groups_are_used_where_they_are_named(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 1u << NV_DH_6144 | 1u << NV_DH_8192};
	uint8_t m[NV_AUTH_MAX];
	uint16_t tid;

	open_both();
	for (int named = 0; named < 2; named++) {
		target_has(right, proof, 0, named ? NV_DH_6144 : NV_DH_GROUPS);
		struct host *h = connected();

		SAME(send_message(h, m, nv_negotiate_encode(&n, m)), 0);
		SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 1024), 0);
		SAME(nv_auth_kind(h->in, 1024, &tid), named ? NV_AUTH_CHALLENGE : NV_AUTH_FAILURE1);
		SAME(h->asked_to_close, !named);
		host_close(h);
	}
	close_both();
}

static void messages_out_of_their_order_are_refused(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 1};
	uint8_t m[NV_AUTH_MAX], junk[4096] = {1, 2};
	size_t len = nv_negotiate_encode(&n, m);

	open_both();
	fails(connected(), NV_AUTH_MESSAGE); /* nothing was negotiated */
	struct host *h = connected();

	SAME(send_message(h, m, len), 0); /* twice */
	SAME(send_message(h, m, len), 0);
	fails(h, NV_AUTH_MESSAGE);
	h = connected();
	SAME(send_message(h, m, len), 0); /* a reply to a challenge that has not been fetched */
	SAME(send_message(h, junk, 100), 0);
	fails(h, NV_AUTH_MESSAGE);
	h = connected();
	SAME(send_message(h, m, len), 0); /* two challenges */
	SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 256), 0);
	fails(h, NV_AUTH_MESSAGE);
	h = connected();
	SAME(send_message(h, m, nv_success2_encode(3, m)), 0); /* the end at the beginning */
	fails(h, NV_AUTH_MESSAGE);
	h = connected();
	SAME(send_message(h, junk, 4096), 0);
	fails(h, NV_AUTH_MESSAGE);
	h = connected();
	SAME(send_message(h, junk, 1), 0);
	fails(h, NV_AUTH_PAYLOAD);
	close_both();
}

static void after_a_failure_nothing_helps(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 1};
	uint8_t m[NV_AUTH_MAX];
	size_t len = nv_negotiate_encode(&n, m);

	open_both();
	struct host *h = connected();

	SAME(send_message(h, m, 7), 0);
	SAME(send_message(h, m, len), 0);
	fails(h, NV_AUTH_PAYLOAD);
	h = connected();
	SAME(send_message(h, m, nv_failure_encode(NV_AUTH_FAILURE2, 3, NV_AUTH_FAILED, m)), 0);
	CHECK(h->asked_to_close && !h->q.authenticated);
	host_close(h);
	close_both();
}

static void commands_that_make_no_sense_are_refused(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 2};
	uint8_t m[NV_AUTH_MAX];

	open_both();
	target_has(right, proof, 0, NV_DH_2048);
	struct host *h = connected();
	struct nv_sqe s = {
	        .opcode = NV_FABRICS, .fctype = NV_FCT_AUTH_SEND, .sgl = by_transport(64), .cdw = {NV_AUTH_CDW10, 64}};

	for (int bit = 8; bit < 32; bit += 8) { /* SPSP0, SPSP1, SECP */
		s.cdw[0] = NV_AUTH_CDW10 ^ 1u << bit;
		SAME(host_do(h, s).status, NV_INVALID_FIELD | NV_DNR);
	}
	SAME(command_of(h, NV_FCT_AUTH_SEND, 0), NV_INVALID_FIELD | NV_DNR);
	SAME(command_of(h, NV_FCT_AUTH_SEND, 4097), NV_INVALID_FIELD | NV_DNR);
	SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 7), NV_INVALID_FIELD | NV_DNR);
	SAME(send_message(h, m, nv_negotiate_encode(&n, m)), 0);
	SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 16 + 64 + 256 - 1), NV_INVALID_FIELD | NV_DNR);
	SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 16 + 64 + 256), 0); /* a buffer that is too small changes nothing */
	host_close(h);
	h = host_open();
	SAME(command_of(h, NV_FCT_AUTH_SEND, 64), NV_SEQUENCE | NV_DNR); /* before Connect */
	host_close(h);
	close_both();
}

static void whoever_does_not_get_to_the_end_goes(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 2};
	uint8_t m[NV_AUTH_MAX];

	open_both();
	target_has(right, proof, 0, NV_DH_GROUPS);
	struct host *idle = connected(), *half = connected(), *again = host_open();

	SAME(send_message(half, m, nv_negotiate_encode(&n, m)), 0);
	SAME(command_of(half, NV_FCT_AUTH_RECEIVE, 1024), 0);
	SAME(try_queue(again, 0, 0), 0);
	SAME(nt_target_tick(&target), target.now + NT_AUTH_MS);
	target.now += NT_AUTH_MS - 1;
	nt_target_tick(&target);
	CHECK(!idle->asked_to_close && !half->asked_to_close);
	SAME(send_message(again, m, nv_negotiate_encode(&n, m)), 0);
	target.now++;
	SAME(nt_target_tick(&target), target.now - 1 + NT_AUTH_MS);
	CHECK(idle->asked_to_close && half->asked_to_close && !again->asked_to_close);
	target.now += NT_AUTH_MS;
	SAME(nt_target_tick(&target), UINT64_MAX);
	CHECK(again->asked_to_close);
	host_close(idle);
	host_close(half);
	host_close(again);
	close_both();
}

static void a_secret_that_changes_ends_what_stood_on_it(void)
{
	open_both();
	struct host *h = host_open();

	SAME(try_queue(h, 0, 0), 0);
	target_has(right, proof, 0, NV_DH_NULL); /* the same */
	CHECK(!h->asked_to_close);
	target_has(wrong, proof, 0, NV_DH_NULL);
	CHECK(h->asked_to_close);
	host_close(h);
	nt_subsystem_disallow(subsystem, HOSTNQN);
	client_has(NULL, NULL);
	h = host_open();
	SAME(try_queue(h, 0, 0), 0);
	nt_subsystem_auth(subsystem, true);
	CHECK(h->asked_to_close);
	host_close(h);
	close_both();
}

/* A challenge with an exponential takes milliseconds of the only thread, which serves all hosts. */
static bool challenged(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 1u << NV_DH_2048};
	uint8_t m[NV_AUTH_MAX];
	uint16_t tid;
	struct host *h = connected();

	SAME(send_message(h, m, nv_negotiate_encode(&n, m)), 0);
	SAME(command_of(h, NV_FCT_AUTH_RECEIVE, 1024), 0);
	bool is = nv_auth_kind(h->in, 1024, &tid) == NV_AUTH_CHALLENGE;

	CHECK(is == !h->asked_to_close);
	host_close(h);
	return is;
}

static void whoever_tries_in_vain_is_not_served_for_ever(void)
{
	unsigned n = 0;

	open_both();
	target.now = 1000000;
	target_has(right, proof, 0, NV_DH_2048);
	for (int i = 0; i < 20; i++)
		SAME(try_admin(), 0); /* these succeed */
	while (n < 1000 && challenged())
		n++;
	SAME(n, 256);
	target.now += 640;
	for (n = 0; n < 1000 && challenged();)
		n++;
	SAME(n, 10);
	target.now += 20000; /* all failures are forgotten */
	SAME(try_admin(), 0);
	for (unsigned i = 0; i < NT_PEER_BUCKETS; i++)
		CHECK(!target.peers[i]);
	close_both();
}

/* ---- a stranger who knows a host's names, but not its secret ---- */

static struct medium *medium;

static void open_with_medium(void)
{
	open_both();
	client_has(right, NULL);
	medium = medium_open(1 << 20, 512);
	medium_add(medium, 1);
}

static void close_with_medium(void)
{
	close_both();
	free(medium->bytes);
	free(medium);
}

static void enable(struct host *h)
{
	SAME(property_set(h, NV_PROP_CC, 0x460001, 0).status, 0);
	SAME(property_get(h, NV_PROP_CSTS, 0).result, NV_CSTS_RDY);
}

static void come_in(struct host **admin, struct host **io)
{
	*admin = host_open();
	SAME(try_queue(*admin, 0, 0), 0);
	enable(*admin);
	*io = host_open();
	SAME(try_queue(*io, 1, (*admin)->q.ctrl->id), 0);
}

/* The loss happens while the host is away. */
static void lose_behind(void)
{
	nt_lost(subsystem->ns[1]);
}

static uint16_t flush(struct host *io)
{
	return host_do(io, io_command(NV_IO_FLUSH, 0, 1)).status;
}

static void a_stranger_does_not_take_what_a_host_is_still_to_be_told(void)
{
	struct host *admin, *io;

	open_with_medium();
	for (int when = 0; when < 2; when++) { /* it comes and goes before the host returns, or stays */
		come_in(&admin, &io);
		host_close(io);
		host_close(admin);
		lose_behind();
		struct host *stranger = connected();

		if (!when)
			host_close(stranger);
		come_in(&admin, &io);
		SAME(flush(io), NV_WRITE_FAULT | NV_DNR);
		SAME(flush(io), 0);
		if (when)
			host_close(stranger);
		SAME(property_set(admin, NV_PROP_CC, 0x464001, 0).status, 0);
		host_close(io);
		host_close(admin);
	}
	close_with_medium();
}

static void a_host_with_its_own_secret_does_not_take_anothers_loss_by_its_identifier(void)
{
	struct nt_secrets s = {.host = secret_of(wrong), .groups = 1};
	struct host *admin, *io;

	open_with_medium();
	CHECK(nt_subsystem_allow(subsystem, OTHER));
	nt_subsystem_secrets(subsystem, OTHER, &s);
	come_in(&admin, &io);
	host_close(io);
	host_close(admin);
	lose_behind();
	strcpy(who.host_nqn, OTHER);
	who.secret = secret_of(wrong);
	come_in(&admin, &io);
	SAME(flush(io), 0); /* it has lost nothing */
	host_close(io);
	host_close(admin);
	client_has(right, NULL);
	come_in(&admin, &io);
	SAME(flush(io), NV_WRITE_FAULT | NV_DNR);
	host_close(io);
	host_close(admin);
	close_with_medium();
}

static void a_stranger_does_not_take_the_place_of_an_io_queue(void)
{
	open_with_medium();
	struct host *admin = host_open(), *stranger = host_open(), *io = host_open(), *second = host_open();

	SAME(try_queue(admin, 0, 0), 0);
	enable(admin);
	uint16_t id = admin->q.ctrl->id;

	SAME(host_do(stranger, connect_command(stranger, 1, id)).result >> 16, NV_AUTHREQ_ATR >> 16);
	SAME(try_queue(second, 1, id), 0); /* the host's own */
	SAME(flush(second), 0);
	SAME(try_queue(io, 1, id), (unsigned long long)-EIO); /* the place is taken now */
	uint64_t seen = admin->q.ctrl->seen, errors = admin->q.ctrl->errors;

	target.now += 1000;
	SAME(host_do(stranger, io_command(NV_IO_READ, 0, 1)).status, NV_AUTH_REQUIRED | NV_DNR);
	SAME(admin->q.ctrl->seen, seen); /* it does not keep the controller alive or fill its log */
	SAME(admin->q.ctrl->errors, errors);
	target.now += NT_AUTH_MS;
	nt_target_tick(&target);
	CHECK(stranger->asked_to_close && !second->asked_to_close && !admin->asked_to_close);
	host_close(stranger);
	host_close(second);
	host_close(io);
	host_close(admin);
	close_with_medium();
}

static void a_host_counts_for_itself_when_it_has_proven_who_it_is(void)
{
	struct host *admin, *io;

	open_with_medium();
	struct host *stranger = connected();
	struct nt_peer *street = stranger->q.owner;

	come_in(&admin, &io);
	CHECK(admin->q.owner == io->q.owner && io->q.owner != street && io->q.owner->proven);
	SAME(street->queues, 1);
	SAME(target.guest_count[NT_GUEST_STRANGER], 1); /* until then it counts as one of them */
	SAME(street->memory[NT_USUAL], 0);
	SAME(io->q.owner->memory[NT_USUAL], 0);
	nt_peers_limit(&target, 64, 2); /* from any address */
	struct host *third = host_open();

	try_queue(third, 2, admin->q.ctrl->id);
	CHECK(third->asked_to_close && !third->q.authenticated);
	host_close(third);
	SAME(flush(io), 0);
	host_close(stranger);
	host_close(io);
	host_close(admin);
	SAME(target.guest_count[NT_GUEST_STRANGER], 0);
	for (unsigned i = 0; i < NT_PEER_BUCKETS; i++)
		CHECK(!target.peers[i]);
	close_with_medium();
}

static void of_two_queues_that_prove_it_the_first_has_the_place(void)
{
	struct nv_negotiate n = {.tid = 3, .hashes = 0xe, .groups = 1};
	uint8_t m[NV_AUTH_MAX];

	open_with_medium();
	struct host *admin = host_open(), *late = host_open(), *first = host_open();

	SAME(try_queue(admin, 0, 0), 0);
	enable(admin);
	uint16_t id = admin->q.ctrl->id;

	SAME(host_do(late, connect_command(late, 1, id)).status, 0);
	SAME(try_queue(first, 1, id), 0);
	struct vn_link l = {.transport = &transport, .deadline = vn_now() + 60000, .why = why};

	wire.h = late;
	memset(&wire.q, 0, sizeof(wire.q));
	SAME(vn_queue_init(&wire.q, &transport, 1, 31), 0);
	vn_ctl_authenticate(&l, &wire.q, &who, SUBNQN);
	vn_queue_fini(&wire.q);
	CHECK(late->asked_to_close && !late->q.authenticated);
	SAME(send_message(late, m, nv_negotiate_encode(&n, m)), 0);
	SAME(host_do(late, io_command(NV_IO_READ, 0, 1)).status, NV_AUTH_REQUIRED | NV_DNR);
	SAME(flush(first), 0);
	host_close(late);
	SAME(flush(first), 0);
	host_close(first);
	host_close(admin);
	close_with_medium();
}

static void a_stranger_is_not_told_that_a_host_is_still_busy(void)
{
	struct host *admin, *io;

	open_with_medium();
	come_in(&admin, &io);
	medium->slow = true;
	host_post(io, io_command(NV_IO_WRITE, 0, 1), 0);
	nt_queue_close(&io->q);
	host_close(admin);
	CHECK(!io->gone);
	struct host *stranger = connected(), *again = host_open(), *late = host_open(); /* answered at once */

	SAME(try_queue(again, 0, 0), 0);
	SAME(try_queue(late, 0, 0), 0);
	struct nv_sqe set = {.opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_SET, .cdw = {0, NV_PROP_CC, 0x460001}};
	uint16_t cid = host_post(late, set, 0);

	uint64_t due = nt_target_tick(&target);

	CHECK(due > target.now && due <= target.now + NT_CONNECT_MS); /* or when it looks at the medium */
	target.now += NT_CONNECT_MS;
	nt_target_tick(&target);
	SAME(host_answer(late, cid)->status, NV_CONNECT_BUSY);
	host_settle(late);
	host_close(late);
	cid = host_post(again, set, 0); /* the host itself waits once it has authenticated */
	CHECK(!host_answer(again, cid));
	medium_go(medium);
	CHECK(io->gone);
	SAME(host_answer(again, cid)->status, 0);
	host_settle(again);
	SAME(property_get(again, NV_PROP_CSTS, 0).result, NV_CSTS_RDY);
	medium->slow = false;
	free(io);
	host_close(stranger);
	host_close(again);
	close_with_medium();
}

static void what_waits_to_be_enabled_may_go(void)
{
	struct host *admin, *io;

	open_with_medium();
	come_in(&admin, &io);
	medium->slow = true;
	host_post(io, io_command(NV_IO_WRITE, 0, 1), 0);
	nt_queue_close(&io->q);
	host_close(admin);
	struct host *again = host_open();

	SAME(try_queue(again, 0, 0), 0);
	host_post(
	        again,
	        (struct nv_sqe){.opcode = NV_FABRICS, .fctype = NV_FCT_PROPERTY_SET, .cdw = {0, NV_PROP_CC, 0x460001}},
	        0);
	host_close(again);
	CHECK(!target.connects);
	medium_go(medium);
	medium->slow = false;
	free(io);
	close_with_medium();
}

int main(void)
{
	RUN(every_hash_and_group_lets_the_host_in);
	RUN(every_form_of_secret_lets_the_host_in);
	RUN(io_queues_have_to_prove_it_too);
	RUN(until_then_nothing_else_is_done);
	RUN(whoever_is_asked_for_nothing_comes_in_as_before);
	RUN(a_host_may_prove_it_again);
	RUN(but_not_at_once);
	RUN(the_largest_groups_are_used_where_they_are_named);
	RUN(the_wrong_secret_is_refused_on_either_side);
	RUN(a_missing_secret_is_refused_on_either_side);
	RUN(hashes_and_groups_that_are_not_allowed_are_refused);
	RUN(the_target_refuses_what_was_changed);
	RUN(the_client_refuses_what_was_changed);
	RUN(values_that_prove_nothing_are_refused);
	RUN(a_reply_is_good_once);
	RUN(messages_out_of_their_order_are_refused);
	RUN(after_a_failure_nothing_helps);
	RUN(commands_that_make_no_sense_are_refused);
	RUN(whoever_does_not_get_to_the_end_goes);
	RUN(a_secret_that_changes_ends_what_stood_on_it);
	RUN(whoever_tries_in_vain_is_not_served_for_ever);
	RUN(a_stranger_does_not_take_what_a_host_is_still_to_be_told);
	RUN(a_host_with_its_own_secret_does_not_take_anothers_loss_by_its_identifier);
	RUN(a_stranger_does_not_take_the_place_of_an_io_queue);
	RUN(a_host_counts_for_itself_when_it_has_proven_who_it_is);
	RUN(of_two_queues_that_prove_it_the_first_has_the_place);
	RUN(a_stranger_is_not_told_that_a_host_is_still_busy);
	RUN(what_waits_to_be_enabled_may_go);
	return 0;
}
