// matrix.c - each fault on each path: it happens, it is counted, and other queue pairs of the program go on
// follows: man/verbena-fault.1, docs/faults.md
// SPDX-License-Identifier: MIT
#include "matrix.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MESSAGES = 8, THIRD = 2, GRH_BYTES = 40 };

/* What a fault does to MESSAGES sends, one after another. */
enum outcome {
	ALL,      /* all arrive: the fault is repaired, or only takes time */
	LOST,     /* one is lost, and nobody is told */
	TWICE,    /* one arrives twice */
	LATE,     /* all or all but one arrive: one came late, and its receiver may have dropped it */
	NOT,      /* the rule does not act on this path */
	ENDS,     /* the connection ends */
	STATUS,   /* the third request fails, the others are flushed */
	FATAL,    /* the same, with IBV_EVENT_QP_FATAL */
	OVERFLOW, /* IBV_EVENT_CQ_ERR */
	R_STATUS, /* the third receive fails, the others are flushed */
	R_FATAL,
	R_OVERFLOW,
	NO_SEND,    /* the third call fails */
	NO_RECEIVE, /* the same of ibv_post_recv */
	PORT,       /* the port goes down and up */
	REMOVED,    /* the device has gone */
};

/* The columns: RC, UC, UD of one host; RC, UC, UD of RoCE; iWARP. */
static const struct {
	enum way way;
	enum ibv_qp_type type;
	const char *name;
} columns[] = {{LOCAL, IBV_QPT_RC, "one host, RC"}, {LOCAL, IBV_QPT_UC, "one host, UC"},
               {LOCAL, IBV_QPT_UD, "one host, UD"}, {ROCE, IBV_QPT_RC, "RoCE, RC"},
               {ROCE, IBV_QPT_UC, "RoCE, UC"},      {ROCE, IBV_QPT_UD, "RoCE, UD"},
               {IWARP, IBV_QPT_RC, "iWARP"}};

#define COLUMNS (sizeof(columns) / sizeof(columns[0]))
#define EVERYWHERE(outcome)                                                    \
	{                                                                      \
		outcome, outcome, outcome, outcome, outcome, outcome, outcome, \
	}

static const struct row {
	const char *rule;
	enum outcome on[COLUMNS];
} rows[] = {
        {"drop opcode=SEND nth=3", {ALL, LOST, LOST, ALL, LOST, LOST, NOT}},
        {"duplicate opcode=SEND nth=3", {NOT, NOT, TWICE, ALL, ALL, TWICE, NOT}},
        {"reorder opcode=SEND nth=3", {NOT, NOT, ALL, ALL, LATE, ALL, NOT}},
        {"corrupt opcode=SEND nth=3", {ALL, LOST, LOST, ALL, LOST, LOST, ENDS}},
        {"delay=2ms opcode=SEND nth=3", {ALL, ALL, ALL, ALL, ALL, ALL, ALL}},
        {"rate=10M opcode=SEND", {ALL, ALL, ALL, ALL, ALL, ALL, ALL}},
        {"cut nth=3", {NOT, NOT, NOT, NOT, NOT, NOT, ENDS}},
        {"wc=LOC_QP_OP_ERR op=SEND nth=3", EVERYWHERE(STATUS)},
        {"qp_fatal op=SEND nth=3", EVERYWHERE(FATAL)},
        {"cq_overflow op=SEND nth=3", EVERYWHERE(OVERFLOW)},
        {"wc=LOC_PROT_ERR op=RECV nth=3", EVERYWHERE(R_STATUS)},
        {"qp_fatal op=RECV nth=3", EVERYWHERE(R_FATAL)},
        {"cq_overflow op=RECV nth=3", EVERYWHERE(R_OVERFLOW)},
        {"post_send=ENOMEM nth=3", EVERYWHERE(NO_SEND)},
        {"post_recv=ENOSPC nth=3", EVERYWHERE(NO_RECEIVE)},
        {"port=down after=300ms for=300ms", EVERYWHERE(PORT)},
        {"device=remove after=300ms", EVERYWHERE(REMOVED)},
};

/* --- one cell --- */

static struct pair first, other;

static enum ibv_event_type next_event(void)
{
	struct pollfd p = {.fd = pair_context(&first)->async_fd, .events = POLLIN};
	struct ibv_async_event e;

	CHECK(poll(&p, 1, LONG_MS) == 1);
	CHECK(!ibv_get_async_event(pair_context(&first), &e));
	ibv_ack_async_event(&e);
	return e.event_type;
}

/* Others may come before, such as that of a receive queue whose queue pair is in ERR. */
static void await_event(enum ibv_event_type type)
{
	for (int i = 0; next_event() != type; i++)
		CHECK(i < 8);
}

