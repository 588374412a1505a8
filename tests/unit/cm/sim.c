// sim.c - two hosts whose programs connect, wait, reject, disconnect and end, and a bad network between them
// follows: IBA volume 1, 12.9: the order of events
// SPDX-License-Identifier: MIT
#include "sim.h"

#include "../../support/check.h"
#include "engine/cm/cm.h"

enum { MAX_PLACES = 32, MAX_FLYING = 1024, MAX_ATTEMPTS = 256, HISTORY = 64, HESITATION = 8000000 };

/* A program's side of a connection. */
struct app {
	bool live;
	struct vb_cm_conn *conn;
	struct node *node;
	unsigned attempt;
	uint8_t last;    /* the state that it knows */
	uint64_t act_at; /* 0: waits for an event */
	bool own_end;    /* it rejected or destroyed the connection before it was established */
};

struct node {
	struct vb_cm cm;
	struct vb_cm_conn conns[MAX_PLACES];
	struct app apps[MAX_PLACES];
	uint32_t lane;
	uint8_t gid[VB_GID_LEN];
	uint64_t guid;
};

struct flying {
	uint64_t at;
	struct vb_cm_addr to; /* as the sender sees it */
	uint8_t mad[VB_MAD_LEN];
};

/* The result of one attempt to connect. */
struct attempt {
	bool sidr, rtu, rep_error, req_error;
	unsigned answers, ready, passive_ended;
	uint32_t passive_id; /* id of the connection that sent the REP */
	uint32_t qpn;
};

static struct {
	struct sim_plan plan;
	struct sim_result result;
	uint64_t now, rng, next_attempt_at;
	struct node nodes[2];
	struct flying flying[MAX_FLYING], history[HISTORY];
	unsigned n_flying, n_history, begun;
	struct attempt attempts[MAX_ATTEMPTS];
} s;

static uint64_t random64(void)
{
	uint64_t z = s.rng += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
	return n ? random64() % n : 0;
}

static bool chance(unsigned percent)
{
	return below(100) < percent;
}

/* The network. */

static struct node *node_of(const uint8_t gid[VB_GID_LEN])
{
	return &s.nodes[gid[15] - 1];
}

static void launch(const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN])
{
	if (s.n_flying == MAX_FLYING)
		return; /* a full router */
	struct flying *f = &s.flying[s.n_flying++];

	*f = (struct flying){.at = s.now + 1 + below(s.plan.max_delay), .to = *to};
	memcpy(f->mad, mad, VB_MAD_LEN);
}

static void forge(const struct flying *old)
{
	uint8_t mad[VB_MAD_LEN];

	memcpy(mad, old->mad, VB_MAD_LEN);
	if (chance(70))
		mad[below(80)] ^= (uint8_t)(1 << below(8));
	else
		for (int i = 18; i < VB_MAD_LEN; i++)
			mad[i] = (uint8_t)random64();
	if (chance(20))
		mad[17] = (uint8_t)(0x10 + below(11)); /* the body of one message with the attribute of another */
	launch(&old->to, mad);
}

/* Genuine datagrams are routed to the owner of their id. */
static void check_route(const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN])
{
	struct vb_cm_route_info info;

	switch (vb_cm_route(mad, VB_MAD_LEN, &info)) {
	case VB_CM_TO_LANE:
		CHECK(info.lane == node_of(to->remote)->lane || s.plan.forged);
		break;
	case VB_CM_TO_SERVICE:
	case VB_CM_TO_ALL:
		break;
	case VB_CM_DROP:
		CHECK(0);
	}
}

static void on_send(void *own, const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN])
{
	struct flying *past = &s.history[s.n_history++ % HISTORY];

	CHECK(!memcmp(to->local, ((struct node *)own)->gid, VB_GID_LEN));
	check_route(to, mad);
	past->to = *to;
	memcpy(past->mad, mad, VB_MAD_LEN);
	if (!chance(s.plan.loss))
		launch(to, mad);
	if (chance(s.plan.dup))
		launch(to, mad);
	const struct flying *old = &s.history[below(s.n_history < HISTORY ? s.n_history : HISTORY)];

	if (chance(s.plan.replay))
		launch(&old->to, old->mad);
	if (chance(s.plan.forged))
		forge(old);
}

/* The programs. */

