// srp_test.c - the SRP target without an adapter: logins, descriptors, responses, credits, task management
// follows: SRP (ANSI INCITS 365, T10/1415-D)
// SPDX-License-Identifier: MIT
#include "slow_medium.h"
#include "srp_peer.h"

#define BLOCK 512u

static struct sp_target target;
static struct sp_login_rsp login;
static uint32_t reason;

static struct sp_login hello(uint8_t port, uint8_t flags)
{
	struct sp_login l = {.tag = 7,
	                     .opcode = SP_LOGIN_REQ,
	                     .formats = SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT,
	                     .flags = (uint8_t)(flags | SP_IMMEDIATE),
	                     .immediate = IMMEDIATE,
	                     .iu_len = 1024,
	                     .initiator = {port}};

	memcpy(l.target, target.scsi.port, SP_PORT_ID);
	return l;
}

static struct peer *connect_as(uint8_t port, uint8_t flags)
{
	struct sp_login l = hello(port, flags);
	struct peer *p = peer_login(&target, &l, &login, &reason);

	if (p)
		memset(p->channel.nexus->scsi.attention, 0, sizeof(p->channel.nexus->scsi.attention));
	return p;
}

static struct peer *open_all(void)
{
	struct nb_config c = {.kind = "memory", .size = 8u << 20};
	struct nb_backend *b;

	memset(&target, 0, sizeof(target));
	target.scsi.port[7] = target.scsi.port[15] = 9;
	CHECK(!nb_open(&c, NULL, &b) && !sc_lu_add(&target.scsi, 0, b, "srp"));
	CHECK(!sc_lu_add(&target.scsi, 1, slow_open(8u << 20, NULL), "slow"));
	return connect_as(1, 0);
}

static void close_all(struct peer *p)
{
	peer_close(p);
	CHECK(p->gone);
	free(p);
	CHECK(!target.count && !target.nexuses && !target.channels && !target.scsi.nexuses);
	sc_target_close(&target.scsi);
}

/* ---- messages ---- */

static uint8_t message[1024];
static size_t message_len;

static void put_desc(uint64_t va, uint32_t len)
{
	struct sp_desc d = {va, KEY, len};

	sp_desc_encode(&d, message + message_len);
	message_len += SP_DESC_LEN;
}

static void put_command(uint64_t tag, uint8_t lun, uint8_t opcode, uint8_t lba, uint16_t blocks, uint8_t formats)
{
	memset(message, 0, sizeof(message));
	message_len = SP_CMD_LEN;
	message[0] = SP_CMD;
	message[5] = formats;
	sc_put64(message + 8, tag);
	message[21] = lun;
	message[32] = opcode;
	message[37] = lba;
	sc_put16(message + 39, blocks);
}

static struct sp_rsp answer(struct peer *p, unsigned i)
{
	struct sp_rsp r;

	CHECK(i < p->said_count);
	CHECK(sp_rsp_decode(p->said[i].bytes, p->said[i].len, &r));
	return r;
}

static struct sp_rsp command(struct peer *p)
{
	unsigned n = p->said_count;

	CHECK(peer_send(p, message, message_len));
	SAME(p->said_count, n + 1);
	return answer(p, n);
}

static struct sp_rsp read_direct(struct peer *p, uint8_t lba, uint16_t blocks, uint64_t va, uint32_t len)
{
	put_command(5, 0, SC_READ10, lba, blocks, SP_DESC_DIRECT);
	put_desc(va, len);
	return command(p);
}

static void manage(struct peer *p, uint8_t function, uint64_t tag)
{
	memset(message, 0, sizeof(message));
	message[0] = SP_TSK_MGMT;
	sc_put64(message + 8, 77);
	message[21] = 1;
	message[30] = function;
	sc_put64(message + 32, tag);
	CHECK(peer_send(p, message, SP_TSK_MGMT_LEN));
}

/* ---- tests ---- */

