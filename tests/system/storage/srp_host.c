// srp_host.c - a SRP initiator on rdma_cm, for tests
// follows: SRP (ANSI INCITS 365, T10/1415-D); rdma_cm(7)
// SPDX-License-Identifier: MIT
#include "srp_host.h"

#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "../../support/check.h"

#define MESSAGE HOST_DATA
#define TABLE (MESSAGE + HOST_IU)
#define RECEIVES (TABLE + 65536u)
#define MEMORY (RECEIVES + HOST_RECEIVES * HOST_IU)

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ll + t.tv_nsec / 1000000;
}

static bool receive_into(struct host *h, uint64_t i)
{
	struct ibv_sge s = {(uintptr_t)(h->memory + RECEIVES + i * HOST_IU), HOST_IU, h->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &s, .num_sge = 1}, *bad;

	return !ibv_post_recv(h->id->qp, &wr, &bad);
}

static void make_queues(struct host *h)
{
	struct ibv_qp_init_attr q = {
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = 128, .max_recv_wr = HOST_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};

	h->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(h->memory != MAP_FAILED);
	h->data = h->memory;
	CHECK((h->pd = ibv_alloc_pd(h->id->verbs)));
	CHECK((h->mr = ibv_reg_mr(h->pd, h->memory, MEMORY,
	                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)));
	CHECK((h->cq = ibv_create_cq(h->id->verbs, 256, NULL, NULL, 0)));
	q.send_cq = q.recv_cq = h->cq;
	CHECK(!rdma_create_qp(h->id, h->pd, &q));
	for (uint64_t i = 0; i < HOST_RECEIVES; i++)
		CHECK(receive_into(h, i));
}

void host_close(struct host *h)
{
	if (!h)
		return;
	rdma_disconnect(h->id);
	rdma_destroy_qp(h->id);
	ibv_destroy_cq(h->cq);
	ibv_dereg_mr(h->mr);
	ibv_dealloc_pd(h->pd);
	rdma_destroy_id(h->id);
	munmap(h->memory, MEMORY);
	free(h);
}

/* The event that ended rdma_connect says what the target answered. */
static uint32_t reason_of(const struct host *h)
{
	const struct rdma_cm_event *e = h->id->event;
	struct sp_login_rej rej;

	return e && sp_login_rej_decode(e->param.conn.private_data, e->param.conn.private_data_len, &rej) ? rej.reason
	                                                                                                  : 0;
}

struct host *host_login_as(const char *address, const char *service, const struct sp_login *l, uint32_t *reason)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *a;
	struct host *h = calloc(1, sizeof(*h));
	uint8_t said[SP_LOGIN_LEN];
	struct rdma_conn_param p = {.private_data = said,
	                            .private_data_len = sizeof(said),
	                            .responder_resources = 4,
	                            .initiator_depth = 4,
	                            .retry_count = 7,
	                            .rnr_retry_count = 7};

	CHECK(h);
	sp_login_encode(l, said);
	CHECK(!rdma_getaddrinfo(address, service, &hints, &a));
	CHECK(!rdma_create_id(NULL, &h->id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(h->id, NULL, a->ai_dst_addr, 5000));
	rdma_freeaddrinfo(a);
	CHECK(!rdma_resolve_route(h->id, 5000));
	make_queues(h);
	if (rdma_connect(h->id, &p)) {
		*reason = reason_of(h);
		host_close(h);
		return NULL;
	}
	const struct rdma_cm_event *e = h->id->event;

	CHECK(e && sp_login_rsp_decode(e->param.conn.private_data, e->param.conn.private_data_len, &h->login));
	h->credits = h->login.credits;
	return h;
}

struct host *host_login(const char *address, const char *service, const uint8_t target[SP_PORT_ID], uint8_t port,
                        uint8_t flags, uint32_t *reason)
{
	struct sp_login l = {.opcode = SP_LOGIN_REQ,
	                     .formats = SP_FORMAT_DIRECT | SP_FORMAT_INDIRECT,
	                     .flags = (uint8_t)(flags | SP_IMMEDIATE),
	                     .immediate = HOST_IMMEDIATE,
	                     .iu_len = HOST_IU,
	                     .initiator = {[15] = port}};

	memcpy(l.target, target, SP_PORT_ID);
	return host_login_as(address, service, &l, reason);
}

/* True if an event of rdma_cm waits, or has come: the target has disconnected. */
static bool has_event(const struct host *h)
{
	struct pollfd p = {.fd = h->id->channel->fd, .events = POLLIN};

	return h->left || poll(&p, 1, 1) > 0;
}

static void take_event(struct host *h)
{
	struct rdma_cm_event *e;

	if (!h->left && !rdma_get_cm_event(h->id->channel, &e))
		rdma_ack_cm_event(e);
	h->left = true;
}

