// work.c - the programs at both ends: random requests, and late receives
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static uint32_t below(struct sim_node *n, uint32_t max)
{
	return net_below(&n->sim->net, max);
}

/* A few bytes, about a packet, several packets, or many. */
static uint32_t size(struct sim_node *n, uint32_t max)
{
	uint32_t mtu = n->qp.cfg.mtu, len;

	switch (below(n, 8)) {
	case 0:
		len = 0;
		break;
	case 1:
	case 2:
		len = below(n, 64);
		break;
	case 3:
		len = mtu - 2 + below(n, 5);
		break;
	case 4:
		len = mtu * (1 + below(n, 4)) - 1 + below(n, 3);
		break;
	case 5:
		len = below(n, 65536);
		break;
	default:
		len = below(n, 4 * mtu);
	}
	return len < max ? len : max;
}

/* Splits a range of local memory into up to SIM_SGES pieces, some of them empty. */
static void split(struct sim_node *n, struct sim_request *r, uint32_t at, uint32_t len)
{
	r->sges = 1 + below(n, SIM_SGES);
	for (uint32_t i = 0; i < r->sges; i++) {
		uint32_t piece = i + 1 == r->sges ? len : below(n, len + 1);

		r->sge[i] = (struct sim_sge){at, piece};
		at += piece;
		len -= piece;
	}
}

/* An outstanding read may be answered again later, so its source must not change until it is done. */
static bool being_read(struct sim_node *n, uint32_t at, uint32_t len)
{
	for (uint32_t i = n->completed; i < n->posted; i++) {
		const struct sim_request *r = &n->requests[i];

		if (r->work.verb == VB_VERB_READ && at < r->from + r->work.length && r->from < at + len)
			return true;
	}
	return false;
}

static void plan_send(struct sim_node *n, struct sim_request *r)
{
	uint32_t len = size(n, n->sim->mode == SIM_DATAGRAMS ? n->qp.cfg.mtu : 65536);

	r->work.verb = VB_VERB_SEND;
	r->work.length = len;
	if (below(n, 3) == 0 || n->sim->mode >= SIM_UNRELIABLE)
		r->work.flags |= VB_WORK_IMM;
	else if (below(n, 4) == 0)
		r->work.flags |= VB_WORK_INV;
	split(n, r, n->base[SIM_R_SOURCE] + below(n, SIM_SOURCE - len + 1), len);
}

static void plan_write(struct sim_node *n, struct sim_request *r)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	uint32_t len = size(n, 65536);
	uint32_t at = peer->base[SIM_R_TARGET] + below(n, SIM_TARGET - len + 1), off = 0;

	if (being_read(n, at, len)) {
		plan_send(n, r);
		return;
	}
	r->work.verb = VB_VERB_WRITE;
	r->work.length = len;
	r->work.remote_addr = at;
	r->work.rkey = sim_key_once(n, SIM_R_TARGET);
	if (below(n, 4) == 0)
		r->work.flags |= VB_WORK_IMM;
	split(n, r, n->base[SIM_R_SOURCE] + below(n, SIM_SOURCE - len + 1), len);
	for (uint32_t i = 0; i < r->sges; off += r->sge[i++].len)
		memcpy(peer->model + at + off, n->memory + r->sge[i].at, r->sge[i].len);
}

static void plan_read(struct sim_node *n, struct sim_request *r)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	enum sim_region region = below(n, 2) ? SIM_R_CONST : SIM_R_TARGET;
	uint32_t len = size(n, 65536), at = peer->base[region] + below(n, peer->size[region] - len + 1);

	r->work.verb = VB_VERB_READ;
	r->work.length = len;
	r->work.remote_addr = r->from = at;
	r->work.rkey = sim_key_once(n, region);
	r->expected = malloc(len + 1);
	memcpy(r->expected, peer->model + at, len);
	split(n, r, n->base[SIM_R_READS] + n->posted % SIM_SLOTS * SIM_SLOT + below(n, 256), len);
}

static void plan_atomic(struct sim_node *n, struct sim_request *r)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	uint32_t at = (peer->base[SIM_R_TARGET] + 7 + below(n, 64)) & ~7u;
	uint64_t next;

	if (being_read(n, at, 8)) {
		plan_send(n, r);
		return;
	}
	r->work.verb = below(n, 2) ? VB_VERB_CMP_SWAP : VB_VERB_FETCH_ADD;
	r->work.length = 8;
	r->work.remote_addr = at;
	r->work.rkey = sim_key_once(n, SIM_R_TARGET);
	r->work.swap_add = net_random(&n->sim->net);
	memcpy(&r->original, peer->model + at, 8);
	r->work.compare = below(n, 3) ? r->original : 1;
	next = r->original + r->work.swap_add;
	if (r->work.verb == VB_VERB_CMP_SWAP)
		next = r->original == r->work.compare ? r->work.swap_add : r->original;
	memcpy(peer->model + at, &next, 8);
	r->sges = 1;
	r->sge[0] = (struct sim_sge){n->base[SIM_R_READS] + n->posted % SIM_SLOTS * SIM_SLOT + below(n, 256), 8};
}

