// rdma_send.c - output of a connection: reads of the host's memory, writes to it, responses
// follows: NVMe over Fabrics 1.1, 7.3.2 (response capsules), 7.3.5 (data transfers); ibv_post_send(3)
// SPDX-License-Identifier: MIT
#include <string.h>

#include "target/rdma_conn.h"

static uint8_t *response_at(const struct nt_rconn *c, uint16_t slot)
{
	return c->memory + (size_t)c->depth * c->capsule + (size_t)slot * NV_CQE_LEN;
}

#define CHAIN 16u               /* requests that are answered with one post … */
#define CHAIN_DATA (128u << 10) /* … unless they have this much data: then the first would wait too long */

/* All data first, then the responses. So messages of one size are adjacent, and no data waits for a response. */
struct chain {
	struct ibv_send_wr data[CHAIN], responses[CHAIN];
	struct ibv_sge data_at[CHAIN], responses_at[CHAIN];
	uint32_t n_data, n, bytes;
};

static bool post_work(struct nt_rconn *c, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return !ibv_post_send(c->id->qp, wr, &bad);
}

static void count_work(struct nt_rconn *c, struct nt_request *r, uint8_t n)
{
	if (!c->posted++)
		c->since = c->rdma->target->now;
	nt_ritem(r)->used = n;
	c->room -= n;
}

/*
 * The request of an iWARP read contains the STag of its sink, which must allow remote writes (RFC 5040, 4.4). The pool
 * is not opened to hosts in this way, because it contains other hosts' data. Only this buffer is, with a key of its
 * own, which is deregistered before the data is used. So the host cannot change fetched data.
 */