static struct app *new_app(struct node *node, struct vb_cm_conn *conn, unsigned attempt)
{
	for (uint32_t i = 0; i < s.plan.places; i++)
		if (!node->apps[i].live) {
			node->apps[i] = (struct app){
			        .live = true, .conn = conn, .node = node, .attempt = attempt, .last = conn->state};
			conn->own = &node->apps[i];
			return conn->own;
		}
	CHECK(!"more connections than places");
	return NULL;
}

#define IN(state) (1u << VB_CM_##state)

/* True if the protocol will act by itself. */
static bool has_timer(unsigned state)
{
	return 1u << state & (IN(REQ_SENT) | IN(MRA_REQ_RCVD) | IN(REP_SENT) | IN(MRA_REP_RCVD) | IN(DREQ_SENT) |
	                      IN(TIMEWAIT) | IN(SIDR_REQ_SENT));
}

static void decide_later(struct app *app)
{
	app->last = app->conn->state;
	app->act_at = has_timer(app->last) && !chance(8) ? 0 : s.now + 1 + below(HESITATION);
}

static void leave(struct app *app)
{
	if (!app->conn->active && app->conn->state < VB_CM_ESTABLISHED && app->attempt < MAX_ATTEMPTS)
		s.attempts[app->attempt].passive_ended++;
	vb_cm_destroy(&app->node->cm, app->conn, s.now);
	app->live = false;
}

static void refuse(struct app *app)
{
	if (!app->conn->active && app->attempt < MAX_ATTEMPTS)
		s.attempts[app->attempt].passive_ended++;
	CHECK(vb_cm_reject(&app->node->cm, app->conn, VB_CM_REJ_CONSUMER_DEFINED, NULL, 0, "no", 2, s.now));
	decide_later(app);
}

static void accept_it(struct app *app)
{
	const struct vb_cm_rep rep = {.local_ca_guid = app->node->guid, .local_qpn = (uint32_t)below(1 << 24)};

	CHECK(vb_cm_accept(&app->node->cm, app->conn, &rep, s.now));
	decide_later(app);
}

static void ready(struct app *app)
{
	struct attempt *t = &s.attempts[app->attempt];

	CHECK(!t->rtu);
	t->rtu = true;
	t->passive_id = app->conn->remote_comm_id;
	s.result.established++;
	CHECK(vb_cm_rtu(&app->node->cm, app->conn, NULL, 0, s.now));
	decide_later(app);
}

static void hesitate(struct app *app)
{
	CHECK(vb_cm_mra(&app->node->cm, app->conn, 11, chance(50), NULL, 0, s.now));
	decide_later(app);
}

static void act(struct app *app)
{
	struct vb_cm *cm = &app->node->cm;
	struct vb_cm_conn *conn = app->conn;
	unsigned dice = (unsigned)below(100);

	app->act_at = 0;
	if (dice < 6 || conn->state == VB_CM_IDLE) {
		leave(app);
		return;
	}
	switch (conn->state) {
	case VB_CM_REQ_RCVD:
		dice < 15 ? refuse(app) : dice < 30 ? hesitate(app) : accept_it(app);
		break;
	case VB_CM_MRA_REQ_SENT:
		dice < 15 ? refuse(app) : accept_it(app);
		break;
	case VB_CM_REP_RCVD:
		dice < 15 ? refuse(app) : dice < 30 ? hesitate(app) : ready(app);
		break;
	case VB_CM_MRA_REP_SENT:
		dice < 15 ? refuse(app) : ready(app);
		break;
	case VB_CM_REP_SENT:
	case VB_CM_MRA_REP_RCVD:
		if (dice < 30)
			vb_cm_establish(cm, conn, s.now);
		break;
	case VB_CM_ESTABLISHED:
		CHECK(vb_cm_disconnect(cm, conn, "bye", 3, s.now));
		decide_later(app);
		break;
	case VB_CM_DREQ_RCVD:
		CHECK(vb_cm_dreply(cm, conn, NULL, 0, s.now));
		decide_later(app);
		break;
	case VB_CM_SIDR_REQ_RCVD:
		CHECK(vb_cm_sidr_reply(cm, conn, &(struct vb_cm_sidr_rep){.qpn = 7}, s.now));
		decide_later(app);
		break;
	}
}

