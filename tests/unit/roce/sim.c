// sim.c - virtual time: arrivals, timers, programs, one at a time, and what must be true after each
// SPDX-License-Identifier: MIT
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame/icrc.h"
#include "sim.h"

#define EVENTS_MAX 4000000u

void sim_fail(struct sim *sim, const char *format, ...)
{
	va_list args;

	if (sim->problem[0])
		return;
	va_start(args, format);
	vsnprintf(sim->problem, sizeof(sim->problem), format, args);
	va_end(args);
}

static struct vb_flow flow_to(int to)
{
	struct vb_flow flow = {.sport = 0xc000, .dport = VB_ROCE_PORT};

	memcpy(flow.src, (uint8_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, VB_GID_LEN);
	memcpy(flow.dst, flow.src, VB_GID_LEN);
	flow.src[15] += (uint8_t)!to;
	flow.dst[15] += (uint8_t)to;
	return flow;
}

/* --- configuration --- */

static uint32_t pick(struct sim *sim, const uint32_t *from, uint32_t n)
{
	return from[net_below(&sim->net, n)];
}

static void init_link(struct sim *sim, struct net_link *link)
{
	static const uint32_t chances[] = {0, 0, 0, 10, 100, 500, 2000};
	static const uint32_t delays[] = {500, 3000, 20000, 100000, 2000000, 10000000};

	link->lose = pick(sim, chances, 7);
	link->twice = pick(sim, chances, 6);
	link->late = pick(sim, chances, 6);
	link->damage = pick(sim, chances, 5);
	link->mark = pick(sim, chances, 4);
	link->delay = pick(sim, delays, 6);
	link->jitter = net_below(&sim->net, 3) ? 0 : link->delay / 2;
	link->late_by = link->delay * 4;
	if (sim->clean)
		*link = (struct net_link){.delay = pick(sim, delays, 4)};
	if (sim->mode == SIM_BLACKHOLE) {
		link->dead_from = 1000 + net_random(&sim->net) % 3000000;
		link->dead_to = UINT64_MAX;
	}
}

static struct vb_roce_config configure(struct sim *sim, int id)
{
	static const uint32_t windows[] = {0, 0, 1, 2, 7, 64};
	static const uint32_t delays[] = {0, 0, 5000, 20000};
	static const uint32_t psns[] = {0, 5, 0xfffff0, 0x7fffff, 0x800000, 0x123456};

	return (struct vb_roce_config){
	        .type = sim->mode == SIM_DATAGRAMS    ? VB_ROCE_UD
	                : sim->mode == SIM_UNRELIABLE ? VB_ROCE_UC
	                                              : VB_ROCE_RC,
	        .qpn = 0x100u + (uint32_t)id,
	        .dest_qpn = 0x100u + (uint32_t)!id,
	        .qkey = 0x11111111,
	        .pkey = id ? 0x7fff : 0xffff,
	        .sq_psn = vb_psn(pick(sim, psns, 6)),
	        .timeout = 14,
	        .retry_cnt = 7,
	        .rnr_retry = 7,
	        .min_rnr_timer = (uint8_t)(1 + net_below(&sim->net, 16)),
	        .max_rd_atomic = (uint8_t)(1 + net_below(&sim->net, 8)),
	        .access = VB_RIGHT_READ | VB_RIGHT_WRITE | VB_RIGHT_ATOMIC | VB_RIGHT_FLUSH_GLOBAL,
	        .max_window = pick(sim, windows, 6),
	        .ack_delay = pick(sim, delays, 4),
	};
}

/* In a quarter of the runs neither end keeps packets ahead of a gap, in a quarter both do, otherwise one does. */
static void keep(struct sim *sim, struct sim_node *n)
{
	static const uint32_t sizes[] = {4, 64, 1024};
	struct vb_roce_ahead ahead = {.n = sizes[sim->seed / 64 % 3]};

	if (!(sim->seed / 16 >> n->id & 1))
		return;
	ahead.slots = n->slots = calloc(ahead.n, VB_ROCE_SLOT(n->qp.cfg.mtu));
	vb_roce_keep_ahead(&n->qp, &ahead);
}

static void init_pairs(struct sim *sim)
{
	static const uint8_t bursts[] = {0, 2, 8, 60};
	uint32_t mtu = 256u << net_below(&sim->net, 5);
	struct vb_roce_config cfg[2] = {configure(sim, 0), configure(sim, 1)};

	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];

