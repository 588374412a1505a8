// window.c - the congestion window: slow start, then control by delay and loss
// follows: RFC 5681 (AIMD), RFC 6298 (round-trip time); IBA annex A17.9 (congestion notification)
// SPDX-License-Identifier: MIT
#include "engine/roce/window.h"
#include "util/units.h"

#define RTT_MIN_LIFE VB_S(10) /* ns: after this the path may have changed */
#define RTT_UNKNOWN VB_MS(20) /* ns: timeout before the first answer */
#define LONG_PATH VB_MS(1)    /* ns: a path with longer round trips has few of them, so each must count */
#define CAREFUL_MIN 64        /* round trips of slow growth after a full queue: at first */
#define CAREFUL_MAX 512       /* round trips of slow growth: at most, after doubling */
#define CAREFUL_AGAIN 1024    /* round trips in which another full queue doubles that time */
#define KNOWN 4               /* round trips for which a measured delay is valid */
#define DELAY_SLACK VB_US(10) /* ns: a delay this small is no sign of a queue */
#define STALL_MAX VB_MS(20)   /* ns: longer stalls of a busy end are not expected again */
#define AMPLE (1u << 20)      /* bytes: on a short path a smaller window ignores delay */
#define AMPLE_AGAIN 256       /* round trips after a loss during which no window ignores delay */

void vb_roce_window_init(struct vb_roce_window *w, uint32_t max, uint32_t mtu)
{
	*w = (struct vb_roce_window){.max = max ? max : VB_ROCE_WINDOW_MAX, .ample = AMPLE / mtu};
	w->packets = w->max < VB_ROCE_WINDOW_FIRST ? w->max : VB_ROCE_WINDOW_FIRST;
	w->slow_start_below = w->max;
}

