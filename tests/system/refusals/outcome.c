// outcome.c - what one end saw: its completions, events and state, and what became of its memory
// follows: ibv_poll_cq(3), ibv_get_async_event(3); IBA volume 1, 11.6.2, 11.6.3
// SPDX-License-Identifier: MIT
#include "outcome.h"

#include <poll.h>
#include <time.h>

#include "../../support/check.h"

#define STATUSES(X)           \
	X(SUCCESS)            \
	X(LOC_LEN_ERR)        \
	X(LOC_QP_OP_ERR)      \
	X(LOC_EEC_OP_ERR)     \
	X(LOC_PROT_ERR)       \
	X(WR_FLUSH_ERR)       \
	X(MW_BIND_ERR)        \
	X(BAD_RESP_ERR)       \
	X(LOC_ACCESS_ERR)     \
	X(REM_INV_REQ_ERR)    \
	X(REM_ACCESS_ERR)     \
	X(REM_OP_ERR)         \
	X(RETRY_EXC_ERR)      \
	X(RNR_RETRY_EXC_ERR)  \
	X(LOC_RDD_VIOL_ERR)   \
	X(REM_INV_RD_REQ_ERR) \
	X(REM_ABORT_ERR)      \
	X(INV_EECN_ERR)       \
	X(INV_EEC_STATE_ERR)  \
	X(FATAL_ERR)          \
	X(RESP_TIMEOUT_ERR)   \
	X(GENERAL_ERR)        \
	X(TM_ERR)             \
	X(TM_RNDV_INCOMPLETE)
#define EVENTS(X)              \
	X(CQ_ERR)              \
	X(QP_FATAL)            \
	X(QP_REQ_ERR)          \
	X(QP_ACCESS_ERR)       \
	X(COMM_EST)            \
	X(SQ_DRAINED)          \
	X(PATH_MIG)            \
	X(PATH_MIG_ERR)        \
	X(DEVICE_FATAL)        \
	X(PORT_ACTIVE)         \
	X(PORT_ERR)            \
	X(LID_CHANGE)          \
	X(PKEY_CHANGE)         \
	X(SM_CHANGE)           \
	X(SRQ_ERR)             \
	X(SRQ_LIMIT_REACHED)   \
	X(QP_LAST_WQE_REACHED) \
	X(CLIENT_REREGISTER)   \
	X(GID_CHANGE)          \
	X(WQ_FATAL)
#define OPCODES(X)    \
	X(SEND)       \
	X(RDMA_WRITE) \
	X(RDMA_READ) X(COMP_SWAP) X(FETCH_ADD) X(LOCAL_INV) X(BIND_MW) X(ATOMIC_WRITE) X(RECV) X(RECV_RDMA_WITH_IMM)
#define ERRNOS(X) X(EINVAL) X(ENOMEM) X(EOPNOTSUPP) X(EPERM) X(EFAULT) X(EMSGSIZE) X(ENOSPC)

static const char *const statuses[] = {
#define X(name) [IBV_WC_##name] = #name,
        STATUSES(X)
#undef X
};
static const char *const events[] = {
#define X(name) [IBV_EVENT_##name] = #name,
        EVENTS(X)
#undef X
};
static const char *const opcodes[] = {[8] = "FLUSH", /* IBV_WC_FLUSH, which the headers of rdma-core 44 do not have */
#define X(name) [IBV_WC_##name] = #name,
                                      OPCODES(X)
#undef X
};
static const char *const states[] = {
        [IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT", [IBV_QPS_RTR] = "RTR", [IBV_QPS_RTS] = "RTS",
        [IBV_QPS_SQD] = "SQD",     [IBV_QPS_SQE] = "SQE",   [IBV_QPS_ERR] = "ERR", [IBV_QPS_UNKNOWN] = "UNKNOWN",
};

/* --- observing --- */

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static bool take_completion(struct end *e, struct outcome *o)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(e->cq, 1, &wc);

	CHECK(n >= 0);
	if (!n)
		return false;
	CHECK(o->completions < SEEN_MAX);
	unsigned i = o->completions++;

	o->wc[i].id = wc.wr_id;
	o->wc[i].status = (uint8_t)wc.status;
	o->wc[i].opcode = (uint8_t)wc.opcode;
	o->wc[i].byte_len = wc.byte_len;
	o->wc[i].vendor_err = wc.vendor_err;
	o->wc[i].flags = (uint8_t)wc.wc_flags;
	return true;
}

