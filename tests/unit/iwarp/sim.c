// sim.c - steps of two programs and a connection, one at a time, and what must be true after each
// SPDX-License-Identifier: MIT
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 2000000u

void sim_fail(struct sim *sim, const char *format, ...)
{
	va_list args;

	if (sim->problem[0])
		return;
	va_start(args, format);
	vsnprintf(sim->problem, sizeof(sim->problem), format, args);
	va_end(args);
}

uint32_t sim_below(struct sim *sim, uint32_t n)
{
	uint64_t z = sim->random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ z >> 31) % n);
}

/* --- the start --- */

static struct vb_iw_config configure(struct sim *sim, int id)
{
	static const uint32_t emss[] = {128, 132, 200, 536, 1448, 1460, 4000, 8948, 16384, 32788, 65000};
	static const uint32_t direct[] = {0, 1, 100, 2000, UINT32_MAX};

	return (struct vb_iw_config){
	        .crc = sim->seed / 8 & 1,
	        .initiator = !id,
	        .emss = emss[sim_below(sim, 11)],
	        .large = sim->seed / 32 & 1,
	        .ird = (uint16_t)(1 + sim_below(sim, sim_below(sim, 4) ? 4 : 200)),
	        .access = VB_RIGHT_READ | VB_RIGHT_WRITE | VB_RIGHT_ATOMIC,
	        .direct_min = direct[sim_below(sim, 5)],
	};
}

static void begin_streams(struct sim *sim)
{
	uint32_t rtr = sim_below(sim, 4);

	if (rtr != VB_IW_RTR_NONE) {
		vb_iw_send_rtr(&sim->node[0].qp, rtr);
		vb_iw_expect_rtr(&sim->node[1].qp, rtr);
	}
	if (rtr != VB_IW_RTR_NONE || sim_below(sim, 2))
		vb_iw_hold_until_input(&sim->node[1].qp);
}

static bool never_fed(const struct sim *sim)
{
	return sim->mode == SIM_STARVED && sim->seed / 64 & 1;
}

void sim_init(struct sim *sim, uint64_t seed)
{
	struct vb_iw_config cfg[2];

	memset(sim, 0, sizeof(*sim));
	sim->seed = sim->random = seed;
	sim->mode = seed % 8 < 3 ? SIM_NORMAL : (enum sim_mode)(seed % 8 - 2);
	if (sim->mode == SIM_STARVED && seed / 8 & 1) /* a CRC is used */
		sim->mode = SIM_DAMAGED;
	for (int id = 0; id < 2; id++)
		cfg[id] = configure(sim, id);
	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];
		uint32_t out = VB_IW_OUT_MIN << sim_below(sim, 3);

		cfg[id].ord = cfg[!id].ird < VB_IW_ANSWERS ? cfg[!id].ird : VB_IW_ANSWERS;
		cfg[id].markers_in = sim->seed >> (4 + id) & 1;
		cfg[id].markers_out = sim->seed >> (4 + !id) & 1;
		n->sim = sim;
		n->id = id;
		n->goal = 10 + sim_below(sim, SIM_REQUESTS - 10);
		n->r_most = never_fed(sim) ? sim_below(sim, 20) : UINT32_MAX;
		n->stage = malloc(VB_IW_STAGE_MIN);
		n->out = malloc(out);
		vb_iw_init(&n->qp, &cfg[id], &sim_ops, n, n->sends, SIM_SENDS, n->stage, VB_IW_STAGE_MIN, n->out, out);
	}
	begin_streams(sim);
	sim_post(&sim->node[0]); /* to release the other end */
}

static void free_node(struct sim_node *n)
{
	free(n->stage);
	free(n->out);
	for (uint32_t i = 0; i < n->posted; i++) {
		sim_buffer_free(&n->requests[i].local);
		sim_buffer_free(&n->requests[i].remote.buffer);
		free(n->requests[i].remote.frozen);
	}
	for (uint32_t i = 0; i < n->r_posted; i++)
		sim_buffer_free(&n->receives[i].buffer);
}

void sim_free(struct sim *sim)
{
	for (int id = 0; id < 2; id++)
		free_node(&sim->node[id]);
}

/* --- invariants --- */

static bool all_goes_well(const struct sim *sim)
{
	return sim->mode == SIM_NORMAL || (sim->mode == SIM_STARVED && !never_fed(sim));
}

