// ends.c - one end of a connection: its device, memory and queue pair, connected by a socket or by rdma_cm
// follows: ibv_modify_qp(3), rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "ends.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../support/check.h"

/* --- device and memory --- */

static void choose_gid(struct device *d, int count)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};

	CHECK(!ibv_query_gid(d->ctx, 1, 0, &d->gid));
	for (int i = 0; i < count; i++) {
		union ibv_gid g;

		if (ibv_query_gid(d->ctx, 1, i, &g) || memcmp(g.raw, v4, sizeof(v4)) != 0)
			continue;
		d->gid = g;
		d->gid_index = i;
		return;
	}
}

static void open_by_name(struct device *d, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	for (int i = 0; list[i] && !d->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			d->ctx = ibv_open_device(list[i]);
	if (!d->ctx)
		CHECK_FAILED("there is no device %s", name);
	ibv_free_device_list(list);
}

static struct sockaddr_in address_of(const struct device *d, uint16_t port)
{
	struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(port)};

	CHECK(inet_pton(AF_INET, d->address, &sin.sin_addr) == 1);
	return sin;
}

/* The objects of an id must be of rdma_cm's own context. */
static void open_by_address(struct device *d)
{
	struct sockaddr_in sin = address_of(d, 0);

	CHECK((d->channel = rdma_create_event_channel()));
	CHECK(!rdma_create_id(d->channel, &d->listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(d->listener, (struct sockaddr *)&sin));
	CHECK((d->ctx = d->listener->verbs));
}

void device_open(struct device *d, const char *name, const char *address)
{
	struct ibv_port_attr port;

	*d = (struct device){.address = address};
	if (address)
		open_by_address(d);
	else
		open_by_name(d, name);
	CHECK(!ibv_query_port(d->ctx, 1, &port));
	d->mtu = 128u << port.active_mtu;
	choose_gid(d, port.gid_tbl_len);
	CHECK((d->pd = ibv_alloc_pd(d->ctx)) && (d->other_pd = ibv_alloc_pd(d->ctx)));
}

void area_map(struct area *a)
{
	a->map = mmap(NULL, AREA_BYTES + 2 * MARGIN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(a->map != MAP_FAILED);
}

void area_fill(struct area *a, uint8_t byte)
{
	memset(a->map, byte, AREA_BYTES + 2 * MARGIN_BYTES);
}

void area_register(struct area *a, struct ibv_pd *pd, unsigned access)
{
	CHECK((a->mr = ibv_reg_mr(pd, area_start(a), AREA_BYTES, (int)access)));
}

void area_forget(struct area *a)
{
	if (a->mr)
		CHECK(!ibv_dereg_mr(a->mr));
	a->mr = NULL;
}

/* --- the socket between both ends --- */

void tell(int fd, const void *bytes, size_t n)
{
	CHECK(write(fd, bytes, n) == (ssize_t)n);
}

void hear(int fd, void *bytes, size_t n)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	for (size_t got = 0; got < n;) {
		CHECK(poll(&p, 1, 2 * LONG_MS) == 1);
		ssize_t k = read(fd, (char *)bytes + got, n - got);

		if (k <= 0)
			CHECK_FAILED("the other end is gone");
		got += (size_t)k;
	}
}

/* --- queue pairs --- */

bool end_supports(const struct device *d, const struct plan *p)
{
	/* an iWARP connection is of one type, and goes from INIT to RTS */
	return !d->address || (p->type == RC && p->wrong != WRONG_IN_RTR);
}

unsigned end_right(const struct plan *p)
{
	return plan_is_atomic(p)         ? IBV_ACCESS_REMOTE_ATOMIC
	       : p->operation == OP_READ ? IBV_ACCESS_REMOTE_READ
	                                 : IBV_ACCESS_REMOTE_WRITE;
}

static unsigned qp_access(const struct end *e)
{
	bool without = e->p->wrong == WRONG_QP_RIGHT || e->p->wrong == WRONG_EMPTY_RIGHT;

	return !e->asks && without ? REMOTE_RIGHTS & ~end_right(e->p) : REMOTE_RIGHTS;
}

static bool needs_no_connection(const struct end *e)
{
	return e->p->wrong == WRONG_IN_RESET || e->p->wrong == WRONG_IN_INIT;
}

static void make_init_attr(const struct end *e, struct ibv_qp_init_attr *a)
{
	*a = (struct ibv_qp_init_attr){.send_cq = e->cq,
	                               .recv_cq = e->cq,
	                               .qp_type = e->p->type == RC   ? IBV_QPT_RC
	                                          : e->p->type == UC ? IBV_QPT_UC
	                                                             : IBV_QPT_UD,
	                               .cap = {.max_send_wr = DEPTH,
	                                       .max_recv_wr = DEPTH,
	                                       .max_send_sge = SGES,
	                                       .max_recv_sge = 1,
	                                       .max_inline_data = INLINE_BYTES}};
}

void end_make(struct end *e, struct device *d, const struct plan *p, bool asks)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	*e = (struct end){.d = d, .p = p, .asks = asks};
	CHECK((e->cq = ibv_create_cq(d->ctx, 4 * DEPTH, NULL, NULL, 0)));
	if (d->address && !needs_no_connection(e))
		return;
	make_init_attr(e, &init);
	CHECK((e->qp = ibv_create_qp(d->pd, &init)));
	e->cap = init.cap;
	if (asks && p->wrong == WRONG_IN_RESET)
		return;
	a.qp_access_flags = qp_access(e);
	SAME(ibv_modify_qp(e->qp, &a,
	                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                           (p->type == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     0);
}

static uint8_t reads_of(const struct end *e, bool asks)
{
	return e->p->wrong == (asks ? WRONG_ORD : WRONG_IRD) && e->asks == asks ? 0 : READS;
}

static void go_to_rtr(struct end *e, const struct hello *it)
{
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTR,
	        .path_mtu = IBV_MTU_1024,
	        .dest_qp_num = it->qpn,
	        .max_dest_rd_atomic = reads_of(e, false),
	        .min_rnr_timer = 1,
	        .ah_attr = {.is_global = 1,
	                    .port_num = 1,
	                    .grh = {.dgid = it->gid, .sgid_index = (uint8_t)e->d->gid_index, .hop_limit = 64}},
	};
	int mask = IBV_QP_STATE;

	if (e->p->type != UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (e->p->type == RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	SAME(ibv_modify_qp(e->qp, &a, mask), 0);
}

static bool peer_is_silent(const struct plan *p)
{
	return p->wrong == WRONG_PEER_RESET || p->wrong == WRONG_PEER_ERR || p->wrong == WRONG_PEER_DESTROYED ||
	       p->wrong == WRONG_PEER_EXIT;
}

/* The timeout is long, because a busy machine must not cause an error, unless a silent peer is the case. */
static void go_to_rts(struct end *e)
{
	bool silent = peer_is_silent(e->p);
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTS,
	        .timeout = silent ? 12 : 19,
	        .retry_cnt = silent ? 2 : 7,
	        .rnr_retry = e->p->wrong == WRONG_RNR_0 ? 0 : 7,
	        .max_rd_atomic = reads_of(e, true),
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->p->type == RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	SAME(ibv_modify_qp(e->qp, &a, mask), 0);
}

/* --- rdma_cm --- */

static struct rdma_cm_event *next_cm(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct pollfd p = {.fd = ch->fd, .events = POLLIN};

	for (int i = 0; i < 100; i++) {
		struct rdma_cm_event *ev;

		CHECK(poll(&p, 1, LONG_MS) == 1);
		CHECK(!rdma_get_cm_event(ch, &ev));
		if (ev->event == type)
			return ev;
		/* the end of the connection before */
		CHECK(ev->event == RDMA_CM_EVENT_DISCONNECTED || ev->event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
		rdma_ack_cm_event(ev);
	}
	CHECK_FAILED("too many events");
}

static void await_cm(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	rdma_ack_cm_event(next_cm(ch, type));
}

uint16_t listen_here(struct device *d)
{
	CHECK(!rdma_listen(d->listener, 4));
	return ntohs(rdma_get_src_port(d->listener));
}

static void make_cm_qp(struct end *e)
{
	struct ibv_qp_init_attr init;

	make_init_attr(e, &init);
	CHECK(!rdma_create_qp(e->id, e->d->pd, &init));
	e->qp = e->id->qp;
	e->cap = init.cap;
}

static void allow_access(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .qp_access_flags = qp_access(e)};

	SAME(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
}

static struct rdma_conn_param cm_limits(const struct end *e)
{
	return (struct rdma_conn_param){.responder_resources = reads_of(e, false),
	                                .initiator_depth = reads_of(e, true),
	                                .retry_count = 7,
	                                .rnr_retry_count = 7};
}

static void connect_cm(struct end *e, const struct hello *it)
{
	struct sockaddr_in sin = address_of(e->d, it->port);
	struct rdma_conn_param param = cm_limits(e);

	CHECK(!rdma_create_id(e->d->channel, &e->id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&sin, LONG_MS));
	await_cm(e->d->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(e->id, LONG_MS));
	await_cm(e->d->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_cm_qp(e);
	CHECK(!rdma_connect(e->id, &param));
	await_cm(e->d->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void accept_cm(struct end *e, void (*fill)(void *), void *arg)
{
	struct rdma_conn_param param = cm_limits(e);
	struct rdma_cm_event *ev = next_cm(e->d->channel, RDMA_CM_EVENT_CONNECT_REQUEST);

	e->id = ev->id;
	make_cm_qp(e);
	fill(arg);
	CHECK(!rdma_accept(e->id, &param));
	rdma_ack_cm_event(ev);
	await_cm(e->d->channel, RDMA_CM_EVENT_ESTABLISHED);
}

/* --- both --- */

void end_connect(struct end *e, const struct hello *it, void (*fill)(void *), void *arg)
{
	if (needs_no_connection(e)) {
		if (fill)
			fill(arg);
		return;
	}
	if (!e->d->address) {
		if (fill)
			fill(arg);
		go_to_rtr(e, it);
		if (!e->asks || e->p->wrong != WRONG_IN_RTR)
			go_to_rts(e);
		return;
	}
	if (e->asks)
		connect_cm(e, it);
	else
		accept_cm(e, fill, arg);
	allow_access(e);
}

void end_to(struct end *e, enum ibv_qp_state state)
{
	SAME(ibv_modify_qp(e->qp, &(struct ibv_qp_attr){.qp_state = state}, IBV_QP_STATE), 0);
}

enum ibv_qp_state end_state(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	CHECK(!ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

void end_destroy(struct end *e)
{
	if (e->id) {
		rdma_disconnect(e->id); /* fails if the connection has ended */
		if (e->id->qp)
			rdma_destroy_qp(e->id);
		CHECK(!rdma_destroy_id(e->id));
	} else if (e->qp) {
		CHECK(!ibv_destroy_qp(e->qp));
	}
	CHECK(!ibv_destroy_cq(e->cq));
	if (e->ah)
		CHECK(!ibv_destroy_ah(e->ah));
	if (e->huge)
		CHECK(!ibv_dereg_mr(e->huge));
}
