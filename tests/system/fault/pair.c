// pair.c - two connected queue pairs of one process, on any path
// follows: ibv_create_qp(3), rdma_cm(7), docs/control.md
// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "matrix.h"

enum { QKEY = 0x1111, GRH_BYTES = 40 };

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx);
	ibv_free_device_list(list);
	return ctx;
}

static struct ibv_cq *make_cq(struct ibv_context *ctx, bool extended)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS};

	if (!extended)
		return ibv_create_cq(ctx, 64, NULL, NULL, 0);
	struct ibv_cq_ex *ex = ibv_create_cq_ex(ctx, &attr);

	return ex ? ibv_cq_ex_to_cq(ex) : NULL;
}

static void make_objects(struct pair *p, struct ibv_context *ctx)
{
	p->ctx = ctx;
	CHECK((p->pd = ibv_alloc_pd(ctx)));
	for (int i = 0; i < 2; i++)
		CHECK((p->cq[i] = make_cq(ctx, p->extended)));
	CHECK((p->mr = ibv_reg_mr(p->pd, p, sizeof(*p), IBV_ACCESS_LOCAL_WRITE)));
}

static struct ibv_qp_init_attr init_of(struct pair *p, int end, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
	        .send_cq = p->cq[end],
	        .recv_cq = p->cq[end],
	        .qp_type = type,
	        .sq_sig_all = 1,
	        .cap = {.max_send_wr = SLOTS, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1}};
}

/* --- RoCE devices --- */

static struct ibv_ah_attr own_address(struct pair *p)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}};

	CHECK(!ibv_query_gid(p->ctx, 1, 1, &a.grh.dgid));
	return a;
}

static void to_init(struct ibv_qp *qp, enum ibv_qp_type type)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	int last = type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last));
}

static void to_rts(struct pair *p, int end, enum ibv_qp_type type)
{
	bool rc = type == IBV_QPT_RC, ud = type == IBV_QPT_UD;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = IBV_MTU_1024,
	                        .dest_qp_num = p->qp[!end]->qp_num,
	                        .max_dest_rd_atomic = 1,
	                        .min_rnr_timer = 1,
	                        .ah_attr = own_address(p)};
	int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	mask |= rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	CHECK(!ibv_modify_qp(p->qp[end], &a, IBV_QP_STATE | (ud ? 0 : mask)));
	a = (struct ibv_qp_attr){
	        .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	mask = rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
	CHECK(!ibv_modify_qp(p->qp[end], &a, IBV_QP_STATE | IBV_QP_SQ_PSN | mask));
}

static void open_roce(struct pair *p, enum ibv_qp_type type)
{
	make_objects(p, open_named("roce_lo"));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = init_of(p, i, type);

		CHECK((p->qp[i] = ibv_create_qp(p->pd, &init)));
		to_init(p->qp[i], type);
	}
	for (int i = 0; i < 2; i++)
		to_rts(p, i, type);
	if (type == IBV_QPT_UD) {
		struct ibv_ah_attr there = own_address(p);

		CHECK((p->ah = ibv_create_ah(p->pd, &there)));
	}
}

/* --- iWARP: one thread is both ends --- */

static struct rdma_cm_id *await_cm(struct pair *p, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	CHECK(!rdma_get_cm_event(p->channel, &e));
	if (e->event != type)
		CHECK_FAILED("%s (%d), not %s", rdma_event_str(e->event), e->status, rdma_event_str(type));
	struct rdma_cm_id *id = e->id;

	rdma_ack_cm_event(e);
	return id;
}

static void make_end(struct pair *p, int end)
{
	struct ibv_qp_init_attr init = init_of(p, end, IBV_QPT_RC);

	CHECK(!rdma_create_qp(p->id[end], p->pd, &init));
	p->qp[end] = p->id[end]->qp;
}

