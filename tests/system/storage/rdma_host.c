// rdma_host.c - an NVMe host on verbs
// follows: NVMe over Fabrics 1.1, 7.3; rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "rdma_host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#define WAIT_MS 40000

struct hello hello_for(uint16_t qid)
{
	return (struct hello){.h = {.qid = qid, .hrqsize = qid ? 128 : 32, .hsqsize = qid ? 127 : 31},
	                      .len = NT_RDMA_HELLO_LEN,
	                      .responder_resources = 4};
}

static enum rdma_cm_event_type next_event(struct host *h, uint16_t *why)
{
	struct pollfd p = {.fd = h->channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	CHECK(poll(&p, 1, WAIT_MS) == 1);
	SAME(rdma_get_cm_event(h->channel, &e), 0);
	enum rdma_cm_event_type what = e->event;

	if (why && what == RDMA_CM_EVENT_REJECTED)
		*why = e->param.conn.private_data_len >= 4 ? nv_get16((const uint8_t *)e->param.conn.private_data + 2)
		                                           : 0;
	if (what == RDMA_CM_EVENT_DISCONNECTED)
		h->ended = true;
	rdma_ack_cm_event(e);
	return what;
}

static uint8_t *room(struct host *h, size_t size, int access, struct ibv_mr **mr)
{
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	*mr = ibv_reg_mr(h->id->pd, at, size, access);
	CHECK(*mr);
	return at;
}

static void listen_for(struct host *h, uint32_t i)
{
	struct ibv_sge s = {
	        .addr = (uintptr_t)h->answers + i * NV_CQE_LEN, .length = NV_CQE_LEN, .lkey = h->answers_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &s, .num_sge = 1}, *bad;

	SAME(ibv_post_recv(h->id->qp, &wr, &bad), 0);
}

static void make_pair(struct host *h)
{
	struct ibv_qp_init_attr q = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = HOST_SENDS, .max_recv_wr = HOST_DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};

	h->cq = ibv_create_cq(h->id->verbs, 3 * HOST_DEPTH, NULL, NULL, 0);
	CHECK(h->cq);
	q.send_cq = q.recv_cq = h->cq;
	SAME(rdma_create_qp(h->id, NULL, &q), 0);
	h->capsules = room(h, HOST_SENDS * HOST_CAPSULE, 0, &h->capsules_mr);
	h->answers = room(h, HOST_DEPTH * NV_CQE_LEN, IBV_ACCESS_LOCAL_WRITE, &h->answers_mr);
	h->data = room(h, HOST_DATA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	               &h->data_mr);
	for (uint32_t i = 0; i < HOST_DEPTH; i++)
		listen_for(h, i);
}

