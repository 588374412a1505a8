// tcp.c - the window of a TCP that writes endlessly, in virtual time: reno, cubic or BBR
// follows: RFC 5681 (AIMD), RFC 9438 (CUBIC), RFC 9406 (HyStart, delay only),
// draft-cardwell-iccrg-bbr-congestion-control-00
// SPDX-License-Identifier: MIT
#include "tcp.h"

#include <math.h>
#include <string.h>

#define SECOND 1e9
#define MIN_LIFE 10000000000ull /* ns: lifetime of the minimum round trip */
#define PROBE_TIME 200000000ull
#define HIGH_GAIN 2.885

void tcp_start(struct tcp *t, enum tcp_kind kind, uint64_t now)
{
	memset(t, 0, sizeof(*t));
	t->kind = kind;
	t->window = 10;
	t->threshold = UINT32_MAX;
	t->heard_at = t->delivered_at = now;
	t->gain = t->window_gain = HIGH_GAIN;
}

bool tcp_may_send(const struct tcp *t, uint64_t now)
{
	return t->kind != TCP_NONE && t->in_flight < t->window && now >= t->pace_at;
}

uint64_t tcp_paced_until(const struct tcp *t)
{
	return t->in_flight < t->window ? t->pace_at : 0;
}

static double bandwidth(const struct tcp *t)
{
	double most = 0;

	for (int i = 0; i < TCP_ROUNDS; i++)
		most = t->rate[i] > most ? t->rate[i] : most;
	return most;
}

void tcp_sending(struct tcp *t, uint64_t now)
{
	double rate = t->kind == TCP_BBR ? t->gain * bandwidth(t) : 0;

	if (!t->in_flight)
		t->delivered_at = now;
	t->of[t->sent % TCP_RING].at = now;
	t->of[t->sent % TCP_RING].delivered = t->delivered;
	t->of[t->sent % TCP_RING].delivered_at = t->delivered_at;
	t->sent++;
	t->in_flight++;
	if (rate > 0)
		t->pace_at = (t->pace_at + 1000000 > now ? t->pace_at : now) + (uint64_t)(1 / rate);
}

/* --- loss-based --- */

static void reduce(struct tcp *t, double share)
{
	if (t->kind == TCP_CUBIC)
		t->most = t->window < t->most ? t->window * (1 + share) / 2 : t->window;
	t->threshold = (uint32_t)(t->window * share) > 2 ? (uint32_t)(t->window * share) : 2;
	t->window = t->threshold;
	t->share = t->window;
	t->epoch_at = 0;
}

static void grow_by_one(struct tcp *t)
{
	if (++t->grown < t->window)
		return;
	t->window++;
	t->grown = 0;
}

static void grow_cubic(struct tcp *t, uint64_t now)
{
	if (!t->epoch_at) {
		t->epoch_at = now;
		if (t->most < t->window)
			t->most = t->window;
		t->k = cbrt((t->most - t->window) / 0.4);
		t->share = t->window;
	}
	double s = (double)(now - t->epoch_at + t->rtt_min) / SECOND - t->k, want = t->most + 0.4 * s * s * s;

	t->share += 3 * (1 - 0.7) / (1 + 0.7) / t->share; /* the window that reno would have */
	if (want < t->share)
		want = t->share;
	if (want > 1.5 * t->window)
		want = 1.5 * t->window;
	if (want <= t->window)
		return;
	t->grown += (uint32_t)(1000 * (want - t->window) / t->window);
	t->window += t->grown / 1000;
	t->grown %= 1000;
}

static void by_loss(struct tcp *t, uint64_t number, bool lost, uint64_t rtt, uint64_t now)
{
	if (number < t->recover)
		return;
	if (lost) {
		t->recover = t->sent;
		reduce(t, t->kind == TCP_CUBIC ? 0.7 : 0.5);
	} else if (t->window < t->threshold) {
		t->window++;
		if (t->kind == TCP_CUBIC && rtt > t->rtt_min + t->rtt_min / 8)
			t->threshold = t->window;
	} else if (t->kind == TCP_CUBIC) {
		grow_cubic(t, now);
	} else {
		grow_by_one(t);
	}
}

/* --- BBR --- */

static void next_round(struct tcp *t)
{
	double now = bandwidth(t);

	t->round_ends = t->delivered + t->in_flight;
	if (!t->filled && now < t->full_rate * 1.25) {
		t->filled = ++t->full_rounds >= 3;
	} else if (!t->filled) {
		t->full_rate = now;
		t->full_rounds = 0;
	}
	t->rate[++t->rounds % TCP_ROUNDS] = 0;
}

static void next_phase(struct tcp *t, double room, uint64_t now)
{
	static const double gains[] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
	bool over = now - t->cycle_at > t->rtt_min;

	if (!t->filled)
		return;
	t->window_gain = 2;
	if (!t->drained) {
		t->gain = 1 / HIGH_GAIN;
		t->drained = t->in_flight <= room;
		t->cycle_at = now;
		t->cycle = 2;
		if (!t->drained)
			return;
	}
	if (gains[t->cycle] > 1 && t->in_flight < 1.25 * room && now - t->cycle_at < 4 * t->rtt_min)
		over = false;
	if (gains[t->cycle] < 1 && t->in_flight <= room)
		over = true;
	if (over) {
		t->cycle = (t->cycle + 1) % 8;
		t->cycle_at = now;
	}
	t->gain = gains[t->cycle];
}

static void by_model(struct tcp *t, uint64_t number, uint64_t now)
{
	uint64_t before = t->of[number % TCP_RING].delivered, time = now - t->of[number % TCP_RING].delivered_at;
	double rate = time ? (double)(t->delivered - before) / (double)time : 0,
	       *of_round = &t->rate[t->rounds % TCP_ROUNDS];

	if (rate > *of_round && time >= t->rtt_min)
		*of_round = rate;
	if (before >= t->round_ends)
		next_round(t);
	double room = bandwidth(t) * (double)t->rtt_min;

	next_phase(t, room, now);
	if (now - t->rtt_min_at > MIN_LIFE && !t->probe_until) {
		t->probe_until = now + PROBE_TIME;
	} else if (t->probe_until && now > t->probe_until) {
		t->probe_until = 0;
		t->rtt_min_at = now;
	}
	t->window = t->probe_until ? 4 : room > 0 ? (uint32_t)(t->window_gain * room) + 3 : t->window + 1;
	if (!t->filled && t->window < 10)
		t->window = 10;
}

/* --- both --- */

void tcp_acknowledged(struct tcp *t, uint64_t number, uint64_t now)
{
	uint32_t lost = (uint32_t)(number - t->acked);
	uint64_t rtt = now - t->of[number % TCP_RING].at;

	t->heard_at = t->delivered_at = now;
	t->acked = number + 1;
	t->delivered++;
	t->in_flight -= lost + 1 < t->in_flight ? lost + 1 : t->in_flight;
	if (!t->rtt_min || rtt <= t->rtt_min || t->probe_until) {
		t->rtt_min = !t->rtt_min || rtt < t->rtt_min || (t->probe_until && now - t->rtt_min_at > MIN_LIFE)
		                     ? rtt
		                     : t->rtt_min;
		t->rtt_min_at = now;
	}
	if (t->kind == TCP_BBR)
		by_model(t, number, now);
	else
		by_loss(t, number, lost, rtt, now);
}

void tcp_silent(struct tcp *t, uint64_t now)
{
	t->heard_at = now;
	t->in_flight = 0;
	if (t->kind == TCP_BBR)
		return;
	reduce(t, t->kind == TCP_CUBIC ? 0.7 : 0.5);
	t->window = 1;
}