__attribute__((hot)) void vb_roce_window_rtt(struct vb_roce_window *w, uint64_t rtt, bool first, uint64_t now)
{
	if (!rtt)
		rtt = 1;
	if (!first && w->guessed)
		return; /* the answer may be to an earlier copy, and there is no measured time to compare with */
	w->rtt_at = now;
	w->earlier[1] = w->earlier[0];
	w->earlier[0] = w->rtt;
	w->rtt = rtt;
	w->rtt_max = rtt > w->rtt_max ? rtt : w->rtt_max - (w->rtt_max - rtt) / 2048;
	if (first && (!w->rtt_least || rtt < w->rtt_least))
		w->rtt_least = rtt;
	if (w->guessed)
		w->srtt = 0;
	w->guessed = false;
	bool sure = first || rtt >= w->rtt_least;

	if (!w->rtt_min || (sure && rtt <= w->rtt_min) || now - w->rtt_min_at > RTT_MIN_LIFE) {
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

void vb_roce_window_guess(struct vb_roce_window *w, uint64_t rtt)
{
	if (w->srtt)
		return;
	w->srtt = rtt ? rtt : 1;
	w->rttvar = rtt / 2;
	w->guessed = true;
}

/* The longest round trip without a notable queue on the path. */
static uint64_t calm_rtt(const struct vb_roce_window *w)
{
	return w->rtt_min + w->rtt_min / 16 + DELAY_SLACK;
}

/* The shortest of the last three round trips: a late thread makes one or two of them long, a queue all. */
static uint64_t least_of_late(const struct vb_roce_window *w)
{
	uint64_t rtt = w->rtt;

	for (int i = 0; i < 2; i++)
		rtt = w->earlier[i] && w->earlier[i] < rtt ? w->earlier[i] : rtt;
	return rtt;
}

/* Is the last delay still valid? While packets are repeated, no round trips are timed. */
static bool delay_known(const struct vb_roce_window *w, uint64_t now)
{
	return now - w->rtt_at < KNOWN * w->srtt;
}

__attribute__((hot)) bool vb_roce_window_crowded(const struct vb_roce_window *w)
{
	uint64_t rtt = least_of_late(w);

	return w->rtt_min && rtt > calm_rtt(w) && rtt - w->rtt_min > (w->rtt_max - w->rtt_min) / 2;
}

/*
 * Is delay ignored? On a short path between busy machines the schedulers determine the round-trip time, which may be a
 * hundred times the shortest one and says nothing about the network. Up to this window size only losses count. If the
 * socket buffer at the other end is small, they occur soon.
 */
static bool window_modest(const struct vb_roce_window *w, uint64_t now)
{
	return w->packets < w->ample && w->rtt_min < LONG_PATH &&
	       (!w->lost_at || now - w->lost_at > AMPLE_AGAIN * w->srtt);
}

/* Measures how many packets the path carries, over some round trips, because one acknowledgement may cover several
 * packets. */
static void count_carried(struct vb_roce_window *w, uint32_t packets, uint64_t now)
{
	uint64_t time = now - w->count_at;

	w->count += packets;
	if (!w->count_at || !w->srtt) {
		w->count_at = now;
		w->count = 0;
		return;
	}
	if (time < 2 * w->srtt)
		return;
	uint64_t carried = w->count * w->rtt_min / time;

	if (w->counts++ % 4 == 0) {
		w->carried_before = w->carried;
		w->carried = 0;
	}
	if (w->carried < carried)
		w->carried = (uint32_t)carried;
	w->count_at = now;
	w->count = 0;
}

/*
 * The number of acknowledged packets after which the window grows by one packet. On a quiet path it grows by many
 * packets per round trip. On a long path that is neither quiet nor full it grows by some, because round trips may vary
 * for other reasons. On a full path it grows a quarter as fast as TCP's, because it shrinks less than TCP's after a
 * loss, and its packets are larger.
 */
static uint32_t growth_step(const struct vb_roce_window *w, uint64_t now)
{
	uint32_t step = w->rtt_min > LONG_PATH ? 8 : 32;

	if (window_modest(w, now))
		return step < w->packets ? step : w->packets;
	if (now < w->careful_until && w->packets >= w->ceiling)
		return 4 * w->packets;
	if (!delay_known(w, now))
		step = w->packets;
	else if (w->rtt > calm_rtt(w))
		step = w->rtt_min > LONG_PATH && !vb_roce_window_crowded(w) ? 32 : w->packets;
	return step < w->packets ? step : w->packets;
}

__attribute__((hot)) void vb_roce_window_acked(struct vb_roce_window *w, uint32_t packets, bool full, uint64_t now)
{
	count_carried(w, packets, now);
	if (!full)
		return;
	if (w->packets < w->slow_start_below) {
		if (w->rtt_min && !window_modest(w, now) &&
		    w->rtt > (w->rtt_min > LONG_PATH ? w->rtt_min / 4 * 5 : 2 * w->rtt_min) + DELAY_SLACK)
			w->slow_start_below = w->packets; /* a queue builds up, so slow start ends */
		w->packets += packets;
	} else {
		uint32_t step = growth_step(w, now);

		w->acked += packets;
		w->packets += w->acked / step;
		w->acked %= step;
	}
	if (w->packets > w->max)
		w->packets = w->max;
}

/* Reduces the window to share / 16, but not below `least`, once per round trip. */
static void reduce_window(struct vb_roce_window *w, uint32_t share, uint32_t least, uint64_t now)
{
	if (w->reduced_at && now - w->reduced_at < w->srtt)
		return;
	uint32_t packets = (uint32_t)((uint64_t)w->packets * share / 16);

	if (packets < least)
		packets = least < w->packets ? least : w->packets;
	w->reduced_at = now;
	w->packets = packets ? packets : 1;
	w->slow_start_below = w->packets;
	w->acked = 0;
}

/* A single sign of a full queue may be wrong. Repeated signs mean a competing TCP flow, which must get its share. */
static void be_careful(struct vb_roce_window *w, uint64_t now)
{
	bool again = w->careful && now - w->careful_at < CAREFUL_AGAIN * w->srtt;
	uint32_t trips = again ? 2 * w->careful : CAREFUL_MIN;

	w->careful = trips < CAREFUL_MAX ? trips : CAREFUL_MAX;
	w->careful_at = now;
	w->careful_until = now + w->careful * w->srtt;
}

void vb_roce_window_lost(struct vb_roce_window *w, bool cheap, uint64_t now)
{
	uint32_t carried = w->carried > w->carried_before ? w->carried : w->carried_before;

	w->lost_at = now;
	if (!vb_roce_window_crowded(w)) {
		if (w->rtt_min < LONG_PATH || !cheap || !delay_known(w, now) || least_of_late(w) > calm_rtt(w))
			reduce_window(w, cheap ? 15 : 14, carried, now);
		return;
	}
	uint32_t before = w->packets, ceiling = before - before / 8;

	reduce_window(w, 10, carried < ceiling ? carried : ceiling, now);
	if (w->packets < before) {
		be_careful(w, now);
		w->ceiling = ceiling;
	}
}

void vb_roce_window_late(struct vb_roce_window *w, uint64_t now)
{
	uint32_t least = w->rtt_min < LONG_PATH ? w->ample : w->carried / 2;

	if (w->srtt)
		reduce_window(w, 8, least, now);
}

/* After no answer at all: starts again with a small window, which grows quickly to half of the former one. */
void vb_roce_window_silent(struct vb_roce_window *w, uint64_t now)
{
	uint32_t half = w->packets / 2;

	if (half >= 2 && w->rtt) /* an answer was timed since the last call */
		w->slow_start_below = half;
	w->packets = w->max < 2 ? 1 : 2;
	w->acked = 0;
	w->reduced_at = now;
	w->rtt = w->earlier[0] = w->earlier[1] = 0; /* forgets the old queue */
}

void vb_roce_window_restore(struct vb_roce_window *w, uint32_t packets, uint32_t slow_start_below)
{
	w->packets = packets;
	w->slow_start_below = slow_start_below;
}

void vb_roce_window_marked(struct vb_roce_window *w, uint64_t now)
{
	reduce_window(w, 12, 1, now);
}

__attribute__((hot)) uint64_t vb_roce_window_patience(const struct vb_roce_window *w, uint64_t least)
{
	uint64_t spread = 4 * w->rttvar > w->srtt / 2 ? 4 * w->rttvar : w->srtt / 2;
	uint64_t rto = w->srtt ? w->srtt + spread : RTT_UNKNOWN;

	return rto > least ? rto : least;
}

__attribute__((hot)) uint64_t vb_roce_window_stall(const struct vb_roce_window *w)
{
	if (!w->srtt || w->rtt_min >= LONG_PATH)
		return 0;
	return w->rtt_max < STALL_MAX ? w->rtt_max : STALL_MAX;
}
