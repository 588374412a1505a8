// iwarp.c - the random walk: iWARP connections between its processes, with data in both directions
// follows: rdma_connect(3), rdma_accept(3); RFC 5040, 5.4 (order), 8.1; RFC 7306 (atomics)
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>
#include <unistd.h>

#include "walk.h"

/*
 * A line is one side of a connection, with a queue pair, memory that the peer uses, and memory to send from. Who has its
 * lock uses it. Each line has a word on the board that says whether its side has closed it: only then may requests of the
 * other side fail. A message is sent only if the peer has a receive for it: RDMAP has no RNR NAK.
 */
#define ADDRESS "fd00:6f::1" /* of own0: tests/support/own-network */
#define INTERFACE "own0"
#define LINES IWARP_LINES
#define SLOTS 6u
#define RECEIVES 8u
#define AREA 8192u
#define AREAS (2 * SLOTS + RECEIVES) /* the window of the peer; to send from or read into; receives */
#define WINDOW_BYTES ((size_t)SLOTS * AREA)
#define LAST_SEND 0x8000u /* wr_id of a receive */

enum line_state { FREE, RESOLVING, ROUTING, CONNECTING, UP };

/* What both sides tell each other when they connect. */
struct greeting {
	uint32_t process, line, round, rkey;
	uint64_t window;
};

struct line {
	pthread_mutex_t lock;
	enum line_state state;
	uint32_t index, round;
	bool connects; /* it has its own channel; the other side uses the listener's */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory, *expect; /* expect: the peer's window */
	struct greeting there;
	uint64_t sent, posted; /* messages; receives */
	struct {
		bool busy;
		enum ibv_wr_opcode op;
		uint32_t offset, length;
		uint64_t seed, before;
	} slot[SLOTS];
};
static struct line lines[LINES];
static struct {
	pthread_mutex_t lock;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
} listener = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct iwarp_place *place_of_line(uint32_t process, uint32_t line)
{
	return &board->iwarp[process % PROCESSES][line % LINES];
}

static struct iwarp_place *own_place(const struct line *l)
{
	return place_of_line(self, l->index);
}

static uint8_t *area_of(const struct line *l, unsigned area)
{
	return l->memory + (size_t)area * AREA;
}

/* May requests of this line fail? Its own side closes it under its lock, so only the other one counts. */
static bool may_fail(const struct line *l)
{
	return place_of_line(l->there.process, l->there.line)->open != l->there.round;
}

/* --- beginning --- */

static struct rdma_event_channel *quiet_channel(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();

	CHECK(ch && !fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK));
	return ch;
}

static struct sockaddr_in6 address_at(uint16_t port)
{
	struct sockaddr_in6 sin = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	CHECK(inet_pton(AF_INET6, ADDRESS, &sin.sin6_addr) == 1);
	return sin;
}

bool iwarp_is_possible(void)
{
	return if_nametoindex(INTERFACE);
}

void iwarp_init(void)
{
	struct sockaddr_in6 sin = address_at(0);

	for (uint32_t i = 0; i < LINES; i++) {
		lines[i].index = i;
		lines[i].round = place_of_line(self, i)->rounds;
		lines[i].memory =
		        mmap(NULL, (AREAS + SLOTS) * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(lines[i].memory != MAP_FAILED);
		lines[i].expect = area_of(&lines[i], AREAS);
		pthread_mutex_init(&lines[i].lock, NULL);
	}
	listener.channel = quiet_channel();
	CHECK(!rdma_create_id(listener.channel, &listener.id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener.id, (struct sockaddr *)&sin) && !rdma_listen(listener.id, 16));
	CHECK(listener.id->verbs && !strcmp(ibv_get_device_name(listener.id->verbs->device), "iwarp_" INTERFACE));
	board->iwarp_port[self] = ntohs(rdma_get_src_port(listener.id));
}

static void post_receive(struct line *l, uint32_t i)
{
	struct ibv_sge sge = {(uintptr_t)area_of(l, 2 * SLOTS + i), AREA, l->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = LAST_SEND | i, .sg_list = &sge, .num_sge = 1}, *bad;

	ANSWER(ibv_post_recv(l->id->qp, &wr, &bad), 0);
	l->posted++;
}

/* Objects, a queue pair with receives, and a new round on the board. The id has its device. */
static void make_parts(struct line *l)
{
	struct ibv_qp_init_attr init = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = SLOTS, .max_recv_wr = RECEIVES, .max_send_sge = 2, .max_recv_sge = 1}};

	CHECK((l->pd = ibv_alloc_pd(l->id->verbs)));
	CHECK((l->cq = ibv_create_cq(l->id->verbs, SLOTS + RECEIVES, NULL, NULL, 0)));
	CHECK((l->mr = ibv_reg_mr(l->pd, l->memory, (size_t)AREAS * AREA, ALL_ACCESS)));
	init.send_cq = init.recv_cq = l->cq;
	CHECK(!rdma_create_qp(l->id, l->pd, &init));
	l->round++;
	l->sent = l->posted = 0;
	fill_bytes(l->memory, WINDOW_BYTES, mix(plan.seed, l->round));
	for (uint32_t i = 0; i < SLOTS; i++)
		l->slot[i].busy = false;
	for (uint32_t i = 0; i < RECEIVES; i++)
		post_receive(l, i);
	own_place(l)->rounds = l->round;
	own_place(l)->receives = l->posted;
	own_place(l)->open = l->round;
}