static void wrong_logins_are_rejected_with_a_reason(void)
{
	struct peer *p = open_all();
	struct sp_login l = hello(2, 0), back;
	uint8_t bytes[SP_LOGIN_LEN], again[SP_LOGIN_LEN];

	SAME(login.credits, SP_CREDITS);
	SAME(login.flags, SP_IMMEDIATE);
	sp_login_encode(&l, bytes);
	CHECK(sp_login_decode(bytes, sizeof(bytes), &back));
	sp_login_encode(&back, again);
	CHECK(!memcmp(bytes, again, sizeof(bytes)));
	CHECK(!sp_login_decode(bytes, sizeof(bytes) - 1, &back));
	bytes[11] = SP_CMD;
	CHECK(!sp_login_decode(bytes, sizeof(bytes), &back));
	uint8_t by_service[SP_LOGIN_IB_LEN], once_more[SP_LOGIN_IB_LEN];

	sp_login_ib_encode(&l, by_service);
	CHECK(sp_login_ib_decode(by_service, sizeof(by_service), &back));
	sp_login_ib_encode(&back, once_more);
	CHECK(!memcmp(by_service, once_more, sizeof(by_service)));
	CHECK(!memcmp(by_service + 48, l.target, sizeof(l.target)) && back.iu_len == l.iu_len);
	CHECK(!sp_login_ib_decode(by_service, sizeof(by_service) - 1, &back));
	by_service[0] = SP_CMD;
	CHECK(!sp_login_ib_decode(by_service, sizeof(by_service), &back));
	l.iu_len = 63;
	SAME(sp_login_check(&target, &l), SP_REJ_IU_LENGTH);
	l.iu_len = UINT32_MAX;
	SAME(sp_login_check(&target, &l), SP_REJ_IU_LENGTH);
	l = hello(2, 0);
	l.target[15]++;
	SAME(sp_login_check(&target, &l), SP_REJ_NO_SUCH_PORT);
	l = hello(2, 0);
	l.formats |= 0x8000;
	SAME(sp_login_check(&target, &l), SP_REJ_FORMAT);
	close_all(p);
}

static void a_second_login_ends_the_first_unless_it_asks_for_channels(void)
{
	struct peer *p = open_all(), *q = connect_as(1, SP_MULTI_CHANNEL), *r;

	SAME(login.flags & 3, SP_MAINTAINED);
	CHECK(!p->failed && p->channel.nexus == q->channel.nexus);
	r = connect_as(1, 0);
	SAME(login.flags & 3, SP_TERMINATED);
	CHECK(p->failed && q->failed && !r->failed && r->channel.nexus != q->channel.nexus);
	peer_close(p);
	peer_close(q);
	free(p);
	free(q);
	close_all(r);
}

static void one_initiator_gets_so_many_channels(void)
{
	struct peer *p = open_all(), *more[SP_CHANNELS_OF_ONE];

	for (unsigned i = 1; i < SP_CHANNELS_OF_ONE; i++)
		CHECK((more[i] = connect_as(1, SP_MULTI_CHANNEL)));
	CHECK(!connect_as(1, SP_MULTI_CHANNEL));
	SAME(reason, SP_REJ_CHANNEL_LIMIT);
	for (unsigned i = 1; i < SP_CHANNELS_OF_ONE; i++) {
		peer_close(more[i]);
		free(more[i]);
	}
	close_all(p);
}

static void direct_descriptors_move_data_both_ways(void)
{
	struct peer *p = open_all();
	struct sp_rsp r;

	memset(p->memory, 0x5a, 4 * BLOCK);
	put_command(3, 0, SC_WRITE10, 8, 4, SP_DESC_DIRECT << 4);
	put_desc(0, 4 * BLOCK);
	r = command(p);
	SAME(r.status, SC_GOOD);
	SAME(r.tag, 3);
	SAME(r.credits, 1);
	SAME(r.flags, 0);
	r = read_direct(p, 9, 2, 8 * BLOCK, 2 * BLOCK);
	SAME(r.flags, 0);
	SAME(p->memory[8 * BLOCK], 0x5a);
	SAME(p->memory[10 * BLOCK - 1], 0x5a);
	SAME(p->memory[10 * BLOCK], 0);
	close_all(p);
}

static void residuals_say_what_was_not_moved(void)
{
	struct peer *p = open_all();
	struct sp_rsp r = read_direct(p, 0, 2, 0, 3 * BLOCK);

	SAME(r.flags, SP_IN_UNDER);
	SAME(r.in_residual, BLOCK);
	r = read_direct(p, 0, 2, 0, BLOCK);
	SAME(r.flags, SP_IN_OVER);
	SAME(r.in_residual, BLOCK);
	SAME(p->memory[BLOCK], 0);
	put_command(3, 0, SC_WRITE10, 0, 1, SP_DESC_DIRECT << 4);
	put_desc(0, 2 * BLOCK);
	r = command(p);
	SAME(r.flags, SP_OUT_UNDER);
	SAME(r.out_residual, BLOCK);
	put_command(3, 0, SC_WRITE10, 0, 3, SP_DESC_DIRECT << 4);
	put_desc(0, 2 * BLOCK);
	r = command(p);
	SAME(r.status, SC_CHECK_CONDITION);
	SAME(r.flags, SP_OUT_UNDER | SP_SENSE_VALID);
	SAME(r.out_residual, 2 * BLOCK);
	SAME(r.sense[12], 0x0e);
	close_all(p);
}

