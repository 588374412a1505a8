// link.c - a connection of the SRP target: receives messages, posts RDMA reads and writes and sends
// follows: SRP (ANSI INCITS 365, T10/1415-D), annex B (InfiniBand); ibv_post_send(3)
// SPDX-License-Identifier: MIT
#include "srp/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#define SENDS (SP_SLOTS * (SP_CHUNK + 1) + SP_TELLS + 1) /* each request has one chunk and a response */
#define POLLED 32
#define TURNS 4 /* so many times at once, before others are served */

/* the low bits of a wr_id; the rest is the slot */
enum { RECEIVED, MOVED, ANSWERED, TOLD, PROBED, KINDS = 8 };

static struct sp_link *link_of(struct sp_channel *c)
{
	return (struct sp_link *)(void *)c;
}

/* ---- the parts of the memory ---- */

static uint8_t *slot_response(const struct sp_link *k, unsigned slot)
{
	return k->memory + SP_TELLS * SP_RESPONSE_MAX + slot * SP_RESPONSE_MAX;
}

static uint8_t *slot_message(const struct sp_link *k, unsigned slot)
{
	return k->memory + k->message_at + slot * k->stride;
}

/* ---- work requests ---- */

static bool receive_into(struct sp_link *k, unsigned slot)
{
	struct ibv_sge s = {(uintptr_t)slot_message(k, slot), k->channel.to_target, k->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot * KINDS + RECEIVED, .sg_list = &s, .num_sge = 1}, *bad;

	return !ibv_post_recv(k->id->qp, &wr, &bad);
}

/* Builds the work requests of a chunk in wr. Each points to the next. */
static void build_moves(struct sp_link *k, struct sp_request *r, bool write, struct ibv_send_wr *wr, struct ibv_sge *s)
{
	for (uint32_t i = 0; i < r->move_count; i++) {
		const struct sp_move *m = &r->moves[i];

		s[i] = (struct ibv_sge){(uintptr_t)m->local, m->len, k->pool->lkey};
		wr[i] = (struct ibv_send_wr){.wr_id = sp_slot(r) * KINDS + MOVED,
		                             .next = &wr[i + 1],
		                             .sg_list = &s[i],
		                             .num_sge = 1,
		                             .opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		                             .wr.rdma = {.remote_addr = m->va, .rkey = m->key}};
	}
}

static void link_move(struct sp_request *r, bool write)
{
	struct sp_link *k = link_of(r->channel);
	struct ibv_send_wr wr[SP_CHUNK + 1], *bad;
	struct ibv_sge s[SP_CHUNK];

	build_moves(k, r, write, wr, s);
	wr[r->move_count - 1].next = NULL;
	wr[r->move_count - 1].send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(k->id->qp, wr, &bad))
		k->failed = true;
}

static void link_answer(struct sp_request *r)
{
	struct sp_link *k = link_of(r->channel);
	struct ibv_send_wr wr[SP_CHUNK + 1], *bad;
	struct ibv_sge s[SP_CHUNK + 1];
	uint32_t n = r->move_count;

	build_moves(k, r, true, wr, s);
	s[n] = (struct ibv_sge){(uintptr_t)r->response, (uint32_t)r->response_len, k->mr->lkey};
	wr[n] = (struct ibv_send_wr){.wr_id = sp_slot(r) * KINDS + ANSWERED,
	                             .sg_list = &s[n],
	                             .num_sge = 1,
	                             .opcode = IBV_WR_SEND,
	                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED};
	if (ibv_post_send(k->id->qp, wr, &bad))
		k->failed = true;
}

static void link_release(struct sp_request *r)
{
	struct sp_link *k = link_of(r->channel);

	if (!receive_into(k, sp_slot(r)))
		k->failed = true;
}