static struct greeting greeting_of(const struct line *l)
{
	return (struct greeting){self, l->index, l->round, l->mr->rkey, (uintptr_t)l->memory};
}

static struct rdma_conn_param param_of(const struct greeting *g)
{
	return (struct rdma_conn_param){.private_data = g,
	                                .private_data_len = sizeof(*g),
	                                .responder_resources = 8,
	                                .initiator_depth = 8,
	                                .retry_count = 7,
	                                .rnr_retry_count = 7};
}

/* The queue pair of the other side is there. */
static void meet(struct line *l, const struct greeting *there)
{
	l->there = *there;
	CHECK(l->there.process < plan.processes && l->there.line < LINES);
	fill_bytes(l->expect, WINDOW_BYTES, mix(plan.seed, l->there.round));
}

/* --- the end of a line --- */

static void close_line(struct line *l)
{
	own_place(l)->open = 0;
	if (l->id) {
		rdma_disconnect(l->id); /* fails if it is not connected */
		if (l->id->qp)
			rdma_destroy_qp(l->id);
	}
	if (l->mr)
		ANSWER(ibv_dereg_mr(l->mr), 0);
	if (l->cq)
		ANSWER(ibv_destroy_cq(l->cq), 0);
	if (l->pd)
		ANSWER(ibv_dealloc_pd(l->pd), 0);
	if (l->id)
		CHECK(!rdma_destroy_id(l->id));
	if (l->channel)
		rdma_destroy_event_channel(l->channel);
	l->mr = NULL;
	l->cq = NULL;
	l->pd = NULL;
	l->id = NULL;
	l->channel = NULL;
	l->state = FREE;
}

void iwarp_end(void)
{
	for (uint32_t i = 0; i < LINES; i++)
		close_line(&lines[i]);
}

/* --- connecting --- */

static void begin_line(struct dice *d, struct line *l)
{
	uint16_t port = (uint16_t)board->iwarp_port[roll(d, plan.processes)];
	struct sockaddr_in6 sin = address_at(port);

	if (!port)
		return;
	l->connects = true;
	l->channel = quiet_channel();
	CHECK(!rdma_create_id(l->channel, &l->id, l, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(l->id, NULL, (struct sockaddr *)&sin, HARMLESS_MS));
	l->state = RESOLVING;
}

/* An event of a line; the greeting of the other side is copied. The event is acknowledged. */
static void line_event(struct line *l, enum rdma_cm_event_type type, const struct greeting *there)
{
	struct greeting mine;
	struct rdma_conn_param param = param_of(&mine);

	if (l->state == RESOLVING && type == RDMA_CM_EVENT_ADDR_RESOLVED) {
		CHECK(!rdma_resolve_route(l->id, HARMLESS_MS));
		l->state = ROUTING;
	} else if (l->state == ROUTING && type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
		make_parts(l);
		mine = greeting_of(l);
		if (rdma_connect(l->id, &param))
			close_line(l);
		else
			l->state = CONNECTING;
	} else if (l->state == CONNECTING && type == RDMA_CM_EVENT_ESTABLISHED) {
		if (l->connects)
			meet(l, there);
		l->state = UP;
		COUNT(iwarp_joined);
	} else if (l->state == UP && type == RDMA_CM_EVENT_DISCONNECTED) {
		if (!may_fail(l))
			CHECK_FAILED("line %u: disconnected, and nobody has closed it", l->index);
		close_line(l);
	} else if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT) { /* rejected, or the other side ended meanwhile */
		close_line(l);
	}
}