static bool is_of_queue(enum ibv_event_type type)
{
	return type == IBV_EVENT_CQ_ERR || (type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_PATH_MIG_ERR) ||
	       type == IBV_EVENT_QP_LAST_WQE_REACHED || type == IBV_EVENT_SRQ_LIMIT_REACHED ||
	       type == IBV_EVENT_SRQ_ERR;
}

static bool take_event(struct end *e, struct outcome *o)
{
	struct pollfd p = {.fd = e->d->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event ev;

	if (poll(&p, 1, 0) != 1)
		return false;
	CHECK(!ibv_get_async_event(e->d->ctx, &ev));
	ibv_ack_async_event(&ev);
	if (!is_of_queue(ev.event_type))
		return true;
	CHECK(o->events < SEEN_MAX);
	o->event[o->events++] = (uint8_t)ev.event_type;
	return true;
}

void outcome_observe(struct end *e, unsigned first_ms, unsigned quiet_ms, struct outcome *o)
{
	uint64_t first = now_ms() + first_ms, quiet = now_ms() + quiet_ms;

	*o = (struct outcome){.there = true};
	while (now_ms() < quiet || (!o->completions && now_ms() < first)) {
		bool seen = take_completion(e, o);

		seen |= take_event(e, o);
		if (seen)
			quiet = now_ms() + quiet_ms;
		else
			nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	o->state = (uint8_t)end_state(e);
}

/* --- printing --- */

#define NAME_OF(table, i) name_of(table, sizeof(table) / sizeof((table)[0]), i)

static const char *name_of(const char *const *table, size_t n, unsigned i)
{
	return i < n && table[i] ? table[i] : "UNKNOWN";
}

const char *outcome_errno(int err)
{
#define X(name)          \
	if (err == name) \
		return #name;
	ERRNOS(X)
#undef X
	return err ? strerror(err) : "0";
}

/* The fields of a completion that are valid. byte_len is that of a receive. */
static void print_completion(const struct outcome *o, unsigned i)
{
	bool receive = o->wc[i].opcode & IBV_WC_RECV;

	printf(" %s", NAME_OF(statuses, o->wc[i].status));
	if (o->wc[i].vendor_err)
		printf("/vendor_err=%u", o->wc[i].vendor_err);
	if (o->wc[i].status != IBV_WC_SUCCESS)
		return;
	printf("/%s", NAME_OF(opcodes, o->wc[i].opcode));
	if (receive)
		printf("/%u", o->wc[i].byte_len);
	if (receive && o->wc[i].flags & IBV_WC_WITH_IMM)
		printf("/imm");
	if (receive && o->wc[i].flags & IBV_WC_WITH_INV)
		printf("/inv");
	if (receive && o->wc[i].flags & IBV_WC_GRH)
		printf("/grh");
}

static void print_completions(const char *title, const struct outcome *o)
{
	printf("; %s", title);
	for (unsigned i = 0; i < o->completions; i++)
		print_completion(o, i);
	if (!o->completions)
		printf(" -");
}

static void print_events(const struct outcome *o)
{
	putchar(' ');
	for (unsigned i = 0; i < o->events; i++)
		printf("%s%s", i ? "," : "", NAME_OF(events, o->event[i]));
	if (!o->events)
		putchar('-');
}

void outcome_print(const char *posted, const struct outcome *asked, const struct outcome *answered, const char *memory,
                   const char *sink)
{
	printf(": post %s", posted);
	print_completions("send", asked);
	print_completions("receive", answered);
	printf("; states %s %s; events", NAME_OF(states, asked->state),
	       answered->there ? NAME_OF(states, answered->state) : "-");
	print_events(asked);
	print_events(answered);
	printf("; memory %s", memory);
	if (sink)
		printf(" %s", sink);
	putchar('\n');
	fflush(stdout);
}

void outcome_print_names(void)
{
#define X(name) puts("IBV_WC_" #name);
	STATUSES(X)
#undef X
#define X(name) puts("IBV_EVENT_" #name);
	EVENTS(X)
#undef X
	puts("IBV_EVENT_DEVICE_SPEED_CHANGE"); /* which the headers of rdma-core 44 do not have */
}
