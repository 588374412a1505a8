// window.h - how many packets may be under way: slow start, then by delay and loss
// follows: RFC 5681 (AIMD), RFC 6298 (round-trip time); IBA annex A17.9 (congestion notification)
// SPDX-License-Identifier: MIT
#ifndef VB_ENGINE_ROCE_WINDOW_H
#define VB_ENGINE_ROCE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define VB_ROCE_WINDOW_FIRST 32
#define VB_ROCE_WINDOW_MAX 16384

/*
 * Loss alone is not congestion: on a path that is lossy but not full (its delay is near the least ever seen) the window
 * gives way a little and grows back quickly, or does not give way at all, where round trips are long; where the delay
 * has grown it gives way as a TCP's would, and grows as slowly for a while. In neither case it falls below what the
 * path has carried of late, without a queue. On a short path, where schedulers make the delay, only losses count up to
 * a certain size.
 */
struct vb_roce_window {
	uint32_t packets; /* at least 1 */
	uint32_t slow_start_below, max;
	uint32_t ample;                 /* on a short path delay says nothing as long as it is smaller */
	uint64_t lost_at;               /* 0: nothing was lost yet */
	uint32_t acked;                 /* since the last growth */
	uint64_t rtt_min, srtt, rttvar; /* ns; 0: none seen yet */
	uint64_t rtt_min_at;            /* when rtt_min was last seen */
	uint64_t rtt_least;             /* the shortest ever */
	bool guessed;                   /* srtt is: more than it takes, perhaps */
	uint64_t reduced_at;            /* one reduction per round trip */
	uint64_t careful_until;         /* a full queue was seen: for a while slow growth, beyond ... */
	uint32_t ceiling;               /* ... somewhat less than the window then */
	uint64_t careful_at;            /* when that was seen last */
	uint32_t careful;               /* for how many round trips it is careful */
	uint64_t rtt, rtt_max;          /* the last; the longest of late */
	uint64_t earlier[2], rtt_at;    /* before the last; when the last was seen */
	uint32_t count;                 /* acknowledged since count_at */
	uint64_t count_at;
	uint32_t carried,
	        carried_before; /* packets that the path has carried in rtt_min, at most: of late, and earlier */
	uint8_t counts;
};

/* max: 0 for VB_ROCE_WINDOW_MAX. mtu: bytes of payload in a packet. */
void vb_roce_window_init(struct vb_roce_window *w, uint32_t max, uint32_t mtu);
/* first: of a packet that was sent once only; else it may be too short. */
void vb_roce_window_rtt(struct vb_roce_window *w, uint64_t rtt, bool first, uint64_t now);
/* Where nothing is known yet: it took so long at most. */
void vb_roce_window_guess(struct vb_roce_window *w, uint64_t rtt);
/* full: the window was what held the sender back. */
void vb_roce_window_acked(struct vb_roce_window *w, uint32_t packets, bool full, uint64_t now);
/* cheap: little has to go again. */
void vb_roce_window_lost(struct vb_roce_window *w, bool cheap, uint64_t now);
/* An answer is overdue, but something may still be on its way. */
void vb_roce_window_late(struct vb_roce_window *w, uint64_t now);
void vb_roce_window_silent(struct vb_roce_window *w, uint64_t now);
/* It was not so: as it was before. */
void vb_roce_window_restore(struct vb_roce_window *w, uint32_t packets, uint32_t slow_start_below);
void vb_roce_window_marked(struct vb_roce_window *w, uint64_t now);
/* Is the queue now about as long as ever? */
bool vb_roce_window_crowded(const struct vb_roce_window *w);
/* After how long without an answer something is sent again. */
uint64_t vb_roce_window_patience(const struct vb_roce_window *w, uint64_t least);
/* How long an answer has taken of late on a short path, where an end was busy: it may be again. ns; 0: that is not
 * known. */
uint64_t vb_roce_window_stall(const struct vb_roce_window *w);

#endif