/* line: of the id, which another thread may destroy as soon as the event is acknowledged. */
static bool next_event(struct rdma_event_channel *ch, struct rdma_cm_event *copy, struct greeting *there,
                       struct line **line)
{
	struct rdma_cm_event *ev;

	errno = 0;
	if (rdma_get_cm_event(ch, &ev)) {
		CHECK(errno == EAGAIN);
		return false;
	}
	*copy = *ev;
	*line = ev->id->context;
	memset(there, 0, sizeof(*there));
	if ((ev->event == RDMA_CM_EVENT_CONNECT_REQUEST || ev->event == RDMA_CM_EVENT_ESTABLISHED) &&
	    ev->param.conn.private_data_len >= sizeof(*there))
		memcpy(there, ev->param.conn.private_data, sizeof(*there));
	CHECK(!rdma_ack_cm_event(ev));
	return true;
}

static void accept_line(struct line *l, struct rdma_cm_id *id, const struct greeting *there)
{
	struct greeting mine;
	struct rdma_conn_param param = param_of(&mine);

	l->id = id;
	l->connects = false;
	id->context = l;
	make_parts(l);
	meet(l, there);
	mine = greeting_of(l);
	if (rdma_accept(id, &param)) /* the other side has gone meanwhile */
		close_line(l);
	else
		l->state = CONNECTING;
}

static void answer_request(struct rdma_cm_id *id, const struct greeting *there)
{
	for (uint32_t i = 0; i < LINES; i++) {
		struct line *l = &lines[i];

		if (pthread_mutex_trylock(&l->lock))
			continue;
		bool is_free = l->state == FREE;

		if (is_free)
			accept_line(l, id, there);
		pthread_mutex_unlock(&l->lock);
		if (is_free)
			return;
	}
	rdma_reject(id, NULL, 0);
	CHECK(!rdma_destroy_id(id));
}

static void serve_listener(void)
{
	struct rdma_cm_event ev;
	struct greeting there;
	struct line *l;

	if (pthread_mutex_trylock(&listener.lock))
		return;
	if (next_event(listener.channel, &ev, &there, &l)) {
		if (ev.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			answer_request(ev.id, &there);
		} else if (l) {
			pthread_mutex_lock(&l->lock);
			if (l->id == ev.id)
				line_event(l, ev.event, &there);
			pthread_mutex_unlock(&l->lock);
		}
	}
	pthread_mutex_unlock(&listener.lock);
}

/* --- requests --- */

static int post_slot(struct line *l, uint32_t i)
{
	bool sends = l->slot[i].op == IBV_WR_SEND;
	struct ibv_sge sge = {(uintptr_t)area_of(l, SLOTS + i), l->slot[i].length, l->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = l->slot[i].op,
	                         .send_flags = IBV_SEND_SIGNALED},
	                   *bad;
	uint64_t at = l->there.window + (uint64_t)i * AREA + l->slot[i].offset;

	if (l->slot[i].op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = at;
		wr.wr.atomic.rkey = l->there.rkey;
		wr.wr.atomic.compare_add = l->slot[i].seed;
	} else if (!sends) {
		wr.wr.rdma.remote_addr = at;
		wr.wr.rdma.rkey = l->there.rkey;
	}
	l->slot[i].busy = true;
	return ibv_post_send(l->id->qp, &wr, &bad);
}

/* The first bytes of a message say what the others are. */
static void write_message(struct line *l, uint32_t i)
{
	uint64_t head[2] = {l->slot[i].seed, l->slot[i].length};
	uint8_t *to = area_of(l, SLOTS + i);

	memcpy(to, head, sizeof(head));
	fill_bytes(to + sizeof(head), l->slot[i].length - sizeof(head), l->slot[i].seed);
	l->sent++;
}