/* The end of a queue pair is an event of its own, or follows one. */
static void await_state(struct pair *p, int end, enum ibv_qp_state state)
{
	for (int ms = 0; pair_state(p, end) != state; ms++) {
		CHECK(ms < LONG_MS);
		usleep(1000);
	}
}

/* Sends n messages, each when the last one has completed. */
static void send_all(struct pair *p, int from, int n)
{
	for (int i = from; i < n; i++) {
		CHECK(!pair_send(p, i));
		struct done d = pair_await(p, 0);

		SAME(d.id, i);
		SAME(d.status, IBV_WC_SUCCESS);
	}
}

/* Receives what comes, up to `most`, and then looks whether there is more. Each message is whole. */
static int receive_all(struct pair *p, int least, int most)
{
	struct done d;
	int n = 0;

	for (int ms = 0, quiet = 0; quiet < 50; ms++, quiet += n >= least) {
		while (pair_poll(p, 1, &d)) {
			SAME(d.status, IBV_WC_SUCCESS);
			CHECK(pair_is_whole(p, d.id));
			n++;
		}
		CHECK(n <= most && ms < LONG_MS);
		usleep(1000);
	}
	return n;
}

/* The rest of a queue pair that has ended: what is posted completes as flushed. */
static void flushes_sends(struct pair *p, int id)
{
	CHECK(!pair_send(p, id));
	struct done d = pair_await(p, 0);

	SAME(d.id, id);
	SAME(d.status, IBV_WC_WR_FLUSH_ERR);
}

static void flushes_receives(struct pair *p, int from)
{
	for (int i = from; i < MESSAGES; i++) {
		struct done d = pair_await(p, 1);

		SAME(d.id, i);
		SAME(d.status, IBV_WC_WR_FLUSH_ERR);
	}
}

static bool connection_ends(struct pair *p)
{
	for (int i = 0; i < MESSAGES; i++) {
		CHECK(!pair_send(p, i));
		if (pair_await(p, 0).status != IBV_WC_SUCCESS)
			return true;
	}
	await_state(p, 0, IBV_QPS_ERR); /* TCP had taken all before the peer said that it ends */
	return true;
}