/* The states in which an event may arrive, and the next state. */
static const struct {
	unsigned after, to;
} lawful[] = {
        [VB_CM_REQ_RECEIVED] = {IN(REQ_RCVD), IN(REQ_RCVD)},
        [VB_CM_REQ_ERROR] = {IN(REQ_SENT) | IN(MRA_REQ_RCVD), IN(IDLE)},
        [VB_CM_REP_RECEIVED] = {IN(REQ_SENT) | IN(MRA_REQ_RCVD), IN(REP_RCVD)},
        [VB_CM_REP_ERROR] = {IN(REP_SENT) | IN(MRA_REP_RCVD), IN(IDLE)},
        [VB_CM_RTU_RECEIVED] = {IN(REP_SENT) | IN(MRA_REP_RCVD), IN(ESTABLISHED)},
        [VB_CM_USER_ESTABLISHED] = {IN(REP_SENT) | IN(MRA_REP_RCVD), IN(ESTABLISHED)},
        [VB_CM_MRA_RECEIVED] = {IN(REQ_SENT) | IN(MRA_REQ_RCVD) | IN(REP_SENT) | IN(MRA_REP_RCVD),
                                IN(MRA_REQ_RCVD) | IN(MRA_REP_RCVD)},
        [VB_CM_REJ_RECEIVED] = {IN(REQ_SENT) | IN(REQ_RCVD) | IN(MRA_REQ_SENT) | IN(MRA_REQ_RCVD) | IN(REP_SENT) |
                                        IN(REP_RCVD) | IN(MRA_REP_SENT) | IN(MRA_REP_RCVD) | IN(ESTABLISHED) |
                                        IN(DREQ_SENT),
                                IN(IDLE) | IN(TIMEWAIT)},
        [VB_CM_DREQ_RECEIVED] = {IN(REP_SENT) | IN(MRA_REP_RCVD) | IN(ESTABLISHED) | IN(DREQ_SENT),
                                 IN(DREQ_RCVD) | IN(TIMEWAIT)},
        [VB_CM_DREP_RECEIVED] = {IN(ESTABLISHED) | IN(DREQ_SENT), IN(TIMEWAIT)}, /* a stale one ends at once */
        [VB_CM_DREQ_ERROR] = {IN(ESTABLISHED) | IN(DREQ_SENT), IN(TIMEWAIT)},
        [VB_CM_TIMEWAIT_EXIT] = {IN(TIMEWAIT), IN(IDLE)},
        [VB_CM_SIDR_REQ_RECEIVED] = {IN(SIDR_REQ_RCVD), IN(SIDR_REQ_RCVD)},
        [VB_CM_SIDR_REP_RECEIVED] = {IN(SIDR_REQ_SENT), IN(IDLE)},
        [VB_CM_SIDR_ERROR] = {IN(SIDR_REQ_SENT), IN(IDLE)},
};

static unsigned attempt_of(const struct vb_cm_event *event)
{
	const uint8_t *p =
	        event->kind == VB_CM_REQ_RECEIVED ? event->msg->req.private_data : event->msg->sidr_req.private_data;
	unsigned attempt = p[0] | (unsigned)p[1] << 8;

	return attempt < s.begun ? attempt : MAX_ATTEMPTS; /* forged */
}

static void note(struct app *app, const struct vb_cm_event *event)
{
	struct attempt *t = &s.attempts[app->attempt];

	if (app->attempt >= MAX_ATTEMPTS)
		return;
	switch (event->kind) {
	case VB_CM_RTU_RECEIVED:
		t->ready++;
		CHECK(!s.plan.checked || (t->rtu && t->passive_id == app->conn->local_comm_id));
		break;
	case VB_CM_DREQ_RECEIVED:
		t->passive_ended += !app->conn->active;
		break;
	case VB_CM_REQ_ERROR:
		t->req_error = true;
		t->answers++;
		s.result.failed++;
		break;
	case VB_CM_REP_ERROR:
		t->rep_error = true;
		break;
	case VB_CM_REJ_RECEIVED:
		s.result.refused++;
		t->passive_ended += !app->conn->active;
		break;
	case VB_CM_USER_ESTABLISHED:
		t->passive_ended++;
		break;
	case VB_CM_SIDR_REP_RECEIVED:
	case VB_CM_SIDR_ERROR:
		s.result.sidr++;
		t->answers++;
		break;
	default:
		break;
	}
}