		cfg[id].mtu = mtu;
		cfg[id].burst = bursts[sim->seed / 128 % 4];
		cfg[id].rq_psn = cfg[!id].sq_psn;
		cfg[id].max_dest_rd_atomic = cfg[!id].max_rd_atomic;
		if (sim->mode == SIM_BLACKHOLE) {
			cfg[id].retry_cnt = (uint8_t)net_below(&sim->net, 8);
			cfg[id].timeout = (uint8_t)(8 + net_below(&sim->net, 8));
		}
		vb_roce_init(&n->qp, &cfg[id], &sim_ops, n, n->sends, SIM_SENDS);
		keep(sim, n);
		vb_roce_start(&n->qp);
		n->goal = 10 + net_below(&sim->net, 50);
		n->tick_at = 1;
	}
}

void sim_init(struct sim *sim, uint64_t seed)
{
	memset(sim, 0, sizeof(*sim));
	sim->seed = sim->net.random = seed;
	sim->mode = seed % 16 == 3 ? SIM_BLACKHOLE : seed % 16 == 7 ? SIM_REFUSED : SIM_NORMAL;
	if (seed % 16 == 11)
		sim->mode = seed & 16 ? SIM_UNRELIABLE : SIM_DATAGRAMS;
	sim->clean = seed % 16 == 5 || seed % 16 == 13;
	sim->attacked = sim->clean && seed / 64 % 2;
	for (int id = 0; id < 2; id++) {
		sim_node_init(sim, id);
		init_link(sim, &sim->net.link[id]);
	}
	init_pairs(sim);
}

void sim_free(struct sim *sim)
{
	while (sim->net.count)
		free(net_take(&sim->net));
	for (int id = 0; id < 2; id++)
		sim_node_free(&sim->node[id]);
}

/* --- invariants --- */

static void check_node(struct sim *sim, struct sim_node *n)
{
	const struct vb_roce_requester *rq = &n->qp.rq;
	const struct vb_roce_responder *rs = &n->qp.rs;

	SIM_MUST(sim, rq->una <= rq->seq && rq->seq <= rq->high && rq->high <= rq->taken_seq);
	SIM_MUST(sim, rq->tail - rq->head <= SIM_SENDS && rq->cur - rq->head <= rq->tail - rq->head);
	SIM_MUST(sim, rq->rd <= n->qp.cfg.max_rd_atomic);
	SIM_MUST(sim, rs->res_tail - rs->res_head <= n->qp.cfg.max_dest_rd_atomic);
	SIM_MUST(sim, rs->unanswered <= rs->res_tail - rs->res_head);
	SIM_MUST(sim, rq->window.packets >= 1 && rq->window.packets <= rq->window.max);
	SIM_MUST(sim, n->completed <= n->taken && n->taken <= n->posted);
	SIM_MUST(sim, n->r_completed <= n->r_taken && n->r_taken <= n->r_posted);
	SIM_MUST(sim, sim->mode != SIM_NORMAL || !n->failed);
	SIM_MUST(sim, rs->kept ? rs->kept <= n->qp.ahead.n && !n->qp.dead : true);
	SIM_MUST(sim, !rq->mending || (rq->mend_seq <= rq->una && rq->mend_to <= rq->high));

	uint32_t unanswered = 0;

	for (uint32_t i = rs->res_head; i != rs->res_tail; i++)
		unanswered += rs->res[i % VB_ROCE_MAX_RESOURCES].next != rs->res[i % VB_ROCE_MAX_RESOURCES].end;
	SIM_MUST(sim, rs->unanswered == (n->qp.dead && !rs->closed ? 0 : unanswered));
	if (sim->clean && !sim->attacked && sim->mode == SIM_NORMAL) {
		SIM_MUST(sim, !n->qp.stats.timeouts && !n->qp.stats.probes && !n->qp.stats.seq_naks_sent);
		SIM_MUST(sim, !n->qp.stats.resent_pkts || n->qp.stats.rnr_naks_rcvd);
	}
}

/* A request is sent for the first time: have the reads before it completed, and how many have not? */
static void check_order(struct sim_node *n, uint64_t psn)
{
	uint32_t i = n->completed, reads = 0;

	while (i < n->taken && n->requests[i].psn + n->requests[i].psns <= psn)
		reads += n->requests[i].work.verb >= VB_VERB_READ && n->requests[i].work.verb != VB_VERB_LOCAL_INV, i++;
	SIM_MUST(n->sim, i < n->taken && reads <= n->qp.cfg.max_rd_atomic);
	SIM_MUST(n->sim, !(n->requests[i].work.flags & VB_WORK_FENCE) || psn != n->requests[i].psn || !reads);
}

/* One for each gap (IBA 9.7.5.2). */
static void check_nak(struct sim_node *n, const struct vb_packet *p)
{
	if (p->info->op != VB_OP_ACK || p->aeth.kind != VB_AETH_NAK || p->aeth.value != VB_NAK_PSN_SEQUENCE)
		return;
	SIM_MUST(n->sim, !n->nak_sent || vb_psn_before(n->last_nak, p->bth.psn));
	n->nak_sent = true;
	n->last_nak = p->bth.psn;
}

