// srp_system_test.c - verbena-srp-target and an initiator on one host: data by each kind of descriptor, management,
// hostile initiators
// follows: SRP (ANSI INCITS 365, T10/1415-D); SBC-3
// SPDX-License-Identifier: MIT
// usage: srp_system_test TARGET
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/check.h"
#include "srp_host.h"

#define BLOCK 512u
#define DIRECT ((struct how){SP_DESC_DIRECT})
#define NO_DATA ((struct how){SP_DESC_NONE})

static const char *program;
static pid_t child;
static char service[8];
static uint8_t port[SP_PORT_ID];

/* The target's standard output says who and where it is. */
static void start_at(const char *address)
{
	unsigned long long ext, guid;
	unsigned number;
	int out[2];
	char line[256];

	CHECK(!pipe(out));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing running */
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl(program, program, "--port", "0", "--export", "memory:32M", "--export", "null:1G", "--listen",
		      address, NULL);
		_exit(127);
	}
	close(out[1]);
	FILE *f = fdopen(out[0], "r");

	CHECK(f && fgets(line, sizeof(line), f));
	CHECK(sscanf(line, "id_ext=%llx,ioc_guid=%llx,dest=", &ext, &guid) == 2);
	CHECK(sscanf(strrchr(line, ':'), ":%u", &number) == 1);
	fclose(f);
	sc_put64(port, ext);
	sc_put64(port + 8, guid);
	snprintf(service, sizeof(service), "%u", number);
}

static void start(void)
{
	start_at("127.0.0.1");
}

static void end(int signal_number, bool well)
{
	int status;

	kill(child, signal_number);
	CHECK(waitpid(child, &status, 0) == child);
	if (well)
		SAME(status, 0);
}

static struct host *connect_as(uint8_t initiator, uint8_t flags)
{
	uint32_t reason = 0;
	struct host *h = host_login("127.0.0.1", service, port, initiator, flags, &reason);

	if (!h)
		fprintf(stderr, "rejected: %x\n", reason);
	CHECK(h);
	return h;
}

/* Takes the unit attentions of a new nexus. */
static struct host *connect_ready(uint8_t initiator)
{
	struct host *h = connect_as(initiator, 0);
	struct sp_rsp r;

	for (uint8_t lun = 0; lun < 2; lun++) {
		CHECK(host_command(h, lun, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
		SAME(r.status, SC_CHECK_CONDITION);
		SAME(r.sense[12], 0x29);
	}
	return h;
}

static void rw(struct host *h, bool out, uint32_t lba, uint16_t blocks, struct how how)
{
	struct sp_rsp r;
	uint8_t cdb[10] = {out ? SC_WRITE10 : SC_READ10};

	sc_put32(cdb + 2, lba);
	sc_put16(cdb + 7, blocks);
	CHECK(host_command(h, 0, cdb, sizeof(cdb), out, blocks * BLOCK, how, &r));
	SAME(r.status, SC_GOOD);
	SAME(r.flags, 0);
	SAME(r.credits, 1);
}

static void fill(uint8_t *at, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i += 4)
		sc_put32(at + i, seed + i * 2654435761u);
}

static bool is_filled(const uint8_t *at, uint32_t len, uint32_t seed)
{
	for (uint32_t i = 0; i < len; i += 4)
		if (sc_get32(at + i) != seed + i * 2654435761u)
			return false;
	return true;
}

static void data_is_moved_by_each_kind_of_descriptor(void)
{
	static const struct {
		struct how write, read;
		uint16_t blocks;
	} rows[] = {{{SP_DESC_DIRECT}, {SP_DESC_DIRECT}, 1},
	            {{SP_DESC_DIRECT}, {SP_DESC_DIRECT}, 2048},
	            {{SP_DESC_IMMEDIATE}, {SP_DESC_DIRECT}, 1},
	            {{SP_DESC_IMMEDIATE}, {SP_DESC_INDIRECT, 2, 2}, 15},
	            {{SP_DESC_INDIRECT, 12, 12}, {SP_DESC_INDIRECT, 12, 12}, 96},
	            {{SP_DESC_INDIRECT, 200, 12}, {SP_DESC_INDIRECT, 77, 12}, 2048},
	            {{SP_DESC_INDIRECT, 2048, 0}, {SP_DESC_INDIRECT, 2048, 0}, 2048}};
	struct host *h = connect_ready(1);

	SAME(h->login.credits, 64);
	SAME(h->login.flags & SP_IMMEDIATE, SP_IMMEDIATE);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint32_t len = rows[i].blocks * BLOCK;

		fill(h->data, len, i + 1);
		rw(h, true, i * 3000, rows[i].blocks, rows[i].write);
		memset(h->data, 0, len);
		rw(h, false, i * 3000, rows[i].blocks, rows[i].read);
		CHECK(is_filled(h->data, len, i + 1));
	}
	host_close(h);
}