static void link_tell(struct sp_channel *c, const uint8_t *message, size_t len)
{
	struct sp_link *k = link_of(c);
	unsigned i = k->telling & 1 ? 1 : 0;
	uint8_t *at = k->memory + i * SP_RESPONSE_MAX;
	struct ibv_sge s = {(uintptr_t)at, (uint32_t)len, k->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = i * KINDS + TOLD,
	                         .sg_list = &s,
	                         .num_sge = 1,
	                         .opcode = IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED},
	                   *bad;

	if (k->telling >> i & 1) { /* the peer acknowledges nothing */
		k->failed = true;
		return;
	}
	memcpy(at, message, len);
	k->telling |= 1u << i;
	if (ibv_post_send(k->id->qp, &wr, &bad))
		k->failed = true;
}

void sp_link_probe(struct sp_link *k)
{
	struct ibv_send_wr wr = {.wr_id = PROBED, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;

	if (k->probing)
		return;
	k->probing = true;
	if (ibv_post_send(k->id->qp, &wr, &bad))
		k->failed = true;
}

static void link_fail(struct sp_channel *c)
{
	link_of(c)->failed = true;
}

/* ---- completions ---- */

static void take_completion(struct sp_link *k, const struct ibv_wc *wc)
{
	unsigned slot = (unsigned)(wc->wr_id / KINDS);
	struct sp_request *r = &k->channel.requests[slot];

	if (wc->status) {
		k->failed = true;
		return;
	}
	k->established = true; /* rdma_cm may say so later */
	k->heard = k->listener->now;
	switch (wc->wr_id % KINDS) {
	case RECEIVED:
		sp_received(&k->channel, slot, slot_message(k, slot), wc->byte_len);
		break;
	case MOVED:
		sp_moved(r);
		break;
	case ANSWERED:
		sp_answered(r);
		break;
	case TOLD:
		k->telling &= ~(1u << slot);
		break;
	default:
		k->probing = false;
		break;
	}
}

void sp_link_poll(struct sp_link *k)
{
	struct ibv_wc wc[POLLED];
	int n = 0;

	for (int turn = 0; !k->failed && turn < TURNS && (n = ibv_poll_cq(k->cq, POLLED, wc)) > 0; turn++)
		for (int i = 0; i < n && !k->failed; i++)
			take_completion(k, &wc[i]);
	k->busy = n > 0; /* then the listener calls again, because no event may follow */
	k->failed |= n < 0;
}

static void completions_ready(struct nt_watch *w, uint32_t events)
{
	struct sp_link *k = (struct sp_link *)(void *)((uint8_t *)w - offsetof(struct sp_link, watch));
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(k->completions, &cq, &context))
		return;
	ibv_ack_cq_events(cq, 1);
	if (ibv_req_notify_cq(k->cq, 0))
		k->failed = true;
	sp_link_poll(k);
}

/* ---- opening and closing ---- */

