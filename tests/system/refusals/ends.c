// ends.c - one end of a connection: its device, memory and queue pair, connected by a socket or by rdma_cm
// follows: ibv_modify_qp(3), rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "ends.h"

#include <arpa/inet.h>
#include <fcntl.h>
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
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		d->lid = port.lid;
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
	/* an iWARP connection is of one type, and goes from INIT to RTS; RDMAP has no flush and no atomic write */
	bool has_it = p->operation != OP_FLUSH && (p->operation != OP_STORE || p->wrong == WRONG_NOTHING);

	return !d->address || (p->type == RC && p->wrong != WRONG_IN_RTR && p->wrong != WRONG_PEER_RTR && has_it);
}

unsigned end_rights(const struct plan *p)
{
	return REMOTE_RIGHTS | (p->operation == OP_FLUSH ? FLUSH_RIGHT : 0);
}

unsigned end_right(const struct plan *p)
{
	return plan_is_atomic(p)          ? IBV_ACCESS_REMOTE_ATOMIC
	       : p->operation == OP_READ  ? IBV_ACCESS_REMOTE_READ
	       : p->operation == OP_FLUSH ? FLUSH_RIGHT
	                                  : IBV_ACCESS_REMOTE_WRITE;
}

static unsigned qp_access(const struct end *e)
{
	bool without = e->p->wrong == WRONG_QP_RIGHT || e->p->wrong == WRONG_EMPTY_RIGHT;

	return end_rights(e->p) & ~(!e->asks && without ? end_right(e->p) : 0);
}

static bool needs_no_connection(const struct end *e)
{
	return e->p->wrong == WRONG_IN_RESET || e->p->wrong == WRONG_IN_INIT;
}

/* --- shared receive queues, and those of XRC --- */

static void open_domains(struct device *d)
{
	struct ibv_xrcd_init_attr a = {
	        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};

	if (!d->xrcd)
		CHECK((d->xrcd = ibv_open_xrcd(d->ctx, &a)) && (d->other_xrcd = ibv_open_xrcd(d->ctx, &a)));
}

static struct ibv_srq *make_srq(const struct end *e)
{
	struct ibv_srq_init_attr a = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
	bool other = e->p->wrong == WRONG_SRQ_PD || e->p->wrong == WRONG_SRQ_BOTH_PD;
	struct ibv_srq *srq = ibv_create_srq(other ? e->d->other_pd : e->d->pd, &a);

	CHECK(srq);
	return srq;
}

static struct ibv_srq *make_xrc_srq(const struct end *e, struct ibv_xrcd *xrcd)
{
	struct ibv_srq_init_attr_ex a = {.attr = {.max_wr = DEPTH, .max_sge = 1},
	                                 .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
	                                              IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	                                 .srq_type = IBV_SRQT_XRC,
	                                 .pd = e->d->pd,
	                                 .xrcd = xrcd,
	                                 .cq = e->cq};
	struct ibv_srq *srq = ibv_create_srq_ex(e->d->ctx, &a);

	CHECK(srq);
	return srq;
}

static void make_srqs(struct end *e)
{
	bool xrc = e->p->type == XRC;

	if (e->asks || !plan_has_srq(e->p))
		return;
	if (xrc)
		open_domains(e->d);
	e->srq = xrc ? make_xrc_srq(e, e->d->xrcd) : make_srq(e);
	if (e->p->wrong == WRONG_SRQ_DOMAIN)
		e->other_srq = make_xrc_srq(e, e->d->other_xrcd);
	if (e->p->wrong == WRONG_SRQ_BASIC)
		e->other_srq = make_srq(e);
}

/* A queue that is not for XRC has no number: 0 */
uint32_t end_srq_number(struct end *e)
{
	uint32_t number = 0;

	if (e->p->type == XRC && e->srq)
		ibv_get_srq_num(e->other_srq ? e->other_srq : e->srq, &number);
	return number ^ (e->p->wrong == WRONG_SRQ_NUMBER ? 0xff : 0);
}

/* --- making queue pairs --- */