static void use_slot(struct dice *d, struct line *l, uint32_t i)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
	                                         IBV_WR_ATOMIC_FETCH_AND_ADD};
	enum ibv_wr_opcode op = ops[roll(d, 4)];
	uint8_t *here = area_of(l, SLOTS + i);

	if (op == IBV_WR_SEND && l->sent == place_of_line(l->there.process, l->there.line)->receives)
		op = IBV_WR_RDMA_READ;
	l->slot[i].op = op;
	l->slot[i].seed = dice_word(d);
	l->slot[i].length = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 16 + roll(d, AREA - 15);
	l->slot[i].offset = op == IBV_WR_SEND ? 0 : roll(d, (AREA - l->slot[i].length) / 8 + 1) * 8;
	if (op == IBV_WR_SEND)
		write_message(l, i);
	else if (op == IBV_WR_RDMA_WRITE)
		fill_bytes(here, l->slot[i].length, l->slot[i].seed);
	else
		memset(here, UNTOUCHED, AREA);
	ANSWER(post_slot(l, i), 0);
}

static void slot_done(struct line *l, uint32_t i)
{
	uint8_t *expect = l->expect + (size_t)i * AREA + l->slot[i].offset;
	const uint8_t *here = area_of(l, SLOTS + i);
	uint64_t was;

	CHECK(i < SLOTS && l->slot[i].busy);
	switch (l->slot[i].op) {
	case IBV_WR_RDMA_WRITE:
		fill_bytes(expect, l->slot[i].length, l->slot[i].seed);
		break;
	case IBV_WR_RDMA_READ:
		if (memcmp(expect, here, l->slot[i].length) != 0)
			CHECK_FAILED("line %u, slot %u: %u bytes read at %u are not those that were written", l->index,
			             i, l->slot[i].length, l->slot[i].offset);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		CHECK(!memcmp(expect, here, 8));
		memcpy(&was, expect, 8);
		was += l->slot[i].seed;
		memcpy(expect, &was, 8);
		break;
	default:
		break;
	}
	l->slot[i].busy = false;
	COUNT(iwarp_done);
}

static void message_heard(struct line *l, uint32_t i, const struct ibv_wc *wc)
{
	const uint8_t *at = area_of(l, 2 * SLOTS + i);
	uint64_t head[2];

	CHECK(i < RECEIVES && wc->opcode == IBV_WC_RECV && wc->byte_len >= sizeof(head));
	memcpy(head, at, sizeof(head));
	SAME(head[1], wc->byte_len);
	CHECK(bytes_hold(at + sizeof(head), wc->byte_len - sizeof(head), head[0]));
	post_receive(l, i);
	own_place(l)->receives = l->posted;
	COUNT(iwarp_done);
}

/* Returns false when the line is closed: the other side has ended it. */
static bool line_polls(struct line *l)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(l->cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			if (!may_fail(l))
				CHECK_FAILED("line %u: %s, and nobody has closed it", l->index,
				             ibv_wc_status_str(wc.status));
			close_line(l);
			return false;
		}
		if (wc.wr_id & LAST_SEND)
			message_heard(l, (uint32_t)wc.wr_id & ~LAST_SEND, &wc);
		else
			slot_done(l, (uint32_t)wc.wr_id);
	}
	return true;
}

static void use_line(struct dice *d, struct line *l)
{
	if (!line_polls(l))
		return;
	if (one_in(d, 2000) || may_fail(l)) {
		close_line(l);
		return;
	}
	for (uint32_t i = 0; i < SLOTS; i++)
		if (!l->slot[i].busy && one_in(d, 2))
			use_slot(d, l, i);
}

void iwarp_step(struct dice *d)
{
	struct line *l = &lines[roll(d, LINES)], *same;
	struct rdma_cm_event ev;
	struct greeting there;

	if (!plan.iwarp)
		return;
	serve_listener();
	if (pthread_mutex_trylock(&l->lock))
		return;
	if (l->state == FREE && one_in(d, 4))
		begin_line(d, l);
	else if (l->state == UP)
		use_line(d, l);
	if (l->channel && next_event(l->channel, &ev, &there, &same))
		line_event(l, ev.event, &there);
	pthread_mutex_unlock(&l->lock);
}