enum came { CAME, LATE, LEFT };

/* Waits for the next completion. What came before the event is polled before the event is taken. */
static enum came wait_for(struct host *h, struct ibv_wc *wc, int ms)
{
	int64_t end = now_ms() + ms;
	bool event = false;
	int n, idle = 0;

	while (!(n = ibv_poll_cq(h->cq, 1, wc))) {
		if (event) {
			take_event(h);
			return LEFT;
		}
		if (++idle > 1000)
			event = has_event(h);
		if (now_ms() > end)
			return LATE;
	}
	CHECK(n == 1);
	return CAME;
}

#define SENT UINT64_MAX

bool host_send(struct host *h, const void *message, size_t len)
{
	const uint8_t *at = message;
	bool own = at >= h->memory && at < h->memory + MEMORY; /* sent from where it is, so it must stay there */
	struct ibv_sge s = {(uintptr_t)(own ? at : h->memory + MESSAGE), (uint32_t)len, h->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = SENT, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;

	if (!own)
		memcpy(h->memory + MESSAGE, message, len);
	return !ibv_post_send(h->id->qp, &wr, &bad);
}

const uint8_t *host_receive(struct host *h, size_t *len, int ms, bool *late)
{
	struct ibv_wc wc;

	*late = false;
	do {
		enum came c = wait_for(h, &wc, ms);

		*late = c == LATE;
		if (c != CAME || wc.status)
			return NULL;
	} while (wc.wr_id == SENT);
	*len = wc.byte_len;
	memmove(h->memory + TABLE, h->memory + RECEIVES + wc.wr_id * HOST_IU, *len < 256 ? *len : 256);
	CHECK(receive_into(h, wc.wr_id));
	return h->memory + TABLE;
}

bool host_response(struct host *h, struct sp_rsp *r)
{
	size_t len;
	bool late;
	const uint8_t *m = host_receive(h, &len, LONG_MS, &late);

	CHECK(!late);
	if (!m)
		return false;
	CHECK(sp_rsp_decode(m, len, r));
	h->credits += r->credits;
	return true;
}

static size_t put_desc(struct host *h, uint8_t *at, uint64_t offset, uint32_t len)
{
	struct sp_desc d = {(uintptr_t)h->memory + offset, h->mr->rkey, len};

	sp_desc_encode(&d, at);
	return SP_DESC_LEN;
}

/* Parts of equal size, the last with the rest, one behind the other. */
static void put_table(struct host *h, uint8_t *table, uint32_t len, uint32_t parts)
{
	uint32_t each = len / parts;

	for (uint32_t i = 0; i < parts; i++)
		put_desc(h, table + i * SP_DESC_LEN, i * (uint64_t)each,
		         i + 1 < parts ? each : len - each * (parts - 1));
}

size_t host_build(struct host *h, uint8_t *m, uint8_t lun, const uint8_t *cdb, size_t cdb_len, bool out, uint32_t len,
                  struct how how)
{
	uint8_t *at = m + SP_CMD_LEN;

	memset(m, 0, SP_CMD_LEN + 64);
	m[0] = SP_CMD;
	m[5] = (uint8_t)(out ? how.format << 4 : how.format);
	sc_put64(m + 8, ++h->tag);
	m[21] = lun;
	memcpy(m + 32, cdb, cdb_len);
	switch (how.format) {
	case SP_DESC_NONE:
		break;
	case SP_DESC_DIRECT:
		at += put_desc(h, at, 0, len);
		break;
	case SP_DESC_INDIRECT:
		m[out ? 6 : 7] = (uint8_t)how.in_message;
		put_table(h, h->memory + TABLE, len, how.parts);
		at += put_desc(h, at, TABLE, how.parts * SP_DESC_LEN);
		sc_put32(at, len);
		memcpy(at + 4, h->memory + TABLE, how.in_message * SP_DESC_LEN);
		at += 4 + how.in_message * SP_DESC_LEN;
		break;
	case SP_DESC_IMMEDIATE:
		sc_put32(at, len);
		memcpy(m + HOST_IMMEDIATE, h->data, len);
		at = m + HOST_IMMEDIATE + len;
		break;
	}
	return (size_t)(at - m);
}

bool host_command(struct host *h, uint8_t lun, const uint8_t *cdb, size_t cdb_len, bool out, uint32_t len,
                  struct how how, struct sp_rsp *r)
{
	uint8_t *m = h->memory + MESSAGE;
	size_t n = host_build(h, m, lun, cdb, cdb_len, out, len, how);

	CHECK(h->credits);
	h->credits--;
	if (!host_send(h, m, n) || !host_response(h, r))
		return false;
	SAME(r->tag, h->tag);
	return true;
}