static bool make_sink(struct nt_rconn *c, struct nt_request *r)
{
	if (c->device->tells_sinks)
		nt_ritem(r)->sink =
		        ibv_reg_mr(c->domain->pd, r->data, r->length, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return !c->device->tells_sinks || nt_ritem(r)->sink;
}

void nt_rconn_end_sink(struct nt_request *r)
{
	if (nt_ritem(r)->sink)
		ibv_dereg_mr(nt_ritem(r)->sink);
	nt_ritem(r)->sink = NULL;
}

static bool post_rdma_read(struct nt_rconn *c, struct nt_request *r)
{
	const struct ibv_mr *sink = nt_ritem(r)->sink ? nt_ritem(r)->sink : c->domain->pool;
	struct ibv_sge s = {.addr = (uintptr_t)r->data, .length = r->length, .lkey = sink->lkey};
	struct ibv_send_wr wr = {.wr_id = nt_rdma_wr(NT_RDMA_FETCH, r->slot),
	                         .sg_list = &s,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_RDMA_READ,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .wr.rdma = {.remote_addr = r->sqe.sgl.address, .rkey = r->sqe.sgl.key}};

	count_work(c, r, 1);
	return post_work(c, &wr);
}

/* Prepares the response, which invalidates the key if the host asks for it. */
static void make_response(struct nt_rconn *c, struct nt_request *r, struct ibv_sge *s, struct ibv_send_wr *wr)
{
	uint8_t *at = response_at(c, r->slot);
	bool invalidate = r->sqe.sgl.type == NV_SGL_KEYED && r->sqe.sgl.subtype == NV_SGL_INVALIDATE &&
	                  (c->device->attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS);

	nv_cqe_encode(&r->cqe, at);
	*s = (struct ibv_sge){.addr = (uintptr_t)at, .length = NV_CQE_LEN, .lkey = c->mr->lkey};
	*wr = (struct ibv_send_wr){.wr_id = nt_rdma_wr(NT_RDMA_RESPONSE, r->slot),
	                           .sg_list = s,
	                           .num_sge = 1,
	                           .opcode = invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
	                           .send_flags = IBV_SEND_SIGNALED |
	                                         (c->inline_send >= NV_CQE_LEN ? (unsigned)IBV_SEND_INLINE : 0u)};
	if (invalidate)
		wr->invalidate_rkey = r->sqe.sgl.key;
}

static void count_data(struct nt_rconn *c, const struct nt_request *r, bool from_map)
{
	if (from_map)
		c->rdma->counts.from_map += r->length;
	else
		c->rdma->counts.from_pool += r->length;
}

static void make_data(struct nt_rconn *c, struct nt_request *r, struct ibv_sge *s, struct ibv_send_wr *wr)
{
	struct nt_rdma_map *m = nt_ritem(r)->map;

	*s = (struct ibv_sge){
	        .addr = (uintptr_t)r->data, .length = r->length, .lkey = m ? m->mr->lkey : c->domain->pool->lkey};
	*wr = (struct ibv_send_wr){.wr_id = nt_rdma_wr(NT_RDMA_DATA, r->slot),
	                           .sg_list = s,
	                           .num_sge = 1,
	                           .opcode = IBV_WR_RDMA_WRITE,
	                           .wr.rdma = {.remote_addr = r->sqe.sgl.address, .rkey = r->sqe.sgl.key}};
	count_data(c, r, m);
}

static bool post_chain(struct nt_rconn *c, struct chain *h)
{
	if (!h->n)
		return true;
	for (uint32_t i = 0; i < h->n_data; i++)
		h->data[i].next = i + 1 < h->n_data ? &h->data[i + 1] : h->responses;
	for (uint32_t i = 0; i + 1 < h->n; i++)
		h->responses[i].next = &h->responses[i + 1];
	struct ibv_send_wr *first = h->n_data ? h->data : h->responses;

	h->n = h->n_data = h->bytes = 0;
	return post_work(c, first);
}

static bool add_response(struct nt_rconn *c, struct chain *h, struct nt_request *r)
{
	count_work(c, r, r->send ? 2 : 1);
	c->answering++;
	if (r->send) {
		make_data(c, r, &h->data_at[h->n_data], &h->data[h->n_data]);
		h->n_data++;
		h->bytes += r->length;
	}
	make_response(c, r, &h->responses_at[h->n], &h->responses[h->n]);
	h->n++;
	return (h->n < CHAIN && h->bytes < CHAIN_DATA) || post_chain(c, h);
}

static uint32_t work_needed(const struct nt_request *r)
{
	return r->state == NT_RESPOND && r->send ? 2 : 1;
}

static bool start_fetch(struct nt_rconn *c, struct nt_request *r)
{
	if (make_sink(c, r))
		return post_rdma_read(c, r);
	nt_fetched(r, NV_TRANSIENT_TRANSPORT); /* the host may retry */
	return true;
}

/* Answers waiting requests, in order, while there are free work requests. */
void nt_rconn_flush(struct nt_rconn *c)
{
	struct chain h;

	h.n = h.n_data = h.bytes = 0;
	while (c->wait_first && !c->failed && c->room >= work_needed(c->wait_first)) {
		struct nt_request *r = c->wait_first;

		if (!(c->wait_first = nt_ritem(r)->next))
			c->wait_end = &c->wait_first;
		if (!(r->state == NT_FETCH ? start_fetch(c, r) : add_response(c, &h, r)))
			nt_rconn_fail(c);
	}
	if (!c->failed && !post_chain(c, &h))
		nt_rconn_fail(c);
}

void nt_rconn_queue(struct nt_request *r)
{
	struct nt_rconn *c = nt_rconn_of(r->queue);

	nt_ritem(r)->next = NULL;
	*c->wait_end = r;
	c->wait_end = &nt_ritem(r)->next;
	if (!c->gathering)
		nt_rconn_flush(c);
	nt_rconn_dirty(c);
}

static bool lies_in_region(const struct ibv_mr *mr, const struct nt_request *r)
{
	uintptr_t at = (uintptr_t)r->data - (uintptr_t)mr->addr;

	return (uintptr_t)r->data >= (uintptr_t)mr->addr && at <= mr->length && r->length <= mr->length - at;
}

/* The mapped memory cannot be sent. From now on data goes through the pool, and the host may retry the command. */
static void without_map(struct nt_rconn *c, struct nt_request *r)
{
	c->q.stable = true;
	r->send = false;
	r->cqe.status = NV_TRANSIENT_TRANSPORT;
}

void nt_rconn_respond(struct nt_request *r)
{
	struct nt_rconn *c = nt_rconn_of(r->queue);
	struct nt_rdma_item *i = nt_ritem(r);
	uint16_t capsule = i->capsule;

	memset(i, 0, sizeof(*i));
	if (capsule && !c->failed && !nt_rconn_receive(c, capsule - 1)) /* its data is no longer needed */
		nt_rconn_fail(c);
	if (r->send && r->borrowed) {
		i->map = nt_rdma_map_get(c->device, c->domain, r->ns);
		if (i->map && !lies_in_region(i->map->mr, r)) {
			i->map->in_flight--;
			i->map = NULL;
		}
		if (!i->map)
			without_map(c, r);
	}
	nt_rconn_queue(r);
}

void nt_rconn_finished(struct nt_rconn *c, struct nt_request *r)
{
	struct nt_rdma_item *i = nt_ritem(r);

	c->room += i->used;
	i->used = 0;
	c->posted--;
	c->since = c->rdma->target->now;
	if (i->map)
		i->map->in_flight--;
	i->map = NULL;
	nt_rconn_dirty(c); /* another request may have waited for work requests */
}
