// pingpong.c - two programs that send each other messages and check every byte
// follows: rdma_cm(7), ibv_post_send(3)
// SPDX-License-Identifier: MIT
#include "tools/doctor/pingpong.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/verbs.h"

#define EVENT_MS 3000
#define MESSAGE_US 2000000
#define SMALL 64u
#define LARGE 65536u
#define WARM 50
#define ROUNDS 500
#define LARGE_ROUNDS 8

/* One end. The buffer's first half is sent, the second half received. */
struct end {
	struct doc_verbs v;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf;
	unsigned sent, received; /* completions */
	uint32_t last_len;
};

static bool complain(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, strerror(err));
	return false;
}

static uint8_t pattern_byte(unsigned seq, unsigned i, bool reply)
{
	return (uint8_t)(seq * 7 + i * 13 + (i >> 8) + (reply ? 101 : 0));
}

/* --- connection --- */

static bool open_end(struct end *e, const struct doc_pingpong *p)
{
	setenv("VERBENA_WIRE", p->wire, 1);
	setenv("VERBENA_DEVICES", p->devices, 1);
	e->buf = calloc(2, LARGE);
	if (!e->buf || !doc_verbs_load(&e->v))
		return false;
	e->ch = e->v.rdma_create_event_channel();
	if (!e->ch || e->v.rdma_create_id(e->ch, &e->id, NULL, RDMA_PS_TCP))
		return complain("rdma_create_id", errno);
	return true;
}

static bool await_event(struct end *e, enum rdma_cm_event_type want, struct rdma_cm_id **id)
{
	struct doc_event event;
	int err = doc_verbs_event(&e->v, e->ch, EVENT_MS, &event);

	if (err)
		return complain("no event of connection management", err);
	if (event.type != want) {
		fprintf(stderr, "event %d of connection management with status %d\n", (int)event.type, event.status);
		return false;
	}
	if (id)
		*id = event.id;
	return true;
}

static bool make_queues(struct end *e)
{
	int err = doc_verbs_queue_pair(&e->v, e->id, &e->pd, &e->cq);

	if (err)
		return complain("queue pair", err);
	e->mr = (e->v.ibv_reg_mr)(e->pd, e->buf, (size_t)2 * LARGE, IBV_ACCESS_LOCAL_WRITE);
	return e->mr || complain("ibv_reg_mr", errno);
}

/* --- messages --- */

static bool post_receive(struct end *e)
{
	struct ibv_sge sge = {(uintptr_t)e->buf + LARGE, LARGE, e->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	int err = ibv_post_recv(e->id->qp, &wr, &bad);

	return !err || complain("ibv_post_recv", err);
}

static bool post_message(struct end *e, unsigned seq, unsigned len, bool reply)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, len, e->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
	                   *bad;

	for (unsigned i = 0; i < len; i++)
		e->buf[i] = pattern_byte(seq, i, reply);
	int err = ibv_post_send(e->id->qp, &wr, &bad);

	return !err || complain("ibv_post_send", err);
}

/* Polls until there are so many completions of each kind. */
static bool await_completions(struct end *e, unsigned sent, unsigned received)
{
	int64_t until = doc_now_us() + MESSAGE_US;
	struct ibv_wc wc;

	for (unsigned i = 1; e->sent < sent || e->received < received; i++) {
		int n = ibv_poll_cq(e->cq, 1, &wc);

		if (n < 0)
			return complain("ibv_poll_cq", errno);
		if (n && wc.status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion with status %d\n", (int)wc.status);
			return false;
		}
		if (n && wc.opcode == IBV_WC_RECV) {
			e->received++;
			e->last_len = wc.byte_len;
		} else if (n) {
			e->sent++;
		} else if (!(i % 1024) && doc_now_us() > until) {
			fputs("a message did not arrive within two seconds\n", stderr);
			return false;
		}
	}
	return true;
}