static void check_node(struct sim_node *n)
{
	struct sim *sim = n->sim;
	const struct vb_iw_requester *rq = &n->qp.rq;
	const struct vb_iw_responder *rs = &n->qp.rs;
	const struct vb_iw_out *o = &n->qp.out;

	SIM_MUST(sim, rq->tail - rq->head <= SIM_SENDS && rq->cur - rq->head <= rq->tail - rq->head);
	SIM_MUST(sim, rq->rd <= n->qp.cfg.ord);
	SIM_MUST(sim, rs->tail - rs->head <= (n->qp.cfg.ird ? n->qp.cfg.ird : 1));
	SIM_MUST(sim, rs->cur - rs->head <= rs->tail - rs->head);
	SIM_MUST(sim, o->tail - o->head <= VB_IW_FPDUS && o->end <= n->qp.out_len);
	SIM_MUST(sim, n->qp.in.head <= n->qp.in.tail && n->qp.in.tail <= n->qp.stage_len);
	SIM_MUST(sim, n->completed <= n->taken && n->taken <= n->posted);
	SIM_MUST(sim, n->r_completed <= n->r_taken && n->r_taken <= n->r_posted && n->r_taken <= n->r_completed + 1);
	SIM_MUST(sim, n->r_taken <= n->r_open && n->r_open <= n->r_posted && n->r_open <= n->r_most);
	SIM_MUST(sim, !vb_iw_starved(&n->qp) || (sim->mode == SIM_STARVED && !vb_iw_over(&n->qp)));
	SIM_MUST(sim, !all_goes_well(sim) || !vb_iw_over(&n->qp));
}

/* --- steps --- */

static uint32_t gather(const struct iovec *iov, int n, uint8_t *to, uint32_t most)
{
	uint32_t got = 0;

	for (int i = 0; i < n && got < most; i++) {
		uint32_t len = iov[i].iov_len < most - got ? (uint32_t)iov[i].iov_len : most - got;

		memcpy(to + got, iov[i].iov_base, len);
		got += len;
	}
	return got;
}

static uint32_t some_of(struct sim *sim, uint32_t n)
{
	uint32_t how = sim_below(sim, 6);

	if (!n || how < 3)
		return n;
	return how == 3 ? sim_below(sim, n < 40 ? n + 1 : 40) : sim_below(sim, n + 1);
}

static bool output(struct sim_node *n)
{
	struct sim *sim = n->sim;
	struct sim_node *p = &sim->node[!n->id];
	struct iovec iov[300];
	static const size_t mosts[] = {1, 3000, 20000, 200000, 1000000};
	int max = sim_below(sim, 3) ? 300 : (int)(2 + sim_below(sim, 20));
	int k = vb_iw_output(&n->qp, iov, max, mosts[sim_below(sim, 5)]);
	size_t total = 0;

	for (int i = 0; i < k; i++) {
		SIM_MUST(sim, iov[i].iov_len);
		total += iov[i].iov_len;
	}
	SIM_MUST(sim, k <= max && total < UINT32_MAX);
	check_node(n);
	if (!k || sim->problem[0])
		return false;
	uint32_t room = SIM_PIPE - p->pipe_len, most = some_of(sim, total < room ? (uint32_t)total : room);

	gather(iov, k, p->pipe + p->pipe_len, most);
	p->pipe_len += most;
	vb_iw_sent(&n->qp, most);
	check_node(n);
	return true;
}

static uint32_t scatter(const struct iovec *iov, int n, const uint8_t *from, uint32_t len)
{
	uint32_t done = 0;

	for (int i = 0; i < n && done < len; i++) {
		uint32_t k = iov[i].iov_len < len - done ? (uint32_t)iov[i].iov_len : len - done;

		memcpy(iov[i].iov_base, from + done, k);
		done += k;
	}
	return done;
}

static bool input(struct sim_node *n)
{
	struct sim *sim = n->sim;
	uint32_t k = some_of(sim, n->pipe_len);
	struct iovec iov[50];

	if (!n->pipe_len)
		return false;
	if (vb_iw_over(&n->qp)) {
		n->pipe_len = 0;
		return true;
	}
	if (sim_below(sim, 4)) {
		int count = vb_iw_room(&n->qp, iov, sim_below(sim, 3) ? 50 : (int)(2 + sim_below(sim, 3)));

		SIM_MUST(sim, count ? !vb_iw_starved(&n->qp) : vb_iw_over(&n->qp) || vb_iw_starved(&n->qp));
		k = scatter(iov, count, n->pipe, k);
		vb_iw_received(&n->qp, k);
	} else {
		uint8_t *bytes = malloc(k ? k : 1); /* ends where its allocation ends, for the sanitizer */

		memcpy(bytes, n->pipe, k);
		uint32_t taken = (uint32_t)vb_iw_input(&n->qp, bytes, k);

		SIM_MUST(sim, taken == k || (taken < k && vb_iw_starved(&n->qp)));
		k = taken;
		free(bytes);
	}
	memmove(n->pipe, n->pipe + k, n->pipe_len - k);
	n->pipe_len -= k;
	check_node(n);
	return true;
}

static void freeze(struct sim_region *r)
{
	if (!r->buffer.bytes || r->frozen)
		return;
	r->valid = false;
	r->frozen = malloc(r->buffer.total);
	memcpy(r->frozen, r->buffer.bytes, r->buffer.total);
}

/* A late receive is posted, or the owner gives up. */
static void feed(struct sim_node *n, bool patient)
{
	if (n->r_open < n->r_posted && n->r_open < n->r_most)
		n->r_open++;
	if (!patient && n->r_open == n->r_most)
		vb_iw_give_up(&n->qp);
	else if (vb_iw_starved(&n->qp))
		vb_iw_retry(&n->qp);
	check_node(n);
}