/* Sends n commands before it takes a response, each from a place of its own. */
static void many_commands_at_once_all_end(void)
{
	struct host *h = connect_ready(1);
	struct sp_rsp r;

	for (unsigned i = 0; i < 20; i++) {
		uint64_t first = h->tag + 1, seen = 0;
		unsigned n = h->credits;

		SAME(n, 64);
		for (unsigned k = 0; k < n; k++) {
			uint8_t *m = h->data + (1u << 20) + k * 256;
			size_t len = host_build(h, m, (uint8_t)(k % 2), HOST_CDB(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 8, 0),
			                        false, 8 * BLOCK, DIRECT);

			CHECK(host_send(h, m, len));
		}
		h->credits = 0;
		for (unsigned k = 0; k < n; k++) {
			CHECK(host_response(h, &r));
			CHECK(r.tag >= first && r.tag < first + n && !(seen >> (r.tag - first) & 1));
			SAME(r.status, SC_GOOD);
			seen |= 1ull << (r.tag - first);
		}
	}
	host_close(h);
}

static void logins_are_rejected_with_their_reasons(void)
{
	uint8_t wrong[SP_PORT_ID];
	uint32_t reason;
	struct sp_login l = {.opcode = SP_LOGIN_REQ, .formats = 6, .iu_len = 63};

	memcpy(wrong, port, sizeof(wrong));
	wrong[0] ^= 1;
	CHECK(!host_login("127.0.0.1", service, wrong, 1, 0, &reason));
	SAME(reason, SP_REJ_NO_SUCH_PORT);
	memcpy(l.target, port, sizeof(port));
	CHECK(!host_login_as("127.0.0.1", service, &l, &reason));
	SAME(reason, SP_REJ_IU_LENGTH);
	l.iu_len = HOST_IU;
	l.formats = 0xff00;
	CHECK(!host_login_as("127.0.0.1", service, &l, &reason));
	SAME(reason, SP_REJ_FORMAT);
	l.opcode = SP_CMD;
	CHECK(!host_login_as("127.0.0.1", service, &l, &reason));
	SAME(reason, SP_REJ_NO_CHANNEL);
}

/* Nothing comes any more, because the target ends the connection. */
static bool has_ended(struct host *h)
{
	size_t len;
	bool late;

	return !host_receive(h, &len, LONG_MS, &late) && !late;
}

