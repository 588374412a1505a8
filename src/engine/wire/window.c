// window.c - how many packets may be under way: slow start, then by delay and loss
// follows: RFC 5681 (AIMD), RFC 6298 (round-trip time); IBA annex A17.9 (congestion notification)
// SPDX-License-Identifier: MIT
#include "engine/wire/window.h"

#define RTT_MIN_LIFE 10000000000ull /* ns: then the path may have changed */
#define RTT_UNKNOWN 20000000ull     /* ns: patience before the first answer */
#define LONG_PATH 1000000ull        /* ns: round trips are few, so each has to count */
#define DELAY_SLACK 10000ull        /* ns that are no sign of a queue */

void vb_wire_window_init(struct vb_wire_window *w, uint32_t max)
{
	*w = (struct vb_wire_window){.max = max ? max : VB_WIRE_WINDOW_MAX};
	w->packets = w->max < VB_WIRE_WINDOW_FIRST ? w->max : VB_WIRE_WINDOW_FIRST;
	w->slow_start_below = w->max;
}

void vb_wire_window_rtt(struct vb_wire_window *w, uint64_t rtt, bool first, uint64_t now)
{
	if (!rtt)
		rtt = 1;
	if (!w->rtt_min || (first && rtt <= w->rtt_min) || now - w->rtt_min_at > RTT_MIN_LIFE) {
		w->rtt_min = rtt;
		w->rtt_min_at = now;
	}
	if (!w->srtt) {
		w->srtt = rtt;
		w->rttvar = rtt / 2;
		return;
	}
	uint64_t off = rtt > w->srtt ? rtt - w->srtt : w->srtt - rtt;

	w->rttvar = w->rttvar - w->rttvar / 4 + off / 4;
	w->srtt = w->srtt - w->srtt / 8 + rtt / 8;
}

/* The path holds no queue to speak of. */
static bool quiet(const struct vb_wire_window *w)
{
	return w->srtt <= w->rtt_min + w->rtt_min / 8 + DELAY_SLACK;
}

/* Acknowledged packets that make the window one packet longer: in each round trip at least one, on a quiet path more.
 */
static uint32_t growth(const struct vb_wire_window *w)
{
	uint32_t step = w->rtt_min > LONG_PATH ? 8 : 32;

	return quiet(w) && step < w->packets ? step : w->packets;
}

void vb_wire_window_acked(struct vb_wire_window *w, uint32_t packets, bool full)
{
	if (!full)
		return;
	if (w->packets < w->slow_start_below) {
		if (w->rtt_min && w->srtt > 2 * w->rtt_min + DELAY_SLACK)
			w->slow_start_below = w->packets; /* a queue builds up: enough */
		w->packets += packets;
	} else {
		uint32_t step = growth(w);

		w->acked += packets;
		w->packets += w->acked / step;
		w->acked %= step;
	}
	if (w->packets > w->max)
		w->packets = w->max;
}

/* Once per round trip: to this share of 16. */
static void reduce(struct vb_wire_window *w, uint32_t share, uint64_t now)
{
	if (w->reduced_at && now - w->reduced_at < w->srtt)
		return;
	w->reduced_at = now;
	w->packets = (uint32_t)((uint64_t)w->packets * share / 16);
	if (!w->packets)
		w->packets = 1;
	w->slow_start_below = w->packets;
	w->acked = 0;
}

void vb_wire_window_lost(struct vb_wire_window *w, uint64_t now)
{
	reduce(w, quiet(w) ? 14 : 10, now);
}

/* Nothing came back at all: begin again with little, and grow to half of what it was. */
void vb_wire_window_silent(struct vb_wire_window *w, uint64_t now)
{
	uint32_t half = w->packets / 2;

	if (half >= 2)
		w->slow_start_below = half;
	w->packets = w->max < 2 ? 1 : 2;
	w->acked = 0;
	w->reduced_at = now;
}

void vb_wire_window_marked(struct vb_wire_window *w, uint64_t now)
{
	reduce(w, 12, now);
}

uint64_t vb_wire_window_patience(const struct vb_wire_window *w, uint64_t least)
{
	uint64_t spread = 4 * w->rttvar > w->srtt / 2 ? 4 * w->rttvar : w->srtt / 2;
	uint64_t rto = w->srtt ? w->srtt + spread : RTT_UNKNOWN;

	return rto > least ? rto : least;
}