/* 8 bytes. If one were executed again after a later write, memory would differ from the model. */
static void plan_atomic_write(struct sim_node *n, struct sim_request *r)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	uint32_t at = (peer->base[SIM_R_TARGET] + 7 + below(n, 64)) & ~7u;

	if (being_read(n, at, 8)) {
		plan_send(n, r);
		return;
	}
	r->work.verb = VB_VERB_ATOMIC_WRITE;
	r->work.length = 8;
	r->work.remote_addr = at;
	r->work.rkey = sim_key_once(n, SIM_R_TARGET);
	r->work.swap_add = net_random(&n->sim->net);
	memcpy(peer->model + at, &r->work.swap_add, 8);
}

static void plan_flush(struct sim_node *n, struct sim_request *r)
{
	struct sim_node *peer = &n->sim->node[!n->id];

	r->work.verb = VB_VERB_FLUSH;
	r->work.length = below(n, SIM_TARGET);
	r->work.remote_addr = peer->base[SIM_R_TARGET];
	r->work.rkey = sim_key_once(n, SIM_R_TARGET);
}

/* An invalid request: the requests after it must not be executed. */
static void spoil(struct sim_node *n, struct sim_request *r)
{
	r->bad = true;
	switch (below(n, 3)) {
	case 0:
		r->work.rkey ^= 0x40;
		break;
	case 1:
		r->work.remote_addr += 0x1000000;
		break;
	default:
		r->work.remote_addr = UINT64_MAX - 15;
	}
}

static void plan(struct sim_node *n, struct sim_request *r)
{
	static void (*const plans[])(struct sim_node *, struct sim_request *) = {
	        plan_send, plan_write, plan_read, plan_atomic, plan_send, plan_write, plan_atomic_write, plan_flush};
	bool bad = n->sim->mode == SIM_REFUSED && n->id == 0 && n->posted + 1 == n->goal / 2;

	*r = (struct sim_request){.work.cookie = n->posted};
	if (n->sim->mode == SIM_DATAGRAMS)
		plan_send(n, r);
	else if (n->sim->mode == SIM_UNRELIABLE)
		plans[below(n, 2)](n, r);
	else if (below(n, 24) == 0 && !bad)
		r->work.verb = VB_VERB_LOCAL_INV;
	else
		plans[bad ? 1 + below(n, 3) : below(n, 8)](n, r);
	if (bad && r->work.length && r->work.verb != VB_VERB_SEND)
		spoil(n, r);
}

static void post_send(struct sim_node *n)
{
	struct sim_request *r = &n->requests[n->posted];

	plan(n, r);
	bool takes = r->work.verb == VB_VERB_SEND || r->work.flags & VB_WORK_IMM;

	if (takes && below(n, 3) == 0)
		r->work.flags |= VB_WORK_SOLICITED;
	if (below(n, 6) == 0)
		r->work.flags |= VB_WORK_FENCE;
	r->work.imm = r->work.verb == VB_VERB_FLUSH ? vb_feth_word((struct vb_feth){.type = 1}) : n->order;
	if (takes)
		r->order = ++n->order;
	r->work.ud_qpn = n->qp.cfg.dest_qpn;
	r->work.ud_qkey = n->qp.cfg.qkey;
	n->posted++;
}

static void post_receive(struct sim_node *n)
{
	uint32_t at = n->base[SIM_R_RECEIVES] + n->r_posted % SIM_SLOTS * SIM_SLOT, first = below(n, 5000);
	struct sim_receive *r = &n->receives[n->r_posted++ % SIM_REQUESTS];

	r->sge[0] = (struct sim_sge){at, first};
	r->sge[1] = (struct sim_sge){at + first, 65536 + 40 - first};
	r->room = 65536 + 40;
}

void sim_tick(struct sim_node *n)
{
	struct sim_node *peer = &n->sim->node[!n->id];
	uint32_t batch = below(n, 6);

	n->tick_at = 0;
	if (n->failed)
		return;
	while (batch-- && n->posted < n->goal && n->posted - n->completed < SIM_SLOTS)
		post_send(n);
	/* in some runs there are few receives */
	for (batch = below(n, n->sim->seed % 5 ? 6 : 2);
	     batch && n->r_posted - n->r_completed < SIM_SLOTS && n->r_posted < SIM_REQUESTS; batch--)
		post_receive(n);
	if (n->completed < n->goal || (peer->completed < peer->goal && !peer->failed))
		n->tick_at = n->sim->now + 1 + below(n, 200000 + (uint32_t)n->sim->net.link[n->id].delay / 4);
	if (n->completed == n->goal && !n->finished_at)
		n->finished_at = n->sim->now;
}