static void on_event(void *own, struct vb_cm_conn *conn, const struct vb_cm_event *event)
{
	struct node *node = own;
	struct app *app = conn->own;

	if (event->kind == VB_CM_REQ_RECEIVED || event->kind == VB_CM_SIDR_REQ_RECEIVED) {
		CHECK(!app);
		app = new_app(node, conn, attempt_of(event));
	}
	CHECK(app && app->live && app->conn == conn);
	CHECK(lawful[event->kind].after & 1u << app->last && lawful[event->kind].to & 1u << conn->state);
	note(app, event);
	decide_later(app);
	if (app->act_at && chance(30))
		act(app); /* at once, inside the callback */
}

static uint16_t on_admit(void *own, const struct vb_cm_addr *from, const struct vb_cm_msg *msg)
{
	return chance(5) ? 3 : 0;
}

static const struct vb_cm_ops ops = {.admit = on_admit, .send = on_send, .event = on_event};

/* A new attempt to connect to the other host or to itself. */
static void begin(void)
{
	struct node *from = &s.nodes[below(2)], *to = chance(15) ? from : &s.nodes[from == s.nodes];
	unsigned number = s.begun++;
	struct attempt *t = &s.attempts[number];
	struct vb_cm_addr addr = {0};
	struct vb_cm_conn *conn;

	memcpy(addr.local, from->gid, VB_GID_LEN);
	memcpy(addr.remote, to->gid, VB_GID_LEN);
	t->sidr = chance(20);
	t->qpn = number && chance(s.plan.reuse) ? s.attempts[below(number)].qpn : 1000 + number;
	if (t->sidr) {
		struct vb_cm_sidr_req req = {.service_id = 1,
		                             .private_data = {(uint8_t)number, (uint8_t)(number >> 8)}};

		conn = vb_cm_sidr_request(&from->cm, &addr, &req, 5000000, 15, NULL, s.now);
	} else {
		struct vb_cm_req req = {.service_id = 1,
		                        .local_ca_guid = from->guid,
		                        .local_qpn = t->qpn,
		                        .remote_response_timeout = 10,
		                        .local_response_timeout = 10,
		                        .max_cm_retries = 15,
		                        .primary.ack_timeout = 8,
		                        .private_data = {(uint8_t)number, (uint8_t)(number >> 8)}};

		conn = vb_cm_connect(&from->cm, &addr, &req, NULL, s.now);
	}
	CHECK(conn || from->cm.used == s.plan.places);
	if (conn)
		decide_later(new_app(from, conn, number));
	s.next_attempt_at = s.begun < s.plan.attempts ? s.now + 1 + below(4000000) : 0;
}

/* Invariants, checked after every step. */

static void check_conn(const struct node *n, const struct vb_cm_conn *conn)
{
	const struct app *app = conn->own;

	if (!conn->used) {
		CHECK(conn->heap_at == VB_CM_NONE && !conn->in_ids && !conn->in_qps);
		return;
	}
	CHECK(vb_cm_lane_of(conn->local_comm_id) == n->lane);
	CHECK(has_timer(conn->state) == (conn->heap_at != VB_CM_NONE));
	CHECK(!conn->orphan || conn->state == VB_CM_DREQ_SENT || conn->state == VB_CM_TIMEWAIT);
	CHECK(conn->orphan || (app && app->live && app->conn == conn));
	CHECK(conn->orphan || has_timer(conn->state) || app->act_at);
	if (conn->heap_at != VB_CM_NONE)
		CHECK(n->cm.conns[conn->heap_at - 1].place.heap == (uint32_t)(conn - n->conns) &&
		      conn->deadline >= s.now);
	if (conn->state == VB_CM_IDLE)
		CHECK(!conn->in_ids && !conn->in_qps);
}