static enum ibv_qp_type type_of(const struct end *e)
{
	return e->p->type == RC   ? IBV_QPT_RC
	       : e->p->type == UC ? IBV_QPT_UC
	       : e->p->type == UD ? IBV_QPT_UD
	       : e->asks          ? IBV_QPT_XRC_SEND
	                          : IBV_QPT_XRC_RECV;
}

static void make_init_attr(const struct end *e, struct ibv_qp_init_attr *a)
{
	*a = (struct ibv_qp_init_attr){.send_cq = e->cq,
	                               .recv_cq = e->cq,
	                               .srq = e->srq,
	                               .qp_type = type_of(e),
	                               .cap = {.max_send_wr = DEPTH,
	                                       .max_recv_wr = DEPTH,
	                                       .max_send_sge = SGES,
	                                       .max_recv_sge = 1,
	                                       .max_inline_data = INLINE_BYTES}};
}

static void make_target(struct end *e)
{
	struct ibv_qp_init_attr_ex a = {
	        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = e->d->xrcd};

	CHECK((e->qp = ibv_create_qp_ex(e->d->ctx, &a)));
}

/* One that may flush. */
static struct ibv_qp *make_flusher(const struct end *e, const struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {.send_cq = a->send_cq,
	                                .recv_cq = a->recv_cq,
	                                .cap = a->cap,
	                                .qp_type = a->qp_type,
	                                .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                .pd = e->d->pd,
	                                .send_ops_flags = FLUSH_OPERATION};

	return ibv_create_qp_ex(e->d->ctx, &x);
}

static void make_qp(struct end *e)
{
	struct ibv_qp_init_attr init;

	if (type_of(e) == IBV_QPT_XRC_RECV) {
		make_target(e);
		return;
	}
	make_init_attr(e, &init);
	e->qp = e->p->operation == OP_FLUSH ? make_flusher(e, &init) : ibv_create_qp(e->d->pd, &init);
	CHECK(e->qp);
	e->cap = init.cap;
}

