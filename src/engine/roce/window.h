// window.h - the congestion window: slow start, then control by delay and loss
// follows: RFC 5681 (AIMD), RFC 6298 (round-trip time); IBA annex A17.9 (congestion notification)
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_ROCE_WINDOW_H
#define VB_ENGINE_ROCE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define VB_ROCE_WINDOW_FIRST 32
#define VB_ROCE_WINDOW_MAX 16384

/*
 * Loss alone is not congestion. On a path that is lossy but not full (its delay is near the minimum) the window shrinks
 * a little and grows back quickly; if round trips are long it does not shrink. If the delay has grown, the window
 * shrinks like TCP's, and then grows as slowly for a while. In neither case does it fall below the amount that the path
 * has recently carried without a queue. On a short path, where schedulers determine the delay, a window up to a certain
 * size ignores delay.
 */
struct vb_roce_window {
	uint32_t packets; /* at least 1 */
	uint32_t slow_start_below, max;
	uint32_t ample;                 /* on a short path delay is ignored while the window is smaller */
	uint64_t lost_at;               /* 0: no loss yet */
	uint32_t acked;                 /* since the last growth */
	uint64_t rtt_min, srtt, rttvar; /* ns; 0: none seen yet */
	uint64_t rtt_min_at;            /* when rtt_min was last seen */
	uint64_t rtt_least;             /* the shortest ever */
	bool guessed;                   /* srtt is an upper bound only */
	uint64_t reduced_at;            /* time of the last reduction: one per round trip */
	uint64_t careful_until;         /* end of the slow growth after a full queue */
	uint32_t ceiling;               /* until then the window grows slowly only above this size */
	uint64_t careful_at;            /* when a full queue was last seen */
	uint32_t careful;               /* the length of that time in round trips */
	uint64_t rtt, rtt_max;          /* the last round trip; the longest of recent ones */
	uint64_t earlier[2], rtt_at;    /* the two before the last; when the last was measured */
	uint32_t count;                 /* packets acknowledged since count_at */
	uint64_t count_at;
	uint32_t carried,
	        carried_before; /* the most packets that the path carried in rtt_min: recently, and before that */
	uint8_t counts;
};

/* max: 0 for VB_ROCE_WINDOW_MAX. mtu: bytes of payload in a packet. */
void vb_roce_window_init(struct vb_roce_window *w, uint32_t max, uint32_t mtu);
/* Takes a measured round trip. first: the packet was sent only once; otherwise rtt may be too short. */
void vb_roce_window_rtt(struct vb_roce_window *w, uint64_t rtt, bool first, uint64_t now);
/* Takes an upper bound of the round trip, which is used until one is measured. */
void vb_roce_window_guess(struct vb_roce_window *w, uint64_t rtt);
/* Packets were acknowledged. full: the window limited the sender. */
void vb_roce_window_acked(struct vb_roce_window *w, uint32_t packets, bool full, uint64_t now);
/* A packet was lost. cheap: few packets must be repeated. */
void vb_roce_window_lost(struct vb_roce_window *w, bool cheap, uint64_t now);
/* An answer is overdue, but packets may still be in flight. */
void vb_roce_window_late(struct vb_roce_window *w, uint64_t now);
void vb_roce_window_silent(struct vb_roce_window *w, uint64_t now);
/* Restores the earlier values, because nothing was lost. */
void vb_roce_window_restore(struct vb_roce_window *w, uint32_t packets, uint32_t slow_start_below);
void vb_roce_window_marked(struct vb_roce_window *w, uint64_t now);
/* Is the queue of the path about as long as the longest one seen? */
bool vb_roce_window_crowded(const struct vb_roce_window *w);
/* The time without an answer after which a packet is repeated. */
uint64_t vb_roce_window_patience(const struct vb_roce_window *w, uint64_t least);
/* The longest recent time of an answer on a short path, where a busy end may stall again. ns; 0: unknown. */
uint64_t vb_roce_window_stall(const struct vb_roce_window *w);

#endif