static bool check_message(const struct end *e, unsigned seq, unsigned len, bool reply)
{
	if (e->last_len != len) {
		fprintf(stderr, "message %u has %u bytes instead of %u\n", seq, e->last_len, len);
		return false;
	}
	for (unsigned i = 0; i < len; i++)
		if (e->buf[LARGE + i] != pattern_byte(seq, i, reply)) {
			fprintf(stderr, "byte %u of message %u is wrong\n", i, seq);
			return false;
		}
	return true;
}

static unsigned length_of(unsigned seq)
{
	return seq < WARM + ROUNDS ? SMALL : LARGE;
}

static bool serve_messages(struct end *e)
{
	for (unsigned seq = 0; seq < WARM + ROUNDS + LARGE_ROUNDS; seq++) {
		unsigned len = length_of(seq);

		if (!await_completions(e, seq, seq + 1) || !check_message(e, seq, len, false) || !post_receive(e) ||
		    !post_message(e, seq, len, true))
			return false;
	}
	return await_completions(e, WARM + ROUNDS + LARGE_ROUNDS, 0);
}

static bool send_messages(struct end *e, double *us)
{
	int64_t began = 0;

	for (unsigned seq = 0; seq < WARM + ROUNDS + LARGE_ROUNDS; seq++) {
		unsigned len = length_of(seq);

		if (seq == WARM)
			began = doc_now_us();
		if (seq == WARM + ROUNDS)
			*us = (double)(doc_now_us() - began) / (2.0 * ROUNDS);
		if (!post_receive(e) || !post_message(e, seq, len, false) || !await_completions(e, seq + 1, seq + 1) ||
		    !check_message(e, seq, len, true))
			return false;
	}
	return true;
}

/* --- the programs --- */

static const struct sockaddr_in own_host = {.sin_family = AF_INET};

int doc_pingpong_server(int out, void *arg)
{
	struct doc_pingpong *p = arg;
	struct sockaddr_in addr = own_host;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	static struct end e;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	close(p->port[0]);
	if (!open_end(&e, p))
		return 1;
	if (e.v.rdma_bind_addr(e.id, (struct sockaddr *)&addr) || e.v.rdma_listen(e.id, 1))
		return complain("rdma_listen", errno) + 1;
	uint16_t port = ntohs(e.v.rdma_get_src_port(e.id));

	if (write(p->port[1], &port, sizeof(port)) != sizeof(port))
		return complain("pipe", errno) + 1;
	if (!await_event(&e, RDMA_CM_EVENT_CONNECT_REQUEST, &e.id) || !make_queues(&e) || !post_receive(&e))
		return 1;
	if (e.v.rdma_accept(e.id, &param))
		return complain("rdma_accept", errno) + 1;
	return await_event(&e, RDMA_CM_EVENT_ESTABLISHED, NULL) && serve_messages(&e) ? 0 : 1;
}

int doc_pingpong_client(int out, void *arg)
{
	struct doc_pingpong *p = arg;
	struct sockaddr_in addr = own_host;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	static struct end e;
	uint16_t port;
	double us = 0;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	close(p->port[1]);
	if (read(p->port[0], &port, sizeof(port)) != sizeof(port))
		return 1; /* the server has failed, and says why */
	addr.sin_port = htons(port);
	if (!open_end(&e, p))
		return 1;
	if (e.v.rdma_resolve_addr(e.id, NULL, (struct sockaddr *)&addr, EVENT_MS))
		return complain("rdma_resolve_addr", errno) + 1;
	if (!await_event(&e, RDMA_CM_EVENT_ADDR_RESOLVED, NULL))
		return 1;
	if (e.v.rdma_resolve_route(e.id, EVENT_MS))
		return complain("rdma_resolve_route", errno) + 1;
	if (!await_event(&e, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL) || !make_queues(&e))
		return 1;
	if (e.v.rdma_connect(e.id, &param))
		return complain("rdma_connect", errno) + 1;
	if (!await_event(&e, RDMA_CM_EVENT_ESTABLISHED, NULL) || !send_messages(&e, &us))
		return 1;
	struct doc_event last;

	/* Stays until the server has the acknowledgement of its last message, and leaves. */
	doc_verbs_event(&e.v, e.ch, EVENT_MS, &last);
	return dprintf(out, "%.1f", us) < 0;
}