static void open_iwarp(struct pair *p)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};

	CHECK((p->channel = rdma_create_event_channel()));
	CHECK(!rdma_create_id(p->channel, &p->listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(p->listener, (struct sockaddr *)&at) && !rdma_listen(p->listener, 1));
	at.sin_port = rdma_get_src_port(p->listener);
	CHECK(!rdma_create_id(p->channel, &p->id[0], NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(p->id[0], NULL, (struct sockaddr *)&at, LONG_MS));
	await_cm(p, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_resolve_route(p->id[0], LONG_MS));
	await_cm(p, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_objects(p, p->id[0]->verbs);
	make_end(p, 0);
	CHECK(!rdma_connect(p->id[0], &param));
	p->id[1] = await_cm(p, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_end(p, 1);
	CHECK(!rdma_accept(p->id[1], &param));
	await_cm(p, RDMA_CM_EVENT_ESTABLISHED);
	await_cm(p, RDMA_CM_EVENT_ESTABLISHED);
}

/* --- for the cells --- */

void pair_open(struct pair *p, enum way way, enum ibv_qp_type type, bool extended)
{
	*p = (struct pair){.extended = extended};
	if (way == IWARP) {
		setenv("VERBENA_DEVICES", "iwarp:lo", 1);
		setenv("VERBENA_MPA", "crc", 1);
		open_iwarp(p);
	} else {
		open_roce(p, type);
	}
	for (int i = 0; i < SLOTS; i++)
		memset(p->out[i], i + 1, MESSAGE_BYTES);
}

void pair_close(struct pair *p)
{
	if (p->ah)
		CHECK(!ibv_destroy_ah(p->ah));
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(p->qp[i]));
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_cq(p->cq[i]));
	CHECK(!ibv_dereg_mr(p->mr) && !ibv_dealloc_pd(p->pd));
	if (!p->channel) {
		CHECK(!ibv_close_device(p->ctx));
		return;
	}
	for (int i = 0; i < 2; i++) {
		p->id[i]->qp = NULL; /* destroyed above */
		CHECK(!rdma_destroy_id(p->id[i]));
	}
	CHECK(!rdma_destroy_id(p->listener));
	rdma_destroy_event_channel(p->channel);
}

struct ibv_context *pair_context(const struct pair *p)
{
	return p->ctx;
}

enum ibv_qp_state pair_state(struct pair *p, int end)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;

	CHECK(!ibv_query_qp(p->qp[end], &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

int pair_send(struct pair *p, int i)
{
	struct ibv_sge sge = {(uintptr_t)p->out[i], MESSAGE_BYTES, p->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (p->ah) {
		wr.wr.ud.ah = p->ah;
		wr.wr.ud.remote_qpn = p->qp[1]->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	return ibv_post_send(p->qp[0], &wr, &bad);
}

int pair_receive(struct pair *p, int i)
{
	struct ibv_sge sge = {(uintptr_t)p->in[i], SLOT_BYTES, p->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(p->qp[1], &wr, &bad);
}

static bool poll_extended(struct ibv_cq_ex *cq, struct done *d)
{
	struct ibv_poll_cq_attr attr = {0};

	if (ibv_start_poll(cq, &attr))
		return false;
	*d = (struct done){(int)cq->wr_id, cq->status};
	ibv_end_poll(cq);
	return true;
}

bool pair_poll(struct pair *p, int end, struct done *d)
{
	struct ibv_wc wc;

	if (p->extended)
		return poll_extended((struct ibv_cq_ex *)p->cq[end], d);
	int n = ibv_poll_cq(p->cq[end], 1, &wc);

	CHECK(n >= 0);
	*d = (struct done){(int)wc.wr_id, wc.status};
	return n > 0;
}

struct done pair_await(struct pair *p, int end)
{
	struct done d;

	for (int ms = 0; !pair_poll(p, end, &d); ms++) {
		if (ms == LONG_MS)
			CHECK_FAILED("no completion at end %d", end);
		usleep(1000);
	}
	return d;
}

bool pair_is_whole(struct pair *p, int receive)
{
	const unsigned char *at = p->in[receive] + (p->ah ? GRH_BYTES : 0);

	for (int i = 1; i < MESSAGE_BYTES; i++)
		if (at[i] != at[0])
			return false;
	return at[0] >= 1 && at[0] <= SLOTS;
}

static int dial_own_socket(void)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char dir[80], start[16];
	DIR *d;

	snprintf(dir, sizeof(dir), "%.60s/control-%u", getenv("VERBENA_RUNTIME"), (unsigned)geteuid());
	snprintf(start, sizeof(start), "%d-", getpid());
	CHECK(sock >= 0 && (d = opendir(dir)));
	for (struct dirent *e; (e = readdir(d));)
		if (!strncmp(e->d_name, start, strlen(start)) && !strchr(e->d_name, '.'))
			snprintf(sun.sun_path, sizeof(sun.sun_path), "/proc/self/fd/%d/%.60s", dirfd(d), e->d_name);
	CHECK(!connect(sock, (struct sockaddr *)&sun, sizeof(sun)));
	closedir(d);
	return sock;
}

void pair_ask(const char *request, char *text, size_t size)
{
	int sock = dial_own_socket();
	size_t len = 0;
	ssize_t n;

	CHECK(write(sock, request, strlen(request)) == (ssize_t)strlen(request));
	while ((n = read(sock, text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(sock);
	text[len] = '\0';
}

struct ibv_context *pair_device(const char *name)
{
	return open_named(name);
}

long pair_hits(void)
{
	static const char member[] = "\"hits\": ";
	char text[4096];

	pair_ask("fault-list\n", text, sizeof(text));
	const char *at = strstr(text, member);

	if (!at)
		CHECK_FAILED("no rule: %s", text);
	return strtol(at + strlen(member), NULL, 10);
}