static void a_second_login_takes_over_and_a_second_channel_does_not(void)
{
	struct host *a = connect_ready(1), *b = connect_as(1, SP_MULTI_CHANNEL), *c;
	struct sp_rsp r;

	SAME(b->login.flags & 3, SP_MAINTAINED);
	rw(a, false, 0, 1, DIRECT);
	CHECK(host_command(b, 0, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
	SAME(r.status, SC_GOOD); /* the same nexus: no unit attention */
	c = connect_as(1, 0);
	SAME(c->login.flags & 3, SP_TERMINATED);
	CHECK(has_ended(a));
	CHECK(has_ended(b));
	CHECK(host_command(c, 0, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
	SAME(r.sense[12], 0x29);
	host_close(a);
	host_close(b);
	host_close(c);
}

static void management_is_answered(void)
{
	struct host *a = connect_ready(1), *b = connect_ready(2);
	uint8_t m[SP_TSK_MGMT_LEN] = {SP_TSK_MGMT};
	struct sp_rsp r;

	m[21] = 0;
	m[30] = SP_LUN_RESET;
	sc_put64(m + 8, 1ull << 63);
	CHECK(host_send(a, m, sizeof(m)) && host_response(a, &r));
	SAME(r.tag, 1ull << 63);
	SAME(r.flags, SP_RSP_VALID);
	SAME(r.code, SP_DONE);
	CHECK(host_command(b, 0, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
	SAME(r.sense[12], 0x29);
	SAME(r.sense[13], 0x03); /* it was reset */
	m[30] = SP_CLEAR_ACA;
	CHECK(host_send(a, m, sizeof(m)) && host_response(a, &r));
	SAME(r.code, SP_FUNCTION_UNSUPPORTED);
	host_close(a);
	host_close(b);
}

/* Each of these ends its own connection, and no other one. */
static void hostile_initiators_harm_themselves_alone(void)
{
	struct host *good = connect_ready(9);
	uint8_t m[HOST_IU];

	for (unsigned kind = 0; kind < 7; kind++) {
		struct host *h = connect_ready(1);
		size_t len =
		        host_build(h, m, 0, HOST_CDB(SC_WRITE10, 0, 0, 0, 0, 0, 0, 0, 8, 0), true, 8 * BLOCK, DIRECT);

		switch (kind) {
		case 0: /* a key that is not its own */
			sc_put32(m + SP_CMD_LEN + 8, h->mr->rkey ^ 0x5a5a5a);
			break;
		case 1: /* memory behind its region */
			sc_put64(m + SP_CMD_LEN, UINT64_MAX - 100);
			break;
		case 2:
			len = SP_CMD_LEN - 1;
			break;
		case 3:
			m[0] = SP_I_LOGOUT;
			break;
		case 4:
			m[0] = 0xaa;
			break;
		case 5:
			len = 0;
			break;
		default: /* a table that cannot be read */
			len = host_build(h, m, 0, HOST_CDB(SC_READ10, 0, 0, 0, 0, 0, 0, 0, 8, 0), false, 8 * BLOCK,
			                 (struct how){SP_DESC_INDIRECT, 8, 0});
			sc_put64(m + SP_CMD_LEN, 0);
		}
		CHECK(host_send(h, m, len));
		CHECK(has_ended(h));
		host_close(h);
		rw(good, false, 0, 1, DIRECT);
	}
	host_close(good);
}

static void initiators_that_disconnect_leave_room_for_others(void)
{
	for (unsigned i = 0; i < 70; i++) { /* more than there may be at a time */
		struct host *h = connect_as((uint8_t)i, 0);

		host_close(h);
	}
}

static void command_target(const char *words)
{
	char line[256];

	snprintf(line, sizeof(line), "'%s' %s --port %s >/dev/null", program, words, service);
	SAME(system(line), 0);
}

/* Takes the report that is expected, and answers it. */
static void take_report(struct host *h, uint8_t lun, uint16_t code)
{
	struct sp_target_req q;
	uint8_t answer[SP_SHORT_LEN];
	size_t len;
	bool late;
	const uint8_t *m = host_receive(h, &len, LONG_MS, &late);

	CHECK(m && sp_target_req_decode(m, len, &q));
	SAME(q.opcode, SP_AER_REQ);
	SAME(q.lun[1], lun);
	SAME(sc_get16(q.sense + 12), code);
	sp_short_encode(SP_AER_RSP, 0, q.tag, answer);
	CHECK(host_send(h, answer, sizeof(answer)));
}

static void units_come_and_go_and_initiators_are_told(void)
{
	struct host *h = connect_as(1, SP_TELL_EVENTS), *other = connect_ready(2);
	struct sp_rsp r;

	command_target("add memory:1M 9");
	take_report(h, 0, 0x3f0e);
	CHECK(host_command(other, 0, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
	SAME(sc_get16(r.sense + 12), 0x3f0e);
	CHECK(host_command(h, 0, HOST_CDB(SC_REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), false, 256, DIRECT, &r));
	SAME(sc_get32(h->data), 24);
	SAME(h->data[25], 9);
	command_target("remove 9");
	take_report(h, 0, 0x3f0e);
	CHECK(host_command(other, 9, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
	SAME(r.sense[12], 0x25);
	host_close(other);
	host_close(h);
}

static bool has_ipv6(void)
{
	struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof(a));

	if (fd >= 0)
		close(fd);
	return has;
}

/* ::1 stands for another host: it has another address. */
static void a_host_that_takes_all_channels_leaves_room_for_others(void)
{
	struct host *greedy[64], *h;
	uint32_t reason = 0;

	if (!has_ipv6()) {
		puts("# skipped: there is no ::1");
		return;
	}
	end(SIGTERM, true);
	start_at("::");
	for (unsigned i = 0; i < 64; i++)
		greedy[i] = connect_as((uint8_t)(i + 1), 0);
	CHECK(!host_login("127.0.0.1", service, port, 99, 0, &reason));
	SAME(reason, SP_REJ_RESOURCES);
	CHECK((h = host_login("::1", service, port, 100, 0, &reason)));
	host_close(h);
	for (unsigned i = 0; i < 64; i++)
		host_close(greedy[i]);
	end(SIGTERM, true);
	start();
}

static void a_stopped_target_logs_out_and_a_killed_one_ends_the_connection(void)
{
	struct host *h = connect_ready(1);
	size_t len;
	bool late;

	kill(child, SIGTERM);
	const uint8_t *m = host_receive(h, &len, LONG_MS, &late);

	CHECK(m && m[0] == SP_T_LOGOUT);
	CHECK(has_ended(h));
	host_close(h);
	end(0, true);
	start();
	h = connect_ready(1);
	end(SIGKILL, false);
	struct sp_rsp r;

	CHECK(!host_command(h, 0, HOST_CDB(SC_TEST_UNIT_READY, 0, 0, 0, 0, 0), false, 0, NO_DATA, &r));
	host_close(h);
	start();
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	program = argv[1];
	start();
	RUN(data_is_moved_by_each_kind_of_descriptor);
	RUN(many_commands_at_once_all_end);
	RUN(logins_are_rejected_with_their_reasons);
	RUN(a_second_login_takes_over_and_a_second_channel_does_not);
	RUN(management_is_answered);
	RUN(hostile_initiators_harm_themselves_alone);
	RUN(initiators_that_disconnect_leave_room_for_others);
	RUN(units_come_and_go_and_initiators_are_told);
	RUN(a_host_that_takes_all_channels_leaves_room_for_others);
	RUN(a_stopped_target_logs_out_and_a_killed_one_ends_the_connection);
	end(SIGTERM, true);
	return 0;
}