/* New packets are consecutive, and none exceeds the window. */
static void check_packet(struct sim_node *n, const struct vb_packet *p)
{
	struct sim *sim = n->sim;
	const struct vb_roce_requester *rq = &n->qp.rq;
	uint32_t psns = 1;
	int32_t ahead = vb_psn_diff(p->bth.psn, vb_psn(n->qp.cfg.sq_psn.v + (uint32_t)n->new_psns));

	check_nak(n, p);
	if (!(p->info->flags & VB_REQUEST))
		return;
	if (ahead == 0 && n->qp.cfg.type == VB_ROCE_RC)
		check_order(n, n->new_psns);
	if (p->info->op == VB_OP_READ && p->reth.length)
		psns = (p->reth.length - 1) / n->qp.cfg.mtu + 1;
	SIM_MUST(sim, ahead <= 0);
	if (ahead == 0)
		n->new_psns += psns;
	else
		SIM_MUST(sim, ahead + (int32_t)psns <= 0);
	struct vb_psn end = vb_psn_add(p->bth.psn, (int32_t)psns);
	bool echo = ahead && vb_psn_equal(end, n->last_end); /* uses no more of the window */

	n->last_end = end;
	if (n->qp.cfg.type != VB_ROCE_RC || (rq->mending && ahead) || echo)
		return;
	if (rq->seq - rq->una > (rq->mending ? 2ull : 1ull) * rq->window.packets)
		SIM_MUST(sim, rq->seq - rq->una == psns);
}

/* --- packets --- */

static size_t seal(const struct vb_roce_out *out, int to)
{
	size_t total = out->header_len + out->payload_len + out->pad + VB_ICRC_LEN;
	struct vb_flow flow = flow_to(to);
	uint32_t crc = vb_icrc_start(&flow, 0, out->packet, out->header_len, total);

	crc = vb_crc32(crc, out->packet + out->header_len, out->payload_len + out->pad);
	vb_icrc_encode(out->packet + total - VB_ICRC_LEN, crc);
	return total;
}

static void output(struct sim *sim, struct sim_node *n)
{
	uint8_t bytes[VB_ROCE_PACKET_MAX + VB_ICRC_LEN];
	struct vb_roce_out out = {.packet = bytes};

	for (uint32_t i = 0; vb_roce_output(&n->qp, &out, sim->now); i++) {
		struct vb_packet p;
		size_t len = seal(&out, !n->id);

		if (vb_packet_decode(&p, bytes, len) != VB_PACKET_OK || i > 100000) {
			sim_fail(sim, "it sends what cannot be decoded, or without end");
			return;
		}
		SIM_MUST(sim, p.payload_len == out.payload_len && p.payload_len <= n->qp.cfg.mtu);
		if (sim->verbose)
			fprintf(stderr, "%llu %d> %s psn %x len %u ask %d aeth %d/%d\n", (unsigned long long)sim->now,
			        n->id, p.info->name, p.bth.psn.v, p.payload_len, p.bth.ack_req, p.aeth.kind,
			        p.aeth.value);
		check_packet(n, &p);
		check_node(sim, n);
		net_send(&sim->net, !n->id, bytes, len, sim->now);
	}
	vb_roce_sent(&n->qp);
}

/*
 * A forger of the peer's address, who knows the queue pair, replaces packets in flight, with a valid key. He also knows
 * the peer's port as long as it is no secret.
 */
static void forge(struct sim *sim, struct sim_node *n)
{
	const struct vb_roce_responder *rs = &n->qp.rs;
	const struct sim_node *peer = &sim->node[!n->id];
	uint32_t ahead = (vb_psn(peer->qp.cfg.sq_psn.v + (uint32_t)peer->qp.rq.seq).v - rs->epsn.v) & 0xffffff;
	struct vb_psn psn = vb_psn_add(rs->epsn, (int32_t)(1 + net_below(&sim->net, ahead - 1)));
	struct vb_packet p = {.bth = {.opcode = VB_RC_WRITE_ONLY,
	                              .pkey = 0xffff,
	                              .dest_qpn = n->qp.cfg.qpn,
	                              .psn = psn,
	                              .ack_req = true},
	                      .info = vb_opcode_info(VB_RC_WRITE_ONLY),
	                      .payload_len = 8,
	                      .reth = {n->base[SIM_R_TARGET], sim_key(n->id, SIM_R_TARGET), 8}};

	if (ahead > 1 && ahead < 1u << 23)
		vb_roce_input(&n->qp, &p, (const uint8_t *)"forged!", &(struct vb_roce_from){.port = 1 + rs->vouches},
		              sim->now);
}