static void disturb(struct sim_node *n)
{
	struct sim *sim = n->sim;
	uint32_t i = n->posted ? sim_below(sim, n->posted) : 0;

	if (sim->mode == SIM_STARVED && !sim_below(sim, 8))
		feed(n, sim_below(sim, 40));
	if (!n->posted || sim_below(sim, 200))
		return;
	switch (sim->mode) {
	case SIM_DEREG:
		freeze(&n->requests[n->posted - 1 - i % 4 % n->posted].remote);
		break;
	case SIM_LOCAL:
		n->requests[n->posted - 1].local.gone = true;
		if (n->r_posted)
			n->receives[n->r_posted - 1].buffer.gone = true;
		break;
	case SIM_SHUT:
		if (!n->closed)
			vb_iw_closed(&n->qp, sim_below(sim, 2)   ? VB_IW_FIN
			                     : sim_below(sim, 2) ? VB_IW_RESET
			                                         : VB_IW_FAULT);
		n->closed = true;
		break;
	case SIM_DAMAGED:
		if (n->pipe_len)
			n->pipe[sim_below(sim, n->pipe_len)] ^= (uint8_t)(1 << sim_below(sim, 8));
		break;
	case SIM_ABORT:
		vb_iw_abort(&n->qp, sim_below(sim, 2));
		break;
	default:
		break;
	}
}

/* The owner closes the connection when nothing is left to send. */
static void close_ended(struct sim_node *n)
{
	struct sim_node *p = &n->sim->node[!n->id];
	struct iovec iov[2];

	if (n->closed || !vb_iw_over(&n->qp) || vb_iw_output(&n->qp, iov, 2, 1))
		return;
	n->closed = true;
	vb_iw_closed(&n->qp, VB_IW_FIN);
	SIM_MUST(n->sim, n->completed == n->taken && n->r_completed == n->r_taken);
	(void)p;
}

static void step(struct sim *sim)
{
	struct sim_node *n = &sim->node[sim_below(sim, 2)];

	switch (sim_below(sim, 6)) {
	case 0:
		if (n->posted < n->goal && !vb_iw_over(&n->qp))
			sim_post(n);
		break;
	case 1:
		if (!sim_below(sim, 20))
			vb_iw_pause(&n->qp, !n->qp.rq.paused);
		break;
	case 2:
	case 3:
		output(n);
		break;
	default:
		input(n);
	}
	if (sim->mode != SIM_NORMAL)
		disturb(n);
	close_ended(n);
	check_node(n);
}

static bool done(const struct sim *sim)
{
	bool all = true;

	for (int id = 0; id < 2; id++) {
		const struct sim_node *n = &sim->node[id];

		/* an end that has gone ends the other, once its last bytes have arrived */
		if (n->closed && !sim->node[!id].pipe_len)
			return true;
		all = all && n->completed == n->goal && !n->pipe_len;
	}
	return all;
}

/* No obstacles any more: it must finish. */
static void run_down(struct sim *sim)
{
	for (int i = 0; i < 20000 && !done(sim) && !sim->problem[0]; i++) {
		for (int id = 0; id < 2; id++) {
			struct sim_node *n = &sim->node[id];

			vb_iw_pause(&n->qp, false);
			if (n->posted < n->goal && !vb_iw_over(&n->qp))
				sim_post(n);
			if (sim->mode == SIM_STARVED)
				feed(n, i < 1000);
			output(n);
			input(n);
			close_ended(n);
		}
	}
}

static void check_end(struct sim *sim)
{
	for (int id = 0; id < 2; id++) {
		struct sim_node *n = &sim->node[id];

		if (sim->mode != SIM_NORMAL && !n->closed && !vb_iw_over(&n->qp) && sim->node[!id].closed)
			vb_iw_closed(&n->qp, VB_IW_RESET);
		if (all_goes_well(sim) || (!n->closed && !vb_iw_over(&n->qp))) {
			SIM_MUST(sim, n->completed == n->goal && vb_iw_idle(&n->qp));
			SIM_MUST(sim, !n->qp.stats.bytes_direct_in || (!n->qp.cfg.crc && !n->qp.cfg.markers_in));
		}
		SIM_MUST(sim, n->completed == n->taken || !vb_iw_over(&n->qp));
	}
}

bool sim_run(struct sim *sim)
{
	uint32_t patience = 300 + sim_below(sim, 3000);

	while (!sim->problem[0] && !done(sim) && sim->steps < patience) {
		sim->steps++;
		step(sim);
		if (sim->steps % 512 == 0)
			sim_check_memory(sim, false);
	}
	run_down(sim);
	/* a damaged length makes it wait for bytes that never arrive, so the programs give up */
	for (int id = 0; id < 2 && sim->mode == SIM_DAMAGED && !done(sim); id++) {
		vb_iw_closed(&sim->node[id].qp, VB_IW_RESET);
		sim->node[id].closed = true;
		sim->node[!id].pipe_len = 0;
	}
	if (!sim->problem[0])
		SIM_MUST(sim, done(sim));
	if (!sim->problem[0])
		check_end(sim);
	if (!sim->problem[0])
		sim_check_memory(sim, all_goes_well(sim));
	return !sim->problem[0];
}