static void third_request_fails(struct pair *p, enum ibv_qp_type type, enum outcome o)
{
	send_all(p, 0, THIRD);
	CHECK(!pair_send(p, THIRD));
	if (o == OVERFLOW) {
		await_event(IBV_EVENT_CQ_ERR);
		await_state(p, 0, IBV_QPS_ERR);
		return;
	}
	struct done d = pair_await(p, 0);

	SAME(d.id, THIRD);
	SAME(d.status, o == FATAL ? IBV_WC_WR_FLUSH_ERR : IBV_WC_LOC_QP_OP_ERR);
	SAME(pair_state(p, 0), o == FATAL || type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
	if (o == FATAL)
		await_event(IBV_EVENT_QP_FATAL);
	flushes_sends(p, THIRD + 1);
	for (int i = 0; i < THIRD; i++)
		SAME(pair_await(p, 1).status, IBV_WC_SUCCESS);
	if (pair_poll(p, 1, &d)) /* the end of an iWARP connection flushes the peer's receives */
		SAME(d.status, IBV_WC_WR_FLUSH_ERR);
}

static void third_receive_fails(struct pair *p, enum outcome o)
{
	send_all(p, 0, THIRD);
	for (int i = 0; i < THIRD; i++)
		SAME(pair_await(p, 1).status, IBV_WC_SUCCESS);
	CHECK(!pair_send(p, THIRD));
	struct done d = pair_await(p, 1);

	SAME(d.id, THIRD);
	SAME(d.status, o == R_STATUS ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
	if (o == R_OVERFLOW)
		await_event(IBV_EVENT_CQ_ERR);
	if (o == R_FATAL)
		await_event(IBV_EVENT_QP_FATAL);
	await_state(p, 1, IBV_QPS_ERR);
	if (o != R_OVERFLOW)
		flushes_receives(p, THIRD + 1);
}

static void third_call_fails(struct pair *p, enum outcome o)
{
	if (o == NO_RECEIVE) {
		for (int i = 0; i < MESSAGES + 1; i++)
			SAME(pair_receive(p, i), i == THIRD ? ENOSPC : 0);
		send_all(p, 0, MESSAGES);
	} else {
		send_all(p, 0, THIRD);
		SAME(pair_send(p, THIRD), ENOMEM);
		send_all(p, THIRD, MESSAGES);
	}
	SAME(receive_all(p, MESSAGES, MESSAGES), MESSAGES);
}

static void device_goes(struct pair *p)
{
	await_event(IBV_EVENT_DEVICE_FATAL);
	await_state(p, 0, IBV_QPS_ERR);
	await_state(p, 1, IBV_QPS_ERR);
	flushes_receives(p, 0);
	CHECK(!ibv_alloc_pd(pair_context(p)) && errno == EIO);
}

static void act(struct pair *p, enum ibv_qp_type type, enum outcome o)
{
	int least = o == LOST || o == LATE ? MESSAGES - 1 : o == TWICE ? MESSAGES + 1 : MESSAGES;

	if (o != NO_RECEIVE)
		for (int i = 0; i < MESSAGES + (o == TWICE); i++)
			CHECK(!pair_receive(p, i));
	switch (o) {
	case ENDS:
		CHECK(connection_ends(p));
		break;
	case STATUS:
	case FATAL:
	case OVERFLOW:
		third_request_fails(p, type, o);
		break;
	case R_STATUS:
	case R_FATAL:
	case R_OVERFLOW:
		third_receive_fails(p, o);
		break;
	case NO_SEND:
	case NO_RECEIVE:
		third_call_fails(p, o);
		break;
	case REMOVED:
		device_goes(p);
		break;
	case PORT:
		await_event(IBV_EVENT_PORT_ERR);
		await_event(IBV_EVENT_PORT_ACTIVE);
		__attribute__((fallthrough));
	default:
		send_all(p, 0, MESSAGES);
		receive_all(p, least, o == LATE ? MESSAGES : least);
	}
}

/* A child with one rule. The other pair is made after the fault. */
static void run_cell(const struct row *row, size_t column, bool extended)
{
	enum outcome o = row->on[column];
	enum ibv_qp_type type = columns[column].type;

	setenv("VERBENA_FAULT", row->rule, 1);
	setenv("VERBENA_WIRE", columns[column].way == LOCAL ? "auto" : "always", 1);
	pair_open(&first, columns[column].way, type, extended);
	act(&first, type, o);
	long hits = pair_hits();

	if (o == NOT ? hits != 0 : hits < 1)
		CHECK_FAILED("the rule has %ld hits", hits);
	pair_close(&first);
	if (o == REMOVED)
		return;
	pair_open(&other, columns[column].way, type, extended);
	for (int i = 0; i < MESSAGES; i++)
		CHECK(!pair_receive(&other, i));
	send_all(&other, 0, MESSAGES);
	SAME(receive_all(&other, MESSAGES, MESSAGES), MESSAGES);
	pair_close(&other);
}

/* Three datagrams of one host, all posted before the first has left. order: their numbers as they arrive. */
static void run_order(const char *rule, const char *order)
{
	setenv("VERBENA_FAULT", rule, 1);
	setenv("VERBENA_WIRE", "auto", 1);
	pair_open(&first, LOCAL, IBV_QPT_UD, false);
	for (int i = 0; i < 3; i++)
		CHECK(!pair_receive(&first, i));
	for (int i = 0; i < 3; i++)
		CHECK(!pair_send(&first, i));
	for (int i = 0; i < 3; i++) {
		struct done d = pair_await(&first, 0);

		SAME(d.id, i);
		SAME(d.status, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 3; i++) {
		SAME(pair_await(&first, 1).status, IBV_WC_SUCCESS);
		CHECK(pair_is_whole(&first, i));
		SAME(first.in[i][GRH_BYTES], order[i] - '0');
	}
	SAME(pair_hits(), 1);
	pair_close(&first);
}

static bool keeps_order(const char *rule, const char *order)
{
	int status;

	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		alarm(120);
		run_order(rule, order);
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	printf("%s datagrams of one host arrive in the order %s: %s\n", status ? "not ok" : "ok", order, rule);
	return !status;
}

static bool passes(const struct row *row, size_t column, bool extended)
{
	int status;

	fflush(stdout);
	pid_t child = fork();

	if (!child) {
		alarm(120);
		run_cell(row, column, extended);
		exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	bool good = WIFEXITED(status) && !WEXITSTATUS(status);

	printf("%s %s: %s%s\n", good ? "ok" : "not ok", columns[column].name, row->rule,
	       extended ? ", extended CQs" : "");
	return good;
}

/* Arguments: words that rows must contain, to run some alone. */
int main(int argc, char **argv)
{
	char runtime[] = "/tmp/verbena-matrix.XXXXXX", command[80];
	bool good = true;

	CHECK(mkdtemp(runtime) && !setenv("VERBENA_RUNTIME", runtime, 1));
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		for (size_t c = 0; c < COLUMNS; c++)
			for (int extended = 0; extended < 2; extended++)
				if (argc < 2 || strstr(rows[r].rule, argv[1]))
					good &= passes(&rows[r], c, extended);
	good &= keeps_order("reorder nth=1", "231");
	good &= keeps_order("delay=20ms nth=1", "123");
	snprintf(command, sizeof(command), "rm -rf %s", runtime);
	CHECK(!system(command));
	return !good;
}