void end_make(struct end *e, struct device *d, const struct plan *p, bool asks)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

	*e = (struct end){.d = d, .p = p, .asks = asks};
	CHECK((e->cq = ibv_create_cq(d->ctx, asks && p->wrong == WRONG_CQ_FULL ? 1 : 4 * DEPTH, NULL, NULL, 0)));
	make_srqs(e);
	if (d->address && !needs_no_connection(e))
		return;
	make_qp(e);
	if (asks && p->wrong == WRONG_IN_RESET)
		return;
	a.qp_access_flags = qp_access(e);
	SAME(ibv_modify_qp(e->qp, &a,
	                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                           (p->type == UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     0);
}

struct ibv_ah_attr end_address(const struct device *d, const struct hello *it)
{
	if (d->lid)
		return (struct ibv_ah_attr){.dlid = it->lid, .port_num = 1};
	return (struct ibv_ah_attr){
	        .is_global = 1,
	        .port_num = 1,
	        .grh = {.dgid = it->gid, .sgid_index = (uint8_t)d->gid_index, .hop_limit = 64},
	};
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
	        .ah_attr = end_address(e->d, it),
	};
	int mask = IBV_QP_STATE;

	if (e->p->type != UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type_of(e) == IBV_QPT_RC || type_of(e) == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	SAME(ibv_modify_qp(e->qp, &a, mask), 0);
}

static bool peer_is_silent(const struct plan *p)
{
	return p->wrong == WRONG_PEER_RESET || p->wrong == WRONG_PEER_ERR || p->wrong == WRONG_PEER_DESTROYED ||
	       p->wrong == WRONG_PEER_EXIT || p->wrong == WRONG_SRQ_ERR;
}

/* The timeout is long, because a busy machine must not cause an error, unless a silent peer is the case. */
static void go_to_rts(struct end *e)
{
	bool silent = peer_is_silent(e->p);
	struct ibv_qp_attr a = {
	        .qp_state = IBV_QPS_RTS,
	        .timeout = silent ? 12 : 19,
	        .retry_cnt = silent ? 2 : 7,
	        .rnr_retry = plan_receive(e->p) == WRONG_RNR_0 ? 0 : 7,
	        .max_rd_atomic = reads_of(e, true),
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (type_of(e) == IBV_QPT_RC || type_of(e) == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if (type_of(e) == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
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
		if (e->p->wrong != (e->asks ? WRONG_IN_RTR : WRONG_PEER_RTR))
			go_to_rts(e);
		return;
	}
	if (e->asks)
		connect_cm(e, it);
	else
		accept_cm(e, fill, arg);
	allow_access(e);
}

/* Both sides of the connection are in this process, and have one event channel. */
static struct ibv_qp *other_qp_by_cm(struct end *e, struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct sockaddr_in sin = address_of(e->d, 0);
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .qp_access_flags = REMOTE_RIGHTS};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_conn_param param = {0};
	struct rdma_cm_id **id = e->other_id;

	CHECK(ch && !rdma_create_id(ch, &id[1], NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(id[1], (struct sockaddr *)&sin) && !rdma_listen(id[1], 1));
	sin.sin_port = rdma_get_src_port(id[1]);
	CHECK(!rdma_create_id(ch, &id[0], NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id[0], NULL, (struct sockaddr *)&sin, LONG_MS));
	await_cm(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(id[0], LONG_MS));
	await_cm(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_create_qp(id[0], pd, init) && !rdma_connect(id[0], &param));
	struct rdma_cm_event *ev = next_cm(ch, RDMA_CM_EVENT_CONNECT_REQUEST);

	id[2] = ev->id;
	CHECK(!rdma_create_qp(id[2], pd, init) && !rdma_accept(id[2], &param));
	rdma_ack_cm_event(ev);
	await_cm(ch, RDMA_CM_EVENT_ESTABLISHED);
	await_cm(ch, RDMA_CM_EVENT_ESTABLISHED);
	SAME(ibv_modify_qp(id[0]->qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
	e->other_channel = ch;
	return id[0]->qp;
}

static void destroy_other_qp(struct end *e)
{
	if (!e->other_channel) {
		CHECK(!ibv_destroy_qp(e->other_qp));
		return;
	}
	for (int i = 0; i < 3; i++) {
		rdma_disconnect(e->other_id[i]); /* fails where there is no connection */
		if (e->other_id[i]->qp)
			rdma_destroy_qp(e->other_id[i]);
		CHECK(!rdma_destroy_id(e->other_id[i]));
	}
	rdma_destroy_event_channel(e->other_channel);
}

struct ibv_qp *end_other_qp(struct end *e)
{
	struct ibv_pd *pd = e->p->wrong == WRONG_WINDOW_PD ? e->d->other_pd : e->d->pd;
	struct end at = {.d = e->d, .p = e->p, .cq = e->cq};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE_RIGHTS};
	struct ibv_qp_init_attr init;

	make_init_attr(&at, &init);
	if (e->d->address)
		return e->other_qp = other_qp_by_cm(e, pd, &init);
	CHECK((at.qp = ibv_create_qp(pd, &init)));
	SAME(ibv_modify_qp(at.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
	go_to_rtr(&at, &(struct hello){.gid = e->d->gid, .lid = e->d->lid, .qpn = at.qp->qp_num});
	go_to_rts(&at);
	e->other_qp = at.qp;
	return at.qp;
}

void end_to(struct end *e, enum ibv_qp_state state)
{
	bool notify = state == IBV_QPS_SQD && e->p->wrong == WRONG_SQD_EVENT;
	struct ibv_qp_attr a = {.qp_state = state, .en_sqd_async_notify = 1};

	SAME(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)), 0);
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
	if (e->other_qp)
		destroy_other_qp(e);
	if (e->srq)
		CHECK(!ibv_destroy_srq(e->srq));
	if (e->other_srq)
		CHECK(!ibv_destroy_srq(e->other_srq));
	CHECK(!ibv_destroy_cq(e->cq));
	if (e->ah)
		CHECK(!ibv_destroy_ah(e->ah));
	if (e->huge)
		CHECK(!ibv_dereg_mr(e->huge));
}