/* A table of many parts: some in the message, or all of them behind a key. */
static void indirect(struct peer *p, uint8_t opcode, uint32_t parts, uint8_t in_message)
{
	uint8_t *table = p->memory + (3u << 20);
	bool out = opcode == SC_WRITE10;

	put_command(4, 0, opcode, 0, (uint16_t)parts, out ? SP_DESC_INDIRECT << 4 : SP_DESC_INDIRECT);
	message[out ? 6 : 7] = in_message;
	put_desc(3u << 20, parts * SP_DESC_LEN);
	sc_put32(message + message_len, parts * BLOCK);
	message_len += 4;
	for (uint32_t i = 0; i < parts; i++) {
		struct sp_desc d = {(parts - 1 - i) * 2ull * BLOCK, KEY, BLOCK};

		sp_desc_encode(&d, table + i * SP_DESC_LEN);
	}
	memcpy(message + message_len, table, in_message * SP_DESC_LEN);
	message_len += in_message * SP_DESC_LEN;
	SAME(command(p).status, SC_GOOD);
}

static void indirect_tables_in_the_message_and_behind_a_key(void)
{
	static const struct {
		uint32_t parts;
		uint8_t in_message;
	} rows[] = {{1, 1}, {12, 12}, {12, 0}, {33, 12}, {700, 3}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct peer *p = open_all();
		uint32_t n = rows[i].parts;

		for (uint32_t k = 0; k < n; k++)
			memset(p->memory + 2 * (size_t)k * BLOCK, (int)(k + 1), BLOCK);
		indirect(p, SC_WRITE10, n, rows[i].in_message);
		for (uint32_t k = 0; k < n; k++)
			memset(p->memory + 2 * (size_t)k * BLOCK, 0, BLOCK);
		indirect(p, SC_READ10, n, rows[i].in_message);
		for (uint32_t k = 0; k < n; k++) {
			SAME(p->memory[2 * (size_t)k * BLOCK], (uint8_t)(k + 1));
			SAME(p->memory[(2 * (size_t)k + 1) * BLOCK], 0);
		}
		read_direct(p, 0, 1, 0, BLOCK); /* the last part came first */
		SAME(p->memory[0], (uint8_t)n);
		close_all(p);
	}
}

static void immediate_data_needs_no_descriptor(void)
{
	struct peer *p = open_all();
	struct sp_rsp r;

	put_command(4, 0, SC_WRITE10, 2, 1, SP_DESC_IMMEDIATE << 4);
	sc_put32(message + SP_CMD_LEN, BLOCK);
	memset(message + IMMEDIATE, 0x77, BLOCK);
	message_len = IMMEDIATE + BLOCK;
	r = command(p);
	SAME(r.status, SC_GOOD);
	SAME(r.flags, 0);
	read_direct(p, 2, 1, 0, BLOCK);
	SAME(p->memory[BLOCK - 1], 0x77);
	put_command(4, 0, SC_WRITE10, 2, 1, SP_DESC_IMMEDIATE << 4);
	sc_put32(message + SP_CMD_LEN, BLOCK);
	message_len = IMMEDIATE + BLOCK - 1; /* a byte is missing */
	r = command(p);
	SAME(r.flags, SP_RSP_VALID);
	SAME(r.code, SP_FIELDS_INVALID);
	close_all(p);
}

static void wrong_descriptors_get_a_response_code(void)
{
	static const uint8_t formats[] = {
	        0x04, 0x40, 0x0f, 0x03, SP_DESC_DIRECT, SP_DESC_INDIRECT, SP_DESC_INDIRECT << 4};
	struct peer *p = open_all();

	for (unsigned i = 0; i < sizeof(formats); i++) { /* unknown formats, or no room for the descriptor */
		put_command(4, 0, SC_READ10, 2, 1, formats[i]);
		SAME(command(p).code, SP_FIELDS_INVALID);
	}
	put_command(4, 0, SC_WRITE10, 0, 2, SP_DESC_INDIRECT << 4);
	message[6] = 1; /* a table for one block that claims two */
	put_desc(0, SP_DESC_LEN);
	sc_put32(message + message_len, 2 * BLOCK);
	message_len += 4;
	put_desc(0, BLOCK);
	SAME(command(p).code, SP_FIELDS_INVALID);
	put_command(4, 0, SC_READ10, 0, 2, SP_DESC_INDIRECT);
	put_desc(0, UINT32_MAX - 15); /* a table larger than any */
	message_len += 4;
	SAME(command(p).code, SP_FIELDS_INVALID);
	SAME(read_direct(p, 0, 1, 0, BLOCK).status, SC_GOOD); /* the channel lives on */
	put_command(4, 0, SC_WRITE10, 0, 1, SP_DESC_DIRECT << 4);
	put_desc(MEMORY, BLOCK);
	CHECK(peer_send(p, message, message_len));
	CHECK(p->failed); /* the adapter's refusal ends the connection */
	close_all(p);
}