static void check_node(const struct node *n)
{
	uint32_t used = 0, timers = 0, ids = 0, qps = 0, listed_ids = 0, listed_qps = 0, free_places = 0;

	for (uint32_t i = 0; i < s.plan.places; i++) {
		const struct vb_cm_conn *conn = &n->conns[i];

		check_conn(n, conn);
		used += conn->used;
		timers += conn->heap_at != VB_CM_NONE;
		ids += conn->in_ids;
		qps += conn->in_qps;
		for (uint32_t k = conn->place.id_head; k != VB_CM_NONE && listed_ids <= s.plan.places;
		     k = n->conns[k - 1].id_next)
			listed_ids++;
		for (uint32_t k = conn->place.qp_head; k != VB_CM_NONE && listed_qps <= s.plan.places;
		     k = n->conns[k - 1].qp_next)
			listed_qps++;
	}
	for (uint32_t k = 1; k < n->cm.heap_len; k++)
		CHECK(n->conns[n->conns[(k - 1) / 2].place.heap].deadline <= n->conns[n->conns[k].place.heap].deadline);
	if (n->cm.nfree)
		for (uint32_t k = n->cm.free_first; k != VB_CM_NONE && free_places <= s.plan.places;
		     k = n->conns[k - 1].place.next_free)
			free_places++;
	CHECK(used == n->cm.used && used + free_places == n->cm.fresh && free_places == n->cm.nfree &&
	      timers == n->cm.heap_len);
	CHECK(ids == listed_ids && qps == listed_qps);
}

/* Checks of the results at the end. */
static void check_outcomes(void)
{
	for (unsigned i = 0; i < s.begun; i++) {
		const struct attempt *t = &s.attempts[i];

		CHECK(t->answers <= 1);
		if (!s.plan.checked)
			continue;
		/* a side that is ready was reported to the other side, unless that one has left or given up, which it
		 * was told; at most once */
		CHECK(t->ready <= 1 && (!t->rtu || t->ready || t->passive_ended || t->rep_error));
		/* without loss, no side gives up */
		CHECK(s.plan.loss || (!t->req_error && !t->rep_error));
	}
}

/* Time. */

static void deliver(unsigned i)
{
	struct flying f = s.flying[i];
	struct vb_cm_addr from = {.ifindex = f.to.ifindex};

	s.flying[i] = s.flying[--s.n_flying];
	memcpy(from.local, f.to.remote, VB_GID_LEN);
	memcpy(from.remote, f.to.local, VB_GID_LEN);
	vb_cm_input(&node_of(f.to.remote)->cm, &from, f.mad, VB_MAD_LEN, s.now);
}

static uint64_t sooner(uint64_t at, uint64_t best)
{
	return at && (!best || at < best) ? at : best;
}

static uint64_t next_time(void)
{
	uint64_t best = s.next_attempt_at;

	for (unsigned i = 0; i < s.n_flying; i++)
		best = sooner(s.flying[i].at, best);
	for (int n = 0; n < 2; n++) {
		best = sooner(vb_cm_deadline(&s.nodes[n].cm), best);
		for (uint32_t i = 0; i < s.plan.places; i++)
			if (s.nodes[n].apps[i].live)
				best = sooner(s.nodes[n].apps[i].act_at, best);
	}
	return best;
}

static void step(void)
{
	for (unsigned i = 0; i < s.n_flying; i++)
		if (s.flying[i].at <= s.now) {
			deliver(i);
			return;
		}
	for (int n = 0; n < 2; n++) {
		struct node *node = &s.nodes[n];

		for (uint32_t i = 0; i < s.plan.places; i++)
			if (node->apps[i].live && node->apps[i].act_at && node->apps[i].act_at <= s.now) {
				act(&node->apps[i]);
				return;
			}
		vb_cm_timeout(&node->cm, s.now);
	}
	if (s.next_attempt_at && s.next_attempt_at <= s.now)
		begin();
}

struct sim_result sim_run(const struct sim_plan *plan)
{
	memset(&s, 0, sizeof(s));
	s.plan = *plan;
	s.rng = plan->seed;
	s.next_attempt_at = 1;
	for (int n = 0; n < 2; n++) {
		struct node *node = &s.nodes[n];
		const struct vb_cm_config cfg = {.lane = (uint32_t)below(1024), .key = {random64(), random64()}};

		node->lane = cfg.lane;
		node->guid = 0x10 + (uint64_t)n;
		node->gid[10] = node->gid[11] = 0xff;
		node->gid[15] = (uint8_t)(n + 1);
		vb_cm_init(&node->cm, &cfg, &ops, node, node->conns, plan->places);
	}
	while ((s.now = next_time())) {
		CHECK(++s.result.steps < 1000000); /* everything ends */
		step();
		check_node(&s.nodes[0]);
		check_node(&s.nodes[1]);
	}
	CHECK(s.nodes[0].cm.used == 0 && s.nodes[1].cm.used == 0);
	check_outcomes();
	return s.result;
}