static void arrive(struct sim *sim)
{
	struct net_packet *np = net_take(&sim->net);
	struct sim_node *n = &sim->node[np->to];
	struct vb_flow flow = flow_to(np->to);
	struct vb_packet p;
	uint8_t grh[40] = {0x45};

	if (!vb_icrc_check(&flow, 0, np->bytes, np->len) && vb_packet_decode(&p, np->bytes, np->len) == VB_PACKET_OK) {
		/* a copy that ends where its allocation ends, for the sanitizer */
		uint8_t *bytes = malloc(np->len);

		memcpy(bytes, np->bytes, np->len);
		if (np->marked || !(sim->seed / 32 & 1) || !vb_roce_input_middle(&n->qp, bytes, np->len, 1, sim->now))
			vb_roce_input(&n->qp, &p, bytes + p.payload_at,
			              &(struct vb_roce_from){.congested = np->marked, .port = 1, .grh = grh}, sim->now);
		free(bytes);
	}
	free(np);
	if (sim->attacked && !n->qp.dead && net_below(&sim->net, 4) == 0)
		forge(sim, n);
}

/* --- time --- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a ? b : !b || a < b ? a : b;
}

static uint64_t next_event(const struct sim *sim)
{
	const struct net_packet *p = net_next(&sim->net);
	uint64_t at = p ? p->at : 0;

	for (int id = 0; id < 2; id++)
		at = earlier(at, earlier(sim->node[id].tick_at, vb_roce_deadline(&sim->node[id].qp)));
	return at;
}

static void step(struct sim *sim)
{
	const struct net_packet *p = net_next(&sim->net);

	if (p && p->at <= sim->now)
		arrive(sim);
	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];
		uint64_t deadline = vb_roce_deadline(&n->qp);

		if (deadline && deadline <= sim->now) {
			vb_roce_timeout(&n->qp, sim->now);
			deadline = vb_roce_deadline(&n->qp);
			SIM_MUST(sim, !deadline || deadline > sim->now);
		}
		if (n->tick_at && n->tick_at <= sim->now)
			sim_tick(n);
		check_node(sim, n);
		output(sim, n);
		check_node(sim, n);
	}
}

/* The end whose error was expected. */
static void check_failures(struct sim *sim)
{
	struct sim_node *n = sim->node;

	if (sim->mode == SIM_BLACKHOLE) {
		for (int id = 0; id < 2; id++)
			SIM_MUST(sim, !n[id].failed || n[id].failure == VB_WORK_RETRY_EXC_ERR);
	} else if (sim->mode == SIM_REFUSED && n[0].failed && n[0].event == VB_WORK_EVENT_SQ) {
		SIM_MUST(sim, n[0].failure == VB_WORK_REM_ACCESS_ERR || n[0].failure == VB_WORK_REM_INV_REQ_ERR ||
		                      (n[0].failure == VB_WORK_RETRY_EXC_ERR && n[1].failed));
	}
}

/* Kept packets were executed, or dropped with the QP. */
static void check_slots(struct sim *sim)
{
	for (int id = 0; id < 2; id++) {
		const struct sim_node *n = &sim->node[id];
		uint32_t used = 0;

		for (uint32_t i = 0; n->slots && i < n->qp.ahead.n; i++)
			used += ((const struct vb_roce_kept *)(const void *)(n->slots +
			                                                     i * VB_ROCE_SLOT(n->qp.cfg.mtu)))
			                ->used;
		SIM_MUST(sim, used == n->qp.rs.kept && (!used || (sim->mode != SIM_NORMAL && !n->qp.dead)));
	}
}

bool sim_run(struct sim *sim)
{
	uint64_t at;

	while (!sim->problem[0] && (at = next_event(sim))) {
		SIM_MUST(sim, at >= sim->now || (net_next(&sim->net) && net_next(&sim->net)->at <= sim->now));
		sim->now = at > sim->now ? at : sim->now;
		if (++sim->events > EVENTS_MAX)
			sim_fail(sim, "no end");
		step(sim);
		if (sim->events % 64 == 0)
			sim_check_memory(sim, false);
	}
	if (sim->problem[0])
		return false;
	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];

		SIM_MUST(sim, n->failed ? n->completed == n->taken : n->completed == n->goal);
		SIM_MUST(sim, !n->taking || sim->mode == SIM_UNRELIABLE || !n->failed);
	}
	check_failures(sim);
	check_slots(sim);
	sim_check_memory(sim, sim->mode == SIM_NORMAL);
	return !sim->problem[0];
}