static bool map_memory(struct sp_link *k)
{
	struct sp_channel *c = &k->channel;
	uint32_t lead = c->immediate ? (NB_ALIGN - c->immediate % NB_ALIGN) % NB_ALIGN : 0;

	/* immediate data is aligned, so that the medium can take it from there */
	k->stride = (c->to_target + NB_ALIGN - 1) / NB_ALIGN * NB_ALIGN + (c->immediate ? NB_ALIGN : 0);
	size_t head = (SP_TELLS + SP_SLOTS) * SP_RESPONSE_MAX;

	k->message_at = (head + NB_ALIGN - 1) / NB_ALIGN * NB_ALIGN + lead;
	k->memory_len = k->message_at + SP_SLOTS * k->stride;
	k->memory = mmap(NULL, k->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (k->memory == MAP_FAILED) {
		k->memory = NULL;
		return false;
	}
	for (unsigned i = 0; i < SP_SLOTS; i++)
		c->requests[i].response = slot_response(k, i);
	return true;
}

static bool register_memory(struct sp_link *k)
{
	size_t size;
	void *pool = nt_pool_memory(k->channel.pool, &size);
	bool iwarp = k->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	/* over iWARP the peer writes into the sink of a read */
	int access = IBV_ACCESS_LOCAL_WRITE | (iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);

	return (k->pd = ibv_alloc_pd(k->id->verbs)) &&
	       (k->mr = ibv_reg_mr(k->pd, k->memory, k->memory_len, IBV_ACCESS_LOCAL_WRITE)) &&
	       (k->pool = ibv_reg_mr(k->pd, pool, size, access));
}

static bool make_queues(struct sp_link *k)
{
	struct ibv_context *ctx = k->id->verbs;

	if (!(k->completions = ibv_create_comp_channel(ctx)))
		return false;
	int flags = fcntl(k->completions->fd, F_GETFL);

	if (flags < 0 || fcntl(k->completions->fd, F_SETFL, flags | O_NONBLOCK))
		return false;
	if (!(k->cq = ibv_create_cq(ctx, SENDS + SP_SLOTS, k, k->completions, 0)))
		return false;
	struct ibv_qp_init_attr q = {
	        .send_cq = k->cq,
	        .recv_cq = k->cq,
	        .qp_type = IBV_QPT_RC,
	        .cap = {.max_send_wr = SENDS, .max_recv_wr = SP_SLOTS, .max_send_sge = 1, .max_recv_sge = 1}};

	if (rdma_create_qp(k->id, k->pd, &q))
		return false;
	for (unsigned i = 0; i < SP_SLOTS; i++)
		if (!receive_into(k, i))
			return false;
	if (ibv_req_notify_cq(k->cq, 0))
		return false;
	k->watch = (struct nt_watch){.fd = k->completions->fd, .events = EPOLLIN, .ready = completions_ready};
	if (!nt_loop_add(k->listener->loop, &k->watch))
		return true;
	k->watch.fd = -1;
	return false;
}

static void close_queues(struct sp_link *k)
{
	if (k->watch.fd >= 0)
		nt_loop_remove(k->listener->loop, &k->watch);
	if (k->id && k->id->qp)
		rdma_destroy_qp(k->id);
	if (k->cq)
		ibv_destroy_cq(k->cq);
	if (k->completions)
		ibv_destroy_comp_channel(k->completions);
	if (k->mr)
		ibv_dereg_mr(k->mr);
	if (k->pool)
		ibv_dereg_mr(k->pool);
	if (k->pd)
		ibv_dealloc_pd(k->pd);
	if (k->memory)
		munmap(k->memory, k->memory_len);
	k->watch.fd = -1;
	k->cq = NULL;
	k->memory = NULL;
}

static void link_gone(struct sp_channel *c)
{
	struct sp_link *k = link_of(c), **at = &k->listener->links;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	sp_channel_free(c);
	close_queues(k); /* requests that were in progress used its memory */
	free(k);
}

static const struct sp_ops ops = {.move = link_move,
                                  .answer = link_answer,
                                  .release = link_release,
                                  .tell = link_tell,
                                  .fail = link_fail,
                                  .gone = link_gone};

uint32_t sp_link_open(struct sp_link *k, const struct sp_login *l, struct sp_login_rsp *rsp)
{
	k->watch.fd = -1;
	if (!sp_channel_open(&k->channel, k->listener->target, &ops, l, rsp))
		return SP_REJ_RESOURCES;
	k->next = k->listener->links;
	k->listener->links = k;
	k->opened = true;
	return map_memory(k) && register_memory(k) && make_queues(k) ? 0 : SP_REJ_RESOURCES;
}

void sp_link_close(struct sp_link *k)
{
	struct rdma_cm_id *id = k->id;

	if (k->closed)
		return;
	k->closed = true;
	if (k->watch.fd >= 0)
		nt_loop_remove(k->listener->loop, &k->watch);
	k->watch.fd = -1;
	if (id->qp) { /* from here on no adapter accesses the memory of the requests */
		rdma_disconnect(id);
		rdma_destroy_qp(id);
	}
	if (k->cq)
		ibv_destroy_cq(k->cq);
	k->cq = NULL;
	k->id = NULL;
	id->context = NULL;
	rdma_destroy_id(id);
	sp_channel_close(&k->channel); /* may free k */
}