int host_dial(const char *address, uint16_t port, const struct hello *hello, struct host **out)
{
	struct host *h = calloc(1, sizeof(*h));
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *list;
	char service[8];
	uint8_t said[NT_RDMA_HELLO_LEN];
	uint16_t why = 0;

	*out = NULL;
	snprintf(service, sizeof(service), "%u", port);
	SAME(getaddrinfo(address, service, &hints, &list), 0);
	CHECK(h && (h->channel = rdma_create_event_channel()));
	SAME(rdma_create_id(h->channel, &h->id, NULL, RDMA_PS_TCP), 0);
	SAME(rdma_resolve_addr(h->id, NULL, list->ai_addr, WAIT_MS) ? errno : 0, 0);
	freeaddrinfo(list);
	SAME(next_event(h, NULL), RDMA_CM_EVENT_ADDR_RESOLVED);
	SAME(rdma_resolve_route(h->id, WAIT_MS), 0);
	SAME(next_event(h, NULL), RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_pair(h);
	nt_rdma_hello_encode(&hello->h, said);
	struct rdma_conn_param param = {.private_data = hello->len ? said : NULL,
	                                .private_data_len = (uint8_t)hello->len,
	                                .responder_resources = hello->responder_resources,
	                                .retry_count = 7,
	                                .rnr_retry_count = 7};

	SAME(rdma_connect(h->id, &param), 0);
	enum rdma_cm_event_type what = next_event(h, &why);

	if (what == RDMA_CM_EVENT_ESTABLISHED) {
		*out = h;
		return 0;
	}
	host_free(h);
	return what == RDMA_CM_EVENT_REJECTED ? why : -1;
}

void host_hang_up(struct host *h)
{
	rdma_disconnect(h->id);
	host_free(h);
}

void host_free(struct host *h)
{
	rdma_destroy_qp(h->id);
	ibv_destroy_cq(h->cq);
	ibv_dereg_mr(h->capsules_mr);
	ibv_dereg_mr(h->answers_mr);
	ibv_dereg_mr(h->data_mr);
	munmap(h->capsules, HOST_SENDS * HOST_CAPSULE);
	munmap(h->answers, HOST_DEPTH * NV_CQE_LEN);
	munmap(h->data, HOST_DATA);
	rdma_destroy_id(h->id);
	rdma_destroy_event_channel(h->channel);
	free(h);
}

struct nv_sgl host_keyed(const struct host *h, uint32_t at, uint32_t length, bool invalidate)
{
	return (struct nv_sgl){.type = NV_SGL_KEYED,
	                       .subtype = invalidate ? NV_SGL_INVALIDATE : NV_SGL_ADDRESS,
	                       .length = length,
	                       .key = h->data_mr->rkey,
	                       .address = (uintptr_t)h->data + at};
}

struct nv_sgl host_inline(uint32_t length)
{
	return (struct nv_sgl){.type = NV_SGL_DATA, .subtype = NV_SGL_OFFSET, .length = length};
}

void host_send_raw(struct host *h, const uint8_t sqe[NV_SQE_LEN], uint32_t len, const void *data)
{
	uint8_t *at = h->capsules + (size_t)(h->next++ % HOST_SENDS) * HOST_CAPSULE;
	struct ibv_sge s = {.addr = (uintptr_t)at, .length = len, .lkey = h->capsules_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = ~0ull,
	                         .sg_list = &s,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED},
	                   *bad;

	CHECK(len <= HOST_CAPSULE);
	memcpy(at, sqe, len < NV_SQE_LEN ? len : NV_SQE_LEN);
	if (len > NV_SQE_LEN && data)
		memcpy(at + NV_SQE_LEN, data, len - NV_SQE_LEN);
	SAME(ibv_post_send(h->id->qp, &wr, &bad), 0);
}

uint16_t host_post(struct host *h, struct nv_sqe c, uint32_t inline_len, const void *data)
{
	uint8_t sqe[NV_SQE_LEN];

	c.cid = h->next_cid++;
	nv_sqe_encode(&c, sqe);
	host_send_raw(h, sqe, NV_SQE_LEN + inline_len, data);
	return c.cid;
}

static bool over(struct host *h)
{
	struct pollfd p = {.fd = h->channel->fd, .events = POLLIN};

	while (!h->ended && poll(&p, 1, 0) == 1)
		next_event(h, NULL);
	return h->ended;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool host_next(struct host *h, struct nv_cqe *out)
{
	struct ibv_wc wc;
	uint64_t until = now_ms() + WAIT_MS;

	for (;;) {
		int n = ibv_poll_cq(h->cq, 1, &wc);

		CHECK(n >= 0);
		if (!n) {
			if (over(h))
				return false;
			CHECK(now_ms() < until);
			usleep(100);
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS) {
			h->ended = true;
			return false;
		}
		if (wc.wr_id == ~0ull)
			continue;
		SAME(wc.byte_len, NV_CQE_LEN);
		h->invalidated += !!(wc.wc_flags & IBV_WC_WITH_INV);
		*out = nv_cqe_decode(h->answers + wc.wr_id * NV_CQE_LEN);
		listen_for(h, (uint32_t)wc.wr_id);
		return true;
	}
}

struct nv_cqe host_do(struct host *h, struct nv_sqe c, uint32_t inline_len, const void *data)
{
	uint16_t cid = host_post(h, c, inline_len, data);
	struct nv_cqe a;

	CHECK(host_next(h, &a));
	SAME(a.cid, cid);
	return a;
}

bool host_ends(struct host *h)
{
	struct nv_cqe a;

	while (host_next(h, &a))
		;
	return h->ended;
}

/* ---- controllers ---- */

static void connect_queue(struct host *h, const char *subnqn, uint16_t qid, uint16_t cntlid, uint16_t entries)
{
	struct nv_sqe c = {.opcode = NV_FABRICS,
	                   .psdt = NV_PSDT_SGL,
	                   .fctype = NV_FCT_CONNECT,
	                   .cdw = {(uint32_t)qid << 16, entries - 1u}};

	memset(h->data, 0, NV_CONNECT_DATA_LEN);
	h->data[NV_CONNECT_AT_HOSTID] = 7;
	nv_put16(h->data + NV_CONNECT_AT_CNTLID, cntlid);
	strcpy((char *)h->data + NV_CONNECT_AT_SUBNQN, subnqn);
	strcpy((char *)h->data + NV_CONNECT_AT_HOSTNQN, HOSTNQN);
	c.sgl = host_keyed(h, 0, NV_CONNECT_DATA_LEN, false);
	struct nv_cqe a = host_do(h, c, 0, NULL);

	SAME(a.status, 0);
	h->cntlid = (uint16_t)a.result;
}

struct host *host_admin(const char *address, uint16_t port, const char *subnqn)
{
	struct hello hello = hello_for(0);
	struct host *h;
	struct nv_sqe c = {.opcode = NV_FABRICS,
	                   .psdt = NV_PSDT_SGL,
	                   .fctype = NV_FCT_PROPERTY_SET,
	                   .cdw = {0, NV_PROP_CC, 0x460001}};

	SAME(host_dial(address, port, &hello, &h), 0);
	connect_queue(h, subnqn, 0, NV_CNTLID_DYNAMIC, 32);
	SAME(host_do(h, c, 0, NULL).status, 0);
	return h;
}

struct host *host_io(struct host *admin, const char *address, uint16_t port, uint16_t qid)
{
	struct hello hello = hello_for(qid);
	struct host *h;

	SAME(host_dial(address, port, &hello, &h), 0);
	connect_queue(h, SUBNQN, qid, admin->cntlid, 128);
	return h;
}

struct nv_sqe io_command(uint8_t opcode, uint32_t nsid, uint64_t block, uint32_t blocks, struct nv_sgl sgl)
{
	return (struct nv_sqe){.opcode = opcode,
	                       .psdt = NV_PSDT_SGL,
	                       .nsid = nsid,
	                       .sgl = sgl,
	                       .cdw = {(uint32_t)block, (uint32_t)(block >> 32), blocks - 1}};
}