static void short_messages_and_logouts_end_the_channel(void)
{
	static const uint8_t opcodes[] = {SP_CMD, SP_TSK_MGMT, SP_I_LOGOUT, SP_LOGIN_REQ, SP_RSP, 0x77};

	for (unsigned i = 0; i < sizeof(opcodes); i++) {
		struct peer *p = open_all();

		memset(message, 0, sizeof(message));
		message[0] = opcodes[i];
		CHECK(peer_send(p, message, SP_CMD_LEN - 1));
		CHECK(p->failed);
		SAME(p->said_count, 0);
		close_all(p);
	}
	struct peer *p = open_all();

	message[0] = SP_CRED_RSP;
	CHECK(peer_send(p, message, SP_SHORT_LEN));
	CHECK(!p->failed && !p->given[0]);
	close_all(p);
}

static void longer_cdbs_are_refused(void)
{
	struct peer *p = open_all();
	struct sp_rsp r;

	put_command(4, 0, SC_READ10, 0, 1, SP_DESC_DIRECT);
	message[31] = 4 << 2; /* 16 bytes more */
	message_len += 16;
	put_desc(0, BLOCK);
	r = command(p);
	SAME(r.status, SC_CHECK_CONDITION);
	SAME(r.sense[12], 0x20);
	SAME(r.in_residual, BLOCK);
	close_all(p);
}

static void an_abort_is_answered_after_its_task_has_ended(void)
{
	struct peer *p = open_all();

	put_command(42, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
	put_desc(0, BLOCK);
	CHECK(peer_send(p, message, message_len));
	manage(p, SP_ABORT_TASK, 42);
	SAME(p->said_count, 0);
	slow_finish(0, 0);
	SAME(p->said_count, 1);
	SAME(answer(p, 0).tag, 77);
	SAME(answer(p, 0).code, SP_DONE);
	SAME(answer(p, 0).credits, 2); /* its own and that of the aborted command */
	manage(p, SP_CLEAR_ACA, 0);
	SAME(answer(p, 1).code, SP_FUNCTION_UNSUPPORTED);
	manage(p, 0x80, 0);
	SAME(answer(p, 2).code, SP_FUNCTION_UNSUPPORTED);
	close_all(p);
}

static void a_command_is_aborted_while_its_data_is_fetched(void)
{
	struct peer *p = open_all();

	p->held = true;
	put_command(42, 1, SC_WRITE10, 0, 1, SP_DESC_DIRECT << 4);
	put_desc(0, BLOCK);
	CHECK(peer_send(p, message, message_len));
	SAME(p->moving_count, 1);
	manage(p, SP_ABORT_TASK, 42);
	SAME(p->said_count, 1); /* nothing of it reaches the medium any more */
	CHECK(p->given[0]);     /* the adapter writes to its memory still */
	peer_finish_move(p);
	CHECK(!p->given[0]);
	SAME(slow.count, 0);
	p->held = false;
	peer_settle(p);
	close_all(p);
}

static void no_more_data_follows_an_abort(void)
{
	struct peer *p = open_all();

	p->held = true;
	put_command(42, 1, SC_READ10, 0, 12, SP_DESC_INDIRECT);
	message[7] = 12;
	put_desc(0, 12 * SP_DESC_LEN);
	sc_put32(message + message_len, 12 * BLOCK);
	message_len += 4;
	for (uint32_t i = 0; i < 12; i++)
		put_desc(i * BLOCK, BLOCK);
	CHECK(peer_send(p, message, message_len));
	slow_finish(0, 0);
	SAME(p->moving_count, 1); /* the first eight parts */
	manage(p, SP_ABORT_TASK, 42);
	SAME(p->said_count, 1);
	SAME(answer(p, 0).code, SP_DONE);
	peer_finish_move(p);
	SAME(p->moving_count, 0);
	SAME(p->said_count, 1);
	p->held = false;
	peer_settle(p);
	SAME(p->said_count, 2);
	SAME(p->said[1].bytes[0], SP_CRED_REQ);
	close_all(p);
}

static void credits_of_another_channels_reset_return_by_themselves(void)
{
	struct peer *p = open_all(), *q = connect_as(1, SP_MULTI_CHANNEL);

	put_command(42, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
	put_desc(0, BLOCK);
	CHECK(peer_send(q, message, message_len));
	manage(p, SP_LUN_RESET, 0);
	slow_finish(0, 0);
	SAME(answer(p, 0).credits, 1);
	SAME(q->said_count, 1);
	SAME(q->said[0].bytes[0], SP_CRED_REQ);
	SAME(sc_get32(q->said[0].bytes + 4), 1);
	peer_close(q);
	free(q);
	close_all(p);
}

static void more_data_than_memory_waits_its_turn(void)
{
	struct peer *p = open_all();
	unsigned n = 40; /* MiB, five times the memory of a channel */

	for (unsigned i = 0; i < n; i++) {
		put_command(i, 1, SC_READ10, 0, 2048, SP_DESC_DIRECT);
		put_desc(0, 2048 * BLOCK);
		CHECK(peer_send(p, message, message_len));
	}
	SAME(slow.count, SP_POOL / (2048 * BLOCK));
	while (slow.count) {
		slow_finish(0, 0);
		peer_settle(p);
	}
	SAME(p->said_count, n);
	for (unsigned i = 0; i < n; i++)
		SAME(answer(p, i).tag, i);
	close_all(p);
}

static void a_closed_channel_is_gone_when_the_medium_is_done(void)
{
	struct peer *p = open_all();

	for (unsigned i = 0; i < 3; i++) {
		put_command(i, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
		put_desc(0, BLOCK);
		CHECK(peer_send(p, message, message_len));
	}
	manage(p, SP_LUN_RESET, 0);
	peer_close(p);
	CHECK(!p->gone);
	slow_finish(0, 0);
	slow_finish(0, 0);
	CHECK(!p->gone);
	slow_finish(0, 0);
	CHECK(p->gone);
	SAME(p->said_count, 0);
	free(p);
	sc_target_close(&target.scsi);
}

static void a_new_login_waits_for_what_the_old_one_left_at_the_medium(void)
{
	struct peer *p = open_all(), *q;

	put_command(1, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
	put_desc(0, BLOCK);
	CHECK(peer_send(p, message, message_len));
	peer_close(p);
	CHECK(!p->gone);
	q = connect_as(1, 0);
	CHECK(peer_send(q, message, message_len));
	SAME(slow.count, 1);
	slow_finish(0, 0);
	CHECK(p->gone);
	free(p);
	SAME(slow.count, 1);
	slow_finish(0, 0);
	SAME(answer(q, 0).status, SC_GOOD);
	peer_settle(q);
	close_all(q);
}

/* Answers the target's request. */
static void reply(struct peer *p, uint8_t opcode)
{
	sp_short_encode(opcode, 0, 0, message);
	CHECK(peer_send(p, message, SP_SHORT_LEN));
}

static struct sp_target_req asked(struct peer *p, unsigned i)
{
	struct sp_target_req q;

	CHECK(i < p->said_count);
	CHECK(sp_target_req_decode(p->said[i].bytes, p->said[i].len, &q));
	return q;
}

static void changes_of_units_are_reported_to_those_who_asked_one_by_one(void)
{
	struct peer *p = open_all(), *q = connect_as(2, SP_TELL_EVENTS),
	            *more = connect_as(2, SP_TELL_EVENTS | SP_MULTI_CHANNEL);

	sp_report_capacity(&target, 1);
	sp_report_luns(&target);
	sp_report_luns(&target);
	sp_report_capacity(&target, 0);
	SAME(p->said_count, 0);
	SAME(more->said_count, 0); /* one channel of a port is enough */
	SAME(q->said_count, 1);
	struct sp_target_req e = asked(q, 0);

	SAME(e.opcode, SP_AER_REQ);
	SAME(e.lun[1], 1);
	SAME(e.sense_len, SC_SENSE_LEN);
	SAME(sc_get16(e.sense + 12), 0x2a09);
	reply(q, SP_AER_RSP);
	SAME(q->said_count, 2);
	SAME(sc_get16(asked(q, 1).sense + 12), 0x3f0e);
	reply(q, SP_AER_RSP);
	SAME(q->said_count, 3);
	e = asked(q, 2);
	SAME(e.lun[1], 0);
	SAME(sc_get16(e.sense + 12), 0x2a09);
	reply(q, SP_AER_RSP);
	reply(q, SP_AER_RSP); /* to nothing */
	SAME(q->said_count, 3);
	CHECK(!q->failed);
	peer_close(more);
	peer_close(q);
	free(more);
	free(q);
	close_all(p);
}

static void a_report_waits_for_the_answer_to_a_credit_request_and_returns_credits(void)
{
	struct peer *p = open_all(), *q = connect_as(2, SP_TELL_EVENTS);

	put_command(1, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
	put_desc(0, BLOCK);
	CHECK(peer_send(q, message, message_len));
	manage(q, SP_ABORT_TASK, 1);
	slow_finish(0, 0); /* it ends without a response */
	peer_settle(q);
	unsigned n = q->said_count;

	sp_report_luns(&target);
	bool credits = sp_target_req_decode(q->said[n - 1].bytes, q->said[n - 1].len, &(struct sp_target_req){0});

	SAME(q->said_count, n + !credits);
	if (credits) {
		reply(q, SP_CRED_RSP);
		SAME(q->said_count, n + 1);
	}
	SAME(asked(q, n).opcode, SP_AER_REQ);
	peer_close(q);
	free(q);
	close_all(p);
}

static void a_removed_unit_ends_its_tasks_and_is_absent(void)
{
	struct peer *p = open_all();

	for (unsigned i = 0; i < 2; i++) {
		put_command(i, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
		message[29] = i ? 2 : 0; /* ordered: it waits for the other one */
		put_desc(0, BLOCK);
		CHECK(peer_send(p, message, message_len));
	}
	SAME(slow.count, 1);
	sc_lu_remove(target.scsi.lus[1]);
	sc_target_sweep(&target.scsi);
	CHECK(target.scsi.removed);
	peer_settle(p);
	SAME(answer(p, 0).tag, 1);
	SAME(answer(p, 0).sense[12], 0x25); /* logical unit not supported */
	slow_finish(0, 0);
	peer_settle(p);
	SAME(answer(p, 1).tag, 0);
	SAME(answer(p, 1).status, SC_GOOD);
	sc_target_sweep(&target.scsi);
	CHECK(!target.scsi.removed);
	put_command(3, 1, SC_READ10, 0, 1, SP_DESC_DIRECT);
	put_desc(0, BLOCK);
	SAME(command(p).sense[12], 0x25);
	CHECK(!sc_lu_add(&target.scsi, 1, slow_open(8u << 20, NULL), "slow"));
	sc_luns_changed(&target.scsi);
	put_command(4, 0, SC_TEST_UNIT_READY, 0, 0, 0);
	SAME(sc_get16(command(p).sense + 12), 0x3f0e); /* REPORTED LUNS DATA HAS CHANGED */
	put_command(5, 1, SC_TEST_UNIT_READY, 0, 0, 0);
	SAME(command(p).sense[12], 0x29);
	close_all(p);
}

int main(void)
{
	RUN(wrong_logins_are_rejected_with_a_reason);
	RUN(a_second_login_ends_the_first_unless_it_asks_for_channels);
	RUN(one_initiator_gets_so_many_channels);
	RUN(direct_descriptors_move_data_both_ways);
	RUN(residuals_say_what_was_not_moved);
	RUN(indirect_tables_in_the_message_and_behind_a_key);
	RUN(immediate_data_needs_no_descriptor);
	RUN(wrong_descriptors_get_a_response_code);
	RUN(short_messages_and_logouts_end_the_channel);
	RUN(longer_cdbs_are_refused);
	RUN(an_abort_is_answered_after_its_task_has_ended);
	RUN(a_command_is_aborted_while_its_data_is_fetched);
	RUN(no_more_data_follows_an_abort);
	RUN(credits_of_another_channels_reset_return_by_themselves);
	RUN(more_data_than_memory_waits_its_turn);
	RUN(a_closed_channel_is_gone_when_the_medium_is_done);
	RUN(a_new_login_waits_for_what_the_old_one_left_at_the_medium);
	RUN(changes_of_units_are_reported_to_those_who_asked_one_by_one);
	RUN(a_report_waits_for_the_answer_to_a_credit_request_and_returns_credits);
	RUN(a_removed_unit_ends_its_tasks_and_is_absent);
	return 0;
}
